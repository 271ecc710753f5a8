"""Sums, residual, norm and softmax in one command: the same integers, fewer accesses."""

import numpy as np
import pytest

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.program.layout import param_words, rows_image
from celosia.generators.program.tokens import insert_tokens
from celosia.sim.interpreter import Interpreter
from celosia.sim.requantize import quantize_multiplier
from celosia.tb.machine.simulated import IcarusMachine
from celosia.tb.machine.toolchain import missing_tools

CONFIG = PRESETS["odd"].replace(name="fused", cols=6, fused=True, trace=True)
M, K, N = 4, 8, 7
BEATS = M * -(-N // CONFIG.vector.lanes)
X, R, SUM, OUT, A, B, PARAMS = (CONFIG.line_bytes * 16 * place for place in range(7))
RESULT = 4096

pytestmark = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


def load(image: bytearray, data: np.ndarray, addr: int) -> Instruction:
    """Return the load of rows [m, bytes], which are added to the image."""
    rows, stride = rows_image(data, CONFIG)
    operands = {"dram_addr": len(image), "dram_stride": stride, "sp_addr": addr}
    image += rows
    operands |= {"sp_stride": data.shape[1], "m": len(data), "row_bytes": data.shape[1]}
    return Instruction(Opcode.LOAD, operands)


def setup(rng: np.random.Generator) -> tuple[bytes, list[Instruction]]:
    """Return external memory, and what is done first: x and r are loaded, A and B multiplied.

    Parameter word 0 is a factor of 1, words 2 and 3 are those of scores and probabilities; from
    word 4 on each column has its own, from word 8 on the one of a norm.
    """
    image = bytearray()
    lanes = CONFIG.vector.lanes
    alike = [quantize_multiplier(factor) for factor in (1.0, 2.0**-11, 0.02, 255 * 2.0**-24)]
    words = [
        param_words(np.zeros(lanes, np.int64), *pair, CONFIG, by_tile=False)
        for pair in (np.full((2, lanes), [[a], [b]], np.int64) for a, b in alike)
    ]
    own = np.array([quantize_multiplier(factor) for factor in rng.uniform(0.1, 0.4, N)])
    words.append(param_words(rng.integers(-500, 500, N), *own.T, CONFIG, by_tile=True))
    words += [words[1]] * -(-N // lanes)
    wide = rng.integers(-9000, 9000, (2, M, N)).astype("<i2").view(np.uint8)
    a, b = (rng.integers(-99, 99, shape).astype(np.int8) for shape in ((M, K), (K, N)))
    params = np.concatenate(words)
    loads = [
        # What an earlier run has left is cleared.
        *DRAIN,
        load(image, wide[0].reshape(M, 2 * N), X),
        load(image, wide[1].reshape(M, 2 * N), R),
        load(image, a.view(np.uint8), A),
        load(image, b.view(np.uint8), B),
        load(image, params.reshape(1, -1), PARAMS),
        Instruction(Opcode.PARAMS, {"i_addr": PARAMS, "n": len(params)}),
    ]
    product = {"a_addr": A, "a_stride": K, "b_addr": B, "b_stride": N, "m": M, "k": K, "n": N}
    loads.append(Instruction(Opcode.MATMUL, product | {"acc_stride": M + 1}))
    return bytes(image), loads


def matrix(name: str, addr: int, width: int = 2) -> dict[str, int]:
    """Return the operands that name a tensor of elements of some bytes."""
    return {f"{name}_addr": addr, f"{name}_stride": width * N}


SHAPE = {"m": M, "n": N}
SUMS = {"i_stride": M + 1}
"""Accumulators in the input's place."""


def vector(opcode: Opcode, operands: dict[str, int], *flags: str) -> list[Instruction]:
    """Return a command of the vector engine."""
    return [Instruction(opcode, SHAPE | operands, frozenset(flags))]


def norm(source: dict[str, int], *flags: str) -> list[Instruction]:
    """Return the normalization of a tensor to the output."""
    operands = source | matrix("r", R) | matrix("s", SUM) | matrix("o", OUT, 1)
    operands |= {"params": 8, "pre": 4, "eps_low": 5}
    return vector(Opcode.NORM, operands, *flags)


def softmax(source: dict[str, int], *flags: str) -> list[Instruction]:
    """Return the softmax of a tensor to the output."""
    operands = source | matrix("o", OUT, 1) | {"o_zero": -128, "limit": 5, "limit_step": 1}
    return vector(Opcode.SOFTMAX, operands, "per_tensor", *flags)


ADD = vector(
    Opcode.MAP,
    matrix("i", X) | matrix("r", R) | matrix("o", SUM),
    *("wide_in", "wide_out", "per_tensor", "add"),
)
DRAIN = vector(Opcode.DRAIN, {"acc_stride": M + 1, "params": 4} | matrix("o", X), "wide_out")
DRAIN_ADD = vector(
    Opcode.DRAIN,
    {"acc_stride": M + 1, "params": 4} | matrix("r", R) | matrix("o", SUM),
    *("wide_out", "add"),
)
SCORES = vector(
    Opcode.DRAIN,
    {"acc_stride": M + 1, "params": 2} | matrix("o", X),
    *("wide_out", "per_tensor"),
)
STORE = [
    Instruction(
        Opcode.STORE,
        {"dram_addr": RESULT + place, "sp_addr": addr, "m": 1, "row_bytes": size},
    )
    for place, addr, size in ((0, OUT, M * N), (M * N, SUM, 2 * M * N))
]


@pytest.fixture(scope="module")
def machine():
    made = IcarusMachine(CONFIG, memory_bytes=1 << 14)
    yield made
    made.close()


def run(machine, image: bytes, parts: list[list[Instruction]]):
    """Return the report of the second of three parts, and output and sum."""
    halt = Instruction(Opcode.HALT)
    words = [pack([*insert_tokens(part, CONFIG), halt]) for part in parts]
    machine.write_memory(0, image)
    machine.load_program([word for part in words for word in part])
    starts = np.cumsum([0, *map(len, words)]).tolist()
    reports = [machine.start(pc) for pc in starts[: len(words)]]
    return reports[1], machine.read_memory(RESULT, 3 * M * N)


def check_case(machine, program, same_as, reads: int, writes: int) -> None:
    """Compare a program's result, and its sum where both write one, with another's."""
    image, loads = setup(np.random.default_rng(7))
    report, stored = run(machine, image, [loads, program, STORE])
    expected = run(Interpreter(CONFIG), image, [loads, same_as, STORE])[1]
    sums = any(
        instruction.operand("o_addr").immediate == SUM or "write_sum" in instruction.flags
        for instruction in program
    )
    size = M * N * (3 if sums else 1)
    assert stored[:size] == expected[:size]
    assert len(set(stored[: M * N])) > N
    counters = report.counters
    assert (counters["vector_read"], counters["vector_written"]) == (reads * BEATS, writes * BEATS)


@pytest.mark.parametrize(
    ("program", "reads", "writes"),
    [
        ([*ADD, *norm(matrix("i", SUM))], 3, 2),
        (norm(matrix("i", X), "add"), 2, 1),
        (norm(matrix("i", X), "add", "write_sum"), 2, 2),
    ],
    ids=["addition then norm", "fused", "fused, with the sum written back"],
)
def test_norm_of_a_sum_of_two_tensors(machine, program, reads, writes) -> None:
    check_case(machine, program, [*ADD, *norm(matrix("i", SUM))], reads, writes)


APART = [*DRAIN, *ADD, *norm(matrix("i", SUM))]


@pytest.mark.parametrize(
    ("program", "reads", "writes"),
    [
        (APART, 3, 3),
        ([*DRAIN, *norm(matrix("i", X), "add", "write_sum")], 2, 3),
        ([*DRAIN_ADD, *norm(matrix("i", SUM))], 2, 2),
        (norm(SUMS, "add", "write_sum", "drain"), 1, 2),
        (norm(SUMS, "add", "drain"), 1, 1),
    ],
    ids=[
        "drain, addition, norm",
        "drain, addition and norm",
        "drain and addition, norm",
        "one command, with the sum written back",
        "one command",
    ],
)
def test_norm_of_a_product_and_a_residual(machine, program, reads, writes) -> None:
    check_case(machine, program, APART, reads, writes)


@pytest.mark.parametrize(
    ("program", "reads", "writes"),
    [
        ([*SCORES, *softmax(matrix("i", X) | {"params": 3})], 1, 2),
        (softmax(SUMS | {"params": 2}, "drain"), 0, 1),
    ],
    ids=["drain, softmax", "one command"],
)
def test_softmax_of_a_product(machine, program, reads, writes) -> None:
    apart = [*SCORES, *softmax(matrix("i", X) | {"params": 3})]
    check_case(machine, program, apart, reads, writes)
