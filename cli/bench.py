"""celosia bench: measured figures of single units."""

from collections.abc import Mapping
from typing import Any

import click

from celosia.arch.config import Config
from celosia.cli.bench_all import bench_all
from celosia.cli.bench_boards import bench_boards
from celosia.cli.bench_formats import bench_formats
from celosia.cli.bench_pins import bench_pins
from celosia.cli.format_options import Formats, quantize_options
from celosia.cli.options import (
    config_options,
    json_option,
    memory_options,
    seed_option,
    simulator_option,
    size_argument,
    times,
)
from celosia.cli.output import cycles_table, progress, report
from celosia.cli.paths import MODEL
from celosia.cli.tracing import RunTrace, trace_option
from celosia.cli.tree import Tree
from celosia.generators.lower.equipment import equipped
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.gemm_bench import bench_gemm, bench_shapes
from celosia.generators.studies.gemm_shapes import shapes_named
from celosia.generators.studies.sparse_bench import bench_sparse
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.trace_model import check_clocked
from celosia.tb.speed.attention_bench import bench_attention
from celosia.tb.speed.compile_bench import bench_compile
from celosia.tb.speed.decode_bench import bench_decode
from celosia.tb.speed.harness_bench import bench_harness
from celosia.tb.speed.toggle_bench import bench_toggles


@click.group(cls=Tree)
def bench() -> None:
    """Measure the machine in cycles."""


bench.add_command(bench_all)
bench.add_command(bench_boards)
bench.add_command(bench_formats)
bench.add_command(bench_pins)


