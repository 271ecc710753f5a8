"""celosia bench boards: what every board's build reached, each report kept."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from arch.errors import InputError, RunError
from arch.tables import read_table
from cli.board_options import resolve_board
from cli.options import json_option
from cli.output import check_folder, progress, report, text, write_files
from cli.paths import FILE
from cli.rates import RATES, TOKEN_RATES
from fpga.boards import BOARDS, get_board
from fpga.build import board_design, unit_design
from fpga.devices import RESOURCES
from generators.cache import ROOT
from generators.verilog.units import make_unit
from tb.toolchain import environment


@dataclass(frozen=True)
class Case:
    """A build: a board's machine, or a unit of a configuration alone on the board's device."""

    board: str
    unit: str | None = None
    config: str | None = None
    mhz: float | None = None
    memory: str | None = None
    changes: tuple[str, ...] = ()
    variant: str | None = None
    """Name of the changed configuration."""
    seed: int = 1
    """Seed of place-and-route."""

    @property
    def file(self) -> str:
        """Name of the report's file."""
        parts = (self.board, self.unit, self.config, self.variant)
        return "-".join(part for part in parts if part) + ".json"

    @property
    def words(self) -> list[str]:
        """The command's words after ``celosia build``, without ``--out``."""
        given = (("board", self.board), ("unit", self.unit), ("config", self.config))
        words = [word for name, value in given if value for word in (f"--{name}", value)]
        words += [word for change in self.changes for word in ("--set", change)]
        words += ["--memory", self.memory] if self.memory else []
        words += ["--clock", f"{self.mhz:g}"] if self.mhz else []
        return [*words, "--seed", str(self.seed)]

    def design(self) -> str:
        """Return what a report of this build has as ``design``."""
        board, config = resolve_board(self.board, self.config, self.changes, "uart", self.memory)
        if self.unit is None:
            return board_design(config, board, [self.seed], mhz=self.mhz)
        return unit_design(make_unit(self.unit, config), board, [self.seed], mhz=self.mhz)


_OTHERS = tuple(
    Case(**values | {"changes": tuple(values.get("changes", ()))})
    for values in read_table(Path(__file__).with_name("board_cases.toml")).values()
)

MACHINES = tuple(case for case in _OTHERS if case.unit is None)
"""Other machines on boards: with SDRAM, or for a language model."""

UNITS = tuple(case for case in _OTHERS if case.unit is not None)
"""Units that are built alone."""

BOARD_CASES = tuple(Case(name) for name in BOARDS)
"""Every board with its own machine."""

CASES = (*BOARD_CASES, *MACHINES, *UNITS)
"""Everything that is built, each into a report of its own."""


@click.command("boards")
@click.option(
    "--out",
    "folder",
    type=FILE,
    default=ROOT / "docs" / "reports",
    help="Folder of the reports; without it docs/reports.",
)
@click.option("--only", metavar="TEXT", default="", help="Only builds with this in their names.")
@click.option(
    "--from",
    "built",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Folder that celosia build wrote; its report is taken instead of building that again.",
)
@click.option(
    "--page",
    "pages",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="File to write the tables into; without it docs/boards.md and README.md.",
)
@click.option("--kept", is_flag=True, help="Build nothing: write the tables of the reports.")
@json_option
def bench_boards(
    folder: Path,
    only: str,
    built: tuple[Path, ...],
    pages: tuple[Path, ...],
    kept: bool,
    as_json: bool,
) -> None:
    """Build every board's machine, keep the reports, and write the tables of them.

    A report that is there already is kept where its design, tools and seed are today's, so that
    the command can be interrupted and called again.
    """
    check_folder(folder)
    cases = [case for case in CASES if only in case.file]
    if not cases:
        raise InputError(f"No build has {only!r} in its name")
    pages = pages or PAGES
    for page in pages:
        refresh(page.read_text(encoding="utf-8"), {}, str(page))
    if not kept:
        with progress("Builds") as update:
            for done, case in enumerate(cases):
                update(done, len(cases))
                measure(case, folder, [place / "report.json" for place in built])
    found = read(folder)
    for page in pages:
        content = refresh(page.read_text(encoding="utf-8"), found, str(page))
        write_files(page.parent, {page.name: content})
    rows = [row(found[case.file]) for case in cases if case.file in found]
    report("Builds", rows, as_json, {"reports": found})


