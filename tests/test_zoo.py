"""Models of others: small ones that are carried run as PyTorch ran them, and the page of all."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.reference.floats import forward
from celosia.tb.models.try_model import try_model

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "tests" / "data" / "zoo"
PAGE = ROOT / "docs" / "zoo.md"
MODELS = sorted(path for path in SAMPLES.iterdir() if path.suffix != ".npz")
LEAST_MODELS, LEAST_RAN, LEAST_COSINE, LEAST_OF_ALL = 40, 36, 0.99, 0.97

needs_onnx = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="the package onnx is not installed"
)


@needs_onnx
@pytest.mark.parametrize("path", MODELS, ids=[path.name for path in MODELS])
def test_small_models_give_what_pytorch_gave(path: Path) -> None:
    with np.load(SAMPLES / f"{path.stem}.npz") as recorded:
        values, expected = recorded["input"], recorded["output"]
    if is_text(str(path)):
        source = load_text(str(path))
        output = forward(source.description, source.weights, values[None])["logits"][0]
    else:
        encoder = load_source(str(path))
        output = np.asarray(encoder.floats(encoder.prepare(values)))
    np.testing.assert_allclose(output.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    result = try_model(path)
    assert (result["refused"], result["mismatches"]) == (None, 0)
    assert result["tensors"] > 0
    assert result["cosine"] > 0.98


MODEL = re.compile(r"(?P<name>.+) (?P<cosine>\d\.\d{3})(?P<wrong> \(\d+ tensors differ\))?")


def tables() -> tuple[list[tuple[str, str, str, str]], list[tuple[str, str, str]]]:
    """Return models (name, road, cosine, differences), and refused ones (name, road, why)."""
    page = PAGE.read_text(encoding="utf-8")
    inside = page.partition("<!-- zoo: begin -->")[2].partition("<!-- zoo: end -->")[0]
    ran, refused = (
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
        for part in inside.strip().split("\n\n")
    )
    models = [
        (model["name"], road, model["cosine"], model["wrong"] or "")
        for roads, _, _, names in ran
        for model in map(MODEL.fullmatch, names.split("; "))
        for road in roads.split(", ")
    ]
    reasons = [(text.partition(": ")[0], roads, text.partition(": ")[2]) for roads, text in refused]
    return models, [(name, road, why) for name, roads, why in reasons for road in roads.split(", ")]


def test_the_page_s_table_keeps_its_word() -> None:
    ran, refused = tables()
    assert len(ran) + len(refused) >= LEAST_MODELS
    assert not any(wrong for *_, wrong in ran)
    assert sum(float(cosine) >= LEAST_COSINE for _, _, cosine, _ in ran) >= LEAST_RAN
    assert min(float(cosine) for _, _, cosine, _ in ran) >= LEAST_OF_ALL
    assert all(";" in why or ", " in why for _, _, why in refused), "a refusal without a remedy"


@pytest.mark.long
def test_the_whole_zoo_is_as_on_the_page() -> None:
    for name in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(name, reason=f"{name}, which makes the models, is not installed")
    command = [sys.executable, str(ROOT / "examples" / "zoo.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    report = json.loads(done.stdout)
    assert report["models"] >= LEAST_MODELS
    near = [row for row in report["rows"] if row["cosine"] and row["cosine"] >= LEAST_COSINE]
    assert len(near) >= LEAST_RAN
    assert report["mismatches"] == 0
    assert report["least_cosine"] >= LEAST_OF_ALL
    ran, refused = tables()
    listed = {(name, road): False for name, road, *_ in ran}
    listed |= {(name, road): True for name, road, _ in refused}
    assert {(row["name"], row["road"]): bool(row["refused"]) for row in report["rows"]} == listed
