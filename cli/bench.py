"""celosia bench: commands that count the machine's cycles in benchmarks, or time the compiler."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.cli.bench_all import bench_all
from celosia.cli.bench_boards import bench_boards
from celosia.cli.bench_compiler import bench_compiler
from celosia.cli.bench_formats import bench_formats
from celosia.cli.bench_pins import bench_pins
from celosia.cli.format_options import LAYER_KEYS, Formats, quantize_options
from celosia.cli.options import (
    config_choice,
    config_options,
    memory_options,
    read_size,
    refuse_given,
    simulator_option,
    size_argument,
    size_text,
)
from celosia.cli.output import cycles_table, progress, report
from celosia.cli.tracing import RunTrace, trace_option
from celosia.cli.tree import Tree
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.text_compiler import skips_zeros
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.gemm_bench import bench_gemm, bench_shapes
from celosia.generators.studies.gemm_shapes import shapes_named
from celosia.generators.studies.sparse_bench import bench_sparse
from celosia.tb.machine.memory_timing import SDRAM, MemoryTiming
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.trace_model import check_clocked
from celosia.tb.speed.attention_bench import bench_attention
from celosia.tb.speed.decode_bench import bench_decode
from celosia.tb.speed.harness_bench import bench_harness
from celosia.tb.speed.toggle_bench import bench_toggles


@click.group(cls=Tree)
def bench() -> None:
    """Count the machine's cycles in benchmarks; time the compiler."""


bench.add_command(bench_all)
bench.add_command(bench_boards)
bench.add_command(bench_compiler)
bench.add_command(bench_formats)
bench.add_command(bench_pins)


@bench.command(example="64x64x64")
@config_choice("small; medium for named products")
@click.argument("words", metavar="[MxKxN]|[NAME]...", nargs=-1, required=True)
@click.option(
    "--sparsity",
    type=float,
    help="Share of zero weights, for the zero-skip unit beside the array; of a size KxN, M is 1.",
)
@click.option(
    "--toggles",
    is_flag=True,
    help="Count the bits of registers that change, without and with sleep.",
)
@trace_option
@memory_options("sdram")
@simulator_option
def gemm(
    configured: Callable[[str], Config],
    words: tuple[str, ...],
    sparsity: float | None,
    toggles: bool,
    run: RunTrace,
    timing: MemoryTiming,
    simulator: str,
) -> None:
    """Compile linear layers with random weights, and run each on a machine.

    With MxKxN, the command runs one layer, which multiplies an input [M, K] by weights [K, N]. With
    NAME, it runs those matrix products of BERT, ViT, GPT-2 and Llama whose names, such as
    `bert-base qkv`, contain NAME; `all` selects every product. Operands and results are in external
    memory. With --sparsity, a share of the weights is zero, and the weights are in the scratchpad
    before the run starts.

    Column `cycles` is the time from the array's first request for an operand to its last sum in the
    accumulators. Column `total_cycles` is the time from start to halt. Column `utilization` is the
    number of multiplications divided by (`cycles` times the number of array elements). Column
    `total_utilization` is the number of multiplications divided by (`total_cycles` times the number
    of array elements).

    With --toggles, the command counts the changes of register bits in a run; memory cells do not
    count. It compares a machine without the field `sleep` to a machine with this field, in which
    the registers of unused columns and lanes keep their values. Each row of the table is for one
    engine or memory. The row `engines` is the sum of matrix engine, vector engine and accumulators,
    and the row `all` the sum of the whole machine.
    """
    if not re.fullmatch("[-x0-9]+", words[0]):
        refuse_given("named products", "sparsity", "toggles", "file")
        _shapes(configured("medium"), words, simulator, timing)
        return
    config = configured("small")
    sizes = read_size("MxKxN", " ".join(words), {} if sparsity is None else {"m": 1})
    title = f"{size_text(sizes)} on {config.name}, {simulator}"
    if toggles:
        refuse_given("--toggles", "sparsity", "memory", "simulator", "file")
        with progress(f"{size_text(sizes)} on {config.name}, without and with sleep"):
            result = bench_toggles(config, **sizes)
        report(f"Toggles of {size_text(sizes)} on {config.name}", result["units"], result)
        return
    if sparsity is not None:
        refuse_given("--sparsity", "memory", "file")
        with progress(f"{title}, {sparsity:.0%} zeros"):
            result = bench_sparse(
                config,
                lambda chosen, size: make_machine(chosen, simulator, size),
                **sizes,
                sparsity=sparsity,
            )
        report(f"Sparse {size_text(sizes)}", [result], result)
        return
    with progress(title):
        result = bench_gemm(
            config,
            lambda chosen, size: run.machine(chosen, simulator, size, timing),
            **sizes,
        )
        run.write(f"GEMM {size_text(sizes)} on {config.name}")
    report(f"GEMM {size_text(sizes)}", [result], result)
    cycles_table(result)


