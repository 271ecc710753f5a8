"""Programs of encoders and decoders in program memory, and their entry points.

An encoder has the entry point ``encode``, which runs an inference. If its weights stay on the chip,
it also has ``again``, which does not load the weights that an earlier run has loaded. If its
weights are nested, it has ``encode.4`` and ``encode.2``, which read only the upper 4 or 2 bits of
each weight.

A decoder has ``step``, which processes one token, and ``logits``, which stores the scores after the
last token. If several tokens of a prompt are processed at once, it has ``words``, which looks up
their embeddings, and ``chunk``, which then processes them. An encoder-decoder also has ``lookup``,
which looks up embeddings of source tokens. Its ``encode`` computes the keys and values of the
source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.program.draft import Node, Written, flatten
from celosia.generators.program.predict import Prediction, predict

ENCODE = "encode"
"""Name of an encoder's program that loads all data it needs."""
AGAIN = "again"
"""Name of the program for runs that reuse the weights and parameters of an earlier run."""


def entry_at(name: str, bits: int) -> str:
    """Return the name of the variant of entry point ``name`` whose weights have ``bits`` bits.

    For 8 bits it is ``name`` itself. For fewer bits it is the variant that reads only the upper
    bits of 8-bit weights, such as ``step.4``.
    """
    return name if bits == OPERAND_BITS else f"{name}.{bits}"


@dataclass(frozen=True)
class Entry:
    """An entry point: the address of a program, and the tensors that the program writes."""

    pc: int
    """Address of its first word."""
    written: list[Written]
    """Tensors that its vector instructions write, in execution order."""


@dataclass(frozen=True)
class Executable:
    """The program memory of a compiled model, with the entry points."""

    config: Config
    words: list[int]
    """All programs, concatenated."""
    entries: dict[str, Entry]
    """The programs by name."""

    def expect(
        self, name: str, registers: Mapping[int, int], latency: int, interval: int = 1
    ) -> Prediction:
        """Return the predicted cycles of a run from the entry point ``name``.

        ``registers`` is a dictionary from register number to the value that the host writes.
        External memory returns the first word ``latency`` cycles after a request, then one every
        ``interval`` cycles.
        """
        return predict(
            self.words,
            self.config,
            latency=latency,
            interval=interval,
            registers=registers,
            start=self.entries[name].pc,
        )


def written(nodes: Sequence[Node]) -> list[Written]:
    """Return the tensor parts that instructions write, in execution order."""
    return [draft.written for draft in flatten(nodes) if draft.written is not None]


def joined(
    programs: Mapping[str, Sequence[Node]],
    assemble: Callable[[Sequence[Node]], list[int] | None],
) -> tuple[list[int], dict[str, Entry]] | None:
    """Return a list with the words of all programs, and a dictionary of their entry points.

    ``programs`` is a dictionary from the name of an entry point to a program, a list of
    instructions and loops. The returned dictionary has the :class:`Entry` for each of these names.
    ``assemble`` is called with each program, and returns its words. If it returns None for any
    program, the result is None.
    """
    words, entries = list[int](), {}
    for name, nodes in programs.items():
        made = assemble(nodes)
        if made is None:
            return None
        entries[name] = Entry(len(words), written(nodes))
        words += made
    return words, entries
