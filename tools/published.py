"""Trained models that others published, tried as they are.

`python -m tools.published FOLDER [NAME ...]` tries those that are named, or all, and writes the
page. FOLDER holds the files of each under its name, as the list has them; the list's sources are
public repositories at a commit and packages at a version. Results of a trial are kept in FOLDER.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.support import pages
from celosia.arch.tables import read_table
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.studies.comparison import NEAR, compare
from celosia.tb.models.try_model import try_model

LIST = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "docs" / "published.md"
_HEAD = ("model", "source", "licence", "form", "kind", "runs", "cosine", "difference", "cycles")


def checked(folder: Path, name: str, entry: dict[str, Any]) -> Path:
    """Return the path of a downloaded model for `celosia run`.

    Raises :class:`InputError` if the file is missing, or its hash is not that of the list.
    """
    path = folder / name
    file = path / (
        "model.safetensors" if entry["form"] == "safetensors" else Path(entry["path"]).name
    )
    if not file.is_file():
        raise InputError(f"File {file} is missing; take {entry['path']} of {entry['source']}")
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry["sha256"]:
        raise InputError(f"File {file} is not that of {entry['source']} at {entry['at']}")
    return path if entry["form"] == "safetensors" else file


def trial(path: Path, tokens: int, tokenizer: Path | None) -> dict[str, Any]:
    """Return the results of :func:`celosia.tb.models.try_model.try_model`, and ``difference``.

    That is the largest difference of the import's floats from the outputs of the model's library,
    relative to the largest output; None if there is no library to compare with.
    """
    result = try_model(path, tokens, tokenizer)
    if result["refused"] is not None:
        result["refused"] = result["refused"].replace(f"{path.parent}/", "")
    else:
        text = is_text(str(path))
        source = load_text(str(path), tokenizer) if text else load_source(str(path), tokens)
        result["difference"] = compare(source, path, tokens)["difference"]
    return result


def right(row: dict[str, Any]) -> bool:
    """Return whether a model was accepted, and has the outputs of its library."""
    return row["refused"] is None and not row["mismatches"] and (row["difference"] or 0) <= NEAR


def cells(row: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the cells of a trial: whether it runs, its cosine, difference and cycles."""
    if row is None:
        return ("not tried", "", "", "")
    if row["refused"] is not None:
        why = row["refused"].partition(" is not run: ")[2] or row["refused"]
        return (f"refused: {why.partition(' (node ')[0]}".replace("|", "\\|"), "", "", "")
    difference = "" if row["difference"] is None else f"{row['difference']:.0e}"
    runs = "yes" if right(row) else "differs"
    return (runs, f"{row['cosine']:.3f}", difference, f"{row['cycles']:,}")


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the list as a table, with the trials' results ``rows`` by the model's name."""
    lines = []
    for name, entry in read_table(LIST).items():
        start = (name, f"{entry['source']} {entry['at'][:10]}", entry["licence"], entry["form"])
        lines.append((*start, entry["kind"], *cells(rows.get(name))))
    return pages.table(_HEAD, lines)


def main() -> None:
    """Try models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    listed, kept = read_table(LIST), arguments.folder / "results.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in arguments.names or listed:
        entry = listed[name]
        path = checked(arguments.folder, name, entry)
        beside = entry["form"] == "llama2.c" and "beside" in entry
        tokenizer = path.with_name(Path(entry["beside"]).name) if beside else None
        rows[name] = trial(path, entry.get("tokens", 0), tokenizer)
        print(f"{name}: {', '.join(cells(rows[name]))}", flush=True)
        kept.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(pages.between(text, "published", table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
