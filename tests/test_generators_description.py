"""Model descriptions and weight files: read, or refused in one sentence."""

import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from celosia.generators.frontend.base_description import read_fields
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import check_weights, load_model, model_names, read_weights

FIELDS = {"name": "toy", "tokens": 5, "features": 3, "dim": 12, "layers": 1, "heads": 3, "ffn": 10}
MODEL = ModelDescription(**FIELDS)


def refused(error_type, message, call, *arguments, **fields) -> None:
    with pytest.raises(error_type, match=f"^{re.escape(message)}$"):
        call(*arguments, **fields)


def test_defaults_that_depend_on_other_fields() -> None:
    assert (MODEL.kv_heads, MODEL.head_dim, MODEL.sequence) == (3, 4, 5)
    assert MODEL.outputs == (1, 12)
    with_class = MODEL.replace(class_token=True, pooling="none", classes=4)
    assert (with_class.sequence, with_class.outputs) == (6, (6, 4))


def test_weights_of_every_variant() -> None:
    shapes = MODEL.replace(classes=10, kv_heads=1).shapes()
    assert shapes["layers.0.query.weight"] == (12, 12)
    assert shapes["layers.0.value.weight"] == (4, 12)
    assert shapes["positions"] == (5, 12)
    assert shapes["head.bias"] == (10,)
    changes = {"bias": False, "norm": "rmsnorm", "parallel": True, "shaped": True}
    lean = MODEL.replace(**changes, values=False, output=False).shapes()
    assert lean["layers.0.attention_gain"] == (1,)
    assert lean["layers.0.gamma"] == (3,)
    assert not [name for name in lean if name.endswith("bias")]
    assert not [name for name in lean if ".value." in name or ".output." in name]
    assert "layers.0.norm.weight" in lean
    assert "layers.0.mlp_norm.weight" not in lean


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "Model field dim must be positive, not 0"),
        ({"classes": -1}, "Model field classes must not be negative, not -1"),
        ({"dim": 13}, "Model field dim must be a multiple of heads where head_dim is not given, "
                      "but dim is 13 and heads is 3"),
        ({"kv_heads": 2}, "Model field heads must be a multiple of kv_heads, but heads is 3 and "
                          "kv_heads is 2"),
        ({"norm": "batch"}, "Model field norm must be one of layernorm, rmsnorm, none, "
                            "not 'batch'"),
        ({"pooling": "class"}, "Model field pooling cannot be class where class_token is false"),
        ({"norm": "none"}, "Model field final_norm cannot be true where norm is none"),
        ({"parallel": True, "placement": "post"},
         "Model field placement cannot be post where parallel is true"),
        ({"output": False, "head_dim": 2},
         "Model field output cannot be false where heads * head_dim is not dim, but heads is 3, "
         "head_dim is 2 and dim is 12"),
        ({"values": False, "kv_heads": 1},
         "Model field values cannot be false where kv_heads * head_dim is not dim, but kv_heads "
         "is 1, head_dim is 4 and dim is 12"),
    ],
)  # fmt: skip
def test_values_that_cannot_work(changes, message) -> None:
    refused(ValueError, message, ModelDescription, **{**FIELDS, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 1.5}, "Model field dim must be an integer, not 1.5"),
        ({"epsilon": 1}, "Model field epsilon must be a real number, not 1"),
        ({"skip": 1}, "Model field skip must be true or false, not 1"),
        ({"norm": 1}, "Model field norm must be a string, not 1"),
    ],
)
def test_types_that_cannot_work(changes, message) -> None:
    refused(TypeError, message, ModelDescription, **{**FIELDS, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 0}, "Model field features must be positive, not 0"),
        ({"embedding": "none"}, "Model field features must be dim where embedding is none, but "
                                "features is 3 and dim is 12"),
        ({"embedding": "tokens", "features": 0},
         "Model field vocabulary must be positive where embedding is tokens, not 0"),
        ({"vocabulary": 4}, "Model field vocabulary must be 0 where embedding is linear, not 4"),
        ({"types": 2}, "Model field types must be 0 where embedding is linear, not 2"),
        ({"variable": True, "shaped": True},
         "Model field variable cannot be true where shaped is true"),
        ({"norm": "none", "final_norm": False, "embedding_norm": True},
         "Model field embedding_norm cannot be true where norm is none"),
    ],
)  # fmt: skip
def test_inputs_that_cannot_work(changes, message) -> None:
    refused(ValueError, message, ModelDescription, **{**FIELDS, **changes})


