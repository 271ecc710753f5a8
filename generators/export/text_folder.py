"""A compiled decoder read back from its files, as a host of its own would."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import check_links, inside, reading
from celosia.arch.presets import load
from celosia.generators.export.package import CONFIG, MANIFEST
from celosia.generators.export.text_package import KIND, PROGRAM
from celosia.generators.frontend.hugging_face_folder import read_json
from celosia.generators.frontend.text_sources import TokenizerLike, open_tokenizer
from celosia.generators.lower.fill import Fill
from celosia.generators.lower.residence import Cache
from celosia.generators.program.draft import Written
from celosia.generators.program.executable import Entry
from celosia.generators.program.image import Piece
from celosia.generators.runtime.text_host import Index, TextHost, Value


def is_compiled_text(model: str) -> bool:
    """Return whether a name is that of a folder with a compiled decoder."""
    path = Path(model) / MANIFEST
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["kind"] == KIND)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return False


def load_compiled_text(folder: Path) -> tuple[TextHost, TokenizerLike, dict[str, Any]]:
    """Return a compiled decoder, its tokenizer, and the figures of how it was made integers.

    Raises :class:`InputError` where a file is missing or is not as ``celosia compile`` writes it.
    """
    check_links(folder)
    described = read_json(folder / MANIFEST)
    try:
        return (
            _program(folder, described),
            _tokenizer(folder, described),
            dict(described["made"]),
        )
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"Folder {folder} is not as celosia compile writes it ({reason}); compile it again"
        ) from error


def _program(folder: Path, described: dict[str, Any]) -> TextHost:
    cache, source, logits = (described[name] for name in ("cache", "source", "logits"))
    entries = described["program"]["entries"]
    config = load(str(folder / CONFIG))
    return TextHost(
        config=config.replace(name=described["configuration"]["name"]),
        words=_words(folder / PROGRAM, described["program"]["words"]),
        entries={
            name: Entry(int(pc), _written(described["tensors"][name]))
            for name, pc in entries.items()
        },
        name=str(described["model"]),
        vocabulary=int(described["vocabulary"]),
        cache=Cache(cache["capacity"], cache["sinks"], cache["recompute"]),
        kv_bits=int(cache["bits"]),
        kv_block=int(cache["block"]),
        places=int(described["places"]),
        rows=int(described["rows"]),
        setup=[_fill(folder, described_fill) for described_fill in described["setup"]],
        memory_bytes=int(described["memory_bytes"]),
        logits=Piece(logits["addr"], logits["rows"], logits["row_bytes"]),
        logits_step=float(logits["scale"]),
        calls={
            name: {int(key.removeprefix("R")): _value(value) for key, value in call.items()}
            for name, call in described["calls"].items()
        },
        resident=bool(described["resident"]),
        slots=int(described["slots"]),
        scratchpad_bytes=int(described["scratchpad_bytes"]),
        start=int(source["start"]),
        lookups=int(source["lookups"]),
        source_positions=int(source["positions"]),
        texts=int(described.get("texts", 1)),
    )


def _value(described: dict[str, Any]) -> Value:
    return Value(**{**described, "index": Index(described["index"])})


def _written(names: list[str]) -> list[Written]:
    return [Written(name) for name in names]


def _fill(folder: Path, described: dict[str, Any]) -> Fill:
    place = folder / MANIFEST
    image = _read(inside(folder, described["image"], place), described["image_bytes"])
    words = _words(inside(folder, described["program"], place), described["words"])
    return Fill(image, words, _written(described["tensors"]))


def _words(path: Path, count: int) -> list[int]:
    return [int(word) for word in np.frombuffer(_read(path, 4 * count), "<u4")]


def _read(path: Path, size: int) -> bytes:
    with reading(path):
        data = path.read_bytes()
    if len(data) != size:
        raise InputError(f"File {path} must have {size} bytes, not {len(data)}")
    return data


def _tokenizer(folder: Path, described: dict[str, Any]) -> TokenizerLike:
    known = described["tokenizer"]
    file = known["file"]
    path = None if file is None else inside(folder, file, folder / MANIFEST)
    ends = frozenset(known["ends"])
    how = {name: bool(known[name]) for name in ("split", "cleaned")}
    return open_tokenizer(path, described["vocabulary"], known["begin"], ends, **how)
