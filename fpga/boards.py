"""The boards: device, pins, preset and loader of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from amaranth.build import Attrs, Pins, Resource, ResourceError, Subsignal
from amaranth.utils import exact_log2
from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform
from amaranth_boards.ecpix5 import ECPIX585Platform
from amaranth_boards.icebreaker import ICEBreakerPlatform
from amaranth_boards.icepi_zero import IcepiZero1_3Platform
from amaranth_boards.icesugar_pro import ICESugarProPlatform
from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_25FPlatform
from amaranth_boards.tang_nano_9k import TangNano9kPlatform
from amaranth_boards.tang_primer_20k import TangPrimer20kDockPlatform
from amaranth_boards.ulx3s import ULX3S_25F_Platform, ULX3S_45F_Platform, ULX3S_85F_Platform

from arch.config import Config
from arch.errors import InputError
from arch.flash import IS25LP128F, P25Q32U, W25Q32JV, W25Q128JV, W25Q256JV, FlashBoot, FlashChip
from arch.presets import PRESETS
from arch.sdram import IS42S16160G_7, W9825G6KH_6, SdramChip
from fpga.devices import DEVICES, Device
from fpga.spi_pins import spi_sites

LEDS = ("heartbeat", "busy", "error")
"""Signals on the LEDs of a board, in this order, as far as it has them."""

LINKS = {"uart": (("rx",), ("tx",)), "spi": (("sck", "cs_n", "copi"), ("cipo",))}
"""Kinds of the host's link, and the names of its inputs and outputs."""


@dataclass(frozen=True)
class Pin:
    """A pin of a device, whether it is active low, and its electrical attributes."""

    name: str
    inverted: bool
    attributes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board: what stands on it, and the machine that fits it.

    ``clock_mhz`` is its oscillator's frequency, ``target_mhz`` what the machine is first built
    for. ``loaders`` are the commands that load a bitstream, which stands for ``{file}``, the usual
    one first. External memory is ``memory_bytes`` on the chip, or the board's ``sdram``. With
    ``flash`` the board begins with the image there.
    """

    name: str
    title: str
    device: Device
    package: str
    speed: str
    clock_mhz: float
    target_mhz: float
    config: Config
    memory_bytes: int
    link: str
    pins: Mapping[str, Pin]
    loaders: tuple[str, ...]
    sdram: SdramChip | None = None
    flash: FlashBoot | None = None


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Description of a board; the rest comes from its platform in amaranth-boards."""

    title: str
    platform: type
    device: str
    loaders: tuple[str, ...]
    target_mhz: float
    config: dict[str, Any]
    memory_bytes: int
    flash: FlashChip
    preset: str = "small"
    leds: tuple[tuple[str, int], ...] = (("led", 0), ("led", 1), ("led", 2))
    extra: tuple[Resource, ...] = field(default=())
    sdram: SdramChip | None = None
    freed: dict[str, Any] = field(default_factory=dict)
    """Fields of a machine with SDRAM, which has the block RAMs of the memory on the chip, and units
    of the models that only SDRAM has room for."""


IMAGE_ADDR = 2 << 20
"""First byte of the image in every board's flash: behind the largest device's bitstream."""

FLASHES = {"spi": 1, "qspi": 4}
"""Names of the ways to read a flash, and their data lanes."""

_RGB = (("rgb_led", 0),)
_ECP5 = {"mem_width": 32, "registered": True, "fused": False}
_LFE5U_25F = _ECP5
# Of four multipliers only three could be gated: see ``fpga.multipliers``.
_LFE5U_45F = _ECP5 | {
    "operand_gating": False,
    "lanes": 1,
    "scratchpad_banks": 2,
    "acc_width": 28,
    "program_depth": 2048,
}
# Of 156 multipliers the vector engine takes 54; the array's have the places of ``fpga.sites``.
_LFE5U_85F = _ECP5 | {
    "operand_gating": False,
    "rows": 12,
    "cols": 8,
    "lanes": 2,
    "acc_width": 28,
    "scratchpad_banks": 2,
    "program_depth": 2048,
    "fused": True,
}
# Language models come out of SDRAM alone; their units are no part of the machine without it.
_TEXT = {"rotary": True, "argmax": True}

