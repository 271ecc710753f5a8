"""The microcoded core's own rules: memories at first, limits of a run, values in flight."""

import re

import pytest

from celosia.arch.assembler import assemble
from celosia.arch.errors import RunError
from celosia.arch.instruction import pack
from celosia.arch.micro.assembler import Microcode
from celosia.arch.micro.isa import SCALE_CYCLES
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter
from celosia.sim.micro_core import MicroCore
from celosia.sim.micro_machine import MicroMachine

CONFIG = PRESETS["micro"]


def core_of(text: str, **registers: int) -> MicroCore:
    """Return a core with microcode and some registers; nothing has run."""
    core = MicroCore(CONFIG, Microcode(text).words())
    for name, value in registers.items():
        core.registers[int(name[1:])] = value % (1 << 32)
    return core


def run(core: MicroCore) -> MicroCore:
    """Run a core's microcode to its end."""
    core.run(len(core.microcode))
    return core


def test_all_is_zero_at_first() -> None:
    core = core_of("LOW r8\nMIDDLE r9", r8=7, r9=7)
    assert (core.address, core.cycles, core.pc, core.running) == (0, 0, 0, False)
    assert not any(core.sp)
    assert not any(core.data)
    assert not core.dram.any()
    assert not any(map(any, core.acc))
    assert run(core).registers == [0] * 64


def test_microcode_without_an_end_is_refused() -> None:
    core = core_of("ADDI r8, r8, 1\nJUMP r0, r0, 0")
    message = "Microcode did not come to 2 within 7 steps"
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        core.run(2, limit=7)
    assert core.registers[8] == 4


def test_elements_are_stored_and_loaded_in_the_scratchpad() -> None:
    """A core without a listener writes the same bytes as one with it."""
    text = "SBP r8, r9, 1\nSHP r8, r9, -2\nLB r10, r8, 1\nLH r11, r8, 2\nLHU r12, r8, 2"
    values, heard = {"r8": 101, "r9": 0xFFFE_A5C3}, []
    core = core_of(text, **values)
    listener = core_of(text, **values)
    listener.on_write = lambda address, value: heard.append((address, value))
    assert run(core).sp == run(listener).sp
    assert heard == [(101, 0xC3), (102, 0xC3), (103, 0xA5)]
    assert core.registers[10:13] == [0xFFFF_FFC3, 0xFFFF_A5C3, 0xA5C3]
    assert core.registers[8] == 100


def test_signatures_are_those_of_the_golden_machine() -> None:
    words = pack(assemble("DRAIN m=2 n=4 o_addr=8 o_stride=20 o_zero=5 per_tensor\nHALT"))
    machines = Interpreter(CONFIG), MicroMachine(CONFIG)
    for machine in machines:
        machine.load_program(words)
    golden, micro = (machine.start().signatures for machine in machines)
    assert golden == micro
    assert len(micro) == 1


@pytest.mark.parametrize(("shift", "more"), [(-3, 0), (0, 0), (1, 2), (9, 10)])
def test_a_value_is_ready_after_its_left_shifts(shift: int, more: int) -> None:
    core = core_of("BOUNDS r8, r0\nSCALE r9, r10, 0\nSCALED r11", r8=0x7FFF_8000, r9=64, r10=96)
    core.data[64:67] = [0, 1 << 30, shift % (1 << 32)]
    core.run(1)
    before = core.cycles
    assert run(core).registers[11] == int(48 * 2.0**shift)
    assert core.cycles - before == SCALE_CYCLES + more + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCALE r0, r0, 0\n" * 3, "two requantized values have not been taken"),
        ("WEIGHTS r8, r0", "two weights from an odd address on"),
        ("ENTERS r8, r0", "two activations from an odd address on"),
        ("ENTERS r0, r8", "two activations from an odd address on"),
        ("ASK r0, r0\nTAKES r8, r0", "two bytes to an odd address"),
        ("ENTER r0, r0\nSUMS r0, r0", "a sum was taken too early"),
        ("OFFER r0, r0\nAWAIT", "words that were offered have not been given"),
    ],
)
def test_microcode_that_the_circuit_cannot_run_is_noticed(text: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(core_of(text, r8=1))
