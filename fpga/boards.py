"""The supported boards: each board's device, pins, machine, and commands to load a bitstream."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amaranth.build import Attrs, Pins, Resource, Subsignal
from amaranth.utils import exact_log2

from celosia.arch.config import Config
from celosia.arch.ddr3 import CHIPS as DDR3_CHIPS
from celosia.arch.errors import InputError, check_known
from celosia.arch.flash import CHIPS as FLASH_CHIPS
from celosia.arch.flash import FlashBoot
from celosia.arch.presets import PRESETS
from celosia.arch.psram import PsramChip, side_by_side
from celosia.arch.records import Memory
from celosia.arch.sdram import CHIPS as SDRAM_CHIPS
from celosia.arch.sdram import SdramChip
from celosia.arch.tables import read_table
from celosia.fpga.board_pins import Pin, has_resource, memory_pins, pins_of, signals_of
from celosia.fpga.ddr3.core import Ddr3
from celosia.fpga.devices import DEVICES, Device

LEDS = ("heartbeat", "busy", "error")
"""Signals that a board's LEDs show, in this order; a board may have fewer LEDs."""

LINKS = {"uart": (("rx",), ("tx",)), "spi": (("sck", "cs_n", "copi"), ("cipo",))}
"""Dictionary from each kind of host link to (names of the inputs, names of the outputs)."""


SPI = ("cs_n", "copi", "cipo", "sck")
"""Lines of an SPI link, in the order of a Pmod of type 2 (Digilent, Pmod Interface Specification).
"""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board: its device and memory chips, and a machine configuration that fits the device."""

    name: str
    title: str
    """Full name of the board."""
    device: Device
    package: str
    """Package of the device, or for Gowin the device's part number."""
    speed: str
    """Speed grade of the device; empty for iCE40."""
    clock_mhz: float
    """Frequency of the board's oscillator (MHz)."""
    target_mhz: float
    """Frequency of the machine's clock that a build tries first (MHz)."""
    config: Config
    memory_bytes: int
    """Size of the external memory (bytes)."""
    link: str
    """Kind of host link, ``uart`` or ``spi``."""
    pins: Mapping[str, Pin]
    """Pin of each port of the top module."""
    loaders: tuple[str, ...]
    """Alternative commands that load the bitstream ``{file}`` into the board, the usual one first.
    """
    sdram: SdramChip | None = None
    ddr3: Ddr3 | None = None
    psram: PsramChip | None = None
    """At most one of ``sdram``, ``ddr3`` and ``psram`` is not None; if none, memory is block RAM.
    """
    flash: FlashBoot | None = None
    """If not None, the board runs a model from its flash at power-on."""

    @property
    def part(self) -> str:
        """Lattice's part number of an ECP5 device for the commercial temperature range."""
        return f"{self.device.name}-{self.speed}{self.package}C"

    @property
    def peak_bytes(self) -> int:
        """Peak bandwidth of the memory chip (bytes per machine cycle); 0 without such a chip.

        A DDR3 chip's clock is twice the machine's clock. A PSRAM chip's clock is half the machine's
        clock. Both chips move data at both clock edges.
        """
        if self.psram is not None:
            return self.psram.dies
        if self.ddr3 is not None:
            return 4 * self.ddr3.chip.lanes
        return 0 if self.sdram is None else self.sdram.data_width // 8


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Entry of boards.toml; the rest of a board comes from its platform in amaranth-boards."""

    title: str
    platform: str
    device: str
    loaders: Sequence[str]
    target_mhz: float
    memory_bytes: int
    flash: str
    spi: Sequence[Any]
    sdram: str = ""
    ddr3: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``celosia.fpga.ddr3.core.Ddr3``, the chip by its name, and ``pins`` that differ
    from the platform's."""
    psram: Mapping[str, Any] = field(default_factory=dict)
    """The ``name`` of a chip in the device's package, the number of its ``dies``, and attributes of
    the ``leds``, which are in the same bank of pins."""
    sdram_mhz: float = 0.0
    """First clock of a machine with SDRAM (MHz); 0: ``target_mhz``."""
    preset: str = "small"
    config: Mapping[str, Any] = field(default_factory=dict)
    freed: Mapping[str, Any] = field(default_factory=dict)
    flashed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a machine with room for the reader of the flash at power-on."""
    leds: Sequence[Sequence[Any]] = (("led", 0), ("led", 1), ("led", 2))
    uart: Mapping[str, str] = field(default_factory=dict)
    """Pins of a serial port that the platform lacks."""

    @property
    def offchip(self) -> bool:
        """True if the board has a memory chip, with or without a controller here."""
        return bool(self.sdram or self.ddr3 or self.psram)

    def resources(self) -> Any:
        """Return the board's platform, with its serial port."""
        module, _, name = self.platform.partition(".")
        platform = getattr(importlib.import_module(f"amaranth_boards.{module}"), name)()
        if self.uart and not has_resource(platform, "uart"):
            parts = [
                Subsignal(part, Pins(self.uart[part], dir=direction))
                for part, direction in (("rx", "i"), ("tx", "o"))
            ]
            platform.add_resources([Resource("uart", 0, *parts, Attrs(IO_TYPE="LVCMOS33"))])
        return platform


