"""Formulas for the cycles in which the engines execute commands.

The docstrings of the circuits also state these formulas, and simulations check them.
"""

import itertools
from collections import deque
from collections.abc import Iterable

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS, index_of
from celosia.arch.isa import Opcode
from celosia.arch.latency import (
    POLYNOMIAL_WAIT,
    ROTARY_LATENCY,
    SECOND_AHEAD,
    array_latency,
    dispatch_cycles,
    drain_latency,
    epilogue_latency,
    intake_latency,
    norm_latency,
    reader_latency,
    softmax_beat_cycles,
    softmax_latency,
    sparse_cycles,
    words_wait,
)
from celosia.generators.program.spans import AccumulatorSpan, Reads, after_accesses
from celosia.sim.flow import Step


def _adds(step: Step) -> bool:
    return bool(step.flags & {"add", "rotate", "times"})


def _reads(step: Step) -> bool:
    return "i_addr" in step.operands and "drain" not in step.flags


def passes_per_row(step: Step, config: Config) -> int:
    """Return the number of passes in which the array processes one row of a command's activations.

    - INT8 activations: the width of a weight divided by ``pass_width``, rounded up.
    - INT16 activations: 1 for the low bytes of INT16 weights (flag ``b_low``), otherwise 2.
    - Weights in pairs (flag ``pair``), and commands other than MATMUL: 1.
    """
    index = index_of(step.flags)
    if "a_wide" in step.flags:
        return 1 if "b_low" in step.flags else 2
    wide = "grouped" in step.flags and "resident" not in step.flags
    if "pair" in step.flags:
        return 1
    if step.opcode != Opcode.MATMUL or wide or not index:
        return config.passes if step.opcode == Opcode.MATMUL else 1
    return config.formats[index - 1].passes(config.array.pass_width)


