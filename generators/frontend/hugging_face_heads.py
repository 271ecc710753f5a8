"""Heads (layers after the blocks) of Hugging Face encoders, chosen by architecture."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.functions import FUNCTIONS
from celosia.generators.frontend.host_steps import HostStep, layer_norm, linear, pointwise
from celosia.generators.frontend.hugging_face_folder import Folder
from celosia.generators.frontend.weights import Floats
from celosia.generators.reference.floats import FUNCTION_NAMES

HEADS = re.compile(
    r"(pooler|cls|classifier|sop_classifier|lm_head|vocab_\w+|pre_classifier|qa_outputs|predictions|"
    r"cls_classifier|distillation_classifier|visual_projection|decoder|discriminator_predictions|"
    r"generator_\w+|mask_token|embeddings\.mask_token)(\.|$)"
)
"""Tensors after an encoder: those that its architecture does not use are named, not refused."""
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
    ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
)
"""Linear layer, norm and scores of models that guess words."""
_EXACT = ("roberta", "xlm-roberta", "camembert", "electra")
"""Families whose head uses the exact GELU, with any activation of the encoder."""


@dataclass
class Head:
    """The head of a model: the layers after the blocks, which compute the output."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of a description."""
    weights: dict[str, Floats] = field(default_factory=dict)
    after: tuple[HostStep, ...] = ()
    labels: tuple[str, ...] = ()

    def layer(self, folder: Folder, ours: str, theirs: str, *, biased: bool = True) -> None:
        """Move the weight and bias of a linear layer from ``folder`` (in memory) to this head.

        The layer's name is ``theirs`` in the folder, and ``ours`` in the head. If ``biased`` is
        false, the bias is zeros. Raises :class:`InputError` if the folder lacks a tensor.
        """
        weight = self.weights[f"{ours}.weight"] = folder.floats(f"{theirs}.weight")
        self.weights[f"{ours}.bias"] = (
            folder.floats(f"{theirs}.bias") if biased else np.zeros(len(weight))
        )


def text_head(folder: Folder, words: Floats, rows: int, activation: str, epsilon: float) -> Head:
    """Return the head of a text encoder: the layers after the Transformer blocks.

    The setting ``architectures`` in config.json selects the head. ``words`` [vocabulary, columns]
    are the token vectors, from which a head may compute token scores. ``rows`` is the largest
    number of tokens, used only to count multiplications. Raises :class:`InputError` if the
    architecture is unknown, or weights are missing.
    """
    name = folder.architecture
    kind = name.rpartition("For")[2] if "For" in name else name
    if kind in ("SequenceClassification", "MultipleChoice", "NextSentencePrediction"):
        return _classifier(folder, kind)
    if kind in ("TokenClassification", "QuestionAnswering"):
        theirs = "classifier" if kind == "TokenClassification" else "qa_outputs"
        head = Head(labels=("start", "end"))
        head.layer(folder, "head", theirs)
        classes = len(head.weights["head.bias"])
        head.fields = {"classes": classes}
        if theirs == "classifier":
            head.labels = folder.labels(classes)
        return head
    if name == "ElectraForPreTraining":
        head = Head()
        head.layer(folder, "head_hidden", "discriminator_predictions.dense")
        head.layer(folder, "head", "discriminator_predictions.dense_prediction")
        hidden, classes = (
            len(head.weights[f"{module}.bias"]) for module in ("head_hidden", "head")
        )
        head.fields = {"classes": classes, "head_hidden": hidden, "head_activation": activation}
        return head
    if kind in ("MaskedLM", "PreTraining") or name == "BertLMHeadModel":
        return _masked(folder, words, rows, activation, epsilon)
    if kind.endswith("Model") or not kind:
        trained = sorted(tensor for tensor in folder.tensors if HEADS.match(tensor))
        if not kind and any("pooler" not in tensor for tensor in trained):
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
    head = Head()
    for hidden, last, activation in _HIDDEN:
        last = "cls.seq_relationship" if kind == "NextSentencePrediction" else last
        if f"{hidden}.weight" in folder.tensors and f"{last}.weight" in folder.tensors:
            head.layer(folder, "head_hidden", hidden)
            head.layer(folder, "head", last)
            classes = len(head.weights["head.bias"])
            if kind == "SequenceClassification":
                head.labels = folder.labels(classes)
            head.fields = {
                "pooling": "class",
                "classes": classes,
                "head_hidden": len(head.weights["head_hidden.bias"]),
                "head_activation": "gelu" if folder.kind == "electra" else activation,
            }
            return head
    raise InputError(
        f"Weights {folder.weights_path} lack the classifier of {folder.architecture}: "
        f"one of {', '.join(dict.fromkeys(last for _, last, _ in _HIDDEN))} with the layer in "
        "front of it"
    )


