"""The golden models of the serial line, the host link and a machine at its end."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.link import Command, Identity, Status, request
from celosia.arch.presets import PRESETS
from celosia.arch.registers import REGISTER_MAP
from celosia.sim.link import LinkModel, answers
from celosia.sim.linked_machine import LinkedMachine
from celosia.sim.uart import line_bytes, line_levels

IDENTITY = Identity(version=1, configuration=77, clock=10**7, memory=64, payload=32)


class Registers:
    """Registers that answer with ten times their address, and keep each write."""

    def __init__(self, status: int = 0):
        self.written: list[tuple[int, int]] = []
        self._status = status

    def read(self, addr: int) -> int:
        return self._status if addr == REGISTER_MAP["STATUS"].addr else 10 * addr

    def write(self, addr: int, value: int) -> None:
        self.written.append((addr, value))


def linked(registers: Registers) -> LinkModel:
    return LinkModel(IDENTITY, 10, registers.read, registers.write)


def ask(model: LinkModel, frame: bytes) -> tuple[int, int, bytes]:
    """Return the only answer to a frame, which comes with the frame's last byte."""
    out = list(map(model.receive, frame))
    assert not any(out[:-1])
    (reply,) = answers(out[-1])
    return reply


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def test_memory_is_written_and_read_by_bytes() -> None:
    model = linked(Registers())
    assert ask(model, request(Command.WRITE_MEMORY, 1, 3, 61, b"abc")) == (Status.OK, 1, b"")
    assert model.memory == bytes(61) + b"abc"
    assert ask(model, request(Command.READ_MEMORY, 2, 4, 60)) == (Status.OK, 2, b"\0abc")


def test_registers_are_read_and_written_by_words() -> None:
    registers = Registers()
    model = linked(registers)
    data = words(5, 0x01020304)
    assert ask(model, request(Command.WRITE_REGISTERS, 3, 8, 250, data)) == (Status.OK, 3, b"")
    assert registers.written == [(250, 5), (251, 0x01020304)]
    reply = ask(model, request(Command.READ_REGISTERS, 4, 12, 253))
    assert reply == (Status.OK, 4, words(2530, 2540, 2550))


def test_hello_can_be_read_in_parts() -> None:
    assert ask(linked(Registers()), request(Command.HELLO, 5, 8, 3)) == (0, 5, words(64, 32))


def test_a_program_and_a_start_go_to_their_registers() -> None:
    registers = Registers()
    model = linked(registers)
    assert ask(model, request(Command.LOAD_PROGRAM, 6, 8, 2, words(7, 8)))[0] == Status.OK
    addr = {name: REGISTER_MAP[name].addr for name in REGISTER_MAP}
    program = [(addr["PROGRAM_ADDR"], 2), (addr["PROGRAM_DATA"], 7), (addr["PROGRAM_DATA"], 8)]
    started = [(addr["PC"], 9), (addr["CONTROL"], 1)]
    assert registers.written == program
    for _ in range(3):  # a START that comes again with its tag is not carried out again
        assert ask(model, request(Command.START, 7, 0, 9)) == (Status.OK, 7, b"")
        assert registers.written == program + started
    assert ask(model, request(Command.START, 8, 0, 9)) == (Status.OK, 8, b"")
    assert registers.written == program + 2 * started


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        (request(Command.READ_MEMORY, 9, 1, 64), Status.ADDRESS),
        (request(Command.READ_MEMORY, 9, 1, 63), Status.OK),
        (request(Command.WRITE_MEMORY, 9, 2, 63, b"ab"), Status.ADDRESS),
        (request(Command.READ_REGISTERS, 9, 4, 255), Status.OK),
        (request(Command.READ_REGISTERS, 9, 4, 256), Status.ADDRESS),
        (request(Command.READ_REGISTERS, 9, 6, 0), Status.LENGTH),
        (request(Command.WRITE_REGISTERS, 9, 2, 0, b"ab"), Status.LENGTH),
        (request(Command.WRITE_REGISTERS, 9, 8, 255, words(1, 2)), Status.ADDRESS),
        (request(Command.HELLO, 9, 4, 4), Status.OK),
        (request(Command.HELLO, 9, 4, 5), Status.ADDRESS),
        (request(Command.LOAD_PROGRAM, 9, 4, 9, words(1)), Status.OK),
        (request(Command.LOAD_PROGRAM, 9, 4, 10, words(1)), Status.ADDRESS),
        (request(Command.START, 9, 0, 9), Status.OK),
        (request(Command.START, 9, 0, 10), Status.ADDRESS),
        (request(Command.START, 9, 4, 0, words(1)), Status.LENGTH),
        (request(99, 9, 0, 0), Status.UNKNOWN),
    ],
)
def test_requests_that_cannot_be_carried_out_say_why(frame: bytes, status: Status) -> None:
    registers = Registers()
    reply = ask(linked(registers), frame)
    assert reply[:2] == (status, 9)
    if status != Status.OK:
        assert not registers.written


