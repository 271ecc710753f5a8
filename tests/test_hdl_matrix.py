"""The matrix engine: exact sums whatever stalls, and its cycles."""

import itertools
import json
import re
from pathlib import Path

import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.program.predict import predict
from celosia.hdl.engines import matrix_engine
from celosia.tb.benches.matrix_jobs import window
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from tests.support.longer import is_longer, longer

ODD = {"rows": 5, "cols": 3, "weight_depth": 12}
SQUARE = {"rows": 4, "cols": 4, "weight_depth": 32}
TREE = {"array": "tree"}
REGISTERED = {"registered": True}
PACKED = {"weight_formats": "int4,int3,ternary,nf4,int6", "weight_group": 8}
PARTS = {"pass_width": 4, "packed": True, "zero_points": False, "operand_gating": False}
OVERLAPPING = {"packed": True}
WIDE = {"wide_operands": True}
PAIRED = {"packed_slots": True}
CACHE = {
    "array": "tree",
    "packed_cache": True,
    "zero_points": False,
    "operand_gating": False,
}
BLOCKS = {"block_exponents": True}
BARE = {
    "zero_points": False,
    "operand_gating": False,
    "b_transpose": False,
}

QUICK = ("micro", "tiny", "small", "odd")


def make(changes: dict[str, int]) -> Config:
    """Return the configuration that the bench makes of the same changes."""
    return PRESETS["small"].replace(lanes=1, **changes)


def run_case(changes, *, simulator="icarus", seed=1, report=None, **parameters) -> None:
    """Run the bench on an engine."""
    settings = {"config": changes, **parameters} | ({"report": str(report)} if report else {})
    simulate(
        matrix_engine(make(changes)),
        bench="celosia.tb.benches.bench_matrix",
        simulator=simulator,
        seed=seed,
        parameters=settings,
    )


def measure(path: Path, changes, products, **parameters) -> dict[str, list[int]]:
    """Return the cycles from the first command to each ``done``, and of each working spell."""
    report = path / "report.json"
    run_case(changes, report=report, products=products, **parameters)
    return json.loads(report.read_text(encoding="utf-8"))


def count_cycles(path: Path, changes, products, **parameters) -> list[int]:
    """Return the cycles from the first command to each ``done``."""
    return measure(path, changes, products, **parameters)["cycles"]


# The others have the same circuit in more places; a product streams on a large array below.
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.long) for each in PRESETS],
)
def test_presets_run_the_smallest_and_an_odd_product(name: str) -> None:
    preset = PRESETS[name]
    sizes = ("rows", "cols", "acc_depth", "scratchpad_bytes", "max_k")
    products = [
        ["MATMUL", *shape, flags]
        for shape in ((1, 1, 1), (17, 23, 5))
        for flags in ([], ["b_transpose"])
    ]
    run_case({size: preset.read(size) for size in sizes}, products=products)


