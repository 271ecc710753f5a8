"""The memory of the vector engine's requantization parameters."""

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.arch.latency import FACTOR_LATENCY
from celosia.arch.vector_config import PARAM_BYTES, VectorConfig
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_ram
from celosia.hdl.memory.split_ram import SplitRam
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.vector.walker import Walker, drive_walk_start, walk_layout

SHIFT_WIDTH = 6
"""Stored width of a shift, which is from -31 to 30 (bits)."""
READ_LATENCY = 2
"""Cycles from the address of a word to the word in the register after the block RAM."""
MULTIPLIER_BITS = 16
"""Upper bits of a requantization multiplier that are multiplied by a row's factor (bits)."""
CHECKED = 32
"""Width of the parts of a protected memory's word that have separate check bits (bits)."""


def param_layout(config: VectorConfig) -> data.StructLayout:
    """Return the layout of a parameter word: bias, multiplier and shift per lane, and padding."""
    lane = data.StructLayout({"bias": signed(32), "multiplier": signed(32), "shift": signed(8)})
    used = PARAM_BYTES * config.vector.lanes
    spare = 8 * (config.param_lines * config.access.line_bytes - used)
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.vector.lanes), "spare": spare})


def word_layout(config: VectorConfig, *, marked: bool = False) -> data.StructLayout:
    """Return the layout of :class:`ParamMemory`'s output: the requantization parameters of a beat.

    A beat is a group of adjacent elements of a row. If ``marked`` is true, the layout also has the
    field ``count``, the number of elements of the beat. ``row_last`` and ``last`` are then 1 for
    the last beat of a row and of the matrix.
    """
    beat = {"count": range(config.beat_lanes + 1), "row_last": 1, "last": 1}
    return data.StructLayout({"word": param_layout(config), **(beat if marked else {})})


def stored_bit_numbers(config: VectorConfig) -> list[int | None]:
    """Return, for each bit of a parameter word, the number of the stored bit from which it is read.

    The memory omits upper bits of a bias or a shift, which equal the highest stored bit of the
    number. The result is a list with None for each bit that is always 0.
    """
    places: list[int | None] = []
    for lane in range(config.vector.lanes):
        bias, multiplier = 8 * PARAM_BYTES * lane, 8 * PARAM_BYTES * lane + 32
        shift, low = multiplier + 32, 32 - config.vector.multiplier_width
        places += [bias + min(bit, config.vector.bias_width - 1) for bit in range(32)]
        places += [None if bit < low else multiplier + bit for bit in range(32)]
        places += [shift + min(bit, SHIFT_WIDTH - 1) for bit in range(8)]
    whole = 8 * config.param_lines * config.access.line_bytes
    return places + [None] * (whole - len(places))


def sums_stages(config: VectorConfig) -> int:
    """Return the number of register stages between accumulators and requantizers.

    The result is 1 if the machine has the option ``registered`` and ``row_factors``, else 0.
    """
    # Parameters are multiplied by factors first: a register for the sums costs no time.
    return config.stages * (config.row_factors > 0)


def factor_members(config: VectorConfig) -> dict[str, Any]:
    """Return the ports of a :class:`ParamMemory` for row factors: a dictionary from name to port.

    A row factor is a number by which a row of a matrix is multiplied.
    """
    return {
        "factors": In(1),
        "by_tile": In(1),
        "factor": In(range(config.row_factors)),
        "kept": In(Flow(numbered_layout(config.row_factors))),
    }


