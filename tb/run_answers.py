"""Sources that an encoder-decoder answers on a machine, and the share that it answers right."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from arch.errors import InputError
from generators.machine import Machine
from generators.quantize.calibrate import Progress
from generators.text_host import TextHost
from generators.text_sources import TokenizerLike
from tb.machines import PROMPT
from tb.memory_timing import MemoryTiming
from tb.text_lengths import check_length
from tb.text_session import TextSession, Turn


def run_answers(
    program: TextHost,
    tokenizer: TokenizerLike,
    answers: Sequence[tuple[str, str]],
    machine: str | Machine,
    *,
    timing: MemoryTiming = PROMPT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answer sources, each given with its right answer, and return figures by name.

    ``machine`` is as in :class:`tb.text_session.TextSession`. The likeliest token is taken, until
    the text ends or there is no place for another. ``accuracy`` is the share of answers that are
    right to the last character, ``wrong`` are the others: source, answer, and what was right.
    ``source_cycles`` and ``answer_cycles`` are those of all sources and of all steps,
    ``predicted_source_cycles`` and ``predicted_answer_cycles`` what was expected of these; all are
    None on a machine that has no clock. ``progress`` receives the answers done.

    Raises :class:`InputError` where the model takes no source, or one cannot be.
    """
    if not program.lookups:
        raise InputError(f"Answers need a model that takes a source, which {program.name} does not")
    sources = [source_tokens(program, tokenizer, source) for source, _ in answers]
    session = TextSession(program, machine, timing)
    encoded, stepped = Turn(), Turn()

    @functools.cache
    def to_encode(count: int) -> int:
        return program.predict_source(count, timing.latency, timing.interval)

    @functools.cache
    def to_step(position: int, count: int) -> int:
        one = program.predict(position, timing.latency, timing.interval, source=count)
        return one.cycles

    expected: Counter[str] = Counter()
    wrong = []
    for done, (tokens, (source, answer)) in enumerate(zip(sources, answers, strict=True)):
        encoded.add(session.encode(tokens))
        expected["source"] += to_encode(len(tokens))
        found: list[int] = []
        while session.length < program.places and not (found and found[-1] in tokenizer.ends):
            session.step(found[-1] if found else program.start)
            expected["answer"] += to_step(session.length - 1, len(tokens))
            found.append(session.choose())
        text = tokenizer.decode(found)
        if text != answer:
            wrong.append([source, text, answer])
        for turn in session.turns:
            stepped.add(turn)
        session.turns.clear()
        if progress is not None:
            progress(done + 1, len(answers))
    timed = encoded.cycles > 0
    whole = [session.setup, encoded, stepped]
    return {
        "model": program.name,
        "config": program.config.name,
        "answers": len(answers),
        "right": len(answers) - len(wrong),
        "accuracy": 1 - len(wrong) / len(answers),
        "mismatches": sum(turn.mismatches for turn in whole),
        "tensors": sum(turn.tensors for turn in whole),
        "source_cycles": encoded.cycles if timed else None,
        "predicted_source_cycles": expected["source"] if timed else None,
        "answer_cycles": stepped.cycles if timed else None,
        "predicted_answer_cycles": expected["answer"] if timed else None,
        "setup_cycles": session.setup.cycles or None,
        "program_words": len(program.words),
        "wrong": wrong,
    }


def source_tokens(program: TextHost, tokenizer: TokenizerLike, source: str) -> list[int]:
    """Return the tokens of a source; raise :class:`InputError` where there are too many."""
    tokens = tokenizer.encode(source)
    check_length(program, tokens, 0, program.places)
    return tokens
