"""Executes the matrix engine's instructions on the golden machine's memories."""

import numpy as np

from celosia.arch.formats import index_of
from celosia.arch.sparse import code_bytes
from celosia.sim import blocks, pairs
from celosia.sim.flow import Step
from celosia.sim.formats import unpack
from celosia.sim.matmul import append, held, parts_of_wide, place, words_with_scales, wrap
from celosia.sim.memories import Ints, Memories
from celosia.sim.regions import ceil_div, stored_rows
from celosia.sim.sparse import decode, multiply


class MatrixSteps(Memories):
    """Part of the golden machine that executes the instructions MATMUL, SPARSE and PRELOAD."""

    def _operands(self, step: Step, name: str, m: int, n: int) -> Ints:
        """Return m rows of n operands minus their zero point; the array sees only low bits."""
        return (
            wrap(self._read(step, name, m, n), self.config.array.operand_width)
            - step[f"{name}_zero"]
        )

    def _rows(self, step: Step) -> Ints:
        """Return A minus its zero point, [m, k]; INT16 by equation (19)."""
        if "a_wide" not in step.flags:
            return self._operands(step, "a", step["m"], step["k"])
        a = self._read(step, "a", step["m"], step["k"], wide=True)
        return parts_of_wide(a)[0] if "b_low" in step.flags else a

    def _weights(self, step: Step) -> Ints:
        """Return B minus its zero point, [k, n], or one byte of INT16 by equation (19)."""
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
            return words_with_scales(stored, self.config.array.rows, self.config.slot_scales)
        return self._operands(step, "b", k, n)

    def _tiled(self, step: Step, b: Ints) -> Ints:
        """Return B [k, n] padded with zeros and cut into tiles, [nt, kt, rows, cols]."""
        rows, cols = self.config.array.rows, self.config.array.cols
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
            b = blocks.pack_mantissas(first, second, config.array.cols, above, config.slot_scales)
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
        rows, cols = self.config.array.rows, self.config.array.cols
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
        code = decode(self.sp[step["b_addr"] :][:count], config.sparse_lanes, config.array.cols, k)
        self._macs += m * code.value.size
        self._accumulate(step, multiply(self._operands(step, "a", m, k), code, n))

    def _accumulate(self, step: Step, sums: Ints) -> None:
        """Add sums [m, n or more] to the accumulators, tile column by tile column."""
        m, n, cols = step["m"], step["n"], self.config.array.cols
        for tile in range(ceil_div(n, cols)):
            first, width = step["acc_addr"] + tile * step["acc_stride"], min(cols, n - tile * cols)
            part = sums[:, tile * cols : tile * cols + width]
            rows = self.acc[first : first + m, :width]
            self.acc[first : first + m, :width] = wrap(rows + part, self.config.accumulators.width)
