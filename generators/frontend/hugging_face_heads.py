"""Heads behind the encoder of a Hugging Face folder, by the name of the architecture."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arch.errors import InputError
from arch.functions import FUNCTIONS
from generators.frontend.host import HostStep, layer_norm, linear, pointwise
from generators.frontend.hugging_face_folder import Folder
from generators.frontend.weights import Floats
from generators.reference.floats import FUNCTION_NAMES

HEADS = re.compile(
    r"(pooler|cls|classifier|lm_head|vocab_\w+|pre_classifier|qa_outputs|predictions|"
    r"cls_classifier|distillation_classifier|visual_projection|decoder|discriminator_predictions|"
    r"generator_\w+|mask_token|embeddings\.mask_token)(\.|$)"
)
"""Tensors behind an encoder: those that its architecture does not use are named, not refused."""
_HIDDEN = (
    ("pooler.dense", "classifier", "tanh"),
    ("pooler", "classifier", "tanh"),
    ("classifier.dense", "classifier.out_proj", "tanh"),
    ("pre_classifier", "classifier", "relu"),
)
"""Hidden layer, classifier and activation between them, of models that classify texts."""
_MASKED = (
    (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions",
    ),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    ("predictions.dense", "predictions.LayerNorm", "predictions"),
)
"""Linear layer, norm and scores of models that guess words."""


@dataclass
class Head:
    """Source of the output."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of a description."""
    weights: dict[str, Floats] = field(default_factory=dict)
    after: tuple[HostStep, ...] = ()
    labels: tuple[str, ...] = ()

    def layer(self, folder: Folder, ours: str, theirs: str) -> None:
        """Take a linear layer."""
        self.weights[f"{ours}.weight"] = folder.floats(f"{theirs}.weight")
        outputs = len(self.weights[f"{ours}.weight"])
        bias = f"{theirs}.bias"
        self.weights[f"{ours}.bias"] = (
            folder.floats(bias) if bias in folder.tensors else np.zeros(outputs)
        )


def text_head(folder: Folder, words: Floats, rows: int, activation: str, epsilon: float) -> Head:
    """Return the head of an encoder of texts.

    ``words`` is the vocabulary, which may be the head's own weights, ``rows`` the longest text,
    ``activation`` and ``epsilon`` those of the encoder.

    Raises :class:`InputError` where the architecture is not known.
    """
    name = folder.architecture
    kind = name.rpartition("For")[2] if "For" in name else name
    if kind in ("SequenceClassification", "MultipleChoice", "NextSentencePrediction"):
        return _classifier(folder, kind)
    if kind in ("TokenClassification", "QuestionAnswering"):
        theirs = "classifier" if kind == "TokenClassification" else "qa_outputs"
        head = Head(labels=folder.labels() if theirs == "classifier" else ("start", "end"))
        head.layer(folder, "head", theirs)
        head.fields = {"classes": len(head.weights["head.bias"])}
        return head
    if kind in ("MaskedLM", "PreTraining"):
        return _masked(folder, words, rows, activation, epsilon)
    if kind.endswith("Model") or not kind:
        trained = sorted(one for one in folder.tensors if HEADS.match(one))
        if not kind and any("pooler" not in one for one in trained):
            raise InputError(
                f"Configuration {folder.config_path} must give 'architectures', as {trained[0]} "
                f"in {folder.weights_path} belongs to a head"
            )
        return Head()
    raise InputError(
        f"Architecture {name} in {folder.config_path} is not known; known are those for "
        "SequenceClassification, TokenClassification, QuestionAnswering, MultipleChoice, "
        "NextSentencePrediction and MaskedLM, and the model alone"
    )


def _classifier(folder: Folder, kind: str) -> Head:
    head = Head(labels=folder.labels())
    for hidden, last, activation in _HIDDEN:
        last = "cls.seq_relationship" if kind == "NextSentencePrediction" else last
        if f"{hidden}.weight" in folder.tensors and f"{last}.weight" in folder.tensors:
            head.layer(folder, "head_hidden", hidden)
            head.layer(folder, "head", last)
            head.fields = {
                "pooling": "class",
                "classes": len(head.weights["head.bias"]),
                "head_hidden": len(head.weights["head_hidden.bias"]),
                "head_activation": "gelu" if folder.kind == "electra" else activation,
            }
            return head
    raise InputError(
        f"Weights {folder.weights_path} lack the classifier of {folder.architecture}: "
        f"one of {', '.join(last for _, last, _ in _HIDDEN[1:])} with the layer in front of it"
    )


def _masked(folder: Folder, words: Floats, rows: int, activation: str, epsilon: float) -> Head:
    """Return the head that gives a score for each word at each place, which the host computes."""
    known = [names for names in _MASKED if f"{names[0]}.weight" in folder.tensors]
    if not known:
        raise InputError(
            f"Weights {folder.weights_path} lack the head of {folder.architecture}: none of "
            f"{', '.join(last for _, _, last in _MASKED)} is there"
        )
    dense, norm, last = known[0]
    function = "gelu" if folder.kind in ("roberta", "xlm-roberta", "camembert") else activation
    table = words
    for name in (f"{last}.decoder.weight", f"{last}.weight"):
        if name in folder.tensors:
            table = folder.floats(name)
    bias = folder.floats(f"{last}.bias")
    # Some files repeat the bias under the decoder's name.
    folder.tensors.pop(f"{last}.decoder.bias", None)
    hidden = Head()
    hidden.layer(folder, "dense", dense)
    steps = (
        linear(dense, "linear layer", *hidden.weights.values(), rows=rows),
        pointwise(function, FUNCTIONS[FUNCTION_NAMES[function]]),
        layer_norm(norm, folder.floats(f"{norm}.weight"), folder.floats(f"{norm}.bias"), epsilon),
        linear(last, "a score for each word", table, bias, rows=rows),
    )
    return Head(after=steps)
