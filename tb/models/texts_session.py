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
        """Process one token of each text; return a list with the next token of each text.

        ``tokens`` has one token for each text, or None for a text that does not get a token. For
        such a text, the program processes the text's last token again, the text does not change,
        and the returned token is None.

        For each other text, this method calls the function ``choose`` with the text's index. The
        result of the call, a token or None, becomes the text's element of the returned list. During
        the call, two methods of the session refer to this text. :meth:`logits` returns the logits
        of the text's next token. :meth:`TextSession.choose` returns the most likely next token.

        The cycles and counters of each call of :meth:`advance` are appended to the session's list
        ``turns``.
        """
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
