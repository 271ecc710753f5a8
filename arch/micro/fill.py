"""PARAMS and TABLE in microcode: from the scratchpad to the data memory."""

from arch.functions import TABLE_ENTRIES
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.memory import FREE, OPERANDS, PARAM_WORDS, TABLE_WORDS, memory_map

_SOURCE, _PLACE, _WORD, _HIGH, _LEFT = FREE[:5]


def params(a: Assembler, config: MicroConfig) -> None:
    """Append PARAMS."""
    a.constant(_WORD, PARAM_WORDS)
    a.multiply(_WORD, OPERANDS["params"])
    a.move(_SOURCE, OPERANDS["i_addr"])
    a.low(_PLACE)
    a.constant(_WORD, memory_map(config).params)
    a.alu("ADD", _PLACE, _PLACE, _WORD)
    a.label("PARAMS word")
    _word(a, 0)
    _word(a, 4)
    a.load("LB", _WORD, _SOURCE, 8)
    a.store("STP", _PLACE, _WORD, 1)
    a.alu("ADDI", _SOURCE, _SOURCE, config.param_lines * config.line_bytes)
    a.loop(OPERANDS["n"], "PARAMS word")


def table(a: Assembler, config: MicroConfig) -> None:
    """Append TABLE."""
    a.alu("SLLI", _PLACE, OPERANDS["table"], (TABLE_WORDS - 1).bit_length())
    a.constant(_WORD, memory_map(config).tables)
    a.alu("ADD", _PLACE, _PLACE, _WORD)
    a.move(_SOURCE, OPERANDS["i_addr"])
    a.constant(_LEFT, TABLE_ENTRIES // 4)
    a.label("TABLE word")
    _word(a, 0)
    a.alu("ADDI", _SOURCE, _SOURCE, 4)
    a.loop(_LEFT, "TABLE word")


def _word(a: Assembler, offset: int) -> None:
    """Append the way of four bytes to the data memory."""
    a.load("LHU", _WORD, _SOURCE, offset)
    a.load("LH", _HIGH, _SOURCE, offset + 2)
    a.alu("SLLI", _HIGH, _HIGH, 16)
    a.alu("OR", _WORD, _WORD, _HIGH)
    a.store("STP", _PLACE, _WORD, 1)
