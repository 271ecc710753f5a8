"""celosia bench boards: build every board's machine, and write a report file for each build."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.arch.support.cache import ROOT
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.board_cases import CASES, Case, older_sources, read_reports
from celosia.cli.board_tables import PAGES, TODAY, refresh, row
from celosia.cli.child import run_command
from celosia.cli.output import progress, report, warn
from celosia.cli.rates import rates, renewed
from celosia.cli.tree import Command
from celosia.fpga.boards import get_board

REPORTS = ROOT / "docs" / "reports"
"""The folder of the reports."""


@click.command("boards", cls=Command, example="--kept")
@click.argument("only", metavar="[TEXT]", default="")
@click.option(
    "--kept",
    is_flag=True,
    help="Build nothing, which takes minutes a board: count cycles anew, about 40 s a board.",
)
def bench_boards(
    only: str,
    kept: bool,
) -> None:
    """Build machines for FPGA boards, and write a report of each build and tables of all reports.

    With TEXT, the command builds only machines with TEXT in their names. Some units are also built
    without their machine. Reports are written to docs/reports, tables to docs/boards/placements.md
    and README.md. Some designs are built several times, with different seeds of place-and-route.
    Their report describes the fastest result, and lists the frequencies of all seeds.

    A machine is not built again if its existing report has the same design, tools and seed. The
    command can therefore be interrupted and repeated. For a machine that is not built again, the
    command simulates the board, and updates the report's cycles per inference and per token. With
    --kept it builds nothing, and only updates these cycles. The cycles are not updated if the
    machine has changed since its build.
    """
    folder = REPORTS
    check_folder(folder)
    cases = [case for case in CASES if only in case.file]
    if not cases:
        raise InputError(f"No build has {only!r} in its name")
    for page in PAGES:
        refresh(page.read_text(encoding="utf-8"), {}, str(page))
    with progress("Cycles" if kept else "Builds") as update:
        for done, case in enumerate(cases):
            update(done, len(cases))
            if kept or not build_case(case, folder):
                update_rates(case, folder)
    reports = read_reports(folder)
    for page in PAGES:
        content = refresh(page.read_text(encoding="utf-8"), reports, str(page))
        write_files(page.parent, {page.name: content})
    rows = [row(reports[case.file]) for case in cases if case.file in reports]
    report("Builds", rows, {"reports": reports})


def build_case(case: Case, folder: Path) -> bool:
    """Build the machine or unit of ``case``, and write its report into ``folder``.

    Return True after a build. Return False if the folder already has a report of a build with the
    same inputs. If the design does not fit its device, the report has the reason in its field
    ``refused``. Raises :class:`RunError` if the build fails.
    """
    design = case.design()
    file = folder / case.file
    if file.is_file():
        report_of_case = json.loads(file.read_text(encoding="utf-8"))
        if report_of_case.get("design") == design:
            _keep(case, folder, report_of_case | {"sources": TODAY})
            return False
    with tempfile.TemporaryDirectory(prefix="celosia.") as work:
        done = run_command(["build", *case.words, "--out", work], refuses=True)
    if done.returncode:
        board = get_board(case.board)
        report_of_case = {
            "board": case.board,
            "device": board.device.name,
            "config": case.config or board.config.name,
            "design": design,
            "refused": done.stderr.strip().splitlines()[-1].removeprefix("celosia: "),
        }
    else:
        report_of_case = json.loads(done.stdout)
    _keep(
        case,
        folder,
        report_of_case | ({"sources": TODAY} if report_of_case.get("design") == design else {}),
    )
    return True


def update_rates(case: Case, folder: Path) -> None:
    """Simulate a board's machine, and update cycles and rates in the report of an earlier build.

    Cycles and rates are not updated in these cases: ``folder`` has no report of the build, the
    build was a single unit, the machine did not fit, or its configuration has changed since the
    build. Raises :class:`RunError` if a result differs from the golden machine's.
    """
    file = folder / case.file
    if not file.is_file():
        return
    report_of_case = json.loads(file.read_text(encoding="utf-8"))
    today = report_of_case.get("design") == case.design()
    if not today and report_of_case.get("sources") == TODAY:
        report_of_case["sources"] = older_sources(file, report_of_case["design"])
        _keep(case, folder, report_of_case)
    if case.unit is not None or "refused" in report_of_case:
        return
    board, config = case.target()
    machine = f"{fingerprint(config):08x}"
    if report_of_case.get("configuration") != machine and not today:
        warn(f"{case.file} is of another machine than today's, and keeps its cycles")
        return
    _keep(case, folder, renewed(report_of_case, rates(config, board, report_of_case["clock_mhz"])))


def _keep(case: Case, folder: Path, report_of_case: Mapping[str, Any]) -> None:
    """Write a report with the command that makes it."""
    kept = {"command": " ".join(["celosia build", *case.words]), **report_of_case}
    write_files(folder, {case.file: json.dumps(kept, indent=2) + "\n"})
