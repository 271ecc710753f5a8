"""Generates the sequence of tiles of a matrix product, and decodes the flags of its command."""

from amaranth.hdl import Cat, Const, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH, DEFINITIONS, Engine, Opcode
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.wide import flag_of
from celosia.hdl.ports import command_layout
from celosia.hdl.stream.fields import assign, present
from celosia.hdl.stream.slice import RegisterSlice


def times(value, factor: int):
    """Return ``value`` times the constant ``factor``, computed as a sum of shifted values."""
    total = 0
    for bit in range(factor.bit_length()):
        if factor >> bit & 1:
            total = total + (value << bit)
    return total


def tile_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of one weight tile of a MATMUL (sums += A * B) or a PRELOAD (loads B).

    The fields have the addresses and sizes of the tile, and flags for its load and its products. A
    line of a tile is a row, or a column if B is transposed.
    """
    lines = config.lines
    return data.StructLayout(
        {
            "a_addr": unsigned(config.access.addr_width),  # of the first activations
            "b_addr": unsigned(config.access.addr_width),  # plus the reader's offset in B
            "acc_addr": unsigned(config.acc_addr_width),  # of the first sums
            "slot": range(config.array.weight_depth),  # storage in the array for the tile
            **present(half=config.paired),  # of each byte in a slot of two tiles; 0: low
            "k": range(config.array.rows + 1),  # used rows
            "n": range(config.array.cols + 1),  # used columns
            "line": range(lines),  # first line to load
            "end": range(lines + 1),  # last line to load, plus 1
            # 1: the next tile begins with the offset after this tile. 0: with the offset of this
            # tile, or with 0 if the weights are stacked.
            "onward": 1,
            "last": 1,  # tile of the command
            "parity": 1,  # alternates between commands
            "product": 1,  # of a MATMUL
            "loads": 1,  # lines are read from the scratchpad
            "column": 1,  # lines are columns
            "single": 1,  # line to load
            "vector": 1,  # A has one row
        }
    )


class TileWalker(Component):
    """Generates the weight tiles of MATMUL and PRELOAD commands on ``o``, one per cycle.

    The first tile follows the command by one cycle, and commands follow each other without a pause.
    Each column of tiles is output from top to bottom. ``command`` is the command of the tile on
    ``o``.
    """

    def __init__(self, config: MatrixConfig):
        command = command_layout(Engine.MATRIX)
        members = {
            "i": In(stream.Signature(command)),
            "o": Out(stream.Signature(tile_layout(config))),
            "command": Out(command),
        }
        super().__init__(members | self._more_members())

    def _more_members(self):
        """Return further ports."""
        return {}

    def _leave(self, m, out):
        """Connect the tiles to ``o``."""
        wiring.connect(m, out, wiring.flipped(self.o))

    def circuit(self, m):
        # The newest command, and the one before, whose tiles may still wait.
        newest = Signal(self.i.p.shape(), reset_less=True)
        older = Signal(self.i.p.shape(), reset_less=True)
        parity = Signal()
        alive = Signal(range(3))
        take = Signal()
        walking = Signal()
        advance = Signal()
        place = Signal(tile_layout(self.config))
        m.d.comb += [
            self.i.ready.eq((alive != 2) & (~walking | (advance & place.last))),
            take.eq(self.i.valid & self.i.ready),
            place.parity.eq(parity),
            self.command.eq(Mux(self.o.p.parity == parity, newest, older)),
        ]
        with m.If(take):
            m.d.sync += [newest.eq(self.i.p), older.eq(newest), parity.eq(~parity), walking.eq(1)]
        with m.Elif(advance & place.last):
            m.d.sync += walking.eq(0)
        m.d.sync += alive.eq(alive + take - (self.o.valid & self.o.ready & self.o.p.last))
        out = stream.Signature(place.shape()).create()
        self._leave(m, out)
        self._walk(m, newest, place, take, advance)
        m.d.comb += [
            out.p.eq(place),
            out.valid.eq(walking),
            advance.eq(walking & out.ready),
        ]
        # Weights loaded for products use the slots of the ring in turn.
        turn = Signal()
        with m.If(place.product & place.loads):
            m.d.comb += out.p.slot.eq(turn)
        m.d.sync += turn.eq(turn ^ (place.product & place.loads & advance))

    def _walk(self, m, cmd, place, take, advance):
        """Step from tile to tile."""
        config = self.config
        a_addr = Signal(config.access.addr_width, reset_less=True)
        b_addr = Signal(config.access.addr_width, reset_less=True)
        b_column = Signal(config.access.addr_width, reset_less=True)
        acc_addr = Signal(config.acc_addr_width, reset_less=True)
        slot = Signal(range(config.array.weight_depth), reset_less=True)
        k_left = Signal(COUNT_WIDTH + 1, reset_less=True)
        n_left = Signal(COUNT_WIDTH + 1, reset_less=True)
        line = Signal.like(place.line, reset_less=True)
        column = b_transposed(config, cmd)
        append = appends(cmd)
        packed = stacked(config, cmd)
        resident = DEFINITIONS[Opcode.MATMUL].flag_bit("resident")
        k_last = Signal()
        k_single = Signal()
        vector = Signal()
        with m.If(take):
            m.d.sync += vector.eq(self.i.p.m == 1)
        k = Signal.like(place.k)
        n = Signal.like(place.n)
        n_last = Signal()
        # No field is computed from other fields: some simulators see a loop in such a vector.
        lines_end = Signal.like(place.end)
        product = Signal()
        m.d.comb += [
            place.a_addr.eq(a_addr),
            place.b_addr.eq(b_addr),
            place.acc_addr.eq(acc_addr),
            place.slot.eq(slot),
            k.eq(Mux(k_last, k_left, config.array.rows)),
            n.eq(Mux(n_last, n_left, config.array.cols)),
            place.k.eq(k),
            place.n.eq(n),
            place.line.eq(line),
            # If lines continue from tile to tile, sizes left include those before the first.
            lines_end.eq(Mux(column, Mux(append, n, config.array.cols), k)),
            place.end.eq(lines_end),
            place.onward.eq(Mux(packed, ~k_last, append & (~column | k_last))),
            place.last.eq(k_last & n_last),
            product.eq(cmd.opcode == Opcode.MATMUL),
            place.product.eq(product),
            place.loads.eq(~(product & cmd.flags[resident])),
            place.column.eq(column),
            place.single.eq(line + 1 == lines_end),
            place.vector.eq(vector),
        ]
        on = 1
        half = Signal()
        if config.packed_slots:
            # Each tile column begins in a new slot.
            pairs = Signal()
            on = half | ~pairs
            m.d.comb += pairs.eq(paired(cmd))
            with m.If(take | advance):
                m.d.sync += half.eq(~take & ~k_last & ~on)
        m.d.comb += assign(place, half=half | second_of_pair(config, cmd))
        steps = self._steps(self.i.p)
        a_step = Signal(config.access.addr_width, reset_less=True)
        b_k_step = Signal(config.access.addr_width, reset_less=True)
        b_n_step = Signal(config.access.addr_width, reset_less=True)
        before = Signal.like(line)
        m.d.comb += before.eq(Mux(appends(self.i.p), self.i.p.line, 0))
        to_column = b_transposed(config, self.i.p)
        first_k = Signal.like(k_left)
        first_n = Signal.like(n_left)
        m.d.comb += [
            first_k.eq(self.i.p.k + Mux(to_column, 0, before)),
            first_n.eq(self.i.p.n + Mux(to_column, before, 0)),
        ]
        with m.If(take):
            m.d.sync += [
                a_addr.eq(self.i.p.a_addr),
                b_addr.eq(self.i.p.b_addr),
                b_column.eq(self.i.p.b_addr),
                acc_addr.eq(self.i.p.acc_addr),
                slot.eq(self.i.p.slot),
                k_left.eq(first_k),
                n_left.eq(first_n),
                k_last.eq(_fits(self.i.p.k, Mux(to_column, 0, before), config.array.rows)),
                k_single.eq(_fits(self.i.p.k, Mux(to_column, 0, before), config.array.rows)),
                n_last.eq(_fits(self.i.p.n, Mux(to_column, before, 0), config.array.cols)),
                line.eq(before),
                a_step.eq(steps[0]),
                b_k_step.eq(steps[1]),
                b_n_step.eq(steps[2]),
            ]
        with m.Elif(advance & ~k_last):
            m.d.sync += [
                a_addr.eq(a_addr + a_step),
                b_addr.eq(b_addr + b_k_step),
                slot.eq(slot + on),
                k_left.eq(k_left - config.array.rows),
                k_last.eq(k_left <= 2 * config.array.rows),
            ]
        with m.Elif(advance):
            m.d.sync += [
                a_addr.eq(cmd.a_addr),
                b_addr.eq(b_column + b_n_step),
                b_column.eq(b_column + b_n_step),
                acc_addr.eq(acc_addr + cmd.acc_stride),
                slot.eq(slot + 1),
                k_left.eq(cmd.k),
                n_left.eq(n_left - config.array.cols),
                k_last.eq(k_single),
                n_last.eq(n_left <= 2 * config.array.cols),
            ]
        with m.If(~take & advance & (k_last | ~column)):
            m.d.sync += line.eq(0)

    def _steps(self, cmd):
        """Return the address steps of A and B per K tile, and of B per tile column (bytes)."""
        config = self.config
        a_step, b_k_step, b_n_step = (
            config.array.rows,
            times(cmd.b_stride, config.array.rows),
            config.array.cols,
        )
        column = b_transposed(config, cmd)
        rows = config.array.rows
        if config.array.wide:
            wide = flag_of(cmd, "b_high") | flag_of(cmd, "b_low")
            a_step = Mux(flag_of(cmd, "a_wide"), 2 * rows, rows)
            rows, b_n_step = (
                Mux(wide, 2 * rows, rows),
                Mux(wide, 2 * config.array.cols, config.array.cols),
            )
        if config.array.b_transpose:
            b_k_step = Mux(column, rows, b_k_step)
            b_n_step = Mux(column, times(cmd.b_stride, config.array.cols), b_n_step)
        # Lines that continue from tile to tile are counted as they are read.
        on = appends(cmd)
        along = on & ~column
        if config.formats:
            along = along | stacked(config, cmd)
        return a_step, Mux(along, 0, b_k_step), Mux(on, 0, b_n_step)


class StagedTileWalker(TileWalker):
    """A :class:`TileWalker` with a register before ``o``, which delays each tile by one cycle.

    If ``moves`` is 0, ``o`` does not change in the next cycle. If ``moves`` is 1, the next tile on
    ``o`` is ``following``, if there is one.
    """

    def _more_members(self):
        return {"moves": Out(1), "following": Out(tile_layout(self.config))}

    def _leave(self, m, out):
        m.submodules.stage = stage = RegisterSlice(self.o.p.shape())
        wiring.connect(m, out, stage.i)
        wiring.connect(m, stage.o, wiring.flipped(self.o))
        m.d.comb += [
            self.moves.eq(self.o.ready | ~self.o.valid),
            self.following.eq(stage.following),
        ]


TILE_WALKERS = (TileWalker, StagedTileWalker)
"""Classes of the tile walker, by a configuration's ``stages`` (0 or 1)."""


