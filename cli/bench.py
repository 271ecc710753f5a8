"""celosia bench: measured figures of single units."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cli.bench_all import bench_all
from cli.bench_boards import bench_boards
from cli.bench_pins import bench_pins
from cli.bench_toggles import toggles
from cli.options import (
    RANK_OPTION,
    config_options,
    equipped,
    json_option,
    memory_options,
    resolve,
    seed_option,
    simulator_option,
    weight_options,
)
from cli.output import cycles_table, progress, report
from cli.paths import MODEL
from cli.tracing import RunTrace, trace_option
from generators.bench.gemm_bench import bench_gemm, bench_shapes
from generators.bench.gemm_shapes import shapes_named
from generators.bench.sparse_bench import bench_sparse
from generators.quantize.options import Quantization
from tb.attention_bench import bench_attention
from tb.compile_bench import bench_compile
from tb.decode_bench import bench_decode
from tb.harness_bench import bench_harness
from tb.machines import make_machine
from tb.memory_timing import FAR, SDRAM, MemoryTiming
from tb.trace_model import check_clocked


@click.group()
def bench() -> None:
    """Measure the machine in cycles."""


bench.add_command(bench_all)
bench.add_command(bench_boards)
bench.add_command(bench_pins)
bench.add_command(toggles)


@bench.command()
@config_options("small")
@click.option("--m", type=int, required=True, help="Rows of the result.")
@click.option("--k", type=int, required=True, help="Length of the sums.")
@click.option("--n", type=int, required=True, help="Columns of the result.")
@trace_option
@memory_options(SDRAM)
@simulator_option
@seed_option
@json_option
def gemm(
    source: str,
    overrides: tuple[str, ...],
    m: int,
    k: int,
    n: int,
    trace_file: Path | None,
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a linear layer of random weights, and run it.

    Operands and result lie in external memory. cycles and utilization are of the window from the
    array's first request for an operand to its last sum in the accumulators; total_cycles and
    total_utilization are of the whole run from start to halt.
    """
    config = resolve(source, overrides)
    run = RunTrace(trace_file)
    with progress(f"{m}x{k}x{n} on {config.name}, {simulator}"):
        result = bench_gemm(
            config,
            lambda chosen, size: run.machine(chosen, simulator, size, timing),
            m=m,
            k=k,
            n=n,
            seed=seed,
        )
        run.write(f"GEMM {m}x{k}x{n} on {config.name}")
    report(f"GEMM {m}x{k}x{n}", [result], as_json, result)
    cycles_table(result, as_json)


