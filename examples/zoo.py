"""Try more than fifty models of PyTorch and transformers: their supported parts and their errors.

Usage: python examples/zoo.py [--json] [--only WORD] [--page FILE] [--samples FOLDER]

Needs the extra ``zoo``. Weights are random; folders are written by ``save_pretrained``, ONNX files
by both of PyTorch's exporters. Each model runs on random inputs on the golden machine. ``--page``
writes the table into a page between its marks; ``--only`` takes the models whose names hold a word.
``--samples FOLDER`` writes the smallest ones, which tests without PyTorch read.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from zoo_files import export, weighted, write
from zoo_models import folders, graphs, samples

from celosia.arch.support import pages
from celosia.tb.models.try_model import try_model


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a table of a page: the models of the same parts, and the refused ones."""
    refused: dict[str, list[str]] = {}
    roads: dict[tuple[str, str, str], list[str]] = {}
    models: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row["refused"]:
            why = row["refused"].partition("is not run: ")[2] or row["refused"]
            text = f"{row['name']}: {why.partition(' (node ')[0]}"
            refused.setdefault(text, []).append(row["road"])
            continue
        wrong = f" ({row['mismatches']} tensors differ)" if row["mismatches"] else ""
        shown = f"{row['name']} {row['cosine']:.3f}{wrong}"
        roads.setdefault((row["machine"], row["host"], shown), []).append(row["road"])
    for (machine, host, shown), taken in roads.items():
        models.setdefault((", ".join(taken), machine, host), []).append(shown)
    head = ("road", "on the machine", "on the host", "models, with the cosine of their outputs")
    ran = pages.table(head, ((*parts, "; ".join(names)) for parts, names in models.items()))
    others = ((", ".join(taken), text) for text, taken in refused.items())
    return f"{ran}\n\n{pages.table(('road', 'refused'), others)}"


def run(only: str) -> list[dict[str, Any]]:
    """Make and try the models; return a row for each."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows = []
    chosen = [
        candidate for candidate in (*folders(), *graphs()) if only.lower() in candidate.name.lower()
    ]
    with tempfile.TemporaryDirectory() as folder:
        for place, made in enumerate(chosen):
            began = time.perf_counter()
            with contextlib.redirect_stdout(sys.stderr), open(os.devnull, "w") as nothing:
                with contextlib.redirect_stderr(nothing):
                    path = write(made, Path(folder))
                result = try_model(path)
            if result["refused"]:
                result["refused"] = result["refused"].replace(f"{folder}/", "")
            name = made.name.split(" ", 1)[1] if made.road == "folder" else made.name
            rows.append({"name": name, "road": made.road, **result})
            seconds = time.perf_counter() - began
            note = "refused" if result["refused"] else f"cosine {result['cosine']:.4f}"
            print(f"{place + 1} of {len(chosen)}: {name}, {made.road}: {note}, {seconds:.1f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
    return rows


def write_samples(folder: Path) -> None:
    """Write the smallest models, each with an input and PyTorch's output."""
    folder.mkdir(parents=True, exist_ok=True)
    for made in samples():
        model = weighted(made)
        with torch.no_grad():
            output = model(*made.inputs)[0].numpy()[0]
        path = export(made, model, folder)
        if path.suffix == ".onnx":
            written = onnx.load(str(path))
            del written.metadata_props[:]
            # Where the exporter stood in which source is most of the file.
            for part in (*written.graph.node, *written.graph.value_info, *written.graph.input):
                part.doc_string = ""
                del part.metadata_props[:]
            onnx.save(written, str(path))
        np.savez(folder / f"{path.stem}.npz", input=made.inputs[0].numpy()[0], output=output)
        print(path, file=sys.stderr)


def main() -> None:
    """Print the table, or all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--samples", type=Path)
    arguments = parser.parse_args()
    if arguments.samples:
        write_samples(arguments.samples)
        return
    rows = run(arguments.only)
    ran = [row for row in rows if not row["refused"]]
    result = {
        "models": len(rows),
        "ran": len(ran),
        "refused": len(rows) - len(ran),
        "mismatches": sum(row["mismatches"] for row in ran),
        "least_cosine": min((row["cosine"] for row in ran), default=None),
        "rows": rows,
    }
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        arguments.page.write_text(pages.between(page, "zoo", table(rows)), encoding="utf-8")
    if arguments.json:
        print(json.dumps(result))
    else:
        print(table(rows))
        print({name: value for name, value in result.items() if name != "rows"})


if __name__ == "__main__":
    main()
