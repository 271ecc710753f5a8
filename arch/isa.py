"""The instruction set, defined once.

An instruction is a header word and one word per operand, all of 32 bits, least significant bit
first:

======== =======================================================================
header   bits 4:0 opcode; 8:5 pop, one bit per engine; 12:9 push, one bit per
         engine; 31:16 flags
operand  bits 27:0 immediate, two's complement; 31:28 register; the value is
         immediate plus register, modulo 2**28 and taken as signed; register 0 is 0
======== =======================================================================

``pop`` makes an engine wait, before it starts the instruction, for one token from each engine
named; ``push`` gives each engine named one token when the instruction has completed. Instructions
of one engine run in program order. An instruction that the sequencer expands means what its
commands mean (``arch.attention``); the first of them takes its tokens, the last gives them.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

WORD_WIDTH = 32
IMMEDIATE_WIDTH = 28
REGISTERS = 16
LOOP_LEVELS = 4
RING_SLOTS = 2
"""Weight slots that streamed weights take in turn; resident ones are in those behind."""
COUNT_WIDTH = 16
"""Width of a count: of rows, columns, products or rounds (bits)."""
COLUMN_WIDTH = 24
"""Width of the number of the column that argmax tells (bits)."""
FLAG_SHIFT = 16


class Engine(enum.IntEnum):
    """The engines that run instructions; the value is the bit in pop and push."""

    LOAD = 0
    MATRIX = 1
    VECTOR = 2
    STORE = 3


class Opcode(enum.IntEnum):
    """The value of a header's opcode field."""

    HALT = 0
    LOOP = 1
    ENDLOOP = 2
    SET = 3
    LOAD = 4
    STORE = 5
    MATMUL = 6
    PRELOAD = 7
    DRAIN = 8
    MAP = 9
    SOFTMAX = 10
    NORM = 11
    ADD = 12
    MUL = 13
    SCAN = 14
    PARAMS = 15
    TABLE = 16
    MASK = 17
    ATTENTION = 18


