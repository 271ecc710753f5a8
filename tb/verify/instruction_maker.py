"""Random instructions with random shapes and addresses that fit a configuration."""

from dataclasses import dataclass, field

import numpy as np

from celosia.arch.config import Config
from celosia.arch.formats import WeightFormat, format_select_flags
from celosia.arch.instruction import Instruction
from celosia.arch.isa import DEFINITIONS, FACTOR_SHIFT, FORMAT_FLAGS, PAIR_FLAGS, WIDE_FLAGS, Opcode

IMAGE_ROWS = 96
"""Rows of external memory that LOAD reads, and that STORE writes."""
MAX_M = 10
MAX_K = 40
UNIT_FLAGS = {
    "b_transpose": {"b_transpose"},
    "activation": {"table"},
    "wide_functions": {"polynomial"},
    "wide_operands": {*WIDE_FLAGS},
    "rotary": {"rotate", "times"},
    "argmax": {"argmax"},
    "fused": {"drain"},
}
"""The flags that need a unit, by the configuration's field."""
_LEFT_OUT = {*FORMAT_FLAGS, *PAIR_FLAGS, "polynomial", "factors", "by_tile", "spaced"}
"""Flags that are added to those that are drawn."""
_TAKERS = {"softmax": Opcode.SOFTMAX, "norm": Opcode.NORM}
"""Instructions that can read accumulators, by unit."""


