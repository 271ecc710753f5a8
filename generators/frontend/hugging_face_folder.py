"""A model folder in Hugging Face's format: the settings and the tensors."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import inside, read_text, within
from celosia.arch.names import check_name
from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_settings import read_settings, unknown_settings
from celosia.generators.frontend.other_files import refuse_adapter, refuse_folder
from celosia.generators.frontend.weights import check_floats, read_tensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "model.pt")

_OLDER_NORM = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")
_NORM_PARTS = {"gamma": "weight", "beta": "bias"}
"""Names that older files have for a norm's parts."""
GENERATION_FILE = "generation_config.json"
_MARKS_FILE = "special_tokens_map.json"
"""File that must be a JSON object if it exists."""

TABLES = Path(__file__).parent / "families"
"""Folder of the tables of the known kinds of models, and of the names of their parts."""
ACTIVATIONS = read_table(TABLES / "activations.toml")["activations"]
"""The name in a description of each activation of a configuration."""


_ROWS = ("words", "positions", "types")
"""Our names of tables of vectors, which have no bias."""


def own_name(name: str, layer: str, parts: Mapping[str, str], outside: Mapping[str, str]) -> str:
    """Return a tensor's name in a model description, from its name in a Hugging Face file.

    For example, ``encoder.layer.0.output.dense.weight`` becomes ``layers.0.down.weight``. ``layer``
    is ``encoder.layer.`` here. The dictionary ``parts`` translates names of modules in a layer, and
    ``outside`` translates names of other modules. The result is empty if a name is unknown.
    """
    module, _, part = name.rpartition(".")
    number, _, inside = module.removeprefix(layer).partition(".")
    if part not in ("weight", "bias"):
        return ""
    if module.startswith(layer) and number.isdigit():
        return f"layers.{number}.{parts[inside]}.{part}" if inside in parts else ""
    ours = outside.get(module, "")
    if ours in _ROWS:
        return ours if part == "weight" else ""
    return f"{ours}.{part}" if ours else ""


def is_hugging_face(folder: Path) -> bool:
    """Return whether a path is a folder that contains a config.json."""
    return (folder / CONFIG_FILE).is_file()


def model_type(folder: Path) -> str:
    """Return the ``model_type`` in a folder's config.json; empty if the file has no model type.

    Raises :class:`InputError` if the file cannot be read.
    """
    kind = read_json(folder / CONFIG_FILE).get("model_type")
    return kind if isinstance(kind, str) else ""


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises :class:`InputError` if the file contains no JSON object.
    """
    content = read_text(path)
    try:
        settings = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"File {path} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InputError(f"File {path} must hold a JSON object")
    return settings


def generation_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in a folder's generation_config.json; empty if there is no such file.

    Raises :class:`InputError` if the file contains no JSON object, or a token's number has a wrong
    type.
    """
    path = folder / GENERATION_FILE
    return read_settings("generation_config", read_json(path), path) if path.is_file() else {}


