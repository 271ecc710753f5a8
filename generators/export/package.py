"""A compiled model as files: program, memory image, and what a host must know of both."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.micro.config import MicroConfig
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.frontend.source import Source
from celosia.generators.graph.fewer_planes import BITS, is_nested
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.encoder_compiler import CompiledModel
from celosia.generators.program.executable import AGAIN, ENCODE, entry_at
from celosia.generators.program.image import Piece

REGISTER_BYTES = 4
"""Bytes from register to register."""


@dataclass(frozen=True)
class RowsRequest:
    """Memory and registers for one number of rows, besides the input itself."""

    rows: int
    registers: dict[str, int]
    """Registers of the host port, by name."""
    writes: tuple[tuple[int, bytes], ...]
    """Bytes for external memory, each at an address."""


def requests(compiled: CompiledModel) -> list[RowsRequest]:
    """Return what each number of rows needs; the last has the most rows."""
    source = compiled.input
    least = 1 if compiled.quantized.description.variable else source.rows
    by_rows = []
    for rows in range(least, source.rows + 1):
        request = compiled.request(np.zeros((rows, source.columns)))
        registers = {f"R{number}": value for number, value in request.registers.items()}
        writes = tuple(write for write in request.writes if write[0] != compiled.input_addr)
        by_rows.append(RowsRequest(rows, registers, writes))
    return by_rows


def register_offset(name: str) -> int:
    """Return the byte offset of a register."""
    return REGISTER_BYTES * REGISTER_MAP[name].addr


PROGRAM_HEX = "program.hex"
"""The program as text, a word of 32 bits a line."""
CONFIG = "config.toml"
IMAGE = "image.bin"
MANIFEST = "model.json"


def package(
    compiled: CompiledModel,
    source: Source,
    names: Sequence[str],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, str | bytes]:
    """Return the files of a compiled model by name.

    ``program.hex`` and ``program.bin`` are the program, ``image.bin`` external memory from its
    first byte on, ``config.toml`` the configuration, ``model.json`` the :func:`manifest`. Words
    in ``.bin`` files begin with their least significant byte. ``names`` are those of the
    output's columns; the memory's ``latency`` and ``interval`` (cycles) are what cycles are
    predicted for.
    """
    described = manifest(compiled, source, names, latency=latency, interval=interval, bits=bits)
    return {
        PROGRAM_HEX: "".join(f"{word:08x}\n" for word in compiled.words),
        "program.bin": np.array(compiled.words, "<u4").tobytes(),
        IMAGE: compiled.image.tobytes(),
        CONFIG: compiled.config.to_toml(),
        MANIFEST: json.dumps(described, indent=2) + "\n",
    }


def manifest(
    compiled: CompiledModel,
    source: Source,
    names: Sequence[str],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, Any]:
    """Return what a host must know of a compiled model.

    For each inference it writes the quantized input, then what ``requests`` has for the input's
    rows, starts at the word ``start``, which reads so many ``bits`` of nested weights, and reads
    the output. Where weights stay on the chip, an inference may
    start at the word ``again`` if one has ended well before and nothing was reset since; where
    weights are nested, at those of ``bits``, which read so many of them. ``cycles``
    are predicted for an input of all rows; a microcoded machine has no prediction. The rows of a
    ``batch`` of inputs lie one input behind the other, as those of their outputs do. Addresses
    are bytes.
    """
    quantized, config = compiled.quantized, compiled.config
    model = quantized.description
    microcoded = isinstance(config, MicroConfig)
    predicted = None if microcoded else compiled.predict(latency, interval, bits=bits).cycles
    return {
        "kind": "encoder",
        "model": model.name,
        "configuration": config.fields(),
        "program": {
            "words": len(compiled.words),
            "start": compiled.entries[compiled.entry(again=False, bits=bits)].pc,
            "again": compiled.entries[AGAIN].pc if compiled.keeps else None,
            "bits": {
                str(each): compiled.entries[entry_at(ENCODE, each)].pc
                for each in BITS
                if is_nested(quantized)
            },
        },
        "batch": compiled.batch,
        "image": {"addr": 0, "bytes": len(compiled.image)},
        "memory_bytes": compiled.memory_bytes,
        "input": _tensor(compiled.input, compiled.input_piece),
        "output": _tensor(compiled.output, compiled.output_piece),
        "requests": [
            {
                "rows": request.rows,
                "registers": request.registers,
                "writes": [{"addr": addr, "hex": data.hex()} for addr, data in request.writes],
            }
            for request in requests(compiled)
        ],
        "host": host_steps(source),
        "labels": list(names),
        "cycles": predicted,
        "memory": {"latency": latency, "interval": interval},
        "registers": {name: register_offset(name) for name in REGISTER_MAP},
    }


def host_steps(source: Source) -> list[str]:
    """Return what of a model the machine does not run, in the order in which the host does it."""
    model = source.description
    steps = [f"before: {step.name} ({step.what})" for step in source.before]
    if model.embedding == "tokens":
        steps.append("before: rows of tokens looked up, and those of types and positions added")
    elif model.embedding == "none" and (model.positions == "learned" or model.class_token):
        steps.append("before: class token put before the rows, and positions added")
    if model.unit:
        steps.append("after: each row of the output scaled to length 1")
    return steps + [f"after: {step.name} ({step.what})" for step in source.after]


def _tensor(tensor: Tensor, piece: Piece) -> dict[str, Any]:
    """Return where integers lie, row by row, and what they stand for: scale * (q - zero)."""
    return {
        "addr": piece.addr,
        "rows": tensor.rows,
        "columns": tensor.columns,
        "type": "int16" if tensor.wide else "int8",
        "bits": tensor.width,
        "scale": tensor.scale,
        "zero_point": tensor.zero,
    }
