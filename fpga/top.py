# amaranth: UnusedElaboratable=no
"""The complete top level of a board: link, accelerator, external memory, LEDs."""

from amaranth.hdl import Const, ResetSignal, Signal
from amaranth.lib.wiring import In, Member, Out, connect

from celosia.arch.config import Config
from celosia.arch.ddr3 import Ddr3Start
from celosia.arch.errors import InputError
from celosia.arch.flash import FlashBoot
from celosia.arch.link import VERSION, Identity, fingerprint
from celosia.arch.psram import PsramChip
from celosia.arch.sdram import SdramChip
from celosia.fpga.boards import LEDS, LINKS, check_link
from celosia.hdl.component import Component
from celosia.hdl.flash.power_on import PowerOn
from celosia.hdl.flash.reader import FlashPins, FlashReader
from celosia.hdl.link.link import Link
from celosia.hdl.link.spi import SpiPeripheral
from celosia.hdl.link.uart import UartReceiver, UartTransmitter, tolerance
from celosia.hdl.machine import machine_component
from celosia.hdl.memory.ddr3.memory import Ddr3Memory
from celosia.hdl.memory.ddr3.pins import CorePorts
from celosia.hdl.memory.memory_switch import MemorySwitch
from celosia.hdl.memory.onchip import OnchipMemory
from celosia.hdl.memory.psram.controller import PsramController
from celosia.hdl.memory.psram.pins import PsramPins
from celosia.hdl.memory.sdram.controller import SdramController
from celosia.hdl.memory.sdram.pins import SdramPins

BAUD = 1_000_000
"""Default bit rate of the serial line (bits per second)."""

PAYLOAD_BYTES = 512
"""Longest payload of a link frame (bytes): one block RAM on the smallest boards."""

BAUD_ERROR = 0.02
"""Largest relative error of the bit length, which is a whole number of cycles."""

HOST_ERROR = 0.01
"""Additional relative error of the bit length, for the host's serial converter."""

_HIGH = ("rx", "tx", "cs_n")  # lines that are 1 while idle

_QUIET_SECONDS = 0.02  # a request that stops for so long is given up


