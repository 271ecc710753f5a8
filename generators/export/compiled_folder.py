"""Reads compiled models from the files of ``celosia compile``; the float model is not needed."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.files import check_links, inside, reading
from celosia.arch.presets import load
from celosia.generators.export.folder import DIGESTS, OWN_DIGEST, digest, manifest_digest
from celosia.generators.export.manifest import CONFIG, DECODER, ENCODER, FORMAT, PROGRAM
from celosia.generators.frontend.hugging_face_folder import read_json
from celosia.generators.frontend.other_files import MANIFEST
from celosia.generators.frontend.text_sources import open_tokenizer
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.graph.tensors import WIDE, Tensor
from celosia.generators.lower.residence import Cache
from celosia.generators.program.calls import RegisterFormula, RunNumber
from celosia.generators.program.draft import Written
from celosia.generators.program.executable import Entry, Fill
from celosia.generators.program.image import Piece
from celosia.generators.runtime.host import Host, Writes


def is_compiled(model: str) -> bool:
    """Return whether ``model`` is the path of a folder with a compiled model."""
    path = Path(model) / MANIFEST
    try:
        return json.loads(path.read_text(encoding="utf-8"))["kind"] in (ENCODER, DECODER)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return False


def load_compiled(folder: Path) -> tuple[Host, TokenizerLike | None, Any]:
    """Return a compiled model, its tokenizer (None for an encoder), and its manifest.

    The manifest is a dictionary of the facts that a host needs to load and run the model. Raises
    :class:`InputError` if a file is missing, was changed or was not written by ``celosia compile``.
    """
    check_links(folder)
    known = read_json(folder / MANIFEST)
    form, kind = known.get("format", 1), known.get("kind")
    # Decoders of formats 1 and 2 have all fields of format 3.
    if form != FORMAT and (form not in (1, 2) or kind != DECODER):
        raise InputError(
            f"Folder {folder} has files of form {form!r}, and form {FORMAT} is read; compile it "
            f"again: celosia compile MODEL --out {folder}"
        )
    try:
        encoder = known["kind"] == ENCODER
        code = _encoder(folder, known) if encoder else _decoder(folder, known)
        tokenizer = None if encoder else _tokenizer(folder, known)
        _check_digests(folder, known)
        return code, tokenizer, known
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(folder, f"{type(error).__name__}: {error}") from error


def load_compiled_text(folder: Path) -> tuple[Host, TokenizerLike, dict[str, Any]]:
    """Return a compiled decoder, its tokenizer, and a dictionary that describes its quantization.

    ``folder`` is a folder that ``celosia compile`` has written. Raises :class:`InputError` in the
    cases of :func:`load_compiled`, and if the folder contains an encoder.
    """
    code, tokenizer, known = load_compiled(folder)
    if not code.reads_tokens or tokenizer is None:
        raise InputError(f"Folder {folder} holds an encoder, {code.name}; a decoder is needed")
    return code, tokenizer, dict(known["made"])


def _damaged(folder: Path, reason: str) -> InputError:
    """Return the error for a folder that is not as the compiler wrote it."""
    return InputError(
        f"Folder {folder} is not as celosia compile writes it ({reason}); compile it again: "
        f"celosia compile MODEL --out {folder}"
    )


def _check_digests(folder: Path, known: dict[str, Any]) -> None:
    """Raise :class:`InputError` if the manifest or a file that a host reads was changed.

    Files of an equal size may come from another compilation, such as one with other weights.
    """
    own = manifest_digest(known)
    if known.get(OWN_DIGEST, own) != own:
        raise _damaged(folder, f"{MANIFEST} was changed")
    names = [CONFIG, PROGRAM, known.get("tokenizer", {}).get("file")]
    names += [fill[key] for fill in known["setup"] for key in ("image", "program")]
    digests = known.get(DIGESTS, {})
    for name in names:
        if name in digests and digest((folder / name).read_bytes()) != digests[name]:
            raise _damaged(folder, f"{name} was changed, or is from another compilation")


def _common(folder: Path, known: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that all programs have."""
    config: Config = load(str(folder / CONFIG))
    size, most = int(known["memory_bytes"]), 1 << config.memory.addr_width
    if not 0 < size <= most:
        raise _damaged(folder, f"memory_bytes is {size}, not from 1 to {most}")
    common: dict[str, Any] = {
        "config": config.replace(name=known["configuration"]["name"]),
        "words": _words(folder / PROGRAM, known["program"]["words"]),
        "entries": {
            name: Entry(int(pc), _written(known["tensors"][name]))
            for name, pc in known["program"]["entries"].items()
        },
        "name": str(known["model"]),
        "setup": [_fill(folder, fill) for fill in known["setup"]],
        "memory_bytes": size,
    }
    calls = {
        name: {int(key.removeprefix("R")): _value(value) for key, value in call.items()}
        for name, call in known["calls"].items()
    }
    divisors = [value.divide for call in calls.values() for value in call.values()]
    if not all(divisors):
        raise _damaged(folder, "a register's value is divided by 0")
    return common | {"calls": calls}