def test_a_model_of_tokens_has_tables_and_no_linear_embedding() -> None:
    changes = {"embedding": "tokens", "features": 0, "vocabulary": 9, "types": 2}
    model = MODEL.replace(**changes, embedding_norm=True)
    shapes = model.shapes()
    assert model.features == 12
    assert (shapes["words"], shapes["types"], shapes["positions"]) == ((9, 12), (2, 12), (5, 12))
    assert shapes["embedding_norm.bias"] == (12,)
    assert "embed.weight" not in shapes


def test_toml_round_trip(tmp_path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(MODEL.to_toml())
    assert read_fields(path, ModelDescription) == MODEL


def test_bad_description_files(tmp_path) -> None:
    path = tmp_path / "model.toml"
    message = f"Cannot read model description {path}: No such file or directory"
    refused(ValueError, message, read_fields, path, ModelDescription)
    path.write_text("name = ")
    with pytest.raises(ValueError, match=r"^Model description .* is not TOML: "):
        read_fields(path, ModelDescription)
    path.write_text('name = "toy"\ncolour = 1\n')
    with pytest.raises(ValueError, match=r"^Unknown model field 'colour' in .*; known are act"):
        read_fields(path, ModelDescription)
    path.write_text('name = "toy"\n')
    refused(
        ValueError,
        f"Model description {path} lacks the field 'dim'",
        read_fields,
        path,
        ModelDescription,
    )
    path.write_text(MODEL.to_toml().replace("dim = 12", 'dim = "12"'))
    message = f"Model field dim must be an integer, not '12' in {path}"
    refused(ValueError, message, read_fields, path, ModelDescription)


def test_models_of_the_package() -> None:
    trained = ["digits-blocks", "digits-int2", "digits-int4", "digits-sparse", "digits-ternary"]
    assert model_names() == sorted(["digits", "digits-simplified", *trained])
    for name in model_names():
        description, weights = load_model(name)
        assert description.name == name
        assert weights.keys() == description.shapes().keys()
    message = (
        "Unknown model 'nothing'; use a folder with model.toml and weights.safetensors, or one "
        f"of {', '.join(model_names())}"
    )
    refused(ValueError, message, load_model, "nothing")


def test_weight_files(tmp_path) -> None:
    path = tmp_path / "weights.safetensors"
    message = f"Cannot read weights {path}: No such file or directory"
    refused(ValueError, message, read_weights, path, MODEL)
    tensors = {name: np.full(shape, 0.5, np.float32) for name, shape in MODEL.shapes().items()}
    save_file(tensors, path)
    weights = read_weights(path, MODEL)
    assert weights["embed.weight"].dtype == np.float64
    content = path.read_bytes()
    corrupt = rf"^Weights {re.escape(str(path))} are not a safetensors file of numbers: "
    for damaged in (b"", content[:100], content[:-1], b"\xff" * 8 + content[8:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=corrupt):
            read_weights(path, MODEL)
    save_file({**tensors, "extra": tensors["positions"]}, path)
    message = f"Weight 'extra' is not one of the model's in {path}"
    refused(ValueError, message, read_weights, path, MODEL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "Weight 'positions' is missing"),
        (np.zeros((5, 11)), "Weight 'positions' must have the shape [5, 12], not [5, 11]"),
        (np.full((5, 12), np.nan), "Weight 'positions' must hold finite numbers only"),
    ],
)
def test_weights_that_do_not_fit(change, message) -> None:
    tensors = {name: np.zeros(shape) for name, shape in MODEL.shapes().items()}
    if change is None:
        del tensors["positions"]
    else:
        tensors["positions"] = change
    refused(ValueError, message, check_weights, tensors, MODEL)
