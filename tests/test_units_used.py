"""Every unit of a preset's or a board's machine is used by programs of the models it is made for.

Machines with two weight slots are made for encoders, here the digits'; those that rotate for
language models, here stories260K.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import unpack
from celosia.arch.isa import RING_SLOTS, Opcode
from celosia.arch.presets import PRESETS
from celosia.fpga.boards import board_configs
from celosia.generators.frontend import digits
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.weights import load_model
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization

STORIES = Path(__file__).parents[1] / "examples" / "stories260k"
EVIDENCE: dict[str, tuple[set[Opcode], set[str]]] = {
    "activation": ({Opcode.TABLE}, {""}),
    "argmax": ({Opcode.DRAIN}, {"argmax"}),
    "b_transpose": ({Opcode.MATMUL, Opcode.PRELOAD}, {"b_transpose"}),
    "fused": ({Opcode.SOFTMAX, Opcode.NORM}, {"drain"}),
    "norm": ({Opcode.NORM}, {""}),
    "rotary": ({Opcode.DRAIN}, {"rotate", "times"}),
    "softmax": ({Opcode.SOFTMAX}, {""}),
    "sparse_lanes": ({Opcode.SPARSE}, {""}),
    "wide_functions": ({Opcode.DRAIN}, {"polynomial"}),
    "wide_operands": ({Opcode.MATMUL}, {"a_wide"}),
    "weight_formats": ({Opcode.MATMUL}, {"format_1", "format_2", "format_4"}),
    "weight_group": ({Opcode.MATMUL}, {"grouped"}),
    "zero_points": ({Opcode.MATMUL}, {"a_zero", "b_zero"}),
}
"""Instructions and their flags, or operands that are not 0, that need a unit; "" is no flag."""


@cache
def stories() -> Decoder:
    source = load_text(str(STORIES / "stories260K.bin"), STORIES / "tok512.bin")
    return source.quantize(Quantization(texts=2, length=32, folded=True))


def programs(config: Config) -> Iterator[list[int]]:
    """Yield the words of the programs of a machine's models."""
    if config.array.weight_depth <= RING_SLOTS:
        train, _ = digits.load()
        model, weights = load_model("digits")
        inputs = digits.patches(train.images[:16])
        yield list(compile_model(model, weights, inputs, config, Options(search=False)).words)
    if config.vector.rotary:
        program = compile_text(stories(), config, context=40)
        yield from (list(program_words.words) for program_words in (program, *program.setup))


def used(config: Config) -> set[str]:
    """Return the units that a machine's models use."""
    units = set()
    for words in programs(config):
        for instruction in unpack(words):
            marks = {"", *instruction.flags}
            marks |= {name for name in instruction.operands if instruction.operand(name).pack()}
            units |= {
                unit
                for unit, (opcodes, needed) in EVIDENCE.items()
                if instruction.opcode in opcodes and needed & marks
            }
    return units


def present(config: Config) -> set[str]:
    """Return the units that a machine has."""
    return {unit for unit in EVIDENCE if config.read(unit)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_units_that_its_models_use(name: str) -> None:
    config = PRESETS[name]
    assert present(config) <= used(config)


@pytest.mark.parametrize(
    "config", tuple(board_configs()), ids=lambda config: f"{config.name}-{config.memory.addr_width}"
)
def test_a_board_has_the_units_that_its_models_use(config: Config) -> None:
    assert present(config) <= used(config)


def test_a_unit_too_many_is_found() -> None:
    wide = {"wide_functions": True, "wide_operands": True}
    config = PRESETS["small"].replace(argmax=True, sparse_lanes=4, **wide)
    assert present(config) - used(config) == {"argmax", "sparse_lanes", *wide}