def _encoder(folder: Path, known: dict[str, Any]) -> Host:
    entry, result = (_tensor(name, known[name]) for name in ("input", "output"))
    common, batch = _common(folder, known), int(known["batch"])
    for name, tensor in (("input", entry), ("output", result)):
        addr = int(known[name]["addr"])
        if addr < 0 or not 0 < tensor.rows * tensor.stride <= common["memory_bytes"] - addr:
            raise _damaged(folder, f"{name} is outside of memory_bytes")
    if not 1 <= batch <= entry.rows:
        raise _damaged(folder, f"batch is {batch}, not from 1 to {entry.rows}")
    places = int(known["places"])
    if places < entry.rows // batch:
        raise _damaged(folder, f"places is {places}, less than an input's rows")
    return Host(
        **common,
        input=entry,
        input_piece=_piece(known["input"], entry),
        output=result,
        output_piece=_piece(known["output"], result),
        unit=bool(known["unit"]),
        follows=bool(known["follows"]),
        batch=batch,
        places=places,
        cache=Cache(places, 0),
        writes={int(request["rows"]): _writes(request) for request in known["requests"]},
    )


def _tensor(name: str, known: dict[str, Any]) -> Tensor:
    size = int(known["rows"]), int(known["columns"])
    return Tensor(name, name, *size, float(known["scale"]), known["zero_point"], known["bits"])


def _piece(known: dict[str, Any], tensor: Tensor) -> Piece:
    return Piece(int(known["addr"]), tensor.rows, tensor.stride)


def _writes(known: dict[str, Any]) -> Writes:
    return tuple((int(write["addr"]), bytes.fromhex(write["hex"])) for write in known["writes"])


def _decoder(folder: Path, described: dict[str, Any]) -> Host:
    common = _common(folder, described)
    cache, source, logits = (described[name] for name in ("cache", "source", "logits"))
    vocabulary, scale = int(described["vocabulary"]), float(logits["scale"])
    return Host(
        **common,
        input=Tensor("input", "input", 1, 1, 1.0, 0, 2 * WIDE),
        input_piece=Piece(0, 0, 0),
        output=Tensor("logits", "logits", 1, vocabulary, scale, 0, WIDE),
        output_piece=Piece(logits["addr"], logits["rows"], logits["row_bytes"]),
        cache=Cache(cache["capacity"], cache["sinks"], cache["recompute"]),
        kv_bits=int(cache["bits"]),
        kv_block=int(cache["block"]),
        places=int(described["places"]),
        rows=int(described["rows"]),
        resident=bool(described["resident"]),
        slots=int(described["slots"]),
        scratchpad_bytes=int(described["scratchpad_bytes"]),
        start=int(source["start"]),
        lookups=int(source["lookups"]),
        source_positions=int(source["positions"]),
        batch=int(described.get("texts", 1)),
    )


def _value(register: dict[str, Any]) -> RegisterFormula:
    return RegisterFormula(**{**register, "index": RunNumber(register["index"])})


def _written(names: list[str]) -> list[Written]:
    return [Written(name) for name in names]


def _fill(folder: Path, described: dict[str, Any]) -> Fill:
    place = folder / MANIFEST
    image = _read(inside(folder, described["image"], place), described["image_bytes"])
    program, words = described["program"], list[int]()
    if program is not None:
        words = _words(inside(folder, program, place), described["words"])
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
