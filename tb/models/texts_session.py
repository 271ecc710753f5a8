"""Sessions in which each run of a language model processes one token of each of two texts."""

from collections.abc import Callable, Sequence

from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.text_session import TextSession


class TextsSession(TextSession):
    """Two texts that a language model processes together on a machine, token by token.

    The texts may have different lengths. ``program.batch`` must be 2. Arguments, comparisons with
    the golden machine, and errors are as in :class:`celosia.tb.models.text_session.TextSession`.
    """

    def __init__(self, program: Host, machine: str | Machine, timing: MemoryTiming = PROMPT):
        super().__init__(program, machine, timing)
        self.lengths = [0] * program.batch
        """Tokens of each text so far."""
        self._last = [0] * program.batch
        self._caches = [self._empty() for _ in range(program.batch)]

    def advance(
        self, tokens: Sequence[int | None], choose: Callable[[int], int | None]
    ) -> list[int | None]:
        """Process one token of each text; return the results of ``choose``, one for each text.

        After a text's token, ``choose`` is called with the text's index (0 or 1). In this call,
        :meth:`logits` and :meth:`TextSession.choose` give the text's next token. A text with None
        in ``tokens`` is left out, and its result is None.
        """
        # A text without a new token gets its last token again, at the same position.
        positions = [
            length if token is not None else max(length - 1, 0)
            for length, token in zip(self.lengths, tokens, strict=True)
        ]
        self._last = [
            before if token is None else token
            for before, token in zip(self._last, tokens, strict=True)
        ]
        step, *scores = self.program.steps(positions, self._last, bits=self.bits)
        self.turns.append(self._start(step))
        chosen: list[int | None] = []
        for text, token in enumerate(tokens):
            if text:
                self.turns[-1].add(self._start(scores[text - 1]))
            chosen.append(None)
            if token is not None:
                self._decoded = self._caches[text]
                self._decode([token])
                self.lengths[text] += 1
                chosen[text] = choose(text)
        return chosen
