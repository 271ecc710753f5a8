"""The golden machine: runs a program's instructions one after the other on integer arrays."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import ProgramError
from arch.formats import index_of
from arch.instruction import wrap as wrap_immediate
from arch.isa import REGISTERS, Engine, Opcode
from arch.sparse import code_bytes
from sim import blocks, pairs
from sim.admission import check_followed, check_step
from sim.flow import Step, run
from sim.formats import unpack
from sim.matmul import append, held, marked, parts_of_wide, place, wrap
from sim.norm import normalize, row_factors
from sim.polynomial import evaluate_table
from sim.regions import Region, ceil_div, pair_places, regions, stored_rows
from sim.report import Report, signature
from sim.requantize import requantize, saturate16, times_factor
from sim.rotary import rotate, times
from sim.softmax import row_weights, softmax
from sim.sparse import decode, multiply
from sim.sums import Sums

Ints = NDArray[np.int64]
PARAM_BYTES = 9


class Interpreter:
    """A machine of some configuration that has no clock and no concurrency.

    It holds external memory, scratchpad, accumulators, parameters, tables and weight slots,
    all zero at first. What it writes to them is what the circuit must write.
    ``argmax`` and ``argmax_value`` are what the registers of these names tell.
    """

    def __init__(self, config: Config):
        self.config = config
        self.dram: NDArray[np.uint8] = np.zeros(1 << config.mem_addr_width, np.uint8)
        self.sp: NDArray[np.uint8] = np.zeros(config.scratchpad_bytes, np.uint8)
        self.acc: Ints = np.zeros((config.acc_depth, config.cols), np.int64)
        self.bias: Ints = np.zeros((config.param_depth, config.lanes), np.int64)
        self.multiplier: Ints = np.zeros((config.param_depth, config.lanes), np.int64)
        self.shift: Ints = np.zeros((config.param_depth, config.lanes), np.int64)
        self.factors: Ints = np.zeros((2, config.row_factors), np.int64)
        """Mantissas and shifts of the rows' factors that are kept."""
        self.tables: Ints = np.zeros((config.table_slots, 256), np.int64)
        self.slots: Ints = np.zeros((config.weight_depth, config.rows, config.cols), np.int64)
        self.argmax = 0
        self.argmax_value = 0
        self.words: list[int] = []
        self.registers = [0] * REGISTERS
        self.on_step: Callable[[Step, Interpreter], None] | None = None
        self._signatures: list[int] = []
        self._written: list[int] = []
        self._macs = 0
        self._sums = Sums(config)

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory."""
        self.dram[addr : addr + len(data)] = np.frombuffer(data, np.uint8)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return bytes of external memory."""
        return self.dram[addr : addr + count].tobytes()

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words.

        Raises :class:`ProgramError` where they do not fit the program memory.
        """
        if len(words) > self.config.program_depth:
            raise ProgramError(
                f"Program has {len(words)} words, but program_depth is {self.config.program_depth}"
            )
        self.words = list(words)

    def set_register(self, number: int, value: int) -> None:
        """Set a register; runs leave their registers to the runs that follow."""
        self.registers[number] = wrap_immediate(value)

    def read_register(self, name: str) -> int:
        """Return ARGMAX or ARGMAX_VALUE as the host reads it, without a sign."""
        return {"ARGMAX": self.argmax, "ARGMAX_VALUE": self.argmax_value % (1 << 32)}[name]

    def unbroken(self) -> bool:
        """Return whether runs have ended since the last call, all well, without a reset.

        Nothing resets this machine, and a run that does not end well raises an exception.
        """
        return True

    def start(self, pc: int = 0) -> Report:
        """Run from a word address to HALT.

        Raises :class:`ProgramError` where a step could not run on the configuration, or takes
        accumulators that a product left out.
        """
        self._signatures = []
        self._macs = 0
        before: Step | None = None
        for step in run(self.words, pc, self.registers):
            check_step(step, self.config)
            self._sums.follow(step)
            if step.engine == Engine.VECTOR:
                check_followed(before, step, self.config)
                before = step
            _RUN[step.opcode](self, step)
            if self.on_step is not None:
                self.on_step(step, self)
        check_followed(before, None, self.config)
        return Report(counters={"macs": self._macs}, signatures=self._signatures)

    def read_rows(self, step: Step, name: str, *, wide: bool) -> Ints:
        """Return the m rows of n elements at an address of a step, signed 8 or 16 bits, [m, n]."""
        return self._read(step, name, step["m"], step["n"], wide)

    def _read(self, step: Step, name: str, m: int, count: int, wide: bool = False) -> Ints:
        """Return m rows of count scratchpad elements, signed 8 or 16 bits, [m, count]."""
        width = 2 if wide else 1
        region = Region("sp", step[f"{name}_addr"], step[f"{name}_stride"], m, count * width)
        data = np.ascontiguousarray(self.sp[region.cells()])  # [m, count * width]
        return data.view("<i2" if wide else np.int8).astype(np.int64)

    def _write(self, step: Step, name: str, values: Ints, wide: bool) -> int:
        """Write rows of elements to the scratchpad and return the signature of the bytes."""
        data = np.ascontiguousarray(values, "<i2" if wide else np.int8).view(np.uint8)  # [m, bytes]
        addr, stride = step[f"{name}_addr"], step[f"{name}_stride"]
        cells = Region("sp", addr, stride, *data.shape).cells()
        self.sp[cells] = data
        return signature(cells, data)

    def _params(
        self, step: Step, word: int, *, per_tensor: bool = False
    ) -> tuple[Ints, Ints, Ints]:
        """Return bias, multiplier and shift of each column, [n] each, from a word on.

        With per_row they are those of each row, [m, n].
        """
        config, n = self.config, step["n"]
        column = np.arange(n)
        if step.opcode == Opcode.DRAIN:
            inside = column % config.cols
            group = column // config.cols * config.lane_groups + inside // config.lanes
            lane = inside % config.lanes
        else:
            group, lane = np.divmod(column, config.lanes)
        words = word + (np.zeros(n, np.int64) if per_tensor else group)
        if "per_row" in step.flags:
            words = words + np.arange(step["m"])[:, None]
            lane = np.broadcast_to(lane, words.shape)
        bias, multiplier = self.bias[words, lane], self.multiplier[words, lane]
        shift = self.shift[words, lane]
        if step.opcode == Opcode.DRAIN and "factors" in step.flags:
            numbers = np.arange(step["m"])[:, None]
            if "by_tile" in step.flags:
                numbers = column // config.cols
            factors = self.factors[:, step["factor"] + numbers]
            multiplier, shift = times_factor(multiplier, shift, *factors)
        return bias, multiplier, shift

    def _epilogue(
        self, step: Step, values: Ints, keep: NDArray[np.bool_] | None = None, first: int = 0
    ) -> None:
        """Requantize values [m, n] and write them: equations (2), (9), (10) and (17).

        Where ``keep`` [m, n] is 0, the output is its zero point.
        """
        config, flags, zero = self.config, step.flags, step["o_zero"]
        wide = "wide_out" in flags
        low, high = (-32768, 32767) if wide else (config.operand_min, config.operand_max)
        bounds = low, high
        if flags & {"rotate", "times", "polynomial"}:
            low, high = -32768, 32767
        if "relu" in flags:
            low = max(low, zero)
        per_tensor = "per_tensor" in flags
        bias, multiplier, shift = self._params(step, step["params"] + first, per_tensor=per_tensor)
        out = requantize(values, bias, multiplier, shift, zero, low, high).astype(np.int64)
        if keep is not None:
            out = np.where(keep, out, zero)
        if "table" in flags:
            out = self.tables[step["table"]][out + 128]
        if "polynomial" in flags:
            out = evaluate_table(self.tables[step["table"]], out, *bounds)
        if "rotate" in flags:
            places = pair_places(step, config)
            pairs = self._read(step, "r", step["m"], int(places.max()) + 1, wide=True)
            out = rotate(out, pairs[:, places], *bounds, wide=wide).astype(np.int64)
        if "times" in flags:
            r = self._read(step, "r", *out.shape) - step["table"]
            out = times(out, r, *bounds, wide=wide).astype(np.int64)
        if "add" in flags and step.opcode != Opcode.NORM:
            m, n = out.shape
            residual = self._read(step, "r", m, n, wide=True)
            out = saturate16(out + residual).astype(np.int64)
        if "argmax" in flags:
            self._find_largest(step, out[0])
        if "spaced" in flags:
            out = out.reshape(-1, config.cols)
        self._written.append(self._write(step, "o", out, wide))

    def _find_largest(self, step: Step, out: Ints) -> None:
        """Keep the largest of elements [n] and its column, or what an earlier step kept."""
        column = int(np.argmax(out))  # the first of several
        if not step["table"] or out[column] > self.argmax_value:
            self.argmax = step["table"] + column
            self.argmax_value = int(out[column])

    def _retire(self) -> None:
        self._signatures.append(sum(self._written) % (1 << 64))
        self._written = []

    def _move(self, step: Step) -> None:
        reads, writes = regions(step, self.config)
        if step.opcode == Opcode.LOAD:
            self.sp[writes[0].cells()] = self.dram[reads[0].cells()]
        else:
            self.dram[writes[0].cells()] = self.sp[reads[0].cells()]

    def _operands(self, step: Step, name: str, m: int, n: int) -> Ints:
        """Return m rows of n operands, of which the array sees the low bits, less the zero."""
        return wrap(self._read(step, name, m, n), self.config.operand_width) - step[f"{name}_zero"]

    def _rows(self, step: Step) -> Ints:
        """Return A minus its zero point, [m, k], of INT16 by equation (19)."""
        if "a_wide" not in step.flags:
            return self._operands(step, "a", step["m"], step["k"])
        a = self._read(step, "a", step["m"], step["k"], wide=True)
        return parts_of_wide(a)[0] if "b_low" in step.flags else a

    def _weights(self, step: Step) -> Ints:
        """Return B minus its zero point, [k, n], or a byte of INT16 by equation (19)."""
        k, n = step["k"], step["n"]
        if step.flags & {"b_high", "b_low"}:
            transpose = "b_transpose" in step.flags
            b = self._read(step, "b", *((n, k) if transpose else (k, n)), wide=True)
            b = parts_of_wide(b)["b_low" in step.flags]
            return b.T if transpose else b
        if "b_transpose" in step.flags:
            return self._operands(step, "b", n, k).T
        index = index_of(step.flags)
        if index:
            group = self.config.weight_group if "grouped" in step.flags else 0
            stored = self._read(step, "b", stored_rows(step, self.config), n)
            return unpack(stored.astype(np.uint8), k, self.config.formats[index - 1], group)
        if "grouped" in step.flags:
            stored = self._operands(step, "b", stored_rows(step, self.config), n)
            return marked(stored, self.config.rows, self.config.slot_scales)
        return self._operands(step, "b", k, n)

    def _tiled(self, step: Step, b: Ints) -> Ints:
        """Return B [k, n] padded with zeros and cut into tiles, [nt, kt, rows, cols]."""
        rows, cols = self.config.rows, self.config.cols
        kt, nt = ceil_div(step["k"], rows), ceil_div(step["n"], cols)
        padded = np.zeros((kt * rows, nt * cols), np.int64)
        padded[: step["k"], : step["n"]] = b
        return padded.reshape(kt, rows, nt, cols).transpose(2, 0, 1, 3)

    def _preload(self, step: Step) -> None:
        if "pair" in step.flags:
            self._preload_pair(step)
            return
        b, slot, transpose = self._weights(step), step["slot"], "b_transpose" in step.flags
        if "append" in step.flags:
            append(self.slots, b, slot=slot, line=step["line"], transpose=transpose)
        else:
            place(self.slots, b, slot=slot, transpose=transpose)

    def _preload_pair(self, step: Step) -> None:
        transpose = "b_transpose" in step.flags
        lines, size = (step["n"], step["k"]) if transpose else (step["k"], step["n"])
        first, second = np.split(self._read(step, "b", lines, 2 * size), 2, axis=1)
        config, b, low = self.config, pairs.both(first, second), None
        if "block" in step.flags:
            above = config.slot_exponents
            b = blocks.both(first, second, config.cols, above, config.slot_scales)
        if "lower" in step.flags:
            low = pairs.both_lower(first, second)[:, : config.low_rows].T
        append(
            self.slots,
            b.T if transpose else b,
            slot=step["slot"],
            line=step["line"],
            transpose=transpose,
            lower=low,
        )

    def _matmul(self, step: Step) -> None:
        rows, cols = self.config.rows, self.config.cols
        m, k, n = step["m"], step["k"], step["n"]
        kt, nt = ceil_div(k, rows), ceil_div(n, cols)
        a = self._rows(step)
        if "resident" in step.flags:
            tiles = held(
                self.slots,
                step["slot"],
                nt,
                kt,
                paired=index_of(step.flags) > 0,
                half=int("second" in step.flags) if "pair" in step.flags else None,
                scaled="grouped" in step.flags,
                scale_bits=self.config.slot_scales,
                exponent_bits=self.config.slot_exponents,
                block="block" in step.flags,
            )
        else:
            tiles = self._tiled(step, self._weights(step))
        padded = np.zeros((m, kt * rows), np.int64)
        padded[:, :k] = a
        if "lower" in step.flags:
            padded <<= pairs.HALF
            padded[:, rows - self.config.low_rows :] = a[:, : self.config.low_rows][:, ::-1]
        self._macs += m * k * n * ("b_low" not in step.flags)
        columns = tiles.reshape(nt, kt * rows, cols)
        # Exact: no sum of max_k products reaches 2**53.
        sums = (padded.astype(np.float64) @ columns.astype(np.float64)).astype(np.int64)
        self._accumulate(step, sums.transpose(1, 0, 2).reshape(m, nt * cols))

    def _sparse(self, step: Step) -> None:
        config, m, k, n = self.config, step["m"], step["k"], step["n"]
        count = code_bytes(config.sparse_lanes, step["beats"])
        code = decode(self.sp[step["b_addr"] :][:count], config.sparse_lanes, config.cols, k)
        self._macs += m * code.value.size
        self._accumulate(step, multiply(self._operands(step, "a", m, k), code, n))

    def _accumulate(self, step: Step, sums: Ints) -> None:
        """Add sums [m, n or more] to the accumulators, tile column by tile column."""
        m, n, cols = step["m"], step["n"], self.config.cols
        for tile in range(ceil_div(n, cols)):
            first, width = step["acc_addr"] + tile * step["acc_stride"], min(cols, n - tile * cols)
            part = sums[:, tile * cols : tile * cols + width]
            rows = self.acc[first : first + m, :width]
            self.acc[first : first + m, :width] = wrap(rows + part, self.config.acc_width)

    def _take(self, step: Step, name: str) -> Ints:
        """Return the m rows of n accumulators at an address of a step, [m, n], and clear them."""
        m, n, cols = step["m"], step["n"], self.config.cols
        tiles = ceil_div(n, cols)
        cells = Region("acc", step[f"{name}_addr"], step[f"{name}_stride"], tiles, m).cells()
        sums = self.acc[cells]  # [tiles, m, cols]
        self.acc[cells] = 0
        return sums.transpose(1, 0, 2).reshape(m, tiles * cols)[:, :n]

    def _wide(self, step: Step, word: int, *, per_tensor: bool) -> Ints:
        """Return m rows of n 16-bit elements, [m, n]: the input, or, with drain, accumulators.

        Those are requantized by the parameters from a word on, equation (1).
        """
        if "drain" not in step.flags:
            return self._read(step, "i", step["m"], step["n"], wide=True)
        parameters = self._params(step, word, per_tensor=per_tensor)
        values = requantize(self._take(step, "i"), *parameters, 0, -32768, 32767)
        return values.astype(np.int64)

    def _drain(self, step: Step) -> None:
        self._epilogue(step, self._take(step, "acc"))
        self._retire()

    def _map(self, step: Step) -> None:
        values = self._read(step, "i", step["m"], step["n"], "wide_in" in step.flags)
        self._epilogue(step, values - step["i_zero"])
        self._retire()

    def _softmax(self, step: Step) -> None:
        m, n = step["m"], step["n"]
        scores = self._wide(step, step["params"], per_tensor=True)
        row, column = np.arange(m)[:, None], np.arange(n)[None, :]
        start = step["start"] + row * step["start_step"]
        limit = step["limit"] + row * step["limit_step"]
        keep = (column >= start) & (column < limit)
        if "factors" in step.flags:
            p, mantissa, right = row_weights(scores, keep)  # [m, n], Q0.24
            self._keep_factors(step, mantissa, right)
        else:
            p = softmax(scores, keep)  # [m, n], Q0.24
        if "diagonal" in step.flags:
            p = p + np.where(column == step["diagonal"] + row, step["diagonal_value"], 0)
        self._epilogue(step, p, keep, first=int("drain" in step.flags))
        self._retire()

    def _norm(self, step: Step) -> None:
        m, n = step["m"], step["n"]
        x = self._wide(step, step["pre"], per_tensor=False)
        r = self._read(step, "r", m, n, wide=True) if "add" in step.flags else None
        eps = step["eps_low"] % (1 << 28) | step["eps_high"] % (1 << 28) << 28
        if "factors" in step.flags:
            mantissa, right, s = row_factors(x, r, eps=eps)
            value = s.astype(np.int64)
            self._keep_factors(step, mantissa, right)
        else:
            normalized, s = normalize(x, r, rms="rms" in step.flags, eps=eps)
            value = normalized.astype(np.int64)
        if "write_sum" in step.flags:
            self._written.append(self._write(step, "s", s.astype(np.int64), wide=True))
        self._epilogue(step, value)
        self._retire()

    def _keep_factors(self, step: Step, mantissa: Ints, right: Ints) -> None:
        """Keep the factors of rows, [m, 1] each."""
        rows = slice(step["factor"], step["factor"] + step["m"])
        self.factors[:, rows] = mantissa[:, 0], right[:, 0]

    def _load_params(self, step: Step) -> None:
        lanes, stride = self.config.lanes, self.config.param_lines * self.config.line_bytes
        for index in range(step["n"]):
            addr = step["i_addr"] + index * stride
            data = self.sp[addr : addr + PARAM_BYTES * lanes].reshape(lanes, PARAM_BYTES)
            word = step["params"] + index
            # Of a bias the lower bits are held, of a multiplier the upper ones.
            above, below = 32 - self.config.bias_width, 32 - self.config.multiplier_width
            bias = np.ascontiguousarray(data[:, 0:4]).view("<i4")[:, 0]
            multiplier = np.ascontiguousarray(data[:, 4:8]).view("<i4")[:, 0]
            self.bias[word] = bias << above >> above
            self.multiplier[word] = multiplier >> below << below
            self.shift[word] = data[:, 8].view(np.int8)
        self._retire()

    def _load_table(self, step: Step) -> None:
        data = self.sp[step["i_addr"] : step["i_addr"] + 256]
        self.tables[step["table"]] = data.view(np.int8)
        self._retire()


_RUN: dict[Opcode, Callable[[Interpreter, Step], None]] = {
    Opcode.LOAD: Interpreter._move,
    Opcode.STORE: Interpreter._move,
    Opcode.MATMUL: Interpreter._matmul,
    Opcode.SPARSE: Interpreter._sparse,
    Opcode.PRELOAD: Interpreter._preload,
    Opcode.DRAIN: Interpreter._drain,
    Opcode.MAP: Interpreter._map,
    Opcode.SOFTMAX: Interpreter._softmax,
    Opcode.NORM: Interpreter._norm,
    Opcode.PARAMS: Interpreter._load_params,
    Opcode.TABLE: Interpreter._load_table,
}
