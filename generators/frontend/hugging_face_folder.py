"""A folder as Hugging Face's libraries write it: its settings and its tensors."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.files import inside, read_text
from arch.names import check_name
from arch.tables import read_table
from generators.frontend.weights import read_tensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "model.pt")

TABLES = Path(__file__).parent / "families"
"""Folder of the tables that tell what kinds of models are known, and how these name their parts."""
ACTIVATIONS = read_table(TABLES / "activations.toml")["activations"]
"""The name in a description of each activation of a configuration."""


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder looks like one of Hugging Face's."""
    return (folder / CONFIG_FILE).is_file()


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise :class:`InputError` where there is none."""
    content = read_text(path)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"File {path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"File {path} must hold a JSON object")
    return found


class Folder:
    """The settings of a folder, and its tensors, each of which is taken once."""

    def __init__(self, path: Path):
        """Read config.json; raise :class:`InputError` where that cannot be done."""
        self.path, self.config_path = path, path / CONFIG_FILE
        self.config = read_json(self.config_path)
        self.weights_path = path / WEIGHTS_FILE
        kind = self.config.get("model_type")
        self.kind = kind if isinstance(kind, str) else ""
        names = self.config.get("architectures") or [""]
        self.architecture = str(names[0])
        self.tensors: dict[str, NDArray[np.generic]] = {}

    def read(self, prefixes: Iterable[str] = ()) -> None:
        """Read the tensors, of one file or of several, without any of the prefixes.

        Raises :class:`InputError` where a file cannot be read, or there is none.
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
        elif not self.weights_path.is_file():
            for name in _PICKLES:
                if (self.path / name).is_file():
                    raise InputError(
                        f"Folder {self.path} holds {name}, which may run code when it is read; "
                        f"load it with transformers and save it with save_pretrained, which "
                        f"writes {WEIGHTS_FILE}"
                    )
        for path in paths:
            for name, tensor in read_tensors(path).items():
                for prefix in prefixes:
                    name = name.removeprefix(prefix)
                self.tensors[name] = tensor

    def take(self, name: str) -> NDArray[np.generic]:
        """Return a tensor, which is then taken.

        Raises :class:`InputError` where it is not there.
        """
        if name not in self.tensors:
            raise InputError(f"Weight {name!r} is missing in {self.weights_path}")
        return self.tensors.pop(name)

    def floats(self, name: str) -> NDArray[np.float64]:
        """Return a tensor in float64, which is then taken."""
        return np.asarray(self.take(name), np.float64)

    def integer(self, name: str) -> int:
        """Return a setting that must be a positive integer."""
        value = self.config.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"Configuration {self.config_path} must give the integer {name!r}")
        if value < 1:
            raise InputError(
                f"Setting {name!r} in {self.config_path} must be positive, not {value}"
            )
        return value

    def section(self, name: str) -> Mapping[str, Any]:
        """Return the settings below a name, none where it is not given."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise InputError(
                f"Setting {name!r} in {self.config_path} must hold settings, not {value!r}"
            )
        return value or {}

    def number(self, settings: Mapping[str, Any], name: str, default: float) -> float:
        """Return a finite number among settings, the default where it is not given."""
        value = settings.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
            raise InputError(
                f"Setting {name!r} in {self.config_path} must be a number, not {value!r}"
            )
        return float(value)

    def only(self, name: str, value: Any, why: str = "") -> None:
        """Raise :class:`InputError` where a setting is given and is not the one that is known."""
        given = self.config.get(name, value)
        if given != value:
            raise InputError(
                f"Setting {name!r} in {self.config_path} must be {value!r}, not {given!r}{why}"
            )

    def activation(self, name: str) -> str:
        """Return our name of the activation function that a setting names."""
        given = self.config.get(name)
        if not isinstance(given, str) or given not in ACTIVATIONS:
            raise InputError(
                f"Activation {given!r} in {self.config_path} is not one of {', '.join(ACTIVATIONS)}"
            )
        return str(ACTIVATIONS[given])

    def labels(self) -> tuple[str, ...]:
        """Return the names of the classes, in their order; none where they are numbers only."""
        given = self.config.get("id2label")
        if not isinstance(given, Mapping):
            return ()
        names = [given.get(str(number)) for number in range(len(given))]
        for number, name in enumerate(names):
            if name is None:
                raise InputError(
                    f"Setting 'id2label' in {self.config_path} must name the classes 0 to "
                    f"{len(given) - 1}, but {number} is missing"
                )
            check_name(f"Name of class {number} in {self.config_path}", str(name))
        plain = all(name == f"LABEL_{number}" for number, name in enumerate(names))
        return () if plain else tuple(map(str, names))

    def nothing_left(self) -> None:
        """Raise :class:`InputError` where tensors are left that have not been taken."""
        if self.tensors:
            raise InputError(
                f"Weights {self.weights_path} hold tensors that a model of type {self.kind} does "
                f"not have: {', '.join(sorted(self.tensors))}"
            )
