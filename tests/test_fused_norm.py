"""Addition fused with normalization: the same integers with fewer scratchpad accesses."""

import numpy as np
import pytest

from arch.config import PRESETS
from arch.isa import Instruction, Opcode, pack
from generators.layout import param_words, rows_image
from generators.tokens import insert_tokens
from sim.interpreter import Interpreter
from sim.requantize import quantize_multiplier
from tb.machine import IcarusMachine
from tb.toolchain import missing_tools

CONFIG = PRESETS["odd"].replace(name="fused", mem_addr_width=16, trace=True)
M, N = 4, 7
BEATS = M * -(-N // CONFIG.lanes)
X, R, SUM, OUT, PARAMS = (CONFIG.line_bytes * place for place in (0, 16, 32, 48, 64))
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
    """Return external memory and the loads: x, r, and the parameters of a sum and of a norm."""
    image = bytearray()
    factors = [quantize_multiplier(1.0), quantize_multiplier(2.0**-11)]
    words = np.concatenate(
        [
            param_words(np.zeros(CONFIG.lanes, np.int64), *pair, CONFIG, by_tile=False)
            for pair in (np.full((2, CONFIG.lanes), [[a], [b]], np.int64) for a, b in factors)
        ]
    )
    tensors = rng.integers(-9000, 9000, (2, M, N)).astype("<i2").view(np.uint8)
    loads = [
        load(image, tensor.reshape(M, 2 * N), addr)
        for tensor, addr in zip(tensors, (X, R), strict=True)
    ]
    loads.append(load(image, words.reshape(1, -1), PARAMS))
    loads.append(Instruction(Opcode.PARAMS, {"i_addr": PARAMS, "n": 2, "params": 0}))
    return bytes(image), loads


def norm(source: int, *flags: str) -> Instruction:
    """Return the normalization of a tensor to the output."""
    rows = {"i_addr": source, "i_stride": 2 * N, "r_addr": R, "r_stride": 2 * N}
    rows |= {"s_addr": SUM, "s_stride": 2 * N, "o_addr": OUT, "o_stride": N, "eps_low": 5}
    operands = rows | {"m": M, "n": N, "params": 1}
    return Instruction(Opcode.NORM, operands, frozenset({"per_tensor", *flags}))


ADD = Instruction(
    Opcode.MAP,
    {"i_addr": X, "i_stride": 2 * N, "r_addr": R, "r_stride": 2 * N, "m": M, "n": N}
    | {"o_addr": SUM, "o_stride": 2 * N},
    frozenset({"wide_in", "wide_out", "per_tensor", "add"}),
)
STORE = Instruction(
    Opcode.STORE,
    {"dram_addr": RESULT, "dram_stride": N + -N % CONFIG.mem_bytes}
    | {"sp_addr": OUT, "sp_stride": N, "m": M, "row_bytes": N},
)


@pytest.fixture(scope="module")
def machine():
    made = IcarusMachine(CONFIG, memory_bytes=1 << 14)
    yield made
    made.close()


def run(machine, image: bytes, parts: list[list[Instruction]]):
    """Return what a machine reports of the second of three parts, and the result."""
    halt = Instruction(Opcode.HALT)
    words = [pack([*insert_tokens(part, CONFIG), halt]) for part in parts]
    machine.write_memory(0, image)
    machine.load_program([word for part in words for word in part])
    starts = np.cumsum([0, *map(len, words)]).tolist()
    reports = [machine.start(pc) for pc in starts[: len(words)]]
    return reports[1], machine.read_memory(RESULT, M * (N + -N % CONFIG.mem_bytes))


@pytest.mark.parametrize(
    ("program", "reads", "writes"),
    [
        ([ADD, norm(SUM)], 3, 2),
        ([norm(X, "add")], 2, 1),
        ([norm(X, "add", "write_sum")], 2, 2),
    ],
    ids=["addition then norm", "fused", "fused, with the sum written back"],
)
def test_accesses_are_counted_and_results_equal(machine, program, reads, writes) -> None:
    image, loads = setup(np.random.default_rng(7))
    parts = [loads, program, [STORE]]
    report, found = run(machine, image, parts)
    assert found == run(Interpreter(CONFIG), image, [loads, [ADD, norm(SUM)], [STORE]])[1]
    assert len(set(found)) > N
    counters = report.counters
    assert (counters["vector_read"], counters["vector_written"]) == (reads * BEATS, writes * BEATS)