OPERAND_MEANINGS = {
    "count": "times that the body runs, at least 1",
    "register": "register that is written, 1 to 15",
    "value": "its new value",
    "dram_addr": "external byte address of the first row, a multiple of the port's bytes",
    "dram_stride": "external bytes from row to row, a multiple of the port's bytes",
    "sp_addr": "scratchpad byte address of the first row",
    "sp_stride": "scratchpad bytes from row to row",
    "row_bytes": "bytes of a row",
    "a_addr": "scratchpad byte address of A: [m, k], or [k, m] with a_transpose",
    "a_stride": "bytes from row to row of A as stored",
    "a_zero": "zero point of A",
    "a_mask": "mask address of A's K tiles, bit kt",
    "b_addr": "scratchpad byte address of B: [k, n], or [n, k] with b_transpose",
    "b_stride": "bytes from row to row of B as stored",
    "b_zero": "zero point of B",
    "b_mask": "mask address of B's tiles, bit nt * ceil(k / rows) + kt",
    "acc_addr": "accumulator row of tile column 0",
    "acc_stride": "accumulator rows from one tile column (cols columns of the result) to the next",
    "slot": "first weight slot, from 2 on; tile (nt, kt) is in slot + nt * ceil(k / rows) + kt",
    "line": "with append, the line of the tile at slot that is written first: a row, with "
    "b_transpose a column",
    "m": "rows of the result",
    "k": "length of the sums",
    "n": "columns of the result",
    "i_addr": "scratchpad byte address of the input; with drain, as acc_addr",
    "i_stride": "bytes from row to row of the input; with drain, as acc_stride",
    "i_zero": "zero point of the input",
    "r_addr": "scratchpad byte address of the second input",
    "r_stride": "bytes from row to row of the second input",
    "r_zero": "zero point of the second input",
    "o_addr": "scratchpad byte address of the output",
    "o_stride": "bytes from row to row of the output",
    "o_zero": "zero point of the output",
    "s_addr": "scratchpad byte address of the sum written back",
    "s_stride": "bytes from row to row of the sum written back",
    "params": "first parameter word; DRAIN takes word params + nt * lane_groups + g for column "
    "nt * cols + g * lanes + lane, the others word params + j // lanes for column j",
    "table": "activation table slot; with rotate, columns of a head, even; with times, zero point "
    "of the second input; with argmax, number of column 0, from 1 on to go on from the argmax "
    "before",
    "pre": "first parameter word of what drain takes in: word pre + j // lanes for column j",
    "mask": "mask address",
    "row": "running row of row 0, with online or running; row i takes running row row + i",
    "start": "first column not masked, of row 0",
    "start_step": "its change from row to row",
    "limit": "columns before the mask, of row 0",
    "limit_step": "its change from row to row",
    "diagonal": "column of the diagonal, of row 0; it moves by one a row",
    "diagonal_value": "added on the diagonal, in units of 2**-24",
    "eps_low": "low 28 bits of the added variance n**2 * epsilon / scale**2",
    "eps_high": "the bits above them",
    "q_addr": "scratchpad byte address of the queries: m rows of k for each head",
    "q_stride": "bytes from row to row of the queries",
    "q_head": "bytes from one head's queries to the next one's",
    "q_zero": "zero point of the queries",
    "k_addr": "scratchpad byte address of the keys: n rows of k for each key head",
    "k_stride": "bytes from row to row of the keys",
    "k_head": "bytes from one key head's keys to the next one's",
    "k_zero": "zero point of the keys",
    "v_addr": "scratchpad byte address of the values: n rows of k for each key head",
    "v_stride": "bytes from row to row of the values",
    "v_head": "bytes from one key head's values to the next one's",
    "v_zero": "zero point of the values",
    "o_head": "bytes from one head's output to the next one's",
    "p_addr": "scratchpad byte address of the first of two buffers of height rows of n 16-bit "
    "scores, which become 8-bit weights in place",
    "p_stride": "bytes from row to row of the scores and weights",
    "p_buffer": "bytes from the first buffer to the second",
    "p_zero": "zero point of the weights",
    "v_acc_addr": "accumulator row of the first of two regions for sums of values; those for "
    "scores are at acc_addr",
    "acc_buffer": "accumulator rows from the first region to the second, of both kinds",
    "row_head": "running rows from one head to the next; 0 where a head has two steps or more and "
    "nothing goes on from it",
    "heads": "query heads",
    "group": "query heads for each key head",
    "height": "rows of a step",
}
"""What each operand means; the name is the same wherever it occurs."""


@dataclass(frozen=True)
class Definition:
    """One instruction: who runs it, what follows its header, and which flags it knows."""

    opcode: Opcode
    engine: Engine | None
    """The engine that runs the instruction; none where the sequencer runs or expands it."""
    operands: tuple[str, ...]
    flags: tuple[str, ...]
    summary: str
    unit: str | None = None
    """The configuration field without which the instruction does not exist."""
    expands: tuple[Engine, Engine] | None = None
    """The engines of the first and the last command of an instruction that the sequencer expands:
    the first takes its tokens, the last gives them."""

    @property
    def taker(self) -> Engine | None:
        """The engine that takes the tokens of ``pop``."""
        return self.expands[0] if self.expands else self.engine

    @property
    def giver(self) -> Engine | None:
        """The engine that gives the tokens of ``push``."""
        return self.expands[1] if self.expands else self.engine

    @property
    def words(self) -> int:
        """Length of the instruction (words)."""
        return 1 + len(self.operands)

    def flag_bit(self, name: str) -> int:
        """Position of a flag in the header's flags field."""
        return self.flags.index(name)


_OUT = ("o_addr", "o_stride", "o_zero")
_VECTOR_FLAGS = ("wide_out", "per_tensor", "relu", "table", "add")
_MORE_VECTOR_FLAGS = ("rotate", "argmax", "times")
_MORE_VECTOR_SUMMARY = (
    "rotate: turn each pair of columns by the cosine and sine, in Q1.15, at its place in the "
    "second input; times: multiply by the 8-bit elements of the second input; argmax: tell the "
    "largest element of one row and its column in ARGMAX"
)

