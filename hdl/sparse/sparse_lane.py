"""One lane of the zero-skip multiply-accumulate unit, and the shapes all its parts share."""

from typing import Self

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from arch.config import Config
from arch.errors import InputError, InputTypeError
from hdl.component import Component

LATENCY = 4
"""Cycles from a product's turn in a lane until the lane's sum can be merged."""


class SparseShape:
    """The parameters of a :class:`SparseMac`, checked, and what follows from them.

    The parameters are those of :class:`SparseMac`, with its errors.
    """

    def __init__(
        self,
        *,
        lanes: int,
        k_max: int,
        operand_width: int = 8,
        acc_width: int = 32,
        window: int | None = None,
        values: int | None = None,
        load: int | None = None,
    ):
        for name, value in (("lanes", lanes), ("k_max", k_max)):
            _check(name, value, 1)
        self.lanes = lanes
        self.k_max = k_max
        self.operand_width = operand_width
        self.acc_width = acc_width
        self.window = min(16 * lanes, k_max) if window is None else window
        _check("window", self.window, 1)
        self.values = min(2 * lanes, self.window) if values is None else values
        self.load = 1 << ceil_log2(lanes) if load is None else load
        for name, low in (("operand_width", 2), ("acc_width", 1), ("values", 1), ("load", 1)):
            _check(name, getattr(self, name), low)
        if operand_width > 8:
            raise InputError(f"Sparse operand_width must be at most 8, not {operand_width}")
        if self.load & (self.load - 1):
            raise InputError(f"Sparse load must be a power of two, not {self.load}")
        if self.values > self.window:
            raise InputError(
                f"Sparse values must be at most window, but values is {self.values} "
                f"and window is {self.window}"
            )
        if acc_width < self.sum_width(k_max):
            raise InputError(
                f"Sparse acc_width must be at least {self.sum_width(k_max)} so that a sum of "
                f"k_max = {k_max} products of {operand_width}-bit operands cannot overflow, "
                f"but acc_width is {acc_width}"
            )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return a configuration's shape: its lanes, and vectors that its scratchpad can hold."""
        return cls(
            lanes=config.lanes,
            k_max=min(config.max_k, config.scratchpad_bytes),
            operand_width=config.operand_width,
            acc_width=config.acc_width,
        )

    @property
    def arguments(self) -> dict[str, int]:
        """The parameters by name, defaults resolved."""
        names = ("lanes", "k_max", "operand_width", "acc_width", "window", "values", "load")
        return {name: getattr(self, name) for name in names}

    def sum_width(self, products: int) -> int:
        """Return the width that no sum of so many products overflows (bits)."""
        return (products << 2 * (self.operand_width - 1)).bit_length() + 1

    @property
    def operand(self) -> data.ShapeLike:
        """A weight or an activation."""
        return signed(self.operand_width)

    @property
    def partial(self) -> data.ShapeLike:
        """The sum of one beat's products."""
        return signed(self.sum_width(self.values))

    @property
    def word(self) -> data.ArrayLayout:
        """The activations of one word of the activation memory."""
        return data.ArrayLayout(self.operand, self.load)

    @property
    def load_bits(self) -> int:
        """Width of an activation's place in its word (bits)."""
        return int(ceil_log2(self.load))

    @property
    def word_bits(self) -> int:
        """Width of a word's address in one bank (bits)."""
        return int(ceil_log2(-(-self.k_max // self.load)))

    @property
    def job(self) -> data.StructLayout:
        """A lane's part of a beat, and the bank of its activations."""
        return data.StructLayout(
            {
                "bank": unsigned(1),
                "count": range(self.values + 1),
                "base": range(self.k_max),
                "bitmap": unsigned(self.window),
                "values": data.ArrayLayout(self.operand, self.values),
            }
        )

    @property
    def beat(self) -> data.StructLayout:
        """The payload of a :class:`SparseMac`'s ``i``."""
        members = {name: field.shape for name, field in self.job if name != "bank"}
        return data.StructLayout({"row_last": 1, "matrix_last": 1} | members)

    @property
    def vector(self) -> data.StructLayout:
        """The payload of a :class:`SparseMac`'s ``i_vector``."""
        return data.StructLayout({"last": 1, "values": self.word})

    @property
    def ticket(self) -> data.StructLayout:
        """A beat's ticket for the merger: its lane, if it has any weight."""
        return data.StructLayout(
            {"row_last": 1, "matrix_last": 1, "empty": 1, "lane": range(self.lanes)}
        )

    @property
    def depth(self) -> int:
        """Beats under way that one beat a cycle can need, two full beats in one lane ahead."""
        return 2 * self.values + LATENCY


def _check(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"Sparse {name} must be an integer, not {value!r}")
    if value < low:
        raise InputError(f"Sparse {name} must be at least {low}, not {value}")


class SparseLane(Component):
    """Sums the products of one beat after the other, one nonzero product per cycle.

    A beat is taken from ``job`` where ``start`` is 1; it must have a weight, and ``full`` must be
    0. One beat is worked on and one waits, so that the lane never idles between them. ``left`` is
    the number of products left of the beat worked on. Each beat's exact sum comes on ``o``, in
    order; with at most ``depth`` beats under way none is lost. The lane holds its own copy of the
    activations, written by ``x_en``, ``x_addr`` (bank above word) and ``x_data``.

    Latency is ``count + LATENCY`` cycles in an idle lane, from ``start`` to a sum on ``o``.
    """

    def __init__(self, shape: SparseShape):
        self._shape = shape
        super().__init__(
            {
                "start": In(1),
                "job": In(shape.job),
                "full": Out(1),
                "left": Out(range(shape.values + 1)),
                "o": Out(stream.Signature(shape.partial)),
                "x_en": In(1),
                "x_addr": In(shape.word_bits + 1),
                "x_data": In(shape.word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Find the next set bit, fetch its activation, multiply, add."""
        m = Module()
        shape = self._shape
        depth = 2 << shape.word_bits
        m.submodules.x = memory = Memory(shape=shape.word, depth=depth, init=[])
        m.submodules.sums = sums = SyncFIFO(width=shape.partial.width, depth=shape.depth)
        write = memory.write_port()
        read = memory.read_port()
        m.d.comb += [write.en.eq(self.x_en), write.addr.eq(self.x_addr), write.data.eq(self.x_data)]

        # A beat starts in the cycle after the one before it ends.
        work = Signal(shape.job, reset_less=True)
        waiting = Signal(shape.job, reset_less=True)
        ending = Signal()
        less = Signal(shape.window)
        lowest = Signal(shape.window)
        m.d.comb += [
            ending.eq(self.left <= 1),
            less.eq(work.bitmap - 1),
            lowest.eq(work.bitmap & ~less),
        ]
        with m.If(self.left != 0):
            m.d.sync += [
                self.left.eq(self.left - 1),
                work.bitmap.eq(work.bitmap & less),
                work.values.eq(work.values.as_value() >> shape.operand_width),
            ]
        with m.If(self.full & ending):
            m.d.sync += [work.eq(waiting), self.left.eq(waiting.count), self.full.eq(0)]
        with m.If(self.start & ending):
            m.d.sync += [work.eq(self.job), self.left.eq(self.job.count)]
        with m.If(self.start & ~ending):
            m.d.sync += [waiting.eq(self.job), self.full.eq(1)]

        # Bit b of the lowest set bit's place is 1 where it is one of the places with that bit.
        place = Signal(ceil_log2(shape.window))
        for bit, target in enumerate(place):
            m.d.comb += target.eq(Cat(lowest[i] for i in range(shape.window) if i >> bit & 1).any())

        # One stage per operation; signal names end in the stage that writes them.
        column_1 = Signal(shape.word_bits + shape.load_bits, reset_less=True)
        bank_1 = Signal(reset_less=True)
        weight_1, weight_2 = (
            Signal(shape.operand, reset_less=True, name=f"weight_{i}") for i in (1, 2)
        )
        valid_1, valid_2, valid_3 = (Signal(name=f"valid_{i}") for i in (1, 2, 3))
        end_1, end_2, end_3 = (Signal(reset_less=True, name=f"end_{i}") for i in (1, 2, 3))
        element_2 = Signal(shape.load_bits, reset_less=True)
        product_3 = Signal(signed(2 * shape.operand_width), reset_less=True)
        total_3 = Signal(shape.partial)
        m.d.sync += [
            column_1.eq(work.base + place),
            bank_1.eq(work.bank),
            weight_1.eq(work.values[0]),
            valid_1.eq(self.left != 0),
            end_1.eq(self.left == 1),
            element_2.eq(column_1),
            weight_2.eq(weight_1),
            valid_2.eq(valid_1),
            end_2.eq(end_1),
            product_3.eq(weight_2 * read.data[element_2]),
            valid_3.eq(valid_2),
            end_3.eq(end_2),
        ]
        m.d.comb += [
            read.en.eq(valid_1),
            read.addr.eq(Cat(column_1[shape.load_bits :], bank_1)),
        ]
        total = (total_3 + product_3)[: shape.partial.width].as_signed()
        with m.If(valid_3):
            m.d.sync += total_3.eq(Mux(end_3, 0, total))
        m.d.comb += [
            sums.w_data.eq(total),
            sums.w_en.eq(valid_3 & end_3),
            self.o.payload.eq(sums.r_data),
            self.o.valid.eq(sums.r_rdy),
            sums.r_en.eq(self.o.ready),
        ]
        return m
