"""Tests of celosia.sim.rotary: float64, ONNX's cases, a checkpoint's tables, the golden machine."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter
from celosia.sim.rotary import quantize_pairs, rotary_places, rotary_table, rotate, times

CHECKPOINT = Path(__file__).parents[1] / "examples" / "stories260k" / "stories260K.bin"


def turned(x, cosine, sine):
    """Return float columns [..., n] turned by cosines and sines [..., n / 2]."""
    u = x[..., 0::2] * cosine - x[..., 1::2] * sine
    v = x[..., 0::2] * sine + x[..., 1::2] * cosine
    return np.stack([u, v], -1).reshape(*u.shape[:-1], -1)


def bound(y):
    """Return the stated bound of a wide result's error, in its steps, [..., n]."""
    sums = np.abs(y[..., 0::2]) + np.abs(y[..., 1::2])
    return np.repeat(0.5 + sums / 2.0**15, 2, axis=-1)


@pytest.mark.parametrize("head_dim", [2, 8, 48, 64])
def test_within_the_stated_bound_of_float64(head_dim):
    rng = np.random.default_rng(head_dim)
    positions = np.concatenate([np.arange(512), rng.integers(0, 1 << 20, 500)])
    table = rotary_table(positions, head_dim, head_dim)
    y = rng.integers(-32768, 32768, table.shape)
    y[:5] = rng.choice([-32768, 32767], y[:5].shape)
    speed = 10000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = positions[:, None] * speed
    exact = turned(y.astype(np.float64), np.cos(angle), np.sin(angle))
    wide = rotate(y, table, -32768, 32767, wide=True)
    assert np.all(np.abs(wide - np.clip(exact, -32768, 32767)) <= bound(y))
    narrow = rotate(y, table, -128, 127)
    error = np.abs(narrow - np.clip(exact / 256, -128, 127))
    assert np.all(error <= 0.5 + (bound(y) - 0.5) / 256)


def test_bounds_of_an_output_that_is_narrower():
    y = [32767, 32767, -32768, -32768]
    pairs = [32767, 0, 32767, 0]
    assert rotate(y, pairs, -8, 7).tolist() == [7, 7, -8, -8]


