"""LOAD and STORE in microcode: rows between external memory and the scratchpad."""

from arch.isa import Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.memory import FREE, OPERANDS, ZERO

_EXTERNAL, _PLACE, _LEFT, _WORDS, _WORD, _HELP, _MASK, _WHOLE = FREE[:8]
_BURST = 256


def load(a: Assembler, config: MicroConfig) -> None:
    """Append LOAD."""
    _rows(a, config, Opcode.LOAD)


def store(a: Assembler, config: MicroConfig) -> None:
    """Append STORE."""
    a.constant(_WHOLE, (1 << config.mem_bytes) - 1)
    _rows(a, config, Opcode.STORE)


def _rows(a: Assembler, config: MicroConfig, opcode: Opcode) -> None:
    """Append the walk over rows, in bursts of at most 256 words."""
    step = (config.mem_bytes - 1).bit_length()
    name = opcode.name
    a.label(f"{name} row")
    a.move(_EXTERNAL, OPERANDS["dram_addr"])
    a.move(_PLACE, OPERANDS["sp_addr"])
    a.move(_LEFT, OPERANDS["row_bytes"])
    a.label(f"{name} burst")
    a.alu("ADDI", _WORDS, _LEFT, config.mem_bytes - 1)
    a.alu("SRLI", _WORDS, _WORDS, step)
    a.alu("MINI", _WORDS, _WORDS, _BURST)
    a.alu("ADDI", _HELP, _WORDS, -1)
    a.emit("ASK" if opcode == Opcode.LOAD else "OFFER", ra=_EXTERNAL, rb=_HELP)
    a.alu("SLLI", _HELP, _WORDS, step)
    a.alu("ADD", _EXTERNAL, _EXTERNAL, _HELP)
    if opcode == Opcode.LOAD and config.mem_bytes == 2:
        _take_words(a)
    a.label(f"{name} word")
    a.alu("ADDI", _LEFT, _LEFT, -config.mem_bytes)
    if opcode == Opcode.LOAD:
        _take(a, config)
    else:
        _give(a, config)
    a.loop(_WORDS, f"{name} word")
    if opcode == Opcode.STORE:
        a.emit("AWAIT")
    else:
        a.label("LOAD more")
    a.branch("BLT", ZERO, _LEFT, f"{name} burst")
    a.label(f"{name} next")
    a.alu("ADD", OPERANDS["dram_addr"], OPERANDS["dram_addr"], OPERANDS["dram_stride"])
    a.alu("ADD", OPERANDS["sp_addr"], OPERANDS["sp_addr"], OPERANDS["sp_stride"])
    a.loop(OPERANDS["m"], f"{name} row")


def _take_words(a: Assembler) -> None:
    """Append the way of a burst's whole words to an even place."""
    a.alu("ANDI", _MASK, _PLACE, 1)
    a.branch("BNE", _MASK, ZERO, "LOAD word")
    a.alu("SRLI", _MASK, _LEFT, 1)
    a.alu("MIN", _MASK, _MASK, _WORDS)
    a.branch("BEQ", _MASK, ZERO, "LOAD word")
    a.constant(_WHOLE, 2)
    a.emit("REPEAT", rb=_MASK)
    a.alu("ADD", _HELP, _MASK, _MASK)
    a.alu("SUB", _LEFT, _LEFT, _HELP)
    a.alu("SUB", _WORDS, _WORDS, _MASK)
    a.emit("TAKES", ra=_PLACE, rb=_WHOLE)
    a.branch("BEQ", _WORDS, ZERO, "LOAD more")


def _take(a: Assembler, config: MicroConfig) -> None:
    """Append the way of one word to the scratchpad, of the row's last one only its own bytes."""
    a.emit("TAKE", _WORD)
    if config.mem_bytes == 1:
        a.store("SBP", _PLACE, _WORD, 1)
        return
    a.branch("BLT", _LEFT, ZERO, "LOAD rest")
    a.store("SHP", _PLACE, _WORD, 2)
    for _ in range(config.mem_bytes // 2 - 1):
        a.alu("SRLI", _WORD, _WORD, 16)
        a.store("SHP", _PLACE, _WORD, 2)
    a.jump("LOAD whole")
    a.label("LOAD rest")
    a.alu("ADDI", _LEFT, _LEFT, config.mem_bytes)
    a.label("LOAD byte")
    a.store("SBP", _PLACE, _WORD, 1)
    a.alu("SRLI", _WORD, _WORD, 8)
    a.loop(_LEFT, "LOAD byte")
    a.label("LOAD whole")


def _give(a: Assembler, config: MicroConfig) -> None:
    """Append the way of one word from the scratchpad."""
    if config.mem_bytes == 1:
        a.load("LBUP", _WORD, _PLACE, 1)
    else:
        a.load("LHUP", _WORD, _PLACE, 2)
    for half in range(1, config.mem_bytes // 2):
        a.load("LHUP", _HELP, _PLACE, 2)
        a.alu("SLLI", _HELP, _HELP, 16 * half)
        a.alu("OR", _WORD, _WORD, _HELP)
    a.move(_MASK, _WHOLE)
    a.branch("BGE", _LEFT, ZERO, "STORE whole")
    a.alu("SUB", _HELP, ZERO, _LEFT)
    a.alu("SRL", _MASK, _MASK, _HELP)
    a.label("STORE whole")
    a.emit("GIVE", ra=_WORD, rb=_MASK)
