"""Instructions, and their encoding in 32-bit words."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from celosia.arch.errors import ProgramError
from celosia.arch.isa import (
    DEFINITIONS,
    FLAG_SHIFT,
    IMMEDIATE_WIDTH,
    POP_SHIFT,
    PUSH_SHIFT,
    REGISTERS,
    Definition,
    Engine,
    Opcode,
)

CACHED = 1 << 16
"""Unpacked instructions and operands that are kept, as programs repeat them."""


@dataclass(frozen=True)
class Operand:
    """An operand: a signed ``immediate`` plus the value of ``register``; register 0 is always 0.

    Raises :class:`ProgramError` if the immediate or the register number does not fit its field.
    """

    immediate: int
    register: int = 0

    def __post_init__(self) -> None:
        """Check both parts."""
        bound = 1 << (IMMEDIATE_WIDTH - 1)
        if not -bound <= self.immediate < bound:
            raise ProgramError(
                f"Immediate must fit in {IMMEDIATE_WIDTH} bits, not {self.immediate}"
            )
        if not 0 <= self.register < REGISTERS:
            raise ProgramError(f"Register must be from 0 to {REGISTERS - 1}, not {self.register}")

    def pack(self) -> int:
        """Return the 32-bit word that encodes the operand."""
        return self.immediate % (1 << IMMEDIATE_WIDTH) | self.register << IMMEDIATE_WIDTH

    @classmethod
    @functools.lru_cache(CACHED)
    def unpack(cls, word: int) -> "Operand":
        """Return the operand that a 32-bit word encodes."""
        return cls(wrap(word), word >> IMMEDIATE_WIDTH)


def wrap(value: int) -> int:
    """Return a value modulo 2**28 as a signed integer of 28 bits."""
    half = 1 << (IMMEDIATE_WIDTH - 1)
    return (value + half) % (1 << IMMEDIATE_WIDTH) - half


def resolve(name: str, value: int) -> int:
    """Return the value that engines read for operand ``name``: ``value`` modulo 2**28.

    ``value`` is the sum of the operand's immediate and register. The result is unsigned for
    ``dram_addr``, and signed for every other operand.
    """
    return value % (1 << IMMEDIATE_WIDTH) if name == "dram_addr" else wrap(value)


@dataclass(frozen=True)
class Instruction:
    """One instruction with its operands, flags and synchronization tokens.

    An operand that is omitted is 0. An operand given as an integer is an immediate, without a
    register. Raises :class:`ProgramError` if an operand, flag or token is not defined for the
    opcode.
    """

    opcode: Opcode
    operands: Mapping[str, int | Operand] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    pop: frozenset[Engine] = frozenset()
    push: frozenset[Engine] = frozenset()

    def __post_init__(self) -> None:
        """Check that the opcode has every named operand, flag and token."""
        definition = self.definition
        name = self.opcode.name
        for operand in self.operands:
            if operand not in definition.operands:
                raise ProgramError(f"{name} has no operand {operand!r}")
        for flag in self.flags:
            if flag not in definition.flags:
                raise ProgramError(f"{name} has no flag {flag!r}")
        if definition.engine is None and (self.pop or self.push):
            raise ProgramError(f"{name} runs on no engine and takes no tokens")
        if definition.engine in self.pop or definition.engine in self.push:
            raise ProgramError(f"{name} cannot exchange tokens with its own engine")

    @property
    def definition(self) -> Definition:
        """The :class:`Definition` of the instruction's opcode: its engine, operands and flags."""
        return DEFINITIONS[self.opcode]

    def operand(self, name: str) -> Operand:
        """Return the operand with the given name; 0 if the instruction omits the operand."""
        value = self.operands.get(name, 0)
        return value if isinstance(value, Operand) else Operand(value)

    def pack(self) -> list[int]:
        """Return the instruction's 32-bit words, header first."""
        flags = sum(1 << self.definition.flag_bit(flag) for flag in self.flags)
        pop = sum(1 << engine for engine in self.pop)
        push = sum(1 << engine for engine in self.push)
        header = self.opcode | pop << POP_SHIFT | push << PUSH_SHIFT | flags << FLAG_SHIFT
        return [header, *(self.operand(name).pack() for name in self.definition.operands)]


@functools.lru_cache
def _engines(mask: int) -> frozenset[Engine]:
    return frozenset(engine for engine in Engine if mask >> engine & 1)


def unpack_one(words: list[int], address: int) -> Instruction:
    """Return the instruction that starts at word ``address`` of a program's words.

    Raises :class:`ProgramError` if the words are not an instruction.
    """
    header = words[address]
    try:
        definition = DEFINITIONS[Opcode(header & 0x1F)]
    except ValueError:
        raise ProgramError(f"Word {address} has the unknown opcode {header & 0x1F}") from None
    end = address + definition.words
    if end > len(words):
        raise ProgramError(f"Program ends within the instruction at word {address}")
    if header & definition.reserved:
        raise ProgramError(f"Word {address} sets bits that {definition.opcode.name} does not know")
    return _unpacked(definition, *words[address:end])


@functools.lru_cache(CACHED)
def _unpacked(definition: Definition, header: int, *operands: int) -> Instruction:
    """Return the instruction of a valid header and its operands' words."""
    flags = header >> FLAG_SHIFT
    return Instruction(
        definition.opcode,
        dict(zip(definition.operands, map(Operand.unpack, operands), strict=True)),
        frozenset(name for name in definition.flags if flags >> definition.flag_bit(name) & 1),
        _engines(header >> POP_SHIFT & 0xF),
        _engines(header >> PUSH_SHIFT & 0xF),
    )


def pack(program: list[Instruction]) -> list[int]:
    """Return a program's instructions as a list of 32-bit words."""
    return [word for instruction in program for word in instruction.pack()]


def unpack(words: list[int]) -> Iterator[Instruction]:
    """Yield the instructions that 32-bit words encode.

    Raises :class:`ProgramError` if the words are not instructions.
    """
    address = 0
    while address < len(words):
        instruction = unpack_one(words, address)
        yield instruction
        address += instruction.definition.words
