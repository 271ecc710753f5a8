"""Checks that decide whether a graph with a causal mask is a language model."""

import numpy as np

from celosia.generators.frontend.onnx.match import Encoder

LIKE = (
    "export a decoder like GPT-2, with all of its parts from token numbers to a score for each "
    "word, or use its Hugging Face folder if celosia run knows its type"
)
"""Remedy for the others."""


def unlike_gpt2(encoder: Encoder) -> str:
    """Return a text that lists a causal graph's differences from GPT-2; empty if there are none."""
    tensors = encoder.weights
    words = len(tensors.get("words", np.zeros(0)))
    wrong = {
        "an embedding that is not a table of token vectors": encoder.embedding != "tokens",
        "no norms": encoder.norm == "none",
        "attention without an MLP": "up.weight" not in encoder.blocks[0].weights,
        "a norm of the embedding": "embedding_norm.weight" in tensors,
        "a class token": "class_token" in tensors,
        "a hidden layer in its head": "head_hidden.weight" in tensors,
        "no score for each word behind each token": encoder.pooling != "none"
        or not encoder.classes
        or encoder.classes != words
        or bool(encoder.name),
    }
    return ", ".join(lack for lack, there in wrong.items() if there)
