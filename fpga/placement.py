"""Place-and-route by nextpnr, and packing of the bitstream."""

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celosia.arch.errors import RunError
from celosia.arch.support.cache import cached, digest
from celosia.fpga.boards import Board
from celosia.fpga.devices import Device
from celosia.fpga.synthesis import NETLIST
from celosia.fpga.tools import find_tool, run_tool
from celosia.generators.campaign.case import Campaign, Case
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers

PLACED = "placed.json"
"""Name of the file to which nextpnr writes the placed netlist."""

_TREE = re.compile(r"^module (?:\w+_)?TreeColumn\b", re.MULTILINE)

_ALIKE = 0.001  # part by which clocks that are to be the same can differ: periods are whole ps

_PACKAGES = {"BG": "CABGA", "MG": "CSFBGA"}


@dataclass(frozen=True)
class Placement:
    """The result of place-and-route with one seed.

    ``folder`` contains nextpnr's files, and ``report`` is nextpnr's report. ``mhz`` is the
    frequency that the machine's clock has reached (MHz).
    """

    seed: int
    folder: Path
    report: dict[str, Any]
    mhz: float


def place(
    device: Device,
    package: str,
    speed: str,
    folder: Path,
    *,
    seeds: list[int],
    mhz: float,
    constraints: str | None,
    progress: Callable[[int, int], None],
) -> list[Placement]:
    """Place and route the netlist in a folder for each seed; return the placements, fastest first.

    ``mhz`` is the target frequency. ``constraints`` is a file in the folder, or None if nextpnr
    chooses pins. ``progress`` gets the numbers of finished and of all seeds. A seed that cannot be
    routed has no placement; if all fail, :class:`RunError` is raised.
    """
    tool = find_tool(device.family.router)

    names = [NETLIST, *([constraints] if constraints else [])]
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]

    def run(case: Case) -> dict[str, Any]:
        seed = seeds[case.index]
        work = f"Place and route with seed {seed}"
        arguments = [
            *("--json", NETLIST, "--seed", str(seed), "--freq", f"{mhz:g}"),
            *("--report", "report.json", "--write", PLACED, "--timing-allow-fail"),
            *_options(device, package, speed, constraints),
        ]

        def make(place: Path) -> None:
            for name, text in zip(names, texts, strict=True):
                (place / name).write_text(text, encoding="utf-8")
            run_tool(tool, arguments, folder=place, log="place.log", work=work)

        name = Path(tool.command).name
        kept = cached("placed", digest(name, tool.version, *arguments, *texts), make)
        shutil.copytree(kept, folder / f"seed_{seed}")
        return {}

    campaign = Campaign("place", 0, {}, "")
    workers = Workers(min(len(seeds), Workers().jobs), threads=True)
    placements, errors = [], []
    with Store(None) as store:
        outcomes = run_campaign(
            campaign, run, len(seeds), store=store, workers=workers, tell=progress
        )
        for seed, outcome in zip(seeds, outcomes, strict=True):
            if outcome.failed:
                errors.append(outcome.error)
                continue
            place = folder / f"seed_{seed}"
            report = json.loads((place / "report.json").read_text(encoding="utf-8"))
            placements.append(Placement(seed, place, report, frequency(report["fmax"], mhz)))
    if not placements:
        raise RunError(errors[0])
    return sorted(placements, key=lambda placement: (-placement.mhz, placement.seed))


def fills(device: Device, verilog: str) -> bool:
    """Return True if a design's array has adder trees, and the device's sites are known.

    A build of such a design uses nextpnr's router2, and moves reset nets to the clock network.
    """
    return bool(device.blocks and _TREE.search(verilog))


def placer_options(device: Device, verilog: str) -> list[str]:
    """Return nextpnr's options for the placement and routing of a design on a device.

    A design with an array of adder trees, on a device with known sites, is routed by nextpnr's
    router2, because router1 cannot route all of its wires.
    """
    return [*device.placer, *(["--router", "router2"] if fills(device, verilog) else [])]


def _options(device: Device, package: str, speed: str, constraints: str | None) -> list[str]:
    if device.family.name == "ecp5":
        long = package.replace(package[:2], _PACKAGES.get(package[:2], package[:2]))
        own = ["--package", long, "--speed", speed, "--textcfg", "device.config"]
        pins = ["--lpf", constraints] if constraints else ["--lpf-allow-unconstrained"]
    elif device.family.name == "ice40":
        own = ["--package", package.lower(), "--asc", "device.asc"]
        pins = ["--pcf", constraints] if constraints else ["--pcf-allow-unconstrained"]
    else:
        own = ["--device", package]
        pins = ["--vopt", f"cst={constraints}"] if constraints else []
    return [*device.options, *device.placer, *own, *pins]


def pack(board: Board, placement: Placement) -> Path:
    """Pack the bitstream of a placement for a board, and return the path of the bitstream."""
    device, folder = board.device, placement.folder
    out = f"{board.name}.{device.family.bitstream}"
    if device.family.name == "ecp5":
        tool, arguments = "ecppack", ["--compress", "--input", "device.config", "--bit", out]
    elif device.family.name == "ice40":
        tool, arguments = "icepack", ["device.asc", out]
    else:
        # The second of a device's options is family=NAME.
        tool, arguments = "gowin_pack", ["-d", device.options[1].partition("=")[2], "-o", out]
        if device.name == "GW1NR-9C":
            # The pins of the configuration interfaces carry LEDs.
            arguments += ["--sspi_as_gpio", "--mspi_as_gpio"]
        elif board.flash is not None:
            arguments += ["--mspi_as_gpio"]
        arguments += [PLACED]
    run_tool(
        find_tool(tool), arguments, folder=folder, log="pack.log", work="Packing the bitstream"
    )
    return folder / out


def frequency(clocks: Mapping[str, Mapping[str, float]], mhz: float) -> float:
    """Return the lowest frequency (MHz) that the machine's clocks reached in place-and-route.

    ``clocks`` has the frequencies ``constraint`` and ``achieved`` (MHz) of each clock. The
    machine's clocks are those with the constraint nearest to ``mhz``, with a tolerance of
    ``0.001 * mhz``. Without clocks, the result is infinity.
    """
    nearest = min((abs(clock["constraint"] - mhz) for clock in clocks.values()), default=0.0)
    return min(
        (
            clock["achieved"]
            for clock in clocks.values()
            if abs(clock["constraint"] - mhz) <= nearest + _ALIKE * mhz
        ),
        default=math.inf,
    )
