"""Exports of random machines for random parts: `python -m tools.parts [INDEX ...]`.

Machine ``index`` of a seed is drawn by ``celosia.tb.verify.configurations.random_config``, its
part from all parts of ``celosia generate --device``. The command either refuses the machine or
writes the export, which is placed between registers (``celosia.fpga.harness``) by the family's
plain synthesis and nextpnr. A refused machine is tried again for the part with the most LUTs.
Each result is kept in ``tools/parts.json`` as it comes; delete an entry to try it again. At the end
the table of all results is printed; the exit status is 1 if the tools failed on a machine.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.support import pages
from celosia.fpga.boards import BOARDS, get_board
from celosia.fpga.harness import Harness
from celosia.fpga.part import PARTS
from celosia.fpga.pins import unit_constraints
from celosia.fpga.placement import place
from celosia.fpga.synthesis import plain_netlist
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.component import Component
from celosia.tb.verify.configurations import random_config

RECORD = Path(__file__).with_suffix(".json")
SEED, COUNT = 1, 20
MHZ = 50
"""Frequency that nextpnr strives for (MHz)."""
LARGEST = "ecp5:85k"
"""Part for which a machine is tried that its drawn part cannot hold."""

_COUNTS = {"luts": "LUT4s", "multipliers": "multipliers", "block_rams": "block RAMs"}
_TOP, _HARNESS = "celosia_accelerator", "harness"


class Exported(Component):
    """A module with the ports that its JSON description has; its Verilog is another file."""

    def __init__(self, name: str, ports: Iterable[Mapping[str, Any]]):
        flows = {"input": In, "output": Out}
        self.name = name
        super().__init__({port["name"]: flows[port["direction"]](port["width"]) for port in ports})

    def elaborate(self, _platform: object) -> Module:
        """Connect an instance of the module to the ports."""
        m = Module()
        pins = {
            f"{'i' if member.flow == In else 'o'}_{path[0]}": value
            for path, member, value in self.signature.flatten(self)
        }
        m.submodules.exported = Instance(
            self.name, i_clk=ClockSignal(), i_rst=ResetSignal(), **pins
        )
        return m


def machine(seed: int, index: int) -> tuple[str, Config]:
    """Return a random part's name and a random configuration."""
    rng = np.random.default_rng([seed, index])
    return str(rng.choice(list(PARTS))), random_config(rng)


def placed(part: str, export: Path, folder: Path, top: str = _TOP) -> dict[str, Any]:
    """Place an export between registers by plain tools, and return the report of nextpnr.

    Wires are not routed: ``mhz`` is nextpnr's estimate from the places, which only its log has.

    Raises :class:`RunError` if nextpnr fails.
    """
    device = PARTS[part]
    # A part that no board has is placed in the package of another one of its series.
    names = device.name, device.name.rpartition("-")[0]
    boards = [get_board(name) for name in BOARDS]
    board = next(b for name in names for b in boards if b.device.name.startswith(name))
    ports = json.loads((export / f"{top}.json").read_text(encoding="utf-8"))["ports"]
    harness = to_verilog(Harness(Exported(top, ports)), _HARNESS)
    verilog = harness + (export / f"{top}.v").read_text(encoding="utf-8")
    plain_netlist(verilog, _HARNESS, device.family, folder)
    pins = ""
    if constraints := unit_constraints(board):
        pins = f"{_HARNESS}.{constraints[1]}"
        (folder / pins).write_text(constraints[0], encoding="utf-8")
    (best,) = place(
        replace(device, placer=["--no-route"]),
        board.package,
        board.speed,
        folder,
        seeds=[1],
        mhz=MHZ,
        constraints=pins or None,
        progress=lambda _done, _total: None,
    )
    used = best.report["utilization"]
    counts = {
        name: round(sum(used.get(cell, {}).get("used", 0) * each for cell, each in cells.items()))
        for name, cells in device.family.placed.items()
    }
    log = (best.folder / "place.log").read_text(encoding="utf-8")
    clocks = dict(re.findall(r"Max frequency for clock '([^']+)': ([\d.]+) MHz", log))
    return {"end": "placed", "mhz": round(min(map(float, clocks.values())), 1), **counts}


def trial(part: str, config: Config) -> dict[str, Any]:
    """Return how the export of a machine for a part ends."""
    result: dict[str, Any] = {"part": part, "config": config.fields()}
    with tempfile.TemporaryDirectory() as name:
        folder, export = Path(name), Path(name) / "export"
        (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
        words = ["generate", "--config", str(folder / "config.toml"), "--device", part]
        command = [sys.executable, "-c", "from celosia.cli.entry import main; main()"]
        done = subprocess.run(
            [*command, *words, "--out", export], capture_output=True, encoding="utf-8"
        )
        if done.returncode == 2:
            return {**result, "end": "refused", "sentence": done.stderr.splitlines()[-1]}
        if done.returncode:
            return {**result, "end": "failed", "sentence": done.stderr[-2000:]}
        result["sentence"] = done.stdout.splitlines()[-1]
        try:
            return {**result, **placed(part, export, folder)}
        except (InputError, RunError) as error:
            return {**result, "end": "failed", "sentence": str(error)[-2000:]}


def table(record: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of a record."""
    head = ("machine", "part", "array", "lanes", "scratchpad", "end", *_COUNTS.values(), "MHz")
    rows = []
    for name, entry in record.items():
        config = entry["config"]
        cells = [
            name.split()[0],
            f"`{entry['part']}`",
            f"{config['array']['rows']}x{config['array']['cols']} {config['array']['kind']}",
            str(config["vector"]["lanes"]),
            f"{config['scratchpad']['bytes']:,}",
        ]
        if entry["end"] == "placed":
            counts = (f"{entry[count]:,}" for count in _COUNTS)
            cells += ["placed", *counts, f"{entry['mhz']:g}"]
        else:
            cells += [f"{entry['end']}: {entry['sentence'].removeprefix('celosia: ')}", *[""] * 4]
        rows.append(cells)
    return pages.table(head, rows)


def recorded() -> dict[str, dict[str, Any]]:
    """Return the results so far, by the machine's index and the part, as in ``3 ecp5:85k``."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def keep(name: str, result: dict[str, Any]) -> None:
    """Add a result to the record, which other processes may have changed."""
    entries = sorted({**recorded(), name: result}.items(), key=lambda each: int(each[0].split()[0]))
    RECORD.write_text(json.dumps(dict(entries), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Try the machines that are named, or all, and print the table of the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("indexes", metavar="INDEX", nargs="*", type=int)
    for index in parser.parse_args().indexes or range(COUNT):
        drawn, config = machine(SEED, index)
        for part in (drawn, LARGEST):
            name = f"{index} {part}"
            if name not in recorded():
                keep(name, trial(part, config))
            if recorded()[name]["end"] != "refused":
                break
    record = recorded()
    print(table(record))
    sys.exit(any(entry["end"] == "failed" for entry in record.values()))


if __name__ == "__main__":
    main()
