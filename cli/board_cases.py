"""The list of builds that `celosia bench boards` makes, and access to the builds' reports."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celosia.arch.config import Config
from celosia.arch.tables import read_table
from celosia.cli.board_options import resolve_board
from celosia.fpga.boards import BOARDS, Board
from celosia.fpga.build import Task
from celosia.generators.verilog.units import make_unit


@dataclass(frozen=True)
class Case:
    """A build to make: a board's machine, or one unit of a machine alone on the board's device."""

    board: str
    unit: str | None = None
    config: str | None = None
    mhz: float | None = None
    memory: str | None = None
    changes: tuple[str, ...] = ()
    variant: str | None = None
    """Name of the changed configuration."""
    seed: int = 1
    """First seed of place-and-route."""
    seeds: int = 1
    """Number of seeds that are tried, from the first on."""

    @property
    def file(self) -> str:
        """File name of the build's report, such as ``ulx3s_85f.json``."""
        parts = (self.board, self.unit, self.config, self.variant)
        return "-".join(part for part in parts if part) + ".json"

    @property
    def words(self) -> list[str]:
        """The arguments of the command ``celosia build`` for this build, without ``--out``."""
        fields = (("board", self.board), ("unit", self.unit), ("config", self.config))
        words = [word for name, value in fields if value for word in (f"--{name}", value)]
        words += [word for change in self.changes for word in ("--set", change)]
        words += ["--memory", self.memory] if self.memory else []
        words += ["--clock", f"{self.mhz:g}"] if self.mhz else []
        last = f"-{self.seed + self.seeds - 1}" if self.seeds > 1 else ""
        return [*words, "--seed", f"{self.seed}{last}"]

    def target(self) -> tuple[Board, Config]:
        """Return the board of the build, and the configuration of the board's machine.

        If the build is a single unit, the configuration is that of the machine to which the unit
        belongs.
        """
        return resolve_board(self.board, self.config, self.changes, "uart", self.memory)

    def design(self) -> str:
        """Return the digest of all inputs of the build.

        The build's report has this digest in its field ``design``.
        """
        board, config = self.target()
        seeds = range(self.seed, self.seed + self.seeds)
        unit = None if self.unit is None else make_unit(self.unit, config)
        return Task(config=config, board=board, seeds=seeds, mhz=self.mhz, unit=unit).design()


def _case(*, changes: Sequence[str] = (), more: Sequence[str] = (), **values: Any) -> Case:
    """Return a build; ``more`` are changes that a similar one may have without the others."""
    return Case(**values, changes=(*changes, *more))


_OTHERS = tuple(
    _case(**values) for values in read_table(Path(__file__).with_name("board_cases.toml")).values()
)

MACHINES = tuple(case for case in _OTHERS if case.unit is None)
"""Other machines on boards: with SDRAM, or for a language model."""

UNITS = tuple(case for case in _OTHERS if case.unit is not None)
"""Units that are built alone."""

SPREAD = ("icebreaker", "tang_nano_9k", "tang_primer_20k")
"""Boards that are built with three seeds, as each takes minutes."""

BOARD_CASES = tuple(Case(name, seeds=3 if name in SPREAD else 1) for name in BOARDS)
"""Every board with its default machine."""

CASES = (*BOARD_CASES, *MACHINES, *UNITS)
"""Everything that is built, each with a separate report."""


def read_reports(folder: Path) -> dict[str, Any]:
    """Return the builds' reports in a folder, as a dictionary from file name to report.

    The order of the reports is that of the list of all builds. Builds without a report are left
    out.
    """
    files = {case.file: folder / case.file for case in CASES}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.is_file()
    }


def older_sources(file: Path, design: str) -> str:
    """Return the Git commit that wrote a version of a build's report, such as "commit 1a2b3c4".

    ``file`` is the report's path. ``design`` identifies the version: a digest of the build's
    inputs, which the report contains. The result is "older" if Git knows no such commit.
    """
    command = ["git", "log", "-1", "--format=commit %h", f"-S{design}", "--", file.name]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, encoding="utf-8")
    return done.stdout.strip() or "older"