def _fits(count, before, size: int):
    """Return whether ``count`` plus a small ``before`` is at most ``size``.

    No carry runs through all bits of the count.
    """
    low = size.bit_length()
    return ~count[low:].any() & (count[:low] + before <= size)


def appends(command):
    """Return 1 if a command is a PRELOAD that writes only some lines of weight slots, else 0.

    A slot stores a tile; a line is a row or column of the tile. Other lines keep their weights.
    """
    bit = DEFINITIONS[Opcode.PRELOAD].flag_bit("append")
    return (command.opcode == Opcode.PRELOAD) & command.flags[bit]


def format_of(command):
    """Return a command's weight format: 0 for INT8, 1 + its index in ``MatrixConfig.formats``."""
    return _flags_of(command, "format_1", "format_2", "format_4")


def paired(command):
    """Return 1 if a command is a MATMUL whose tiles share weight slots in pairs, else 0.

    A weight slot is storage for one tile of bytes. A PRELOAD before the MATMUL has loaded two tiles
    of 4-bit weights into each slot, one weight of each tile in every byte.
    """
    bit = DEFINITIONS[Opcode.MATMUL].flag_bit("resident")
    return (command.opcode == Opcode.MATMUL) & command.flags[bit] & (format_of(command) != 0)


def one_of_pair(config: MatrixConfig, command):
    """Return 1 if a command's weights are 4-bit attention keys or values of two KV heads, else 0.

    Each stored byte then has one element of each head. A load writes the tiles of both heads; a
    MATMUL multiplies by the tile of one head.
    """
    return flag_if(config.packed_cache, command, "pair")


