"""Files of a compiled model: programs, memory images, and the manifest for a host."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celosia.arch.files import reading
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.folder import ORIGIN
from celosia.generators.export.manifest import (
    CONFIG,
    PROGRAM,
    PROGRAM_HEX,
    manifest,
    tokenizer_entry,
)
from celosia.generators.frontend.other_files import MANIFEST
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import LLAMA2C_SUFFIX, TextSource
from celosia.generators.frontend.tokenizer import TOKENIZER_FILE, TextTokenizer
from celosia.generators.runtime.host import Host


def package(
    code: Host,
    source: Source | TextSource,
    made: Mapping[str, Any],
    names: Sequence[str] = (),
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
    origin: Mapping[str, Any] | None = None,
) -> dict[str, str | bytes]:
    """Return the files of a compiled model: a dictionary from file name to content.

    The files are programs, configuration, manifest, memory images, and a decoder's tokenizer.
    ``origin`` is the manifest's entry on the float model. Raises :class:`InputError` if the
    tokenizer's file cannot be read.
    """
    memory = {"latency": latency, "interval": interval, "bits": bits}
    known, tokenizer = manifest(code, source, made, names, **memory), dict[str, str | bytes]()
    if isinstance(source, TextSource):
        tokenizer = _tokenizer_file(source)
        known["tokenizer"] = tokenizer_entry(source.tokenizer, next(iter(tokenizer), None))
    known[ORIGIN] = origin
    written: dict[str, str | bytes] = {
        PROGRAM_HEX: "".join(f"{word:08x}\n" for word in code.words),
        PROGRAM: _word_bytes(code.words),
        CONFIG: code.config.replace(trace=False).to_toml(),
        MANIFEST: json.dumps(known, indent=2) + "\n",
    }
    for paths, fill in zip(known["setup"], code.setup, strict=True):
        written[paths["image"]] = fill.image
        if fill.words:
            written[paths["program"]] = _word_bytes(fill.words)
    return {**written, **tokenizer}


def _word_bytes(words: Sequence[int]) -> bytes:
    """Return program words as bytes, least significant byte first."""
    return np.array(words, "<u4").tobytes()


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
