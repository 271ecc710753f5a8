"""Random damage to an input file: changed content, or a link or device in place of the file."""

import copy
import json
import os
import struct
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.packages import library

Rng = np.random.Generator
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64),
    *(10**30, 0.5, -0.5, 1e-300, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "1", "x", "x" * 5000, "a\0b", "../outside", "/etc/passwd", "/dev/zero", "[/INST]"),
    *("\x1b[31m", "\ud800", "*/ int x; /*", "\n", "é\u2028", [], {}, [[]], [None], ["x"], {"x": 1}),
    *([1, 2, 3], [-1], [0] * 100, [float("nan")], {"0": []}),
)
"""Values that are wrong nearly everywhere."""
_EXTREME = (0, 1, 2**7, 2**15, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
_SPECIAL = 0.08  # part of the cases in which the file becomes another kind of entry


def damage(path: Path, outside: Path, rng: Rng) -> str:
    """Damage a file at random, and return the name of the kind of damage, such as ``json``.

    Bytes or fields are changed, or the file is removed, emptied, or replaced by a link, folder,
    pipe or device. A link leads to itself or to the file ``outside``.
    """
    if rng.random() < _SPECIAL:
        return _replace(path, outside, rng)
    content = path.read_bytes()
    ways = {
        ".json": (_json, _json, _json, _bytes),
        ".toml": (_toml, _toml, _bytes),
        ".safetensors": (_safetensors, _safetensors, _bytes),
        ".onnx": (_onnx, _onnx, _onnx, _bytes),
        ".npy": (_npy, _bytes),
    }.get(path.suffix, (_bytes,))
    way = ways[int(rng.integers(len(ways)))]
    path.write_bytes(way(content, rng))
    return way.__name__.strip("_")


def _replace(path: Path, outside: Path, rng: Rng) -> str:
    """Put another kind of entry in a file's place."""
    kind = str(rng.choice(["link", "device", "pipe", "folder", "nothing", "empty", "loop"]))
    path.unlink()
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "empty":
        path.touch()
    return kind


def _bytes(content: bytes, rng: Rng) -> bytes:
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        place = int(rng.integers(len(data) + 1))
        if rng.random() < 0.5:  # headers are at the beginning
            place = min(place, int(rng.integers(128)))
        size = int(rng.choice([1, 2, 4, 8, 30]))
        kind = rng.integers(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[place : place + size] = rng.bytes(size)
        elif kind == 2:
            number = struct.pack("<Q", int(rng.choice(np.array(_EXTREME, np.uint64))))
            data[place : place + min(size, 8)] = number[: min(size, 8)]
        elif kind == 3:
            del data[place : place + size]
        elif kind == 4:
            data[place:place] = rng.bytes(size) if rng.random() < 0.5 else data[:size]
        elif rng.random() < 0.3:
            del data[place:]
    return bytes(data)


def change(tree: Any, rng: Rng) -> Any:
    """Return a copy of nested lists and dictionaries, with one random entry changed or removed."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = [*node] if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    root = [copy.deepcopy(tree)]
    walk(root)
    node, key = places[int(rng.integers(len(places)))]
    old, kind = node[key], rng.integers(10)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[f"{key}x"] = node.pop(key)
    elif kind == 2 and isinstance(old, int | float) and not isinstance(old, bool):
        node[key] = [old * 2, old + 1, -old, old - 1, str(old), float(old), old * 1000][
            int(rng.integers(7))
        ]
    elif kind == 3:
        node[key] = [old]
    else:
        node[key] = NASTY[int(rng.integers(len(NASTY)))]
    return root[0] if root else None


def _json(content: bytes, rng: Rng) -> bytes:
    tree = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        tree = change(tree, rng)
    return json.dumps(tree).encode()


def _toml(content: bytes, rng: Rng) -> bytes:
    tree = change(tomllib.loads(content.decode()), rng)
    pairs = tree.items() if isinstance(tree, dict) else [("x", tree)]
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in pairs).encode()


def _safetensors(content: bytes, rng: Rng) -> bytes:
    (size,) = struct.unpack_from("<Q", content)
    header = json.dumps(change(json.loads(content[8 : 8 + size]), rng)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _npy(content: bytes, rng: Rng) -> bytes:
    size = int.from_bytes(content[8:10], "little")
    text = content[10 : 10 + size].decode("latin1")
    others = ("'|O'", "'<U4'", "(1 << 40,)", "(-1,)", "(99999999999, 9)", "()", "(" * 300, "None")
    part = str(rng.choice(["'<f8'", "'<i8'", "False", "(", ")", "{", ",", "4"]))
    text = text.replace(part, str(rng.choice(others)), 1)[: int(rng.integers(1, size + 300))]
    data = text.encode("latin1")
    return content[:8] + len(data).to_bytes(2, "little") + data + content[10 + size :]


def _onnx(content: bytes, rng: Rng) -> bytes:
    """Change a random field of a random message of the graph."""
    model = library("onnx", "ONNX files need", "onnx").load_from_string(content)
    for _ in range(int(rng.integers(1, 3))):
        _change_message(model, rng)
    return bytes(model.SerializeToString())


def _change_message(message: Any, rng: Rng) -> None:
    fields = message.ListFields()
    if not fields:
        return
    field, value = fields[int(rng.integers(len(fields)))]
    repeated = hasattr(value, "append") or hasattr(value, "add")
    inner = field.message_type is not None
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif repeated and len(value):
        place = int(rng.integers(len(value)))
        kind = rng.integers(5)
        if inner and kind > 0:
            _change_message(value[place], rng)
        elif kind == 0:
            del value[place]
        elif not inner:
            value[place] = _other(value[place], rng)
    elif inner:
        _change_message(value, rng)
    else:
        setattr(message, field.name, _other(value, rng))


def _other(value: Any, rng: Rng) -> Any:
    """Return another value of the same type."""
    if isinstance(value, int):
        numbers = (0, 1, -1, 2, 3, 7, 9, 13, 16, 23, 100, 1 << 20, (1 << 31) - 1)
        return int(rng.choice(numbers))
    if isinstance(value, float):
        return float(rng.choice([0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-40]))
    if isinstance(value, bytes):
        return _bytes(value, rng) if value else b"x"
    texts = ("", "x", "Loop", "If", "Gather", "MatMul", "Softmax", "Constant", "../x", "a\0b", "?")
    return str(rng.choice(texts))
