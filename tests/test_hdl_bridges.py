"""AXI4 and Wishbone before external memory: against packages not ours, and the whole machine."""

import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.presets import PRESETS
from celosia.hdl.bus.axi4 import PORT_MEANINGS as AXI4_MEANINGS
from celosia.hdl.bus.axi4 import Axi4Bridge
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.bus.wishbone import PORT_MEANINGS as WISHBONE_MEANINGS
from celosia.hdl.bus.wishbone import WishboneBridge
from celosia.hdl.bus_accelerator import BusAccelerator
from celosia.hdl.stream.slice import RegisterSlice
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.verify.configurations import UNITS
from tests.support.configurations import SMALLEST
from tests.support.longer import longer

TINY = PRESETS["tiny"]
UNITS_LESS = dict.fromkeys(UNITS, False)
BARE = TINY.replace(mem_width=64, watchdog=0, **UNITS_LESS)
"""A machine of which few parts are not of the bus; two tests have its Verilog."""


def run_case(model, simulator, seed, width, *, addresses=(32, 0), **parameters):
    """Simulate a bridge between the port and a memory on its bus."""
    config = TINY.replace(mem_width=width, scratchpad_bytes=1 << 16, mem_addr_width=24)
    kind = Axi4Bridge if model == "axi4" else WishboneBridge
    simulate(
        kind(config.memory, BusAddress.for_config(config, *addresses)),
        bench="celosia.tb.benches.bench_bridge",
        simulator=simulator,
        seed=seed,
        parameters={"config": config.fields(), "model": model, "bursts": 5, "stall": 0.0}
        | parameters,
    )


@pytest.mark.parametrize(
    ("model", "simulator", "width", "stall"),
    [
        ("axi4", "icarus", 8, 0.3),
        ("axi4", "verilator", 64, 0.3),
        ("wishbone", "icarus", 512, 0.5),
        ("wishbone_package", "verilator", 64, 0.3),
        *longer(
            ("wishbone_package", "icarus", 64, 0.3),
            ("wishbone_package", "verilator", 512, 0.4),
            ("axi4", "icarus", 16, 0.4),
            ("axi4", "icarus", 256, 0.4),
            ("axi4", "icarus", 512, 0.5),
            ("wishbone", "icarus", 8, 0.3),
            ("wishbone", "verilator", 128, 0.4),
            ("wishbone_package", "icarus", 16, 0.4),
        ),
    ],
)
def test_bursts_arrive(model, simulator, width, stall):
    addresses = (40, 0x80_0000_0000) if width == 64 else (32, 0)
    run_case(model, simulator, width + 1, width, stall=stall, addresses=addresses)


@pytest.mark.parametrize("bus", ["axi4", "wishbone"])
def test_a_silent_memory_is_left(bus):
    simulate(
        BusAccelerator(BARE, bus, BusAddress.for_config(BARE, 40)),
        bench="tests.support.bench_forget",
        simulator="icarus",
        seed=1,
        parameters={"config": BARE.fields(), "bus": bus, "rows": 12},
    )


def test_a_beat_a_cycle_over_axi4_in_both_directions_at_once():
    run_case("axi4", "icarus", 3, 128, bursts=4, words=256, limit=4 * 256 + 40)