DEFINITIONS = {
    definition.opcode: definition
    for definition in (
        Definition(Opcode.HALT, None, (), (), "wait until every engine is idle, then stop"),
        Definition(Opcode.LOOP, None, ("count",), (), "repeat up to the matching ENDLOOP"),
        Definition(Opcode.ENDLOOP, None, (), (), "end of the innermost loop's body"),
        Definition(Opcode.SET, None, ("register", "value"), (), "write a register"),
        Definition(
            Opcode.LOAD,
            Engine.LOAD,
            ("dram_addr", "dram_stride", "sp_addr", "sp_stride", "m", "row_bytes", "mask"),
            ("masked",),
            "copy m rows of external memory to the scratchpad; masked: row i only where "
            "mask bit mask + i is 1",
        ),
        Definition(
            Opcode.STORE,
            Engine.STORE,
            ("dram_addr", "dram_stride", "sp_addr", "sp_stride", "m", "row_bytes", "mask"),
            ("masked",),
            "copy m rows of the scratchpad to external memory; masked as in LOAD",
        ),
        Definition(
            Opcode.MATMUL,
            Engine.MATRIX,
            (
                "a_addr",
                "a_stride",
                "b_addr",
                "b_stride",
                "acc_addr",
                "acc_stride",
                "m",
                "k",
                "n",
                "a_zero",
                "b_zero",
                "a_mask",
                "b_mask",
                "slot",
            ),
            ("a_transpose", "b_transpose", "a_masked", "b_masked", "resident"),
            "acc[acc_addr + nt * acc_stride + i, c] += sum over k of (A - a_zero) * (B - b_zero); "
            "masked tiles count as zero; resident takes B from the weight slots",
        ),
        Definition(
            Opcode.PRELOAD,
            Engine.MATRIX,
            ("b_addr", "b_stride", "k", "n", "b_zero", "slot", "line"),
            ("b_transpose", "append"),
            "place the tiles of B - b_zero in weight slots, filled up with zeros but for rows past "
            "k without b_transpose, which stay; append: as whole lines from line on, while all "
            "other lines stay: with b_transpose column j of B goes to column "
            "(line + j) % cols of tiles slot + (line + j) // cols * ceil(k / rows) + kt, without "
            "it row j, of n up to cols, to row (line + j) % rows of tile slot + (line + j) // rows",
        ),
        Definition(
            Opcode.DRAIN,
            Engine.VECTOR,
            (
                "acc_addr",
                "acc_stride",
                "r_addr",
                "r_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
                "row",
            ),
            (*_VECTOR_FLAGS, "running", *_MORE_VECTOR_FLAGS, "per_row"),
            "requantize m rows of n accumulators, and clear them; running: divide by the running "
            f"rows' sums, and scale the residual by what they keep; {_MORE_VECTOR_SUMMARY}; "
            "per_row: row i takes parameter word params + i",
        ),
        Definition(
            Opcode.MAP,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "i_zero",
                "r_addr",
                "r_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
            ),
            (*_VECTOR_FLAGS, "wide_in", *_MORE_VECTOR_FLAGS),
            f"requantize m rows of n scratchpad elements; {_MORE_VECTOR_SUMMARY}",
        ),
        Definition(
            Opcode.SOFTMAX,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "start",
                "start_step",
                "limit",
                "limit_step",
                "diagonal",
                "diagonal_value",
                "row",
            ),
            (
                "wide_out",
                "per_tensor",
                "diagonal",
                "online",
                "first",
                "drain",
                "per_row",
                "followed",
            ),
            "softmax of m rows of n 16-bit scores, in units of 2**-8 octaves; online: weights "
            "before the division, of rows that go on from the running rows, or begin with first; "
            "drain: of accumulators, which are cleared, requantized to 16 bits by word params, the "
            "output's parameters follow; per_row: each row has its own words behind those of the "
            "row before; followed: the engine's next command is the same but for addresses, m, n "
            "and limit, and may begin before this one ends",
            unit="softmax",
        ),
        Definition(
            Opcode.NORM,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "r_addr",
                "r_stride",
                "s_addr",
                "s_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
                "eps_low",
                "eps_high",
                "pre",
            ),
            ("wide_out", "per_tensor", "relu", "table", "add", "write_sum", "rms", "drain"),
            "normalize m rows of n 16-bit elements, after adding the second input with add; drain: "
            "of accumulators, which are cleared, requantized to 16 bits by the words from pre on",
            unit="norm",
        ),
        Definition(
            Opcode.ADD,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "i_zero",
                "r_addr",
                "r_stride",
                "r_zero",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
            ),
            ("wide_out", "per_tensor", "relu", "table"),
            "add m rows of n 8-bit elements; the two inputs' multipliers are in lane 0 of words "
            "params and params + 1, the output's parameters follow",
            unit="elementwise",
        ),
        Definition(
            Opcode.MUL,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "i_zero",
                "r_addr",
                "r_stride",
                "r_zero",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
            ),
            ("wide_out", "per_tensor", "relu", "table"),
            "multiply m rows of n 8-bit elements",
            unit="elementwise",
        ),
        Definition(
            Opcode.SCAN,
            Engine.VECTOR,
            ("i_addr", "i_stride", "i_zero", "m", "n", "mask"),
            (),
            "write mask bit kt: whether any of m rows differs from i_zero in columns "
            "kt * rows to kt * rows + rows - 1",
            unit="tile_skip",
        ),
        Definition(
            Opcode.PARAMS,
            Engine.VECTOR,
            ("i_addr", "n", "params"),
            (),
            "read n parameter words from the scratchpad",
        ),
        Definition(
            Opcode.TABLE,
            Engine.VECTOR,
            ("i_addr", "table"),
            (),
            "read an activation table of 256 bytes from the scratchpad, entry 0 for -128",
            unit="activation",
        ),
        Definition(
            Opcode.MASK,
            Engine.VECTOR,
            ("i_addr", "n", "mask"),
            (),
            "set n mask bits to whether the scratchpad byte of each is not zero",
            unit="tile_skip",
        ),
        Definition(
            Opcode.ATTENTION,
            None,
            (
                *(
                    f"{name}_{part}"
                    for name in "qkv"
                    for part in ("addr", "stride", "head", "zero")
                ),
                *("o_addr", "o_stride", "o_head", "o_zero"),
                *("p_addr", "p_stride", "p_buffer", "p_zero"),
                *("acc_addr", "v_acc_addr", "acc_buffer"),
                *("m", "k", "n", "heads", "group", "height", "row", "row_head"),
                "params",
                *("start", "start_step", "limit", "limit_step"),
            ),
            ("first", "wide_out"),
            "attention of m queries of each head to n keys, expanded into MATMUL, DRAIN and "
            "SOFTMAX; params for scores, params + 1 for weights, params + 2 for the output; "
            "without first it continues what an earlier one has left in the running rows and "
            "in the 16-bit output",
            unit="attention",
            expands=(Engine.MATRIX, Engine.VECTOR),
        ),
    )
}
"""Every instruction by opcode."""