def _shapes(
    config: Config,
    words: tuple[str, ...],
    simulator: str,
    timing: MemoryTiming,
) -> None:
    """Run products of well-known models, and report their figures."""
    chosen = shapes_named(words)
    with progress(f"{len(chosen)} shapes on {config.name}, {simulator}") as update:
        result = bench_shapes(
            config,
            lambda config, size: make_machine(config, simulator, size, timing),
            chosen,
            update=update,
        )
    result["memory"] = timing.fields()
    rows = [_shape_row(shape) for shape in result["shapes"]]
    report(f"Shapes on {config.name}", rows, result)


def _shape_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a shape."""
    names = ("cycles", "utilization", "total_cycles", "total_utilization", "mismatches")
    figures = {name.replace("_", " "): result[name] for name in names}
    return {"name": result["name"], "size": size_text(result)} | figures


@bench.command(example="4x128x64")
@config_options("medium")
@size_argument("HEADSxSEQxDIM", smallest={"heads": 1})
@simulator_option
def attention(
    config: Config,
    sizes: dict[str, int],
    simulator: str,
) -> None:
    """Compile an encoder of one layer with random weights, run it, and measure its attention.

    HEADS is the number of heads, SEQ the number of queries and of keys, and DIM the number of
    columns of each head. The result `cycles` is the number of cycles that the run spends on
    attention: on the scores, the softmax, and the products with the values, for all heads.
    """
    check_clocked(simulator)
    heads, seq, head_dim = (sizes[name] for name in ("heads", "seq", "dim"))
    with progress(f"{heads} x {seq} x {head_dim} on {config.name}, {simulator}"):
        result = bench_attention(config, simulator, SDRAM, seq=seq, head_dim=head_dim, heads=heads)
    result["memory"] = SDRAM.fields()
    report(f"Attention {heads} x {seq} x {head_dim}", [result], result)


@bench.command(example="288x768x128 --quantize weights=nf4")
@config_options("medium")
@size_argument("DIMxFFNxPOSITIONS", "288x768x128")
@quantize_options(LAYER_KEYS)
@click.option(
    "--sparsity", type=float, default=0.0, show_default=True, help="Share of zero weights."
)
@simulator_option
def decode(
    config: Config,
    sizes: dict[str, int],
    formats: Formats,
    sparsity: float,
    simulator: str,
) -> None:
    """Compile a decoder of one layer with random weights, and count the cycles of one token.

    The machine reads the weights from external memory. DIM is the number of columns of the layer's
    input and output, FFN the inner width of its feed-forward network. The token attends to
    POSITIONS earlier tokens and to itself.
    """
    dim, ffn = sizes["dim"], sizes["ffn"]
    bits = formats.one_bits("A layer is measured")
    options = Quantization(**formats.quantization)
    config = equipped(config, options)
    with progress(f"Decoder layer {dim}, {ffn} on {config.name}, {simulator}"):
        result = bench_decode(
            config,
            lambda chosen, size: make_machine(chosen, simulator, size, SDRAM),
            **sizes,
            options=options,
            bits=bits,
            sparsity=sparsity,
        )
    result |= {**formats.figures, "sparse": skips_zeros(config), "memory": SDRAM.fields()}
    report(f"Decoder layer {dim}, {ffn}", [result], result)
    cycles_table(result)


@bench.command(example="")
def harness() -> None:
    """Compare the speeds of two simulations of the machine `tiny`, on the same random program.

    A speed is the number of simulated cycles per second. The first simulation is the compiled one
    that this project's commands use (--sim verilator). The second runs under cocotb.
    """
    config = PRESETS["tiny"]
    with progress(f"Random program on {config.name}"):
        result = bench_harness(config)
    report("Cycles per second", [result], result)
