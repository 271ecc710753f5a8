"""Continuation of a prompt by a language model on a machine, with the cycles of each token."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import Engine
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.reference.sampling import Sampling, draw
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_lengths import check_length
from celosia.sim.report import engine_cycles, where
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.run_answers import source_tokens
from celosia.tb.models.text_session import TextSession, Turn

REPORTED_MHZ = 50
"""Clock (MHz) for which a simulated text's tokens per second are given."""


def run_text(
    program: Host,
    tokenizer: TokenizerLike,
    prompt: str,
    steps: int,
    machine: str | Machine,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
    show: Callable[[str], None] | None = None,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> dict[str, Any]:
    """Continue a prompt by at most ``steps`` tokens; return :meth:`TextRun.figures`.

    ``show`` is called with each piece of the text, first with the prompt. The other arguments and
    the errors are those of :class:`TextRun`.
    """
    sampling = sampling or Sampling()
    run = TextRun(program, tokenizer, prompt, steps, machine, sampling, seed, timing, bits)
    for piece in run.pieces():
        if show is not None and piece:
            show(piece)
    return run.figures()


class Pieces:
    """A text that is decoded token by token, and returned in pieces of whole characters."""

    def __init__(self, tokenizer: TokenizerLike):
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self.text = ""

    def add(self, tokens: Sequence[int]) -> str:
        """Add tokens to the text, and return the text's new complete characters.

        A token may contain only some of a character's bytes. Such a character is returned when
        later tokens have completed it.
        """
        self._tokens += tokens
        return self._grown(self._tokenizer.settled(self._tokens))

    def end(self) -> str:
        """Return the characters that :meth:`add` has not returned; call it after the last token."""
        return self._grown(self._tokenizer.decode(self._tokens))

    def _grown(self, text: str) -> str:
        new, self.text = text[len(self.text) :], text
        return new


class TextRun:
    """A run of a language model on a machine, which continues a prompt by at most ``steps`` tokens.

    An encoder-decoder generates an answer to the prompt. ``machine`` is a machine or a simulator's
    name. New token i, counted from 0, is computed from the upper ``bits[i % len(bits)]`` bits of
    each weight. Raises :class:`InputError` for a wrong argument.
    """

    def __init__(
        self,
        program: Host,
        tokenizer: TokenizerLike,
        prompt: str,
        steps: int,
        machine: str | Machine,
        sampling: Sampling,
        seed: int = 1,
        timing: MemoryTiming = PROMPT,
        bits: Sequence[int] = (OPERAND_BITS,),
    ):
        if steps < 1:
            raise InputError(f"Steps must be at least 1, not {steps}")
        self.tokens, self._source = tokenizer.encode(prompt), list[int]()
        if program.lookups:
            self._source = source_tokens(program, tokenizer, prompt)
            self.tokens = [program.start]
            steps = min(steps, program.places)
        else:
            check_length(program, self.tokens, steps, program.places)
        self._tokenizer, self._steps = tokenizer, steps
        self._sampling, self._bits = sampling, bits
        self._rng = np.random.default_rng(seed)
        self.session = TextSession(program, machine, timing)
        self._pieces = Pieces(tokenizer)
        self._encoded = self._first = Turn()
        self._turns: list[Turn] = []
        self._seconds = 0.0

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces: first the prompt, then a piece for each new token.

        A piece is empty if the token's last character still lacks bytes.
        """
        session, source, began = self.session, self._source, time.perf_counter()
        self._encoded = session.encode(source) if source else Turn()
        session.bits = self._bits[0]
        self._first = session.take(self.tokens)
        yield self._pieces.add([] if source else self.tokens)
        for number in range(self._steps):
            if number:
                session.bits = self._bits[number % len(self._bits)]
                self._turns.append(session.step(self.tokens[-1]))
            token = self._choose()
            if token in self._tokenizer.ends:
                break
            self.tokens.append(token)
            yield self._pieces.add([token])
        yield self._pieces.end()
        self._seconds = time.perf_counter() - began

    def _choose(self) -> int:
        if self._sampling.greedy:
            return self.session.choose()
        logits = self.session.logits() * self.session.program.output.scale
        return draw(logits, self._sampling, self._rng)

    def figures(self) -> dict[str, Any]:
        """Return the text and the measurements of the run, a dictionary from name to value.

        A step processes one token after the prompt. The value of ``cycles`` is a list with the
        cycles of each step. The values of ``cycles_per_token``, ``predicted_cycles`` and
        ``external_bytes`` are those of the last step. On a machine without a clock, cycles are
        None.
        """
        return {
            "text": self._pieces.text,
            "tokens": self.tokens,
            **_figures(self.session, self._first, self._turns),
            **(_source_figures(self.session, self._encoded) if self._source else {}),
            "seconds": self._seconds,
        }


def _figures(session: TextSession, first: Turn, turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the cycles and further figures of the prompt and each token."""
    program, timing = session.program, session.timing
    cycles = [turn.cycles for turn in turns]
    timed = bool(turns) and cycles[0] > 0
    run = program.run(session.length - 1, source=session.source, bits=session.bits)
    expected = program.expect(run, timing.latency, timing.interval)
    return {
        **run_figures(session, turns, [session.setup, first, *turns]),
        "recompute": program.cache.recompute,
        "last_position": session.length - 1,
        "cycles_per_token": cycles[-1] if timed else None,
        "predicted_cycles": expected.cycles if timed else None,
        "prompt_tokens": session.length - len(turns),
        "prompt_cycles": first.cycles or None,
        "cycles": cycles if timed else None,
    }


def run_figures(
    session: TextSession, turns: Sequence[Turn], compared: Sequence[Turn]
) -> dict[str, Any]:
    """Return the measurements of a session with a language model, a dictionary from name to value.

    ``turns`` are runs that process one token of each text. The values of ``macs`` and
    ``external_bytes`` are those of the last of these runs. ``compared`` are the runs whose tensors
    were compared. Values that the machine cannot measure are None or empty.
    """
    program, config = session.program, session.program.config
    spent: Counter[str] = Counter()
    for turn in turns:
        spent.update(turn.counters)
    last = turns[-1] if turns else Turn()
    timed = last.cycles > 0
    counted = timed and config.control.counters
    cycles = sum(turn.cycles for turn in turns)
    mean = cycles / len(turns) / program.batch if timed else None
    moved = last.counters["loaded"] + last.counters["stored"]
    return {
        "model": program.name,
        "config": config.name,
        "kv_bits": program.kv_bits,
        "kv_blocks": program.kv_block,
        "resident": program.resident,
        "multipliers": config.elements,
        "mismatches": sum(turn.mismatches for turn in compared),
        "tensors": sum(turn.tensors for turn in compared),
        "mean_cycles_per_token": mean,
        "clock_mhz": REPORTED_MHZ,
        "tokens_per_second": REPORTED_MHZ * 1e6 / mean if mean else None,
        "setup_cycles": session.setup.cycles or None,
        "macs": last.counters["macs"],
        "macs_busy": last.counters["macs"] / config.elements / last.cycles if counted else None,
        "external_bytes": moved * config.mem_bytes if counted else None,
        "program_words": len(program.words),
        "slots": program.slots,
        "scratchpad_bytes": program.scratchpad_bytes,
        "memory_bytes": program.memory_bytes,
        "where": where(spent) if counted else {},
        "engines": engines(spent) if counted else {},
        "counters": dict(spent),
    }


def _source_figures(session: TextSession, encoded: Turn) -> dict[str, Any]:
    """Return the figures of the source, with the mismatches and tensors of the whole text."""
    timing, timed = session.timing, encoded.cycles > 0
    runs = session.program.source_runs([0] * session.source)
    expected = session.program.cycles(runs, timing.latency, timing.interval)
    whole = [session.setup, encoded, *session.turns]
    return {
        "source_tokens": session.source,
        "source_cycles": encoded.cycles if timed else None,
        "predicted_source_cycles": expected if timed else None,
        "mismatches": sum(turn.mismatches for turn in whole),
        "tensors": sum(turn.tensors for turn in whole),
    }


def engines(spent: Counter[str]) -> dict[str, dict[str, int]]:
    """Return the cycles of each engine by activity, from the machine's counters ``spent``.

    The result is a dictionary from engine to a dictionary from activity to cycles.
    """
    names = [engine.name.lower() for engine in Engine]
    return {name: engine_cycles(spent, name) for name in names}