_ENTRIES = {
    "ulx3s_85f": _Entry(
        title="Radiona ULX3S, LFE5U-85F",
        platform=ULX3S_85F_Platform,
        device="LFE5U-85F",
        loaders=("openFPGALoader -b ulx3s {file}", "fujprog {file}"),
        target_mhz=80.0,
        config=_LFE5U_85F,
        memory_bytes=1 << 16,
        flash=IS25LP128F,
        sdram=IS42S16160G_7,
        freed=_TEXT | {"scratchpad_bytes": 1 << 18, "acc_depth": 2048, "program_depth": 8192},
    ),
    "ulx3s_45f": _Entry(
        title="Radiona ULX3S, LFE5U-45F",
        platform=ULX3S_45F_Platform,
        device="LFE5U-45F",
        loaders=("openFPGALoader -b ulx3s {file}", "fujprog {file}"),
        target_mhz=90.5,
        config=_LFE5U_45F,
        memory_bytes=1 << 15,
        flash=IS25LP128F,
        sdram=IS42S16160G_7,
    ),
    "ulx3s_25f": _Entry(
        title="Radiona ULX3S, LFE5U-25F",
        platform=ULX3S_25F_Platform,
        device="LFE5U-25F",
        loaders=("openFPGALoader -b ulx3s {file}", "fujprog {file}"),
        target_mhz=88.0,
        config=_LFE5U_25F,
        memory_bytes=1 << 15,
        flash=IS25LP128F,
        sdram=IS42S16160G_7,
        preset="tiny",
    ),
    "icebreaker": _Entry(
        title="1BitSquared iCEBreaker, iCE40UP5K",
        platform=ICEBreakerPlatform,
        device="iCE40UP5K",
        loaders=("iceprog {file}",),
        target_mhz=18.0,
        # As much as its four large memories hold anyway.
        config={"scratchpad_bytes": 1 << 15, "program_depth": 2048, "param_depth": 1024},
        memory_bytes=1 << 15,
        flash=W25Q128JV,
        preset="micro",
        leds=(("led_g", 0), ("led_r", 0)),
    ),
    "tang_nano_9k": _Entry(
        title="Sipeed Tang Nano 9K, GW1NR-9",
        platform=TangNano9kPlatform,
        device="GW1NR-9C",
        loaders=("openFPGALoader -b tangnano9k {file}",),
        target_mhz=40.5,
        config={"scratchpad_bytes": 8192, "acc_depth": 64, "param_depth": 128},
        memory_bytes=26 << 10,
        flash=P25Q32U,
        preset="micro",
    ),
    "tang_primer_20k": _Entry(
        title="Sipeed Tang Primer 20K on its dock, GW2A-18",
        platform=TangPrimer20kDockPlatform,
        device="GW2A-18C",
        loaders=("openFPGALoader -b tangprimer20k {file}",),
        target_mhz=60.0,
        config={},
        memory_bytes=1 << 15,
        flash=W25Q32JV,
        preset="micro",
    ),
    "orangecrab_25f": _Entry(
        title="OrangeCrab r0.2, LFE5U-25F",
        platform=OrangeCrabR0_2_25FPlatform,
        device="LFE5U-25F",
        loaders=("dfu-util -a 0 -D {file}",),
        target_mhz=88.0,
        config=_LFE5U_25F,
        memory_bytes=1 << 15,
        flash=W25Q128JV,
        preset="tiny",
        leds=_RGB,
        # Pins 0 and 1 of the Feather header, where its serial port has its place; the board's own
        # USB socket has no serial converter behind it.
        extra=(
            Resource(
                "uart",
                0,
                Subsignal("rx", Pins("N17", dir="i")),
                Subsignal("tx", Pins("M18", dir="o")),
                Attrs(IO_TYPE="LVCMOS33"),
            ),
        ),
    ),
    "ecpix5_85f": _Entry(
        title="LambdaConcept ECPIX-5, LFE5UM5G-85F",
        platform=ECPIX585Platform,
        device="LFE5UM5G-85F",
        loaders=("openFPGALoader -b ecpix5 {file}", "ecpdap program {file}"),
        target_mhz=80.0,
        config=_LFE5U_85F,
        memory_bytes=1 << 16,
        flash=IS25LP128F,
        leds=_RGB,
    ),
    "icepi_zero": _Entry(
        title="Icepi Zero 1.3, LFE5U-25F",
        platform=IcepiZero1_3Platform,
        device="LFE5U-25F",
        loaders=("openFPGALoader -cft231X --pins=7:3:5:6 {file}",),
        target_mhz=88.0,
        config=_LFE5U_25F,
        memory_bytes=1 << 15,
        flash=W25Q128JV,
        sdram=W9825G6KH_6,
        preset="tiny",
    ),
    "icesugar_pro": _Entry(
        title="Muse Lab iCESugar-Pro, LFE5U-25F",
        platform=ICESugarProPlatform,
        device="LFE5U-25F",
        loaders=("icesprog {file}",),
        target_mhz=88.0,
        config=_LFE5U_25F,
        memory_bytes=1 << 15,
        flash=W25Q256JV,
        sdram=IS42S16160G_7,
        preset="tiny",
        leds=_RGB,
    ),
    "colorlight_5a75b": _Entry(
        title="Colorlight 5A-75B 7.0, LFE5U-25F",
        platform=Colorlight_5A75B_R70Platform,
        device="LFE5U-25F",
        loaders=("openFPGALoader -c ft232 {file}", "ecpdap program {file}"),
        target_mhz=88.0,
        config=_LFE5U_25F,
        memory_bytes=1 << 15,
        flash=W25Q32JV,
        preset="tiny",
        leds=(),  # its only LED is the serial port's pin
    ),
}

BOARDS = tuple(_ENTRIES)
"""Names of all boards."""