IMAGE_ADDR = 2 << 20
"""Byte address of the image in every board's flash, after the largest device's bitstream."""

FLASHES = {"spi": 1, "qspi": 4}
"""Dictionary from each mode of reading a flash to the number of its data lanes."""

_ENTRIES = {
    name: _Entry(**values)
    for name, values in read_table(Path(__file__).parent / "boards.toml").items()
}

BOARDS = tuple(_ENTRIES)
"""Names of all boards."""


def get_board(name: str, link: str = "uart") -> Board:
    """Return the board ``name`` with the pins of its host link ``link`` (``uart`` or ``spi``).

    Raises :class:`InputError` if the board is unknown, or has no pins for that link.
    """
    check_known("board", name, BOARDS)
    entry = _ENTRIES[name]
    platform = entry.resources()
    clock = platform.resources[platform.default_clk, 0]
    check_link(link)
    uart = platform.resources["uart", 0]
    serial = {part: pins_of(uart, part)[0] for part in ("rx", "tx")}
    pins = {"clk": pins_of(clock)[0]}
    if link == "uart":
        pins |= serial
    else:
        level = {"IO_TYPE": "LVCMOS33"} if entry.device != "iCE40UP5K" else {}
        if not entry.spi:
            able = ", ".join(other for other, each in _ENTRIES.items() if each.spi)
            raise InputError(
                f"Board {name} has no connector that can take SPI; leave out --link spi, or take "
                f"one of {able}"
            )
        connector, places = entry.spi
        mapping = platform.connectors[connector, 0].mapping
        lines = zip(SPI, places, strict=True)
        pins |= {line: Pin(mapping[place], False, level) for line, place in lines}
    leds = [
        pin
        for name_of_led, number, part in _led_parts(entry)
        for pin in pins_of(platform.resources[name_of_led, number], part)
    ]
    pins |= dict(zip(LEDS, leds, strict=False))
    base = PRESETS[entry.preset]
    return Board(
        name=name,
        title=entry.title,
        device=DEVICES[entry.device],
        package=getattr(platform, "part", "") or platform.package,
        speed=getattr(platform, "speed", ""),
        clock_mhz=clock.clock.frequency / 1e6,
        target_mhz=entry.target_mhz,
        config=base.replace(name=name, **entry.config),
        memory_bytes=entry.memory_bytes,
        link=link,
        pins=pins,
        loaders=tuple(entry.loaders),
    )


