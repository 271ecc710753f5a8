"""The example of an Amaranth design of one's own, as Amaranth alone simulates and converts it."""

import importlib.util

import numpy as np
from amaranth.back import verilog
from amaranth.sim import Simulator

from celosia.arch.assembler import assemble
from celosia.arch.config import Config
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.arch.registers import REGISTER_MAP
from celosia.arch.support.cache import ROOT
from celosia.generators.program.tokens import insert_tokens
from celosia.sim.interpreter import Interpreter
from celosia.tb.verify.configurations import UNITS

CONFIG: Config = PRESETS["tiny"].replace(
    **dict.fromkeys((*UNITS, "zero_points", "operand_gating"), False)
)

PROGRAM = """
LOAD m=1 row_bytes=12
PARAMS n=1
LOAD dram_addr=12 dram_stride=4 sp_addr=16 sp_stride=4 m=4 row_bytes=4
LOAD dram_addr=28 dram_stride=4 sp_addr=32 sp_stride=4 m=4 row_bytes=4
MATMUL a_addr=32 a_stride=4 b_addr=16 b_stride=4 acc_stride=4 m=4 k=4 n=4
DRAIN acc_stride=4 o_addr=48 o_stride=4 m=4 n=4 per_tensor
STORE dram_addr=44 dram_stride=4 sp_addr=48 sp_stride=4 m=4 row_bytes=4
HALT
"""
"""Parameters, weights and activations come in this order; their product goes out."""


def example(config: Config):
    spec = importlib.util.spec_from_file_location("own", ROOT / "examples" / "own_design.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.StreamProcessor(config)


def test_it_multiplies_what_streams_in() -> None:
    rng = np.random.default_rng(1)
    params = np.array([40, 1 << 30], "<i4").tobytes() + bytes([0xFB, 0, 0, 0])  # 2**-6 of a sum
    image = params + rng.integers(-128, 128, 32).astype(np.int8).tobytes()
    words = pack(insert_tokens(assemble(PROGRAM), CONFIG))
    golden = Interpreter(CONFIG)
    golden.write_memory(0, image + bytes(16))
    golden.load_program(words)
    golden.start()
    wanted = np.frombuffer(golden.read_memory(44, 16), "<u4").tolist()
    assert len(set(wanted)) == 4

    design, results = example(CONFIG), []

    async def write(ctx, register, value):
        ctx.set(design.host.addr, REGISTER_MAP[register].addr)
        ctx.set(design.host.write_data, value)
        ctx.set(design.host.write_en, 1)
        await ctx.tick()
        ctx.set(design.host.write_en, 0)

    async def host(ctx):
        await write(ctx, "PROGRAM_ADDR", 0)
        for word in words:
            await write(ctx, "PROGRAM_DATA", word)
        await write(ctx, "CONTROL", 1)
        ctx.set(design.results.ready, 1)
        for _ in range(len(wanted)):
            (word,) = await ctx.tick().sample(design.results.payload).until(design.results.valid)
            results.append(word)

    async def samples(ctx):
        for word in np.frombuffer(image, "<u4").tolist():
            ctx.set(design.samples.payload, word)
            ctx.set(design.samples.valid, 1)
            await ctx.tick().until(design.samples.ready)

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(samples, background=True)
    for cycles in range(100, 3001, 100):
        simulator.run_until(cycles * 1e-6)
        if len(results) == len(wanted):
            break
    assert results == wanted


def test_amaranth_alone_converts_it() -> None:
    text = verilog.convert(example(PRESETS["micro"]), name="processor", emit_src=False)
    assert "\nmodule processor(" in text
    for port in ("host__write_data", "samples__valid", "samples__ready", "results__payload"):
        assert f" {port};\n" in text
