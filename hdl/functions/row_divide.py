"""The end of a softmax: weights become probabilities."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.exponential import SHIFT_WIDTH
from hdl.arithmetic.multiplier import multiply
from hdl.component import Component
from hdl.stream.pipeline import data_register, delay

PROBABILITY_WIDTH = PROBABILITY_FRACTION + 1
"""Width of a probability, which may be 1 (bits)."""
DIVIDE_LATENCY = 4
"""Enabled cycles from a weight to its probability."""
ONE_SHIFT = 2 * OCTAVE_MANTISSA - PROBABILITY_FRACTION
"""Bits that a probability of 1 is shifted right."""


def probability_layout(lanes: int) -> data.StructLayout:
    """Return the payload of probabilities in unsigned Q0.24, of which 1 is ``2**24``."""
    probabilities = data.ArrayLayout(unsigned(PROBABILITY_WIDTH), lanes)
    return data.StructLayout({"p": probabilities, "mask": unsigned(lanes), "last": 1})


class DivideLane(Component):
    """One lane of :class:`RowDivide`: ``p`` is ``mantissa * inverse``, shifted and rounded.

    The weight is ``mantissa * 2**(-16 - shift)``, the reciprocal ``inverse * 2**(-16 - scale)``.
    Latency is ``DIVIDE_LATENCY`` cycles with ``en`` at
    1, one result per cycle; everything holds still while ``en`` is 0.
    """

    def __init__(self, scale_width: int):
        super().__init__(
            {
                "en": In(1),
                "mantissa": In(OCTAVE_MANTISSA + 1),
                "shift": In(SHIFT_WIDTH),
                "inverse": In(MANTISSA_WIDTH),
                "scale": In(scale_width),
                "p": Out(PROBABILITY_WIDTH),
            }
        )

    def elaborate(self, platform):
        """Multiply, shift, round."""
        m = Module()
        product = multiply(m, "product", self.mantissa, self.inverse, en=self.en)
        right = delay(m, self.shift + self.scale, 2, en=self.en)
        # One more bit than the result has, to round to nearest.
        twice, p = Signal(PROBABILITY_WIDTH + 1, reset_less=True), data_register(m, self.p)
        with m.If(self.en):
            m.d.sync += [
                twice.eq(product[ONE_SHIFT - 1 :] >> right),
                p.eq((twice + 1) >> 1),
            ]
        return m


class RowDivide(Component):
    """Multiplies a row's weights by the reciprocal of their sum, rounded to nearest in Q0.24.

    Latency is ``DIVIDE_LATENCY`` cycles, throughput one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, weighted: stream.Signature):
        self.lanes = lanes
        self.latency = DIVIDE_LATENCY
        super().__init__({"i": In(weighted), "o": Out(stream.Signature(probability_layout(lanes)))})

    def elaborate(self, platform):
        """Place the lanes; all hold still while a result waits."""
        m = Module()
        en = Signal()
        valid = Signal(DIVIDE_LATENCY)
        beat, row = self.i.payload.beat, self.i.payload.row
        with m.If(en):
            m.d.sync += valid.eq(Cat(self.i.valid, valid))
        m.d.comb += [
            en.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(en),
            self.o.valid.eq(valid[-1]),
            self.o.payload.mask.eq(delay(m, beat.mask, DIVIDE_LATENCY, en=en)),
            self.o.payload.last.eq(delay(m, beat.last, DIVIDE_LATENCY, en=en)),
        ]
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = DivideLane(len(row.scale))
            m.d.comb += [
                lane.en.eq(en),
                lane.mantissa.eq(beat.weight[index].mantissa),
                lane.shift.eq(beat.weight[index].shift),
                lane.inverse.eq(row.inverse),
                lane.scale.eq(row.scale),
                self.o.payload.p[index].eq(lane.p),
            ]
        return m