@pytest.mark.parametrize(
    ("simulator", "changes", "stall", "seed"),
    [
        # The circuit of a test of 16-bit rows, below.
        ("verilator", {**SQUARE, **WIDE}, 0.2, 32),
        ("icarus", {"rows": 1, "cols": 1, "weight_depth": 7}, 0.2, 5),
        ("icarus", {"rows": 3, "cols": 2, "operand_width": 5}, 0.2, 8),
        ("icarus", {**ODD, **BARE, "pass_width": 4, "packed": True}, 0.1, 27),
        (
            "icarus",
            {**ODD, **CACHE, **PACKED, **REGISTERED, **PAIRED, "weight_group": 10},
            0.2,
            33,
        ),
        ("icarus", {"rows": 1, "cols": 1, "weight_depth": 30, **CACHE, **BLOCKS}, 0.2, 43),
        ("icarus", {**ODD, **OVERLAPPING, **CACHE, **BLOCKS, **REGISTERED}, 0.2, 46),
        ("icarus", {**ODD, **TREE, **WIDE}, 0.1, 33),
        # Tiles of one vector wait in all places that there are.
        ("icarus", {"rows": 2, "cols": 2, "weight_depth": 3, **BARE, **REGISTERED}, 0.6, 21),
        *longer(
            ("icarus", {"rows": 2, "cols": 7, "weight_depth": 3}, 0.5, 6),
            ("icarus", {"rows": 6, "cols": 1, "acc_width": 28}, 0.2, 9),
            ("icarus", {**SQUARE, **BARE, **REGISTERED, "sleep": True}, 0.1, 19),
            ("icarus", {**ODD, **PACKED, "weight_group": 20}, 0.0, 23),
            ("icarus", {**SQUARE, **PACKED, **PARTS, **REGISTERED}, 0.2, 28),
            ("icarus", {**SQUARE, **CACHE, "low_rows": 2}, 0.2, 32),
            ("icarus", {**ODD, **CACHE, **PARTS}, 0.1, 34),
            ("icarus", {**SQUARE, **OVERLAPPING, **TREE, **REGISTERED}, 0.1, 45),
            ("icarus", {"rows": 4, "cols": 6, **REGISTERED, **PACKED, **WIDE}, 0.2, 34),
            ("icarus", {**ODD, **TREE, **REGISTERED}, 0.1, 17),
            (
                "icarus",
                {**SQUARE, **PACKED, **PARTS, **TREE, "packed": False, "pass_width": 1},
                0.2,
                29,
            ),
            ("icarus", {**SQUARE, **BARE, **TREE, **PACKED, "packed_slots": True}, 0.1, 30),
            ("icarus", {"rows": 2, "cols": 4, **OVERLAPPING, **WIDE, "acc_width": 32}, 0.2, 47),
            ("icarus", {**ODD, **WIDE, "operand_gating": False, "sleep": True}, 0.3, 35),
            ("verilator", ODD, 0.0, 2),
            ("icarus", ODD, 0.3, 3),
            ("icarus", ODD, 0.0, 4),
            ("icarus", {**SQUARE, **BARE}, 0.1, 7),
            ("verilator", {"rows": 7, "cols": 4, "weight_depth": 40, **TREE}, 0.1, 10),
            ("icarus", {**ODD, **TREE}, 0.0, 11),
            ("icarus", {**SQUARE, **BARE, **TREE}, 0.1, 13),
            ("icarus", {**ODD, **REGISTERED}, 0.0, 14),
            ("verilator", {**SQUARE, **REGISTERED}, 0.2, 15),
            ("icarus", {"rows": 5, "cols": 4, **REGISTERED}, 0.1, 16),
            ("icarus", {**ODD, "cols": 6, "sleep": True}, 0.2, 18),
            ("verilator", {**SQUARE, **PACKED}, 0.2, 22),
            ("icarus", {**SQUARE, **BARE, **TREE, **PACKED}, 0.1, 24),
            ("icarus", {"rows": 4, "cols": 6, **REGISTERED, **PACKED}, 0.2, 25),
            (
                "icarus",
                {**ODD, **BARE, **TREE, **PARTS, "weight_formats": "int4", **PAIRED},
                0.2,
                31,
            ),
            ("icarus", {**ODD, **CACHE, **BLOCKS, "low_rows": 1}, 0.2, 41),
            (
                "verilator",
                {**SQUARE, **CACHE, **BLOCKS, **PACKED, **REGISTERED, **PAIRED},
                0.1,
                42,
            ),
            ("icarus", {"weight_formats": "ternary", **SQUARE, **TREE, **REGISTERED}, 0.2, 26),
            ("icarus", {**ODD, **OVERLAPPING}, 0.2, 44),
            ("icarus", {"rows": 5, "cols": 2, **OVERLAPPING, "sleep": True}, 0.2, 48),
            ("verilator", ODD, 0.3, 1),
            ("icarus", {"rows": 1, "cols": 1, "weight_depth": 7, **TREE}, 0.2, 12),
        ),
    ],
)
def test_random_commands(
    simulator: str, changes, stall: float, seed: int, request: pytest.FixtureRequest
) -> None:
    count = 24 if is_longer(request) else 12
    run_case(changes, simulator=simulator, seed=seed, stall=stall, random=count)


