"""The stimuli of the units' timing diagrams, by the diagrams' names.

`python -m tools.timing_scenarios [NAME ...]` writes the diagrams' files.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.assembler import assemble
from celosia.arch.config import Config
from celosia.arch.instruction import pack
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.arch.records import Sparse
from celosia.arch.tables import read_table
from celosia.hdl.arithmetic.reciprocal import Reciprocal
from celosia.hdl.arithmetic.requantize import Requantizer, bounds_of
from celosia.hdl.arithmetic.wide_multiplier import WideMultiplier
from celosia.hdl.control.sequencer import Sequencer
from celosia.hdl.engines import scratchpad
from celosia.hdl.functions.addnorm import AddNormUnit
from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.hdl.functions.table import LookupTable
from celosia.hdl.link.uart import UartReceiver
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.sparse.lane import SparseLane
from celosia.sim.requantize import quantize_multiplier
from tools.timing import TIMING, Scenario, simulate, text

TINY = PRESETS["tiny"]
_ARRAY = Config.of(rows=2, cols=2, lanes=1, zero_points=False, operand_gating=False)


def requantizer() -> Scenario:
    """Return the scenario of three sums, one a cycle, and a pause of ``en``."""
    multiplier, shift = quantize_multiplier(0.05)
    return Scenario(
        unit=Requantizer(),
        held={"multiplier": multiplier, "shift": shift, "bounds": bounds_of(3, -128, 127)},
        patterns={
            "en": [1, 1, 1, 1, 0, 0, 1],
            "x": [0, 1000, -1500, 99999, 0],
            "bias": [0, 10, 10, 10, 0],
        },
        shown={"en": "bit", "x": "signed", "bias": "signed", "y": "signed"},
        length=14,
        caption="Requantizer, multiplier for 0.05, zero point 3: results come 6 cycles in which"
        " en is 1 later; the last one is saturated.",
    )


def reciprocal() -> Scenario:
    """Return the scenario of three inverses, one a cycle."""
    return Scenario(
        unit=Reciprocal(16),
        held={"en": 1},
        patterns={"valid_i": [0, 1, 1, 1, 0], "x": [0, 1, 3, 1000, 0]},
        shown={
            "valid_i": "bit",
            "x": "unsigned",
            "valid_o": "bit",
            "mantissa": "unsigned",
            "exponent": "signed",
        },
        meant={"x": "valid_i", "mantissa": "valid_o", "exponent": "valid_o"},
        length=16,
        caption="Reciprocal of 16 bits: 1/x is mantissa / 2**exponent, for 1, 3 and 1000.",
    )


def sequencer() -> Scenario:
    """Return the scenario of a program that is loaded and run: a loop with one instruction."""
    words = pack(assemble("LOOP count=2\nPARAMS i_addr=64 n=5\nENDLOOP\nHALT\n"))
    begin = len(words) + 2
    return Scenario(
        unit=Sequencer(TINY.control, TINY.instructions),
        held={"o.ready": 1, "idle": 1},
        patterns={
            "program_en": [1] * len(words) + [0],
            "program_addr": list(range(len(words))),
            "program_data": [word % (1 << 32) for word in words],
            "start": [0] * begin + [1, 0],
        },
        shown={
            "start": "bit",
            "busy": "bit",
            "o.valid": "bit",
            "o.payload.first": "bit",
            "o.payload.last": "bit",
            "o.payload.word": "hex",
            "halted": "bit",
        },
        first=begin - 1,
        length=24,
        caption="Sequencer: LOOP count=2, PARAMS i_addr=64 n=5, ENDLOOP, HALT. The four words "
        "of PARAMS leave twice, a header with first and three operands.",
    )


def uart() -> Scenario:
    """Return the scenario of one byte on the serial line."""
    divisor, byte = 4, 0x4B
    bits = [1, 0, *(byte >> place & 1 for place in range(8)), 1]
    return Scenario(
        unit=UartReceiver(divisor),
        patterns={"rx": [bit for bit in bits for _ in range(divisor)]},
        shown={"rx": "bit", "o.valid": "bit", "o.payload.byte": "hex", "o.payload.broken": "bit"},
        length=52,
        caption="UartReceiver with 4 cycles a bit: start bit, 0x4b from its lowest bit on, stop"
        " bit.",
    )


def wide_multiplier() -> Scenario:
    """Return the scenario of a product of two 32-bit numbers."""
    return Scenario(
        unit=WideMultiplier(),
        patterns={
            "start": [0, 1, 0],
            "b_en": [0, 1, 0],
            "a": [0, 1234, 0],
            "b": [0, (1 << 32) - 1000, 0],
        },
        meant={"p": "not busy"},
        shown={"start": "bit", "a": "signed", "b": "signed", "busy": "bit", "p": "signed"},
        length=6,
        caption="WideMultiplier of the microcoded core: p holds the product once busy is 0.",
    )


_UNITS: dict[str, Callable[[], Component]] = {
    "softmax": lambda: SoftmaxUnit(2, 8),
    "addnorm": lambda: AddNormUnit(lanes=2, max_row=8),
    "systolic_array": lambda: SystolicArray(_ARRAY.part(MatrixConfig)),
    "sparse_lane": lambda: SparseLane(TINY.part(MatrixConfig), Sparse(lanes=1)),
    "scratchpad": lambda: scratchpad(TINY, readers=("a", "v"), writers=("load",)),
    "table": lambda: LookupTable(1, 2),
}
"""The units of the stimuli in timing.toml."""


def _scenario(name: str, values: dict[str, Any]) -> Callable[[], Scenario]:
    return lambda: Scenario(unit=_UNITS[name](), **values)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    name: _scenario(name, values)
    for name, values in read_table(Path(__file__).with_name("timing.toml")).items()
}
SCENARIOS |= {
    scenario.__name__: scenario
    for scenario in (
        requantizer,
        *(reciprocal, sequencer, uart, wide_multiplier),
    )
}


if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        drawn = text(simulate(SCENARIOS[name]()))
        (TIMING / f"{name}.json").write_text(drawn, encoding="utf-8")
