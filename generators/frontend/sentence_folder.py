"""Settings in Sentence Transformers folders: text preparation, pooling and normalization."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.files import inside, read_text
from celosia.generators.frontend.hugging_face_folder import CONFIG_FILE, read_json
from celosia.generators.frontend.hugging_face_settings import read_only_known

MODULES_FILE = "modules.json"
PROMPTS_FILE = "config_sentence_transformers.json"
_ORDER = ("Transformer", "Pooling", "Normalize")
_POOLINGS = {
    "mean": "mean",
    "cls": "class",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "class",
}
"""Our name of each kind of pooling, by the names of newer files and of older ones."""
_FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")


@dataclass(frozen=True)
class SentenceFolder:
    """Settings of a Sentence Transformers folder; the defaults leave the model unchanged."""

    pooling: str = "none"
    unit: bool = False
    """True if outputs are scaled to length 1."""
    longest: int = 0
    """Longest text (tokens); 0 leaves it to the tokenizer."""
    lower: bool = False
    """True if texts are changed to lower case."""
    prompt: str = ""
    """Text before every text."""
    scores: bool = False
    """True for the folder of a cross-encoder."""
    function: str = ""
    """The function of a cross-encoder's outputs, by its name in PyTorch; empty for the usual."""

    def sigmoid(self, config: Mapping[str, Any], outputs: int) -> bool:
        """Return whether a sigmoid is applied to a classifier's outputs.

        The folder's settings or ``config`` (the settings of config.json) may name a function for
        the outputs. If they name none, the result is true for a cross-encoder with one output.
        ``outputs`` is the number of outputs.
        """
        older = config.get("sentence_transformers")
        names = (
            self.function,
            (older or {}).get("activation_fn"),
            config.get("sbert_ce_default_activation_function"),
        )
        named = next((name for name in names if name), "")
        usual = (self.scores or older is not None) and outputs == 1
        return named.endswith("Sigmoid") if named else usual


def read_sentence_folder(folder: Path) -> SentenceFolder:
    """Return the pooling, text and prompt settings of a Sentence Transformers folder.

    If the folder has no modules.json, all settings have their defaults. Raises :class:`InputError`
    if a file cannot be read, or if a setting is not supported.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return SentenceFolder()
    places = _modules(path)
    pooling, includes = "none", True
    if "Pooling" in places:
        place = f"{places['Pooling']}/{CONFIG_FILE}"
        pooling, includes = _pooling(inside(folder, place, path))
    if "Normalize" in places:
        own = inside(folder, f"{places['Normalize']}/{CONFIG_FILE}", path)
        if own.is_file():
            read_only_known("sentence_normalize", read_json(own), own)
    whole = folder / PROMPTS_FILE
    kept = read_only_known("sentences", read_json(whole) if whole.is_file() else {}, whole)
    prompt = _prompt(kept, whole)
    if prompt and not includes:
        raise InputError(
            f"Pooling of folder {folder} leaves out the prompt {prompt!r}, which is not supported; "
            f"set 'default_prompt_name' to null in {folder / PROMPTS_FILE}, and no prompt is used"
        )
    place = places["Transformer"] or "."
    names = [f"{place}/sentence_{family}_config.json" for family in _FAMILIES]
    settings_path = next(
        (
            candidate
            for candidate in (inside(folder, name, path) for name in names)
            if candidate.is_file()
        ),
        None,
    )
    how = read_json(settings_path) if settings_path else {}
    if settings_path:
        how = read_only_known("sentence_transformer", how, settings_path)
    longest, lower = how.get("max_seq_length"), how.get("do_lower_case", False)
    if longest is not None and (type(longest) is not int or longest < 1):
        raise InputError(
            f"Setting 'max_seq_length' in {settings_path} must be positive, not {longest!r}"
        )
    if not isinstance(lower, bool):
        raise InputError(
            f"Setting 'do_lower_case' in {settings_path} must be true or false, not {lower!r}"
        )
    scores, function = kept["model_type"] == "CrossEncoder", kept.get("activation_fn") or ""
    return SentenceFolder(
        pooling, "Normalize" in places, longest or 0, lower, prompt, scores, function
    )


def _modules(path: Path) -> dict[str, str]:
    """Return the place of each module by its kind."""
    try:
        modules = json.loads(read_text(path))
        kinds = [
            (str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules
        ]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"File {path} is not a list of modules") from error
    for kind, _ in kinds:
        if kind not in _ORDER:
            raise InputError(f"Module {kind} in {path} is not supported")
    names = [kind for kind, _ in kinds]
    if names != [kind for kind in _ORDER if kind in names] or "Transformer" not in names:
        raise InputError(
            f"Modules in {path} must be each of {', '.join(_ORDER)} once at most, in this order, "
            f"not {', '.join(names)}"
        )
    return dict(kinds)


def _pooling(path: Path) -> tuple[str, bool]:
    """Return the kind of pooling, and whether the rows of a prompt count."""
    how = read_only_known("sentence_pooling", read_json(path), path)
    modes = [name for name, on in how.items() if name.startswith("pooling_mode_") and on is True]
    if "pooling_mode" in how:
        mode = how["pooling_mode"]
        modes = [str(mode_name) for mode_name in (mode if isinstance(mode, list) else [mode])]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        known = ", ".join(name for name in _POOLINGS if name.startswith("pooling"))
        raise InputError(f"Pooling in {path} must be one of {known}, not {', '.join(modes)}")
    return _POOLINGS[modes[0]], bool(how["include_prompt"])


def _prompt(how: Mapping[str, Any], path: Path) -> str:
    """Return the text that a folder puts before every text; empty if it names none."""
    name, prompts = how.get("default_prompt_name"), how.get("prompts") or {}
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, Mapping) else None
    if not isinstance(prompt, str):
        known: Any = ", ".join(prompts) if isinstance(prompts, Mapping) else "none"
        raise InputError(f"Prompt {name!r} in {path} is not one of its prompts: {known}")
    return prompt
