"""The serial line: circuit against golden model and a package that is not ours."""

import numpy as np
import pytest

from celosia.hdl.link.uart import UartReceiver, UartTransmitter, tolerance
from celosia.sim.uart import line_bytes, line_levels
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer


@pytest.mark.parametrize(
    ("simulator", "divisor"),
    [("icarus", 4), ("icarus", 9), ("verilator", 16), *longer(("icarus", 6))],
)
def test_receiver(simulator, divisor):
    simulate(
        UartReceiver(divisor),
        bench="celosia.tb.benches.bench_uart",
        testcase=(
            "bytes_are_received",
            "bytes_of_another_clock_are_received",
            "short_start_bits_and_breaks_bring_no_bytes",
        ),
        simulator=simulator,
        seed=divisor,
        parameters={"divisor": divisor, "count": 25},
    )


@pytest.mark.parametrize(("simulator", "divisor"), [("icarus", 5), ("verilator", 16)])
def test_transmitter(simulator, divisor):
    simulate(
        UartTransmitter(divisor),
        bench="celosia.tb.benches.bench_uart",
        testcase=("bytes_are_sent", "bytes_are_heard_by_another_clock"),
        simulator=simulator,
        seed=divisor,
        parameters={"divisor": divisor, "count": 20},
    )


@pytest.mark.parametrize("unit", [UartReceiver, UartTransmitter])
def test_bits_have_a_middle(unit):
    with pytest.raises(ValueError, match=r"^UART divisor must be at least 4 cycles a bit, not 3$"):
        unit(3)


def test_a_sender_may_differ_by_more_where_bits_are_longer():
    assert [round(100 * tolerance(divisor), 2) for divisor in (4, 5, 6, 7, 8, 16, 100)] == [
        *(2.5, 4.0, 3.33, 4.29, 3.75, 4.38, 4.9)
    ]
    with pytest.raises(ValueError, match=r"^UART divisor must be at least 4 cycles a bit, not 2$"):
        tolerance(2)


@pytest.mark.parametrize("divisor", [4, 7, 100])
def test_the_golden_line(divisor):
    assert line_levels(b"\x53", divisor)[divisor // 2 :: divisor].tolist() == [
        *[0, 1, 1, 0, 0, 1, 0, 1, 0, 1]
    ]
    data = np.random.default_rng(divisor).integers(0, 256, 50, np.uint8).tobytes()
    levels = np.concatenate([np.ones(5, np.uint8), line_levels(data, divisor)])
    assert line_bytes(levels, divisor) == [(byte, False) for byte in data]
    levels[-divisor:] = 0
    assert line_bytes(levels, divisor)[-1] == (data[-1], True)
    assert line_bytes(levels[: -divisor - 1], divisor)[-1] == (data[-2], False)
