"""Bench of the flash's reader: bytes of a chip that was left in each of its modes."""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.flash import BOARD_NS
from celosia.tb.benches.common import PERIOD_NS, StreamDriver, StreamMonitor, rng, start_clock
from celosia.tb.devices.flash import FlashModel, FlashModes
from celosia.tb.verify.mutation.devices import CLOCK, FLASH_SHEET

_PINS = ("sck", "cs_n", "dq_o", "dq_oe")
_LIMIT = 8_000  # cycles
_MODES: list[dict[str, Any]] = [
    {"asleep": True},
    {"four_bytes": True, "four_at_power_on": True},
    {"continuous": 2},
    {"continuous": 2, "four_bytes": True},
    {"continuous": 4, "four_bytes": True},
    {"commands": 4, "asleep": True, "dummy": 6},
]


@cocotb.test(timeout_time=_LIMIT * len(_MODES) * PERIOD_NS, timeout_unit="ns")
async def bytes_come(dut: Any) -> None:
    """Every request's bytes come in order, and every time of the chip is kept."""
    random = rng()
    contents = random.bytes(300)
    for modes in _MODES:
        await start_clock(dut, random)
        left = FlashModes(**modes)
        model = FlashModel(FLASH_SHEET, CLOCK, contents, quad=True, way=BOARD_NS, modes=left)
        # A cycle has passed since the reset.
        model.step({"sck": 0, "cs_n": 1, "dq_o": 0b1100, "dq_oe": 0b1101})
        pins = cocotb.start_soon(_pins(dut, model))
        stall = float(random.choice([0.0, 0.9]))
        asks = StreamDriver(dut, "i", random, 0.5)
        takes = StreamMonitor(dut, "o", random, stall)
        requests = [(0, 1), (0x10, 40), (0x2A, 12), (0x12C, 2)]
        asking = cocotb.start_soon(asks.send([addr | count - 1 << 24 for addr, count in requests]))
        for addr, count in requests:
            found = bytes(await takes.receive(count))
            assert found == (contents + b"\xff" * 400)[addr : addr + count]
        await asking
        for _ in range(400):
            await FallingEdge(dut.clk)
            assert not int(dut.o__valid.value), "a byte that nobody asked for"
            await RisingEdge(dut.clk)
        # One that is longer than the chip's contents does not end early.
        addr, last = int(random.integers(1 << 24)), 1 << int(random.integers(6, 24))
        await asks.send([addr | last << 24])
        found = bytes(await takes.receive(6))
        assert found == bytes((contents[at] if at < 300 else 255) for at in range(addr, addr + 6))
        assert [addr for code, addr in model.commands if code == 0x6B] == [
            addr for addr, _ in requests
        ]
        assert model.modes == FlashModes(four_at_power_on=left.four_at_power_on)
        pins.cancel()


async def _pins(dut: Any, model: FlashModel) -> None:
    while True:
        await FallingEdge(dut.clk)
        values = {name: int(getattr(dut, f"pins__{name}").value) for name in _PINS}
        dut.pins__dq_i.value = model.step(values)
