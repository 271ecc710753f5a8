"""Settings of config.json: their types, ranges and default values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from celosia.arch.errors import InputError
from celosia.arch.tables import read_table

_TABLE = read_table(Path(__file__).parent / "families" / "settings.toml")
_WITHOUT_EFFECT = frozenset(_TABLE.pop("without_effect")["names"])
_REQUIRED, _SAME, _NULL = "!", "=", "?"
_SECTIONS = ("rope", "stored", "scorer")
"""Kinds of settings with entries, which the table lists under the kind's name."""
_LONGEST = 60
"""Most characters of a value that an error message shows."""
_MOST = 1 << 24
_CLASSES = (
    "(ForCausalLM|LMHeadModel)$|^(Llama|GPT2|Mistral|Qwen2|Qwen3|Gemma|Phi3|Granite|SmolLM3|Olmo|"
    "StableLm|Starcoder2|GPTNeoX|GPTNeo|OPT)Model$"
)
_Size = Annotated[int, Meta(ge=1, le=_MOST)]
_Factor = Annotated[float, Meta(gt=0, le=1e12)]
_Attention = Literal["full_attention", "sliding_attention"]
_Range = Literal["global", "local"]


class _Stored(msgspec.Struct):
    """Quantized weights that are read."""

    quant_method: Literal["compressed-tensors"]
    format: Literal["int-quantized"]


class _Forward(msgspec.Struct, forbid_unknown_fields=True):
    """The method by which Sentence Transformers runs a model on one kind of input."""

    method: Literal["forward"]
    method_output_name: Literal["last_hidden_state", "logits"]


class _Texts(msgspec.Struct, forbid_unknown_fields=True):
    """The kinds of inputs of a model of texts."""

    text: _Forward


