"""The last step of a softmax: exponentials divided by their sum, which gives probabilities."""

from amaranth.hdl import Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION
from celosia.arch.polynomial import MANTISSA_WIDTH
from celosia.hdl.arithmetic.exponential import SHIFT_WIDTH
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.pipeline import data_register, delay

PROBABILITY_WIDTH = PROBABILITY_FRACTION + 1
"""Width of a probability from 0 to 1 inclusive (bits)."""
DIVIDE_LATENCY = 4
"""Cycles from a weight to its probability."""
ONE_SHIFT = 2 * OCTAVE_MANTISSA - PROBABILITY_FRACTION
"""Right shift of ``mantissa * inverse`` if both shifts of :class:`DivideLane` are 0 (bits)."""


def probability_layout(lanes: int) -> data.StructLayout:
    """Return the layout of a beat of softmax results: ``p``, ``mask`` and ``last``.

    ``p`` has a probability for each lane, in units of 2**-24. ``mask`` and ``last`` are as in
    :func:`celosia.hdl.functions.row_maximum.score_layout`.
    """
    probabilities = data.ArrayLayout(unsigned(PROBABILITY_WIDTH), lanes)
    return data.StructLayout({"p": probabilities, "mask": unsigned(lanes), "last": 1})


class DivideLane(Component):
    """Divides the exponential of a softmax score by the sum of its row.

    The exponential is ``mantissa * 2**(-16 - shift)``, and the reciprocal of the sum is
    ``inverse * 2**(-16 - scale)``. ``p`` is their product in units of ``2**-24``, rounded to
    nearest. Latency is ``DIVIDE_LATENCY`` cycles.
    """

    mantissa: Signal
    """Mantissa of the exponential, in units of 2**-16."""
    shift: Signal
    """Right shift of ``mantissa`` (bits)."""
    inverse: Signal
    """Mantissa of the reciprocal of the row's sum, in units of 2**-16."""
    scale: Signal
    """Right shift of ``inverse`` (bits)."""

    def __init__(self, scale_width: int):
        super().__init__(
            {
                "mantissa": In(OCTAVE_MANTISSA + 1),
                "shift": In(SHIFT_WIDTH),
                "inverse": In(MANTISSA_WIDTH),
                "scale": In(scale_width),
                "p": Out(PROBABILITY_WIDTH),
            }
        )

    def circuit(self, m):
        """Instantiate the multiplier, the shifter and the rounding adder."""
        product = multiply(m, "product", self.mantissa, self.inverse)
        right = delay(m, self.shift + self.scale, 2)
        # One bit more than the result, to round to nearest.
        twice, p = Signal(PROBABILITY_WIDTH + 1, reset_less=True), data_register(m, self.p)
        m.d.sync += [
            twice.eq(product[ONE_SHIFT - 1 :] >> right),
            p.eq((twice + 1) >> 1),
        ]


class RowDivide(Component):
    """Multiplies the exponentials of a softmax row by the reciprocal of their sum.

    A beat of ``i`` has exponentials and the reciprocal for their row. ``o`` outputs the products:
    probabilities in units of 2**-24, rounded to nearest. Latency is ``DIVIDE_LATENCY`` cycles,
    throughput one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, weighted: stream.Signature):
        self.latency = DIVIDE_LATENCY
        super().__init__({"i": In(weighted), "o": Out(stream.Signature(probability_layout(lanes)))})

    def circuit(self, m):
        # The lanes never stall: the queue stores their probabilities while ``o`` is not ready.
        m.submodules.out = out = CreditQueue(self.o.payload.shape(), DIVIDE_LATENCY)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        beat, row = self.i.payload.beat, self.i.payload.row
        m.d.comb += [
            self.i.ready.eq(out.room),
            out.taken.eq(self.i.valid & out.room),
            out.i.valid.eq(delay(m, out.taken, DIVIDE_LATENCY, reset=True)),
            out.i.payload.mask.eq(delay(m, beat.mask, DIVIDE_LATENCY)),
            out.i.payload.last.eq(delay(m, beat.last, DIVIDE_LATENCY)),
        ]
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = DivideLane(len(row.scale))
            m.d.comb += [
                lane.mantissa.eq(beat.weight[index].mantissa),
                lane.shift.eq(beat.weight[index].shift),
                lane.inverse.eq(row.inverse),
                lane.scale.eq(row.scale),
                out.i.payload.p[index].eq(lane.p),
            ]