class VectorTiming:
    """Computes the cycles in which the vector engine executes commands."""

    def __init__(self, config: Config):
        self._config = config
        registered = config.control.registered
        self._reader = reader_latency(config.stages) + registered
        self._overhead = self._reader + epilogue_latency(config)
        self._sooner = reader_latency(config.stages) - drain_latency(config)
        self._softmax = self._held = self._norm = self._intake = 0
        if config.fused:
            self._intake = intake_latency(config) - self._sooner
        deferred, longest = config.row_factors > 0, config.vector.longest_row
        if config.softmax:
            # The delay that each further beat of a row adds.
            self._held = softmax_beat_cycles(deferred=deferred)
            self._softmax = softmax_latency(config.beat_lanes, longest, deferred=deferred)
            self._softmax += 2 * registered
        if config.vector.norm:
            self._norm = 1 if deferred else norm_latency(config.vector.lanes, longest)
            self._norm += 2 * registered
        self._waits_words = words_wait(config, drain_latency(config))
        self._map = words_wait(config, reader_latency(config.stages))

    def done(
        self,
        step: Step,
        begin: int,
        reads: Iterable[Reads],
        resident_writes: Iterable[AccumulatorSpan] = (),
        streamed_writes: deque[AccumulatorSpan] | None = None,
    ) -> int:
        """Return the cycle in which the vector engine completes the command ``step``.

        The command is offered in cycle ``begin``. Matrix products delay the command by scratchpad
        reads (``reads``), by accumulator writes with resident weights (``resident_writes``), and by
        accumulator writes with other weights (``streamed_writes``). Writes that end before
        ``begin`` are removed from the queue ``streamed_writes``.
        """
        while streamed_writes and streamed_writes[0].end <= begin:
            streamed_writes.popleft()
        begin += self._waits(step, begin, resident_writes, streamed_writes or ())
        beats = self.beats(step)
        banks = {
            step[name] // self._config.bank_bytes
            for name, used in (("i_addr", _reads(step)), ("r_addr", _adds(step)))
            if used
        }
        accesses = ((r.begin, r.end, r.share(banks)) for r in reads if banks)
        read = after_accesses(begin, beats, accesses)
        return read + self.cycles(step) - beats - 1 + self._turns(step, beats)

    def writes(self, step: Step, begin: int, done: int) -> list[tuple[int, int, int, float]]:
        """Return the spans of cycles in which a vector command writes the scratchpad, as tuples.

        A tuple is (first cycle, last cycle + 1, bank, fraction of these cycles without a write).
        The command is offered in cycle ``begin`` and completes in cycle ``done``.
        """
        if "o_addr" not in step.operands:
            return []
        beats, bank_bytes = self.beats(step), self._config.bank_bytes
        first = min(begin + self.cycles(step), done) - beats
        share = 1 - beats / (done - first)
        spans = [(first, done, step["o_addr"] // bank_bytes, share)]
        if "write_sum" in step.flags:
            early = begin + self._reader
            span = early, early + done - first, step["s_addr"] // bank_bytes, share
            spans.insert(0, span)
        return spans

    def next_acceptance(self, step: Step, done: int) -> int:
        """Return the first cycle in which the vector engine accepts the command after ``step``.

        The command ``step`` has the flag ``followed``: the next command may begin before ``step``
        completes in cycle ``done``. The engine accepts the next command when all inputs of ``step``
        are requested.
        """
        config = self._config
        rows = step["m"] * -(-step["n"] // config.array.cols)
        # Rows requested before the first one is consumed.
        ahead = config.acc_latency + 1
        groups = -(-config.array.cols // self._lanes(step))
        asked = config.acc_latency + config.control.registered + (rows - ahead) * groups
        asked = max(rows - 1, asked)
        left = done + 2 - self.cycles(step) + asked + config.control.registered
        if _adds(step):
            turn = ROTARY_LATENCY if step.flags & {"rotate", "times"} else 0
            left = max(left, done - SECOND_AHEAD + 6 - turn - 3 * config.control.registered)
        return left

    def _waits(
        self,
        step: Step,
        begin: int,
        sums: Iterable[AccumulatorSpan],
        written: Iterable[AccumulatorSpan],
    ) -> int:
        """Return the cycles in which a drain finds its half of the accumulators busy.

        A DRAIN takes one row of a tile column after another, as products write them, and soon does
        not wait for those in ``written``.
        """
        if step.opcode == Opcode.DRAIN:
            addr, stride = step["acc_addr"], step["acc_stride"]
        elif "drain" in step.flags:
            addr, stride = step["i_addr"], step["i_stride"]
        else:
            return 0
        sums = [pending for pending in sums if pending.end > begin]
        spans = iter(written if step.opcode != Opcode.DRAIN else ())
        span = next(spans, None)
        if not sums and span is None:
            return 0
        now, waited, cols = begin + 1, 0, self._config.array.cols
        tiles, rows = range(-(-step["n"] // cols)), range(step["m"])
        places = [(tile, row) for tile in tiles for row in rows]
        if step.opcode != Opcode.DRAIN:
            places = [(tile, row) for row in rows for tile in tiles]
        for tile, row in places:
            parity = (addr + tile * stride + row) & 1
            asked = now
            for pending in sums:
                now += pending.wait(now, parity)
            while span and span.end <= now:
                span = next(spans, None)
            now += span.wait(now, parity) if span else 0
            waited += now - asked
            now += -(-min(cols, step["n"] - tile * cols) // self._lanes(step))
        return waited

    def _lanes(self, step: Step) -> int:
        """Return the columns of a beat."""
        config = self._config
        return config.beat_lanes if step.opcode == Opcode.SOFTMAX else config.vector.lanes

    def _turns(self, step: Step, beats: int) -> int:
        """Return the additional cycles of a NORM whose sums go to the bank of its output.

        Outputs have priority: sums of the rows that fit into the norm's latency alternate with
        their outputs.
        """
        if "write_sum" not in step.flags:
            return 0
        if len({step[name] // self._config.bank_bytes for name in ("o_addr", "s_addr")}) > 1:
            return 0
        row = beats // step["m"]
        turn = row + (self._norm + self._overhead - self._reader - 2) // row * row
        return (beats - 1) // turn * turn

    def beats(self, step: Step) -> int:
        """Return the number of cycles in which a command reads its input.

        In each of these cycles the command reads one beat: the elements of a row that the engine
        processes together.
        """
        config = self._config
        if step.opcode == Opcode.PARAMS:
            return step["n"] * config.param_lines
        if step.opcode == Opcode.TABLE:
            return 256
        return step["m"] * -(-step["n"] // self._lanes(step))

    def cycles(self, step: Step) -> int:
        """Return the cycles that the vector engine needs for a command, without memory conflicts.

        The cycles are those from the offer of the command to its completion, both included. The
        method :meth:`done` adds the delays by conflicts at memories.
        """
        config, opcode = self._config, step.opcode
        if opcode == Opcode.PARAMS:
            return step["n"] * config.param_lines + self._reader
        if opcode == Opcode.TABLE:
            return 256 + self._reader
        m, n = step["m"], step["n"]
        row = -(-n // self._lanes(step))
        turn = ROTARY_LATENCY if step.flags & {"rotate", "times"} else 0
        turn += POLYNOMIAL_WAIT if "polynomial" in step.flags else 0
        if opcode == Opcode.DRAIN:
            tiles, rest = divmod(n, config.array.cols)
            beats = m * (tiles * config.lane_groups + -(-rest // config.vector.lanes))
            return beats + self._overhead - self._sooner + turn + self._waits_words
        latency = {
            Opcode.MAP: turn + self._map,
            Opcode.SOFTMAX: self._softmax + self._held * (row - 1),
            Opcode.NORM: self._norm + (0 if config.row_factors else row - 1),
        }[opcode]
        if "drain" in step.flags:
            latency += self._intake
        return m * row + self._overhead + latency


class MatrixTiming:
    """Computes the cycles in which the matrix engine processes successive commands.

    A weight tile arrives one line (row or column) per cycle, while the activations of the tile
    before it enter the array. Activations wait for the first line of their tile, or for all lines
    in an array of adder trees.
    """

    def __init__(self, config: Config):
        self._config = config
        # From the cycle after the last request: the read, the entry, the array, the accumulators.
        self._added = config.sram_latency + array_latency(config) + config.control.registered
        self._settle = self._added + int(config.acc_settle) - dispatch_cycles(config)
        self._end = self._before = 0
        """Ends of the activations of the last tile and of the tile before."""
        self._loaded = 0
        """End of the last tile's weights."""
        self._accept = self._accept_next = 0
        """Cycle in which the walker takes the next command, by the tiles of the two before."""
        self.reads: deque[Reads] = deque(maxlen=64)
        """Reads of the last products."""
        self.sums: deque[AccumulatorSpan] = deque(maxlen=64)
        """Accumulations of the last resident products of one row, or of rows in pairs."""
        self.tiles: deque[AccumulatorSpan] = deque()
        """Accumulations of products whose weights come from the scratchpad, tile by tile."""

    def add(self, step: Step, ready: int) -> tuple[int, int, int]:
        """Add the next command of the matrix engine; return the cycles (begin, acceptance, end).

        The command is offered from cycle ``ready`` on. At the begin, the command's first
        activations enter the array; at the acceptance, the command leaves its queue. The memory
        accesses of the command are appended to :attr:`reads`, :attr:`sums` and :attr:`tiles`.
        """
        if step.opcode == Opcode.SPARSE:
            return self._add_sparse(step, ready)
        config, product = self._config, step.opcode == Opcode.MATMUL
        m = step["m"] if product else 1
        a_bank = step["a_addr"] // config.bank_bytes if product else None
        b_bank = None if "resident" in step.flags else step["b_addr"] // config.bank_bytes
        shared = a_bank == b_bank
        accepted = max(ready, self._accept)
        end, before, loaded = self._end, self._before, self._loaded
        tiles = self._tiles(step)
        inner_tiles, cols = -(-step["k"] // config.array.rows), config.array.cols
        first = first_line = -1
        count = passes_per_row(step, config)
        # For rows in pairs the tile columns begin with alternating parities.
        turns = config.beat_lanes >= config.array.cols and m % 2 == 0 and step["acc_stride"] & 1
        loaded = max(loaded, accepted + 1 + config.control.registered)
        decoded, grouped = bool(config.formats), "grouped" in step.flags
        resident = product and b_bank is None
        late = (shared and not index_of(step.flags)) or config.array.kind == "tree"
        stored = self._stored(step, tiles)
        for tile, (lines, inner) in enumerate(tiles):
            line = max(loaded, before)
            loaded = line + max(lines, 1)
            begin = loaded if late and lines else line + (lines > 0)
            # A group's scales precede the first line.
            begin = max(end, begin + decoded + (grouped and lines > inner and not late))
            before, end = end, begin + m * count
            if shared and tile < len(tiles) - 1:
                end += stored[tile]
            if first < 0:
                first, first_line = begin, line
            row = step["acc_addr"] + tile // inner_tiles * step["acc_stride"] if product else 0
            added = begin + self._added
            if product and b_bank is not None and config.fused and config.beat_lanes >= cols:
                self.tiles.append(AccumulatorSpan(added, added + m * count, row & 1, count))
            if resident and (m == 1 or turns):
                for index in range(m):
                    self._add(added + index * count, count, (row + index) & 1)
        if resident and config.beat_lanes >= cols and not (m | step["acc_stride"]) & 1:
            # Rows have alternating parities; a drain in several beats per row waits for no parity.
            begin, parity = first + self._added, step["acc_addr"] & 1
            self.sums.append(AccumulatorSpan(begin, end + self._added, parity, 1))
        self._end, self._before, self._loaded = end, before, loaded
        # A command's last tile leaves the walker when its lines are requested.
        self._accept = max(
            self._accept_next, accepted + len(tiles), loaded - 1 - config.control.registered
        )
        self._accept_next = loaded
        if late:
            # The first tile's weights precede all activations.
            self.reads.append(Reads(first_line, first, (None, b_bank), stored.pop(0)))
        self.reads.append(Reads(first, end, (a_bank, b_bank), sum(stored)))
        return first, accepted, end + self._settle

    def _add(self, begin: int, count: int, parity: int) -> None:
        """Record ``count`` cycles in which a row of this parity receives sums."""
        end = begin + count
        if self.sums and self.sums[-1] == AccumulatorSpan(self.sums[-1].begin, begin, parity):
            begin = self.sums.pop().begin
        self.sums.append(AccumulatorSpan(begin, end, parity))

    def _add_sparse(self, step: Step, ready: int) -> tuple[int, int, int]:
        """Return the same cycles for a SPARSE, which never overlaps products of the array."""
        config = self._config
        sizes = (step[name] for name in ("m", "k", "n", "beats"))
        accepted = max(ready, self._accept, self._end + self._settle if self._end else 0)
        done = accepted + sparse_cycles(config, config.sparse_lanes, *sizes)
        self._end = self._before = self._loaded = done - self._settle
        self._accept = self._accept_next = done
        banks = step["a_addr"] // config.bank_bytes, step["b_addr"] // config.bank_bytes
        self.reads.append(Reads(accepted, done, banks, done - accepted))
        return accepted, accepted, done

    def _stored(self, step: Step, tiles: Iterable[tuple[int, int]]) -> list[int]:
        """Return the lines that each tile reads from the scratchpad; several codes share a line."""
        index = index_of(step.flags)
        if not index:
            return [lines for lines, _ in tiles]
        share = self._config.formats[index - 1].bits / OPERAND_BITS
        # Lines beyond the rows of B are a group's scales.
        return [lines and lines - rows + round(rows * share) for lines, rows in tiles]

    def _tiles(self, step: Step) -> list[tuple[int, int]]:
        """Return the lines of weights that each tile reads, and its rows of B."""
        config, k, n = self._config, step["k"], step["n"]
        rows, cols = config.array.rows, config.array.cols
        inner = [min(rows, k - place) for place in range(0, k, rows)]
        across = -(-n // cols)
        transposed = "b_transpose" in step.flags
        if "append" in step.flags:
            size, whole = (n, cols) if transposed else (k, rows)
            start = step["line"]
            ends = [*range(whole, start + size, whole), start + size]
            each = 1 + ("pair" in step.flags) + ("block" in step.flags)
            lines = [each * (end - begin) for begin, end in itertools.pairwise([start, *ends])]
            return [(count, 0) for count in lines for _ in (inner if transposed else [0])]
        if "resident" in step.flags:
            return [(0, height) for height in inner] * across
        if "grouped" in step.flags:
            tiles = config.weight_group // rows if index_of(step.flags) else 1
            more = [height + (not place % tiles) for place, height in enumerate(inner)]
            return list(zip(more, inner, strict=True)) * across
        return [(cols if transposed else height, height) for height in inner] * across
