"""The float reference against PyTorch's own Transformer layers."""

import re

import numpy as np
import pytest

from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.embedding import lookup
from celosia.generators.reference.floats import forward

MODEL = ModelDescription(
    name="toy", tokens=7, features=5, dim=12, layers=2, heads=3, ffn=20, pooling="none"
)


def random_weights(model: ModelDescription) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.5, shape) for name, shape in model.shapes().items()}


def torch_stream(torch, model: ModelDescription, weights, x):
    """Return the blocks' output by ``torch.nn.TransformerEncoderLayer``."""
    own = {
        "self_attn.out_proj": "output",
        "linear1": "up",
        "linear2": "down",
        "norm1": "attention_norm",
        "norm2": "mlp_norm",
    }
    x = torch.from_numpy(x)
    for layer in range(model.layers):
        block = torch.nn.TransformerEncoderLayer(
            model.dim,
            model.heads,
            model.ffn,
            dropout=0.0,
            activation="gelu" if model.activation == "gelu" else "relu",
            batch_first=True,
            norm_first=model.placement == "pre",
            dtype=torch.float64,
        ).eval()
        state = {}
        for kind in ("weight", "bias"):
            for theirs, ours in own.items():
                state[f"{theirs}.{kind}"] = weights[f"layers.{layer}.{ours}.{kind}"]
            parts = [weights[f"layers.{layer}.{n}.{kind}"] for n in ("query", "key", "value")]
            state[f"self_attn.in_proj_{kind}"] = np.concatenate(parts)
        block.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        with torch.no_grad():
            x = block(x)
    return x.numpy()


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_blocks_equal_those_of_pytorch(placement, activation) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the reference, is not installed")
    model = MODEL.replace(placement=placement, activation=activation)
    weights = random_weights(model)
    inputs = np.random.default_rng(1).normal(0, 1, (3, 7, 5))
    tensors = forward(model, weights, inputs)
    expected = torch_stream(torch, model, weights, tensors["embedding"])
    np.testing.assert_allclose(
        tensors["layers.1.mlp_norm" if placement == "post" else "layers.1.mlp_sum"],
        expected,
        atol=1e-9,
    )


def test_shaped_attention_at_its_start_copies_values() -> None:
    changes = {"norm": "none", "final_norm": False, "skip": False, "parallel": True}
    model = MODEL.replace(**changes, shaped=True, values=False, output=False)
    weights = random_weights(model)
    for layer in range(2):
        # Uniform attention is taken off again, and the identity is left.
        weights[f"layers.{layer}.query.weight"][:] = 0
        weights[f"layers.{layer}.query.bias"][:] = 0
        for name in ("alpha", "beta", "gamma"):
            weights[f"layers.{layer}.{name}"][:] = 1
    tensors = forward(model, weights, np.random.default_rng(1).normal(0, 1, (3, 7, 5)))
    expected = weights["layers.0.attention_gain"] * tensors["layers.0.attention_input"]
    np.testing.assert_allclose(tensors["layers.0.attention_sum"], expected, atol=1e-12)


def test_query_heads_share_keys_and_values() -> None:
    model = MODEL.replace(kv_heads=1)
    weights = random_weights(model)
    repeated = dict(weights)
    for layer in range(2):
        for name in ("key", "value"):
            for kind in ("weight", "bias"):
                key = f"layers.{layer}.{name}.{kind}"
                repeated[key] = np.concatenate([weights[key]] * 3)
    inputs = np.random.default_rng(1).normal(0, 1, (3, 7, 5))
    expected = forward(MODEL, repeated, inputs)["output"]
    np.testing.assert_allclose(forward(model, weights, inputs)["output"], expected, atol=1e-12)


def test_class_token_stands_first() -> None:
    model = MODEL.replace(class_token=True, pooling="class")
    weights = random_weights(model)
    tensors = forward(model, weights, np.zeros((2, 7, 5)))
    expected = weights["class_token"] + weights["positions"][0]
    np.testing.assert_allclose(tensors["embedding"][1, 0], expected)
    assert tensors["output"].shape == (2, 1, 12)


TEXT = MODEL.replace(
    embedding="tokens", features=0, vocabulary=11, types=2, embedding_norm=True, variable=True
)


def test_rows_of_a_text_are_sums_of_three_tables() -> None:
    weights = random_weights(TEXT)
    tokens, types = np.array([[3, 0, 10]]), np.array([[0, 1, 1]])
    rows = lookup(TEXT, weights, tokens, types)
    expected = weights["words"][10] + weights["types"][1] + weights["positions"][2]
    np.testing.assert_allclose(rows[0, 2], expected)
    rows = lookup(TEXT, weights, tokens)
    np.testing.assert_allclose(rows[0, 2], expected + weights["types"][0] - weights["types"][1])
    tensors = forward(TEXT, weights, tokens)
    np.testing.assert_allclose(tensors["input"], rows)
    assert tensors["output"].shape == (1, 3, 12)


def test_inputs_that_a_text_model_cannot_take() -> None:
    weights = random_weights(TEXT)
    for inputs, message in (
        (np.array([[11]]), "Model toy has no token 11; the last is 10"),
        (np.array([[-1]]), "Model toy has no token -1; the last is 10"),
        (np.array([[1.0]]), "Model toy takes token numbers, not float64"),
        (
            np.zeros((1, 8), int),
            "Inputs of model toy must have the shape [count, at most 7], not [1, 8]",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            lookup(TEXT, weights, inputs)
    with pytest.raises(ValueError, match=r"^Model toy has no token type 2; the last is 1$"):
        lookup(TEXT, weights, np.array([[1]]), np.array([[2]]))


def test_outputs_of_length_one() -> None:
    model = TEXT.replace(unit=True)
    weights, inputs = random_weights(model), np.array([[3, 0, 10]])
    vectors = forward(model, weights, inputs)["output"]
    raw = forward(TEXT, weights, inputs)["output"]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1)
    np.testing.assert_allclose(vectors * np.linalg.norm(raw, axis=-1, keepdims=True), raw)


def test_inputs_of_another_shape() -> None:
    message = r"^Inputs of model toy must have the shape \[count, 7, 5\], not \[2, 7, 4\]$"
    with pytest.raises(ValueError, match=message):
        forward(MODEL, random_weights(MODEL), np.zeros((2, 7, 4)))
