"""Objects that print as short tables, on a terminal and in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class Shown(ABC):
    """Base class of objects that are printed as a table; :meth:`lines` returns the table."""

    @abstractmethod
    def lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of the table; each line is a dictionary from column name to cell.

        All lines have the same columns.
        """

    def __repr__(self) -> str:
        lines = self.lines()
        cells = [list(lines[0]), *([_text(cell) for cell in line.values()] for line in lines)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells.insert(1, ["-" * width for width in widths])
        return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells)

    def _repr_markdown_(self) -> str:
        return repr(self)


def figure_table(**values: Any) -> list[dict[str, Any]]:
    """Return a table with one line for each keyword argument that is not None.

    A line's keys are ``figure`` (the argument's name, with spaces for underscores) and ``value``.
    """
    return [
        {"figure": name.replace("_", " "), "value": value}
        for name, value in values.items()
        if value is not None
    ]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)
