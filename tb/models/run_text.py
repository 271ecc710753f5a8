"""Goes on with a prompt on a machine, and tells what each token took."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import Engine
from celosia.generators.frontend.text_sources import TokenizerLike
from celosia.generators.reference.sampling import Sampling, draw
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_host import TextHost
from celosia.generators.runtime.text_lengths import check_length
from celosia.sim.report import engine_cycles, where
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.run_answers import source_tokens
from celosia.tb.models.text_session import TextSession, Turn


def run_text(
    program: TextHost,
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
    """Go on with a prompt by at most ``steps`` tokens, and return text and figures by name.

    Of an encoder-decoder the prompt is the source, and the text its answer, of at most as many
    tokens as it has places; ``source_cycles`` are those of its encoder, and
    ``predicted_source_cycles`` those that are to be expected.

    ``machine`` is as in :class:`celosia.tb.models.text_session.TextSession`.
    ``show`` is given the text piece by piece, prompt first. ``cycles_per_token`` is that of the
    last token, at position ``last_position``, ``mean_cycles_per_token`` that of all but those of
    the prompt, ``cycles`` each; all are None on a machine that has no clock. ``external_bytes`` is
    what the last token moved over the external port. ``where`` gives the cycles of all of these
    tokens by what the array did (``celosia.sim.report.where``), ``engines`` those of each engine.
    ``predicted_cycles`` are those that are to be expected of the last token. Prompt and tokens are
    computed with ``bits`` of nested weights in turn.

    Raises :class:`InputError` where there are no steps to take, the prompt is not to be encoded or
    too long, or the simulator cannot run here.
    """
    sampling = sampling or Sampling()
    if steps < 1:
        raise InputError(f"Steps must be at least 1, not {steps}")
    tokens, places = tokenizer.encode(prompt), program.places
    source: list[int] = []
    if program.lookups:
        source = source_tokens(program, tokenizer, prompt)
        tokens = [program.start]
        steps = min(steps, places)
    count = len(tokens)
    if not source:
        check_length(program, tokens, steps, places)
    session = TextSession(program, machine, timing)
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    encoded = session.encode(source) if source else Turn()
    session.bits = bits[0]
    first = session.take(tokens)
    pieces = Pieces(tokenizer, show)
    pieces.add([] if source else tokens)
    turns: list[Turn] = []
    while True:
        if sampling.greedy:
            token = session.choose()
        else:
            token = draw(session.logits() * program.logits_step, sampling, rng)
        if token in tokenizer.ends:
            break
        tokens.append(token)
        pieces.add([token])
        if len(tokens) - count == steps:
            break
        session.bits = bits[(len(turns) + 1) % len(bits)]
        turns.append(session.step(token))
    pieces.end()
    seconds = time.perf_counter() - began
    return {
        "text": pieces.text,
        "tokens": tokens,
        **_figures(session, first, turns),
        **(_source_figures(session, encoded) if source else {}),
        "seconds": seconds,
    }


class Pieces:
    """A text that grows token by token, in whole characters."""

    def __init__(self, tokenizer: TokenizerLike, show: Callable[[str], None] | None = None):
        self._tokenizer, self._show = tokenizer, show
        self._tokens: list[int] = []
        self.text = ""

    def add(self, tokens: Sequence[int]) -> None:
        """Add tokens, of whose text the part that no further token changes."""
        self._tokens += tokens
        self._tell(self._tokenizer.settled(self._tokens))

    def end(self) -> None:
        """Add what is left of the text."""
        self._tell(self._tokenizer.decode(self._tokens))

    def _tell(self, text: str) -> None:
        new, self.text = text[len(self.text) :], text
        if self._show is not None and new:
            self._show(new)


def _figures(session: TextSession, first: Turn, turns: Sequence[Turn]) -> dict[str, Any]:
    """Return what the prompt and each token took."""
    program, config = session.program, session.program.config
    spent: Counter[str] = Counter()
    for turn in turns:
        spent.update(turn.counters)
    cycles = [turn.cycles for turn in turns]
    timed = bool(turns) and cycles[0] > 0
    counted = timed and config.counters
    mean = sum(cycles) / len(cycles) if timed else None
    last = turns[-1].counters if turns else Counter[str]()
    timing = session.timing
    expected = program.predict(
        session.length - 1,
        timing.latency,
        timing.interval,
        source=session.source,
        bits=session.bits,
    )
    all_turns = [session.setup, first, *turns]
    return {
        "model": program.name,
        "config": config.name,
        "kv_bits": program.kv_bits,
        "recompute": program.cache.recompute,
        "kv_blocks": program.kv_block,
        "resident": program.resident,
        "multipliers": config.elements,
        "mismatches": sum(turn.mismatches for turn in all_turns),
        "tensors": sum(turn.tensors for turn in all_turns),
        "last_position": session.length - 1,
        "cycles_per_token": cycles[-1] if timed else None,
        "predicted_cycles": expected.cycles if timed else None,
        "mean_cycles_per_token": mean,
        "clock_mhz": config.clock_mhz,
        "tokens_per_second": config.clock_mhz * 1e6 / mean if mean else None,
        "prompt_tokens": session.length - len(turns),
        "prompt_cycles": first.cycles or None,
        "setup_cycles": session.setup.cycles or None,
        "macs": last["macs"],
        "macs_busy": last["macs"] / config.elements / cycles[-1] if counted else None,
        "external_bytes": (last["loaded"] + last["stored"]) * config.mem_bytes if counted else None,
        **totals(program, spent, counted=counted),
        "cycles": cycles if timed else None,
    }


def _source_figures(session: TextSession, encoded: Turn) -> dict[str, Any]:
    """Return what the source took, with the mismatches and tensors of the whole text."""
    timing, timed = session.timing, encoded.cycles > 0
    expected = session.program.predict_source(session.source, timing.latency, timing.interval)
    whole = [session.setup, encoded, *session.turns]
    return {
        "source_tokens": session.source,
        "source_cycles": encoded.cycles if timed else None,
        "predicted_source_cycles": expected if timed else None,
        "mismatches": sum(turn.mismatches for turn in whole),
        "tensors": sum(turn.tensors for turn in whole),
    }


def totals(program: TextHost, spent: Counter[str], *, counted: bool) -> dict[str, Any]:
    """Return the sizes of a program, and what its runs spent as far as that is ``counted``."""
    return {
        "program_words": len(program.words),
        "slots": program.slots,
        "scratchpad_bytes": program.scratchpad_bytes,
        "memory_bytes": program.memory_bytes,
        "where": where(spent) if counted else {},
        "engines": engines(spent) if counted else {},
        "counters": dict(spent),
    }


def engines(spent: Counter[str]) -> dict[str, dict[str, int]]:
    """Return each engine's cycles by what it did, by its name."""
    names = [engine.name.lower() for engine in Engine]
    return {name: engine_cycles(spent, name) for name in names}