def test_wishbone_pays_one_cycle_a_burst():
    # Both directions share the bus; a burst has 32 words.
    words = 2 * 2 * 256
    run_case("wishbone", "icarus", 3, 128, bursts=2, words=256, limit=words * 33 // 32 + 50)


def test_a_slow_reader_loses_nothing():
    run_case("wishbone", "icarus", 6, 128, bursts=2, words=100, reader_stall=0.8)


@pytest.mark.parametrize("model", ["axi4", "wishbone"])
def test_errors_are_told_and_nothing_hangs(model):
    run_case(model, "icarus", 4, 64, stall=0.2, broken=0.9)


@pytest.mark.parametrize(
    ("bus", "model", "simulator"),
    [
        ("axi4", "axi4", "icarus"),
        *longer(
            ("wishbone", "wishbone_package", "icarus"),
        ),
    ],
)
def test_random_programs_over_a_bus(bus, model, simulator):
    config = TINY.replace(mem_addr_width=16, **UNITS_LESS)
    run_accelerator(config, bus, model, simulator, steps=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bus", "model"),
    [
        ("wishbone", "wishbone"),
        *longer(
            ("axi4", "axi4"),
        ),
    ],
)
def test_random_programs_over_a_bus_in_verilator(bus, model):
    run_accelerator(SMALLEST.replace(**UNITS_LESS), bus, model, "verilator", steps=25)


def run_accelerator(config, bus, model, simulator, steps):
    """Compare random programs on the accelerator behind a bus with the golden machine.

    Inferences on machines with all units are in ``test_hdl_control.py``.
    """
    config = config.replace(trace=True)
    simulate(
        BusAccelerator(config, bus, BusAddress.for_config(config, 32, 0x4000_0000)),
        bench="celosia.tb.benches.bench_accelerator",
        simulator=simulator,
        seed=5,
        parameters={
            "config": config.fields(),
            "programs": 1,
            "steps": steps,
            "stall": 0.3,
            "bus": model,
        },
    )


@pytest.mark.parametrize("forward", [False, True])
def test_a_slice_moves_a_payload_a_cycle_and_loses_none(forward):
    dut = RegisterSlice(8, forward=forward)
    rng = np.random.default_rng(1)
    payloads = rng.integers(0, 256, 200).tolist()
    received, cycles = [], []

    async def send(ctx):
        for value in payloads:
            while rng.random() < 0.3 and cycles:
                await ctx.tick()
            ctx.set(dut.i.payload, value)
            ctx.set(dut.i.valid, 1)
            while not ctx.get(dut.i.ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(dut.i.valid, 0)

    async def receive(ctx):
        while len(received) < len(payloads):
            ready = rng.random() < 0.6
            ctx.set(dut.o.ready, ready)
            if ctx.get(dut.o.valid) and ready:
                received.append(ctx.get(dut.o.payload))
            elif forward:
                assert ctx.get(dut.i.ready) == (ready or not ctx.get(dut.o.valid))
            cycles.append(1)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    # What is taken tells in the same cycle what may come.
    simulator.add_testbench(receive)
    simulator.add_testbench(send)
    simulator.run()
    assert received == payloads


@pytest.mark.parametrize(
    ("bus", "meanings", "own"),
    [("axi4", AXI4_MEANINGS, "m_axi_"), ("wishbone", WISHBONE_MEANINGS, "wbm_")],
)
def test_every_signal_has_its_usual_name_and_a_meaning(bus, meanings, own):
    verilog = kept_verilog(BusAccelerator(BARE, bus, BusAddress.for_config(BARE, 40)), "top")
    header = verilog.partition("module top (")[2].partition(");")[0]
    ports = re.findall(rf"^  //[^\n]*\n  (?:input|output) .*?\b({own}\w+),?$", header, re.M)
    assert sorted(ports) == sorted(meanings)
    assert not re.search(r"\bmem_(read|write)__", header)
    assert re.search(rf"\[39:0\] {own}(araddr|adr_o)\b", header)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BusAddress(28, 20),
            "Width of a bus address must be from mem_addr_width = 28 to 64, not 20",
        ),
        (
            lambda: BusAddress(16, 32, 0x8000),
            "Base of external memory must be a multiple of 2**16 below 2**32, not 0x8000",
        ),
        (
            lambda: BusAddress(16, 32, 1 << 32),
            "Base of external memory must be a multiple of 2**16 below 2**32, not 0x100000000",
        ),
        (
            lambda: BusAccelerator(TINY, "pci", BusAddress(28)),
            "Unknown bus 'pci'; known are axi4, wishbone",
        ),
        (
            lambda: WishboneBridge(TINY.memory, BusAddress(28), longest=0),
            "Longest Wishbone burst must be from 1 to 256 words, not 0",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