class Folder:
    """The settings and tensors of a model folder, read into memory.

    A method that returns a tensor also removes it from :attr:`tensors`. So :attr:`tensors` has only
    the tensors that the importer has not used yet. The files do not change.
    """

    def __init__(self, path: Path):
        """Read config.json, and fill in the defaults of its class of models.

        Raises :class:`InputError` if a file cannot be read, a setting has a wrong type or is out of
        its range, or the folder has an adapter.
        """
        self.path, self.config_path = path, path / CONFIG_FILE
        refuse_adapter(path)
        self.given = read_json(self.config_path)
        self.weights_path = path / WEIGHTS_FILE
        kind = self.given.get("model_type")
        self.kind = kind if isinstance(kind, str) else ""
        self.config = read_settings(self.kind, self.given, self.config_path)
        self.architecture = str((self.config.get("architectures") or [""])[0])
        self.generation = generation_settings(path)
        if (path / _MARKS_FILE).is_file():
            read_json(path / _MARKS_FILE)
        self.tensors: dict[str, NDArray[np.generic]] = {}

    def read(self, prefixes: Iterable[str] = ()) -> None:
        """Read the tensors of the folder's files into :attr:`tensors`, a dictionary by name.

        If a tensor's name begins with one of ``prefixes``, that prefix is removed from the name.

        Raises :class:`InputError` if a file cannot be read, or there is no file with tensors.
        """
        paths = [self.weights_path]
        index = self.path / INDEX_FILE
        if not self.weights_path.is_file() and index.is_file():
            listed = read_json(index).get("weight_map")
            if not isinstance(listed, Mapping) or not listed:
                raise InputError(f"File {index} must give the 'weight_map'")
            wrong = [name for name in listed.values() if not isinstance(name, str)]
            if wrong:
                raise InputError(f"File {index} must name files in 'weight_map', not {wrong[0]!r}")
            paths = [inside(self.path, name, index) for name in sorted(set(listed.values()))]
            self.weights_path = index
        elif not self.weights_path.is_file():
            for name in _PICKLES:
                if (self.path / name).is_file():
                    raise InputError(
                        f"Folder {self.path} holds {name}, which may run code when it is read; "
                        f"load it with transformers and save it with save_pretrained, which "
                        f"writes {WEIGHTS_FILE}"
                    )
            refuse_folder(self.path, WEIGHTS_FILE)
        for path in paths:
            for name, tensor in read_tensors(path).items():
                for prefix in prefixes:
                    name = name.removeprefix(prefix)
                name = _OLDER_NORM.sub(lambda match: _NORM_PARTS[match[0]], name)
                if name in self.tensors:
                    raise InputError(f"Weights {path} hold the tensor {name!r} twice")
                self.tensors[name] = tensor

    def take(self, name: str) -> NDArray[np.generic]:
        """Return a tensor, and remove it from :attr:`tensors`; the file does not change.

        Raises :class:`InputError` if the tensor is missing, or its numbers are not floats.
        """
        if name not in self.tensors:
            raise InputError(f"Weight {name!r} is missing in {self.weights_path}")
        with within(self.weights_path):
            check_floats(name, self.tensors[name])
        return self.tensors.pop(name)

    def floats(self, name: str, *shape: int) -> NDArray[np.float64]:
        """Return a tensor in float64, and remove it from :attr:`tensors`; the file does not change.

        Raises :class:`InputError` if the tensor is missing, or does not have the shape ``shape``.
        An axis of size -1 in ``shape`` may have any size. If ``shape`` is empty, the tensor may
        have any shape.
        """
        tensor = self.take(name)
        sizes = zip(shape, tensor.shape, strict=False)
        if shape and (len(shape) != tensor.ndim or any(a not in (-1, b) for a, b in sizes)):
            wanted = str([*shape]).replace("-1", "any")
            raise InputError(
                f"Weight {name!r} must have the shape {wanted}, not {list(tensor.shape)} in "
                f"{self.weights_path}"
            )
        return np.asarray(tensor, np.float64)

    def only(self, name: str, value: Any, why: str = "") -> None:
        """Check that the setting ``name`` of config.json is absent or equal to ``value``.

        Raises :class:`InputError` if the setting has another value; ``why`` is a text at the end of
        the error's message.
        """
        if wrong := self._wrong(name, value, why):
            raise InputError(wrong)

    def _wrong(self, name: str, value: Any, why: str) -> str:
        """Return a sentence if a setting is given and has another value; empty otherwise.

        A setting that may be null is off if it is null.
        """
        setting = self.config.get(name, value)
        if setting == value or (value is False and setting is None):
            return ""
        source = "" if name in self.given else ", which it is where it is left out"
        return (
            f"Setting {name!r} in {self.config_path} must be {value!r}, not {setting!r}"
            f"{source}{why}"
        )

    def activation(self, name: str) -> str:
        """Return Celosia's name of the activation function in the setting ``name`` of config.json.

        Raises :class:`InputError` if the setting is missing, or if the function is not supported.
        """
        function = self.config.get(name)
        if not isinstance(function, str) or function not in ACTIVATIONS:
            raise InputError(
                f"Activation {function!r} in {self.config_path} is not one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        return str(ACTIVATIONS[function])

    def labels(self, outputs: int) -> tuple[str, ...]:
        """Return a tuple of the names of the classes, in class order.

        The tuple is empty if config.json has no names, or only default names such as ``LABEL_0``.
        ``outputs`` is the number of classes. Raises :class:`InputError` if config.json states
        another number of classes, or a class has no valid name.
        """
        count, stated = self.given.get("num_labels"), self.config.get("id2label")
        names_by_number = stated or {}
        if count is not None and count != outputs:
            raise InputError(
                f"Setting 'num_labels' in {self.config_path} must be {outputs}, the outputs in "
                f"{self.weights_path}, not {count!r}"
            )
        if stated is not None and len(names_by_number) != outputs:
            raise InputError(
                f"Setting 'id2label' in {self.config_path} must have {outputs} names, one for each "
                f"output in {self.weights_path}, not {len(names_by_number)}"
            )
        names = [names_by_number.get(str(number)) for number in range(len(names_by_number))]
        for number, name in enumerate(names):
            if name is None:
                raise InputError(
                    f"Setting 'id2label' in {self.config_path} must name the classes 0 to "
                    f"{len(names_by_number) - 1}, but {number} is missing"
                )
            check_name(f"Name of class {number} in {self.config_path}", str(name))
        plain = all(name == f"LABEL_{number}" for number, name in enumerate(names))
        return () if plain else tuple(map(str, names))

    def no_setting_left(self, only: Mapping[str, Any], why: Mapping[str, str]) -> None:
        """Raise :class:`InputError` if config.json has an unknown setting or an unsupported value.

        ``only`` is a dictionary from the name of a setting to its only supported value. ``why`` is
        a dictionary from the name of a setting to a text for the message: the reason why other
        values are not supported.
        """
        unknown = unknown_settings(self.kind, self.given)
        wrong = [self._wrong(name, value, why.get(name, "")) for name, value in only.items()]
        if unknown:
            wrong.append(
                f"Settings in {self.config_path} that a model of type {self.kind} does not have: "
                f"{', '.join(map(repr, unknown))}; if no output of the model depends on them, take "
                "them out of the file"
            )
        if any(wrong):
            raise InputError("; and ".join(filter(None, wrong)))

    def nothing_left(self) -> None:
        """Raise :class:`InputError` if the import has not used every tensor of the folder.

        The message names the unused tensors.
        """
        if self.tensors:
            raise InputError(
                f"Weights {self.weights_path} hold tensors that a model of type {self.kind} does "
                f"not have: {', '.join(sorted(self.tensors))}"
            )