class BoardTop(Component):
    """The top level of any board: machine, host link and memory.

    - ``rx``, ``tx``: serial line of link ``uart``
    - ``sck``, ``cs_n``, ``copi``, ``cipo``: SPI of link ``spi``
    - ``heartbeat``: blinking LED; ``busy``: 1 in a run; ``error``: 1 after an error
    - ``sdram_NAME``, ``psram_NAME``, ``flash_NAME``: pins of a chip; else memory is block RAM
    - ``ddr3_NAME``: ports of LiteDRAM's core

    Raises :class:`InputError` if arguments do not fit each other.
    """

    # - clock: frequency of the domain sync (Hz)
    # - flash: flash with a power-on image, which runs before the host's requests; needs link uart
    # - divisor: cycles of a bit on the serial line; by default those of baud bits per second
    # - timeout: cycles after which an incomplete request is dropped; by default those of 20 ms
    # - sck: at most a twelfth of the clock's frequency
    # - ddr3: the core is outside of this circuit, and drives the chip
    # - heartbeat: blinks about twice a second; four times as fast if the power-on image is invalid
    # - error: blinks, too, if the power-on image is invalid

    def __init__(
        self,
        config: Config,
        *,
        clock: int,
        memory_bytes: int,
        sdram: SdramChip | None = None,
        ddr3: Ddr3Start | None = None,
        psram: PsramChip | None = None,
        flash: FlashBoot | None = None,
        link: str = "uart",
        baud: int = BAUD,
        divisor: int | None = None,
        timeout: int | None = None,
    ):
        check_link(link)
        self.config = config.replace(trace=False)
        self.link = link
        self.divisor = baud_divisor(clock, baud) if divisor is None else divisor
        self.timeout = max(1, round(clock * _QUIET_SECONDS)) if timeout is None else timeout
        self.clock = clock
        self.identity = Identity(
            version=VERSION,
            configuration=fingerprint(self.config),
            clock=clock,
            memory=memory_bytes,
            payload=PAYLOAD_BYTES,
        )
        chips = (sdram, ddr3, psram, flash)
        arguments = (self.identity, chips, link, divisor, timeout, baud)
        self.inputs = f"{self.config.to_toml()}{arguments}"
        self._memory: Component
        pins: dict[str, Member] = {}
        self._chip = "sdram"
        if psram is not None:
            self._chip = "psram"
            self._memory = PsramController(self.config.memory, psram, clock)
            pins = dict(PsramPins(psram).members)
        elif ddr3 is not None:
            self._chip = "ddr3"
            self._memory = Ddr3Memory(self.config.memory, ddr3)
            pins = dict(CorePorts(ddr3.chip).members)
        elif sdram is not None:
            self._memory = SdramController(self.config.memory, sdram, clock)
            pins = dict(SdramPins(sdram).members)
        else:
            self._memory = OnchipMemory(self.config.memory, memory_bytes)
        self._pins = pins
        self.sdram, self.psram, self.flash = sdram, psram, flash
        leading = {} if flash is None else dict(FlashPins().members)
        if flash is not None and link != "uart":
            raise InputError(f"An image in the flash needs the serial line, not link {link}")
        inputs, outputs = LINKS[link]
        super().__init__(
            {name: In(1, init=name in _HIGH) for name in inputs}
            | {name: Out(1, init=name in _HIGH) for name in outputs}
            | {name: Out(1) for name in LEDS}
            | {f"{self._chip}_{name}": member for name, member in pins.items()}
            | {f"flash_{name}": member for name, member in leading.items()}
        )

    def circuit(self, m):
        """Instantiate and connect the machine, its memory and its host link."""
        m.submodules.link = link = Link(
            self.config.memory,
            program_depth=self.config.control.program_depth,
            identity=self.identity,
            timeout=self.timeout,
        )
        m.submodules.accelerator = accelerator = machine_component(self.config)
        m.submodules.switch = switch = MemorySwitch(self.config.memory)
        m.submodules.memory = memory = self._memory
        refused = Const(0)
        if self.link == "uart":
            m.submodules.receiver = receiver = UartReceiver(self.divisor)
            m.submodules.transmitter = transmitter = UartTransmitter(self.divisor)
            if self.flash is None:
                connect(m, receiver.o, link.i)
                connect(m, link.o, transmitter.i)
            else:
                refused = self._begin(m, self.flash, link, receiver, transmitter)
            m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        else:
            m.submodules.spi = spi = SpiPeripheral()
            connect(m, spi.o, link.i)
            connect(m, link.o, spi.i)
            m.d.comb += [getattr(spi, name).eq(getattr(self, name)) for name in LINKS["spi"][0]]
            m.d.comb += self.cipo.eq(spi.cipo)
        connect(m, link.host, accelerator.host)
        for half in ("read", "write"):
            connect(m, getattr(accelerator, f"mem_{half}"), getattr(switch, f"a_{half}"))
            connect(m, getattr(link, f"mem_{half}"), getattr(switch, f"b_{half}"))
            connect(m, getattr(switch, half), getattr(memory, half))
        beat = Signal(range(max(2, self.clock // 4)))
        m.d.sync += beat.eq(beat + 1)
        over = beat == max(2, self.clock // 4) - 1
        if self.flash is not None:
            over |= refused & (beat >= max(2, self.clock // 16) - 1)
        with m.If(over):
            m.d.sync += [beat.eq(0), self.heartbeat.eq(~self.heartbeat)]
        m.d.comb += [
            switch.to_b.eq(link.owns),
            accelerator.mem_reset.eq(ResetSignal()),
            self.busy.eq(link.status[0]),
            self.error.eq(link.status[1]),
        ]
        if self.flash is not None:
            m.d.comb += self.error.eq(link.status[1] | (refused & self.heartbeat))
        for name, member in self._pins.items():
            here, there = getattr(self, f"{self._chip}_{name}"), getattr(memory.pins, name)
            m.d.comb += there.eq(here) if member.flow == In else here.eq(there)
        if "failed" in memory.signature.members:
            m.d.comb += accelerator.mem_error.eq(memory.failed)

    def _begin(self, m, flash, link, receiver, transmitter):
        """Let the flash's image run first; return the signal that it was refused."""
        m.submodules.reader = reader = FlashReader(flash.chip, self.clock, flash.lanes)
        m.submodules.power_on = power_on = PowerOn(
            self.identity.configuration, flash.addr, flash.chip.reachable
        )
        connect(m, power_on.o_read, reader.i)
        connect(m, reader.o, power_on.i)
        m.d.comb += [
            power_on.status.eq(link.status),
            power_on.i_answer.payload.eq(link.o.payload),
        ]
        with m.If(power_on.active):
            m.d.comb += [
                link.i.valid.eq(power_on.request.valid),
                link.i.payload.eq(power_on.request.payload),
                power_on.i_answer.valid.eq(link.o.valid),
                link.o.ready.eq(power_on.i_answer.ready),
                transmitter.i.valid.eq(power_on.o.valid),
                transmitter.i.payload.eq(power_on.o.payload),
                power_on.o.ready.eq(transmitter.i.ready),
            ]
        with m.Else():
            m.d.comb += [
                link.i.valid.eq(receiver.o.valid),
                link.i.payload.eq(receiver.o.payload),
                transmitter.i.valid.eq(link.o.valid),
                transmitter.i.payload.eq(link.o.payload),
                link.o.ready.eq(transmitter.i.ready),
            ]
        for name in FlashPins().members:
            here, there = getattr(self, f"flash_{name}"), getattr(reader.pins, name)
            m.d.comb += there.eq(here) if name == "dq_i" else here.eq(there)
        return power_on.refused


def baud_divisor(clock: int, baud: int) -> int:
    """Return the number of whole cycles of ``clock`` (Hz) that a bit of the serial line takes.

    ``baud`` is the wanted rate (bits per second). The rounded number makes another rate. Raises
    :class:`InputError` if this rate differs by more than ``BAUD_ERROR``, or if the receiver cannot
    tolerate the difference and ``HOST_ERROR`` together.
    """
    divisor = max(1, round(clock / baud))
    most = min(BAUD_ERROR, tolerance(divisor) - HOST_ERROR)
    if abs(clock / divisor / baud - 1) > most:
        raise InputError(
            f"A clock of {clock} Hz cannot make {baud} baud: {divisor} cycles a bit are "
            f"{clock / divisor:.0f}"
        )
    return divisor
