"""The micro-instruction set and its assembler."""

import numpy as np
import pytest

from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.arch.micro.assembler import Microcode
from celosia.arch.micro.isa import IMMEDIATE_WIDTH, OPERATIONS, Form, encode
from celosia.arch.micro.memory import OPERANDS, memory_map
from celosia.arch.presets import PRESETS
from celosia.sim.micro_decode import Micro, decode


def test_every_word_decodes_to_what_was_encoded() -> None:
    rng = np.random.default_rng(1)
    assert len(OPERATIONS) <= 64
    half = 1 << (IMMEDIATE_WIDTH - 1)
    for name, operation in OPERATIONS.items():
        for _ in range(20):
            ra, rb, rd = (int(number) for number in rng.integers(64, size=3))
            value = int(rng.integers(-half, half))
            if operation.form == Form.REGISTER:
                word = encode(name, ra=ra, rb=rb, rd=rd)
                assert decode(word) == Micro(name, ra, rb, rd, 0)
            elif operation.form == Form.IMMEDIATE:
                decoded = decode(encode(name, ra=ra, rd=rd, value=value))
                assert (decoded.ra, decoded.rd, decoded.value) == (ra, rd, value)
            elif operation.form == Form.STORE:
                decoded = decode(encode(name, ra=ra, rb=rb, value=value))
                assert (decoded.ra, decoded.rb, decoded.value) == (ra, rb, value)
            else:
                decoded = decode(encode(name, ra=ra, rb=rb, value=value + half))
                assert (decoded.ra, decoded.rb, decoded.value) == (ra, rb, value + half)


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"^ADD needs rd from 0 to 63, not 64$"):
        encode("ADD", rd=64)
    with pytest.raises(ValueError, match=r"^ADDI has no room for 8192 in 14 bits$"):
        encode("ADDI", value=8192)
    with pytest.raises(ValueError, match=r"^BEQ has no room for -1 in 14 bits$"):
        encode("BEQ", value=-1)
    with pytest.raises(ValueError, match=r"^There is no micro-instruction 57$"):
        decode(57)
    for text, message in (
        ("here:\nhere:", "Label here stands twice"),
        ("here:\n.words here 1", "Label here stands twice"),
        ("ADD r1, r2", "There is no micro-instruction ADD r1, r2"),
        ("JUMB here", "There is no micro-instruction JUMB here"),
        ("MOVE r1, r64", "There is no register r64"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            Microcode(text)
    with pytest.raises(ValueError, match=r"^There is no label nowhere$"):
        Microcode("GOTO nowhere").words()


def test_lines_of_text() -> None:
    text = """
    .registers 8 A B
    start: ; a comment
        SET A, 70000
        IF A, 3, start, B
        .words table 1 start -1
        LC B, ZERO, table
    """
    code = Microcode("\n".join(line.strip() for line in text.splitlines()), {"ZERO": 0})
    assert code.labels == {"start": 0, "table": 4, "=70000": 7}
    assert code.words() == [
        encode("LC", rd=8, value=7),
        encode("ANDI", rd=9, ra=8, value=8),
        encode("BNE", ra=9, value=0),
        encode("LC", rd=9, value=4),
        *(1, 0, (1 << 32) - 1, 70000),
    ]


def test_operands_of_an_instruction_have_registers_of_their_own() -> None:
    for opcode, definition in DEFINITIONS.items():
        if opcode in (Opcode.PRELOAD, Opcode.SPARSE):
            continue
        numbers = [OPERANDS[name] for name in definition.operands]
        assert len(set(numbers)) == len(numbers)
        assert all(32 <= number < 64 for number in numbers)
    vector = {
        name
        for definition in DEFINITIONS.values()
        if definition.engine == Engine.VECTOR
        for name in definition.operands
    }
    assert len({OPERANDS[name] for name in vector}) == len(vector)


def test_regions_of_the_data_memory_lie_one_behind_the_other() -> None:
    where = memory_map(PRESETS["tiny"])
    assert where.program == 0
    assert where.registers % 16 == 0
    assert where.end - where.params == 3 * 512
    assert where.params - where.tables == 64 * 2
    assert where.tables - where.row == 128
