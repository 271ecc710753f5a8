"""Builds the machine of a configuration for a board, as a bitstream and a report."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.packages import Deferred
from celosia.fpga.attribution import Units, count_units, critical_path
from celosia.fpga.boards import Board
from celosia.fpga.ddr3.core import ClockError, Core, make_core
from celosia.fpga.devices import RESOURCES, Family
from celosia.fpga.global_resets import spread_resets
from celosia.fpga.harness import Harness
from celosia.fpga.pins import CORE, TOP, constraints, top_verilog, unit_constraints
from celosia.fpga.placement import PLACED, Placement, fills, pack, place, placer_options
from celosia.fpga.pll import Pll, find_pll
from celosia.fpga.sites import seat
from celosia.fpga.synthesis import NETLIST, check_fits, count, prepare, synthesize
from celosia.fpga.tools import find_tool
from celosia.fpga.top import BoardTop
from celosia.generators.verilog.verilog import to_verilog

_floorplan: Any = Deferred("celosia.fpga.floorplan", "A floorplan needs")

Progress = Callable[[str, int, int], None]

HARNESS = "harness"
"""Name of the top module in the build of a single unit."""

_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)

_MARGIN = 0.99  # the clock's part of the frequency that place-and-route reached


@dataclass(frozen=True)
class Build:
    """The result of a build: its report, and the files that the caller writes to a folder.

    ``files`` is a dictionary from a file's name to its contents. ``report["design"]`` is a digest
    of all inputs of the build, such as Verilog, pins and tool versions.
    """

    report: dict[str, Any]
    files: dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A build to make: the machine of ``config`` on a board, or only the circuit ``unit``."""

    config: Config
    board: Board
    seeds: Sequence[int] = (1,)
    """Seeds of place-and-route; the fastest result is used."""
    mhz: float | None = None
    """Highest clock of the machine, or target clock of a unit (MHz); by default the board's."""
    unit: Component | None = None
    """Circuit that is built alone, inside a :class:`celosia.fpga.harness.Harness`."""

    @property
    def wanted(self) -> float:
        """The wanted frequency (MHz): ``mhz`` or, if this is None, the board's ``target_mhz``."""
        return self.board.target_mhz if self.mhz is None else self.mhz

    def design(self) -> str:
        """Return the digest of all inputs of the build, without running the build.

        The build's report has this digest in its field ``design``. A build with an equal digest
        need not be repeated.
        """
        return _digest(self.verilog(), self.board, self.seeds, self.wanted)

    def verilog(self) -> str:
        """Return the Verilog that :meth:`build` synthesizes in its first attempt.

        If a machine's placed design is too slow, :meth:`build` makes other Verilog for a slower
        clock.
        """
        if self.unit is not None:
            return to_verilog(Harness(self.unit), HARNESS)
        return _machine(self.config, self.board, _pll(self.board, self.wanted))

    def build(self, folder: Path, tell: Progress) -> Build:
        """Synthesize, place and route the design in ``folder``; return its report and files.

        ``tell`` gets the name of a step, and the numbers of its finished and of all its parts. A
        machine's files include its bitstream. Raises :class:`RunError` if a machine misses its
        clock in three attempts, each with a slower clock.
        """
        began, wanted, board, alone = time.monotonic(), self.wanted, self.board, self.unit
        top, stem = (TOP, "board") if alone is None else (HARNESS, HARNESS)
        text, ending = constraints(board) if alone is None else unit_constraints(board) or ("", "")
        pins = text and f"{stem}.{ending}"
        for attempt in range(3):
            place = folder / f"attempt_{attempt}"
            place.mkdir()
            tell("Verilog", 0, 1)
            verilog = replace(self, mhz=wanted).verilog()
            if attempt == 0:
                more: dict[str, Any] = {"design": _digest(verilog, board, self.seeds, wanted)}
            pll = _pll(board, wanted) if alone is None else None
            mhz = wanted if pll is None else pll.mhz
            if pins:
                (place / pins).write_text(text, encoding="utf-8")
            needed, placements = _route(verilog, top, board, place, self.seeds, mhz, pins, tell)
            if pll is None or placements[0].mhz >= mhz:
                break
            wanted = _MARGIN * placements[0].mhz
        else:
            raise RunError(
                f"Place and route reached {placements[0].mhz:.2f} MHz where {mhz:.2f} MHz were "
                f"needed, in every attempt; ask for less with --clock"
            )
        files: dict[str, bytes] = {}
        if pll is not None:
            tell("Bitstream", 0, 1)
            bitstream = pack(board, placements[0])
            files = {bitstream.name: bitstream.read_bytes(), pins: text.encode()}
            more |= {"link": board.link, **_clock(pll)}
        more["seeds"] = _reached(self.seeds, placements)
        if pll is not None and board.flash is not None:
            more["flash_lanes"] = board.flash.lanes
        return _finish(board, self.config, place, top, needed, placements, began, files, more)


def _digest(verilog: str, board: Board, seeds: Sequence[int], mhz: float) -> str:
    """Return a text that changes with every input of a build.

    It depends on the design without its comments, the device, the pins, the tools' versions, the
    seeds and the frequency.
    """
    device, family = board.device, board.device.family
    design, own = prepare(_COMMENT.sub("", verilog), family)
    inputs = [design, *map(str, own.values()), device.name, board.package, board.speed]
    inputs += constraints(board)
    inputs += [family.synthesis, placer_options(device, verilog), _tools(family), list(seeds), mhz]
    inputs += ["output registers"] * family.output_registers
    inputs += [f"{device.wire_ps} ps"] * bool(device.wire_ps)
    if device.blocks:
        inputs += [device.multiplier_rows, device.ram_rows, device.blocks]
    if fills(device, verilog):
        inputs += ["resets on the clock network"]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]


