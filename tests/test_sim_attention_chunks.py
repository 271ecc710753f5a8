"""A program of attention over chunks of keys, on the golden machine, against float64."""

import numpy as np
import pytest

from arch.assembler import assemble
from arch.instruction import pack
from arch.presets import PRESETS
from generators.program.layout import param_words
from sim.interpreter import Interpreter
from sim.requantize import quantize_multiplier

CONFIG = PRESETS["small"]
M, DIM = 10, 16
OUTPUT_STEPS = 200
"""Steps of the INT16 output to one of the INT8 values."""
SCORE_SCALE = 0.5
"""Score units of 1/256 octave to one of a sum of products."""

Q, KEYS, VALUES, SCORES, WEIGHTS, OUTPUT, PARAMS = (at << 12 for at in range(7))
"""Scratchpad addresses: rows of DIM bytes, scores of two bytes, weights of one."""

CHUNK = """
MATMUL a_addr={q} a_stride=16 b_addr={keys} b_stride=16 m=10 k=16 n={n} acc_stride=10 b_transpose
DRAIN acc_stride=10 o_addr={scores} o_stride=64 m=10 n={n} wide_out per_tensor
SOFTMAX i_addr={scores} i_stride=64 o_addr={weights} o_stride=64 o_zero=-128 m=10 n={n} params=1 \
limit={limit} limit_step=3 row=7 per_tensor online {first}
MATMUL a_addr={weights} a_stride=64 a_zero=-128 b_addr={values} b_stride=16 m=10 k={n} n=16 \
acc_stride=10
DRAIN acc_stride=10 r_addr={output} r_stride=32 o_addr={output} o_stride=32 m=10 n=16 params=2 \
row=7 wide_out per_tensor running add
"""


def program(n, chunk):
    """Return the words: every query sees three keys more than the one before, the first three."""
    text = f"PARAMS i_addr={PARAMS} n=3\n"
    for at in range(0, n, chunk):
        text += CHUNK.format(
            q=Q,
            keys=KEYS + at * DIM,
            values=VALUES + at * DIM,
            scores=SCORES,
            weights=WEIGHTS,
            output=OUTPUT,
            n=min(chunk, n - at),
            limit=3 - at,
            first="first" if at == 0 else "",
        )
    return pack(assemble(text + "HALT\n"))


@pytest.mark.parametrize("chunk", [2, 5, 24, 31])
def test_attention_is_the_same_in_chunks_of_any_length(chunk):
    rng = np.random.default_rng(chunk)
    n = 31
    q, keys, values = (rng.integers(-128, 128, (rows, DIM)) for rows in (M, n, n))
    machine = Interpreter(CONFIG)
    for addr, array in ((Q, q), (KEYS, keys), (VALUES, values)):
        machine.sp[addr : addr + array.size] = array.astype(np.int8).view(np.uint8).ravel()
    scales = [SCORE_SCALE * 2**-6, 255 / 2**24, OUTPUT_STEPS / 255]
    multipliers, shifts = np.array([quantize_multiplier(scale) for scale in scales]).T
    lanes = CONFIG.lanes
    words = param_words(
        np.zeros(3 * lanes, np.int64),
        np.repeat(multipliers, lanes),
        np.repeat(shifts, lanes),
        CONFIG,
        by_tile=False,
    )
    machine.sp[PARAMS : PARAMS + words.size] = words.ravel()
    # With first, whatever is there counts for nothing.
    machine.sp[OUTPUT : OUTPUT + 2 * M * DIM] = rng.integers(0, 256, 2 * M * DIM)
    machine.load_program(program(n, chunk))
    machine.start()
    output = machine.sp[OUTPUT : OUTPUT + 2 * M * DIM].view("<i2").reshape(M, DIM)

    scores = np.rint(q @ keys.T * SCORE_SCALE * 2**-6)
    seen = np.arange(n) < 3 + 3 * np.arange(M)[:, None]
    p = np.where(seen, 2.0 ** ((scores - scores.max(axis=1, keepdims=True)) / 256), 0)
    exact = p / p.sum(axis=1, keepdims=True) @ values
    error = np.abs(output - OUTPUT_STEPS * exact)
    # A quarter of a step of the INT8 values: roundings of INT8 weights, which go both ways.
    assert error.max() <= OUTPUT_STEPS / 4
    assert error.mean() <= OUTPUT_STEPS / 20
