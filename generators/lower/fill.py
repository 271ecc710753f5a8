"""Setup programs, which load weights and other data into the chip before the first token.

The data may exceed external memory, or need more instructions than the program memory holds. Then
they are divided into parts, each with a setup program. For each part, the host writes the data to
external memory and runs the program.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.generators.program.draft import Draft
from celosia.generators.program.executable import Fill, written
from celosia.generators.program.image import Bytes

Assemble = Callable[[Sequence[Draft]], list[int]]


@dataclass
class _Part:
    """Some of the instructions, and the external bytes that they load."""

    first: int
    end: int
    words: int = DEFINITIONS[Opcode.HALT].words
    drafts: list[Draft] = field(default_factory=list)

    def fill(self, image: Bytes, assemble: Assemble) -> Fill:
        drafts = [_moved(draft, self.first) for draft in self.drafts]
        data = image[self.first : self.end].tobytes()
        return Fill(data, assemble(drafts), written(drafts))


def fills(
    drafts: Sequence[Draft], image: Bytes, config: Config, memory_bytes: int, assemble: Assemble
) -> list[Fill]:
    """Return as few setup programs as possible, which together load an image into the chip.

    An image is the content of external memory. Each :class:`Fill` has a part of the image, and a
    setup program that copies this part to memories on the chip.

    - ``drafts`` are the instructions that load the image, from its first byte to its last. Each may
      load at most ``memory_bytes`` bytes.
    - ``memory_bytes`` is the size of external memory, and so the largest size of a part.
    - ``assemble`` is a function that returns the program words of a list of instructions.
    """
    parts = [_Part(0, 0)]
    for draft in drafts:
        part, words = parts[-1], DEFINITIONS[draft.opcode].words
        end = part.end
        if draft.opcode == Opcode.LOAD:
            addr, m, stride = (draft.number(name) for name in ("dram_addr", "m", "dram_stride"))
            end = addr + m * stride
        if end - part.first > memory_bytes or part.words + words > config.control.program_depth:
            part = _Part(part.end, end)
            parts.append(part)
        part.end = end
        part.words += words
        part.drafts.append(draft)
    return [part.fill(image, assemble) for part in parts]


def _moved(draft: Draft, by: int) -> Draft:
    if draft.opcode != Opcode.LOAD:
        return draft
    return replace(draft, operands={**draft.operands, "dram_addr": draft.number("dram_addr") - by})