def _tools(family: Family) -> dict[str, str]:
    return {name: find_tool(name).version for name in ("yosys", family.router)}


def _pll(board: Board, mhz: float) -> Pll:
    """Return the setting for the machine's clock.

    With DDR3 it is that of LiteDRAM's core, which makes twice the clock and halves it.
    """
    if board.ddr3 is not None:
        core = _core(board, mhz)
        return Pll(core.mhz, core.oscillator_mhz, "")
    return find_pll(board.device.family.name, board.device.name, board.clock_mhz, mhz)


def _core(board: Board, mhz: float) -> Core:
    """Return LiteDRAM's core for a clock that is not above the requested one.

    It is up to 4 % below if LiteX has no setting for it, as its settings have gaps.
    """
    assert board.ddr3 is not None
    family, device = board.device.family.name, board.device.name
    exact = find_pll(family, device, board.clock_mhz, 2 * mhz).mhz / 2
    refused = None
    for percent in range(100, 95, -1):
        try:
            return make_core(board.ddr3, board.part, board.clock_mhz, exact * percent / 100)
        except ClockError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _machine(config: Config, board: Board, pll: Pll) -> str:
    """Return the Verilog of a board's machine at a clock, with its uppermost module."""
    clock = round(pll.mhz * 1e6)
    core = None if board.ddr3 is None else _core(board, pll.mhz)
    machine = BoardTop(
        config,
        clock=clock,
        memory_bytes=board.memory_bytes,
        sdram=board.sdram,
        ddr3=None if core is None else core.start,
        psram=board.psram,
        flash=board.flash,
        link=board.link,
    )
    beside = "" if core is None else core.verilog
    return to_verilog(machine, CORE) + top_verilog(board, pll) + beside


def _clock(pll: Pll) -> dict[str, Any]:
    return {"clock_mhz": round(pll.mhz, 4), "oscillator_mhz": round(pll.oscillator_mhz, 4)}


def _route(
    verilog: str,
    top: str,
    board: Board,
    folder: Path,
    seeds: Sequence[int],
    mhz: float,
    pins: str,
    tell: Progress,
) -> tuple[dict[str, int], list[Placement]]:
    """Synthesize, refuse a design that does not fit, place and route."""
    find_tool(board.device.family.router)
    tell("Synthesis", 0, 1)
    needed = count(board.device.family, synthesize(verilog, top, board.device, folder))
    check_fits(board.device, needed, f"Board {board.name}")
    seat(folder / NETLIST, top, board.device)
    if fills(board.device, verilog):
        spread_resets(folder / NETLIST, top)
    placements = place(
        replace(board.device, placer=placer_options(board.device, verilog)),
        board.package,
        board.speed,
        folder,
        seeds=list(seeds),
        mhz=mhz,
        constraints=pins or None,
        progress=lambda done, total: tell("Place and route", done, total),
    )
    for seed in sorted(set(seeds) - {placement.seed for placement in placements}):
        tell(f"Seed {seed} was not routed", 0, 1)
    return needed, placements


def _finish(
    board: Board,
    config: Config,
    folder: Path,
    top: str,
    needed: dict[str, int],
    placements: list[Placement],
    began: float,
    files: dict[str, bytes],
    more: dict[str, Any],
) -> Build:
    """Report the best placement and draw it."""
    family, best = board.device.family, placements[0]
    tell_apart = Units(folder / NETLIST, top)
    by_unit, places = count_units(family, best.folder / PLACED, tell_apart)
    used = {
        name: _used(best.report["utilization"], family.placed[name])
        if family.placed[name]
        else value
        for name, value in needed.items()
    }
    report = {
        "board": board.name,
        "device": board.device.name,
        "speed": board.speed,
        "config": config.name,
        **used,
        "fmax_mhz": round(best.mhz, 2),
        "seed": best.seed,
        **more,
        "available": dict(board.device.capacity),
        "critical_path": critical_path(best.report, tell_apart),
        "units": by_unit,
        "tools": _tools(family),
        "seconds": round(time.monotonic() - began, 1),
    }
    title = f"{board.title}: {config.name}, {best.mhz:.1f} MHz"
    _floorplan.draw(places, title, folder / "floorplan.png")
    kept = {
        **files,
        "design.v": (folder / "design.v").read_bytes(),
        "config.toml": config.to_toml().encode(),
        "synthesis.log": (folder / "synthesis.log").read_bytes(),
        "place.log": (best.folder / "place.log").read_bytes(),
        "floorplan.png": (folder / "floorplan.png").read_bytes(),
    }
    assert set(RESOURCES) <= set(report)
    return Build(report, kept)


def _reached(seeds: Sequence[int], placements: list[Placement]) -> dict[str, float | None]:
    """Return the frequency that each seed reached (MHz), None if it was not routed."""
    reached = {placement.seed: round(placement.mhz, 2) for placement in placements}
    return {str(seed): reached.get(seed) for seed in seeds}


def _used(utilization: dict[str, dict[str, int]], kinds: dict[str, float]) -> int:
    return round(
        sum(utilization.get(kind, {}).get("used", 0) * each for kind, each in kinds.items())
    )
