"""Elementwise addition and multiplication of INT8 streams, equations (5) and (6)."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.errors import InputError
from hdl.arithmetic.multiplier import multiply
from hdl.arithmetic.requantize import RoundingShift
from hdl.component import Component
from hdl.stream.pipeline import delay

_PARAMETERS = {
    "multiply": In(1),
    "i_zero": In(signed(8)),
    "r_zero": In(signed(8)),
    "i_multiplier": In(signed(32)),
    "i_shift": In(signed(8)),
    "r_multiplier": In(signed(32)),
    "r_shift": In(signed(8)),
}


def input_layout(lanes: int) -> data.StructLayout:
    """Return the payload of :class:`ElementwiseUnit`'s input."""
    elements = data.ArrayLayout(signed(8), lanes)
    return data.StructLayout({"i": elements, "r": elements, "mask": lanes, "last": 1})


def output_layout(lanes: int) -> data.StructLayout:
    """Return the payload of :class:`ElementwiseUnit`'s output."""
    values = data.ArrayLayout(signed(32), lanes)
    return data.StructLayout({"value": values, "mask": lanes, "last": 1})


class ElementwiseLane(Component):
    """One lane of :class:`ElementwiseUnit`; the signals as there.

    Latency is ``latency`` cycles with ``en`` at 1, one result per cycle; everything holds still
    while ``en`` is 0. Four multiplications of at most 9x17 bits.
    """

    latency = 4 + RoundingShift.latency

    def __init__(self):
        super().__init__(
            {
                "en": In(1),
                "i": In(signed(8)),
                "r": In(signed(8)),
                "value": Out(signed(32)),
                **_PARAMETERS,
            }
        )

    def elaborate(self, _platform):
        """One stage per operation; signal names end in the stage that writes them."""
        m = Module()

        i, r = self.i - self.i_zero, self.r - self.r_zero
        # The product of both inputs shares the multiplier of the lower product of a rescaling.
        factor = Signal(signed(17))
        m.d.comb += factor.eq(Mux(self.multiply, r, self.i_multiplier[:16]))
        i_3, i_product_2 = self._high(m, "i", i, factor, self.i_multiplier)
        r_3, _ = self._high(m, "r", r, self.r_multiplier[:16], self.r_multiplier)

        i_4 = self._shift(m, "i", i_3, self.i_shift)
        r_4 = self._shift(m, "r", r_3, self.r_shift)
        product_4 = delay(m, i_product_2, 2, en=self.en)
        with m.If(self.en):
            m.d.sync += self.value.eq(
                Mux(self.multiply, product_4, (i_4.floor + r_4.floor + i_4.up) + r_4.up)
            )
        return m

    def _high(self, m, name, x, factor, multiplier):
        """Return ``(x * 2**20 * multiplier + 2**30) >> 31`` and the lower product."""
        low_2 = multiply(m, f"{name}_low", x, factor, en=self.en)
        high_2 = multiply(m, f"{name}_high", x, multiplier[16:].as_signed(), en=self.en)
        high_3 = Signal(signed(30), reset_less=True, name=f"{name}_high_3")
        with m.If(self.en):
            m.d.sync += [
                # The lower half of the upper product is free for the rounding constant.
                high_3.eq((Cat(C(1 << 10, 16), high_2).as_signed() + low_2) >> 11),
            ]
        return high_3, low_2

    def _shift(self, m, name, x, shift):
        m.submodules[f"{name}_rounding"] = rounding = RoundingShift(len(x))
        m.d.comb += [
            rounding.en.eq(self.en),
            rounding.x.eq(x),
            rounding.amount.eq(delay(m, (-shift)[:5], 1)),
        ]
        return rounding


class ElementwiseUnit(Component):
    """Add or multiply two INT8 tensors up to the output's requantization.

    Input stream: ``i`` and ``r``, ``lanes`` elements of each, ``mask`` with a bit for each lane
    and ``last``. Output stream: ``value``, ``lanes`` 32-bit integers for the requantizer, and the
    same ``mask`` and ``last``, which change nothing. With ``multiply`` at 1 the value is
    ``(i - i_zero) * (r - r_zero)``, otherwise ``sim.elementwise.add_sum`` of the same differences:
    each shifted left by 20 and rescaled by its multiplier (32 bits) and shift (-31 to 0) with
    TFLite's double rounding. Nothing can overflow.

    The ports beside the streams hold still from the first beat taken to the last beat given.

    Latency is ``ElementwiseLane.latency`` cycles while the output is taken, throughput one beat
    per cycle; the unit stands still while a beat waits at its output.

    Raises :class:`InputError` where ``lanes`` is not a positive integer.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, *, lanes: int):
        if lanes < 1:
            raise InputError(f"Elementwise lanes must be a positive integer, not {lanes!r}")
        self.lanes = lanes
        super().__init__(
            {
                "i": In(stream.Signature(input_layout(lanes))),
                "o": Out(stream.Signature(output_layout(lanes))),
                **_PARAMETERS,
            }
        )

    def elaborate(self, _platform):
        """Place the lanes; mask, last and valid wait beside them."""
        m = Module()
        latency = ElementwiseLane.latency
        en = Signal()
        m.d.comb += [
            en.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(en),
            self.o.valid.eq(delay(m, self.i.valid, latency, en=en, reset=True)),
            self.o.p.mask.eq(delay(m, self.i.p.mask, latency, en=en)),
            self.o.p.last.eq(delay(m, self.i.p.last, latency, en=en)),
        ]
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = ElementwiseLane()
            m.d.comb += [
                lane.en.eq(en),
                lane.i.eq(self.i.p.i[index]),
                lane.r.eq(self.i.p.r[index]),
                *(getattr(lane, name).eq(getattr(self, name)) for name in _PARAMETERS),
                self.o.p.value[index].eq(lane.value),
            ]
        return m
