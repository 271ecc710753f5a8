"""Programs of encoders and decoders in program memory, and their entry points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.program.draft import Node, Written, flatten
from celosia.generators.program.predict import Prediction, predict

ENCODE = "encode"
"""Name of an encoder's program that loads all data it needs. In an encoder-decoder it follows
``lookup``, which looks up embeddings of source tokens."""
AGAIN = "again"
"""Name of the program for runs that reuse the weights and parameters of an earlier run. It exists
if weights stay on the chip."""
STEP, CHUNK = "step", "chunk"
"""Names of the programs that process a token of each text, and several tokens of one text.
Before a chunk, ``words`` looks up the embeddings. After the last token, ``logits`` stores the
logits."""
SCORES = "scores"
"""Name of the program that computes the scores of the second of two texts."""


def entry_at(name: str, bits: int) -> str:
    """Return the name of the variant of entry point ``name`` that reads weights with ``bits`` bits.

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
class Run:
    """A run of a program: its entry point, and the registers that the host sets before the run."""

    entry: str
    """Name of the entry point."""
    registers: Mapping[int, int]
    """Values that the host writes, by register number."""
    divisor: int = 1
    """Number by which its cycles are divided before they are added to those of other runs."""


@dataclass(frozen=True)
class Executable:
    """All programs of a compiled model, as words of program memory, and their entry points."""

    config: Config
    words: list[int]
    """All programs, concatenated."""
    entries: dict[str, Entry]
    """The programs by name."""

    def expect(self, run: Run, latency: int, interval: int = 1) -> Prediction:
        """Return the predicted cycles of a run.

        External memory returns the first word ``latency`` cycles after a request, then one every
        ``interval`` cycles.
        """
        return predict(
            self.words,
            self.config,
            latency=latency,
            interval=interval,
            registers=run.registers,
            start=self.entries[run.entry].pc,
        )

    def cycles(self, runs: Sequence[Run], latency: int, interval: int = 1) -> int:
        """Return the predicted cycles of all ``runs`` together.

        External memory returns the first word ``latency`` cycles after a request, then one every
        ``interval`` cycles.
        """
        return sum(self.expect(run, latency, interval).cycles for run in runs)


@dataclass(frozen=True)
class Fill:
    """A setup program, and the content of external memory that the program needs.

    A setup program copies weights and other data from external memory to memories on the chip. It
    runs before all programs that process tokens.
    """

    image: bytes
    words: list[int]
    """The setup program: it begins at word 0, and the program memory has no other program. Empty if
    there is no setup program, because the other programs load the data."""
    written: list[Written]
    """Tensors that vector instructions write."""


def written(nodes: Sequence[Node]) -> list[Written]:
    """Return the tensor parts that the vector instructions of a program write, in execution order.

    ``nodes`` are the program's instructions and loops. A tensor part is a range of rows and columns
    of one tensor. For an instruction in a loop, the result has a tensor part for each iteration.
    """
    return [draft.written for draft in flatten(nodes) if draft.written is not None]
