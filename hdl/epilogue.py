"""The vector engine's back end: requantize, look up, add the residual, write."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.ports import WritePort
from hdl.ram import Ram
from hdl.requantize import Requantizer
from hdl.table import TABLE_LATENCY, LookupTable, table_write_signature
from hdl.walker import Walker, walk_layout

PARAM_BYTES = 9


def param_layout(config: Config) -> data.StructLayout:
    """Return one parameter word: bias, multiplier and shift of each lane, then padding."""
    lane = data.StructLayout({"bias": signed(32), "multiplier": signed(32), "shift": signed(8)})
    used = PARAM_BYTES * config.lanes
    spare = 8 * (config.param_lines * config.line_bytes - used)
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes), "spare": spare})


class ParamMemory(wiring.Component):
    """Holds the parameter words; a word is written line by line and read whole, a cycle later."""

    def __init__(self, config: Config):
        self.config = config
        addr_width = (config.param_depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_line": In(range(config.param_lines)),
                "write_data": In(8 * config.line_bytes),
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(param_layout(config)),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        words = []
        for line in range(self.config.param_lines):
            ram = Ram(8 * self.config.line_bytes, self.config.param_depth)
            m.submodules[f"line_{line}"] = ram
            m.d.comb += [
                ram.write_en.eq(self.write_en & (self.write_line == line)),
                ram.write_addr.eq(self.write_addr),
                ram.write_data.eq(self.write_data),
                ram.read_en.eq(self.read_en),
                ram.read_addr.eq(self.read_addr),
            ]
            words.append(ram.read_data)
        m.d.comb += self.read_data.as_value().eq(Cat(words))
        return m


class Epilogue(wiring.Component):
    """Turns values into output elements, ``lanes`` a cycle: equation (2).

    ``i`` brings a value and ``keep`` for each lane; a lane whose ``keep`` is 0 gets the zero
    point. The k-th beat takes the k-th parameter word of ``param_walk``, the k-th beat of
    ``residual`` (with ``add``, 16-bit elements) and is written to the k-th place of ``o_walk``.
    All of ``zero`` to ``slot`` hold still during a command. ``done`` is 1 for one cycle when the
    last write of ``o_walk`` was taken. ``latency`` cycles from input to write.
    """

    def __init__(self, config: Config):
        self.config = config
        lanes = config.lanes
        value = data.StructLayout(
            {"value": data.ArrayLayout(signed(32), lanes), "keep": unsigned(lanes)}
        )
        self._param_addr_width = max(1, (config.param_depth - 1).bit_length())
        members = {
            "start": In(1),
            "zero": In(signed(8)),
            "wide": In(1),
            "relu": In(1),
            "add": In(1),
            "look_up": In(1),
            "done": Out(1),
            "i": In(stream.Signature(value)),
            "residual": In(stream.Signature(data.ArrayLayout(signed(16), lanes))),
            "slot": In((config.table_slots - 1).bit_length()),
            "param_walk": In(walk_layout(self._param_addr_width)),
            "param_addr": Out((config.param_depth - 1).bit_length()),
            "param_en": Out(1),
            "params": In(param_layout(config)),
            "o_walk": In(walk_layout(config.sp_addr_width)),
            "write": Out(WritePort(config)),
        }
        if config.activation:
            members["table_write"] = In(table_write_signature(config.table_slots))
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config, lanes = self.config, self.config.lanes
        m.submodules.params = params = Walker(self._param_addr_width)
        m.submodules.places = places = Walker(config.sp_addr_width)
        m.d.comb += [
            params.start.eq(self.start),
            params.walk.eq(self.param_walk),
            places.start.eq(self.start),
            places.walk.eq(self.o_walk),
        ]

        # The whole pipeline moves, or none of it.
        en = Signal()
        taken = Signal()
        m.d.comb += [
            self.i.ready.eq(en),
            taken.eq(self.i.valid & en),
            params.o.ready.eq(taken),
            self.param_addr.eq(params.o.p.addr),
            self.param_en.eq(en),
        ]
        value = Signal.like(self.i.p)
        valid, keep = Signal(), Signal(lanes)
        with m.If(en):
            m.d.sync += [value.eq(self.i.p), valid.eq(taken)]

        low = Mux(self.wide, C(-(1 << 15), signed(16)), C(config.operand_min, signed(16)))
        high = Mux(self.wide, C((1 << 15) - 1, signed(16)), C(config.operand_max, signed(16)))
        bottom = Signal(signed(16))
        m.d.comb += bottom.eq(Mux(self.relu & (self.zero > low), self.zero, low))
        results = []
        for lane in range(lanes):
            unit = Requantizer()
            m.submodules[f"requantizer_{lane}"] = unit
            m.d.comb += [
                unit.en.eq(en),
                unit.x.eq(value.value[lane]),
                unit.bias.eq(self.params.lanes[lane].bias),
                unit.multiplier.eq(self.params.lanes[lane].multiplier),
                unit.shift.eq(self.params.lanes[lane].shift),
                unit.zero.eq(self.zero),
                unit.low.eq(bottom),
                unit.high.eq(high),
            ]
            results.append(unit.y)
        m.d.comb += keep.eq(value.keep)
        valid, keep = self._delay(m, en, (valid, keep), unit.latency)
        y = [Mux(keep[lane], result, self.zero) for lane, result in enumerate(results)]

        if config.activation:
            m.submodules.table = table = LookupTable(lanes=lanes, slots=config.table_slots)
            wiring.connect(m, wiring.flipped(self.table_write), table.write)
            m.d.comb += [table.en.eq(en), table.slot.eq(self.slot)]
            looked = []
            for lane in range(lanes):
                plain = Signal(signed(16), name=f"plain_{lane}")
                m.d.comb += table.index[lane].eq(y[lane])
                with m.If(en):
                    m.d.sync += plain.eq(y[lane])
                looked.append(Mux(self.look_up, table.value[lane], plain))
            y = looked
            (valid,) = self._delay(m, en, (valid,), TABLE_LATENCY)

        self._write(m, en, valid, y, places)
        return m

    @staticmethod
    def _delay(m, en, signals, cycles):
        for cycle in range(cycles):
            delayed = [Signal.like(signal, name=f"{signal.name}_{cycle}") for signal in signals]
            with m.If(en):
                for new, old in zip(delayed, signals, strict=True):
                    m.d.sync += new.eq(old)
            signals = delayed
        return signals

    def _write(self, m, en, valid, y, places):
        """Add the residual and hold the beat until it is written."""
        request = self.write.request
        out = Signal.like(request.p.data)
        waiting = Signal()
        free, joined = Signal(), Signal()
        m.d.comb += [
            request.valid.eq(waiting),
            request.p.addr.eq(places.o.p.addr),
            request.p.count.eq(Mux(self.wide, places.o.p.count << 1, places.o.p.count)),
            request.p.data.eq(out),
            free.eq(~waiting | request.ready),
            places.o.ready.eq(waiting & request.ready),
            self.done.eq(waiting & request.ready & places.o.p.last),
            joined.eq(~(valid & self.add) | self.residual.valid),
            en.eq(free & joined),
            self.residual.ready.eq(free & valid & self.add),
        ]
        with m.If(request.ready):
            m.d.sync += waiting.eq(0)
        narrow, wide = [], []
        for lane, element in enumerate(y):
            narrow.append(element[:8])
            total = Signal(signed(17), name=f"total_{lane}")
            m.d.comb += total.eq(element + Mux(self.add, self.residual.p[lane], 0))
            overflow = total[16] ^ total[15]
            sixteen = Mux(overflow, Cat((~total[16]).replicate(15), total[16]), total[:16])
            wide.append(sixteen)
        with m.If(en):
            m.d.sync += [waiting.eq(valid), out.eq(Mux(self.wide, Cat(wide), Cat(narrow)))]
