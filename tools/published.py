"""Trained models that others published, tried as they are: `python -m tools.published FOLDER`."""

from pathlib import Path
from typing import Any

from arch.tables import read_table

LIST = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "docs" / "published.md"
BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the list as a table, with what ``rows`` hold of a trial, by the model's name."""
    lines = [
        "| model | source | licence | form | kind | runs | cosine | cycles |",
        "|---" * 8 + "|",
    ]
    for name, one in read_table(LIST).items():
        row = rows.get(name, {})
        at = one["at"][:10]
        cells = (name, f"{one['source']} {at}", one["licence"], one["form"], one["kind"])
        lines.append(f"| {' | '.join(cells)} | {row.get('runs', 'not tried')} | | |")
    return "\n".join(lines)


def write_page(rows: dict[str, dict[str, Any]]) -> None:
    """Write the table into the page between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write_page({})
