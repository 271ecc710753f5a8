"""celosia bench formats: cycles, bytes and area of each number format, compared with INT8."""

import functools
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.presets import PRESETS
from celosia.cli.options import (
    read_size,
    simulator_option,
)
from celosia.cli.output import progress, report
from celosia.cli.tree import Command
from celosia.fpga.boards import get_board
from celosia.fpga.synthesis import count, synthesize
from celosia.generators.quantize.options import Quantization
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.engines import matrix_engine
from celosia.tb.machine.memory_timing import SDRAM
from celosia.tb.machine.simulators import make_machine
from celosia.tb.speed.decode_bench import bench_decode

BOARD = "ulx3s_85f"
"""Board with the device for which area is measured."""
_UNIT = "matrix_engine"
_SIZE = "DIMxFFNxPOSITIONS"


@dataclass(frozen=True)
class Format:
    """A number format of weights and activations that ``celosia bench formats`` measures.

    The measured model is a decoder with ``layers`` layers in this format. It runs on a machine with
    the configuration ``config``.
    """

    name: str
    place: str
    """Place of weights: ``streamed`` from external memory, or ``resident`` in slots."""
    config: Config
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of quantization."""
    bits: int = OPERAND_BITS
    sparsity: float = 0.0
    recompute: bool = False
    layers: int = 1


def read_formats() -> Iterator[Format]:
    """Yield the number formats that formats.toml describes.

    Each format is measured on a variant of the preset ``small``. For each format, the file has the
    fields of the preset that are changed, and their values.
    """
    text = (Path(__file__).parent / "formats.toml").read_text(encoding="utf-8")
    for place, group in tomllib.loads(text).items():
        for case in group["cases"]:
            changes = group["machine"] | case.pop("machine", {})
            config = PRESETS["small"].replace(**changes)
            yield Format(place=place, config=config, layers=group["layers"], **case)


@click.command("formats", cls=Command, example="int4")
@click.argument("words", metavar="[DIMxFFNxPOSITIONS] [NAME]", nargs=-1)
@click.option(
    "--area/--no-area", default=True, help="Synthesize the matrix engines with Yosys, minutes each."
)
@simulator_option
def bench_formats(
    words: tuple[str, ...],
    area: bool,
    simulator: str,
) -> None:
    """Run decoder layers in every number format, or in formats with NAME in their names.

    The command measures the processing of one token, as `celosia bench decode` does, on a variant
    of the preset `small`. Each row of the table is for one format. If column `weights` is
    `streamed`, the weights of one layer are in external memory. If it is `resident`, the weights of
    two layers are in the array's weight slots; a slot stores one tile.

    Column `share` is the row's cycles, divided by the cycles of the first row with the same value
    in `weights`. Column `slots` is the number of weight slots that contain weights, keys or values.
    Columns `luts`, `multipliers` and `block_rams` are the resources of the matrix engine on an ECP5
    device. They include the weight slots, and the zero-skip unit if the machine has one. With
    --no-area these three columns are left out.
    """
    sized = bool(words) and words[0][0].isdigit() and "x" in words[0]
    sizes = read_size(_SIZE, words[0] if sized else "96x256x64", {})
    only = " ".join(words[sized:])
    every = list(read_formats())
    chosen = [form for form in every if only.lower() in form.name.lower()]
    if not chosen:
        names = ", ".join(form.name for form in every)
        raise InputError(f"No format is named {only!r}; known formats are {names}")
    rows: list[dict[str, Any]] = []
    with progress(f"Formats, {simulator}") as update:
        for done, case in enumerate(chosen):
            rows.append(_measure(case, simulator, **sizes))
            if area:
                rows[-1] |= measured_area(case.config)
            update(done + 1, len(chosen))
    for row in rows:
        first = next(entry for entry in rows if entry["weights"] == row["weights"])
        row["share"] = row["cycles"] / first["cycles"] if first["cycles"] else None
    mismatches = sum(row["mismatches"] for row in rows)
    result: dict[str, Any] = {**sizes, "simulator": simulator}
    result |= {"memory": SDRAM.fields(), "mismatches": mismatches, "rows": rows}
    report(f"Layer {sizes['dim']}, {sizes['ffn']} in every format", rows, result)


def _measure(case: Format, simulator: str, **sizes: int) -> dict[str, Any]:
    """Return the row of a format, without area."""
    figures = bench_decode(
        case.config,
        lambda config, size: make_machine(config, simulator, size, SDRAM),
        options=Quantization(**case.options),
        bits=case.bits,
        sparsity=case.sparsity,
        recompute=case.recompute,
        layers=case.layers,
        **sizes,
    )
    return {
        "format": case.name,
        "weights": case.place,
        "cycles": figures["cycles"],
        "share": None,
        "predicted": figures["predicted_cycles"],
        "bytes": figures["loaded_bytes"],
        "slots": figures["slots"],
        "mismatches": figures["mismatches"],
    }


@functools.cache
def measured_area(config: Config) -> dict[str, int]:
    """Return the resources that a configuration's matrix engine needs on an ECP5 device.

    The result is a dictionary with the numbers of ``luts``, ``multipliers`` and ``block_rams``.
    Yosys synthesizes the engine for the device of the board :data:`BOARD`. Raises
    :class:`InputError` if Yosys is not installed.
    """
    unit = matrix_engine(config)
    device = get_board(BOARD).device
    with tempfile.TemporaryDirectory() as folder:
        cells = synthesize(to_verilog(unit, _UNIT), _UNIT, device, Path(folder))
    needed = count(device.family, cells)
    return {name: needed[name] for name in ("luts", "multipliers", "block_rams")}