def second_of_pair(config: MatrixConfig, command):
    """Return 1 if a command multiplies by the second of two tiles in the same weight slot, else 0.

    A weight slot has one byte for each element of a tile. The low half of each byte can have an
    element of a first 4-bit tile, and the high half an element of a second tile.
    """
    return flag_if(config.packed_cache, command, "second")


def lower_bits(config: MatrixConfig, command):
    """Return 1 if a command's weights are attention keys with 8-bit and 4-bit elements, else 0.

    The first rows of the stored tile have the upper four bits of all elements. The last rows have
    the lower four bits of the 8-bit elements.
    """
    return flag_if(config.low_rows, command, "lower")


def in_blocks(config: MatrixConfig, command):
    """Return 1 if each row of a command's weight slots has an exponent, else 0.

    A weight slot is storage for one tile. A row's exponent stands for a power of two, by which all
    weights of the row are multiplied.
    """
    return flag_if(config.block_exponents, command, "block")


def b_transposed(config: MatrixConfig, command):
    """Return 1 for a MATMUL or PRELOAD that reads its weight matrix B transposed, else 0."""
    return flag_if(config.array.b_transpose, command, "b_transpose")


def flag_if(unit, command, name: str):
    """Return the flag ``name`` of a MATMUL or PRELOAD, or 0 if the machine has no circuit for it.

    ``unit`` states whether the machine has the circuit: None, False and 0 mean that it does not.
    """
    return _flags_of(command, name) if unit else Const(0, 1)


def stacked(config: MatrixConfig, command):
    """Return 1 if a command's weights are stored as codes below 8 bits or with scales, else 0.

    Such weights are stored tile by tile, each tile contiguously, and the tiles of a column of tiles
    follow each other. All other weights are stored as whole rows of the weight matrix, or whole
    columns.
    """
    if not config.formats:
        return Const(0, 1)
    return (format_of(command) != 0) | grouped(command)


def grouped(command):
    """Return 1 if each column of a command's weights has a scale for each group of rows, else 0."""
    return _flags_of(command, "grouped")


def _flags_of(command, *names: str):
    definition = DEFINITIONS[Opcode.MATMUL]  # PRELOAD has the same bits
    return Cat(command.flags[definition.flag_bit(name)] for name in names)
