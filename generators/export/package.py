"""Files of a compiled encoder: program, memory image, and the manifest for a host."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.manifest import IMAGE, MANIFEST, described, program_files
from celosia.generators.frontend.source import Source
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.encoder_compiler import CompiledModel
from celosia.generators.program.image import Piece


@dataclass(frozen=True)
class RowsRequest:
    """Memory contents and registers that a host writes before an inference of ``rows`` rows."""

    rows: int
    registers: dict[str, int]
    """Registers of the host port by name."""
    writes: tuple[tuple[int, bytes], ...]
    """Addresses in external memory, and the bytes to write there."""


def requests(compiled: CompiledModel) -> list[RowsRequest]:
    """Return a request for each number of input rows, in ascending order of rows."""
    found = []
    for rows in range(compiled.least_rows, compiled.input.rows + 1):
        request = compiled.beside(rows)
        registers = {f"R{number}": value for number, value in request.registers.items()}
        found.append(RowsRequest(rows, registers, request.writes))
    return found


def package(
    compiled: CompiledModel,
    source: Source,
    names: Sequence[str],
    made: Mapping[str, Any],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
    origin: Mapping[str, Any] | None = None,
) -> dict[str, str | bytes]:
    """Return the files of a compiled encoder: a dictionary from file name to content.

    ``program.hex`` and ``program.bin`` are the program, ``image.bin`` is external memory from its
    first byte on, ``config.toml`` the configuration, and ``model.json`` the :func:`manifest`. Words
    in ``.bin`` files are least significant byte first. ``origin`` is the manifest's entry on
    loading the float model; None if unknown.
    """
    memory = {"latency": latency, "interval": interval, "bits": bits}
    known = manifest(compiled, source, names, made, **memory) | {"origin": origin}
    return {
        **program_files(compiled),
        IMAGE: compiled.image.tobytes(),
        MANIFEST: json.dumps(known, indent=2) + "\n",
    }


def manifest(
    compiled: CompiledModel,
    source: Source,
    names: Sequence[str],
    made: Mapping[str, Any],
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, Any]:
    """Return an encoder's manifest: the common part from :func:`described`, and the following.

    For each inference a host writes the quantized input and the request for its number of rows,
    starts the program at ``start``, and reads the output. The host may start at ``again`` instead
    if the previous inference ended without an error, and no reset followed. ``encode.4`` and
    ``encode.2`` are the entry points that read 4 and 2 bits of nested weights.

    If ``unit``, the host scales the output's rows to length 1. With ``follows`` the output of a
    shorter input is shorter by the same number of rows. In a ``batch`` the rows of all inputs are
    concatenated, and so are the rows of all outputs. ``names`` are the names of the output's
    columns.
    """
    image = {"image": IMAGE, "image_bytes": len(compiled.image), "program": None, "words": 0}
    memory = {"latency": latency, "interval": interval, "bits": bits}
    return {
        **described(compiled, made, host_steps(source), [image | {"tensors": []}], **memory),
        "start": compiled.entry(again=False, bits=bits),
        "batch": compiled.batch,
        "input": _tensor(compiled.input, compiled.input_piece),
        "output": _tensor(compiled.output, compiled.output_piece),
        "unit": compiled.unit,
        "follows": compiled.follows,
        "requests": [
            {
                "rows": request.rows,
                "registers": request.registers,
                "writes": [{"addr": addr, "hex": data.hex()} for addr, data in request.writes],
            }
            for request in requests(compiled)
        ],
        "labels": list(names),
    }


def host_steps(source: Source) -> list[str]:
    """Return descriptions of a model's steps that run on the host, in execution order."""
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
    """Return the address and layout of integers, and their real values: scale * (q - zero)."""
    return {
        "addr": piece.addr,
        "rows": tensor.rows,
        "columns": tensor.columns,
        "type": "int16" if tensor.wide else "int8",
        "bits": tensor.width,
        "scale": tensor.scale,
        "zero_point": tensor.zero,
    }
