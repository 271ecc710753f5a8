"""Models that are trained for few bits or for zeros, and the forward pass that they learn by."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS
from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.frontend.weights import read_tensors
from celosia.generators.graph.builder import network
from celosia.generators.graph.operations import Linear
from celosia.generators.quantize.calibrate import calibrate
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_calibrated
from celosia.generators.quantize.stored import quantize_weights, trained_steps
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.generators.studies.perplexity import measure, read_texts
from tests.support.decoders import random_text_weights

ROOT = Path(__file__).parents[1]
STORIES = ROOT / "examples" / "stories260k"
MODELS = ROOT / "generators" / "models"
TALES = {"tales-int4": "int4", "tales-int2": "int2", "tales-ternary": "ternary"}
"""Language models, and the formats that they are trained for."""
DIGITS = {"digits-int4": 0.98, "digits-int2": 0.97, "digits-ternary": 0.97}
"""Models, and the accuracy on the first 120 images of the test split that they have at least."""


def quantized(model: str, weights: str):
    source = load_source(model)
    train, _ = digits.load()
    ranges = calibrate(source.description, source.weights, digits.patches(train.images[:100]))
    options = Quantization(weights=weights)
    return source, quantize_calibrated(
        source.description, source.weights, ranges, PRESETS["small"], options
    )


def accuracy(model, count: int = 120) -> float:
    _, test = digits.load()
    outputs = [evaluate(model, image)["output"][0] for image in digits.patches(test.images[:count])]
    return float(np.mean(np.argmax(outputs, axis=1) == test.labels[:count]))


def zeros(weights) -> list[float]:
    """Return the share of zeros of each matrix of a block."""
    inner = [matrix for name, matrix in weights.items() if matrix.ndim == 2 and "layers" in name]
    return [float(np.mean(matrix == 0)) for matrix in inner]


def linears(model) -> dict[str, Linear]:
    graph = network(model.description)
    names = [node.weight for node in graph.nodes if hasattr(node, "weight")]
    return dict(zip(names, [op for op in model.ops if isinstance(op, Linear)], strict=True))


@pytest.mark.parametrize("name", DIGITS)
def test_codes_of_trained_weights_are_kept(name) -> None:
    form = name.removeprefix("digits-")
    _, model = quantized(name, form)
    file = load_file(MODELS / name / "weights.safetensors")
    for weight, op in linears(model).items():
        assert op.stored is not None
        assert file[weight].dtype == np.int8
        assert np.array_equal(np.array(FORMATS[form].values)[op.stored.codes].T, file[weight])
    assert accuracy(model) >= DIGITS[name]


def test_a_model_with_zero_tiles_keeps_its_accuracy() -> None:
    source, model = quantized("digits-blocks", "int8")
    assert zeros(source.weights) == [0.75] * 6
    assert accuracy(model) >= 0.98


@pytest.mark.parametrize(
    ("folder", "form"),
    [*((MODELS / name, form) for name, form in TALES.items()), (STORIES / "ternary", "ternary")],
)
def test_codes_of_language_models_are_kept(folder, form) -> None:
    source = load_text(str(folder), STORIES / "tok512.bin" if folder.parent == STORIES else None)
    file = load_file(folder / "weights.safetensors")
    names = {name.removesuffix("_scale") for name in file if name.endswith("_scale")}
    graph = network(source.description)
    assert names == {node.weight for node in graph.nodes if hasattr(node, "weight")}
    for name in names:
        # Inputs would move codes to where their errors make up for each other.
        inputs = np.random.default_rng(1).normal(size=(50, file[name].shape[1]))
        _, operands, _ = quantize_weights(source.weights[name], FORMATS[form], 0, inputs)
        assert np.array_equal(operands.T, file[name])


@pytest.mark.long
@pytest.mark.slow
def test_a_trained_language_model_in_ternary_weights() -> None:
    """Rounded to ternary without training its negative log-likelihood is 6.3."""
    source = load_text(str(STORIES / "ternary"), STORIES / "tok512.bin")
    decoder = source.quantize(Quantization(texts=4, weights="ternary"))
    assert measure(source, decoder, read_texts(STORIES / "evaluation.txt")).nll < 2.2


def test_weights_of_which_four_of_five_are_zeros() -> None:
    source, model = quantized("digits-sparse", "int8")
    assert zeros(source.weights) == pytest.approx([0.8] * 12, abs=0.001)
    assert accuracy(model) >= 0.985


def test_a_language_model_of_which_four_of_five_weights_are_zeros(monkeypatch) -> None:
    """Zeros are zeros in integers, and texts are foreseen within 0.03 of the dense model."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    texts = importlib.import_module("tales").tales(4, seed=0).splitlines()
    losses = []
    for name in ("tales", "tales-sparse"):
        source = load_text(name)
        decoder = source.quantize(Quantization(texts=6))
        losses.append(measure(source, decoder, texts).nll)
    assert zeros(source.weights) == pytest.approx([0.8] * 12, abs=0.001)
    matrices = {name: op.weight for name, op in linears(decoder).items()}
    assert min(zeros(matrices)) > 0.799
    assert losses[1] < losses[0] + 0.03


