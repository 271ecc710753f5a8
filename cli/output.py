"""Prints the results, progress, warnings and errors of every command."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from celosia.arch.support.writing import write_files
from celosia.sim.report import CAUSES

Update = Callable[[int, int], None]

LINE_SECONDS = 30.0
"""Interval of progress lines without a terminal (seconds)."""

_WRONG = "celosia.cli.output.wrong"
_JSON = "celosia.cli.output.json"
_ANNOUNCED = 1.5  # seconds
_CONTROLS = {
    code: repr(chr(code))[1:-1]
    for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000))
    if chr(code) not in "\t\n"
}


def plain(words: str) -> str:
    """Return a text whose control characters are escaped, so that a terminal ignores them."""
    return words.translate(_CONTROLS)


def say(words: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text with escaped control characters.

    The text ``words`` is printed on standard error if ``err`` is true, otherwise on standard
    output. If ``nl`` is true, a newline follows the text.
    """
    click.echo(plain(str(words)), err=err, nl=nl)


def _cell(words: str) -> Text:
    """Return a text for a table, in which Rich finds no markup."""
    return Text(plain(words))


def _column(words: str) -> Column:
    return Column(_cell(words))


@contextmanager
def progress(title: str) -> Iterator[Update]:
    """Show a progress bar on standard error; yield a function that updates the bar.

    The function takes the number of finished steps and the number of all steps. If standard error
    is not a terminal, lines of text replace the bar. Output printed in the ``with`` block also goes
    to standard error.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # Without a terminal nothing could move, and an empty line would be left.
    hidden = not console.is_terminal
    began = shown = time.monotonic()
    first: int | None = None

    def update(done: int, total: int) -> None:
        nonlocal first, shown
        first = done if first is None else first
        bar.update(task, completed=done, total=total)
        now = time.monotonic()
        if hidden and now - shown >= LINE_SECONDS:
            shown = now
            spent = now - began
            left = ""
            if done > first:
                left = f", {spent * (total - done) / (done - first):.0f} s left"
            say(f"{title}: {done} of {total} after {spent:.0f} s{left}", err=True)

    bar = Progress(*columns, console=console, transient=True, disable=hidden)
    begun, after = f"{title}: begun" if hidden else "", max(LINE_SECONDS, _ANNOUNCED)
    with redirect_stdout(sys.stderr), bar, announced(begun, after):
        task = bar.add_task(plain(title), total=None)
        yield update


@contextmanager
def announced(words: str, seconds: float | None = None) -> Iterator[None]:
    """Print ``words`` on standard error if the ``with`` block takes longer than ``seconds``.

    The text is printed while the block still runs. The default of ``seconds`` is 1.5 s.
    """
    after = _ANNOUNCED if seconds is None else seconds
    timer = threading.Timer(after, lambda: say(words, err=True) if words else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def warn(warning: str | None) -> None:
    """Print a warning on standard error; print nothing for None or an empty text."""
    if warning:
        say(f"celosia: warning: {warning}", err=True)


def json_option() -> click.Option:
    """Return a new option ``--json``; :func:`as_json` returns whether the user has given it.

    The group ``celosia`` has this option, so the user can give it with every command.
    """

    def keep(context: click.Context, _: click.Parameter, present: bool) -> None:
        context.meta[_JSON] = present

    return click.Option(
        ["--json"],
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Print results as one JSON object and nothing else; before or after the command.",
    )


def as_json() -> bool:
    """Return whether the user has given the option ``--json``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def report(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    *,
    wrong: bool = False,
) -> None:
    """Print ``rows`` as a table or, if ``--json`` is given, ``result`` as one JSON object.

    If ``rows`` has a single row, each line of the table has one name and one value of the row. The
    command later exits with code 1 if ``wrong`` is true, or if ``mismatches`` or ``failed`` in
    ``result`` is not 0.
    """
    if wrong or result.get("mismatches") or result.get("failed"):
        click.get_current_context().meta[_WRONG] = True
    if as_json():
        click.echo(json.dumps(result))
        return
    console = Console()
    if len(rows) == 1:
        table = Table("figure", "value", title=_cell(title))
        for name, value in rows[0].items():
            if not isinstance(value, Mapping):
                table.add_row(_cell(name), _cell(text(value)))
    else:
        table = Table(*map(_column, rows[0]), title=_cell(title))
        for row in rows:
            table.add_row(*(_cell(text(value)) for value in row.values()))
        unbounded = console.options.update(width=1 << 16)
        width = console.measure(table, options=unbounded).maximum
        if width > console.width:
            names, *lines = zip(*(row.items() for row in rows), strict=True)
            heads = [_column(text(value)) for _, value in names]
            transposed = Table(_column(names[0][0]), *heads, title=_cell(title))
            for line in lines:
                transposed.add_row(_cell(line[0][0]), *(_cell(text(value)) for _, value in line))
            if console.measure(transposed, options=unbounded).maximum < width:
                table = transposed
    console.print(table)


