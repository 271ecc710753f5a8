"""The manifest of a compiled model, in one format for encoders and decoders."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.program.executable import Executable
from celosia.generators.runtime.encoder_host import EncoderHost
from celosia.generators.runtime.text_host import TextHost

PROGRAM_HEX = "program.hex"
"""File of the program as text, one 32-bit word a line."""
PROGRAM = "program.bin"
CONFIG = "config.toml"
IMAGE = "image.bin"
MANIFEST = "model.json"
FORMAT = 2
"""Version of the format; the first version had no number."""
ENCODER, DECODER = "encoder", "decoder"
"""Kinds of models."""
REGISTER_BYTES = 4
"""Bytes between consecutive registers."""


def register_offset(name: str) -> int:
    """Return the byte offset of a register in the host port's register map."""
    return REGISTER_BYTES * REGISTER_MAP[name].addr


def program_files(code: Executable) -> dict[str, str | bytes]:
    """Return the files of the concatenated programs and the configuration, by file name."""
    return {
        PROGRAM_HEX: "".join(f"{word:08x}\n" for word in code.words),
        PROGRAM: word_bytes(code.words),
        CONFIG: code.config.replace(trace=False).to_toml(),
    }


def word_bytes(words: Sequence[int]) -> bytes:
    """Return program words as bytes, least significant byte first."""
    return np.array(words, "<u4").tobytes()


def described(
    code: EncoderHost | TextHost,
    made: Mapping[str, Any],
    host: Sequence[str],
    setup: Sequence[Mapping[str, Any]],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, Any]:
    """Return the part of the manifest that encoders and decoders share.

    A host writes the images of ``setup`` to external memory from address 0 on, one after another.
    If an image has a program, the host loads it, starts it at word 0 and waits for its end. Then it
    loads ``program``; ``entries`` are word addresses in it. ``tensors`` names the tensors that each
    entry's vector instructions write, in execution order. ``made`` contains figures about the
    quantization, ``host`` the steps of the model that the host runs.

    ``cycles`` are predicted for the longest input or the last token, with weights read with
    ``bits`` bits; a microcoded machine has no prediction. Addresses are in bytes.
    """
    config = code.config.replace(trace=False)
    cycles = None
    if config.micro is None:
        cycles = code.predict_whole(latency, interval, bits=bits)
    return {
        "format": FORMAT,
        "kind": DECODER if isinstance(code, TextHost) else ENCODER,
        "model": code.name,
        "configuration": config.fields(),
        "program": {
            "words": len(code.words),
            "entries": {name: entry.pc for name, entry in code.entries.items()},
        },
        "setup": list(setup),
        "memory_bytes": code.memory_bytes,
        "tensors": {
            name: [tensor.name for tensor in entry.written] for name, entry in code.entries.items()
        },
        "made": dict(made),
        "host": list(host),
        "cycles": cycles,
        "memory": {"latency": latency, "interval": interval},
        "registers": {name: register_offset(name) for name in REGISTER_MAP},
    }
