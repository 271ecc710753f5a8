"""Tables of the boards' reports, and the pages that have them."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.support.cache import ROOT
from celosia.cli.board_cases import BOARD_CASES, CASES, UNITS, Case
from celosia.cli.output import text
from celosia.cli.rates import RATES, SPEEDS
from celosia.fpga.devices import RESOURCES

TODAY = "today's"
"""The field ``sources`` of a report whose design today's sources give as well."""


def row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a report."""
    used = {
        title: f"{found[key]:,} of {found['available'][key]:,}" if key in found else "-"
        for key, title in RESOURCES.items()
    }
    speeds = {name.replace("_", " "): found.get(name) for name in SPEEDS}
    return {
        "board": found["board"],
        "device": found["device"],
        "machine": found["config"],
        "sources": found.get("sources"),
        **used,
        "MHz": found.get("fmax_mhz"),
        "MHz of seeds": _spread(found.get("seeds", {})),
        "clock MHz": found.get("clock_mhz"),
        **speeds,
    }


def _spread(seeds: Mapping[str, float | None]) -> str | None:
    """Return the least, median and highest frequency of several seeds; None of a single one."""
    reached = [mhz for mhz in seeds.values() if mhz is not None]
    if len(seeds) < 2 or not reached:
        return None
    told = f"{min(reached):.2f}, {median(reached):.2f}, {max(reached):.2f}"
    return told if len(reached) == len(seeds) else f"{told}; {len(reached)} of {len(seeds)} routed"


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
    names = ("unit", "device", "sources", *RESOURCES.values(), "MHz", "MHz of seeds")
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
