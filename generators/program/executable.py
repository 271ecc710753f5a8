"""Programs in a machine's memory, of encoders and decoders, and the words where they are started.

An encoder has the entry ``encode``, ``again`` where its weights stay on the chip from run to run,
and ``encode.4`` and ``encode.2`` where these are nested. A decoder has ``step`` for one token, with
chunks of a prompt ``words`` and ``chunk``, and ``logits``, which stores the scores behind the last
token; with a source it has ``lookup`` and ``encode`` as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.program.draft import Node, Written, flatten
from celosia.generators.program.predict import Prediction, predict

ENCODE = "encode"
"""Name of an encoder's program, which loads all that it needs."""
AGAIN = "again"
"""Name of the program of a run that finds weights and parameters where one before left them."""


def entry_at(name: str, bits: int) -> str:
    """Return the name of an entry that reads so many bits of nested weights."""
    return name if bits == OPERAND_BITS else f"{name}.{bits}"


@dataclass(frozen=True)
class Entry:
    """A program among those that lie in the program memory together."""

    pc: int
    """Its first word."""
    written: list[Written]
    """Tensors that vector instructions write, in the order in which they run."""


@dataclass(frozen=True)
class Executable:
    """The program memory of a compiled model."""

    config: Config
    words: list[int]
    """All programs, one behind the other."""
    entries: dict[str, Entry]
    """They by name."""

    def expect(
        self, name: str, registers: Mapping[int, int], latency: int, interval: int = 1
    ) -> Prediction:
        """Return what is to be expected of a program whose registers the host has written.

        External memory has some latency and cycles for each word.
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
    """Return the tensors that instructions write, in the order in which they run."""
    return [draft.written for draft in flatten(nodes) if draft.written is not None]


def joined(
    programs: Mapping[str, Sequence[Node]], assemble: Callable[[Sequence[Node]], list[int]]
) -> tuple[list[int], dict[str, Entry]]:
    """Return the words of programs one behind the other, and their entries."""
    words, entries = list[int](), {}
    for name, nodes in programs.items():
        entries[name] = Entry(len(words), written(nodes))
        words += assemble(nodes)
    return words, entries