@pytest.mark.parametrize(
    "changes",
    [
        SQUARE,
        ODD,
        ODD | TREE,
        {"rows": 5, "cols": 4, **REGISTERED, "protect": "correct"},
        {**SQUARE, **PARTS, "b_transpose": True},
        *longer({"rows": 3, "cols": 5}, SQUARE | TREE, SQUARE | REGISTERED),
        *longer(ODD | REGISTERED, {"rows": 5, "cols": 4, **REGISTERED}),
    ],
)
def test_a_product_takes_its_formula(tmp_path: Path, changes) -> None:
    config = make(changes)
    rows, cols = config.array.rows, config.array.cols
    products = [
        ["MATMUL", *shape, flags]
        for flags, shape in (
            ([], (20, 16, 16)),
            ([], (5, 16, 17)),
            ([], (9, 2, 4)),
            ([], (1, 1, 1)),
            ([], (1, 4 * rows, 3 * cols)),
            ([], (2, 3 * rows, 4 * cols)),
            (["b_transpose"], (20, 16, 16)),
            (["b_transpose"], (1, 4 * rows, 3 * cols)),
        )
    ]
    if config.array.weight_depth > 2:
        products += [["MATMUL", m, 2 * rows, 2 * cols - 1, ["resident"]] for m in (1, 2, 7)]
    measured = measure(tmp_path, changes, products, alone=True)
    expected = [window(config, m, k, n, *flags) for _, m, k, n, flags in products]
    # A tile is named at once: a command is at work as the last sum of the one before comes.
    assert measured["working"] == [sum(expected)]
    assert measured["cycles"] == expected


@pytest.mark.parametrize("size", [10, *longer(16)])
def test_a_large_array_streams_without_a_gap(tmp_path: Path, size: int) -> None:
    config = make({"rows": 16, "cols": 16})
    assert window(config, 128, 128, 128) == 8192 + 41
    assert window(config, 64, 64, 64) == 1024 + 41
    changes = {"rows": size, "cols": size}
    measured = measure(tmp_path, changes, [["MATMUL", *[2 * size] * 3, []]])
    assert measured["working"] == [window(make(changes), *[2 * size] * 3)]


def test_16_bit_rows_take_two_cycles_each(tmp_path: Path) -> None:
    config = make({**SQUARE, **WIDE})
    shape = (64, 16, 16)
    products = [
        ["MATMUL", *shape, ["a_wide"]],
        ["MATMUL", *shape, ["a_wide", "b_high", "b_transpose"]],
        ["MATMUL", *shape, ["a_wide", "b_low", "b_transpose"]],
        ["MATMUL", 128, *shape[1:], ["a_wide"]],
    ]
    figures = measure(tmp_path, {**SQUARE, **WIDE}, products, alone=True, simulator="verilator")
    cycles = figures["cycles"]
    rows = [128, 128, 64, 256]
    assert cycles == [window(config, m, *shape[1:]) for m in rows]
    assert 64 * 16 * 16 / (config.elements * cycles[0]) >= 0.49


def test_weights_stream_at_a_line_a_cycle(tmp_path: Path) -> None:
    for flags, lines in (([], 5), (["b_transpose"], 3)):
        products = [["MATMUL", 1, 20, 12, flags]] * 4
        dones = count_cycles(tmp_path, ODD, products)
        assert [later - sooner for sooner, later in itertools.pairwise(dones)] == [16 * lines] * 3


def test_commands_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    for kind in ("systolic", "tree"):
        products = [["MATMUL", 8, 8, 8, ["b_transpose"]]] * 5
        dones = count_cycles(tmp_path, SQUARE | {"array": kind}, products)
        assert [later - sooner for sooner, later in itertools.pairwise(dones)] == [32] * 4