def onnx_cases():
    node = pytest.importorskip("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases divide by zero
        return node.collect_testcases("RotaryEmbedding")


def test_equals_onnx():
    """Every published case, with inputs in steps of 2**-13, to within the stated bound."""
    cases = onnx_cases()
    assert len(cases) == 16
    attributes = {}
    for case in cases:
        if len(case.model.graph.node) == 1:
            fields = case.model.graph.node[0].attribute
            attributes[case.name] = {entry.name: entry.i for entry in fields}
        options = attributes[case.name.removesuffix("_expanded")]
        for (x, cosine, sine, *ids), (expected,) in case.data_sets:
            run_onnx(x, cosine, sine, ids, expected, options)


def run_onnx(x, cosine, sine, ids, expected, options):
    if x.ndim == 3:  # [batch, sequence, heads * head_dim]
        batch, length, width = x.shape
        heads = options["num_heads"]
        split = (batch, length, heads, width // heads)
        x, expected = (part.reshape(split).swapaxes(1, 2) for part in (x, expected))
    if ids:
        cosine, sine = cosine[ids[0]], sine[ids[0]]  # [batch, sequence, rotary_dim / 2]
    head_dim = x.shape[-1]
    rotary_dim = options.get("rotary_embedding_dim") or head_dim
    order = np.arange(head_dim)
    if not options.get("interleaved"):
        order[:rotary_dim] = np.arange(rotary_dim).reshape(2, -1).T.ravel()
    pairs = np.zeros((*cosine.shape[:2], head_dim))
    pairs[..., 0::2] = 1.0
    pairs[..., 0:rotary_dim:2], pairs[..., 1:rotary_dim:2] = cosine, sine
    y = np.rint(x[..., order].astype(np.float64) * 2**13).astype(np.int64)
    out = rotate(y, quantize_pairs(pairs)[:, None], -32768, 32767, wide=True)
    # Each input is up to half a step from ONNX's, and turned by up to 1 twice.
    error = np.abs(out - expected[..., order].astype(np.float64) * 2**13)
    assert np.all(error <= bound(y) + 1.0)


def test_the_table_is_a_checkpoints():
    data = CHECKPOINT.read_bytes()
    dim, hidden, layers, heads, key_heads, vocabulary, positions = np.frombuffer(data, "<i4", 7)
    floats = np.frombuffer(data, "<f4", offset=28)
    head_dim = dim // heads
    projections = 2 * dim * dim + 2 * dim * key_heads * head_dim
    before = abs(vocabulary) * dim + layers * (2 * dim + projections + 3 * dim * hidden) + dim
    cosine, sine = floats[before:][: positions * head_dim].reshape(2, positions, head_dim // 2)
    table = rotary_table(np.arange(positions), int(head_dim), int(head_dim))
    for column, published in ((0, cosine), (1, sine)):
        # The checkpoint's angles are float32: at position 511 they are up to 2**-16 wrong.
        assert np.abs(table[:, column::2] / 2.0**15 - published).max() <= 2.0**-15


@pytest.mark.parametrize(
    ("cols", "lanes", "period"),
    [(12, 12, 8), (12, 6, 8), (12, 4, 8), (8, 2, 6), (2, 2, 2), (16, 16, 48)],
)
@pytest.mark.parametrize("wide", [False, True])
def test_the_machine_turns_every_head_alike(cols, lanes, period, wide):
    """Behind any array, a table with as many columns as beats reach turns each head by its row."""
    rng = np.random.default_rng(cols * lanes * period)
    config = PRESETS["small"].replace(cols=cols, lanes=lanes, rotary=True)
    m, n = 3, 4 * period
    machine = Interpreter(config)
    machine.multiplier[:], machine.shift[:] = 1 << 30, 1  # times 1
    tiles = -(-n // cols)
    y = rng.integers(-32768, 32768, (m, n))
    padded = np.zeros((m, tiles * cols), np.int64)
    padded[:, :n] = y
    machine.acc[: tiles * m] = padded.reshape(m, tiles, cols).swapaxes(0, 1).reshape(-1, cols)
    width = int(rotary_places(n, period, lanes, cols).max()) + 1
    table = rotary_table([5, 6, 7], period, width)
    machine.sp[8192 : 8192 + table.nbytes] = table.view(np.uint8).ravel()
    out_stride = 2 * n if wide else n
    text = f"DRAIN acc_stride={m} m={m} n={n} table={period} r_addr=8192 r_stride={2 * width} "
    text += f"o_addr=12288 o_stride={out_stride} per_tensor rotate {'wide_out' if wide else ''}"
    machine.load_program(pack(assemble(f"{text}\nHALT")))
    machine.start()
    pairs = np.tile(rotary_table([5, 6, 7], period, period), 4)
    low, high = (-32768, 32767) if wide else (-128, 127)
    written = machine.sp[12288 : 12288 + m * out_stride].view("<i2" if wide else np.int8)
    np.testing.assert_array_equal(written.reshape(m, n), rotate(y, pairs, low, high, wide=wide))


@pytest.mark.parametrize("wide", [False, True])
def test_the_machine_multiplies(wide):
    rng = np.random.default_rng(wide)
    config = PRESETS["odd"].replace(rotary=True, cols=4, lanes=2, operand_width=7)
    m, n = 2, 10
    machine = Interpreter(config)
    machine.multiplier[:], machine.shift[:] = 1 << 30, 1  # times 1
    y, r = rng.integers(-32768, 32768, (m, n)), rng.integers(-128, 128, (m, n))
    machine.acc[:6] = np.pad(y, ((0, 0), (0, 2))).reshape(m, 3, 4).swapaxes(0, 1).reshape(6, 4)
    machine.sp[100 : 100 + m * n] = r.astype(np.int8).view(np.uint8).ravel()
    text = f"DRAIN acc_stride={m} m={m} n={n} table=-7 r_addr=100 r_stride={n} per_tensor times "
    text += f"o_addr=200 o_stride={2 * n if wide else n} {'wide_out' if wide else ''}"
    machine.load_program(pack(assemble(f"{text}\nHALT")))
    machine.start()
    low, high = (-32768, 32767) if wide else (-64, 63)
    written = machine.sp[200 : 200 + m * n * (1 + wide)].view("<i2" if wide else np.int8)
    product = y * (r + 7) / (2**4 if wide else 2**12)
    np.testing.assert_array_equal(written.reshape(m, n), times(y, r + 7, low, high, wide=wide))
    assert np.abs(written.reshape(m, n) - np.clip(product, low, high)).max() <= 0.5


@pytest.mark.parametrize("head_dim", [0, 3])
def test_refuses_head_dim(head_dim):
    message = f"Rotary head_dim must be even and positive, not {head_dim}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rotary_table([0], head_dim, 8)


def test_pairs_are_as_large_on_either_side():
    """Half a turn is -1, which has no other magnitude than 1: else rotations would not undo."""
    assert quantize_pairs([-2.0, -1.0, 0.0, 1.0, 2.0]).tolist() == [-32767, -32767, 0, 32767, 32767]
