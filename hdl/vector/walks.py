"""Computes the address sequences that a vector command accesses, for each reader and writer."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.functions import TABLE_ENTRIES
from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout
from celosia.hdl.vector.decode import flag_layout, opcode_layout
from celosia.hdl.vector.walker import walk_layout


class VectorWalks(Component):
    """Computes the address sequences of a vector command's operands; combinational.

    Each output describes a sequence (:func:`walk_layout`): address k is for the k-th group of
    elements that the command processes. DRAIN processes tiles of ``array.cols`` columns, one after
    another. All other commands process whole rows.
    """

    command: data.View
    """The vector command."""
    opcode: data.View
    """One bit for each opcode, decoded from ``command``."""
    flag: data.View
    """One bit for each flag, decoded from ``command``."""
    i: data.View
    """Scratchpad addresses of the input; of the data for PARAMS and TABLE."""
    r: data.View
    """Scratchpad addresses of the second operand."""
    o: data.View
    """Scratchpad addresses of the output."""
    s: data.View
    """Scratchpad addresses of the sums that a NORM normalizes."""
    params: data.View
    """Parameter words for the output."""
    pre: data.View
    """Parameter words for sums that are requantized before a SOFTMAX or NORM."""

    def __init__(self, config: VectorConfig):
        self.param_addr_width = max(1, (config.vector.words - 1).bit_length())
        rows = walk_layout(config.access.addr_width)
        members = {
            "command": In(command_layout(Engine.VECTOR)),
            "opcode": In(opcode_layout()),
            "flag": In(flag_layout()),
            "i": Out(rows),  # the input; PARAMS and TABLE have only this one
            # The second operand; for ``rotate``, addresses repeat with each attention head.
            "r": Out(walk_layout(config.access.addr_width, wraps=config.vector.rotary)),
            "o": Out(rows),  # the output
            "s": Out(rows),  # the sums that a NORM normalizes
            "params": Out(walk_layout(self.param_addr_width)),  # parameters of the output
        }
        if config.fused:
            members["pre"] = Out(walk_layout(self.param_addr_width))
        super().__init__(members)

    def circuit(self, m):
        config, command, opcode, flag = self.config, self.command, self.opcode, self.flag
        cols = config.array.cols
        tile = Mux(opcode.drain, cols, command.n)

        self._rows(m, "i", tile, flag.wide_in | opcode.softmax | opcode.norm)
        self._rows(m, "r", tile, ~flag.times)
        self._rows(m, "o", tile, flag.wide_out)
        if config.fused:
            with m.If(opcode.drain & flag.spaced):
                m.d.comb += self.o.tile_step.eq(command.o_stride)
        self._rows(m, "s", tile, 1)
        # Words for the input of a softmax precede those for its output.
        first = opcode.softmax & flag.drain if config.fused else 0
        m.d.comb += [
            self.params.base.eq(command.params + first),
            self.params.m.eq(command.m),
            self.params.n.eq(command.n),
            self.params.beat.eq(self._beat),
            self.params.tile.eq(tile),
        ]
        with m.If(~flag.per_tensor):
            m.d.comb += [
                self.params.beat_step.eq(1),
                self.params.tile_step.eq(config.lane_groups),
            ]
        if config.fused:
            self._pre(m)
        self._per_row(m)
        if config.vector.rotary:
            self._pairs(m)
        self._fills(m)

    @property
    def _beat(self):
        """Columns of a beat."""
        lanes, softmax = self.config.vector.lanes, self.config.beat_lanes
        return Mux(self.opcode.softmax, softmax, lanes) if softmax > lanes else lanes

    def _pre(self, m):
        """Describe the parameters for accumulators: one word for all beats, or one for each."""
        command, norm = self.command, self.opcode.norm
        m.d.comb += [
            self.pre.base.eq(Mux(norm, command.pre, command.params)),
            self.pre.beat_step.eq(norm),
            self.pre.m.eq(command.m),
            self.pre.n.eq(command.n),
            self.pre.beat.eq(self._beat),
            self.pre.tile.eq(command.n),
        ]

    def _per_row(self, m):
        """Use the next parameter word for each row."""
        with m.If(self.flag.per_row):
            m.d.comb += self.params.row_step.eq(1)

    def _pairs(self, m):
        """Restart the walk over pairs after the columns of each head."""
        columns = self.command.table[:COUNT_WIDTH]

        def rest(number):
            # The rest of a few columns after whole heads.
            found = Signal(range(number + 1), name=f"rest_{number}", init=number)
            m.d.comb += found.eq(number)
            for period in range(2, number + 1, 2):
                with m.If(columns == period):
                    m.d.comb += found.eq(number % period)
            return found

        with m.If(self.flag.rotate):
            m.d.comb += [
                self.r.period.eq(columns << 1),
                self.r.beat_step.eq(rest(self.config.vector.lanes) << 1),
                self.r.tile_step.eq(rest(self.config.array.cols) << 1),
            ]

    def _rows(self, m, name, tile, wide):
        """Describe m rows of n elements of one or two bytes."""
        command, walk = self.command, getattr(self, name)
        m.d.comb += [
            walk.base.eq(command[f"{name}_addr"]),
            walk.row_step.eq(command[f"{name}_stride"]),
            walk.beat_step.eq(Mux(wide, self._beat << 1, self._beat)),
            walk.tile_step.eq(Mux(wide, 2 * self.config.array.cols, self.config.array.cols)),
            walk.m.eq(command.m),
            walk.n.eq(command.n),
            walk.beat.eq(self._beat),
            walk.tile.eq(tile),
        ]

    def _fills(self, m):
        """Describe the input of PARAMS (lines) and TABLE (bytes)."""
        config, command, opcode, walk = self.config, self.command, self.opcode, self.i
        with m.If(opcode.params):
            word = config.param_lines * config.access.line_bytes
            m.d.comb += [
                walk.beat_step.eq(config.access.line_bytes),
                walk.row_step.eq(word),
                walk.m.eq(command.n),
                walk.n.eq(word),
                walk.beat.eq(config.access.line_bytes),
                walk.tile.eq(word),
            ]
        with m.If(opcode.table):
            m.d.comb += [
                walk.beat_step.eq(1),
                walk.m.eq(1),
                walk.n.eq(TABLE_ENTRIES),
                walk.beat.eq(1),
                walk.tile.eq(TABLE_ENTRIES),
            ]