@bench.command(example="64x64x64")
@config_options("small")
@size_argument("MxKxN")
@trace_option
@memory_options("sdram")
@simulator_option
@seed_option
@json_option
def gemm(
    config: Config,
    sizes: dict[str, int],
    run: RunTrace,
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a linear layer of random weights, and run it.

    Operands and result are in external memory. cycles and utilization are of the window from the
    array's first request for an operand to its last sum in the accumulators; total_cycles and
    total_utilization are of the whole run from start to halt.
    """
    with progress(f"{times(sizes)} on {config.name}, {simulator}"):
        result = bench_gemm(
            config,
            lambda chosen, size: run.machine(chosen, simulator, size, timing),
            **sizes,
            seed=seed,
        )
        run.write(f"GEMM {times(sizes)} on {config.name}")
    report(f"GEMM {times(sizes)}", [result], as_json, result)
    cycles_table(result, as_json)


@bench.command(example="minilm")
@config_options("medium")
@click.argument("only", metavar="[TEXT]...", nargs=-1)
@memory_options("sdram")
@simulator_option
@seed_option
@json_option
def shapes(
    config: Config,
    only: tuple[str, ...],
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile and run linear layers of the sizes of the products in BERT, ViT, GPT-2 and Llama.

    With TEXT only those whose names contain it are run. The figures are those of bench gemm.
    """
    chosen = shapes_named(only)
    with progress(f"{len(chosen)} shapes on {config.name}, {simulator}") as update:
        result = bench_shapes(
            config,
            lambda config, size: make_machine(config, simulator, size, timing),
            chosen,
            seed=seed,
            update=update,
        )
    result["memory"] = timing.fields()
    report(
        f"Shapes on {config.name}",
        [_shape_row(shape) for shape in result["shapes"]],
        as_json,
        result,
    )


def _shape_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a shape."""
    names = ("cycles", "utilization", "total_cycles", "total_utilization", "mismatches")
    figures = {name.replace("_", " "): result[name] for name in names}
    return {"name": result["name"], "size": times(result)} | figures


@bench.command(example="4x128x64")
@config_options("medium")
@size_argument("HEADSxSEQxDIM", smallest={"heads": 1})
@memory_options("sdram")
@simulator_option
@seed_option
@json_option
def attention(
    config: Config,
    sizes: dict[str, int],
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a model of one layer, run it, and measure its attention.

    The size is of the heads, the queries and keys, and a head's elements. cycles are those of
    attention in the run: scores, softmax and values of all heads.
    """
    check_clocked(simulator)
    heads, seq, head_dim = (sizes[name] for name in ("heads", "seq", "dim"))
    with progress(f"{heads} x {seq} x {head_dim} on {config.name}, {simulator}"):
        result = bench_attention(
            config, simulator, timing, seq=seq, head_dim=head_dim, heads=heads, seed=seed
        )
    result["memory"] = timing.fields()
    report(f"Attention {heads} x {seq} x {head_dim}", [result], as_json, result)


@bench.command(example="--set sparse_lanes=16 256x64 --sparsity 0.9")
@config_options("small")
@size_argument("MxKxN", smallest={"m": 1})
@click.option("--sparsity", type=float, required=True, help="Share of zero weights.")
@simulator_option
@seed_option
@json_option
def sparse(
    config: Config,
    sizes: dict[str, int],
    sparsity: float,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Multiply with a random sparse matrix on the zero-skip unit, and on the array."""
    with progress(f"{times(sizes)} at {sparsity:.0%} zeros on {config.name}, {simulator}"):
        result = bench_sparse(
            config,
            lambda chosen, size: make_machine(chosen, simulator, size),
            **sizes,
            sparsity=sparsity,
            seed=seed,
        )
    report(f"Sparse {times(sizes)}", [result], as_json, result)


@bench.command(example="288x768x128 --quantize weights=nf4")
@config_options("medium")
@size_argument("DIMxFFNxPOSITIONS", "288x768x128")
@quantize_options()
@click.option(
    "--sparsity", type=float, default=0.0, show_default=True, help="Share of zero weights."
)
@memory_options("sdram")
@trace_option
@simulator_option
@seed_option
@json_option
def decode(
    config: Config,
    sizes: dict[str, int],
    formats: Formats,
    sparsity: float,
    timing: MemoryTiming,
    run: RunTrace,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a decoder of one layer, and run a token, its weights streamed from memory."""
    dim, ffn = sizes["dim"], sizes["ffn"]
    formats.refuse_search("a layer of random weights")
    bits = formats.one_bits("A layer is measured")
    options = Quantization(**formats.quantization)
    config = equipped(config, options)
    with progress(f"Decoder layer {dim}, {ffn} on {config.name}, {simulator}"):
        result = bench_decode(
            config,
            lambda chosen, size: run.machine(chosen, simulator, size, timing),
            **sizes,
            options=options,
            bits=bits,
            sparse=formats.sparse,
            sparsity=sparsity,
            seed=seed,
        )
        run.write(f"Decoder layer {dim}, {ffn} on {config.name}")
    result |= {**formats.figures, "memory": timing.fields()}
    report(f"Decoder layer {dim}, {ffn}", [result], as_json, result)
    cycles_table(result, as_json)


@bench.command("compile", example="minilm")
@click.argument("model", type=MODEL, default="minilm")
@config_options("medium")
@memory_options("far")
@json_option
def compile_command(
    model: str,
    config: Config,
    timing: MemoryTiming,
    as_json: bool,
) -> None:
    """Compile MODEL, and show the time that this took and the predicted cycles of its program."""
    with progress(f"{model} on {config.name}"):
        result = bench_compile(model, config, timing)
    report(f"{model} on {config.name}", [result], as_json, result)


@bench.command(example="")
@config_options("tiny")
@seed_option
@json_option
def harness(config: Config, seed: int, as_json: bool) -> None:
    """Compare the fast simulation with cocotb on the same program."""
    with progress(f"Random program on {config.name}"):
        result = bench_harness(config, seed)
    report("Cycles per second", [result], as_json, result)


@bench.command(example="64x64x64")
@config_options("small")
@size_argument("MxKxN")
@seed_option
@json_option
def toggles(config: Config, sizes: dict[str, int], seed: int, as_json: bool) -> None:
    """Count the bits of registers that change in a linear layer, with and without sleep.

    Every register of the machine is counted in every cycle of the run; its memories are not. A row
    is an engine or a memory's registers; `engines` are those that process the product's numbers.
    """
    title = f"{times(sizes)} on {config.name}"
    with progress(f"{title}, without and with sleep"):
        result = bench_toggles(config, **sizes, seed=seed)
    report(f"Toggles of {title}", result["units"], as_json, result)
