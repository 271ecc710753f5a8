"""A compiled decoder in C99: programs, memory images, register values and tokens as arrays."""

from collections.abc import Mapping, Sequence

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.c_samples import Sample, one_sample, several_samples
from celosia.generators.export.c_source import (
    WIDTH,
    array,
    identifier,
    initializer,
    model_files,
    string,
    words,
)
from celosia.generators.export.manifest import register_offset
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.lower.residence import of_text
from celosia.generators.program.calls import Call, RunNumber
from celosia.generators.program.executable import CHUNK, SCORES, STEP, Fill, entry_at
from celosia.generators.runtime.host import Host

CALLS = {STEP: "step", "words": "words", CHUNK: "chunk", "logits": "scores"} | {
    name: name for name in ("lookup", "encode")
}
"""The driver's names of the programs, in its order, without those for a second text."""
_WITH_BITS = (STEP, CHUNK, SCORES)
_SECOND = "second"  # the driver's name for the second text's programs
_LONGEST = 255  # bytes of a token


def text_c_files(
    program: Host,
    tokenizer: TokenizerLike,
    samples: Sequence[Sample],
    bits: int = OPERAND_BITS,
) -> dict[str, str | bytes]:
    """Return the C files of a compiled decoder (model, samples, driver) by file name.

    ``samples`` has a sample text for each text of a batch. The exported program reads the upper
    ``bits`` bits of each weight. Raises :class:`InputError` if a token has too many bytes, or a
    Python package is missing.
    """
    name = identifier(program.name)
    modules, made = ["celosia", "celosia_text"], one_sample(name, samples[0])
    calls = {which: call for which, call in program.calls.items() if which in CALLS}
    fields = _fields(program, calls, bits)
    fields.append(f".stripped = {int(_is_stripped(tokenizer, program.vocabulary))},")
    if program.batch > 1:
        modules, made = [*modules, "celosia_texts"], several_samples(name, samples)
        calls[_SECOND] = {of_text(register, 1): value for register, value in calls[STEP].items()}
        own = _call(program, SCORES, _SECOND, len(calls[_SECOND]), bits)
        fields = [".both = {", *(f"    {line}" for line in fields), "},", f".{_SECOND} = {own},"]
    pieces = (_piece(tokenizer, token) for token in range(program.vocabulary))
    texts = (f"(const uint8_t *){string(piece)}" for piece in pieces)
    fills = (
        f"{{image_{number}, setup_{number}, {len(fill.image)}, {len(fill.words)}}}"
        for number, fill in enumerate(program.setup)
    )
    arrays = [
        *(line for number, fill in enumerate(program.setup) for line in _fill(number, fill)),
        *(line for which, call in calls.items() for line in _values(which, call)),
        *array("static const uint8_t *const pieces", texts, 4),
        *array("static const celosia_fill_t setup", fills, 1),
    ]
    return model_files(program, modules, arrays, fields, made)


def _fields(program: Host, calls: Mapping[str, Call], bits: int) -> list[str]:
    """Return the initializers of the fields that all models have, for one or several texts."""
    vocabulary = program.vocabulary
    scores = (program.output_addr, 1, vocabulary, 16, 0, program.output.scale.hex())
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
        "argmax": int(program.config.vector.argmax),
    }
    return [
        f".name = {string(program.name)},",
        ".setup = setup,",
        ".program = program,",
        *(
            f".{name} = {_call(program, which, which, len(calls[which]), bits)},"
            if which in calls
            else f".{name} = {{0, 0, NULL}},"
            for which, name in CALLS.items()
        ),
        *(f".{field} = {value}," for field, value in numbers.items()),
        f".logits = {initializer(scores)},",
        ".pieces = pieces,",
    ]


def _piece(tokenizer: TokenizerLike, token: int) -> bytes:
    """Return the bytes that a token adds to a text, after their number; none for an end token."""
    data = b"" if token in tokenizer.ends else tokenizer.piece(token, token)
    if len(data) > _LONGEST:
        raise InputError(f"Token {token} has {len(data)} bytes, but at most {_LONGEST} may be")
    return bytes([len(data)]) + data


def _is_stripped(tokenizer: TokenizerLike, vocabulary: int) -> bool:
    """Return whether the tokenizer omits the leading space of a text's first piece."""
    first = -1 if tokenizer.begin is None else tokenizer.begin
    return any(
        tokenizer.piece(token, first) != tokenizer.piece(token, token)
        for token in range(vocabulary)
        if token not in tokenizer.ends
    )


def _fill(number: int, fill: Fill) -> list[str]:
    """Return the arrays of a program that loads data into on-chip memory."""
    return [
        *array(f"static const uint32_t image_{number}", words(fill.image or bytes(4))),
        *array(f"static const uint32_t setup_{number}", words(fill.words)),
    ]


def _values(which: str, call: Call) -> list[str]:
    """Return the array of the registers that a program needs."""
    order = [*RunNumber]
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
    return array(f"static const celosia_value_t {which}_values", map(initializer, rows), WIDTH // 4)


def _call(program: Host, which: str, values: str, count: int, bits: int) -> str:
    """Return the initializer of a program with ``count`` register ``values``."""
    entry = program.entries[entry_at(which, bits) if which in _WITH_BITS else which]
    return f"{{{entry.pc}, {count}, {f'{values}_values' if count else 'NULL'}}}"
