"""Signed multipliers with registers at inputs and output, as in an FPGA's hardware multipliers."""

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.latency import HARDWARE_WIDTH, overlaps
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import data_register


class Multiplier(Component):
    """A signed multiplier, ``p = a * b``; ``p`` follows ``a`` and ``b`` by two cycles.

    If ``stalling`` is true, all registers load only while ``en`` is 1. If ``gating`` is true, only
    the operands' registers wait for ``en``, and ``clear`` sets the product to 0. Raises
    :class:`InputError` if both options are true, or if a width is below 1.
    """

    en: Signal
    """1 to load the registers, with ``gating`` only those of the operands."""
    clear: Signal
    """1 to set the product to 0 in the next cycle."""

    def __init__(
        self,
        width: int,
        *,
        b_width: int | None = None,
        gating: bool = False,
        stalling: bool = False,
    ):
        b_width = width if b_width is None else b_width
        if width < 1 or b_width < 1:
            wrong = b_width if width >= 1 else width
            raise InputError(f"Multiplier width must be a positive integer, not {wrong!r}")
        if gating and stalling:
            raise InputError("A multiplier is either gating or stalling, not both")
        self.b_width = b_width
        members = {
            "a": In(signed(width)),
            "b": In(signed(b_width)),
            "p": Out(signed(width + b_width)),
        }
        if gating or stalling:
            members["en"] = In(1)
        if gating:
            members["clear"] = In(1)
        super().__init__(members)

    def circuit(self, m):
        # No reset: a build can replace the module by a hardware multiplier.
        left = Signal(signed(self.width), reset_less=True)
        right = Signal(signed(self.b_width), reset_less=True)
        product = Signal(signed(self.width + self.b_width), reset_less=True)
        operands = [left.eq(self.a), right.eq(self.b)]
        multiply = product.eq(left * right)
        m.d.comb += self.p.eq(product)
        if self.gating:
            m.d.sync += multiply
            with m.If(self.en):
                m.d.sync += operands
            with m.If(self.clear):
                m.d.sync += product.eq(0)
        elif self.stalling:
            with m.If(self.en):
                m.d.sync += [operands, multiply]
        else:
            m.d.sync += [operands, multiply]


def multiply(
    m: Module, name: str, a: ValueLike, b: ValueLike, *, en: ValueLike | None = None
) -> Value:
    """Place a :class:`Multiplier` in ``m``, and return its product ``a * b``.

    The product follows the operands by two cycles. If ``en`` is passed, only cycles with ``en`` at
    1 count. As signed numbers, ``a`` and ``b`` must fit ``HARDWARE_WIDTH`` bits. ``name`` is the
    submodule's name.
    """
    a, b = Value.cast(a), Value.cast(b)
    widths = [len(value) + (not value.shape().signed) for value in (a, b)]
    assert max(widths) <= HARDWARE_WIDTH, (name, widths)
    unit = Multiplier(widths[0], b_width=widths[1], stalling=en is not None)
    m.submodules[name] = unit
    m.d.comb += [unit.a.eq(a), unit.b.eq(b)]
    if en is not None:
        m.d.comb += unit.en.eq(en)
    p = unit.p[: len(a) + len(b)]
    return p.as_signed() if a.shape().signed or b.shape().signed else p