@bench.command()
@config_options("medium")
@click.option(
    "--only", multiple=True, metavar="TEXT", help="Only shapes with this text in their names."
)
@memory_options(SDRAM)
@simulator_option
@seed_option
@json_option
def shapes(
    source: str,
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile and run linear layers of the sizes of the products in BERT, ViT, GPT-2 and Llama.

    The figures are those of bench gemm.
    """
    config = resolve(source, overrides)
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
        f"Shapes on {config.name}", [_shape_row(one) for one in result["shapes"]], as_json, result
    )


def _shape_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a shape."""
    names = ("cycles", "utilization", "total_cycles", "total_utilization", "mismatches")
    size = "x".join(str(result[name]) for name in ("m", "k", "n"))
    figures = {name.replace("_", " "): result[name] for name in names}
    return {"name": result["name"], "size": size} | figures


@bench.command()
@config_options("medium")
@click.option("--seq", type=int, required=True, help="Queries, and keys.")
@click.option("--head-dim", type=int, required=True, help="Elements of a head's queries.")
@click.option("--heads", type=int, default=1, show_default=True, help="Heads.")
@memory_options(SDRAM)
@simulator_option
@seed_option
@json_option
def attention(
    source: str,
    overrides: tuple[str, ...],
    seq: int,
    head_dim: int,
    heads: int,
    timing: MemoryTiming,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a model of one layer, run it, and measure its attention.

    cycles are those that attention takes in the run: scores, softmax and values of all heads.
    """
    config = resolve(source, overrides)
    check_clocked(simulator)
    with progress(f"{heads} x {seq} x {head_dim} on {config.name}, {simulator}"):
        result = bench_attention(
            config, simulator, timing, seq=seq, head_dim=head_dim, heads=heads, seed=seed
        )
    result["memory"] = timing.fields()
    report(f"Attention {heads} x {seq} x {head_dim}", [result], as_json, result)


@bench.command()
@config_options("small")
@click.option("--m", type=int, default=1, show_default=True, help="Rows of the result.")
@click.option("--k", type=int, required=True, help="Length of the sums.")
@click.option("--n", type=int, required=True, help="Columns of the result.")
@click.option("--sparsity", type=float, required=True, help="Share of zero weights.")
@simulator_option
@seed_option
@json_option
def sparse(
    source: str,
    overrides: tuple[str, ...],
    m: int,
    k: int,
    n: int,
    sparsity: float,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Multiply with a random sparse matrix on the zero-skip unit, and on the array."""
    config = resolve(source, overrides)
    with progress(f"{m}x{k}x{n} at {sparsity:.0%} zeros on {config.name}, {simulator}"):
        result = bench_sparse(
            config,
            lambda chosen, size: make_machine(chosen, simulator, size),
            m=m,
            k=k,
            n=n,
            sparsity=sparsity,
            seed=seed,
        )
    report(f"Sparse {m}x{k}x{n}", [result], as_json, result)


@bench.command()
@config_options("medium")
@click.option("--dim", type=int, default=288, show_default=True, help="Width of the residual.")
@click.option("--ffn", type=int, default=768, show_default=True, help="Width of the MLP.")
@click.option("--positions", type=int, default=128, show_default=True, help="Tokens before.")
@weight_options
@RANK_OPTION
@click.option("--sparse", is_flag=True, help="Skip zero weights where that is faster.")
@click.option(
    "--sparsity", type=float, default=0.0, show_default=True, help="Share of zero weights."
)
@memory_options(SDRAM)
@trace_option
@simulator_option
@seed_option
@json_option
def decode(
    source: str,
    overrides: tuple[str, ...],
    dim: int,
    ffn: int,
    positions: int,
    weights: str,
    group: int,
    low_rank: int,
    sparse: bool,
    sparsity: float,
    timing: MemoryTiming,
    trace_file: Path | None,
    simulator: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a decoder of one layer, and run a token, its weights streamed from memory."""
    config = equipped(resolve(source, overrides), Quantization(weights=weights, group=group))
    run = RunTrace(trace_file)
    with progress(f"Decoder layer {dim}, {ffn} on {config.name}, {simulator}"):
        result = bench_decode(
            config,
            lambda chosen, size: run.machine(chosen, simulator, size, timing),
            dim=dim,
            ffn=ffn,
            positions=positions,
            weights=weights,
            group=group,
            low_rank=low_rank,
            sparse=sparse,
            sparsity=sparsity,
            seed=seed,
        )
        run.write(f"Decoder layer {dim}, {ffn} on {config.name}")
    result["memory"] = timing.fields()
    report(f"Decoder layer {dim}, {ffn}", [result], as_json, result)
    cycles_table(result, as_json)


@bench.command("compile")
@click.argument("model", type=MODEL, default="minilm")
@config_options("medium")
@memory_options(FAR)
@json_option
def compile_command(
    model: str,
    source: str,
    overrides: tuple[str, ...],
    timing: MemoryTiming,
    as_json: bool,
) -> None:
    """Compile MODEL, and show how long it took and what its program will take."""
    config = resolve(source, overrides)
    with progress(f"{model} on {config.name}"):
        result = bench_compile(model, config, timing)
    report(f"{model} on {config.name}", [result], as_json, result)


@bench.command()
@config_options("tiny")
@seed_option
@json_option
def harness(source: str, overrides: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Compare the fast simulation with cocotb on the same program."""
    config = resolve(source, overrides)
    with progress(f"Random program on {config.name}"):
        result = bench_harness(config, seed)
    report("Cycles per second", [result], as_json, result)
