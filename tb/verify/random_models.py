"""Random encoders and decoders: descriptions, weights and inputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Weights


def random_model(rng: np.random.Generator) -> ModelDescription:
    """Return the description of a small random encoder of any supported kind."""
    while True:
        kv_heads, head_dim = int(rng.integers(1, 4)), int(rng.integers(1, 9))
        heads = kv_heads * int(rng.integers(1, 4))
        width = heads * head_dim
        fields = {
            name: str(rng.choice(choices)) for name, choices in ModelDescription.CHOICES.items()
        }
        flags = ("class_token", "final_norm", "bias", "skip", "parallel", "shaped")
        flags = (*flags, "embedding_norm", "variable", "unit")
        linear, words = (fields["embedding"] == name for name in ("linear", "tokens"))
        fields |= {name: bool(rng.integers(2)) for name in (*flags, "values", "output")}
        # From another generator, so that earlier cases of a seed keep their other fields.
        (others,) = rng.spawn(1)
        window = int(others.integers(1, 12)) * int(others.random() < 0.3)
        try:
            return ModelDescription(
                name="random",
                window=window,
                global_tokens=int(others.integers(0, 5)) * (window > 0),
                tokens=int(rng.integers(1, 20)),
                features=int(rng.integers(1, 9)) * linear,
                vocabulary=int(rng.integers(1, 30)) * words,
                types=int(rng.integers(0, 3)) * words,
                dim=width if rng.random() < 0.5 else int(rng.integers(1, 40)),
                layers=int(rng.integers(1, 4)),
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                ffn=int(rng.integers(1, 50)),
                classes=int(rng.integers(0, 12)),
                head_hidden=int(rng.integers(1, 20)) * int(rng.integers(2)),
                **fields,
            )
        except InputError:
            continue


def random_weights(rng: np.random.Generator, model: ModelDescription) -> Weights:
    """Return random weights of an encoder, scaled so that activations neither grow nor vanish."""
    weights = {}
    for name, shape in model.shapes().items():
        if len(shape) == 2:
            weights[name] = rng.normal(0, shape[1] ** -0.5, shape)
        elif name.endswith("norm.weight") or name.rpartition(".")[2] in ("alpha", "beta", "gamma"):
            weights[name] = rng.uniform(0.5, 1.5, shape)
        else:
            weights[name] = rng.normal(0, 0.3, shape)
    return weights


def with_zero_tiles(
    rng: np.random.Generator, weights: Weights, config: Config, share: float, of: str = ""
) -> Weights:
    """Return a model's weights, in which random tiles of matrices are set to zero.

    ``share`` is the proportion of zero tiles in each matrix. A tile has the size of the multiplier
    array of ``config``. Only matrices whose names contain the text ``of`` are changed.
    """
    cols, rows = config.array.cols, config.array.rows
    changed = dict(weights)
    for name, value in weights.items():
        if value.ndim == 2 and of in name and share:
            shape = -(-np.array(value.shape) // [cols, rows])
            keep = np.ones(np.prod(shape), np.bool_)
            keep[rng.permutation(keep.size)[: round(share * keep.size)]] = False
            tiles = keep.reshape(shape).repeat(cols, 0).repeat(rows, 1)
            changed[name] = np.where(tiles[: value.shape[0], : value.shape[1]], value, 0)
    return changed


def random_inputs(
    rng: np.random.Generator, model: ModelDescription, count: int = 4
) -> list[NDArray[Any]]:
    """Return a list of ``count`` random inputs of an encoder.

    Each input is an array of token numbers [n], or of features [n, features]. If the model accepts
    any number of tokens up to ``model.tokens``, n is random for each input; otherwise n is
    ``model.tokens``.
    """
    least = 1 if model.variable else model.tokens
    rows = [int(rng.integers(least, model.tokens + 1)) for _ in range(count)]
    if model.embedding == "tokens":
        return [rng.integers(0, model.vocabulary, n) for n in rows]
    return [rng.normal(0, 1, (n, model.features)) for n in rows]


def random_text_model(rng: np.random.Generator) -> TextDescription:
    """Return the description of a small random decoder, sometimes of an encoder-decoder."""
    while True:
        fields: dict[str, Any] = {
            name: str(rng.choice(choices)) for name, choices in TextDescription.CHOICES.items()
        }
        fields |= {name: bool(rng.integers(2)) for name in ("gated", "bias", "tied")}
        kv_heads, head_dim = int(rng.integers(1, 4)), int(rng.integers(1, 9))
        source, vocabulary = int(rng.random() < 0.2), int(rng.integers(2, 40))
        seldom = {
            name: bool(rng.random() < 0.2)
            for name in ("head_bias", "head_norms", "rotary_speeds", "source_words")
        }
        try:
            return TextDescription(
                name="random",
                vocabulary=vocabulary,
                positions=int(rng.integers(4, 24)),
                dim=int(rng.integers(2, 40)),
                layers=int(rng.integers(1, 3)),
                heads=kv_heads * int(rng.integers(1, 4)),
                kv_heads=kv_heads,
                head_dim=head_dim,
                ffn=int(rng.integers(1, 50)),
                source_layers=source,
                source_positions=source * int(rng.integers(2, 12)),
                start=source * int(rng.integers(vocabulary)),
                rotated=str(rng.choice(("1", "1", "01", "10"))),
                final_norm=bool(rng.random() < 0.8),
                **fields,
                **seldom,
            )
        except InputError:
            continue
