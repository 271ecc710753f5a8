"""The host's side of the link, against the golden link: lost bytes, and absent boards."""

import os
import re
from collections.abc import Callable

import numpy as np
import pytest
import serial

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.link import fingerprint
from celosia.arch.presets import PRESETS
from celosia.arch.registers import CAUSE_MEANINGS, COUNTERS, IDENTITY, Cause
from celosia.fpga.boards import get_board
from celosia.fpga.device import RETRIES, Device
from celosia.fpga.serial_port import open_serial
from celosia.fpga.top import BoardTop, baud_divisor
from celosia.running import run_files
from celosia.sim import interpreter
from celosia.sim.flow import Step
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.selftest import UNITS, only, selftest
from tests.support.golden_board import ME, MEMORY, TINY, FakePort, GoldenBoard, connected, noise
from tests.support.longer import longer


def test_memory_registers_and_programs_arrive() -> None:
    device, port = connected()
    assert device.identity == ME
    assert device.config == TINY
    data = np.random.default_rng(1).integers(0, 256, 1000, np.uint8).tobytes()
    device.write_memory(77, data)
    assert device.read_memory(77, 1000) == data
    assert device.read_memory(80, 5) == data[3:8]
    assert device.read_memory(80, 0) == b""
    assert device.read_register("ID") == IDENTITY
    device.load_program(pack([Instruction(Opcode.HALT)]) * 200)
    report = device.start(150)
    assert report.cycles == 7
    assert set(report.counters) == {name.lower() for name in COUNTERS} - {"cycles"}
    assert port.board.values["PC"] == 150
    assert device.repeated == 0
    device.close()
    assert port.closed


@pytest.mark.parametrize("seed", [0, *longer(1, 2)])
def test_a_model_runs_over_a_line_that_loses_bytes(seed: int) -> None:
    device, port = connected()
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    port.to_board, port.to_host = noise(rng, 0.1), noise(rng, 0.1)
    figures = run_files("digits", TINY, device, count=2, memory_bytes=MEMORY).figures
    assert figures["mismatches"] == 0
    assert figures["tensors"] == 2
    assert device.repeated > 5
    assert port.board.runs == 2, "no run was started twice"