class PackedMultiplier(Component):
    """Two signed products with a common operand, ``p[i] = a * b[i]``, from one :class:`Multiplier`.

    ``b[0]`` and ``b[1]`` share one operand of the multiplier, of at most ``factor_width`` bits. The
    products overlap (:func:`overlaps`) if this width is too small to separate them. Latency is then
    three cycles, otherwise two. Raises :class:`InputError` if the products overlap and ``b_width``
    exceeds half of ``factor_width``.
    """

    def __init__(
        self,
        width: int,
        *,
        b_width: int | None = None,
        gating: bool = False,
        factor_width: int = HARDWARE_WIDTH,
    ):
        self.b_width = width if b_width is None else b_width
        self.overlapping = overlaps(width, self.b_width, factor_width)
        if self.overlapping and 2 * self.b_width > factor_width:
            raise InputError(
                f"Packed operands must have at most {factor_width // 2} bits, not {self.b_width}"
            )
        members = {
            "a": In(signed(width)),
            "b": In(data.ArrayLayout(signed(self.b_width), 2)),
            "p": Out(data.ArrayLayout(signed(width + self.b_width), 2)),
        }
        if gating:
            members |= {"en": In(1), "clear": In(1)}
        super().__init__(members)

    def circuit(self, m):
        low = self.width + self.b_width
        # One bit more than the upper operand, for the borrow of the lower product.
        more = int(self.b_width == self.width)
        wide = self.factor_width if self.overlapping else low + self.b_width + more
        m.submodules.both = both = Multiplier(self.width, b_width=wide, gating=self.gating)
        m.d.comb += both.a.eq(self.a)
        if self.gating:
            m.d.comb += [both.en.eq(self.en), both.clear.eq(self.clear)]
        if self.overlapping:
            self._part(m, both)
            return
        m.d.comb += [
            both.b.eq((self.b[1] << low) + self.b[0]),
            self.p[0].eq(both.p[:low].as_signed()),
            # A negative lower product borrows 1 from the upper one.
            self.p[1].eq(both.p[low:].as_signed() + both.p[low - 1]),
        ]

    def _part(self, m, both):
        """Separate products that overlap."""
        low, upper = self.b
        place = self.factor_width - self.b_width
        over = max(1, self.width + self.b_width - place)
        free = Const(0, place - self.b_width)
        m.d.comb += both.b.eq(Cat(low[:-1], ~low[-1], free, upper))
        # Copies of the multiplier's registers: the operands, and the upper product's lowest bits.
        a = Signal(signed(self.width), reset_less=True)
        b = Signal(over, reset_less=True)
        late = Signal.like(a)
        known = Signal(over, reset_less=True)
        with m.If(self.en if self.gating else Const(1)):
            m.d.sync += [a.eq(self.a), b.eq(upper)]
        m.d.sync += [late.eq(a), known.eq(low_product(a, b))]
        if self.gating:
            with m.If(self.clear):
                m.d.sync += [late.eq(0), known.eq(0)]
        # The part of the lower product (with an unsigned operand) that overlaps the upper one.
        part = (both.p[place:][:over] - known)[:over].as_signed()
        p = data_register(m, self.p)
        m.d.sync += [
            p[0].eq(Cat(both.p[:place], part).as_signed() - (late << (self.b_width - 1))),
            p[1].eq(both.p[place:] - part),
        ]


def low_product(a: Value, b: Value) -> Value:
    """Return the lowest ``len(b)`` bits of ``a * b``, computed by adders without a multiplier."""
    width = len(b)
    rows = [a[: width - place] & b[place].replicate(width - place) for place in range(width)]
    while len(rows) > 1:
        pairs = [rows[first : first + 2] for first in range(0, len(rows), 2)]
        # The second of a pair has fewer bits and is shifted left by the difference.
        rows = [
            sum(row << len(pair[0]) - len(row) for row in pair)[: len(pair[0])] for pair in pairs
        ]
    return rows[0]


class MultiplierPair(Component):
    """Two signed 8-bit multipliers: ``p_0 = a_0 * b_0`` and ``p_1 = a_1 * b_1``, two cycles later.

    ``a_0`` and ``a_1`` load into registers while ``a_en`` is 1. ``b_0`` and ``b_1`` load into
    registers while ``b_en`` is 1.
    """

    p_0: Signal
    """Product of the registers of ``a_0`` and ``b_0`` in the previous cycle."""
    p_1: Signal
    """Product of the registers of ``a_1`` and ``b_1`` in the previous cycle."""

    def __init__(self) -> None:
        super().__init__(
            {
                "a_0": In(signed(8)),
                "a_1": In(signed(8)),
                "b_0": In(signed(8)),
                "b_1": In(signed(8)),
                "a_en": In(1),
                "b_en": In(1),
                "p_0": Out(signed(16)),
                "p_1": Out(signed(16)),
            }
        )

    def circuit(self, m):
        for number in range(2):
            held = {}
            for name in ("a", "b"):
                held[name] = Signal(signed(8), name=f"{name}_held_{number}", reset_less=True)
                with m.If(getattr(self, f"{name}_en")):
                    m.d.sync += held[name].eq(getattr(self, f"{name}_{number}"))
            product = Signal(signed(16), name=f"product_{number}", reset_less=True)
            m.d.sync += product.eq(held["a"] * held["b"])
            m.d.comb += getattr(self, f"p_{number}").eq(product)
