"""The float reference against PyTorch's own Transformer layers."""

import numpy as np
import pytest

from generators.description import ModelDescription
from generators.float_model import forward

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
    found = forward(model, weights, inputs)
    expected = torch_stream(torch, model, weights, found["embedding"])
    np.testing.assert_allclose(found["layers.1.stream"], expected, atol=1e-9)


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
    found = forward(model, weights, np.random.default_rng(1).normal(0, 1, (3, 7, 5)))
    expected = found["layers.0.attention_input"]
    np.testing.assert_allclose(found["layers.0.context"], expected, atol=1e-12)


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
    found = forward(model, weights, np.zeros((2, 7, 5)))
    expected = weights["class_token"] + weights["positions"][0]
    np.testing.assert_allclose(found["embedding"][1, 0], expected)
    assert found["output"].shape == (2, 1, 12)


def test_inputs_of_another_shape() -> None:
    message = r"^Inputs of model toy must have the shape \[count, 7, 5\], not \[2, 7, 4\]$"
    with pytest.raises(ValueError, match=message):
        forward(MODEL, random_weights(MODEL), np.zeros((2, 7, 4)))
