"""The memory port on DDR3: its start by LiteDRAM's registers, and bursts against its model."""

import dataclasses
import re
from importlib import metadata

import pytest
from amaranth.sim import Simulator
from litedram import modules

from celosia.arch.ddr3 import CHIPS, Ddr3Chip, start_up_steps
from celosia.arch.errors import InputError, RunError
from celosia.arch.presets import PRESETS
from celosia.fpga.boards import get_board, with_sdram
from celosia.fpga.build import Task
from celosia.fpga.ddr3.around import modelled
from celosia.fpga.ddr3.core import ClockError, Ddr3, make_core
from celosia.fpga.ddr3.generate import timed_module
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.memory.ddr3.memory import Ddr3Memory
from celosia.hdl.memory.ddr3.starter import Starter
from celosia.tb.devices.data_sheets import DDR3
from celosia.tb.devices.ddr3 import NAMES, REGISTERS, SEQUENCE, Bus
from celosia.tb.machine.toolchain import missing_tools
from tests.support.longer import longer
from tests.support.port_bench import PortFigures, bench_port

TINY = PRESETS["tiny"]
CHIP = CHIPS["MT41K64M16"]
WIRED = Ddr3(chip=CHIP)


def run_start(
    windows: list[dict[int, range]],
    waits: int = 1,
    answer: int = 1,
    writes: int | None = None,
    **broken: tuple[int, ...],
) -> tuple[Bus, dict[str, list[int]]]:
    """Return the bus after the start, or so many ``writes`` of it, and what the starter chose.

    The bus answers after so many cycles; ``broken`` is how the chip is, as in :class:`Bus`.
    """
    start = start_up_steps(CHIP, REGISTERS, SEQUENCE, (0, 1))
    quick = tuple(dataclasses.replace(step, wait=min(step.wait, waits)) for step in start.wake)
    unit = Starter(dataclasses.replace(start, wake=quick))
    bus = Bus(windows, **broken)
    state: dict[str, list[int]] = {}

    async def registers(ctx):
        while True:
            _, _, stb, we, adr, data = await ctx.tick().sample(
                unit.stb, unit.we, unit.adr, unit.dat_w
            )
            ctx.set(unit.ack, 0)
            if stb:
                await ctx.tick().repeat(answer)  # an answer takes its time
                if we:
                    bus.write(4 * adr, data)
                else:
                    ctx.set(unit.dat_r, bus.read(4 * adr))
                ctx.set(unit.ack, 1)
                await ctx.tick()
                ctx.set(unit.ack, 0)

    async def bench(ctx):
        while not (await ctx.tick().sample(unit.over))[2]:
            if writes is not None and len(bus.log) >= writes:
                return
        state["failed"] = [ctx.get(unit.failed)]
        state["delays"] = [ctx.get(unit.delay[lane]) for lane in range(2)]
        state["places"] = [ctx.get(unit.place[lane]) for lane in range(2)]

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(registers, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    return bus, state


@pytest.mark.parametrize(
    ("windows", "delays", "places"),
    [
        # The most in a row counts, not the first, and not what is on both sides of the end.
        (
            [{0: range(2), 3: range(2, 8)}, {0: range(6, 8), 1: range(2), 2: range(3, 6)}],
            [5, 4],
            [3, 2],
        ),
        ([{0: range(8)}, {3: range(7, 8)}], [4, 7], [0, 3]),
        # Chosen from answers that come late, too, below.
        *longer(([{2: range(1, 5)}, {1: range(3)}], [3, 1], [2, 1])),
    ],
)  # fmt: skip
def test_each_lane_gets_the_middle_of_its_delays(windows, delays, places) -> None:
    bus, state = run_start(windows)
    assert (state["failed"], state["delays"], state["places"]) == ([0], delays, places)
    assert (bus.delays, bus.places) == (delays, places)
    assert bus.passes(0)
    assert bus.passes(1)
    # Last, all lanes are free, and the controller has the chip.
    assert bus.written[REGISTERS["ddrphy_dly_sel"]] == 0
    assert bus.log[-1] == (REGISTERS["sdram_dfii_control"], 1)


def test_the_chip_is_started_by_litedrams_sequence() -> None:
    bus, _ = run_start([{0: range(8)}] * 2, writes=1 + 3 + 4 + 4)
    control = REGISTERS["sdram_dfii_control"]
    pi0 = [REGISTERS[f"sdram_dfii_pi0_{name}"] for name in NAMES]
    assert bus.log == [
        (control, 0),
        *[(pi0[2], 0), (pi0[3], 0), (control, 0x0C)],
        *[(pi0[2], 0x320), (pi0[3], 2), (pi0[0], 0x0F), (pi0[1], 1)],
        *[(pi0[2], 0x400), (pi0[3], 0), (pi0[0], 0x03), (pi0[1], 1)],
    ]


def test_the_chip_is_reset_and_waited_for_as_long_as_jedec_says() -> None:
    core = make_core(WIRED, "LFE5U-25F-8MG285C", 48.0, 80.0, model=True)
    control = core.start.begin[0].addr
    waits = {step.data: step.wait for step in core.start.wake if step.addr == control}
    # RESET# alone is let go, then CKE: 200 us and 500 us at the fastest clock of a core (MHz).
    reset, alone, enabled = waits
    assert (reset & 0x0A, alone & 0x0A, enabled & 0x0A) == (0, 0x08, 0x0A)
    assert waits[reset] / 200 >= 200
    assert waits[alone] / 200 >= 500
    # The mode registers in JEDEC's order, and the chip's termination calibrated.
    banks = [step.data for step in core.start.wake if step.addr == control + 0x10]
    assert banks[2:] == [2, 3, 1, 0, 0]


@pytest.mark.parametrize(("name", "mhz"), [("MT41K64M16", 70.0), ("MT41K256M16", 100.0)])
def test_litedrams_times_are_not_shorter_than_the_data_sheets(name: str, mhz: float) -> None:
    chip, sheet = timed_module(getattr(modules, name)), DDR3[name]
    timing = chip(mhz * 1e6, "1:2").timing_settings
    period = 1e3 / mhz
    for field in ("rp", "rcd", "wr", "rfc", "ras", "faw"):
        assert getattr(timing, f"t{field.upper()}") * period >= getattr(sheet, field), field
    assert timing.tREFI * period <= sheet.refi


@pytest.mark.parametrize("windows", [[{}, {0: range(8)}], *longer([{0: range(8)}, {}])])
def test_a_lane_without_a_delay_that_passes_is_told(windows) -> None:
    assert run_start(windows)[1]["failed"] == [1]


@pytest.mark.parametrize("lane", [*longer(0), 1])
def test_a_lane_that_passes_in_the_last_test_alone_is_told(lane: int) -> None:
    windows = [{0: range(8)}, {0: range(8)}]
    windows[lane] = {}
    assert run_start(windows, late=(lane,))[1]["failed"] == [1]


@pytest.mark.parametrize("broken", [{"wrong": (0,)}, {"silent": (1,)}])
def test_a_chip_that_fails_after_the_search_is_told(broken) -> None:
    bus, state = run_start([{0: range(8)}, {3: range(2, 5)}], **broken)
    assert (state["failed"], state["delays"], state["places"]) == ([1], [4, 3], [0, 3])
    assert bus.log[-1] == (REGISTERS["sdram_dfii_control"], 1)


def test_answers_that_come_late_are_waited_for() -> None:
    _, state = run_start([{2: range(1, 5)}, {1: range(3)}], answer=9)
    assert (state["failed"], state["delays"], state["places"]) == ([0], [3, 1], [2, 1])


def bench(width: int, bursts: int) -> PortFigures:
    core = make_core(WIRED, "LFE5U-25F-8MG285C", 48.0, 80.0, model=True, watched=True)
    config = TINY.replace(mem_width=width, mem_addr_width=27)
    machine = to_verilog(Ddr3Memory(config.memory, core.start), "machine")
    verilog = modelled(machine, "machine", CHIP, "pins__", core.verilog, "top")
    return bench_port(verilog, config, seed=width, bursts=bursts, memory_bytes=1 << 18)


@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    ("width", "share", "bursts"),
    [
        (128, 0.935, 600),
        *longer((32, 0.495, 3000), (64, 0.935, 3000), (128, 0.935, 3000)),
    ],
)
def test_bursts_agree_with_bytes_in_an_array(width: int, share: float, bursts: int) -> None:
    figures = bench(width, bursts)
    assert (figures.mismatches, figures.told) == (0, ())
    moved = figures.words * width // 8 / figures.cycles
    assert moved > share * 4 * CHIP.lanes  # bytes a cycle: two edges of twice the clock


