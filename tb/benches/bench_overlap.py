"""Bench of ``celosia.hdl.vector.overlap``, which lets two commands of the vector engine overlap.

Parameters: ``config``, all fields of the configuration; ``commands``, an eighth of the number of
cycles.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.hdl.ports import command_layout
from celosia.tb.benches.common import parameters, rng, start_clock

OPCODE_WIDTH = command_layout(Engine.VECTOR)["opcode"].width
FOLLOWED = DEFINITIONS[Opcode.DRAIN].flag_bit("followed")


def random_command(random: Any, opcode: int = 0) -> dict[str, int]:
    """Return a random command of the vector engine, a dictionary from field to value.

    The command's opcode is the argument ``opcode`` with probability 1/2; otherwise it differs from
    the argument in one bit. The flag ``followed``, which lets the next command overlap with this
    command, has probability 2/3.
    """
    layout = command_layout(Engine.VECTOR)
    fields = {
        name: int.from_bytes(random.bytes(8), "little") % (1 << layout[name].width)
        for name in layout.members
    }
    fields["opcode"] = opcode ^ int(random.choice([0, 1 << random.integers(OPCODE_WIDTH)]))
    fields["flags"] &= ~(1 << FOLLOWED)
    fields["flags"] |= int(random.random() < 2 / 3) << FOLLOWED
    return fields


def word(fields: dict[str, int]) -> int:
    """Return a vector engine command as an integer, in the bit layout of the circuit's input ``i``.

    ``fields`` is a dictionary from the name of each field of the command to its value.
    """
    layout = command_layout(Engine.VECTOR)
    return sum(value << layout[name].offset for name, value in fields.items())


@cocotb.test()
async def commands_overlap_by_one(dut: Any) -> None:
    """The vector engine works on at most two commands: one in its front end, one in its back end.

    Without the flag ``followed``, a command stays in the front end until all results are written.
    With the flag, it moves to the back end if all its inputs are requested, all units have begun
    it, and the back end is empty. The next command can then enter the front end.
    """
    settings, random = parameters(), rng()
    config = Config.of(**settings["config"])
    await start_clock(dut, rng())
    door, behind = random_command(random), None
    read = left = 0
    for _ in range(settings["commands"] * 8):
        asks = int(not read and random.random() < 0.3)
        reading, owes = int(random.random() < 0.3), int(random.random() < 0.3)
        written = int(random.random() < 0.25)
        dut.i.value = word(door)
        dut.read.value, dut.reading.value = asks, reading
        dut.owes.value, dut.written.value = owes, written
        await FallingEdge(dut.clk)
        followed = config.fused and door["flags"] >> FOLLOWED & 1
        # With ``registered`` the end of reading is known one cycle later.
        known = read if config.control.registered else read or asks
        early = int(bool(known and followed and not (reading or owes or written or behind)))
        assert int(dut.early.value) == early
        assert int(dut.behind.value) == int(behind is not None)
        assert int(dut.o.value) == word(door if behind is None else behind)
        if behind is not None:
            assert int(dut.follows.value) == int(door["opcode"] == behind["opcode"])
        read = read or asks
        ended = written and behind is None
        if behind is not None and written:
            behind = None
        if early:
            behind, left = door, left + 1
        if early or ended:
            door, read = random_command(random, door["opcode"]), 0
        await RisingEdge(dut.clk)
    assert left > settings["commands"] // 4 or not config.fused