MAX_WORDS = max(definition.words for definition in DEFINITIONS.values())


@dataclass(frozen=True)
class Operand:
    """An operand word: ``immediate`` plus the value of ``register``."""

    immediate: int
    register: int = 0

    def __post_init__(self) -> None:
        """Check both parts."""
        bound = 1 << (IMMEDIATE_WIDTH - 1)
        if not -bound <= self.immediate < bound:
            raise ValueError(f"Immediate must fit in {IMMEDIATE_WIDTH} bits, not {self.immediate}")
        if not 0 <= self.register < REGISTERS:
            raise ValueError(f"Register must be from 0 to {REGISTERS - 1}, not {self.register}")

    def pack(self) -> int:
        """Return the operand as a word."""
        return self.immediate % (1 << IMMEDIATE_WIDTH) | self.register << IMMEDIATE_WIDTH

    @classmethod
    def unpack(cls, word: int) -> "Operand":
        """Return the operand of a word."""
        return cls(wrap(word), word >> IMMEDIATE_WIDTH)


def wrap(value: int) -> int:
    """Return a value modulo 2**28, taken as signed."""
    half = 1 << (IMMEDIATE_WIDTH - 1)
    return (value + half) % (1 << IMMEDIATE_WIDTH) - half


@dataclass(frozen=True)
class Instruction:
    """One instruction with its operands, flags and tokens.

    An operand that is not given is 0; an integer stands for an immediate.
    """

    opcode: Opcode
    operands: Mapping[str, int | Operand] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    pop: frozenset[Engine] = frozenset()
    push: frozenset[Engine] = frozenset()

    def __post_init__(self) -> None:
        """Check that the instruction has every operand, flag and token named."""
        definition = self.definition
        name = self.opcode.name
        for operand in self.operands:
            if operand not in definition.operands:
                raise ValueError(f"{name} has no operand {operand!r}")
        for flag in self.flags:
            if flag not in definition.flags:
                raise ValueError(f"{name} has no flag {flag!r}")
        if definition.taker is None and (self.pop or self.push):
            raise ValueError(f"{name} runs on no engine and takes no tokens")
        if definition.taker in self.pop or definition.giver in self.push:
            raise ValueError(f"{name} cannot exchange tokens with its own engine")

    @property
    def definition(self) -> Definition:
        """The definition of the instruction."""
        return DEFINITIONS[self.opcode]

    def operand(self, name: str) -> Operand:
        """Return the operand of a name."""
        value = self.operands.get(name, 0)
        return value if isinstance(value, Operand) else Operand(value)

    def pack(self) -> list[int]:
        """Return the words of the instruction."""
        flags = sum(1 << self.definition.flag_bit(flag) for flag in self.flags)
        pop = sum(1 << engine for engine in self.pop)
        push = sum(1 << engine for engine in self.push)
        header = self.opcode | pop << 5 | push << 9 | flags << FLAG_SHIFT
        return [header, *(self.operand(name).pack() for name in self.definition.operands)]


