"""The transposer: rows become columns at full rate."""

import pytest

from hdl.matrix.transposer import Transposer
from tb.simulate import simulate


@pytest.mark.parametrize(
    ("simulator", "size", "width", "stall"),
    [
        ("verilator", 4, 8, 0.0),
        ("icarus", 4, 8, 0.0),
        ("icarus", 5, 8, 0.4),
        ("icarus", 1, 3, 0.2),
        ("icarus", 8, 4, 0.0),
    ],
)
def test_rows_become_columns(simulator: str, size: int, width: int, stall: float) -> None:
    given = {"size": size, "width": width, "blocks": 9, "stall": stall}
    simulate(
        Transposer(size, width),
        bench="tb.bench_transposer",
        simulator=simulator,
        seed=1,
        parameters=given,
    )
