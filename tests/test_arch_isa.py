"""The instruction set: packing, text and manual."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble, disassemble
from celosia.arch.instruction import Instruction, Operand, pack, unpack
from celosia.arch.isa import DEFINITIONS, OPERAND_MEANINGS, REGISTERS, Engine, Opcode
from tools.manual import manual


def random_instruction(rng: np.random.Generator) -> Instruction:
    definition = DEFINITIONS[Opcode(rng.choice([*Opcode]))]
    tokens = [*Engine] if definition.engine is not None else []
    half = 1 << 27
    return Instruction(
        definition.opcode,
        {
            name: Operand(int(rng.integers(-half, half)), int(rng.integers(REGISTERS)))
            for name in definition.operands
        },
        frozenset(flag for flag in definition.flags if rng.integers(2)),
        frozenset(e for e in tokens if e != definition.engine and rng.integers(2)),
        frozenset(e for e in tokens if e != definition.engine and rng.integers(2)),
    )


def test_words_and_text_give_the_program_again():
    seed = 1
    rng = np.random.default_rng(seed)
    program = [random_instruction(rng) for _ in range(300)]
    assert {instruction.opcode for instruction in program} == set(Opcode)
    assert list(unpack(pack(program))) == program
    assert pack(assemble(disassemble(program))) == pack(program)


def test_every_operand_has_a_meaning_and_every_meaning_an_operand():
    used = {name for definition in DEFINITIONS.values() for name in definition.operands}
    assert used == set(OPERAND_MEANINGS)


def test_the_manual_names_everything():
    page = manual()
    for definition in DEFINITIONS.values():
        assert f"### {definition.opcode.name}\n" in page
        words = definition.summary.replace("*", r"\*")  # in Markdown
        assert all(f"{clause}." in page for clause in words.split("; "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HALT\nJUMP", "Line 2: Unknown instruction 'JUMP'"),
        ("LOAD width=3", "Line 1: LOAD has no operand 'width'"),
        ("LOAD relu", "Line 1: LOAD has no flag 'relu'"),
        ("LOAD m=x", "Line 1: A value must look like 5, r1 or 5+r1, not 'x'"),
        ("LOAD m=r16", "Line 1: Register must be from 0 to 15, not 16"),
        ("LOAD m=0x8000000", "Line 1: Immediate must fit in 28 bits, not 134217728"),
        ("LOAD pop=HOST", "Line 1: Unknown engine 'HOST'"),
        ("LOAD pop=LOAD", "Line 1: LOAD cannot exchange tokens with its own engine"),
        ("HALT push=LOAD", "Line 1: HALT runs on no engine and takes no tokens"),
    ],
)
def test_text_refused(text, message):
    with pytest.raises(ValueError, match=r".") as caught:
        assemble(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([31], "Word 0 has the unknown opcode 31"),
        ([Opcode.LOOP], "Program ends within the instruction at word 0"),
        ([1 << 16], "Word 0 sets bits that HALT does not know"),
        ([Opcode.HALT | 1 << 5], "Word 0 sets bits that HALT does not know"),
        ([Opcode.LOAD | 1 << 13, *[0] * 6], "Word 0 sets bits that LOAD does not know"),
        ([Opcode.LOAD | 1 << 9, *[0] * 6], "Word 0 sets bits that LOAD does not know"),
        ([Opcode.MAP | 1 << 21, *[0] * 12], "Word 0 sets bits that MAP does not know"),
    ],
)
def test_words_refused(words, message):
    with pytest.raises(ValueError, match=r".") as caught:
        list(unpack(words))
    assert str(caught.value) == message
