"""The stimuli of the units' timing diagrams, by the diagrams' names.

`python -m tools.timing_scenarios [NAME ...]` writes the diagrams' files.
"""

import sys
from collections.abc import Callable

from arch.assembler import assemble
from arch.config import Config
from arch.instruction import pack
from arch.presets import PRESETS
from hdl.arithmetic.reciprocal import Reciprocal
from hdl.arithmetic.requantize import Requantizer, bounds_of
from hdl.arithmetic.serial_multiplier import SerialMultiplier
from hdl.control.sequencer import Sequencer
from hdl.functions.addnorm import AddNormUnit
from hdl.functions.softmax import SoftmaxUnit
from hdl.functions.table import LookupTable
from hdl.link.uart import UartReceiver
from hdl.matrix.systolic import SystolicArray
from hdl.memory.scratchpad import Scratchpad
from hdl.sparse.lane import SparseLane, load_bytes
from sim.requantize import quantize_multiplier
from tools.timing import TIMING, Scenario, simulate, text

TINY = PRESETS["tiny"]


def stream(path: str, *parts: str, form: str = "signed") -> dict[str, str]:
    """Return the forms of a stream's handshake and of parts of its payload."""
    shown = {f"{path}.valid": "bit", f"{path}.ready": "bit"}
    return shown | {f"{path}.payload{part}": form for part in parts}


def softmax() -> Scenario:
    """Two rows, one right behind the other."""
    rows = ((256, 0), (0, -256)), ((512, 512),)
    beats = [
        {"q": list(q), "mask": 3, "last": int(index == len(row) - 1)}
        for row in rows
        for index, q in enumerate(row)
    ]
    return Scenario(
        unit=SoftmaxUnit(2, 8),
        held={"o.ready": 1},
        streams={"i": beats},
        shown=stream("i", ".q[0]", ".q[1]")
        | {"i.payload.last": "bit"}
        | stream("o", ".p[0]", ".p[1]", form="unsigned")
        | {"o.payload.last": "bit"},
        length=38,
        caption="SoftmaxUnit, 2 lanes: a row of four scores (256 is an octave: each weight is "
        "twice the next) and a row of two equal ones. Probabilities are fractions of "
        "2**24.",
    )


def addnorm() -> Scenario:
    """A row of four elements and its residual."""
    beats = [
        {"x": [100, 200], "r": [10, -20], "mask": 3, "last": 0},
        {"x": [-300, 40], "r": [0, 5], "mask": 3, "last": 1},
    ]
    return Scenario(
        unit=AddNormUnit(lanes=2, max_row=8),
        held={"n": 4, "add": 1, "eps": 0, "o.ready": 1, "o_sum.ready": 1},
        streams={"i": beats},
        shown=stream("i", ".x[0]", ".x[1]", ".r[0]", ".r[1]")
        | {"i.payload.last": "bit", "o_sum.valid": "bit", "o_sum.payload.s[0]": "signed"}
        | {"o.valid": "bit", "o.payload.value[0]": "signed", "o.payload.value[1]": "signed"},
        length=36,
        caption="AddNormUnit, 2 lanes, add = 1: the sum leaves at once on o_sum, the normalized"
        " row, with 16 bits of fraction, once its statistics are known.",
    )


def requantizer() -> Scenario:
    """Three sums, one a cycle, and a pause of en."""
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


def systolic_array() -> Scenario:
    """A 2x2 tile of weights, then three vectors of activations."""
    config = Config(rows=2, cols=2, lanes=1, zero_points=False, operand_gating=False)
    line = {"slot": 0, "column": 0}
    weights = [line | {"data": [1, 2], "index": 0}, line | {"data": [3, 4], "index": 1}]
    vectors = [{"a": [1, 0], "slot": 0}, {"a": [0, 1], "slot": 0}, {"a": [10, 10], "slot": 0}]
    return Scenario(
        unit=SystolicArray(config),
        patterns={
            "i_weights.valid": [0, 1, 1, 0],
            "i_weights.payload": [weights[0], weights[0], weights[1]],
            "i.valid": [0, 0, 1, 1, 1, 0],
            "i.payload": [vectors[0], vectors[0], *vectors],
        },
        shown={
            "i_weights.valid": "bit",
            "i_weights.payload.data[0]": "signed",
            "i_weights.payload.data[1]": "signed",
            "i.valid": "bit",
            "i.payload.a[0]": "signed",
            "i.payload.a[1]": "signed",
            "o.valid": "bit",
            "o.payload[0]": "signed",
            "o.payload[1]": "signed",
        },
        length=14,
        caption="SystolicArray of 2x2 elements: the tile's two lines of weights (1, 2) and (3, "
        "4), the first activations a cycle behind the first line, and a vector of sums "
        "a cycle.",
    )


