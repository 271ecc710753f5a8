"""Random commands of the matrix engine, with the expected sums and numbers of cycles."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.formats import format_select_flags, index_of
from celosia.arch.isa import DEFINITIONS, RING_SLOTS, Engine, Opcode
from celosia.arch.latency import array_latency
from celosia.hdl.ports import command_layout
from celosia.sim import blocks, pairs
from celosia.sim.formats import unpack as unpack_weights
from celosia.sim.matmul import (
    accumulate,
    append,
    cut,
    held,
    parts_of_wide,
    place,
    words_with_scales,
)
from celosia.tb.machine.packing import pack

Ints = NDArray[np.int64]
BYTES = {"b_high", "b_low"}
LONG = 120
"""Largest value of a size; a command has one such size."""
RARE = 0.1
"""Share of commands with a large size."""


class Jobs:
    """Commands of the matrix engine, with the accumulators' expected contents after each command.

    ``sp`` is the scratchpad's random content. ``payloads`` has each command as an integer, the bits
    for the engine's command port.
    """

    def __init__(self, config: Config, generator: np.random.Generator):
        self._config = config
        self._rng = generator
        self.sp = generator.integers(0, 256, config.scratchpad.bytes).astype(np.uint8)
        self.sp[generator.random(self.sp.size) < 0.2] = 3  # a zero where the zero point is 3
        if config.block_exponents:
            # Stretches of small values, whose blocks have the other exponents.
            places = np.arange(self.sp.size) // 32
            small = generator.integers(0, 5, places[-1] + 1)[places]
            self.sp = (self.sp.view(np.int8) >> small).astype(np.uint8)
        self.slots = np.zeros(
            (config.array.weight_depth, config.array.rows, config.array.cols), np.int64
        )
        self.acc = np.zeros((config.accumulators.depth, config.array.cols), np.int64)
        self.payloads: list[int] = []
        self.pushes: list[int] = []
        self.after: list[Ints] = []
        """The accumulators after each command."""
        self.events: list[int] = []
        """Rows accumulated up to each command's end."""
        self.lines: list[tuple[int, bool]] = []
        """Lines of each tile of B that is read, or in a format of all tiles of a command, and
        whether the first may wait."""
        self.macs = self.gated = 0

    def _place(self, lines: int, length: int) -> tuple[int, int]:
        """Return an address and a stride at which lines of a length fit."""
        stride = length + int(self._rng.integers(0, 5))
        room = self.sp.size - lines * stride
        assert room >= 0
        return int(self._rng.integers(0, room + 1)), stride

    def _read(
        self, addr: int, stride: int, lines: int, length: int, zero: int, wide: bool = False
    ) -> Ints:
        """Return a matrix of operands, [lines, length], less their zero point, or of INT16."""
        cells = addr + stride * np.arange(lines)[:, None] + np.arange(length << wide)
        if wide:
            return self.sp[cells].view("<i2").astype(np.int64)
        bits = self._config.array.operand_width
        values = self.sp[cells].astype(np.int64) % (1 << bits)
        return values - (values >> (bits - 1) << bits) - zero

    def add(
        self,
        opcode: Opcode,
        m: int,
        k: int,
        n: int,
        flags: set[str],
        slot: int = 0,
        line: int = 0,
    ) -> None:
        """Append a MATMUL of A [m, k] and B [k, n], or a PRELOAD of B; compute the sums after it.

        ``flags`` are names. ``slot`` is the first weight slot (storage for one tile). ``line`` is
        the first row or column of the tile that a PRELOAD with the flag ``append`` writes.
        Addresses, strides and zero points are random.
        """
        config = self._config
        kt, nt = -(-k // config.array.rows), -(-n // config.array.cols)
        zeros = self._rng.choice([-128, 0, 3, 127], 2) if config.array.zero_points else (0, 0)
        zeros = [int(np.clip(zero, config.operand_min, config.operand_max)) for zero in zeros]
        a_wide, byte = "a_wide" in flags, bool(flags & BYTES)
        zeros = [0 if wide else zero for wide, zero in zip((a_wide, byte), zeros, strict=True)]
        operands = {"k": k, "n": n, "b_zero": zeros[1], "slot": slot, "line": line}
        b_shape = (n, k) if "b_transpose" in flags else (k, n)
        index = index_of(frozenset(flags))
        if index and "resident" not in flags:
            form = config.formats[index - 1]
            group = config.weight_group if "grouped" in flags else 0
            operands["b_zero"] = zeros[1] = 0
            b_shape = (form.stored_rows(k, group), n)
        elif opcode == Opcode.PRELOAD and "grouped" in flags:
            b_shape = (k + kt, n)
        twice = "pair" in flags and opcode == Opcode.PRELOAD
        width = b_shape[1] * (1 + twice) << byte
        operands["b_addr"], operands["b_stride"] = self._place(b_shape[0], width)
        size = b_shape[0], width >> byte
        b = self._read(operands["b_addr"], operands["b_stride"], *size, zeros[1], byte)
        if byte:
            b = parts_of_wide(b)["b_low" in flags]
        lower = None
        if twice:
            halves = np.split(b, 2, axis=1)
            b = pairs.both(*halves)
            if "block" in flags:
                b = blocks.pack_mantissas(
                    *halves, config.array.cols, config.slot_exponents, config.slot_scales
                )
            if "lower" in flags:
                lower = pairs.both_lower(*halves)[:, : config.low_rows].T
        if index and "resident" not in flags:
            self.lines.append((b_shape[0] * nt, False))
            b = unpack_weights(b.astype(np.uint8), k, form, group)
        elif b_shape[0] > k and "b_transpose" not in flags:
            self.lines.append((b_shape[0] * nt, False))
            b = words_with_scales(b, config.array.rows, config.slot_scales)
        tiles = cut(b.T if "b_transpose" in flags else b, config.array.rows, config.array.cols)
        transpose = "b_transpose" in flags
        if "append" in flags:
            straight = b.T if transpose else b
            where = {"slot": slot, "line": line, "transpose": transpose, "lower": lower}
            append(self.slots, straight, **where)
        elif opcode == Opcode.PRELOAD:
            place(self.slots, b.T if transpose else b, slot=slot, transpose=transpose)
        else:
            if "resident" in flags:
                scale = {"scaled": "grouped" in flags, "scale_bits": config.slot_scales}
                scale |= {"exponent_bits": config.slot_exponents, "block": "block" in flags}
                half = int("second" in flags) if "pair" in flags else None
                tiles = held(self.slots, slot, nt, kt, paired=bool(index), half=half, **scale)
            operands |= {"m": m, "a_zero": zeros[0]}
            operands["a_addr"], operands["a_stride"] = self._place(m, k << a_wide)
            a = self._read(operands["a_addr"], operands["a_stride"], m, k, zeros[0], a_wide)
            once = "b_low" not in flags
            a = a if once else parts_of_wide(a)[0]
            self._multiply(a, tiles, n, operands, a_wide, once=once, lower="lower" in flags)
        self.pushes.append(int(self._rng.integers(0, 1 << len(Engine))))
        self.after.append(self.acc)
        self.events.append(self.events[-1] if self.events else 0)
        if opcode == Opcode.MATMUL:
            parts = config.passes
            if "pair" in flags:
                parts = 1
            if index and ("grouped" not in flags or "resident" in flags):
                parts = config.formats[index - 1].passes(config.array.pass_width)
            parts = 2 if a_wide and "b_low" not in flags else parts
            self.events[-1] += m * nt * kt * parts
        whole, size = (config.array.cols, n) if transpose else (config.array.rows, k)
        if "append" in flags:
            for first in range(0, line + size, whole):
                lines = (min(first + whole, line + size) - max(first, line)) * (1 + twice)
                self.lines += [(lines, not twice)] * (kt if transpose else 1)
        elif "resident" not in flags and not index and "grouped" not in flags:
            for indices in np.ndindex(nt, kt):
                tile = indices[0 if transpose else 1]
                self.lines.append((min(whole, size - tile * whole), True))
        bits = sum(1 << DEFINITIONS[opcode].flag_bit(flag) for flag in flags)
        header = {"opcode": opcode, "push": self.pushes[-1], "flags": bits}
        self.payloads.append(pack(command_layout(Engine.MATRIX), header | operands))

    def _multiply(
        self,
        a: Ints,
        tiles: Ints,
        n: int,
        operands: dict[str, int],
        wide: bool,
        *,
        once: bool,
        lower: bool,
    ) -> None:
        """Accumulate a product, and with ``once`` count its operations (of INT16 the low bytes').

        With ``lower`` it is 16 times the product, plus one with the first elements.
        """
        m, low = a.shape[0], self._config.low_rows
        if lower:
            again = np.zeros((m, self._config.array.rows), np.int64)
            again[:, : a.shape[1]] = 16 * a
            again[:, self._config.array.rows - low :] = a[:, :low][:, ::-1]
        nt, kt, rows, cols = tiles.shape
        stride = m + int(self._rng.integers(0, 3))
        addr = int(self._rng.integers(0, self._config.accumulators.depth - nt * stride + 1))
        operands |= {"acc_addr": addr, "acc_stride": stride}
        self.acc = accumulate(
            self.acc,
            again if lower else a,
            tiles,
            acc_addr=addr,
            acc_stride=stride,
            acc_width=self._config.accumulators.width,
        )
        for column, row in np.ndindex(nt, kt if once else 0):
            part = (a & 255 if wide else a)[:, row * rows : (row + 1) * rows]
            width = min(cols, n - column * cols)
            self.macs += part.size * width
            self.gated += int(np.count_nonzero(part == 0))

    def add_random(self) -> None:
        """Append one random MATMUL, or a random sequence of PRELOADs and MATMULs, to the commands.

        A single MATMUL reads its weights from the scratchpad. In a sequence, the PRELOADs write
        weights to weight slots (each stores one tile in the array), and the MATMULs use these
        weights.
        """
        config = self._config
        room = config.array.weight_depth - RING_SLOTS
        k, n = (
            int(self._rng.integers(1, 3 * side + 1))
            for side in (config.array.rows, config.array.cols)
        )
        if self._rng.random() < RARE:
            k, n = ((k, LONG - n), (LONG - k, n))[int(self._rng.integers(2))]
        b_flags = (
            {"b_transpose"} if config.array.b_transpose and self._rng.random() < 0.5 else set()
        )
        if config.formats and self._rng.random() < 0.6:
            b_flags = {*format_select_flags(int(self._rng.integers(1, len(config.formats) + 1)))}
            b_flags |= {"grouped"} if config.weight_group and self._rng.random() < 0.5 else set()
            k *= int(self._rng.integers(1, 5))
        a_flags: set[str] = set()
        if config.array.wide and self._rng.random() < 0.6:
            a_flags = {"a_wide"}
            if not index_of(frozenset(b_flags)) and self._rng.random() < 0.6:
                a_flags |= {str(self._rng.choice(["b_high", "b_low"]))}
        tiles = -(-k // config.array.rows) * -(-n // config.array.cols)
        if room and self._rng.random() < 0.4:
            self.append_random("b_transpose" in b_flags)
        elif tiles <= room and self._rng.random() < 0.6:
            slot = RING_SLOTS + int(self._rng.integers(0, room - tiles + 1))
            if not b_flags and config.slot_scales and self._rng.random() < 0.7:
                b_flags = {"grouped"}
            self.add(Opcode.PRELOAD, 0, k, n, b_flags, slot)
            for _ in range(int(self._rng.integers(0, 3))):
                self.add(Opcode.MATMUL, self._rows(n), k, n, {"resident", *a_flags} - BYTES, slot)
            if config.packed_slots:
                most = 2 * config.array.rows * -(-k // config.array.rows)
                k = int(self._rng.integers(most - 2 * config.array.rows, most)) + 1
                narrow = [at for at, form in enumerate(config.formats) if form.paired]
                form = format_select_flags(1 + int(self._rng.choice(narrow)))
                form |= {"grouped"} if config.slot_scales and self._rng.random() < 0.7 else set()
                self.add(Opcode.MATMUL, self._rows(n), k, n, {*form, "resident"}, slot)
        else:
            self.add(Opcode.MATMUL, self._rows(n), k, n, b_flags | a_flags)

    def append_random(self, transpose: bool) -> None:
        """Append PRELOADs that each write a part of some weight tiles, and MATMULs with the tiles.

        A PRELOAD writes some rows or columns of one or more tiles in the array. If ``transpose`` is
        true, the first PRELOAD transposes its weights, which needs the configuration field
        ``b_transpose``.
        """
        config = self._config
        room = config.array.weight_depth - RING_SLOTS
        for _ in range(int(self._rng.integers(1, 5))):
            side, across = (
                (config.array.cols, config.array.rows)
                if transpose
                else (config.array.rows, config.array.cols)
            )
            line, length = int(self._rng.integers(side)), int(self._rng.integers(1, across + 1))
            lines = int(self._rng.choice([1, 1, self._rng.integers(1, 2 * side + 1)]))
            stack = 1
            if transpose and self._rng.random() < 0.5:
                length = int(self._rng.integers(1, 3 * across + 1))
                stack = -(-length // across)
            tiles = -(-(line + lines) // side) * stack
            pair, second, low = set(), set(), set()
            if config.packed_cache and self._rng.random() < 0.7:
                pair = {"pair"}
                second = {"second"} if self._rng.random() < 0.5 else second
                if transpose and config.low_rows <= length <= config.high_rows:
                    low = {"lower"} if config.low_rows else low
                if not transpose and config.block_exponents and self._rng.random() < 0.8:
                    low = {"block"}
            if tiles <= room:
                slot = RING_SLOTS + int(self._rng.integers(0, min(room - tiles, 2) + 1))
                k, n = (length, lines) if transpose else (lines, length)
                flags = {"append"} | pair | low | ({"b_transpose"} if transpose else set())
                use = min(stack * config.array.rows, room * config.array.rows), config.array.cols
                use = (length, config.array.cols) if low == {"lower"} else use
                if self._rng.random() < 0.7:
                    self.add(Opcode.MATMUL, self._rows(config.array.cols), *use, {"resident"}, slot)
                self.add(Opcode.PRELOAD, 0, k, n, flags, slot, line)
                if self._rng.random() < 0.7:
                    if config.block_exponents and pair and low != {"lower"}:
                        # Rows of other bytes have exponents, too.
                        low ^= {"block"} if self._rng.random() < 0.3 else set()
                    flags = {"resident"} | pair | second | low
                    self.add(Opcode.MATMUL, self._rows(config.array.cols), *use, flags, slot)
            transpose ^= bool(config.array.b_transpose and self._rng.random() < 0.6)

    def _rows(self, n: int) -> int:
        """Return a number of rows, often a small one, whose sums have room."""
        config = self._config
        room = config.accumulators.depth // -(-n // config.array.cols) - 2
        long = min(room, LONG) if self._rng.random() < RARE else 3 * config.array.rows + 1
        return int(min(room, self._rng.choice([1, 2, 3, self._rng.integers(1, long + 1)])))


def window(config: Config, m: int, k: int, n: int, *flags: str) -> int:
    """Return the number of cycles that one MATMUL, [m, k] by [k, n], takes on the matrix engine.

    The cycles are from the first memory request to the last sum. ``flags`` are names. The result is
    right in two cases only: all tiles of weights are full, or ``m`` is at least the number of lines
    of a tile.
    """
    rows, cols = config.array.rows, config.array.cols
    tiles = -(-k // rows) * -(-n // cols)
    load = cols if "b_transpose" in flags else min(k, rows)
    resident = "resident" in flags
    load = 1 if resident else load
    # A tree's vectors wait for the last line of the first tile, an array's for the first.
    wait = load - 1 if config.array.kind == "tree" else 0
    wait += config.control.registered
    settle = array_latency(config) + config.sram_latency + config.acc_settle + 1
    m *= config.passes
    return max(m, load) * (tiles - 1) + m + wait + settle - resident
