"""Setup programs, which load weights and other data into the chip before the first token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.generators.program.draft import Draft
from celosia.generators.program.executable import Fill, written
from celosia.generators.program.image import Bytes

Assemble = Callable[[Sequence[Draft]], list[int]]


@dataclass
class _Part:
    """Some of the instructions, and the data that they load, in the order of the loads."""

    words: int = DEFINITIONS[Opcode.HALT].words
    size: int = 0
    """Bytes of the data."""
    drafts: list[Draft] = field(default_factory=list)
    pieces: list[Bytes] = field(default_factory=list)

    def append(self, draft: Draft, piece: Bytes) -> None:
        """Append an instruction and the bytes that it loads; they follow those of earlier loads."""
        if draft.opcode == Opcode.LOAD:
            draft = replace(draft, operands={**draft.operands, "dram_addr": self.size})
        self.drafts.append(draft)
        self.pieces.append(piece)
        self.words += DEFINITIONS[draft.opcode].words
        self.size += piece.size

    def fill(self, assemble: Assemble) -> Fill:
        data = np.concatenate([np.zeros(0, np.uint8), *self.pieces])
        return Fill(data.tobytes(), assemble(self.drafts), written(self.drafts))


def fills(
    drafts: Sequence[Draft], image: Bytes, config: Config, memory_bytes: int, assemble: Assemble
) -> list[Fill]:
    """Return as few setup programs as possible, which together load ``image`` into the chip.

    A :class:`Fill` is a program with the part of ``image`` that it loads, at most ``memory_bytes``
    bytes. ``drafts`` are the instructions of all programs in order. ``assemble`` is a function that
    returns the program words of instructions.
    """
    parts = [_Part()]
    for draft in drafts:
        part, piece, words = parts[-1], _loaded(draft, image), DEFINITIONS[draft.opcode].words
        too_large = part.size + piece.size > memory_bytes
        if too_large or part.words + words > config.control.program_depth:
            part = _Part()
            parts.append(part)
        part.append(draft, piece)
    return [part.fill(assemble) for part in parts]


def _loaded(draft: Draft, image: Bytes) -> Bytes:
    """Return the bytes of an image that an instruction loads."""
    if draft.opcode != Opcode.LOAD:
        return image[:0]
    addr, m, stride = (draft.number(name) for name in ("dram_addr", "m", "dram_stride"))
    return image[addr : addr + m * stride]
