"""Properties of arithmetic circuits: results are right for all operands of a given width."""

from collections.abc import Callable
from types import ModuleType

from amaranth.hdl import Assert, Assume, Const, Mux, Signal, signed

from celosia.hdl.stream.pipeline import delay
from celosia.tb.verify.formal.harness import Harness
from celosia.tb.verify.formal.prover import properties

_ROUNDED_WIDTH = 33  # bits, as in the requantizer
_PACKED_WIDTH = 4  # bits
_FACTOR_WIDTH = 10  # bits; products of 8 bits overlap in 2 of them


def _rounding_shift(module: ModuleType) -> Harness:
    def state(m, dut, _probes):
        # Equation (1): half is added, less one below zero, and the sum shifted down.
        x, amount = (delay(m, value, 1) for value in (dut.x, dut.amount))
        en = delay(m, dut.en, 1, reset=True)
        wide = Signal(signed(_ROUNDED_WIDTH + 33))
        half = (Const(1, 32) << amount) >> 1
        less = (x < 0) & (amount != 0)
        m.d.comb += [
            wide.eq((x + half - less) >> amount),
            Assert(~en | ((dut.floor + dut.up) == wide)),
        ]

    return Harness(module.RoundingShift(_ROUNDED_WIDTH), state)


def _packed(cycles: int, **options: int) -> Callable[[ModuleType], Harness]:
    """Return the harness of a packed multiplier whose products come ``cycles`` later."""

    def harness(module: ModuleType) -> Harness:
        def state(m, dut, _probes):
            ready = delay(m, Const(1), cycles, reset=True)
            for lane in range(2):
                product = delay(m, dut.a * dut.b[lane], cycles)
                m.d.comb += Assert(~ready | (dut.p[lane] == product))

        return Harness(module.PackedMultiplier(_PACKED_WIDTH, **options), state)

    return harness


def _gated(module: ModuleType) -> Harness:
    def state(m, dut, probes):
        # The content of the operands' registers, and the product that must follow from it.
        left, right = (Signal(signed(_PACKED_WIDTH), name=name) for name in ("left", "right"))
        product, known = Signal(signed(2 * _PACKED_WIDTH)), Signal()
        m.d.sync += product.eq(Mux(dut.clear, 0, left * right))
        with m.If(dut.en):
            m.d.sync += [left.eq(dut.a), right.eq(dut.b)]
        loaded = Signal()
        m.d.sync += [loaded.eq(loaded | dut.en), known.eq(loaded | dut.clear)]
        m.d.comb += [
            Assert(~known | (dut.p == product)),
            Assert(~loaded | ((probes.left == left) & (probes.right == right))),
        ]

    registers = {"left": signed(_PACKED_WIDTH), "right": signed(_PACKED_WIDTH)}
    return Harness(module.Multiplier(_PACKED_WIDTH, gating=True), state, registers)


def _table(module: ModuleType) -> Harness:
    """Follow one constant entry: the value written to it, and the times at which it is read."""

    def state(m, dut, probes):
        before, begun = Signal(8), Signal()
        entry, value = Signal(signed(8)), Signal(signed(8))
        asked, second, known = Signal(), Signal(), Signal()
        m.d.sync += [before.eq(probes.entry), begun.eq(1)]
        with m.If(dut.write.en & (dut.write.index == probes.entry)):
            m.d.sync += [entry.eq(dut.write.value), known.eq(1)]
        with m.If(dut.en):
            m.d.sync += [
                asked.eq(known & ((dut.index[0] + 128)[:8] == probes.entry)),
                value.eq(entry),
                second.eq(asked),
            ]
        last = Signal(signed(8))
        with m.If(dut.en):
            m.d.sync += last.eq(value)
        m.d.comb += [
            Assume(~begun | (probes.entry == before)),
            Assert(~second | (dut.value[0] == last)),
        ]

    return Harness(module.LookupTable(1), state, {"entry": 8})


ARITHMETIC = (
    *properties({"rounding-shift": _rounding_shift}, width=_ROUNDED_WIDTH),
    *properties(
        {
            "packed-products": _packed(2),
            "parted-products": _packed(3, factor_width=_FACTOR_WIDTH),
            "gated-product": _gated,
            "table": _table,
        },
        probes={"gated-product": {"left": "dut.left", "right": "dut.right"}},
        width=_PACKED_WIDTH,
    ),
)
