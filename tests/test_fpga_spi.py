"""A host behind SPI: a link in the fast simulation of a board, without an accelerator."""

import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.arch.link import VERSION, Command, Identity, fingerprint, request
from celosia.arch.presets import PRESETS
from celosia.fpga.boards import LINKS
from celosia.fpga.device import Device
from celosia.fpga.spi_port import SpiPort, TerminalWires, open_spi
from celosia.hdl.link.link import Link
from celosia.hdl.link.spi import SpiPeripheral
from celosia.hdl.memory.onchip import OnchipMemory
from celosia.tb.machine.simulated_board import SimulatedBoard
from celosia.tb.machine.toolchain import missing_tools

MEMORY, TIMEOUT = 4096, 1 << 15
TINY = PRESETS["tiny"]
HALT_SECONDS = 0.02
"""As long as a board waits for the rest of a request."""

needs_verilator = pytest.mark.skipif(
    bool(missing_tools("verilator")), reason="Verilator is not installed"
)


class SpiLink(wiring.Component):
    """The pins of a board with SPI, whose registers are 0: there is no accelerator."""

    def __init__(self, config: Config):
        self.config = config
        self.identity = Identity(
            version=VERSION,
            configuration=fingerprint(config),
            clock=16_000_000,
            memory=MEMORY,
            payload=512,
        )
        self.clock, self.divisor, self.timeout = self.identity.clock, 4, TIMEOUT
        self.sdram = self.psram = self.flash = None
        inputs, outputs = LINKS["spi"]
        super().__init__(
            {name: In(1, init=name == "cs_n") for name in inputs}
            | {name: Out(1) for name in (*outputs, "busy")}
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.spi = spi = SpiPeripheral()
        m.submodules.link = link = Link(
            self.config.memory,
            program_depth=self.config.control.program_depth,
            identity=self.identity,
            timeout=TIMEOUT,
        )
        m.submodules.memory = memory = OnchipMemory(self.config.memory, MEMORY)
        wiring.connect(m, spi.o, link.i)
        wiring.connect(m, link.o, spi.i)
        wiring.connect(m, link.mem_read, memory.read)
        wiring.connect(m, link.mem_write, memory.write)
        m.d.comb += [getattr(spi, name).eq(getattr(self, name)) for name in LINKS["spi"][0]]
        m.d.comb += self.cipo.eq(spi.cipo)
        return m


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with SimulatedBoard(SpiLink(TINY)) as simulated:
        yield simulated.port


class Halting:
    """Wires of a host that the computer keeps waiting within each request for some while."""

    def __init__(self, wires: TerminalWires):
        self._wires = wires
        self.close = wires.close

    def exchange(self, data: bytes) -> bytes:
        half = len(data) // 2
        if not half:
            return self._wires.exchange(data)
        received = self._wires.exchange(data[:half])
        time.sleep(HALT_SECONDS)
        return received + self._wires.exchange(data[half:])


class Noisy:
    """Wires on which a byte in some thousands changes a bit, in either direction.

    How many bytes go to and fro while a host waits depends on the computer, and with it which
    are damaged. The chance that all tries of any request fail is therefore one in 20,000 here:
    each is of some 550 bytes.
    """

    def __init__(self, wires: TerminalWires, rng: np.random.Generator):
        self._wires, self._rng = wires, rng
        self.close = wires.close

    def _damage(self, data: bytes) -> bytes:
        noise = 0x10 * (self._rng.random(len(data)) < 1 / 4000)
        return (np.frombuffer(data, np.uint8) ^ noise.astype(np.uint8)).tobytes()

    def exchange(self, data: bytes) -> bytes:
        return self._damage(self._wires.exchange(self._damage(data)))


@needs_verilator
def test_memory_arrives(port: str) -> None:
    data = np.random.default_rng(3).integers(0, 256, MEMORY, np.uint8).tobytes()
    with closing(Device.open(port, link="spi")) as device:
        assert device.identity.memory == MEMORY
        device.write_memory(0, data)
        assert device.read_memory(0, MEMORY) == data
        assert device.repeated == 0
        busy = rf"^Serial port {port} is used by another program; end"
        with pytest.raises(ValueError, match=busy):
            open_spi(port, 1e6)


@needs_verilator
def test_a_host_that_has_to_wait_within_a_request_goes_on(port: str) -> None:
    data = np.random.default_rng(5).integers(0, 256, MEMORY, np.uint8).tobytes()
    with closing(Device(SpiPort(Halting(TerminalWires(port))), port)) as device:
        device.write_memory(0, data)
        assert device.read_memory(0, MEMORY) == data
        assert device.repeated == 0


@needs_verilator
def test_requests_that_are_cut_or_damaged_are_sent_again(port: str) -> None:
    with closing(Device.open(port, link="spi")) as device:
        device.write_memory(0, b"as it was")
    frame = request(Command.WRITE_MEMORY, 5, 300, 0, bytes(300))
    for end in (3, 100, len(frame) - 1):
        with closing(TerminalWires(port)) as dying:
            dying.exchange(frame[:end])
        with closing(Device.open(port, link="spi")) as next_one:
            assert next_one.read_memory(0, 9) == b"as it was"
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, MEMORY, np.uint8).tobytes()
    with closing(Device(SpiPort(Noisy(TerminalWires(port), rng)), port)) as device:
        for _ in range(2):
            device.write_memory(0, data)
            assert device.read_memory(0, len(data)) == data
        assert device.repeated > 0, "nothing was damaged"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "/dev/absent",
            "There is no serial port /dev/absent; connect the board, and name its port",
        ),
        ("/dev/null", "/dev/null is no serial port; name the board's with --port"),
        ("ftdi://nonsense", "Cannot use SPI adapter ftdi://nonsense: "),
    ],
)
def test_ports_that_cannot_be_used_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        open_spi(name, 1e6)