def test_codes_that_were_not_trained_for_lose_more() -> None:
    assert accuracy(quantized("digits", "ternary")[1]) < 0.8


def test_steps_of_codes_are_found_and_others_refused() -> None:
    rng = np.random.default_rng(1)
    for name in ("int2", "int4", "ternary"):
        form = FORMATS[name]
        values = rng.choice(form.values, (6, 40))
        # A row that uses neither end of its codes has the same step, but where all share a factor.
        values[0] = np.clip(values[0], -1, 1)
        steps = rng.uniform(0.01, 3, 6)
        weights = values * steps[:, None]
        recovered = trained_steps(weights, form)
        assert recovered == pytest.approx(steps)
        inputs = rng.normal(size=(99, 40))
        assert np.array_equal(quantize_weights(weights, form, 0, inputs)[1].T, values)
        weights[3, 5] += 0.01 * steps[3]
        assert trained_steps(weights, form) is None
    assert trained_steps(values * 1.0, FORMATS["int7"]) is None
    assert trained_steps(values * 1.0, FORMATS["nf4"]) is None


def test_codes_are_read_with_their_scales(tmp_path) -> None:
    codes, scale = np.array([[1, -2], [3, 0]], np.int8), np.array([[0.5], [2.0]], np.float32)
    save_file({"a": codes, "a_scale": scale, "b_scale": scale}, tmp_path / "w.safetensors")
    tensors = read_tensors(tmp_path / "w.safetensors")
    assert tensors.keys() == {"a", "b_scale"}
    assert tensors["a"].tolist() == [[0.5, -1.0], [6.0, 0.0]]
    # Scales of columns would be multiplied by the wrong axis, and floats are no codes.
    others = {"a": codes, "a_scale": scale.T, "b": scale, "b_scale": scale}
    save_file(others, tmp_path / "w.safetensors")
    assert read_tensors(tmp_path / "w.safetensors").keys() == others.keys()


def test_a_folder_with_a_described_decoder(tmp_path) -> None:
    model = TextDescription(
        name="toy", vocabulary=9, positions=20, dim=16, layers=1, heads=2, ffn=12
    )
    weights = random_text_weights(model)
    (tmp_path / "decoder.toml").write_text(model.to_toml(), encoding="utf-8")
    save_file(weights, tmp_path / "weights.safetensors")
    assert is_text(str(tmp_path))
    source = load_text(str(tmp_path))
    assert source.description == model
    assert np.array_equal(source.weights["words"], weights["words"])
    (tmp_path / "decoder.toml").write_text('name = "toy"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"lacks the field 'dim'$"):
        load_text(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "form"),
    [("digits-ternary", "ternary"), ("digits", "int8"), ("tales-sparse", "int8"), *TALES.items()],
)
def test_the_forward_pass_of_training_is_the_golden_model(monkeypatch, name, form) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the reference, is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    straight = importlib.import_module("straight_through")
    if is_text(name):
        source = load_text(name)
        model = source.quantize(Quantization(texts=2, length=24, weights=form))
        inputs = np.array([source.tokenizer.encode(text) for text in ("the fox", "the owl")])
        result = "logits"
    else:
        source, model = quantized(name, form)
        inputs, result = digits.patches(digits.load()[1].images[:3]), "output"
    graph = network(source.description)
    weights = {
        name: torch.tensor(value, dtype=torch.float32, requires_grad=True)
        for name, value in source.weights.items()
    }
    through = straight.Through.apply
    apart = []

    def watched(smooth, exact):
        apart.append(float((smooth - exact).detach().norm() / exact.detach().norm()))
        return through(smooth, exact)

    monkeypatch.setattr(straight.Through, "apply", watched)
    run = straight.Forward(graph, weights, inputs, model)
    # What gradients are taken of is the golden model's function, but for rounding.
    assert apart
    assert max(apart) < 0.03
    for index, image in enumerate(inputs):
        tensors = evaluate(model, image)
        for op in model.ops:
            if op.target.name == "output":
                exact = run.output[index].detach().numpy() / op.target.scale
            else:
                value = run.found[op.target.name][index].detach().numpy()
                offsets = 0.0 if op.target.offsets is None else op.target.offsets
                exact = (value - offsets) / op.target.steps + op.target.zero
            assert np.abs(exact - tensors[op.target.name]).max() < 0.01, op.target.name
    if form != "int8":
        for weight, op in linears(model).items():
            step = trained_steps(source.weights[weight], FORMATS[form])
            codes = straight.codes(weights[weight], torch.tensor(step)[:, None], FORMATS[form])
            assert np.array_equal(codes.detach().numpy(), op.weight.T)
    # Without integers it is the float model, whose gradients it takes.
    smooth = straight.Forward(graph, weights, inputs)
    wanted = forward(source.description, source.weights, inputs)[result]
    assert np.abs(smooth.output.detach().numpy() - wanted).max() < 1e-4
    run.output.sum().backward()
    assert all(weights[name].grad.abs().max() > 0 for name in linears(model))
