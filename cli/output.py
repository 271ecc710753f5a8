"""What every command does with its results, its progress and its errors."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Update = Callable[[int, int], None]


@contextmanager
def progress(title: str) -> Iterator[Update]:
    """Show a bar on standard error; the value is called with what is done and the total."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # Without a terminal nothing could move, and an empty line would be left.
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def report(title: str, rows: Sequence[Mapping[str, Any]], as_json: bool, result: Any) -> None:
    """Print a result as one JSON object, or its rows as a table, one line a row."""
    if as_json:
        click.echo(json.dumps(result))
        return
    if len(rows) == 1:
        table = Table("figure", "value", title=title)
        for name, value in rows[0].items():
            table.add_row(name, text(value))
    else:
        table = Table(*rows[0], title=title)
        for row in rows:
            table.add_row(*(text(value) for value in row.values()))
    Console().print(table)


def text(value: Any) -> str:
    """Return a figure as people write it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder, which may exist: all of them, or none.

    They are written beside the folder first and moved in one by one. Raises :class:`ValueError`
    where that cannot be done.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"Cannot write to {folder}: it is not a folder")
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise ValueError(f"Cannot write to {folder}: permission denied")
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ValueError(f"Cannot write to {folder}: {error.strerror}") from error
    try:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (beside / name).write_bytes(data)
        folder.mkdir(exist_ok=True)
        for name in files:
            os.replace(beside / name, folder / name)
    except OSError as error:
        raise ValueError(f"Cannot write to {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
