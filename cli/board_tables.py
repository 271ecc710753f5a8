"""Makes tables from the boards' build reports, and inserts them into pages of the documentation."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.support import pages
from celosia.arch.support.cache import ROOT
from celosia.cli.board_cases import BOARD_CASES, CASES, UNITS, Case
from celosia.cli.output import text
from celosia.cli.rates import PAIR_RATES, RATES, SPEEDS, TOKEN_RATES
from celosia.fpga.devices import RESOURCES

TODAY = "today's"
"""The field ``sources`` of a report whose design is that of today's sources."""


def row(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line of the table of builds, made from a build's report.

    The line is a dictionary from column names to cells.
    """
    used = {
        title: f"{report[key]:,} of {report['available'][key]:,}" if key in report else "-"
        for key, title in RESOURCES.items()
    }
    speeds = {name.replace("_", " "): report.get(name) for name in SPEEDS}
    return {
        "board": report["board"],
        "device": report["device"],
        "machine": report["config"],
        "sources": report.get("sources"),
        **used,
        "MHz": report.get("fmax_mhz"),
        "MHz of seeds": _spread(report.get("seeds", {})),
        "clock MHz": report.get("clock_mhz"),
        **speeds,
    }


def _spread(seeds: Mapping[str, float | None]) -> str | None:
    """Return the least, median and highest frequency of several seeds; None for a single one."""
    reached = [mhz for mhz in seeds.values() if mhz is not None]
    if len(seeds) < 2 or not reached:
        return None
    told = f"{min(reached):.2f}, {median(reached):.2f}, {max(reached):.2f}"
    return told if len(reached) == len(seeds) else f"{told}; {len(reached)} of {len(seeds)} routed"


def boards_table(by_file: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of two Markdown tables of the machines that were built for boards.

    ``by_file`` is a dictionary from the file name of each build's report to the report. The first
    table has all machines. The second table has the token rates of machines with room for a
    language model. Below the tables, one line for each machine that does not fit its device gives
    the reason.
    """
    cases = [case for case in CASES if case.unit is None and case.file in by_file]
    reports = [by_file[case.file] for case in cases]
    rows = [_named("machine", case, entry) for case, entry in zip(cases, reports, strict=True)]
    tokens = [name.replace("_", " ") for name in (*TOKEN_RATES, *PAIR_RATES)]
    yield from _table(
        [{name: cell for name, cell in line.items() if name not in tokens} for line in rows]
    )
    with_tokens = [line for line in rows if line[tokens[0]] is not None]
    if with_tokens:
        yield ""
    names = ("board", "machine", "clock MHz", *tokens)
    yield from _table([{name: line[name] for name in names} for line in with_tokens])
    for entry in reports:
        if "refused" in entry:
            yield f"\n`{entry['board']}` with `{entry['config']}`: {entry['refused']}."


def _named(title: str, case: Case, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a report, its machine with the variant's name under a title."""
    line = row(report)
    name = line["machine"] + (f", {case.variant}" if case.variant else "")
    return {**line, title: name}


def summary_table(by_file: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a short Markdown table of the boards' default machines.

    ``by_file`` is a dictionary from the file name of each build's report to the report. Machines
    that do not fit their device are left out.
    """
    names = ("board", "device", "LUT4s", "multipliers", "block RAMs", "clock MHz")
    rates = [name.replace("_", " ") for name in RATES]
    reports = [by_file[case.file] for case in CASES if case in BOARD_CASES and case.file in by_file]
    rows = [row(entry) for entry in reports if "refused" not in entry]
    yield from _table([{name: line[name] for name in (*names, *rates)} for line in rows])


def units_table(reports: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the Markdown table of units that are built without the rest of a machine.

    ``reports`` is a dictionary from the file name of each build's report to the report.
    """
    rows = []
    for case in UNITS:
        if case.file in reports:
            report = reports[case.file]
            rows.append(
                _named("unit", case, report | {"config": f"{case.unit} of {report['config']}"})
            )
    names = ("unit", "device", "sources", *RESOURCES.values(), "MHz", "MHz of seeds")
    yield from _table([{name: line[name] for name in names} for line in rows])


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rows:
        yield pages.table(list(rows[0]), (map(text, line.values()) for line in rows))


PAGES = (ROOT / "docs" / "boards" / "placements.md", ROOT / "README.md")
"""The pages that have tables."""

TABLES = {"boards": boards_table, "summary": summary_table, "units": units_table}
"""The maker of each table, by the name in the page's two comments around it."""


def refresh(page: str, reports: Mapping[str, Any], name: str) -> str:
    """Return a Markdown page in which each table of build reports is replaced by a new table.

    ``page`` is the page's text, with a comment before and a comment after each such table.
    ``reports`` is a dictionary from the file name of each build's report to the report. ``name`` is
    the page's name in messages. Raises :class:`InputError` if the page has no such comments.
    """
    begins = {f"<!-- {table}: begin -->": table for table in TABLES}
    places = [table for begin, table in begins.items() if begin in page]
    if not places:
        wanted = " or ".join(begins)
        raise InputError(f"Page {name} has no place for a table, which begins with {wanted}")
    for table in places:
        page = pages.between(page, table, "\n".join(TABLES[table](reports)))
    return page