@dataclass
class InstructionMaker:
    """Generator of random instructions for the engines of a configuration.

    Two areas of external memory have ``IMAGE_ROWS`` rows each: LOAD reads from the one at address
    0, and STORE writes to the one at ``result_addr``.
    """

    config: Config
    rng: np.random.Generator
    row_bytes: int
    """Number of bytes of a row in external memory."""
    result_addr: int
    filled: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Shapes (m, n) of sums that no instruction has read yet, by their accumulator addresses."""

    def _below(self, high: int) -> int:
        return int(self.rng.integers(high))

    def _size(self, high: int) -> int:
        return 1 + self._below(max(1, high))

    def _aligned(self, count: int) -> int:
        """Return a number of bytes, rounded up to the alignment of scratchpad rows."""
        return -(-count // self.config.scratchpad.align) * self.config.scratchpad.align

    def _zero(self, allowed: bool = True) -> int:
        bound = self.config.operand_max
        return int(self.rng.integers(-bound - 1, bound + 1)) if allowed else 0

    def _matrix(self, name: str, m: int, row: int) -> dict[str, int]:
        """Place m rows of ``row`` bytes in a bank, upwards or downwards; some may not fit."""
        config = self.config
        stride = self._aligned(row + self._below(8))
        span = stride * (m - 1) + row
        bank = self._below(config.scratchpad.banks) * config.bank_bytes
        addr = bank + self._aligned(self._below(max(1, config.bank_bytes - span + 1)))
        if self.rng.random() < 0.1:
            addr, stride = addr + stride * (m - 1), -stride
        return {f"{name}_addr": addr, f"{name}_stride": stride}

    def _shape(self, wide: bool) -> tuple[int, int]:
        """Return m and n of a matrix that fills at most a quarter of a bank."""
        quarter = self.config.bank_bytes // 4 // (2 if wide else 1)
        n = self._size(min(MAX_K, self.config.vector.longest_row, quarter // 2))
        m = self._size(min(MAX_M, quarter // (n + 8)))
        return m, n

    def _flags(self, opcode: Opcode, likely: float = 0.4) -> set[str]:
        return {
            flag
            for flag in DEFINITIONS[opcode].flags
            if flag not in _LEFT_OUT and self.rng.random() < likely
        } - self._absent()

    def _absent(self) -> set[str]:
        config = self.config
        absent = {"resident"} if config.array.weight_depth < 3 else set()
        for unit, names in UNIT_FLAGS.items():
            if not config.read(unit):
                absent |= names
        return absent | {"followed"}

    def _format(self, flags: set[str]) -> tuple[set[str], WeightFormat | None]:
        """Return flags and a weight format: sometimes one, without the flags that it excludes."""
        formats = self.config.formats
        if not formats or "resident" in flags or self.rng.random() < 0.5:
            return flags, None
        index = 1 + self._below(len(formats))
        formatted = flags - {"b_transpose", "append"} | format_select_flags(index)
        if self.config.weight_group and self.rng.random() < 0.5:
            formatted |= {"grouped"}
        return formatted, formats[index - 1]

    def _b(self, k: int, n: int, flags: set[str], form: WeightFormat | None) -> dict[str, int]:
        """Return the place of B."""
        if form is None:
            m, row = (n, k) if "b_transpose" in flags else (k, n)
            return self._matrix("b", m, 2 * row if flags & {"b_high", "b_low"} else row)
        group = self.config.weight_group if "grouped" in flags else 0
        return self._matrix("b", form.stored_rows(k, group), n)

    def _bytes(self, flags: set[str], form: WeightFormat | None) -> set[str]:
        """Return flags in which those of INT16 do not exclude each other."""
        if "a_wide" not in flags or form is not None or "resident" in flags:
            return flags - {"b_high", "b_low"}
        return flags - {"b_low"} if "b_high" in flags else flags

    def _matmul(self) -> Instruction:
        config = self.config
        k = self._size(min(MAX_K, config.accumulators.longest_sum))
        m = self._size(min(MAX_M, config.accumulators.depth // 4))
        n = self._size(min(4, config.accumulators.depth // 4 // m) * config.array.cols)
        acc_addr = self._below(4) * (config.accumulators.depth // 4)
        if config.fused and self.rng.random() < 0.2:
            # A drain of these may space its tile columns.
            m, n = 1, config.array.cols * self._size(min(4, config.accumulators.depth // 4))
        m, n = self.filled.get(acc_addr, (m, n))
        flags = self._flags(Opcode.MATMUL)
        kt, nt = -(-k // config.array.rows), -(-n // config.array.cols)
        if kt * nt + 2 > config.array.weight_depth:
            flags -= {"resident"}
        flags, form = self._format(flags)
        flags = self._bytes(flags, form)
        a_wide, byte = "a_wide" in flags, bool(flags & {"b_high", "b_low"})
        operands = {
            **self._matrix("a", m, k << a_wide),
            **self._b(k, n, flags, form),
            "acc_addr": acc_addr,
            "acc_stride": m,
            "m": m,
            "k": k,
            "n": n,
            "a_zero": self._zero(config.array.zero_points and not a_wide),
            "b_zero": self._zero(config.array.zero_points and form is None and not byte),
            "slot": 2,
        }
        self.filled[acc_addr] = (m, n)
        return Instruction(Opcode.MATMUL, operands, frozenset(flags))

    def _preload(self) -> Instruction:
        config = self.config
        room = config.array.weight_depth - 2
        k = self._size(min(MAX_K, room * config.array.rows))
        n = self._size(min(MAX_K, room // -(-k // config.array.rows) * config.array.cols))
        flags = self._flags(Opcode.PRELOAD)
        if "append" in flags and "b_transpose" not in flags:
            n = min(n, config.array.cols)
        flags, form = self._format(flags)
        operands = {
            **self._b(k, n, flags, form),
            "k": k,
            "n": n,
            "b_zero": self._zero(config.array.zero_points and form is None),
            "slot": 2,
            "line": self._below(config.array.cols if "b_transpose" in flags else config.array.rows),
        }
        return Instruction(Opcode.PRELOAD, operands, frozenset(flags))

    def drain(self) -> Instruction:
        """Return a random DRAIN instruction, which reads a matrix of sums from the accumulators.

        The matrix is one that earlier instructions have written and no instruction has read yet.
        The method removes it from ``filled``, the dictionary of these matrices.
        """
        acc_addr = int(self.rng.choice([*self.filled]))
        m, n = self.filled.pop(acc_addr)
        flags = self._flags(Opcode.DRAIN)
        flags = self._output_flags(flags)
        if self.config.wide_functions and self.rng.random() < 0.4:
            flags = flags & {"per_tensor", "per_row", "relu"} | {"polynomial"}
        if "per_row" in flags and n > self.config.vector.lanes:
            flags |= {"per_tensor"}
        operands = {"acc_addr": acc_addr, "acc_stride": m, **self._output(m, n, flags)}
        if self.rng.random() < 0.7:
            self._multiply(operands, m, n, flags)
        tiles, rest = divmod(n, self.config.array.cols)
        if self.config.fused and m == 1 and not rest and self.rng.random() < 0.5:
            flags |= {"spaced"}
            operands |= self._matrix("o", tiles, self.config.array.cols << ("wide_out" in flags))
        else:
            self._in_place(operands, {"r"} if flags & {"add", "times"} else set())
        return Instruction(Opcode.DRAIN, operands, frozenset(flags))

    def _multiply(self, operands: dict[str, int], m: int, n: int, flags: set[str]) -> None:
        """Let a drain multiply by factors, of rows or of tile columns, if there are enough."""
        by_tile = self.rng.random() < 0.5
        count = -(-n // self.config.array.cols) if by_tile else m
        if count <= self.config.row_factors:
            flags |= {"factors", *(("by_tile",) if by_tile else ())}
            operands["params"] += self._factor(count)

    def _factor(self, m: int) -> int:
        """Return the bits of ``params`` for the place of the factors of m rows."""
        return self._below(self.config.row_factors - m + 1) << FACTOR_SHIFT

    def _in_place(self, operands: dict[str, int], inputs: set[str]) -> None:
        """Sometimes write over an input, or read the same row over and over."""
        for name in sorted(inputs):
            if self.rng.random() < 0.1:
                operands[f"{name}_stride"] = 0
        for output in ("o", "s"):
            if inputs and f"{output}_addr" in operands and self.rng.random() < 0.3:
                source = str(self.rng.choice(sorted(inputs)))
                for part in ("addr", "stride"):
                    operands[f"{output}_{part}"] = operands[f"{source}_{part}"]

    def _output_flags(self, flags: set[str]) -> set[str]:
        flags = flags - ({"table"} if "wide_out" in flags else {"add"})
        if "argmax" in flags and self.rng.random() < 0.7:
            return flags - {"table", "rotate", "times"}
        turning = flags & {"rotate", "times"}
        if turning:
            flags -= {"relu", "table", "add", *turning}
            flags |= {str(self.rng.choice(sorted(turning)))}
        return flags - {"argmax"}

    def _output(self, m: int, n: int, flags: set[str]) -> dict[str, int]:
        table, pairs = self._below(self.config.table_slots), n
        if "rotate" in flags:
            table = self._aligned(4 * self._size(n)) // 2
            pairs = min(n, table + self.config.vector.lanes)
        elif "times" in flags:
            table = self._zero()
        elif "argmax" in flags:
            # Begin anew, or continue.
            table = self._below(2) * self._size(1 << 20)
        return {
            **self._matrix("o", m, 2 * n if "wide_out" in flags else n),
            **self._matrix("r", m, 2 * pairs),
            "o_zero": 0 if flags & {"rotate", "times"} else self._zero(),
            "m": m,
            "n": n,
            "params": self._below(2),
            "table": table,
        }

    def _row_step(self, opcode: Opcode) -> Instruction:
        """Make MAP, SOFTMAX or NORM."""
        flags = self._output_flags(self._flags(opcode))
        if opcode == Opcode.NORM and self.rng.random() < 0.5:
            flags |= {"add"}
        if not self.filled:
            flags -= {"drain"}
        elif self.config.fused and opcode in _TAKERS.values() and self.rng.random() < 0.8:
            flags |= {"drain"}
        if opcode == Opcode.SOFTMAX and self.config.beat_lanes > self.config.vector.lanes:
            flags |= {"per_tensor"}
        m, n = self._shape(wide=True)
        filled = {*self.filled}
        if opcode in (Opcode.SOFTMAX, Opcode.NORM) and self.config.row_factors:
            most = self.config.row_factors
            filled = {addr for addr, (rows, _) in self.filled.items() if rows <= most}
            m, flags = min(m, most), (flags | {"factors"}) - {"diagonal"}
            flags |= {"rms"} if opcode == Opcode.NORM else set()
            flags -= set() if filled else {"drain"}
        if "argmax" in flags:
            m = 1
        if "rotate" in flags:
            n += n % 2
        sums: dict[str, int] = {}
        if "drain" in flags:
            acc_addr = int(self.rng.choice([addr for addr in self.filled if addr in filled]))
            m, n = self.filled.pop(acc_addr)
            sums = {"i_addr": acc_addr, "i_stride": m}
        operands = self._output(m, n, flags)
        if "factors" in flags:
            operands["params"] += self._factor(m)
        wide = opcode in (Opcode.SOFTMAX, Opcode.NORM) or "wide_in" in flags
        operands |= sums or self._matrix("i", m, 2 * n if wide else n)
        operands |= self._matrix("s", m, 2 * n)
        if opcode == Opcode.SOFTMAX:
            operands |= {
                "start": int(self.rng.integers(-3, 4)),
                "start_step": int(self.rng.integers(-1, 2)),
                "limit": self._size(n + 3),
                "limit_step": int(self.rng.integers(-1, 2)),
                "diagonal": int(self.rng.integers(-2, n)),
                "diagonal_value": int(self.rng.integers(-(1 << 24), 1 << 24)),
            }
        if opcode == Opcode.NORM:
            operands |= {"eps_low": self._below(1 << 27), "eps_high": self._below(4)}
            operands["pre"] = self._below(2)
        operands["i_zero"] = self._zero()
        known = DEFINITIONS[opcode].operands
        operands = {name: value for name, value in operands.items() if name in known}
        inputs = set() if sums else {"i"}
        if flags & {"add", "times"}:
            inputs |= {"r"}
        self._in_place(operands, inputs)
        return Instruction(opcode, operands, frozenset(flags))

    def mover(self, opcode: Opcode) -> Instruction:
        """Return a random LOAD or STORE instruction; ``opcode`` selects one of the two."""
        config = self.config
        m = self._size(MAX_M)
        row = self._size(min(self.row_bytes, config.bank_bytes // 4 // m))
        first = self._below(IMAGE_ROWS - m + 1) * self.row_bytes
        if opcode == Opcode.STORE:
            first += self.result_addr
        operands = {
            "dram_addr": first,
            "dram_stride": self.row_bytes,
            **self._matrix("sp", m, row),
            "m": m,
            "row_bytes": row,
        }
        return Instruction(opcode, operands)

    def _table(self) -> Instruction:
        addr = self._below(max(1, self.config.scratchpad.bytes - 255))
        operands = {"i_addr": self._aligned(addr), "table": self._below(self.config.table_slots)}
        return Instruction(Opcode.TABLE, operands)

    def any(self) -> Instruction:
        """Return a random instruction for a randomly chosen engine.

        The configuration supports the instruction's opcode.
        """
        config = self.config
        makers = [
            self._matmul,
            lambda: self._row_step(Opcode.MAP),
            lambda: self.mover(Opcode.LOAD),
            lambda: self.mover(Opcode.STORE),
        ]
        makers += [self.drain] * 2 if self.filled else []
        if self.filled and config.fused:
            units = [opcode for unit, opcode in _TAKERS.items() if config.read(unit)]
            makers += [lambda opcode=opcode: self._row_step(opcode) for opcode in 3 * units]
        makers += [self._preload] if config.array.weight_depth > 2 else []
        for unit, opcode in (("softmax", Opcode.SOFTMAX), ("norm", Opcode.NORM)):
            if config.read(unit):
                makers += [lambda opcode=opcode: self._row_step(opcode)] * 2
        if config.activation:
            makers += [self._table]
        return makers[self._below(len(makers))]()
