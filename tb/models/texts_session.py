"""Sessions in which each run of a language model processes one token of each of two texts."""

from collections.abc import Callable, Sequence

from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.text_session import TextSession


class TextsSession(TextSession):
    """Two texts that a language model processes together on a machine, token by token.

    The texts may have different lengths: the next token of each text has a separate position.
    ``program`` is the compiled language model; its field ``batch`` must be 2. The arguments and
    errors are those of :class:`celosia.tb.models.text_session.TextSession`. As in that class,
    tokens and tensors are compared with those of the golden machine or of the integer reference.
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
        """Process one token of each text, and return a list with one result for each text.

        ``tokens`` has one element for each text:

        - If the element is a token: the model processes the token as the text's next token. The
          method then calls ``choose`` with the text's index, counted from 0. The text's result is
          the return value of ``choose``: the token that follows, or None.
        - If the element is None: the text does not change, ``choose`` is not called for the text,
          and the text's result is None.

        The caller provides ``choose``. Within ``choose``, the caller can call :meth:`logits` for
        the logits of this text's next token, or :meth:`TextSession.choose` for the most likely next
        token.

        Each call of :meth:`advance` appends its cycles and counters to the session's list
        ``turns``.
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