def _masked(folder: Folder, words: Floats, rows: int, activation: str, epsilon: float) -> Head:
    """Return the head that computes a score for each word at each place, on the host."""
    known = [names for names in _MASKED if f"{names[0]}.weight" in folder.tensors]
    if not known:
        raise InputError(
            f"Weights {folder.weights_path} lack the head of {folder.architecture}: none of "
            f"{', '.join(last for _, _, last in _MASKED)} is there"
        )
    dense, norm, last = known[0]
    function = "gelu" if folder.kind in _EXACT else activation
    table, bias = _scores(folder, words, last)
    config, columns = folder.config, words.shape[1]
    dim = config["hidden_size"] if "hidden_size" in config else config["dim"]
    weight = folder.floats(f"{dense}.weight", columns, dim)
    gamma, beta = (folder.floats(f"{norm}.{part}", columns) for part in ("weight", "bias"))
    steps = (
        linear(dense, "linear layer", weight, folder.floats(f"{dense}.bias", columns), rows=rows),
        pointwise(function, FUNCTIONS[FUNCTION_NAMES[function]]),
        layer_norm(norm, gamma, beta, epsilon),
        linear(last, "a score for each word", table, bias, rows=rows),
    )
    return Head(after=steps)


def _scores(folder: Folder, words: Floats, last: str) -> tuple[Floats, Floats]:
    """Return the weights and bias of the scores, which are in the file or tied to others.

    Raises :class:`InputError` if they are neither.
    """
    own = last if f"{last}.weight" in folder.tensors else f"{last}.decoder"
    own = last if last == "vocab_projector" else own
    tied = folder.config["tie_word_embeddings"]
    missing = f"is missing in {folder.weights_path}, and 'tie_word_embeddings' is false"
    if not tied and f"{own}.weight" not in folder.tensors:
        raise InputError(f"Weight '{own}.weight' {missing}")
    table = words
    if f"{own}.weight" in folder.tensors:
        table = folder.floats(f"{own}.weight", *words.shape)
    # Files may have the bias under two names; the layer's name has priority.
    if f"{own}.bias" not in folder.tensors and not tied:
        raise InputError(f"Weight '{own}.bias' {missing}")
    name = f"{own}.bias" if f"{own}.bias" in folder.tensors else f"{last}.bias"
    bias, other = folder.floats(name, len(words)), folder.tensors.get(f"{last}.bias")
    if other is not None and np.array_equal(other, bias):
        folder.take(f"{last}.bias")
    return table, bias


def drop_unused(folder: Folder, computed: re.Pattern[str]) -> list[str]:
    """Delete the tensors of a model's head from ``folder.tensors``; return the tensors' names.

    A head is the layers after the Transformer blocks; its tensors are recognised by their names.
    The files do not change. Tensors whose names match ``computed`` are deleted too, but not
    returned.
    """
    heads = [name for name in folder.tensors if HEADS.match(name)]
    for name in {*heads, *filter(computed.search, folder.tensors)}:
        del folder.tensors[name]
    return heads
