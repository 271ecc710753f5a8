"""Reports on models before they are compiled, and on integers that part from floats."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from celosia.arch.presets import PRESETS
from celosia.cli.inspect import inspect as command
from celosia.cli.main import celosia
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_sources import TextSource, is_text, load_text
from celosia.generators.frontend.tokenizer import NumberTokenizer
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.quantize import parting as compared
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import compare_models
from celosia.generators.studies.comparison import NEAR, compare
from celosia.generators.studies.inspection import inspect
from tests.support.decoders import random_text_weights


@pytest.mark.parametrize("name", ["digits", "digits-simplified"])
def test_every_number_and_product_is_in_a_part(name) -> None:
    source = load_source(name)
    report = inspect(source)
    counted = sum(np.size(value) for value in source.weights.values())
    assert report["parameters"] == counted - _scalars(source)
    assert sum(part["parameters"] for part in report["parts"]) == report["parameters"]
    samples = np.random.default_rng(0).uniform(0, 16, (8, 16, 4))
    compiled = compile_model(source.description, source.weights, samples, PRESETS["small"])
    assert report["products"] == compiled.graph.macs(16)
    assert (report["host_products"], report["unused"], report["input"]) == (0, [], [16, 4])


def _scalars(source) -> int:
    """Return how many trained numbers are gains and shapes of attention, which have no part."""
    ends = ("alpha", "beta", "gamma", "_gain")
    return sum(np.size(v) for k, v in source.weights.items() if k.endswith(ends))


def test_a_language_model_s_parts() -> None:
    source = load_text("tales")
    report = inspect(source)
    assert report["parameters"] == sum(value.size for value in source.weights.values())
    assert report["parts"][-1]["runs"] == "host"
    assert {part["runs"] for part in report["parts"][:-1]} == {"machine"}
    assert is_text("tales")
    assert not is_text("digits")


def test_the_command_prints_parts_and_sums() -> None:
    shown = CliRunner().invoke(command, ["digits"])
    assert shown.exit_code == 0
    assert "297,280 products, 0 of them on the host" in shown.output
    as_json = CliRunner().invoke(celosia, ["inspect", "tales", "--json"])
    assert json.loads(as_json.output)["kind"] == "decoder"


VIBRATION = Path(__file__).parents[1] / "examples" / "vibration"
SORTER = TextDescription(
    name="toy",
    vocabulary=9,
    positions=10,
    dim=16,
    layers=2,
    heads=4,
    ffn=24,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="relu",
    bias=True,
)


def toy() -> TextSource:
    return TextSource(SORTER, random_text_weights(SORTER), NumberTokenizer(9))


def test_a_decoder_is_calibrated_on_what_is_given() -> None:
    rng = np.random.default_rng(1)
    source, rows = toy(), rng.integers(0, 9, (24, 10)).tolist()
    _, near = source.calibrate(rows, Quantization(length=10))
    assert near.warning == ""
    assert near.cosine > 0.99
    # Rows of one token only show nothing of what other tokens do.
    decoder, _ = source.calibrate([[0]], Quantization(length=10))
    far = compare_models(decoder, source.weights, [np.array(row) for row in rows[:4]])
    assert far.cosine < 0.98
    assert re.fullmatch(
        r"integers part from floats on 4 calibration inputs: cosine 0\.\d{3}, same choice in "
        r"\d+\.\d%; most at \S+, which is \d+\.\d% off; calibrate on inputs like those to come "
        r"\(--calibration\)",
        far.warning,
    )
    assert far.figures()["tensor"] == far.tensor


def test_of_a_large_model_some_inputs_are_compared(monkeypatch) -> None:
    rng = np.random.default_rng(1)
    source, rows = toy(), rng.integers(0, 9, (24, 10)).tolist()
    decoder, _ = source.calibrate([[0]], Quantization(length=10))
    texts = [np.array(row) for row in rows]
    assert compare_models(decoder, source.weights, texts).inputs == 24
    size = sum(op.size for op in decoder.ops if isinstance(op, Linear))
    # The sixth text is that with which there are products enough, the tenth that with rows enough.
    monkeypatch.setattr(compared, "ENOUGH_PRODUCTS", 55 * size)
    monkeypatch.setattr(compared, "ENOUGH_ROWS", 40)
    assert compare_models(decoder, source.weights, texts).inputs == 6
    monkeypatch.setattr(compared, "ENOUGH_ROWS", 100)
    some = compare_models(decoder, source.weights, texts)
    assert some == compare_models(decoder, source.weights, texts[:10])
    assert "on 10 calibration inputs" in some.warning


@pytest.mark.parametrize(("largest", "warned"), [(1, False), (400, True)])
def test_an_encoder_that_parts_from_its_floats_is_warned_of(
    celosia, tmp_path, largest, warned
) -> None:
    calibration = np.load(VIBRATION / "calibration.npy")
    # One input that no other one is like leaves few steps to all others.
    calibration[5] *= largest
    np.save(tmp_path / "calibration.npy", calibration)
    inputs, samples = VIBRATION / "inputs.npy", tmp_path / "calibration.npy"
    options = ["--config", "tiny", "--inputs", inputs, "--calibration", samples, "--count", "1"]
    model = VIBRATION / "vibration.onnx"
    code, shown, errors = celosia("run", model, *options, "--sim", "golden", "--json")
    closeness = json.loads(shown)["calibration"]
    warning = re.fullmatch(
        r"integers part from floats on 16 calibration inputs: cosine 0\.\d{3}, same choice in "
        r"\d+\.\d%; most at \S+, which is \d+\.\d% off; calibrate on inputs like those to come "
        r"\(--calibration\)",
        closeness["warning"] or "",
    )
    assert (code, bool(warning)) == (0, warned)
    assert errors == (f"celosia: warning: {closeness['warning']}\n" if warned else "")
    assert closeness["inputs"] == 16
    code, shown, _ = celosia("compile", model, *options, "--out", tmp_path / "out", "--json")
    assert json.loads(shown)["calibration"] == closeness


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(3, np.int64), "Token rows {} must be integers [count, n], not int64 [3]"),
        (np.zeros((2, 3)), "Token rows {} must be integers [count, n], not float64 [2, 3]"),
        (np.array([[1, 9]]), "Token rows {} must hold numbers from 0 to 8, not 9"),
    ],
)
def test_token_rows_that_are_refused(tmp_path, rows, message) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(path))}$"):
        toy().read_calibration(path)


def test_texts_to_calibrate_on(tmp_path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1 2 3\n4 5\n")
    assert toy().read_calibration(path) == [[1, 2, 3], [4, 5]]
    np.save(tmp_path / "rows.npy", np.array([[1, 2], [3, 4]]))
    assert toy().read_calibration(tmp_path / "rows.npy") == [[1, 2], [3, 4]]


needs_runtime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed"
)


@needs_runtime
def test_floats_beside_a_reference() -> None:
    path = Path(__file__).parent / "data" / "zoo" / "bert_older.onnx"
    run = CliRunner().invoke(celosia, ["inspect", str(path), "--reference", "--json"])
    reference = json.loads(run.stdout)["reference"]
    assert (run.exit_code, reference["refused"], reference["inputs"]) == (0, None, 2)
    assert 0 < reference["difference"] < 1e-5
    assert reference["library"].startswith("onnxruntime ")
    shown = CliRunner().invoke(command, ["digits", "--reference"]).stdout
    assert "not compared with a reference: Model digits has no reference, as it is" in shown


@needs_runtime
def test_a_wrong_import_differs_from_its_reference() -> None:
    path = Path(__file__).parent / "data" / "zoo" / "bert_older.onnx"
    source = load_source(str(path))
    wrong = source.weights | {"layers.0.up.bias": source.weights["layers.0.up.bias"] + 0.5}
    assert compare(replace(source, weights=wrong), path)["difference"] > NEAR


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_reference_that_is_not_installed(monkeypatch, missing) -> None:
    path = Path(__file__).parent / "data" / "zoo" / "0_LlamaForCausalLM"

    def found(name: str) -> str | None:
        return None if name == missing else name

    monkeypatch.setattr("celosia.arch.packages.importlib.util.find_spec", found)
    monkeypatch.setattr("celosia.arch.packages.importlib.import_module", lambda name: name)
    assert compare(load_text(str(path)), path)["refused"] == (
        f"A reference of a folder needs the package {missing} of the extra zoo; install it with: "
        "pip install '.[zoo]' in a checkout, or 'FILE.whl[zoo]'"
    )


def test_words_are_those_of_compile(celosia) -> None:
    """Both search for a schedule."""
    code, output, _ = celosia("inspect", "digits", "--config", "tiny", "--json")
    _, compiled, _ = celosia("compile", "digits", "--config", "tiny", "--json")
    assert code == 0
    assert json.loads(output)["fit"]["program_words"] == json.loads(compiled)["program_words"]
