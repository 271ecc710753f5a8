"""Check whether an ONNX graph with causal attention can be imported as a model like GPT-2."""

from celosia.generators.frontend.onnx.match import Encoder

LIKE = (
    "export a decoder like GPT-2 with all of its layers, from token numbers to one score for each "
    "token of the vocabulary, or use its Hugging Face folder if celosia run knows its type"
)
"""Remedy for the others."""


def unlike_gpt2(encoder: Encoder) -> str:
    """Return a text that lists the differences of a causal language model from GPT-2.

    ``encoder`` has the layers that were found in the model's ONNX graph. The text is, for example,
    ``no norms, a class token``. It is empty if there is no difference.
    """
    tensors = encoder.weights
    wrong = {
        "an embedding that is not a table of token vectors": encoder.embedding != "tokens",
        "no norms": encoder.norm == "none",
        "attention without an MLP": "up.weight" not in encoder.blocks[0].weights,
        "a norm of the embedding": "embedding_norm.weight" in tensors,
        "a class token": "class_token" in tensors,
        "a hidden layer in its head": "head_hidden.weight" in tensors,
    }
    lacks = [lack for lack, there in wrong.items() if there]
    return ", ".join((*lacks, *_unlike_scores(encoder)))


def _unlike_scores(encoder: Encoder) -> list[str]:
    """Return the difference of an output from one score for each token of the vocabulary, if any.

    A graph without a table of token vectors has no vocabulary to compare with.
    """
    vocabulary = len(encoder.weights.get("words", ()))
    columns = encoder.classes or encoder.dim
    if encoder.name:
        return [f"nodes after value {encoder.name!r} that are not a layer of scores"]
    if encoder.pooling != "none":
        return [f"one output for the whole text (pooling {encoder.pooling})"]
    if vocabulary and columns != vocabulary:
        return [f"{columns} output columns for each token, but a vocabulary of {vocabulary} tokens"]
    return [] if encoder.classes else ["no layer of scores after its last block"]
