# amaranth: UnusedElaboratable=no
"""Memories whose words carry check bits."""

from collections.abc import Iterable, Sequence
from functools import reduce

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.protection import LEVELS, check_bits, code_columns, column_patterns
from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay

ERRORS = 2
"""Number of error bits of a protected memory; bit 0: a word was corrected; bit 1: uncorrectable."""


def error_port(level: str) -> dict:
    """Return the port ``errors`` as a dictionary from name to port, empty at the level ``none``.

    Bit 0 is 1 if a word was corrected, bit 1 if a wrong word could not be corrected. Raises
    :class:`InputError` for an unknown protection level.
    """
    if level not in LEVELS:
        raise InputError(f"Level of protection must be {', '.join(LEVELS)}, not {level!r}")
    return {} if level == "none" else {"errors": Out(ERRORS)}


def gather(m: Module, component, sources: Iterable[Value]) -> None:
    """Drive a component's port ``errors`` with the OR of ``sources``, one cycle later.

    If the component has no such port, the function does nothing.
    """
    if "errors" in component.signature.members:
        m.d.sync += component.errors.eq(_any(sources))


def _any(sources: Iterable[Value]) -> Value:
    return reduce(lambda left, right: left | right, sources, Const(0, ERRORS))


def check(word: Value, columns: Sequence[int]) -> Value:
    """Return the check bits of a word: each is the XOR of the data bits that it covers.

    ``columns`` is a list with a mask for each data bit, as returned by
    :func:`celosia.arch.protection.code_columns`. Bit i of the mask is 1 if check bit i covers the
    data bit.
    """
    return Cat(bits.xor() for bits in _checked(word, columns))


def syndrome(word: Value, stored: Value, columns: Sequence[int]) -> Value:
    """Return a word's syndrome: the check bits computed from ``word``, XOR ``stored``.

    ``stored`` are the check bits that are stored with the word. The syndrome is 0 if no error is
    detected. ``columns`` has a mask for each data bit (:func:`check`), with a 1 for each check bit
    that covers the data bit.
    """
    pairs = zip(_checked(word, columns), stored, strict=True)
    return Cat(Cat(bits, bit).xor() for bits, bit in pairs)


def _checked(word: Value, columns: Sequence[int]) -> list[Value]:
    """Return for each check bit the bits of a word that it covers."""
    return [
        Cat(word[place] for place, column in enumerate(columns) if column >> bit & 1)
        for bit in range(check_bits(columns))
    ]


def corrections(found: Value, columns: Sequence[int]) -> tuple[Value, Value]:
    """Return a mask with a 1 at a word's wrong bit, and the error bits of :func:`errors_found`.

    ``found`` is the word's syndrome. The word XOR the mask is the corrected word. If two bits are
    wrong, the error cannot be corrected, and the mask is undefined.
    """
    flipped = [
        _picked(found, wrong).all() & ~_picked(found, right).any()
        for wrong, right in column_patterns(columns)
    ]
    return Cat(flipped), errors_found(found, "correct")


def errors_found(found: Value, level: str) -> Value:
    """Return the error bits of a word with the syndrome ``found``.

    Bit 0 is 1 for a correctable error, bit 1 for an uncorrectable error. If ``level`` is
    ``detect``, every error is uncorrectable.
    """
    if level == "detect":
        return Cat(Const(0, 1), found.any())
    odd = found.xor()
    return Cat(odd, found.any() & ~odd)


def coded(word: Value, part: int, columns: Sequence[int]) -> Value:
    """Return ``word`` in its stored form: groups of ``part`` bits, each followed by its check bits.

    The lowest group is first. ``columns`` is a list with a mask for each data bit of a group. Check
    bit i is the XOR of the data bits with a 1 in bit i of their mask (:func:`check`).
    """
    parts = (word[low : low + part] for low in range(0, len(word), part))
    return Cat(Cat(bits, check(bits, columns)) for bits in parts)


def _picked(found: Value, mask: int) -> Value:
    """Return the bits of a syndrome selected by a mask."""
    return Cat(found[bit] for bit in range(len(found)) if mask >> bit & 1)


class WordDecoder(Component):
    """Decodes ``stored``, a word followed by its check bits, into ``word``; it is combinational.

    ``found`` is the syndrome, 0 without an error. Bit 0 of ``errors`` is 1 if a wrong bit was
    corrected (level ``correct`` only). Bit 1 is 1 if the word is wrong and was not corrected.
    """

    def __init__(self, width: int, level: str):
        self.columns = tuple(code_columns(width, level))
        super().__init__(
            {
                "stored": In(width + check_bits(self.columns)),
                "word": Out(width),
                "found": Out(check_bits(self.columns)),
                "errors": Out(ERRORS),
            }
        )

    def circuit(self, m):
        word, stored = self.stored[: self.width], self.stored[self.width :]
        m.d.comb += [
            self.found.eq(syndrome(word, stored, self.columns)),
            self.errors.eq(errors_found(self.found, self.level)),
            self.word.eq(word),
        ]
        if self.level == "correct":
            m.d.comb += self.word.eq(word ^ corrections(self.found, self.columns)[0])