def sparse_lane() -> Scenario:
    """A stretch of two columns with three weights that are not zero."""
    x = [1, 10, 20, 100]
    return Scenario(
        unit=SparseLane(TINY),
        held={"k": 4, "o.ready": 1},
        patterns={
            "x_en": [1, 0],
            "x_data": [x + [0] * (load_bytes(TINY) - 4)],
            "begin": [1, 2, 4, 0],
            "field": [0, 0, 0, 1 << 8 | 3, 2 << 8 | 5, 2 << 8 | 254, 0],
            "take": [0, 0, 0, 1, 1, 1, 0],
            "finish": [0] * 11 + [1, 0],
        },
        shown={
            "begin": "unsigned",
            "take": "bit",
            "field": "hex",
            "zeros": "unsigned",
            "finish": "bit",
            "o.valid": "bit",
            "o.payload.column": "unsigned",
            "o.payload.sum": "signed",
        },
        meant={"field": "take", "zeros": "take"}
        | {f"o.payload.{name}": "o.valid" for name in ("column", "sum")},
        length=15,
        caption="SparseLane: (1, 10, 20, 100) times the columns (0, 3, 0, 0) and (5, 0, 0, -2), an "
        "entry each; sums 30 and -195.",
    )


def scratchpad() -> Scenario:
    """A write, then two readers of the same bank."""
    word = [17, 34, 51, 68]
    return Scenario(
        unit=Scratchpad(TINY, readers=("a", "v"), writers=("load",)),
        patterns={
            "write_load.request.valid": [0, 1, 0],
            "write_load.request.payload": [{"addr": 6, "count": 4, "data": word}],
            "read_a.request.valid": [0, 0, 1, 0],
            "read_a.request.payload": [0, 0, 6],
            "read_v.request.valid": [0, 0, 1, 1, 0],
            "read_v.request.payload": [0, 0, 7],
        },
        shown={
            "write_load.request.valid": "bit",
            "write_load.request.ready": "bit",
            "write_load.request.payload.addr": "unsigned",
            "read_a.request.valid": "bit",
            "read_a.request.ready": "bit",
            "read_a.request.payload": "unsigned",
            "read_v.request.valid": "bit",
            "read_v.request.ready": "bit",
            "read_v.request.payload": "unsigned",
            "read_a.valid": "bit",
            "read_a.data[0]": "unsigned",
            "read_v.valid": "bit",
            "read_v.data[0]": "unsigned",
        },
        meant={"read_a.data[0]": "read_a.valid", "read_v.data[0]": "read_v.valid"},
        length=9,
        caption="Scratchpad: four bytes written to address 6, then two readers of the same "
        "bank. The activations' reader comes first, the vector engine's waits a cycle; "
        "both start at a byte that is no multiple of a line.",
    )


def table() -> Scenario:
    """An entry is written and read."""
    return Scenario(
        unit=LookupTable(1, 2),
        held={"en": 1},
        patterns={
            "write.en": [0, 1, 1, 0],
            "write.index": [0, 128, 129],
            "write.value": [0, -7, 42],
            "index": [[0], [0], [0], [0], [1], [0]],
        },
        shown={
            "write.en": "bit",
            "write.index": "unsigned",
            "write.value": "signed",
            "index[0]": "signed",
            "value[0]": "signed",
        },
        length=10,
        caption="LookupTable: entries for 0 and 1 are written, then read; a value comes two "
        "cycles behind its index.",
    )


def reciprocal() -> Scenario:
    """Three inverses, one a cycle."""
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
    """A program is written and started: a loop around one instruction."""
    words = pack(assemble("LOOP count=2\nPARAMS i_addr=64 n=5\nENDLOOP\nHALT\n"))
    begin = len(words) + 2
    return Scenario(
        unit=Sequencer(TINY),
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
    """A byte on the line."""
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


def serial_multiplier() -> Scenario:
    """A product of two numbers of 32 bits."""
    return Scenario(
        unit=SerialMultiplier(),
        patterns={
            "start": [0, 1, 0],
            "a": [0, 1234, 0],
            "b": [0, (1 << 32) - 1000, 0],
        },
        meant={"p": "not busy"},
        shown={"start": "bit", "a": "signed", "b": "signed", "busy": "bit", "p": "signed"},
        length=21,
        caption="SerialMultiplier of the microcoded core: two bits of b a cycle; p holds the "
        "product once busy is 0.",
    )


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        *(softmax, addnorm, requantizer, systolic_array, sparse_lane, scratchpad, table),
        *(reciprocal, sequencer, uart, serial_multiplier),
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        found = text(simulate(SCENARIOS[name]()))
        (TIMING / f"{name}.json").write_text(found, encoding="utf-8")
