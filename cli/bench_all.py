"""celosia bench all: run every benchmark with a result that this project publishes."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.arch.support import pages
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.child import run_command
from celosia.cli.output import progress, report, text
from celosia.cli.paths import FILE
from celosia.cli.tree import Command


@dataclass(frozen=True)
class Case:
    """A benchmark: a command of ``celosia``, and its results in the table of benchmarks.

    If ``whole`` is true, all rows of the command's own table are shown. If ``whole`` is false, only
    the result named ``figure`` is shown, beside results that other projects have published for the
    same shapes of matrices.
    """

    words: str
    """The command's words after ``celosia``, without ``--json``."""
    figure: str = "utilization"
    """The key of the figure; in a list of results under ``shapes``, the smallest counts."""
    published: str = ""
    """Published figures of others for the same shapes."""
    whole: bool = False
    """True if the result's ``rows`` are a separate table."""


_TEXT = (Path(__file__).parent / "benchmarks.toml").read_text(encoding="utf-8")
_PREFACE = tomllib.loads(_TEXT)["preface"]


def read_cases() -> dict[str, list[Case]]:
    """Return a dictionary from each heading in benchmarks.toml to the benchmarks below it."""
    entries = tomllib.loads(_TEXT)["cases"]
    return {heading: [Case(**case) for case in cases] for heading, cases in entries.items()}


@click.command("all", cls=Command, example="zeros")
@click.argument("only", metavar="[TEXT]", default="")
@click.option(
    "--out",
    type=FILE,
    help="File for the tables, in Markdown; with TEXT it keeps its other tables.",
)
def bench_all(only: str, out: Path | None) -> None:
    """Run all benchmarks, or those with TEXT in their heading; show their results in a table.

    The headings are those of the Markdown file that --out writes, with a table below each heading.
    """
    if out is not None:
        check_folder(out.parent, [out.name])
    every = read_cases()
    groups = {name: cases for name, cases in every.items() if only.lower() in name.lower()}
    if not groups:
        raise InputError(f"No heading has {only!r}; known headings are {', '.join(every)}")
    kept = sections(out.read_text(encoding="utf-8")) if only and out and out.is_file() else {}
    total = sum(len(cases) for cases in groups.values())
    rows_by_heading: dict[str, list[dict[str, Any]]] = {}
    with progress("Benchmarks") as update:
        done = 0
        for heading, cases in groups.items():
            rows_by_heading[heading] = []
            for case in cases:
                rows_by_heading[heading].append(measure(case))
                done += 1
                update(done, total)
    rows = [row for measured in rows_by_heading.values() for row in measured]
    if out is not None:
        tables = {
            name: table(rows_by_heading[name]) if name in rows_by_heading else kept.get(name)
            for name in every
        }
        write_files(out.parent, {out.name: "\n".join(markdown(tables))})
    names = ("command", "figure", "value", "mismatches")
    shown = [{name: row[name] for name in names} for row in rows]
    mismatches = sum(row["mismatches"] for row in rows)
    report("Benchmarks", shown, {"benchmarks": rows, "mismatches": mismatches})


def measure(case: Case) -> dict[str, Any]:
    """Run a benchmark's command in the project's folder; return its line in the benchmarks' table.

    The line is a dictionary from column names to cells. Raises :class:`RunError` if the command
    fails.
    """
    result = json.loads(run_command(shlex.split(case.words)).stdout)
    command = f"celosia {case.words}"
    if case.whole:
        rows, wrong = result["rows"], result["mismatches"]
        shown = {"command": command, "figure": "rows", "value": len(rows)}
        return shown | {"mismatches": wrong, "rows": rows}
    parts: Sequence[Mapping[str, Any]] = result.get("shapes", [result])
    return {
        "command": command,
        "figure": case.figure,
        "value": min(part[case.figure] for part in parts),
        "cycles": sum(part["cycles"] for part in parts),
        # A run gives the ideal of one inference.
        "ideal_cycles": sum(part["ideal_cycles"] * part.get("count", 1) for part in parts),
        "mismatches": sum(part["mismatches"] or 0 for part in parts),
        "published": case.published,
    }


def sections(page: str) -> dict[str, str]:
    """Return a dictionary from each ``##`` heading of a Markdown page to the text below it."""
    parts = (part.partition("\n") for part in page.split("\n## ")[1:])
    return {heading: rest.strip() for heading, _, rest in parts}


def markdown(tables: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the parts of a Markdown page: a preface, then each heading with its table.

    ``tables`` maps headings to tables. A heading whose table is None is omitted.
    """
    yield _PREFACE
    for heading, lines in tables.items():
        if lines is not None:
            yield f"## {heading}\n\n{lines}\n"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table below one heading of the page of benchmarks.

    ``rows`` has one dictionary, a result of :func:`measure`, for each benchmark below the heading.
    Each becomes a line of the table. If a benchmark's dictionary has an entry ``rows``, the heading
    must have only this benchmark. The result is then the benchmark's command, and a table of the
    entry's rows.
    """
    title = ""
    if "rows" in rows[0]:
        title, rows = f"`{rows[0]['command']}`\n\n", rows[0]["rows"]
    cells = (
        [f"`{row['command']}`" if name == "command" else text(row[name]) for name in rows[0]]
        for row in rows
    )
    return title + pages.table([name.replace("_", " ") for name in rows[0]], cells)