class ProtectedRam(Component):
    """A :class:`Ram` whose words have check bits for each group of ``part`` bits.

    - ``level``: ``detect``, or ``correct``, which corrects one wrong bit per group in
      ``read_data``.
    - ``parts``: true if ``write_en`` has a bit for each group.
    - ``errors``: error bits of a word (:func:`error_port`), once per read, one cycle after
      ``read_data``. If ``held`` is true, they appear in the first cycle in which ``read_data``
      would be wrong; this can be any cycle until the next read.

    A read in the cycle of a write to the same word is undefined.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        level: str,
        part: int | None = None,
        parts: bool = False,
        held: bool = False,
    ):
        self.part = part or width
        self.columns = tuple(code_columns(self.part, level))
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(width // self.part if parts else 1),
                "write_addr": In(addr_width),
                "write_data": In(width),
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(width),
                "errors": Out(ERRORS),
            }
        )

    def circuit(self, m):
        size = self.part + check_bits(self.columns)
        m.submodules.ram = ram = Ram(
            self.width // self.part * size,
            self.depth,
            part=size if self.parts else None,
            ordered=False,
        )
        late = int(not self.held)
        data, found = [], []
        for number, low in enumerate(range(0, len(ram.read_data), size)):
            m.submodules[f"decoder_{number}"] = decoder = WordDecoder(self.part, self.level)
            m.d.comb += decoder.stored.eq(ram.read_data[low : low + size])
            data.append(decoder.word)
            found.append(errors_found(delay(m, decoder.found, late), self.level))
        collides = ram.write_en.any() & (ram.write_addr == ram.read_addr)
        fresh = Signal()
        with m.If(self.read_en):
            m.d.sync += fresh.eq(~collides)
        with m.Elif(self.errors.any() if self.held else 1):
            m.d.sync += fresh.eq(0)
        m.d.comb += [
            ram.write_en.eq(self.write_en),
            ram.write_addr.eq(self.write_addr),
            ram.write_data.eq(coded(self.write_data, self.part, self.columns)),
            ram.read_en.eq(self.read_en),
            ram.read_addr.eq(self.read_addr),
            self.read_data.eq(Cat(data)),
            self.errors.eq(_any(found) & delay(m, fresh, late).replicate(ERRORS)),
        ]


class ProtectedFifo(Component):
    """A queue of ``depth`` words with check bits, with the ports of ``SyncFIFOBuffered``.

    ``errors`` describes the word that left in the previous cycle. Bit 0 is 1 if a wrong bit was
    corrected (level ``correct`` only). Bit 1 is 1 if the word was wrong and was not corrected.
    """

    def __init__(self, width: int, depth: int, level: str):
        self.code = level
        super().__init__(
            {
                "w_data": In(width),
                "w_rdy": Out(1),
                "w_en": In(1),
                "r_data": Out(width),
                "r_rdy": Out(1),
                "r_en": In(1),
                "level": Out(range(depth + 1)),
                "errors": Out(ERRORS),
            }
        )

    def circuit(self, m):
        m.submodules.decoder = decoder = WordDecoder(self.width, self.code)
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=len(decoder.stored), depth=self.depth)
        m.d.comb += [
            fifo.w_data.eq(Cat(self.w_data, check(self.w_data, decoder.columns))),
            fifo.w_en.eq(self.w_en),
            self.w_rdy.eq(fifo.w_rdy),
            decoder.stored.eq(fifo.r_data),
            self.r_data.eq(decoder.word),
            self.r_rdy.eq(fifo.r_rdy),
            fifo.r_en.eq(self.r_en),
            self.level.eq(fifo.level),
        ]
        taken = delay(m, self.r_en & self.r_rdy, 1, reset=True)
        errors = errors_found(delay(m, decoder.found, 1), self.code)
        m.d.comb += self.errors.eq(Mux(taken, errors, 0))


def protected_ram(
    width: int,
    depth: int,
    level: str,
    *,
    part: int | None = None,
    parts: bool = False,
    held: bool = False,
):
    """Return a :class:`ProtectedRam`, or a :class:`Ram` if the protection level is ``none``.

    A read in the cycle of a write to the same word is undefined.
    """
    if level == "none":
        return Ram(width, depth, part=part if parts else None, ordered=False)
    return ProtectedRam(width, depth, level=level, part=part, parts=parts, held=held)


def protected_fifo(width: int, depth: int, level: str) -> SyncFIFOBuffered | ProtectedFifo:
    """Return a queue of ``depth`` words of ``width`` bits with the protection level ``level``.

    The result is a ``SyncFIFOBuffered`` if ``level`` is ``none``. If ``level`` is ``detect`` or
    ``correct``, the result is a :class:`ProtectedFifo`.
    """
    if level == "none":
        return SyncFIFOBuffered(width=width, depth=depth)
    return ProtectedFifo(width, depth, level)


def errors_of(memories: Iterable) -> list[Value]:
    """Return a list of the ports ``errors`` of ``memories``; a memory may lack this port."""
    return [one.errors for one in memories if isinstance(getattr(one, "errors", None), Value)]