def test_both_kinds_of_core_have_the_same_registers() -> None:
    device = "LFE5U-25F-8MG285C"
    cores = [make_core(WIRED, device, 48.0, 72.0, model=model) for model in (False, True)]
    assert cores[0].start == cores[1].start
    assert cores[0].mhz == cores[1].mhz == 72.0
    assert "DQSBUFM" in cores[0].verilog
    assert "DQSBUFM" not in cores[1].verilog


def test_litedram_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    message = (
        "DDR3 needs the package litedram of the extra boards; install it with: "
        "pip install '.[boards]' in a checkout, or 'FILE.whl[boards]'"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        make_core(WIRED, "LFE5U-25F-8MG285C", 48.0, 72.0)


@pytest.mark.parametrize("mhz", [9.0, 201.0])
def test_a_clock_that_no_core_has_is_refused(mhz: float) -> None:
    message = f"Clock of a machine with DDR3 must be from 20 to 200 MHz, not {mhz:g} MHz"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        make_core(WIRED, "LFE5U-25F-8MG285C", 48.0, mhz)


def test_a_gap_between_clocks_is_told_and_a_board_has_the_next_one_below() -> None:
    message = (
        "Clock of a machine with DDR3 must be one that LiteX's clock generator makes of 48 MHz "
        "within 1 %, not 68.31 MHz"
    )
    with pytest.raises(ClockError, match=f"^{re.escape(message)}$"):
        make_core(WIRED, "LFE5U-25F-8MG285C", 48.0, 68.31)
    board = with_sdram(get_board("orangecrab_25f"))
    config = PRESETS["micro"].replace(mem_width=32, mem_addr_width=27)
    verilog = Task(config=config, board=board, mhz=68.31).verilog()
    assert "clock = 67200000," in verilog


def test_a_chip_that_litedram_does_not_know_is_told() -> None:
    unknown = Ddr3(chip=Ddr3Chip(name="MT41NONE", row_bits=13))
    with pytest.raises(RunError, match=r"^LiteDRAM makes no core for MT41NONE:\n"):
        make_core(unknown, "LFE5U-25F-8MG285C", 48.0, 72.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            TINY.replace(mem_width=256, mem_addr_width=27),
            "mem_width must be at most 128, a block of MT41K64M16, not 256",
        ),
        (
            TINY.replace(mem_addr_width=28),
            "mem_addr_width must be at most 27, as MT41K64M16 has 134217728 bytes, not 28",
        ),
    ],
)
def test_refusals(config, message) -> None:
    start = start_up_steps(CHIP, REGISTERS, SEQUENCE, (0, 1))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Ddr3Memory(config.memory, start)
