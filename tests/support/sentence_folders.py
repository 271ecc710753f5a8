"""Small folders of Sentence Transformers and of cross-encoders, and what these give for texts.

``PYTHON -m tests.support.sentence_folders`` records it anew, with a PYTHON that has PyTorch and
sentence-transformers.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from celosia.arch.packages import library
from tests.support.door import DIM, ENCODERS, PLACES, encoder_folder

RECORDED = Path(__file__).parents[1] / "data" / "door" / "embeddings.json"
SENTENCES = [
    "The quick brown fox",
    "HELLO World, it's me!",
    "café שלום 机器 😀",
    "the " * 20 + "end",
]
PAIRS = [("The quick fox", "jumps over the dog"), ("hello", "world " * 30), ("café", "HELLO")]
KINDS = {kind.name: kind for kind in ENCODERS}
Settings = dict[str, Any]


def _settings(
    kind: str = "bert",
    pooling: Settings | None = None,
    unit: bool = False,
    prompts: Settings | None = None,
    **bert: Any,
) -> Callable[[Path], None]:
    """Return a function that writes a folder."""

    def write(folder: Path) -> None:
        encoder_folder(KINDS[kind], folder)
        pooling_settings = {
            "word_embedding_dimension": DIM,
            **(pooling or {"pooling_mode_mean_tokens": True}),
        }
        modules = ["Transformer", "Pooling", *(["Normalize"] if unit else [])]
        places = ["", *(f"{place}_{name}" for place, name in enumerate(modules[1:], 1))]
        for place in places[1:]:
            (folder / place).mkdir()
        (folder / "modules.json").write_text(
            json.dumps(
                [
                    {"idx": n, "name": str(n), "path": place, "type": f"{_PACKAGE}.models.{name}"}
                    for n, (name, place) in enumerate(zip(modules, places, strict=True))
                ]
            )
        )
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling_settings))
        (folder / "sentence_bert_config.json").write_text(json.dumps(bert))
        if prompts:
            (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))

    return write


_PACKAGE = "sentence_transformers"
_PROMPTS = {"prompts": {"query": "query: ", "passage": "the passage "}}
FOLDERS: dict[str, Callable[[Path], None]] = {
    "mean": _settings(),
    "first token": _settings(pooling={"pooling_mode_cls_token": True}),
    "of length 1": _settings(unit=True),
    "short": _settings(max_seq_length=10),
    "lower": _settings("bert cased", do_lower_case=True),
    "prompt": _settings(prompts={**_PROMPTS, "default_prompt_name": "passage"}),
    "newer": _settings("roberta", pooling={"pooling_mode": "mean"}, prompts=_PROMPTS),
    "no prompt in the mean": _settings(
        "xlm-roberta", pooling={"pooling_mode": "mean", "include_prompt": False}, prompts=_PROMPTS
    ),
}


def cross_encoder(folder: Path, classes: int = 1, places: int = PLACES) -> None:
    """Write a classifier of pairs."""
    names = {str(number): "ABC"[number] for number in range(classes)}
    encoder_folder(
        KINDS["bert"],
        folder,
        architectures=["BertForSequenceClassification"],
        id2label=names,
        max_position_embeddings=places,
    )
    tensors, rng = load_file(folder / "model.safetensors"), np.random.default_rng(3)
    tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    for name, rows in (("bert.pooler.dense", DIM), ("classifier", classes)):
        tensors[f"{name}.weight"] = rng.normal(0, 1, (rows, DIM)).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 1, rows).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")


_SCORES = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def _newer(**settings: str) -> dict[str, Settings]:
    """Return the settings of a cross-encoder that Sentence Transformers 6 saved."""
    return {
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", **settings},
        "sentence_bert_config.json": _SCORES,
    }


_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_IDENTITY = "torch.nn.modules.linear.Identity"
SCORED: dict[str, dict[str, Settings]] = {
    "usual": _newer(),
    "sigmoid": _newer(activation_fn=_SIGMOID),
    "identity": _newer(activation_fn=_IDENTITY),
    "older sigmoid": {"config.json": {"sbert_ce_default_activation_function": _SIGMOID}},
    "older identity": {
        "config.json": {"sentence_transformers": {"activation_fn": _IDENTITY, "version": "4.1.0"}}
    },
}
"""Settings of cross-encoders with functions of their scores, by the file that has them."""


def scored(folder: Path, name: str, classes: int = 1) -> None:
    """Write a cross-encoder with a function of its scores."""
    cross_encoder(folder, classes)
    if "config.json" not in SCORED[name]:
        module = {"idx": 0, "name": "0", "path": "", "type": f"{_PACKAGE}.models.Transformer"}
        (folder / "modules.json").write_text(json.dumps([module]))
    for file, settings in SCORED[name].items():
        path = folder / file
        known = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(known | settings))


def scores(name: str, classes: int = 1) -> list[list[float]]:
    """Return the scores of sentence-transformers for pairs, [pairs, classes]."""
    package = library("sentence_transformers", "This needs", "sentence-transformers")
    with tempfile.TemporaryDirectory() as place:
        scored(Path(place) / "model", name, classes)
        model = package.CrossEncoder(str(Path(place) / "model"), device="cpu")
        predicted: list[list[float]] = model.predict(PAIRS).reshape(len(PAIRS), classes).tolist()
        return predicted


def embeddings() -> dict[str, list[list[float]]]:
    """Return sentence-transformers' outputs for the texts, by the folder's name."""
    package = library("sentence_transformers", "This needs", "sentence-transformers")
    torch = library("torch", "This needs", "torch")
    vectors = {}
    for name, write in {**FOLDERS, "pairs": cross_encoder}.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "model"
            write(folder)
            if name == "pairs":
                model = package.CrossEncoder(str(folder), device="cpu")
                scores = model.predict(PAIRS, activation_fn=torch.nn.Identity())
                vectors[name] = scores.reshape(len(PAIRS), 1).tolist()
            else:
                model = package.SentenceTransformer(str(folder), device="cpu")
                vectors[name] = [model.encode([text])[0].tolist() for text in SENTENCES]
    return vectors


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(embeddings(), indent=1) + "\n")
    sys.exit(0)
