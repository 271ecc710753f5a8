"""The manifest of a compiled model, in one format for encoders and decoders."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.tokenizer import TextTokenizer, TokenizerLike
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.residence import TEXT_REGISTERS
from celosia.generators.program.image import Piece
from celosia.generators.runtime.host import Host

PROGRAM_HEX = "program.hex"
"""File of the program as text, one 32-bit word a line."""
PROGRAM = "program.bin"
CONFIG = "config.toml"
IMAGE = "image.bin"
FORMAT = 3
"""Version of the format; the first version had no number."""
ENCODER, DECODER = "encoder", "decoder"
"""Kinds of models."""
_HOST = (
    "before: text to tokens",
    "after: the next token chosen, by ARGMAX or from the logits, and decoded to text",
)
REGISTER_BYTES = 4
"""Bytes between consecutive registers."""


def register_offset(name: str) -> int:
    """Return the byte offset of a register in the host port's register map."""
    return REGISTER_BYTES * REGISTER_MAP[name].addr


def manifest(
    code: Host,
    source: Source | TextSource,
    made: Mapping[str, Any],
    names: Sequence[str] = (),
    *,
    latency: int,
    interval: int,
    bits: int = OPERAND_BITS,
) -> dict[str, Any]:
    """Return the manifest of a compiled model: the facts that a host needs to load and run it.

    ``code`` is the compiled model, ``source`` the float model, ``made`` facts about the
    quantization. ``names`` are labels of the output's columns. Cycles are predicted for a memory
    with ``latency`` and ``interval`` (cycles), and the upper ``bits`` bits of each weight.
    """
    config, text = code.config.replace(trace=False), code.reads_tokens
    cycles = None
    if config.micro is None:
        cycles = code.predict_longest(latency, interval, bits=bits)
    return {
        "format": FORMAT,
        "kind": DECODER if text else ENCODER,
        "model": code.name,
        "configuration": config.fields(),
        "program": {
            "words": len(code.words),
            "entries": {name: entry.pc for name, entry in code.entries.items()},
        },
        "setup": [
            {
                "image": IMAGE if fill is code.setup[-1] else f"setup_{number}_image.bin",
                "image_bytes": len(fill.image),
                "program": f"setup_{number}.bin" if fill.words else None,
                "words": len(fill.words),
                "tensors": [tensor.name for tensor in fill.written],
            }
            for number, fill in enumerate(code.setup)
        ],
        "memory_bytes": code.memory_bytes,
        "tensors": {
            name: [tensor.name for tensor in entry.written] for name, entry in code.entries.items()
        },
        "made": dict(made),
        "host": _host_steps(source),
        "cycles": cycles,
        "memory": {"latency": latency, "interval": interval},
        "registers": {name: register_offset(name) for name in REGISTER_MAP},
        **(_text(code) if code.reads_tokens else _encoder(code, names, bits)),
    }


def _host_steps(source: Source | TextSource) -> list[str]:
    """Return descriptions of a model's steps that run on the host, in execution order."""
    if isinstance(source, TextSource):
        return [*_HOST]
    model = source.description
    steps = [f"before: {step.name} ({step.what})" for step in source.before]
    if model.embedding == "tokens":
        steps.append("before: rows of tokens looked up, and those of types and positions added")
    elif model.embedding == "none" and (model.positions == "learned" or model.class_token):
        steps.append("before: class token put before the rows, and positions added")
    if model.unit:
        steps.append("after: each row of the output scaled to length 1")
    return steps + [f"after: {step.name} ({step.what})" for step in source.after]


def _encoder(compiled: Host, names: Sequence[str], bits: int) -> dict[str, Any]:
    """Return an encoder's part of the manifest.

    The registers of ``requests`` are those of ``calls`` for each number of rows. For each
    inference a host writes the quantized input and the request for its number of rows,
    starts the program at ``start``, and reads the output. The host may start at ``again`` instead
    if the previous inference ended without an error, and no reset followed. ``encode.4`` and
    ``encode.2`` are the entry points that read 4 and 2 bits of nested weights.

    If ``unit``, the host scales the output's rows to length 1. With ``follows`` the output of a
    shorter input is shorter by the same number of rows. In a ``batch`` the rows of all inputs are
    concatenated, and so are the rows of all outputs.
    """
    requests = {rows: compiled.request_at(rows) for rows in compiled.writes}
    return {
        "start": compiled.run(bits=bits).entry,
        "calls": _calls(compiled),
        "places": compiled.places,
        "batch": compiled.batch,
        "input": _tensor(compiled.input, compiled.input_piece),
        "output": _tensor(compiled.output, compiled.output_piece),
        "unit": compiled.unit,
        "follows": compiled.follows,
        "requests": [
            {
                "rows": rows,
                "registers": {f"R{number}": value for number, value in request.registers.items()},
                "writes": [{"addr": addr, "hex": data.hex()} for addr, data in request.writes],
            }
            for rows, request in requests.items()
        ],
        "labels": list(names),
    }


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


def _text(program: Host) -> dict[str, Any]:
    """Return a decoder's part of the manifest.

    Before a host starts the program at an entry point, it writes the registers in ``calls``. Each
    register's value is computed from its ``index``
    (:class:`celosia.generators.program.calls.RunNumber`): modulo ``modulo`` unless that is 0, then
    divided by ``divide`` and rounded down, then times ``times``. ``cycles`` are predicted for
    ``position``; for several texts they are the cycles of one step of all texts.
    ``text_registers`` is the distance between the registers of several ``texts`` in a run.
    """
    several = {"texts": program.batch, "text_registers": TEXT_REGISTERS}
    return {
        "calls": _calls(program),
        "rows": program.rows,
        **(several if program.batch > 1 else {}),
        "vocabulary": program.vocabulary,
        "places": program.places,
        "cache": asdict(program.cache) | {"bits": program.kv_bits, "block": program.kv_block},
        "source": {
            "positions": program.source_positions,
            "lookups": program.lookups,
            "start": program.start,
        },
        "logits": {
            "addr": program.output_addr,
            "rows": program.output_piece.m,
            "row_bytes": program.output_piece.row_bytes,
            "columns": program.vocabulary,
            "type": "int16",
            "scale": program.output.scale,
            "zero_point": 0,
        },
        "resident": program.resident,
        "slots": program.slots,
        "scratchpad_bytes": program.scratchpad_bytes,
        "position": program.last_position,
    }


def _calls(program: Host) -> dict[str, dict[str, Any]]:
    """Return the formulas of the registers that a host writes before each program."""
    return {
        name: {f"R{register}": asdict(value) for register, value in call.items()}
        for name, call in program.calls.items()
    }


def tokenizer_entry(tokenizer: TokenizerLike, file: str | None) -> dict[str, Any]:
    """Return the manifest's entry that describes a tokenizer, a dictionary.

    - ``file``: name of the tokenizer's file, or None.
    - ``begin``: token that begins a text.
    - ``ends``: tokens that end a text.
    - ``split``: true if special tokens are encoded as ordinary text.
    - ``cleaned``: true if decoding removes spaces before punctuation.
    """
    return {
        "file": file,
        "begin": tokenizer.begin,
        "ends": sorted(tokenizer.ends),
        "split": isinstance(tokenizer, TextTokenizer) and tokenizer.split,
        "cleaned": isinstance(tokenizer, TextTokenizer) and tokenizer.cleaned,
    }