def led_names(name: str) -> tuple[str, ...]:
    """Return the names of the LEDs with which a board shows the machine's state.

    The result names the LEDs of the signals ``heartbeat``, ``busy`` and ``error``, in this order. A
    name is amaranth-boards' name, a number, and the color of an RGB LED, such as ``rgb_led 0 r``.
    If a board has two LEDs, ``error`` has none.
    """
    parts = _led_parts(_ENTRIES[name])
    names = [f"{led} {number} {part}".strip() for led, number, part in parts]
    return tuple(names[: len(LEDS)])


def spi_places(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the connector and the connector pins that a board uses for its SPI link.

    The result is (name of the connector, names of its pins), or None if the board has no connector
    for SPI. The pins are those of the lines ``cs_n``, ``copi``, ``cipo`` and ``sck``, in this
    order.
    """
    entry = _ENTRIES[name]
    return (entry.spi[0], tuple(entry.spi[1])) if entry.spi else None


def _led_parts(entry: _Entry) -> Iterator[tuple[str, int, str]]:
    """Yield the name, number and color of each LED; a plain one has no color."""
    for name, number in entry.leds:
        for part in ("r", "g", "b") if name == "rgb_led" else ("",):
            yield name, number, part


_SDRAM_PORTS = {"clk_en": "cke", "cs": "cs_n", "ras": "ras_n", "cas": "cas_n", "we": "we_n"}
"""Dictionary from amaranth-boards' names of SDRAM pins to the project's names, if they differ."""


def has_memory(board: Board) -> bool:
    """Return whether a board has an SDRAM, DDR3 or PSRAM chip with a supported controller."""
    return bool(_ENTRIES[board.name].offchip)


def with_sdram(board: Board) -> Board:
    """Return a copy of the board whose external memory is its SDRAM, DDR3 or PSRAM chip.

    Raises :class:`InputError` if the board has no such chip with a supported controller.
    """
    entry = _ENTRIES[board.name]
    if entry.ddr3:
        return _with_ddr3(board, entry)
    if entry.psram:
        return _with_psram(board, entry)
    if not entry.sdram:
        able = ", ".join(name for name, each in _ENTRIES.items() if each.offchip)
        kinds = "SDRAM, DDR3 or PSRAM"
        raise InputError(f"Board {board.name} has no {kinds} that is supported; {able} have")
    chip, resource = SDRAM_CHIPS[entry.sdram], entry.resources().resources["sdram", 0]
    pins = {**board.pins, **memory_pins(resource, _SDRAM_PORTS, ("a", "ba", "dq", "dqm"), {})}
    return replace(board, sdram=chip, pins=pins, **_offchip(board, entry, chip.size))


def _offchip(board: Board, entry: _Entry, size: int) -> dict[str, Any]:
    """Return the other fields of a board with ``size`` bytes of external memory."""
    # A board's own width is that of its memory on the chip.
    width = min(Memory.addr_width, exact_log2(size))
    return {
        "config": board.config.replace(mem_addr_width=width, **entry.freed),
        "memory_bytes": 1 << width,
        "target_mhz": entry.sdram_mhz or board.target_mhz,
    }


def _with_psram(board: Board, entry: _Entry) -> Board:
    """Return a board whose external memory is the PSRAM in its device's package.

    The PSRAM's pins have no places in constraints, as the tools know their ports by name.
    """
    inside = dict(entry.psram)
    others = inside.pop("leds", {})
    chip = side_by_side(**inside)
    pins = {
        name: replace(pin, attributes={**pin.attributes, **others}) if name in LEDS else pin
        for name, pin in board.pins.items()
    }
    return replace(board, psram=chip, pins=pins, **_offchip(board, entry, chip.size))


_DDR3_PORTS = {"rst": "reset_n", "clk": "clk_p", "clk_en": "cke", "dqs": "dqs_p"} | {
    part: f"{part}_n" for part in ("cs", "ras", "cas", "we")
}
"""Dictionary from amaranth-boards' names of DDR3 pins to LiteDRAM's names, if they differ. For a
differential pair it has the positive pin; the tools place the negative pin beside it."""

_HELD = {"vcc_virtual": "high", "gnd_virtual": "low"}
"""Pins beside those of a DDR3 chip that are held at a level, against noise in the bank of pins."""


def _with_ddr3(board: Board, entry: _Entry) -> Board:
    """Return a board whose external memory is its DDR3."""
    wired = dict(entry.ddr3)
    others = wired.pop("pins", {})
    platform = entry.resources()
    buses = ("a", "ba", "dq", "dqs", "dm")
    wires = memory_pins(platform.resources["ddr3", 0], _DDR3_PORTS, buses, others)
    pins = {**board.pins, **wires}
    held = {"high": 0, "low": 0}
    if has_resource(platform, "ddr3_pseudo_power"):
        power = platform.resources["ddr3_pseudo_power", 0]
        for signal in signals_of(power):
            level = _HELD[signal]
            for pin in pins_of(power, signal):
                pins[f"ddr3_{level}[{held[level]}]"] = pin
                held[level] += 1
    chip = DDR3_CHIPS[wired.pop("chip")]
    ddr3 = Ddr3(chip=chip, **wired, **held)
    return replace(board, ddr3=ddr3, pins=pins, **_offchip(board, entry, chip.size))


# Of these two the resources have the data lines reversed. An ECP5's are fixed: in the
# package CABGA256 its data go out at T8.
_SWAPPED = ("colorlight_5a75b", "ecpix5_85f")


def with_flash(board: Board, kind: str) -> Board:
    """Return a copy of the board that runs a model from its flash at power-on.

    ``kind`` is ``spi`` (one data line) or ``qspi`` (four data lines). Raises :class:`InputError` if
    ``kind`` is unknown, the board lacks pins for four lines, or the board's host link is not
    ``uart``.
    """
    check_known("flash", kind, FLASHES)
    if board.link != "uart":
        raise InputError(f"An image in the flash needs the serial line, not link {board.link}")
    entry, lanes = _ENTRIES[board.name], FLASHES[kind]
    platform = entry.resources()
    single = "spi_flash" if has_resource(platform, "spi_flash") else "spi_flash_1x"
    resource = platform.resources[single, 0]
    parts = {signal: pins_of(resource, signal)[0] for signal in signals_of(resource)}
    lines = {"cs_n": parts["cs"], "sck": parts.get("clk"), "wp_n": parts.get("wp")}
    lines |= {"hold_n": parts.get("hold"), "copi": parts["copi"], "cipo": parts["cipo"]}
    if board.name in _SWAPPED:
        lines |= {"copi": parts["cipo"], "cipo": parts["copi"]}
    if board.device.family.name == "ecp5":
        lines["sck"] = None  # its clock pin is no pin of the fabric's
    if lanes == 4:
        data = [lines.pop(name) for name in ("copi", "cipo", "wp_n", "hold_n")]
        if None in data:
            raise InputError(f"Board {board.name} has its flash on one lane; take --flash spi")
        lines |= {f"dq[{place}]": pin for place, pin in enumerate(data)}
    flash_pins = {f"flash_{name}": pin for name, pin in lines.items() if pin is not None}
    boot = FlashBoot(chip=FLASH_CHIPS[entry.flash], addr=IMAGE_ADDR, lanes=lanes)
    config = board.config.replace(**entry.flashed)
    return replace(board, flash=boot, config=config, pins=dict(board.pins) | flash_pins)


def board_configs() -> Iterator[Config]:
    """Yield the default machine configurations of all boards, two or three of each board.

    - The first configuration has its external memory in block RAM.
    - The second is smaller, with room for a circuit that reads the board's flash.
    - If the board has a supported memory chip, the third uses this chip.
    """
    for name, entry in _ENTRIES.items():
        board = get_board(name)
        yield board.config
        yield board.config.replace(**entry.flashed)
        if entry.offchip:
            yield with_sdram(board).config


def check_link(link: str) -> None:
    """Raise :class:`InputError` if a host link is neither ``uart`` nor ``spi``."""
    check_known("link", link, LINKS)