def _engines(mask: int) -> frozenset[Engine]:
    return frozenset(engine for engine in Engine if mask >> engine & 1)


def unpack_one(words: list[int], address: int) -> Instruction:
    """Return the instruction that starts at a word address.

    Raises :class:`ValueError` where the words are not an instruction.
    """
    header = words[address]
    try:
        definition = DEFINITIONS[Opcode(header & 0x1F)]
    except ValueError:
        raise ValueError(f"Word {address} has the unknown opcode {header & 0x1F}") from None
    if address + definition.words > len(words):
        raise ValueError(f"Program ends within the instruction at word {address}")
    flags = header >> FLAG_SHIFT
    if flags >> len(definition.flags) or header >> 13 & 7:
        raise ValueError(f"Word {address} sets bits that {definition.opcode.name} does not know")
    return Instruction(
        definition.opcode,
        {
            name: Operand.unpack(word)
            for name, word in zip(
                definition.operands,
                words[address + 1 : address + definition.words],
                strict=True,
            )
        },
        frozenset(name for bit, name in enumerate(definition.flags) if flags >> bit & 1),
        _engines(header >> 5 & 0xF),
        _engines(header >> 9 & 0xF),
    )


def pack(program: list[Instruction]) -> list[int]:
    """Return the words of a program."""
    return [word for instruction in program for word in instruction.pack()]


def unpack(words: list[int]) -> Iterator[Instruction]:
    """Yield the instructions of a program's words."""
    address = 0
    while address < len(words):
        instruction = unpack_one(words, address)
        yield instruction
        address += instruction.definition.words