class SlowPort(FakePort):
    """A port on which answers stop for seconds: only a patient reader gets all of one."""

    def read(self, size: int = 1) -> bytes:
        assert self.timeout is not None
        if self.timeout >= SLOW_SECONDS or size == 1:
            return super().read(size)
        return super().read(size)[: size // 2]


SLOW_SECONDS = 4.0


def test_an_answer_that_stops_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of an answer is never taken for the next one, for any content."""
    for tag in range(256):
        monkeypatch.setattr("secrets.randbelow", lambda _, tag=tag: tag)
        port = SlowPort(GoldenBoard(TINY, ME))
        port.timeout = SLOW_SECONDS
        device = Device(port, "PORT", TINY, answer_seconds=SLOW_SECONDS)
        device._answer_seconds = 1.0
        data = bytes(range(256))
        device.write_memory(3, data)
        assert device.read_memory(3, 256) == data
        assert device.repeated == 2 * 2, tag


def test_the_selftest_finds_what_is_wrong() -> None:
    device, port = connected()
    good = selftest(device, TINY, MEMORY, programs=1, seed=5)
    assert good["mismatches"] == 0
    assert good["untested"] == []
    assert all(good["instructions"].values())
    present = [unit for unit in UNITS if TINY.read(unit)]
    assert list(good["units"]) == ["core", *present, "all"]
    assert {unit["result"] for unit in good["units"].values()} == {"pass"}
    assert all(unit["uses"] > 0 for unit in good["units"].values())
    machine = port.board.machine
    norm = interpreter._RUN[Opcode.NORM]

    def wrong(golden: Interpreter, step: Step) -> None:
        norm(golden, step)
        if golden is machine:
            golden.sp[step["o_addr"]] ^= 4

    interpreter._RUN[Opcode.NORM] = wrong
    try:
        bad = selftest(device, TINY, MEMORY, programs=1, seed=5)
    finally:
        interpreter._RUN[Opcode.NORM] = norm
    failed = {name for name, unit in bad["units"].items() if unit["result"] == "fail"}
    assert {"norm"} <= failed <= {"norm", "fused", "all"}
    assert (bad["memory_mismatches"], bad["register_mismatches"]) == (0, 0)
    assert bad["mismatches"] == sum(unit["failed"] for unit in bad["units"].values())
    port.board.values["ID"] ^= 1
    stuck = selftest(device, TINY, MEMORY, programs=1, seed=5)
    assert stuck["register_mismatches"] == 1


@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_has_programs_of_its_own(unit: str) -> None:
    every = PRESETS["story"].replace(
        acc_width=32,
        zero_points=True,
        wide_functions=True,
        wide_operands=True,
    )
    part = only(every.replace(name=""), unit)
    assert part.read(unit)
    others = {"fused": 3, "wide_functions": 2, "wide_operands": 2}
    assert sum(bool(part.read(other)) for other in UNITS) == others.get(unit, 1)


def check_refusal(kind: type[Exception], message: str, work: Callable[[], object]) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        work()


def test_what_answers_must_be_this_version_and_configuration() -> None:
    check_refusal(
        RuntimeError,
        "The bitstream on PORT speaks protocol version 2, this program version 1; build and flash "
        "it again with celosia build and celosia flash",
        lambda: connected(version=2),
    )
    check_refusal(
        RuntimeError,
        "The bitstream on PORT has a configuration (0000004d) that is neither a preset nor a "
        "board's; name its TOML file with --config: celosia build writes config.toml beside the "
        "bitstream, and celosia board says where it is",
        lambda: connected(configuration=77),
    )
    port = FakePort(GoldenBoard(TINY, ME))
    check_refusal(
        RuntimeError,
        f"The bitstream on PORT has another configuration ({fingerprint(TINY):08x}) than odd "
        f"({fingerprint(PRESETS['odd']):08x}); give it with --config, or build and flash again "
        "with celosia build and celosia flash",
        lambda: Device(port, "PORT", PRESETS["odd"]),
    )
    assert port.closed
    Device(FakePort(GoldenBoard(TINY, ME)), "PORT", TINY.replace(trace=True, name="mine"))
    config = get_board("ulx3s_85f").config
    device, _ = connected(config, configuration=fingerprint(config))
    assert device.config == config


@pytest.mark.parametrize(("seconds", "waits"), [(1.0, [1, 1, 1]), (10.0, [4, 4, 4])])
def test_a_port_without_a_machine_is_given_up_in_seconds(seconds, waits) -> None:
    port, waited = FakePort(GoldenBoard(TINY, ME)), []
    port.to_board = lambda _data: (waited.append(port.timeout), b"")[1]
    check_refusal(
        RuntimeError,
        "Nothing on PORT answers HELLO; check that the board is powered and flashed, and that "
        "--baud is the bitstream's",
        lambda: Device(port, "PORT", answer_seconds=seconds),
    )
    assert waited == waits
    assert port.closed


def test_a_line_that_carries_nothing_is_told() -> None:
    device, port = connected()
    waited = []

    def lose(_data: bytes) -> bytes:
        waited.append(port.timeout)
        return b""

    port.to_board = lose
    check_refusal(
        RuntimeError,
        "Nothing on PORT answers READ_MEMORY; check that the board is powered and flashed, and "
        "that --baud is the bitstream's",
        lambda: device.read_memory(0, 5),
    )
    assert waited == [1, 2, 4, 8, 8, 8, 8]
    port.to_board = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    check_refusal(
        RuntimeError,
        "The connection to PORT is too noisy: WRITE_MEMORY or its answer arrived damaged "
        f"{RETRIES + 1} times; try another cable or a lower --baud",
        lambda: device.write_memory(0, b"abc"),
    )

    def cut(_data: bytes) -> bytes:
        raise serial.SerialException("no more of it")

    port.to_board = cut
    check_refusal(
        RuntimeError,
        "The connection to PORT was cut: no more of it; connect the board and try again",
        lambda: device.read_register("ID"),
    )


def test_runs_that_go_wrong_are_told() -> None:
    device, port = connected()
    device.load_program(pack([Instruction(Opcode.HALT)]))
    board = port.board
    start = board.machine.start
    for status, message in (
        *(
            (2 | cause << 4, f"The run stopped: {meaning}")
            for cause, meaning in CAUSE_MEANINGS.items()
            if cause != Cause.NONE
        ),
        (1, "The run did not halt within 0.2 s"),
    ):
        board.values["STATUS"] = 0
        board.machine.start = lambda _pc, status=status: board.values.update(STATUS=status)
        check_refusal(RuntimeError, message, device.start)
    check_refusal(
        RuntimeError,
        "The board on PORT refused START at 0x0: a run is in progress, so that no other one starts",
        device.start,
    )
    board.values["STATUS"] = 0
    board.machine.start = start
    port.to_host = lambda data: (board.values.update(CYCLES_LOW=0), data)[1]
    check_refusal(
        RuntimeError, "The board on PORT was reset or flashed during the run", device.start
    )


def test_what_has_no_room_is_refused() -> None:
    device, _ = connected()
    check_refusal(
        ValueError,
        "Bytes 32766 to 32769 are outside the board's external memory of 32768 bytes",
        lambda: device.write_memory(32766, b"abc"),
    )
    check_refusal(
        ValueError,
        "Program has 1025 words, but program_depth is 1024",
        lambda: device.load_program([0] * 1025),
    )
    check_refusal(
        ValueError,
        "Model digits needs 26364 bytes of external memory, but the board has 20000",
        lambda: run_files("digits", TINY, device, count=1, memory_bytes=20000),
    )
    check_refusal(
        ValueError,
        "No random program fits program_depth = 1024 words and 1024 bytes of external memory",
        lambda: selftest(device, TINY, 1024, programs=1, seed=1),
    )


def test_ports_that_cannot_be_opened_are_told() -> None:
    check_refusal(
        ValueError,
        "There is no serial port /dev/absent; connect the board, and name its port with --port",
        lambda: open_serial("/dev/absent", 1_000_000),
    )
    for name in ("/dev/null", "/dev"):
        check_refusal(
            ValueError,
            f"{name} is no serial port; name the board's with --port",
            lambda name=name: open_serial(name, 1_000_000),
        )
    far, near = os.openpty()
    name = os.ttyname(near)
    first = open_serial(name, 1_000_000)
    check_refusal(
        ValueError,
        f"Serial port {name} is used by another program; end that one first",
        lambda: open_serial(name, 1_000_000),
    )
    first.close()
    open_serial(name, 1_000_000).close()
    os.close(far)
    os.close(near)


def test_bits_are_whole_numbers_of_cycles() -> None:
    assert baud_divisor(25_000_000, 1_000_000) == 25
    # Of 2.5 % the receiver takes, 1 % is the host's.
    assert baud_divisor(4_050_000, 1_000_000) == 4
    check_refusal(
        ValueError,
        "A clock of 4070000 Hz cannot make 1000000 baud: 4 cycles a bit are 1017500",
        lambda: baud_divisor(4_070_000, 1_000_000),
    )
    check_refusal(
        ValueError,
        "UART divisor must be at least 4 cycles a bit, not 3",
        lambda: baud_divisor(3_000_000, 1_000_000),
    )
    assert baud_divisor(84_375_000, 1_000_000) == 84
    check_refusal(
        ValueError,
        "A clock of 25000000 Hz cannot make 3000000 baud: 8 cycles a bit are 3125000",
        lambda: BoardTop(TINY, clock=25_000_000, memory_bytes=MEMORY, baud=3_000_000),
    )
