"""Locations of a model's data: weights, keys, values, requantization parameters and tables.

The module also has the numbers of the registers that the host writes before each run. These
registers contain addresses and counts, such as the number of cached tokens.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import REGISTERS, RING_SLOTS
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.stored import in_pairs, stored_rows
from celosia.generators.graph.tensors import Ints
from celosia.generators.lower.fitting import FitError, Reason, doubled
from celosia.generators.program.draft import Given, Ref
from celosia.generators.program.image import Bytes


class Register(enum.IntEnum):
    """Registers that the host writes before it starts a program."""

    WORD = 1
    """Bytes from the vocabulary's first row to the token's."""
    PLACE = 2
    """Bytes from the first row of positions, or of rotary pairs, to the first token's."""
    KEY = 3
    """Slots from the first of a head's keys, or bytes from its first row, to the token's."""
    KEY_LINE = 4
    """The column of the first token's key in its slot."""
    VALUE = 5
    """Slots from the first of a head's values, or bytes from its first row, to the token's."""
    VALUE_LINE = 6
    """The row of the first token's values in their slot."""
    COUNT = 7
    """Number of places of the cache that the last token attends to."""
    LIMIT = 8
    """Number of places of the cache that the first token attends to."""
    ROWS = 9
    """Number of tokens."""
    LAST = 10
    """Bytes from the first normalized row to the last token's."""
    SOURCE = 11
    """Number of tokens of the source."""


TEXT_REGISTERS = int(Register.COUNT)
"""Registers of a text's step, from 1 on; those of the next text in the same run follow."""
MOST_TEXTS = (REGISTERS - 1) // TEXT_REGISTERS
"""Most texts of one run."""


def of_text(register: int, text: int) -> int:
    """Return the register of text number ``text`` that corresponds to text 0's ``register``.

    If a run processes several texts, the host writes separate registers for each text.
    """
    return register + TEXT_REGISTERS * text


class WeightHome(enum.StrEnum):
    """The memory that contains a model's weights when a run begins."""

    SCRATCHPAD = "scratchpad"
    SLOTS = "slots"
    """The array's weight slots."""
    STREAM = "stream"
    """External memory, from which weights are loaded for each run."""


