"""Continues two prompts on a machine; each run of the program processes one token of each text."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.reference.sampling import Sampling, draw
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_lengths import check_length
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.run_text import run_figures
from celosia.tb.models.text_session import Turn
from celosia.tb.models.texts_session import TextsSession


@dataclass
class _Text:
    """A text that is continued until it has ``end`` tokens, or ends."""

    rng: Generator
    tokens: list[int]
    prompt: int
    """Tokens that it begins with."""
    end: int
    """Most tokens that it may have."""
    fed: int = 0
    """Number of tokens whose row the machine has received."""
    over: bool = field(default=False)

    @property
    def next(self) -> int | None:
        """The next token for the machine; None for a text that is over."""
        return None if self.over else self.tokens[self.fed]

    def add(self, token: int, ends: frozenset[int]) -> None:
        """Append a chosen token; the text may be over after it."""
        if token not in ends:
            self.tokens.append(token)
        self.over = token in ends or len(self.tokens) == self.end


def run_texts(
    program: Host,
    tokenizer: TokenizerLike,
    prompts: Sequence[str],
    steps: int,
    machine: str | Machine,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> dict[str, Any]:
    """Continue two prompts by at most ``steps`` tokens each; return texts and measurements by name.

    The measurements ``cycles``, ``mismatches`` and ``tensors`` cover all runs, ``counters`` only
    runs that process both texts. The arguments and errors of
    :class:`celosia.tb.models.run_text.TextRun` apply. Each prompt must have a token.
    """
    sampling = sampling or Sampling()
    if steps < 1:
        raise InputError(f"Steps must be at least 1, not {steps}")
    texts = []
    for number, prompt in enumerate(prompts):
        tokens = tokenizer.encode(prompt)
        if not tokens:
            raise InputError("Each of two prompts must have a token, but one has none")
        check_length(program, tokens, steps, program.places)
        # Each text makes its own random choices.
        rng = np.random.default_rng(seed + number)
        texts.append(_Text(rng, tokens, len(tokens), len(tokens) + steps))
    session = TextsSession(program, machine, timing)

    def choose(number: int) -> int | None:
        text = texts[number]
        if text.fed + 1 < text.prompt:
            return None
        if sampling.greedy:
            return session.choose()
        return draw(session.logits() * program.output.scale, sampling, text.rng)

    both, positions, last_bits = list[Turn](), [0] * len(texts), OPERAND_BITS
    began = time.perf_counter()
    while not all(text.over for text in texts):
        session.bits = bits[len(session.turns) % len(bits)]
        inputs = [text.next for text in texts]
        chosen = session.advance(inputs, choose)
        for text, took, token in zip(texts, inputs, chosen, strict=True):
            text.fed += took is not None
            if token is not None:
                text.add(token, tokenizer.ends)
        if None not in inputs:
            both.append(session.turns[-1])
            positions, last_bits = [length - 1 for length in session.lengths], session.bits
    seconds = time.perf_counter() - began
    rows = []
    for text in texts:
        whole = tokenizer.decode(text.tokens)
        rows.append({"text": whole, "tokens": text.tokens, "prompt_tokens": text.prompt})
    figures = _figures(session, both, positions, last_bits)
    return {"texts": rows, **figures, "seconds": seconds}


def _figures(
    session: TextsSession, both: Sequence[Turn], positions: list[int], bits: int
) -> dict[str, Any]:
    """Return the figures of the runs; in the last of ``both`` the texts were at ``positions``.

    That run read nested weights with ``bits`` bits.
    """
    program, timing = session.program, session.timing
    runs = program.steps(positions, bits=bits)
    expected = program.cycles(runs, timing.latency, timing.interval)
    cycles = both[-1].cycles
    timed = cycles > 0
    return {
        **run_figures(session, both, [session.setup, *session.turns]),
        "last_positions": positions,
        "cycles_per_run": cycles if timed else None,
        "predicted_cycles": expected if timed else None,
        "cycles_per_token": cycles / program.batch if timed else None,
        "cycles": [turn.cycles for turn in session.turns] if timed else None,
    }
