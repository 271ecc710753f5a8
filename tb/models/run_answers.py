"""Runs a language model on a machine to answer questions, and counts the right answers."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.reference.float_text import FloatText
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_lengths import check_length
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.text_session import TextSession, Turn


def run_answers(
    program: Host,
    tokenizer: TokenizerLike,
    answers: Sequence[tuple[str, str]],
    machine: str | Machine,
    *,
    source: TextSource | None = None,
    timing: MemoryTiming = PROMPT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answer questions by a language model on a machine; return the accuracy and the cycles.

    ``answers`` lists pairs (question, right answer). The float model ``source`` answers the
    questions, too, if it is not None. ``progress`` gets the numbers of answered and of all
    questions. Raises :class:`InputError` for an unusable question or simulator.
    """
    questions = [source_tokens(program, tokenizer, question) for question, _ in answers]
    session = TextSession(program, machine, timing)
    asked, stepped = Turn(), Turn()
    floats = None if source is None else FloatText(source.description, source.weights)

    rate = timing.latency, timing.interval

    @functools.cache
    def to_encode(count: int) -> int:
        return program.cycles(program.source_runs([0] * count), *rate)

    @functools.cache
    def to_step(position: int, count: int) -> int:
        return program.cycles([program.run(position, source=count)], *rate)

    expected: Counter[str] = Counter()

    def ask(tokens: list[int]) -> int:
        """Give the machine a question, and return the first token after it."""
        if not program.lookups:
            session.begin()
            asked.add(session.take(tokens))
            session.turns.clear()
            return session.choose()
        asked.add(session.encode(tokens))
        expected["source"] += to_encode(len(tokens))
        return step(program.start)

    def step(token: int) -> int:
        """Give the machine a token, and return the next one."""
        session.step(token)
        expected["answer"] += to_step(session.length - 1, session.source)
        return session.choose()

    wrong, right = list[list[str]](), 0
    for done, (tokens, (question, answer)) in enumerate(zip(questions, answers, strict=True)):
        places = program.places - (0 if program.lookups else len(tokens) - 1)
        talk = _Talk(tokenizer, [] if program.lookups else tokens, answer, places)
        text = talk.through(ask(tokens), step)
        if text != talk.right:
            wrong.append([question, text, answer])
        if floats is not None:
            right += talk.through(floats.begin(tokens), floats.step) == talk.right
        for turn in session.turns:
            stepped.add(turn)
        session.turns.clear()
        if progress is not None:
            progress(done + 1, len(answers))
    timed, paired = asked.cycles > 0, program.lookups > 0
    whole = [session.setup, asked, stepped]
    return {
        "model": program.name,
        "config": program.config.name,
        "answers": len(answers),
        "right": len(answers) - len(wrong),
        "accuracy": 1 - len(wrong) / len(answers),
        "float_accuracy": None if floats is None else right / len(answers),
        "mismatches": sum(turn.mismatches for turn in whole),
        "tensors": sum(turn.tensors for turn in whole),
        "source_cycles": asked.cycles if timed else None,
        "predicted_source_cycles": expected["source"] if timed and paired else None,
        "answer_cycles": stepped.cycles if timed else None,
        "predicted_answer_cycles": expected["answer"] if timed else None,
        "setup_cycles": session.setup.cycles or None,
        "program_words": len(program.words),
        "wrong": wrong,
    }


class _Talk:
    """An answer that grows token by token."""

    def __init__(self, tokenizer: TokenizerLike, asked: list[int], answer: str, places: int):
        """Store the tokens before the answer, the right answer, and its most tokens."""
        self._tokenizer, self._asked, self._places = tokenizer, asked, places
        self.right = answer.strip() if asked else answer

    def through(self, token: int, step: Callable[[int], int]) -> str:
        """Return the answer that begins with a token; ``step`` returns its further ones."""
        tokens = [token]
        while not self._is_over(tokens):
            tokens.append(step(tokens[-1]))
        return self._text(tokens)

    def _is_over(self, tokens: list[int]) -> bool:
        # An answer to a prompt ends when it is longer than the right one. Without end tokens, it
        # ends when it is as long.
        ends = self._tokenizer.ends
        if tokens[-1] in ends or len(tokens) >= self._places:
            return True
        missing = len(self.right) - len(self._text(tokens)) if self._asked else 1
        return missing < (0 if ends else 1)

    def _text(self, tokens: list[int]) -> str:
        decode = self._tokenizer.decode
        if not self._asked:
            return decode(tokens)
        return decode([*self._asked, *tokens])[len(decode(self._asked)) :].strip()


def source_tokens(program: Host, tokenizer: TokenizerLike, source: str) -> list[int]:
    """Return the tokens of a question: an encoder-decoder's source text, or another model's prompt.

    Raises :class:`InputError` if a token is not in the model's vocabulary, or if the model has too
    few positions for the tokens.
    """
    tokens = tokenizer.encode(source)
    check_length(program, tokens, 1, program.places)
    return tokens