def weight_homes(linears: Sequence[Linear], config: Config) -> list[WeightHome]:
    """Return the memories that have room for all weights of a model, the fastest one first.

    The order is: weight slots (storage in the array), scratchpad, external memory. The last one is
    always in the list.
    """
    size = slots = 0
    for op in (part for linear in linears for part in linear.parts):
        k, n = op.weight.shape
        size += stored_rows(op.stored, k) * n
        height = config.array.rows * (2 if in_pairs(op.stored, config) else 1)
        slots += -(-k // height) * -(-n // config.array.cols)
    deep = config.array.weight_depth > RING_SLOTS
    homes = [WeightHome.SLOTS] if deep and RING_SLOTS + slots <= config.array.weight_depth else []
    homes += [WeightHome.SCRATCHPAD] if 0 < size < config.scratchpad.bytes else []
    return [*homes, WeightHome.STREAM]


@dataclass(frozen=True)
class Cache:
    """Assignment of a text's tokens to the slots of the KV cache.

    The first ``capacity`` tokens fill the cache. Each further token replaces the oldest token in
    it, except the first ``sinks`` tokens of the text, which stay (Xiao et al. 2024, "Efficient
    Streaming Language Models with Attention Sinks").
    """

    capacity: int
    sinks: int
    recompute: bool = False
    """True if each token's input of every attention is kept, from which each run makes the keys and
    values of all tokens anew."""

    def __post_init__(self) -> None:
        """Check both numbers."""
        if self.capacity < 1:
            raise InputError(f"Context must be at least 1 token, not {self.capacity}")
        if not 0 <= self.sinks < self.capacity:
            raise InputError(
                f"Sinks must be from 0 to {self.capacity - 1}, which is less than the context, "
                f"not {self.sinks}"
            )

    def place(self, position: int) -> int:
        """Return the index of the cache slot that stores a token's keys and values.

        ``position`` is the index of the token in the text.
        """
        if position < self.capacity:
            return position
        return self.sinks + (position - self.sinks) % (self.capacity - self.sinks)

    def count(self, position: int) -> int:
        """Return the number of tokens to which a token attends, including itself.

        ``position`` is the index of the token in the text.
        """
        return min(position + 1, self.capacity)


@dataclass(frozen=True)
class Slots:
    """Consecutive weight slots that contain the tiles of a matrix [k, n].

    A weight slot is storage in the array for one weight tile. The matrix has ``k_tiles`` rows and
    ``n_tiles`` columns of tiles. The tile in row ``kt`` and column ``nt`` is in slot number
    ``first + nt * k_tiles + kt``.
    """

    first: int
    k_tiles: int
    n_tiles: int


@dataclass(frozen=True)
class Kept:
    """Location of the keys and values that an attention reads for one text.

    The location is in the array (as weight tiles), in the scratchpad or in external memory.
    """

    name: str
    """Suffix of the buffers' names, for keys and values in the scratchpad."""
    capacity: int
    """Most tokens."""
    register: Register
    """The register with the number of places that the last token attends to."""
    grows: bool = True
    """True if each run adds its tokens' places, and a token attends to no later one."""
    inputs: Ref | None = None
    """Place of the inputs from which each run computes keys and values, and to which it adds."""
    keys: tuple[Slots, ...] = ()
    """Slots of each key head's keys [key_dim, capacity]."""
    values: tuple[tuple[Slots, ...], ...] = ()
    """Slots of each tile column of each key head's values [capacity, head_dim]."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """External addresses of ``keys`` and ``values``, if they are loaded for each run."""
    text: int = 0
    """The text's number in its run."""

    @property
    def made(self) -> bool:
        """True if each run computes all tokens' keys and values from stored attention inputs."""
        return self.inputs is not None

    @property
    def count(self) -> Given:
        """Instruction operand with the number of tokens to which a run's last token attends.

        The host writes this number to a register before each run, and the operand reads the
        register.
        """
        return Given(of_text(self.register, self.text), self.capacity)

    def preload_operand(self, register: Register, first: int = 0) -> int | Given:
        """Return an operand of a PRELOAD, which copies keys or values to weight slots.

        - ``register`` KEY or VALUE: the operand is the number of a slot.
        - ``register`` KEY_LINE or VALUE_LINE: the operand is the column or the row in the slot.

        ``first`` is the operand for token 0. If each run copies only new tokens, the register's
        content is added to ``first``.
        """
        own = of_text(register, self.text)
        return Given(own, 0, first) if self.grows and not self.made else first


@dataclass(frozen=True)
class Words:
    """Location of an operation's requantization parameters, in one of two memories.

    A word has the parameters of one column for each lane of the vector engine. Words are in the
    parameter memory, or in external memory if each run loads them.
    """

    first: int
    """Index of the first word in the parameter memory, or its external address (bytes)."""
    count: int
    """Number of words."""
    stride: int = 0
    """Distance (bytes) between words in external memory; 0 for words in the parameter memory."""


@dataclass
class Memory:
    """Allocates scratchpad, weight slots, parameter words and activation tables for one model.

    If the data do not fit, :class:`FitError` is raised by :meth:`take_tables` or by the methods
    ``check_...``.
    """

    name: str
    """Name of the model."""
    config: Config
    buffers: dict[str, int] = field(default_factory=dict)
    """Bytes of each scratchpad buffer."""
    slots: int = RING_SLOTS
    pre_words: list[Bytes] = field(default_factory=list)
    """Parameter words below index ``pre_depth``, as arrays [words, bytes]."""
    words: list[Bytes] = field(default_factory=list)
    """Parameter words from index ``pre_depth`` on, as arrays [words, bytes]."""
    tables: list[Ints] = field(default_factory=list)

    def buffer(self, name: str, size: int) -> Ref:
        """Return the symbolic address of the scratchpad buffer ``name``.

        The buffer has at least ``size`` bytes. The first call with a name adds the buffer. Another
        call with a larger size enlarges it. The compiler replaces the symbolic address by a number.
        """
        self.buffers[name] = max(size, self.buffers.get(name, 0))
        return Ref(name)

    def check_bytes(self) -> None:
        """Raise :class:`FitError` if the scratchpad has fewer bytes than all buffers together.

        The check assumes that no buffers share bytes.
        """
        if sum(self.buffers.values()) > self.config.scratchpad.bytes:
            raise self.no_room(sum(self.buffers.values()))

    def no_room(self, needed: int) -> FitError:
        """Return the error for buffers that do not fit the scratchpad.

        The error proposes a larger scratchpad. ``needed`` is the number of bytes in buffers that
        are used at the same time.
        """
        largest, config = max(self.buffers.values()), self.config
        return FitError(
            f"Model {self.name} needs {needed} scratchpad bytes and {largest} of them in one bank, "
            f"but scratchpad_bytes is {config.scratchpad.bytes} in banks of {config.bank_bytes}",
            doubled(config, "scratchpad_bytes", max(needed, largest * config.scratchpad.banks)),
            reason=Reason.TOO_LARGE,
            excess=needed,
        )

    def take_slots(self, k: int, n: int) -> Slots:
        """Allocate weight slots for a matrix [k, n], one for each tile, and return them.

        A weight slot is storage in the array for one weight tile. The method does not check that
        the array has enough slots; :meth:`check_slots` does.
        """
        slots = Slots(self.slots, -(-k // self.config.array.rows), -(-n // self.config.array.cols))
        self.slots += slots.k_tiles * slots.n_tiles
        return slots

    def check_slots(self) -> None:
        """Raise :class:`FitError` if the array has too few weight slots for the model.

        A weight slot is storage in the array for one weight tile.
        """
        if self.slots > self.config.array.weight_depth:
            raise FitError(
                f"Model {self.name} needs {self.slots} weight slots of {self.config.array.rows} x "
                f"{self.config.array.cols}, but weight_depth is {self.config.array.weight_depth}",
                {"weight_depth": self.slots},
                {"weight_depth": RING_SLOTS},
                reason=Reason.TOO_LARGE,
                excess=self.slots,
            )

    def take_words(self, words: Bytes, *, for_sums: bool = False) -> Words:
        """Allocate words of the parameter memory, and return their location.

        - ``words``: requantization parameters, [words, bytes].
        - ``for_sums``: true if SOFTMAX or NORM requantizes sums with these parameters. Some
          configurations reserve words for this use.

        The method does not check whether the memory has enough words; :meth:`check_words` does.
        """
        for_sums &= self.config.pre_depth > 0
        others = self.pre_words if for_sums else self.words
        first = sum(map(len, others)) + (0 if for_sums else self.config.pre_depth)
        others.append(words)
        return Words(first, len(words))

    def check_words(self) -> None:
        """Raise :class:`FitError` if the parameter memory is too small for all allocated words.

        The memory has ``param_depth`` words. If ``pre_depth`` is above 0, the first ``pre_depth``
        words are reserved for SOFTMAX and NORM that requantize sums.
        """
        pre_words = sum(map(len, self.pre_words))
        if pre_words > self.config.pre_depth:
            raise FitError(
                f"Model {self.name} requantizes accumulators with {pre_words} parameter words, but "
                f"pre_depth is {self.config.pre_depth}",
                {"pre_depth": pre_words, "param_depth": max(pre_words, self.config.vector.words)},
            )
        self.check_at_once(self.config.pre_depth + sum(map(len, self.words)))

    def check_at_once(self, words: int) -> None:
        """Raise :class:`FitError` if the parameter memory has fewer than ``words`` words.

        A word has requantization parameters. ``words`` is the number that is needed at the same
        time.
        """
        if words > self.config.vector.words:
            raise FitError(
                f"Model {self.name} needs {words} parameter words at once, but param_depth is "
                f"{self.config.vector.words}",
                doubled(self.config, "param_depth", words),
            )

    def take_tables(self, tables: Sequence[Ints]) -> list[int]:
        """Allocate slots of the vector engine for activation tables, and return the slot numbers.

        Equal tables share a slot in two cases: all of ``tables`` are equal, or the vector engine
        has too few slots for separate tables. Raises :class:`FitError` if the slots are too few
        even with sharing.
        """
        alike = all(np.array_equal(table, tables[0]) for table in tables)
        shared = alike or len(self.tables) + len(tables) > self.config.table_slots
        return [self._take_table(table, shared=shared) for table in tables]

    def _take_table(self, table: Ints, *, shared: bool) -> int:
        """Return a new slot of a table or, if ``shared`` is true, that of an equal one."""
        for slot, other in enumerate(self.tables if shared else ()):
            if np.array_equal(table, other):
                return slot
        if len(self.tables) == self.config.table_slots:
            raise FitError(
                f"Model {self.name} needs more activation tables than table_slots = "
                f"{self.config.table_slots}",
                {"table_slots": self.config.table_slots + 1},
            )
        self.tables.append(table)
        return len(self.tables) - 1
