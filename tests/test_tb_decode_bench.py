"""A decoder layer's step: figures of its bench, and the port's rate."""

import re

import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.quantize.options import Quantization
from celosia.tb.machine.memory_timing import SDRAM
from celosia.tb.machine.simulators import make_machine
from celosia.tb.speed.decode_bench import bench_decode
from tests.support.longer import longer
from tests.support.text_cases import TEXT

SMALL = PRESETS["small"].replace(scratchpad_bytes=1 << 17)


def run_case(config, simulator, **sizes):
    report = bench_decode(
        config, lambda config, size: make_machine(config, simulator, size, SDRAM), **sizes
    )
    assert report["mismatches"] == 0
    return report


def test_every_weight_comes_once():
    report = run_case(SMALL, "golden", dim=32, ffn=64, positions=9)
    weights = 4 * 32 * 32 + 3 * 32 * 64 + 32 * 32
    # And the token's rows of the vocabulary and of the rotary pairs.
    assert weights < report["loaded_bytes"] <= weights + 32 + 2 * 2 * 32


def test_zeros_are_skipped_where_that_is_faster():
    sizes = {"dim": 64, "ffn": 128, "positions": 9}
    for sparsity, share in ((0.9, 0.5), (0.0, 1.0)):
        skipped, dense = (
            run_case(config, "golden", **sizes, sparsity=sparsity)
            for config in (SMALL.replace(sparse_lanes=4), SMALL)
        )
        for name in ("loaded_bytes", "predicted_cycles"):
            assert skipped[name] <= share * dense[name]


def test_fewer_bits_take_fewer_cycles():
    """Of a layer and attention over 128 positions, predicted behind a port of four bytes."""
    config = PRESETS["medium"].replace(mem_width=32, weight_formats="int2,ternary")
    whole, *shares = (
        run_case(config, "golden", dim=288, ffn=768, options=Quantization(weights=form))[
            "predicted_cycles"
        ]
        for form in ("int8", "int2", "ternary")
    )
    assert shares[0] <= 0.32 * whole
    assert shares[1] <= 0.28 * whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes", "share"),
    [
        (TEXT, {"dim": 64, "ffn": 128, "positions": 33}, 0.77),
        *longer((PRESETS["medium"], {"dim": 288, "ffn": 768}, 0.9)),
    ],
    ids=["text", "medium"],
)
def test_a_layer_reaches_the_ports_rate(config, sizes, share):
    report = run_case(config, "verilator", **sizes)
    assert report["tensors"] >= 12
    assert report["counters"]["loaded"] == report["ideal_cycles"]
    assert report["bandwidth_utilization"] > share
    assert abs(report["predicted_cycles"] / report["cycles"] - 1) < 0.03


@pytest.mark.parametrize("size", ["dim", "ffn", "positions"])
def test_sizes_that_are_none_are_refused(size):
    message = f"Size {size} of a layer must be from 1 to 4096, not 0"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run_case(SMALL, "golden", **({"dim": 32, "ffn": 64} | {size: 0}))