def get_board(name: str, link: str = "uart") -> Board:
    """Return the board of a name, with the pins of one of ``LINKS``.

    Raises :class:`InputError` where there is no such board, or it cannot have that link.
    """
    if name not in _ENTRIES:
        raise InputError(f"Unknown board {name!r}; known are {', '.join(BOARDS)}")
    entry = _ENTRIES[name]
    platform = entry.platform()
    platform.add_resources([one for one in entry.extra if not _has(platform, one.name)])
    clock = platform.resources[platform.default_clk, 0]
    check_link(link)
    uart = platform.resources["uart", 0]
    serial = {part: _pins(uart, part)[0] for part in ("rx", "tx")}
    pins = {"clk": _pins(clock, "")[0]}
    if link == "uart":
        pins |= serial
    else:
        level = {"IO_TYPE": "LVCMOS33"} if entry.device != "iCE40UP5K" else {}
        sites = spi_sites(name, platform.connectors)
        pins |= {line: Pin(site, False, level) for line, site in sites.items()}
    leds = [
        pin
        for led in entry.leds
        for part in (("r", "g", "b") if led[0] == "rgb_led" else ("",))
        for pin in _pins(platform.resources[led], part)
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
        loaders=entry.loaders,
    )


_SDRAM_PARTS = {"clk_en": "cke", "cs": "cs_n", "ras": "ras_n", "cas": "cas_n", "we": "we_n"}
"""Names of an SDRAM's pins where amaranth-boards has others."""


def with_sdram(board: Board) -> Board:
    """Return a board whose external memory is its SDRAM.

    Raises :class:`InputError` where there is none that a controller here can use.
    """
    entry = _ENTRIES[board.name]
    if entry.sdram is None:
        able = ", ".join(name for name, each in _ENTRIES.items() if each.sdram is not None)
        raise InputError(f"Board {board.name} has no SDRAM that is supported; {able} have")
    resource = entry.platform().resources["sdram", 0]
    pins = dict(board.pins)
    for part in resource.ios:
        if isinstance(part, Subsignal):
            found = _pins(resource, part.name)
            name = f"sdram_{_SDRAM_PARTS.get(part.name, part.name)}"
            wide = part.name in ("a", "ba", "dq", "dqm")
            pins |= {f"{name}[{bit}]" if wide else name: pin for bit, pin in enumerate(found)}
    width = min(board.config.mem_addr_width, exact_log2(entry.sdram.size))
    config = board.config.replace(mem_addr_width=width, **entry.freed)
    return replace(board, sdram=entry.sdram, pins=pins, config=config, memory_bytes=1 << width)


# Of these two the resources have the data lines the other way round. An ECP5's are fixed: in the
# package CABGA256 its data go out at T8.
_SWAPPED = ("colorlight_5a75b", "ecpix5_85f")


def with_flash(board: Board, kind: str) -> Board:
    """Return a board that begins with the image in its flash, read as one of ``FLASHES`` says.

    Raises :class:`InputError` where there is no such way, or the board has no wires for it.
    """
    if kind not in FLASHES:
        raise InputError(f"Unknown flash {kind!r}; known are {', '.join(FLASHES)}")
    if board.link != "uart":
        raise InputError(f"An image in the flash needs the serial line, not link {board.link}")
    platform, lanes = _ENTRIES[board.name].platform(), FLASHES[kind]
    single = "spi_flash" if _has(platform, "spi_flash") else "spi_flash_1x"
    resource = platform.resources[single, 0]
    parts = {part.name: _pins(resource, part.name)[0] for part in _parts(resource)}
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
    found = {f"flash_{name}": pin for name, pin in lines.items() if pin is not None}
    boot = FlashBoot(chip=_ENTRIES[board.name].flash, addr=IMAGE_ADDR, lanes=lanes)
    return replace(board, flash=boot, pins=dict(board.pins) | found)


def board_configs() -> Iterator[Config]:
    """Yield the configurations of all boards' machines, with each memory that a board can have."""
    for name, entry in _ENTRIES.items():
        board = get_board(name)
        yield board.config
        if entry.sdram is not None:
            yield with_sdram(board).config


def check_link(link: str) -> None:
    """Raise :class:`InputError` where there is no such link."""
    if link not in LINKS:
        raise InputError(f"Unknown link {link!r}; known are {', '.join(LINKS)}")


def _has(platform: Any, name: str) -> bool:
    try:
        platform.lookup(name)
    except ResourceError:
        return False
    return True


def _parts(resource: Resource) -> list[Subsignal]:
    return [part for part in resource.ios if isinstance(part, Subsignal)]


def _pins(resource: Resource, part: str) -> list[Pin]:
    """Return the pins of a resource, or of one of its parts."""
    attributes = dict(resource.attrs)
    for io in resource.ios:
        if isinstance(io, Subsignal) and io.name == part:
            attributes |= dict(io.attrs)
            io = io.ios[0]
        if isinstance(io, Pins):
            return [
                Pin(pin, io.invert, {key: str(value) for key, value in attributes.items()})
                for pin in io.map_names({}, resource)
            ]
    raise KeyError(part)