class ParamMemory(Component):
    """Stores words of requantization parameters, and outputs one for each beat of a matrix.

    - ``write_en``: stores ``write_data`` in line ``write_line`` of word ``write_addr``. An address
      of ``depth`` or above is ignored.
    - ``start``: begins a matrix; ``walk`` (:class:`Walker`) has the addresses of its words. With
      ``fused``, the matrix waits for the end of the previous one.
    - ``owes``: 1 from ``start`` until the matrix begins; ``walk`` must not change meanwhile.
    - ``o``: one word per cycle, the first 3 cycles after ``start``, plus 1 with ``registered``,
      plus 3 if ``factored`` is true.

    If ``factored`` is true, a word can be multiplied by a row factor:

    - ``kept``: a row factor to store.
    - ``factors``: 1 to multiply row r by factor ``factor + r``, or tile j by factor ``factor + j``
      if ``by_tile`` is 1.
    """

    def __init__(
        self, config: VectorConfig, depth: int = 0, *, marked: bool = False, factored: bool = False
    ):
        members = factor_members(config) if factored else {}
        self.depth = depth or config.vector.words
        addr_width = (config.vector.words - 1).bit_length()
        self._addr_width = max(1, addr_width)
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_line": In(range(config.param_lines)),
                "write_data": In(8 * config.access.line_bytes),
                "start": In(1),
                "walk": In(walk_layout(self._addr_width)),
                "owes": Out(1),
                "o": Out(stream.Signature(word_layout(config, marked=marked))),
                **members,
                **error_port(config.protected("parameters")),
            }
        )

    def circuit(self, m):
        level, width = self.config.protected("parameters"), 8 * self.config.access.line_bytes
        places, lines, held = stored_bit_numbers(self.config), [], {}
        m.submodules.walker = walker = Walker(self._addr_width, stages=self.config.stages)
        m.d.comb += [
            walker.walk.eq(self.walk),
            self.owes.eq(
                drive_walk_start(m, walker, self.start, behind=self.config.fused is not None)
            ),
        ]
        for line in range(self.config.param_lines):
            kept = sorted(
                {place for place in places if place is not None and place // width == line}
            )
            if not kept:
                continue
            if level == "none":
                ram = SplitRam(len(kept), self.depth, part=len(kept), stages=1)
            else:
                part = min(CHECKED, width)
                count = -(-len(kept) // part) * part
                ram = protected_ram(count, self.depth, level, part=part)
            m.submodules[f"line_{line}"] = ram
            lines.append(ram)
            # Tokens of the program keep a word from being read in the cycle of its write.
            inside = self.write_addr < self.depth
            m.d.comb += [
                ram.write_en.eq(self.write_en & (self.write_line == line) & inside),
                ram.write_addr.eq(self.write_addr),
                ram.write_data.eq(Cat(self.write_data[place % width] for place in kept)),
                ram.read_en.eq(1),
                ram.read_addr.eq(walker.o.p.addr),
            ]
            word = ram.read_data if level == "none" else delay(m, ram.read_data, 1)
            held |= dict(zip(kept, word, strict=False))
        self._bring(m, walker, list(held), Cat(held.values()), places)
        gather(m, self, errors_of(lines))

    def _factor(self, m, walker, taken):
        """Return the factor of a beat's row when its word is read, or 1."""
        number, first = Signal.like(self.factor), Signal.like(self.factor)
        with m.If(walker.start):
            m.d.sync += [number.eq(self.factor), first.eq(self.factor)]
        with m.Elif(taken & walker.o.p.tile_last):
            m.d.sync += number.eq(Mux(self.by_tile, number + 1, first))
        with m.Elif(taken & walker.o.p.row_last & ~self.by_tile):
            m.d.sync += number.eq(number + 1)
        depth = self.config.row_factors
        m.submodules.factors = memory = Memory(shape=factor_layout(), depth=depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        unity = factor_layout().const({"mantissa": 1 << MULTIPLIER_BITS, "right": MULTIPLIER_BITS})
        found = Signal(factor_layout())
        m.d.comb += [
            write.en.eq(self.kept.valid),
            write.addr.eq(self.kept.payload.number),
            write.data.eq(self.kept.payload.factor),
            read.addr.eq(number),
            found.eq(Mux(self.factors, read.data, unity)),
        ]
        return data.View(found.shape(), delay(m, found.as_value(), READ_LATENCY))

    def _multiplied(self, m, word, factor):
        """Return the bits of a word times a factor, ``FACTOR_LATENCY`` cycles later."""
        made = Signal(param_layout(self.config))
        right = delay(m, factor.right, FACTOR_LATENCY - 1)
        late = data.View(word.shape(), delay(m, Value.cast(word), FACTOR_LATENCY - 1))
        whole = delay(m, self.factors, READ_LATENCY + FACTOR_LATENCY - 1)
        for lane, (to, lane_word) in enumerate(zip(made.lanes, late.lanes, strict=True)):
            upper = word.lanes[lane].multiplier[MULTIPLIER_BITS:].as_signed()
            product = multiply(m, f"factor_{lane}", upper, factor.mantissa)
            # From 2**31 on it is cut to 16 bits one position higher.
            big = product[-1] ^ product[-2]
            shift = lane_word.shift + MULTIPLIER_BITS - right + big
            cut = Mux(big, product >> MULTIPLIER_BITS + 1, product >> MULTIPLIER_BITS)
            with m.If(whole):
                m.d.comb += [
                    to.multiplier.eq(cut << MULTIPLIER_BITS),
                    to.shift.eq(Mux(shift < -31, -31, Mux(shift > 30, 30, shift))),
                ]
            with m.Else():
                m.d.comb += [to.multiplier.eq(lane_word.multiplier), to.shift.eq(lane_word.shift)]
            m.d.comb += to.bias.eq(lane_word.bias)
        return delay(m, made.as_value(), 1)

    def _bring(self, m, walker, kept, word, places):
        """Queue words, in their stored bits, after the memory."""
        names = [name for name in self.o.p.shape().members if name != "word"]
        note = Cat(walker.o.p[name][: len(self.o.p[name])] for name in names)
        layout = data.StructLayout({"word": len(word), "note": len(note)})
        latency = READ_LATENCY + FACTOR_LATENCY * self.factored
        m.submodules.words = words = CreditQueue(layout, latency)
        taken = walker.o.valid & words.room
        if self.factored:
            factor = self._factor(m, walker, taken)
            bits = [Const(0, 1) if at is None else word[kept.index(at)] for at in places]
            found = self._multiplied(m, data.View(param_layout(self.config), Cat(bits)), factor)
            word = Cat(found[place] for place in kept)
        m.d.comb += [
            walker.o.ready.eq(words.room),
            words.taken.eq(taken),
            words.i.valid.eq(delay(m, taken, latency, reset=True)),
            words.i.payload.word.eq(word),
            words.i.payload.note.eq(delay(m, note, latency)),
            self.o.valid.eq(words.o.valid),
            words.o.ready.eq(self.o.ready),
        ]
        found = dict(zip(kept, words.o.p.word, strict=True))
        bits = [Const(0, 1) if place is None else found[place] for place in places]
        m.d.comb += self.o.p.word.as_value().eq(Cat(bits))
        if names:
            m.d.comb += Cat(self.o.p[name] for name in names).eq(words.o.p.note)
