"""Shapes of matrix products in well-known Transformers, for benchmarks."""

from dataclasses import dataclass

from celosia.arch.errors import InputError


@dataclass(frozen=True)
class Shape:
    """An INT8 matrix product [m, k] x [k, n] in a layer.

    An attention layer has separate products for each head.
    """

    name: str
    m: int
    k: int
    n: int


def encoder(name: str, tokens: int, dim: int, ffn: int, head: int) -> list[Shape]:
    """Return the shapes of the matrix products in one encoder layer.

    The names of the shapes begin with ``name``. ``dim`` is the number of columns of the model,
    ``ffn`` of the hidden layer, and ``head`` of an attention head. One product computes queries,
    keys and values.
    """
    return [
        Shape(f"{name} qkv", tokens, dim, 3 * dim),
        Shape(f"{name} scores", tokens, head, tokens),
        Shape(f"{name} values", tokens, tokens, head),
        Shape(f"{name} output", tokens, dim, dim),
        Shape(f"{name} up", tokens, dim, ffn),
        Shape(f"{name} down", tokens, ffn, dim),
    ]


def decoder(name: str, tokens: int, dim: int, keys: int, ffn: int) -> list[Shape]:
    """Return the distinct shapes of linear layers in a decoder layer with a gated MLP.

    The names of the shapes begin with ``name``. ``dim`` is the number of columns of the model,
    ``keys`` of all key heads together, and ``ffn`` of the hidden layer.
    """
    return [
        Shape(f"{name} query", tokens, dim, dim),
        Shape(f"{name} key", tokens, dim, keys),
        Shape(f"{name} gate", tokens, dim, ffn),
        Shape(f"{name} down", tokens, ffn, dim),
    ]


SHAPES = (
    *encoder("bert-base", 128, 768, 3072, 64),  # Devlin et al. 2019
    *encoder("minilm", 128, 384, 1536, 32),  # all-MiniLM-L6-v2
    *encoder(
        "vit-base", 197, 768, 3072, 64
    ),  # Dosovitskiy et al. 2021, 14 x 14 patches and a class
    Shape("vit-base patches", 196, 768, 768),
    *encoder("vit-tiny", 197, 192, 768, 64),  # Touvron et al. 2021, DeiT-Ti
    *encoder("gpt2-medium", 128, 1024, 4096, 64),  # Radford et al. 2019, prefill of 128 tokens
    *decoder("stories15m", 128, 288, 288, 768),  # llama2.c
    *decoder("tinyllama", 128, 2048, 256, 5632),  # TinyLlama 1.1B, Zhang et al. 2024
)
"""Every product, named by its model and its purpose."""


def shapes_named(words: tuple[str, ...]) -> list[Shape]:
    """Return a list of the shapes whose names contain at least one of ``words``.

    If the only word is ``all``, the list has all shapes. Raises :class:`InputError` if one of the
    words is in no shape's name.
    """
    if words == ("all",):
        return [*SHAPES]
    for word in words:
        if not any(word in shape.name for shape in SHAPES):
            models = sorted({shape.name.partition(" ")[0] for shape in SHAPES})
            raise InputError(f"No shape is named {word!r}; known models are {', '.join(models)}")
    return [shape for shape in SHAPES if any(word in shape.name for word in words)]
