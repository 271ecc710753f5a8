"""A compiled decoder in C99: its programs, images, registers and tokens as constant arrays."""

from collections.abc import Iterable, Sequence

import numpy as np

from arch.formats import OPERAND_BITS
from generators.export.c_source import WIDTH, array, driver, identifier, string
from generators.export.package import register_offset
from generators.lower.fill import Fill
from generators.program.executable import entry_at
from generators.text_host import Call, Index, TextHost
from generators.text_sources import TokenizerLike

CALLS = {"step": "step", "words": "words", "chunk": "chunk", "logits": "scores"} | {
    name: name for name in ("lookup", "encode")
}
"""The driver's names of the programs."""
_WITH_BITS = ("step", "chunk")
_LONGEST = 255  # bytes of a token


def text_c_files(
    program: TextHost,
    tokenizer: TokenizerLike,
    tokens: Sequence[int],
    given: int,
    bits: int = OPERAND_BITS,
) -> dict[str, str | bytes]:
    """Return the driver, the registers' header, the model and a sample by the names of their files.

    The model is ``NAME_model`` in ``NAME_model.c``, NAME the model's; the sample are tokens, of
    which the first ``given`` are the host's, and the others the likeliest ones behind them. Nested
    weights are read at so many ``bits``.

    Raises :class:`InputError` where a package that makes the header is missing.
    """
    name = identifier(program.name)
    return {
        **driver("celosia", "celosia_text"),
        f"{name}_model.h": _header(program, name, len(tokens), given),
        f"{name}_model.c": _model(program, tokenizer, name, bits),
        f"{name}_samples.c": "\n".join(
            [
                f'#include "{name}_model.h"\n',
                *array(f"const uint32_t {name}_sample_tokens", map(str, tokens)),
            ]
        ),
    }


def _header(program: TextHost, name: str, tokens: int, given: int) -> str:
    upper = name.upper()
    return f"""\
/* Model {program.name} for configuration {program.config.name}. */
#ifndef {upper}_MODEL_H
#define {upper}_MODEL_H

#include "celosia_text.h"

#define {upper}_SAMPLE_TOKENS {tokens}
#define {upper}_SAMPLE_GIVEN {given} /* of these: the source, or what the text begins with */

extern const celosia_text_model_t {name}_model;

/* Tokens that are given, and the likeliest ones behind them. */
extern const uint32_t {name}_sample_tokens[];

#endif
"""


def _model(program: TextHost, tokenizer: TokenizerLike, name: str, bits: int) -> str:
    """Return the source of a model."""
    logits, vocabulary = program.logits, program.vocabulary
    pieces = [_piece(tokenizer, token) for token in range(vocabulary)]
    texts = (f"(const uint8_t *){string(piece)}" for piece in pieces)
    scores = (logits.addr, 1, vocabulary, 16, 0, program.logits_step.hex())
    numbers = {
        "setup_count": len(program.setup),
        "program_words": len(program.words),
        "memory_bytes": program.memory_bytes,
        "rows": program.rows,
        "capacity": program.cache.capacity,
        "sinks": program.cache.sinks,
        "places": program.places,
        "vocabulary": vocabulary,
        "begin": program.start,
        "lookups": program.lookups,
        "sources": program.source_positions,
        "argmax": int(program.config.argmax),
    }
    return "\n".join(
        [
            f'#include "{name}_model.h"\n',
            *(line for number, fill in enumerate(program.setup) for line in _fill(number, fill)),
            *array("static const uint32_t program", _hex(program.words)),
            *(line for which, call in program.calls.items() for line in _values(which, call)),
            *array("static const uint8_t *const pieces", texts, 4),
            *array(
                "static const celosia_fill_t setup",
                (
                    f"{{image_{number}, setup_{number}, {len(fill.image)}, {len(fill.words)}}}"
                    for number, fill in enumerate(program.setup)
                ),
                1,
            ),
            f"const celosia_text_model_t {name}_model = {{",
            f"    .name = {string(program.name)},",
            "    .setup = setup,",
            "    .program = program,",
            *(f"    .{CALLS[which]} = {_call(program, which, bits)}," for which in program.calls),
            *(f"    .{field} = {value}," for field, value in numbers.items()),
            f"    .logits = {{{', '.join(map(str, scores))}}},",
            "    .pieces = pieces,",
            "};\n",
        ]
    )


def _piece(tokenizer: TokenizerLike, token: int) -> bytes:
    """Return the bytes of a token as a text, none of an end, behind their number."""
    data = b"" if token in tokenizer.ends else tokenizer.piece(token, -1)[:_LONGEST]
    return bytes([len(data)]) + data


def _fill(number: int, fill: Fill) -> list[str]:
    """Return the arrays of a program that fills the chip."""
    image = np.frombuffer(fill.image + bytes(-len(fill.image) % 4), "<u4")
    words = [int(word) for word in image] or [0]
    return [
        *array(f"static const uint32_t image_{number}", _hex(words)),
        *array(f"static const uint32_t setup_{number}", _hex(fill.words)),
    ]


def _hex(words: Iterable[int]) -> Iterable[str]:
    return (f"0x{word:08x}" for word in words)


def _values(which: str, call: Call) -> list[str]:
    """Return the array of the registers that a program takes."""
    order = [*Index]
    rows = (
        (
            register_offset(f"R{register}"),
            order.index(value.index),
            value.row,
            value.times,
            value.divide,
            value.modulo,
        )
        for register, value in call.items()
    )
    values = (f"{{{', '.join(map(str, row))}}}" for row in rows)
    return array(f"static const celosia_value_t {which}_values", values, WIDTH // 4)


def _call(program: TextHost, which: str, bits: int) -> str:
    """Return the initializer of a program; without registers it names none."""
    entry = program.entries[entry_at(which, bits) if which in _WITH_BITS else which]
    call = program.calls[which]
    return f"{{{entry.pc}, {len(call)}, {f'{which}_values' if call else 'NULL'}}}"
