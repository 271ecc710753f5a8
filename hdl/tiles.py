"""The tiles of a matrix product, in order, without those that are masked."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import COUNT_WIDTH, DEFINITIONS, Engine, Opcode
from hdl.ports import MaskReadPort, command_layout


def times(value, factor: int):
    """Return a value times a constant as a sum of shifts, which needs no multiplier."""
    total = 0
    for bit in range(factor.bit_length()):
        if factor >> bit & 1:
            total = total + (value << bit)
    return total


def tile_layout(config: Config) -> data.StructLayout:
    """Return one tile: where its operands and sums are, and how much of it is used."""
    return data.StructLayout(
        {
            "a_addr": unsigned(config.sp_addr_width),
            "b_addr": unsigned(config.sp_addr_width),
            "acc_addr": unsigned(config.acc_addr_width),
            "slot": range(config.weight_depth),
            "k": range(config.rows + 1),
            "n": range(config.cols + 1),
            "empty": 1,
            "last": 1,
        }
    )


class TileWalker(wiring.Component):
    """Names the tiles of a command, tile column by tile column, in each from the first K tile on.

    ``command`` is MATMUL or PRELOAD and holds still from ``start`` until the tile with ``last``
    was taken. A tile that ``a_mask`` or ``b_mask`` leaves out costs one cycle; where the last
    tiles are left out, or all, a tile that is ``empty`` comes in their place. ``skipped`` is 1 in
    the cycle in which one is left out. One tile a cycle, the first two cycles after ``start``.
    """

    def __init__(self, config: Config):
        self.config = config
        members = {
            "command": In(command_layout(Engine.MATRIX)),
            "start": In(1),
            "o": Out(stream.Signature(tile_layout(config))),
        }
        if config.tile_skip:
            members["a_mask"] = Out(MaskReadPort(config))
            members["b_mask"] = Out(MaskReadPort(config))
            members["skipped"] = Out(1)
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config, cmd = self.config, self.command
        place = Signal(tile_layout(config))  # of the tile whose masks are being read
        a_row = Signal(config.sp_addr_width)
        b_column = Signal(config.sp_addr_width)
        k_left = Signal(COUNT_WIDTH)
        n_left = Signal(COUNT_WIDTH)
        walking = Signal()
        advance = Signal()
        k_last = Signal()
        n_last = Signal()
        m.d.comb += [k_last.eq(k_left <= config.rows), n_last.eq(n_left <= config.cols)]

        a_step, b_k_step, b_n_step = self._steps(m, cmd)
        m.d.comb += [
            place.a_addr.eq(a_row),
            place.k.eq(Mux(k_last, k_left, config.rows)),
            place.n.eq(Mux(n_last, n_left, config.cols)),
            place.last.eq(k_last & n_last),
        ]
        b_addr, acc_addr, slot = (
            Signal.like(place[name]) for name in ("b_addr", "acc_addr", "slot")
        )
        m.d.comb += [place.b_addr.eq(b_addr), place.acc_addr.eq(acc_addr), place.slot.eq(slot)]
        with m.If(self.start):
            m.d.sync += [
                walking.eq(1),
                a_row.eq(cmd.a_addr),
                b_addr.eq(cmd.b_addr),
                b_column.eq(cmd.b_addr),
                acc_addr.eq(cmd.acc_addr),
                slot.eq(cmd.slot),
                k_left.eq(cmd.k),
                n_left.eq(cmd.n),
            ]
        with m.Elif(advance):
            m.d.sync += slot.eq(slot + 1)
            with m.If(~k_last):
                m.d.sync += [
                    a_row.eq(a_row + a_step),
                    b_addr.eq(b_addr + b_k_step),
                    k_left.eq(k_left - config.rows),
                ]
            with m.Else():
                m.d.sync += [
                    a_row.eq(cmd.a_addr),
                    b_addr.eq(b_column + b_n_step),
                    b_column.eq(b_column + b_n_step),
                    acc_addr.eq(acc_addr + cmd.acc_stride),
                    k_left.eq(cmd.k),
                    n_left.eq(n_left - config.cols),
                    walking.eq(~n_last),
                ]
        keep = self._masks(m, cmd, advance, k_last)
        self._hold(m, place, walking, advance, keep)
        return m

    def _steps(self, m, cmd):
        """Return what a K tile moves A and B by, and a tile column moves B by (bytes)."""
        config = self.config
        bits = DEFINITIONS[Opcode.MATMUL]
        a_step, b_k_step, b_n_step = (Signal(config.sp_addr_width) for _ in range(3))
        m.d.comb += [
            a_step.eq(config.rows),
            b_k_step.eq(times(cmd.b_stride[: config.sp_addr_width], config.rows)),
            b_n_step.eq(config.cols),
        ]
        if config.a_transpose:
            with m.If(cmd.flags[bits.flag_bit("a_transpose")]):
                m.d.comb += a_step.eq(times(cmd.a_stride[: config.sp_addr_width], config.rows))
        if config.b_transpose:
            with m.If(b_transposed(cmd)):
                m.d.comb += [
                    b_k_step.eq(config.rows),
                    b_n_step.eq(times(cmd.b_stride[: config.sp_addr_width], config.cols)),
                ]
        return a_step, b_k_step, b_n_step

    def _masks(self, m, cmd, advance, k_last):
        """Return, in the cycle after a tile's place was named, whether it is kept."""
        if not self.config.tile_skip:
            return 1
        bits = DEFINITIONS[Opcode.MATMUL]
        a_addr = Signal.like(self.a_mask.addr)
        b_addr = Signal.like(self.b_mask.addr)
        with m.If(self.start):
            m.d.sync += [a_addr.eq(cmd.a_mask), b_addr.eq(cmd.b_mask)]
        with m.Elif(advance):
            m.d.sync += [a_addr.eq(Mux(k_last, cmd.a_mask, a_addr + 1)), b_addr.eq(b_addr + 1)]
        m.d.comb += [self.a_mask.addr.eq(a_addr), self.b_mask.addr.eq(b_addr)]
        product = cmd.opcode == Opcode.MATMUL
        a_masked = product & cmd.flags[bits.flag_bit("a_masked")]
        b_masked = product & cmd.flags[bits.flag_bit("b_masked")]
        return (self.a_mask.data | ~a_masked) & (self.b_mask.data | ~b_masked)

    def _hold(self, m, place, walking, advance, keep):
        """Hold a kept tile until it is known whether it is the last."""
        tile = Signal.like(place)
        full = Signal()
        fresh = Signal()
        kept = Signal()
        # The tile under examination.
        keeps = Signal()
        leaves = Signal()
        m.d.comb += [
            keeps.eq(Mux(fresh, keep, kept)),
            advance.eq(walking & (~full | leaves)),
        ]
        m.d.sync += [fresh.eq(advance), kept.eq(keeps)]
        with m.If(advance):
            m.d.sync += [tile.eq(place), full.eq(1)]
        with m.Elif(leaves):
            m.d.sync += full.eq(0)
        if not self.config.tile_skip:
            m.d.comb += [
                self.o.p.eq(tile),
                self.o.valid.eq(full),
                leaves.eq(full & self.o.ready),
            ]
            return
        # Behind it, a kept tile that waits for the next kept one or for the end.
        waiting = Signal.like(place)
        has_waiting = Signal()
        ends = Signal()
        m.d.comb += [
            ends.eq(full & ~keeps & tile.last),
            self.o.valid.eq((has_waiting & ((full & keeps) | waiting.last)) | ends),
            self.o.p.eq(waiting),
            self.skipped.eq(leaves & ~keeps),
        ]
        with m.If(ends):
            m.d.comb += [self.o.p.last.eq(1), self.o.p.empty.eq(~has_waiting)]
        with m.If(full & keeps & ~(has_waiting & waiting.last)):
            m.d.comb += leaves.eq(~has_waiting | self.o.ready)
        with m.Elif(ends):
            m.d.comb += leaves.eq(self.o.ready)
        with m.Elif(full & ~keeps):
            m.d.comb += leaves.eq(1)
        with m.If(leaves & keeps):
            m.d.sync += [waiting.eq(tile), has_waiting.eq(1)]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += has_waiting.eq(0)


def b_transposed(command):
    """Whether a MATMUL or PRELOAD takes B transposed."""
    product = command.opcode == Opcode.MATMUL
    bits = [DEFINITIONS[op].flag_bit("b_transpose") for op in (Opcode.MATMUL, Opcode.PRELOAD)]
    return Mux(product, command.flags[bits[0]], command.flags[bits[1]])