@pytest.mark.parametrize(
    ("rows", "cols", "kind"),
    [
        (5, 3, "systolic"),
        (1, 1, "tree"),
        (4, 6, "tree"),
        *longer((5, 3, "tree"), (1, 1, "systolic"), (4, 6, "systolic")),
    ],
)
def test_resident_weights_take_a_cycle_for_a_row_and_tile(
    tmp_path: Path, rows: int, cols: int, kind: str
) -> None:
    changes = {"rows": rows, "cols": cols, "weight_depth": 322, "array": kind}
    tiles = -(-20 // rows) * -(-16 // cols)
    products = [["PRELOAD", 0, 20, 16, []]]
    products += [["MATMUL", m, 20, 16, ["resident"]] for m in (1, 1, 1, 2, 2)]
    dones = count_cycles(tmp_path, changes, products)[1:]
    spans = [later - sooner for sooner, later in itertools.pairwise(dones)]
    assert spans == [tiles, tiles, 2 * tiles, 2 * tiles]


@pytest.mark.parametrize("kind", ["tree", *longer("systolic")])
def test_a_vector_times_resident_weights_of_a_whole_model(tmp_path: Path, kind: str) -> None:
    changes = {"rows": 13, "cols": 12, "weight_depth": 4096, "array": kind}
    shapes = [(1, 64, 344), (2, 8, 128), (2, 128, 8)]
    products = [["MATMUL", *shape, ["resident"], 4096 - 200, 0] for shape in shapes]
    products = [["PRELOAD", 0, 64, 344, [], 4096 - 200, 0], *products]
    measured = measure(tmp_path, changes, products, alone=True, simulator="verilator")
    latency = {"systolic": 13 + 12 + 3, "tree": 3 + 4}[kind]
    tiles = [5 * 29, 11, 10]
    expected = [m * t + latency + 5 for (m, _, _), t in zip(shapes, tiles, strict=True)]
    assert measured["cycles"][1:] == expected


def test_blocks_of_values_take_three_cycles_a_row(tmp_path: Path) -> None:
    changes = {**SQUARE, **CACHE, **BLOCKS, "queue_depth": 4}
    spans = []
    for flags in (["append", "pair"], ["append", "pair", "block"]):
        rows = ["PRELOAD", 0, 16, 3, flags, 4, 0]
        dones = count_cycles(tmp_path, changes, [rows] * 4)
        spans.append([later - sooner for sooner, later in itertools.pairwise(dones)])
        command = Instruction(
            Opcode.PRELOAD, {"k": 16, "n": 3, "slot": 4, "b_stride": 6}, frozenset(flags)
        )
        counts = [
            predict(pack([*[command] * n, Instruction(Opcode.HALT)]), make(changes)).cycles
            for n in (2, 3)
        ]
        assert counts[1] - counts[0] == spans[-1][0]
    assert spans == [[16 * 2] * 3, [16 * 3] * 3]


def test_appended_lines_take_a_cycle_each(tmp_path: Path) -> None:
    keys = ["PRELOAD", 0, 7, 1, ["append", "b_transpose"], 4, 3]
    values = ["PRELOAD", 0, 6, 4, ["append"], 20, 2]
    dones = count_cycles(tmp_path, SQUARE, [keys] * 4 + [values] * 4)
    spans = [later - sooner for sooner, later in itertools.pairwise(dones)]
    assert spans[:3] == [2] * 3
    assert spans[4:] == [6] * 3
    alone = measure(tmp_path, SQUARE, [keys, keys], alone=True)["cycles"]
    assert alone == [1 + make(SQUARE).array.rows + make(SQUARE).array.cols + 10] * 2


@pytest.mark.parametrize("kind", ["systolic", "tree"])
@pytest.mark.parametrize("append", [["append"], ["append", "b_transpose"]])
def test_appending_hides_under_products_of_other_slots(
    tmp_path: Path, append: list[str], kind: str
) -> None:
    changes = SQUARE | {"array": kind}
    product = ["MATMUL", 3, 8, 8, ["resident"], 2, 0]
    line = ["PRELOAD", 0, *((4, 1) if "b_transpose" in append else (1, 4)), append]
    pair = [product, [*line, 9, 3]]
    dones = count_cycles(tmp_path, changes, pair * 4)
    assert [later - sooner for sooner, later in itertools.pairwise(dones[::2])] == [12 + 1] * 3
    # Into the slot of the last tile it comes in the cycle after its vectors, or as row 3 sees them.
    pair = [product, [*line, 5, 3]]
    dones = count_cycles(tmp_path, changes, pair * 4)
    wait = 3 if kind == "systolic" else 0
    spans = [later - sooner for sooner, later in itertools.pairwise(dones[::2])]
    assert spans == [12 + 2 + wait] * 3


def test_what_is_left_out_leaves_nothing() -> None:
    full, bare = matrix_engine(make({})), matrix_engine(make(BARE))
    ports = set(full.signature.members) - set(bare.signature.members)
    assert ports == {"gated"}
    full_text, bare_text = (
        re.sub("//.*", "", kept_verilog(engine, "top")) for engine in (full, bare)
    )
    for word in ("column_strobe", "live_o", "zeros"):
        assert word in full_text
        assert word not in bare_text