def measure(case: Case, folder: Path, others: Sequence[Path] = ()) -> None:
    """Build, unless the folder or one of other reports has it already, and leave the report there.

    What does not fit its device has a report, too, which says so as ``refused``.

    Raises :class:`RunError` where the build fails.
    """
    design = case.design()
    for file in (folder / case.file, *others):
        if file.is_file():
            found = json.loads(file.read_text(encoding="utf-8"))
            if found.get("design") == design:
                _keep(case, folder, found)
                return
    with tempfile.TemporaryDirectory(prefix="celosia.") as work:
        main = "from cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", main, "build", *case.words, "--out", work, "--json"],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            encoding="utf-8",
        )
    errors = done.stderr.strip()
    if done.returncode not in (0, 2):
        raise RunError(f"celosia build {' '.join(case.words)} failed: {errors[-400:]}")
    if done.returncode:
        board = get_board(case.board)
        found = {
            "board": case.board,
            "device": board.device.name,
            "config": case.config or board.config.name,
            "design": design,
            "refused": errors.splitlines()[-1].removeprefix("celosia: "),
        }
    else:
        found = json.loads(done.stdout)
    _keep(case, folder, found)


def _keep(case: Case, folder: Path, found: Mapping[str, Any]) -> None:
    """Write a report with the command that makes it."""
    kept = {"command": " ".join(["celosia build", *case.words]), **found}
    write_files(folder, {case.file: json.dumps(kept, indent=2) + "\n"})


def read(folder: Path) -> dict[str, Any]:
    """Return the reports of a folder, by the names of their files, in the order of the builds."""
    files = {case.file: folder / case.file for case in CASES}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.is_file()
    }


def row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a report."""
    used = {
        title: f"{found[key]:,} of {found['available'][key]:,}" if key in found else "-"
        for key, title in RESOURCES.items()
    }
    speeds = {name.replace("_", " "): found.get(name) for name in (*RATES, *TOKEN_RATES)}
    return {
        "board": found["board"],
        "device": found["device"],
        "machine": found["config"],
        **used,
        "MHz": found.get("fmax_mhz"),
        "clock MHz": found.get("clock_mhz"),
        **speeds,
    }


def boards_table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the boards' table, and below it what does not fit."""
    cases = [case for case in CASES if case.unit is None and case.file in found]
    reports = [found[case.file] for case in cases]
    yield from _table(
        [_named("machine", case, one) for case, one in zip(cases, reports, strict=True)]
    )
    for one in reports:
        for key in ("refused", "no_inference"):
            if key in one:
                yield f"\n`{one['board']}` with `{one['config']}`: {one[key]}."


def _named(title: str, case: Case, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a report, its machine with the variant's name under a title."""
    line = row(found)
    name = line["machine"] + (f", {case.variant}" if case.variant else "")
    return {**line, title: name}


def summary_table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a short table of the boards' own machines that fit."""
    names = ("board", "device", "four-input tables", "multipliers", "block RAMs", "clock MHz")
    rates = [name.replace("_", " ") for name in RATES]
    reports = [found[case.file] for case in CASES if case in BOARD_CASES and case.file in found]
    rows = [row(one) for one in reports if "refused" not in one]
    yield from _table([{name: one[name] for name in (*names, *rates)} for one in rows])


def units_table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of units alone."""
    rows = []
    for case in UNITS:
        if case.file in found:
            one = found[case.file]
            rows.append(_named("unit", case, one | {"config": f"{case.unit} of {one['config']}"}))
    names = ("unit", "device", *RESOURCES.values(), "MHz")
    yield from _table([{name: one[name] for name in names} for one in rows])


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(rows[0])} |"
        yield "|---" * len(rows[0]) + "|"
    for one in rows:
        yield f"| {' | '.join(text(value) for value in one.values())} |"


PAGES = (ROOT / "docs" / "boards.md", ROOT / "README.md")
"""The pages that have tables."""

TABLES = {"boards": boards_table, "summary": summary_table, "units": units_table}
"""The maker of each table, by the name in the page's two comments around it."""


def refresh(page: str, found: Mapping[str, Any], name: str) -> str:
    """Return a page with every table that it has a place for made anew of reports.

    Raises :class:`InputError` where the page, which messages call ``name``, has no place.
    """
    places = 0
    for table, make in TABLES.items():
        begin, end = f"<!-- {table}: begin -->\n", f"<!-- {table}: end -->"
        if page.count(begin) == page.count(end) == 1:
            before, rest = page.split(begin)
            made = "\n".join(make(found))
            page = f"{before}{begin}\n{made}\n\n{end}{rest.split(end)[1]}"
            places += 1
    if not places:
        wanted = " or ".join(f"<!-- {table}: begin -->" for table in TABLES)
        raise InputError(f"Page {name} has no place for a table, which begins with {wanted}")
    return page