_KINDS: dict[str, tuple[Any, str]] = {
    "free": (object, "anything"),
    "flag": (bool, "true or false"),
    "text": (str, "a string"),
    "texts": (list[str], "a list of strings"),
    "decoders": (
        list[Annotated[str, Meta(pattern=_CLASSES)]],
        "a list with the class of a language model, such as LlamaForCausalLM",
    ),
    "size": (_Size, f"an integer from 1 to {_MOST}"),
    "count": (Annotated[int, Meta(ge=0, le=_MOST)], f"an integer from 0 to {_MOST}"),
    "sides": (
        _Size | Annotated[list[_Size], Meta(min_length=2, max_length=2)],
        "one positive integer or two",
    ),
    "token": (Annotated[int, Meta(le=_MOST)], "a token's number"),
    "tokens": (int | list[int], "a token's number or a list of them"),
    "padding": (Annotated[int, Meta(ge=0, le=_MOST)], "a token's number"),
    "epsilon": (Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
    "share": (Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
    "base": (Annotated[float, Meta(gt=1, le=1e12)], "a number above 1 and up to 1e12"),
    "factor": (_Factor, "a number above 0 and up to 1e12"),
    "stretch": (Annotated[float, Meta(ge=1, le=1e6)], "a number from 1 to 1e6"),
    "scale": (Annotated[float, Meta(ge=0, le=1e6)], "a number from 0 to 1e6"),
    "factors": (list[_Factor], "a list of numbers above 0 and up to 1e12"),
    "switches": (list[Literal[0, 1]], "a list of 0 and 1"),
    "layers": (list[_Attention], "a list of full_attention and sliding_attention"),
    "ranges": (list[_Range], "a list of global and local"),
    "periods": (
        list[tuple[list[_Range], Annotated[int, Meta(ge=1, le=1000)]]],
        "a list of pairs, each a list of global and local and how often it is repeated",
    ),
    "names": (dict[str, str | float], "names by numbers"),
    "empty": (
        Annotated[dict[str, object], Meta(max_length=0)],
        "empty, as a model without some of its heads is not read",
    ),
    "stored": (
        _Stored,
        "that of int-quantized compressed-tensors, or left out; save the model in float32",
    ),
    "rope": (dict[str, object], "settings of rotary positions"),
    "scorer": (dict[str, object], "settings of a cross-encoder"),
    "weights": (
        Annotated[dict[str, object], Meta(max_length=0)],
        "empty, as only quantized weights are read; save the model in float32",
    ),
    "sentences": (
        Literal["SentenceTransformer", "CrossEncoder"],
        "SentenceTransformer or CrossEncoder",
    ),
    "scores": (
        Literal[
            "torch.nn.modules.linear.Identity",
            "torch.nn.modules.activation.Sigmoid",
        ],
        "torch.nn.modules.linear.Identity or torch.nn.modules.activation.Sigmoid",
    ),
    "task": (
        Literal["feature-extraction", "sequence-classification"],
        "feature-extraction or sequence-classification",
    ),
    "forward": (_Texts, "that of texts, whose method is forward"),
    "elsewhere": (
        Annotated[dict[str, object], Meta(max_length=0)],
        "empty, as it is not read; move its settings to config.json or tokenizer_config.json",
    ),
    "outputs": (Literal["token_embeddings", "scores"], "token_embeddings or scores"),
    "vector": (Literal["sentence_embedding"], "sentence_embedding"),
}
"""The type of each kind of settings, and its description in words."""


def read_settings(model_type: str, settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of a config.json, completed by the defaults of the model type.

    Settings of an unknown model type are returned as they are. Raises :class:`InputError` with the
    names of all settings that are missing, have a wrong type or are out of range.
    """
    table, wrong = _TABLE.get(model_type, {}), []
    completed = dict(settings)
    for name in table:
        try:
            completed |= _setting(name, table, settings, path)
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputError("; and ".join(wrong))
    return {name: entry[1] for name, entry in table.items() if entry[1:]} | completed


def _setting(
    name: str, table: Mapping[str, Any], settings: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    """Return a setting under its usual name, after checks; nothing if it is left out."""
    kind = table[name][0]
    if (
        kind.endswith(_REQUIRED)
        and settings.get(name) is None
        and not _other(name, table, settings)
    ):
        raise InputError(f"Configuration {path} must give the integer {name!r}")
    if name not in settings:
        return {}
    other = kind.removeprefix(_SAME)
    if other == kind:
        _check(name, kind.removesuffix(_REQUIRED), settings[name], path)
        return {}
    _check(name, table[other][0].removesuffix(_REQUIRED), settings[name], path)
    if settings.get(other, settings[name]) != settings[name]:
        raise InputError(
            f"Settings {name!r} and {other!r} in {path} mean the same and must be equal, but "
            f"are {_text(settings[name])} and {_text(settings[other])}"
        )
    return {other: settings[name]}


def unknown_settings(model_type: str, settings: Mapping[str, Any]) -> list[str]:
    """Return a sorted list of the names of unknown settings in a config.json.

    A setting is known if the import uses it for this model type, or if it is in the list of
    settings without effect.
    """
    return sorted(settings.keys() - _TABLE.get(model_type, {}).keys() - _WITHOUT_EFFECT)


def read_only_known(entry: str, settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of a file other than config.json, completed by defaults.

    ``entry`` is the kind of file in a table of all known settings and their defaults. Raises
    :class:`InputError` if a setting is unknown, is missing, has a wrong type or is out of range.
    """
    unknown = sorted(settings.keys() - _TABLE[entry].keys())
    if unknown:
        raise InputError(
            f"Settings in {path} that are not known: {', '.join(map(repr, unknown))}; if no output "
            "of the model depends on them, take them out of the file"
        )
    return read_settings(entry, settings, path)


def _other(name: str, table: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a setting is given under another name."""
    return any(entry[0] == f"{_SAME}{name}" and alias in settings for alias, entry in table.items())


def _check(name: str, kind: str, value: object, path: Path) -> None:
    plain = kind.removesuffix(_NULL)
    wanted, words = _KINDS[plain]
    if value is None and plain != kind:
        return
    try:
        msgspec.convert(value, wanted)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate is no text
        words += " or null" if plain != kind else ""
        raise InputError(
            f"Setting {name!r} in {path} must be {words}, not {_text(value)}"
        ) from error
    if plain in _SECTIONS and isinstance(value, dict):
        for inside, entry in value.items():
            if inside not in _TABLE[plain]:
                raise InputError(
                    f"Setting {f'{name}.{inside}'!r} in {path} is not known; if no output of the "
                    "model depends on it, take it out of the file"
                )
            _check(f"{name}.{inside}", _TABLE[plain][inside][0], entry, path)


def _text(value: object) -> str:
    """Return a value as Python writes it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
