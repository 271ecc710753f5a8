"""The manifest of a compiled model: one form for encoders and decoders."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.program.executable import Executable
from celosia.generators.runtime.encoder_host import EncoderHost
from celosia.generators.runtime.text_host import TextHost

PROGRAM_HEX = "program.hex"
"""The program as text, a word of 32 bits a line."""
PROGRAM = "program.bin"
CONFIG = "config.toml"
IMAGE = "image.bin"
MANIFEST = "model.json"
FORMAT = 2
"""Number of the form of the files; those before had none."""
ENCODER, DECODER = "encoder", "decoder"
"""Kinds of models."""
REGISTER_BYTES = 4
"""Bytes from register to register."""


def register_offset(name: str) -> int:
    """Return the byte offset of a register."""
    return REGISTER_BYTES * REGISTER_MAP[name].addr


def program_files(code: Executable) -> dict[str, str | bytes]:
    """Return the programs, one behind the other, and the configuration, by the files' names."""
    return {
        PROGRAM_HEX: "".join(f"{word:08x}\n" for word in code.words),
        PROGRAM: word_bytes(code.words),
        CONFIG: code.config.replace(trace=False).to_toml(),
    }


def word_bytes(words: Sequence[int]) -> bytes:
    """Return words, each with its least significant byte first."""
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
    """Return the part of the manifest that all models share.

    A host writes the images of ``setup`` to external memory from address 0 on, one after the other.
    If an image has a program, the host loads it, starts it at word 0 and waits. Then it loads
    ``program``, whose ``entries`` are words. ``tensors`` names the tensors that each entry's vector
    instructions write, in the order in which they run. ``made`` has the figures of how the model
    was made integers, ``host`` the steps of the model that the machine does not run.
    ``cycles`` are predicted for the longest input, or the last token, of weights that are read at
    ``bits``; a microcoded machine has no prediction. Addresses are bytes.
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
