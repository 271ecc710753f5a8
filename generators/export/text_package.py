"""Files of a compiled decoder: programs, memory images, and the manifest for a host."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from celosia.arch.files import reading
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.manifest import (
    IMAGE,
    MANIFEST,
    described,
    program_files,
    word_bytes,
)
from celosia.generators.frontend.text_sources import LLAMA2C_SUFFIX, TextSource, TokenizerLike
from celosia.generators.frontend.tokenizer import TOKENIZER_FILE, TextTokenizer
from celosia.generators.lower.residence import TEXT_REGISTERS
from celosia.generators.runtime.text_host import TextHost

_HOST = (
    "before: text to tokens",
    "after: the next token chosen, by ARGMAX or from the logits, and decoded to text",
)


def text_package(
    program: TextHost,
    source: TextSource,
    made: Mapping[str, Any],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, str | bytes]:
    """Return the files of a compiled decoder: a dictionary from file name to content.

    ``program.hex`` and ``program.bin`` are the decoder's programs, concatenated. ``image.bin`` is
    the content of external memory while these programs run. If all weights stay on the chip,
    ``image.bin`` is the data of the last setup program. The setup programs are ``setup_0.bin`` and
    so on; the images of all but the last one are ``setup_0_image.bin`` and so on. ``config.toml``
    is the configuration, ``model.json`` the :func:`text_manifest`, and the tokenizer's file is
    included. Words in ``.bin`` files are least significant byte first. ``made`` contains figures
    about the quantization.

    Raises :class:`InputError` if the tokenizer's file cannot be read.
    """
    tokenizer = _tokenizer_file(source)
    known = text_manifest(program, made, latency=latency, interval=interval, bits=bits) | {
        "tokenizer": {
            "file": next(iter(tokenizer), None),
            "begin": source.tokenizer.begin,
            "ends": sorted(source.tokenizer.ends),
            **_reading(source.tokenizer),
        }
    }
    written = program_files(program)
    written[MANIFEST] = json.dumps(known, indent=2) + "\n"
    for names, fill in zip(known["setup"], program.setup, strict=True):
        written[names["image"]] = fill.image
        written[names["program"]] = word_bytes(fill.words)
    return {**written, **tokenizer}


def _reading(tokenizer: TokenizerLike) -> dict[str, bool]:
    """Return the options with which a tokenizer.json is read."""
    if not isinstance(tokenizer, TextTokenizer):
        return {"split": False, "cleaned": False}
    return {"split": tokenizer.split, "cleaned": tokenizer.cleaned}


def _tokenizer_file(source: TextSource) -> dict[str, str | bytes]:
    """Return the tokenizer's file, under a name that identifies its format."""
    path = source.tokenizer_file
    if isinstance(source.tokenizer, TextTokenizer):
        return {TOKENIZER_FILE: source.tokenizer.to_json().encode()}
    if path is None:
        return {}
    name = f"tokenizer{path.suffix}" if path.suffix == LLAMA2C_SUFFIX else path.name
    with reading(path, "tokenizer"):
        return {name: path.read_bytes()}


def text_manifest(
    program: TextHost,
    made: Mapping[str, Any],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, Any]:
    """Return a decoder's manifest: the common part from :func:`described`, and the following.

    Before a host starts the program at an entry point, it writes the registers in ``calls``. Each
    register's value is computed from its ``index``
    (:class:`celosia.generators.runtime.text_host.Index`): modulo ``modulo`` unless that is 0, then
    divided by ``divide`` and rounded down, then times ``times``. ``cycles`` are predicted for
    ``position``; for several texts they are the cycles of one step of all texts.
    """
    last = len(program.setup) - 1
    setup = [
        {
            "image": IMAGE if number == last else f"setup_{number}_image.bin",
            "image_bytes": len(fill.image),
            "program": f"setup_{number}.bin",
            "words": len(fill.words),
            "tensors": [tensor.name for tensor in fill.written],
        }
        for number, fill in enumerate(program.setup)
    ]
    memory = {"latency": latency, "interval": interval, "bits": bits}
    return {
        **described(program, made, _HOST, setup, **memory),
        "calls": {
            name: {f"R{register}": asdict(value) for register, value in call.items()}
            for name, call in program.calls.items()
        },
        "rows": program.rows,
        **_texts(program),
        "vocabulary": program.vocabulary,
        "places": program.places,
        "cache": asdict(program.cache) | {"bits": program.kv_bits, "block": program.kv_block},
        "source": {
            "positions": program.source_positions,
            "lookups": program.lookups,
            "start": program.start,
        },
        "logits": {
            "addr": program.logits.addr,
            "rows": program.logits.m,
            "row_bytes": program.logits.row_bytes,
            "columns": program.vocabulary,
            "type": "int16",
            "scale": program.logits_step,
            "zero_point": 0,
        },
        "resident": program.resident,
        "slots": program.slots,
        "scratchpad_bytes": program.scratchpad_bytes,
        "position": program.last_position,
    }


def _texts(program: TextHost) -> dict[str, int]:
    """Return the number of texts in a run, and the distance between their registers."""
    if program.texts == 1:
        return {}
    return {"texts": program.texts, "text_registers": TEXT_REGISTERS}