@pytest.mark.parametrize(("status", "busy"), [(1, Status.BUSY), (2, Status.OK)])
def test_a_machine_that_runs_gives_its_registers_alone(status: int, busy: Status) -> None:
    model = linked(Registers(status))
    assert ask(model, request(Command.START, 1, 0, 0))[0] == busy
    assert ask(model, request(Command.READ_MEMORY, 2, 4, 0))[0] == busy
    assert ask(model, request(Command.WRITE_MEMORY, 3, 1, 0, b"a"))[0] == busy
    assert ask(model, request(Command.LOAD_PROGRAM, 4, 4, 0, words(1)))[0] == busy
    assert ask(model, request(Command.HELLO, 5, 4, 0))[0] == Status.OK
    assert ask(model, request(Command.READ_REGISTERS, 6, 4, 0))[0] == Status.OK
    assert ask(model, request(Command.WRITE_REGISTERS, 7, 4, 0, words(1)))[0] == Status.OK


def test_frames_that_are_cut_or_damaged_are_answered_when_the_line_is_quiet() -> None:
    model = linked(Registers())
    whole = request(Command.WRITE_MEMORY, 33, 2, 0, b"ab")
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    long = request(Command.WRITE_MEMORY, 34, 33, 0, bytes(33))
    assert model.quiet() == b""
    assert model.receive(0) + model.receive(whole[0], broken=True) + model.quiet() == b""
    for frame, tag in ((whole[:-1], 33), (damaged, 33), (long, 34), (whole[:9], 33)):
        assert not any(map(model.receive, frame))
        assert answers(model.quiet()) == [(Status.CORRUPT, tag, b"")]
    assert not any(map(model.receive, whole[:8]))  # without all of a header there is no tag
    assert answers(model.quiet()) == [(Status.CORRUPT, 0, b"")]
    for place in range(1, len(whole)):
        for at, byte in enumerate(whole):
            assert not model.receive(byte, broken=at == place)
        assert answers(model.quiet())[0][0] == Status.CORRUPT
    assert not any(model.memory)
    assert ask(model, whole) == (Status.OK, 33, b"")


def test_a_machine_at_its_link_runs_on_the_links_memory() -> None:
    machine = LinkedMachine(PRESETS["small"], IDENTITY)
    text = "LOAD dram_addr=r2 m=1 row_bytes=8 push=STORE\n"
    text += "STORE dram_addr=40 m=1 row_bytes=8 pop=LOAD\nHALT"
    program = pack(assemble(text))
    data = bytes(range(1, 9))
    assert answers(machine.ask(request(Command.WRITE_MEMORY, 1, 8, 16, data)))[0][0] == Status.OK
    for place in range(0, len(program), 8):
        part = words(*program[place : place + 8])
        frame = request(Command.LOAD_PROGRAM, 2, len(part), 3 + place, part)
        assert answers(machine.ask(frame))[0][0] == Status.OK
    addr = REGISTER_MAP["R2"].addr
    machine.ask(request(Command.WRITE_REGISTERS, 3, 4, addr, words(16)))
    assert answers(machine.ask(request(Command.START, 4, 0, 3))) == [(Status.OK, 4, b"")]
    assert answers(machine.ask(request(Command.READ_MEMORY, 5, 10, 39))) == [
        (Status.OK, 5, b"\0" + data + b"\0")
    ]
    assert answers(machine.ask(request(Command.START, 4, 0, 3)[:-1]))[0][0] == Status.CORRUPT


def test_bytes_on_a_line_end_where_it_ends() -> None:
    levels = line_levels(b"\x53\xa1", 4)
    assert line_bytes(levels, 4) == [(0x53, False), (0xA1, False)]
    idle = np.ones(5, np.uint8)
    assert line_bytes(np.concatenate([idle, levels, idle]), 4) == [(0x53, False), (0xA1, False)]
    # The second byte's stop bit has its middle in cycle 38, two cycles before its end.
    assert line_bytes(levels[:79], 4) == [(0x53, False), (0xA1, False)]
    assert line_bytes(levels[:78], 4) == [(0x53, False)]


def test_a_break_is_a_single_byte() -> None:
    low = np.zeros(100, np.uint8)
    levels = np.concatenate([low, [1], line_levels(b"\x53", 4)])
    assert line_bytes(levels, 4) == [(0, True), (0x53, False)]
    assert line_bytes(low, 4) == [(0, True)]
