"""Weights appended line by line are those that are placed at once."""

import itertools

import numpy as np
import pytest

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter

CONFIG = PRESETS["odd"].replace(weight_depth=20)
K, N = 8, 7


def machine(rng: np.random.Generator, cache: np.ndarray) -> Interpreter:
    """Return a machine with a cache, [positions, length], in its scratchpad, and slots of noise."""
    golden = Interpreter(CONFIG)
    golden.slots[2:] = rng.integers(-9, 10, golden.slots[2:].shape)
    golden.sp[: cache.size] = cache.astype(np.int8).view(np.uint8).ravel()
    return golden


def run(golden: Interpreter, operands: dict[str, int], *flags: str) -> None:
    instruction = Instruction(Opcode.PRELOAD, operands, frozenset(flags))
    golden.load_program(pack([instruction, Instruction(Opcode.HALT)]))
    golden.start()


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("cuts", [[0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 3, 7], [0, 7], [0, 4, 7]])
def test_appended_lines_are_those_placed_at_once(transpose: bool, cuts: list[int]) -> None:
    rng = np.random.default_rng(3)
    length = K if transpose else 2  # keys over two K tiles, values shorter than a tile's row
    cache = rng.integers(-128, 128, (N, length))
    golden, whole = (machine(np.random.default_rng(4), cache) for _ in range(2))
    flags = ["b_transpose"] if transpose else []
    side = CONFIG.array.cols if transpose else CONFIG.array.rows
    stack = -(-K // CONFIG.array.rows) if transpose else 1
    place = {"b_stride": length, "b_zero": 3}
    shape = {"k": K, "n": N} if transpose else {"k": N, "n": length}
    run(whole, {**place, **shape, "slot": 2}, *flags)
    used = -(-N // side) * stack
    before = golden.slots.copy()
    for first, end in itertools.pairwise(cuts):
        tile, line = divmod(first, side)
        operands = {**place, **shape, "b_addr": first * length, "line": line}
        operands["n" if transpose else "k"] = end - first
        run(golden, operands | {"slot": 2 + tile * stack}, "append", *flags)
    kept = N % side
    last = slice(2 + used - stack, 2 + used)
    expected = whole.slots.copy()
    expected[2 + used :] = before[2 + used :]
    # Columns behind the last one that was appended are what they were, as rows always are.
    if transpose:
        expected[last, :, kept:] = before[last, :, kept:]
    np.testing.assert_array_equal(golden.slots, expected)