def exit_code() -> int:
    """Return the command's exit code.

    The exit code is 1 if a result that :func:`report` has printed is wrong, otherwise 0.
    """
    return int(click.get_current_context().meta.get(_WRONG, False))


def cycles_table(result: Mapping[str, Any]) -> None:
    """Print two tables of a run's cycles: by the array's activity, and by engine.

    ``result`` has the measurements of the run: ``where`` (cycles of each activity), ``engines`` and
    ``counters``. Nothing is printed if the user has given ``--json``, or ``where`` is missing or
    empty.
    """
    if as_json() or not result.get("where"):
        return
    total = max(1, sum(result["where"].values()))
    table = Table("the array", "cycles", "share", title="Where the cycles went")
    for name, cycles in result["where"].items():
        table.add_row(name, text(cycles), f"{cycles / total:.1%}")
        for part in CAUSES[name] if len(CAUSES[name]) > 1 else ():
            spent = result.get("counters", {}).get(f"array_{part}")
            if spent:
                words = f"  {part.replace('_', ' for ')}"
                table.add_row(words, text(spent), f"{spent / total:.1%}", style="dim")
    console = Console()
    console.print(table)
    engines = result.get("engines", {})
    if engines:
        table = Table("engine", *next(iter(engines.values())), title="The engines' cycles")
        for name, spent in engines.items():
            table.add_row(name, *(f"{cycles / total:.1%}" for cycles in spent.values()))
        console.print(table)


_SHOWN = 12
"""Predictions that are shown."""


def predictions_table(result: Mapping[str, Any]) -> None:
    """Print a table of the first 12 predictions of a classifier, with the labels if they are known.

    ``result`` has the measurements of a run, with the entry ``predictions``. Nothing is printed if
    the user has given ``--json``, or the outputs are not scores of classes.
    """
    predictions, labels = result.get("predictions"), result.get("labels")
    if as_json() or not predictions:
        return
    names = result.get("names") or []

    def name(number: int) -> Text:
        return _cell(names[number] if number < len(names) else str(number))

    title = f"Predictions, {min(_SHOWN, len(predictions))} of {len(predictions)}"
    table = Table("input", "prediction", *(["label"] if labels else []), title=title)
    for number, prediction in enumerate(predictions[:_SHOWN]):
        right = [name(labels[number])] if labels else []
        wrong = bool(labels) and labels[number] != prediction
        table.add_row(str(number), name(prediction), *right, style="red" if wrong else None)
    Console().print(table)


def text(value: Any) -> str:
    """Return a value as text for a table; the text of None is ``-``.

    A floating-point number gets at most four significant digits; from 1000 on it is rounded to an
    integer. A number just below 1 (such as 0.99997), which four digits would show as 1, gets up to
    eight decimals. Commas separate thousands.
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        rounded = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        # A cosine just below 1 is not 1.
        return f"{value:.8f}".rstrip("0") if rounded == "1" and value < 1 - 5e-9 else rounded
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def write_array(path: Path, values: Sequence[NDArray[np.floating]]) -> None:
    """Write an encoder's outputs to a ``.npy`` file, as one array [count, ...].

    If the outputs have different numbers of rows, rows of NaN are appended to the shorter outputs.
    Raises :class:`InputError` if the file cannot be written.
    """
    rows = max(len(value) for value in values)
    filled = [
        np.pad(
            value, [(0, rows - len(value)), *[(0, 0)] * (value.ndim - 1)], constant_values=np.nan
        )
        for value in values
    ]
    content = io.BytesIO()
    np.save(content, np.stack(filled))
    write_files(path.parent, {path.name: content.getvalue()})
