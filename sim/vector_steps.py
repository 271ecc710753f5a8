"""Executes the vector engine's instructions on the golden machine's memories."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.isa import Opcode
from celosia.arch.vector_config import PARAM_BYTES
from celosia.sim.flow import Step
from celosia.sim.memories import Ints, Memories
from celosia.sim.norm import normalize, row_factors
from celosia.sim.polynomial import evaluate_table
from celosia.sim.regions import Region, ceil_div, pair_places
from celosia.sim.requantize import requantize, saturate16, times_factor
from celosia.sim.rotary import rotate, times
from celosia.sim.softmax import row_weights, softmax


class VectorSteps(Memories):
    """Part of the golden machine that executes DRAIN, MAP, SOFTMAX, NORM, PARAMS and TABLE."""

    def _params(
        self, step: Step, word: int, *, per_tensor: bool = False
    ) -> tuple[Ints, Ints, Ints]:
        """Return bias, multiplier and shift of each column, [n] each, from a parameter word on.

        With per_row they are those of each row, [m, n].
        """
        config, n = self.config, step["n"]
        column = np.arange(n)
        if step.opcode == Opcode.DRAIN:
            inside = column % config.array.cols
            group = column // config.array.cols * config.lane_groups + inside // config.vector.lanes
            lane = inside % config.vector.lanes
        else:
            group, lane = np.divmod(column, config.vector.lanes)
        words = word + (np.zeros(n, np.int64) if per_tensor else group)
        if "per_row" in step.flags:
            words = words + np.arange(step["m"])[:, None]
            lane = np.broadcast_to(lane, words.shape)
        bias, multiplier = self.bias[words, lane], self.multiplier[words, lane]
        shift = self.shift[words, lane]
        if step.opcode == Opcode.DRAIN and "factors" in step.flags:
            numbers = np.arange(step["m"])[:, None]
            if "by_tile" in step.flags:
                numbers = column // config.array.cols
            factors = self.factors[:, step["factor"] + numbers]
            multiplier, shift = times_factor(multiplier, shift, *factors)
        return bias, multiplier, shift

    def _epilogue(
        self, step: Step, values: Ints, keep: NDArray[np.bool_] | None = None, first: int = 0
    ) -> None:
        """Requantize values [m, n] and write them: equations (2), (9), (10) and (17).

        The output is its zero point if ``keep`` [m, n] is false.
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
            out = out.reshape(-1, config.array.cols)
        self._written.append(self._write(step, "o", out, wide))

    def _find_largest(self, step: Step, out: Ints) -> None:
        """Keep the largest of elements [n] and its column, unless an earlier step's is larger."""
        column = int(np.argmax(out))  # the first of several
        if not step["table"] or out[column] > self.argmax_value:
            self.argmax = step["table"] + column
            self.argmax_value = int(out[column])

    def _take(self, step: Step, name: str) -> Ints:
        """Return m rows of n accumulators at a step's address, [m, n], and clear them."""
        m, n, cols = step["m"], step["n"], self.config.array.cols
        tiles = ceil_div(n, cols)
        cells = Region("acc", step[f"{name}_addr"], step[f"{name}_stride"], tiles, m).cells()
        sums = self.acc[cells]  # [tiles, m, cols]
        self.acc[cells] = 0
        return sums.transpose(1, 0, 2).reshape(m, tiles * cols)[:, :n]

    def _wide(self, step: Step, word: int, *, per_tensor: bool) -> Ints:
        """Return m rows of n 16-bit elements, [m, n]: the input or, with drain, accumulators.

        Accumulators are requantized with the parameters from a word on, equation (1).
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
        """Store the factors of rows, [m, 1] each."""
        rows = slice(step["factor"], step["factor"] + step["m"])
        self.factors[:, rows] = mantissa[:, 0], right[:, 0]

    def _load_params(self, step: Step) -> None:
        lanes, stride = self.config.vector.lanes, self.config.param_lines * self.config.line_bytes
        for index in range(step["n"]):
            addr = step["i_addr"] + index * stride
            data = self.sp[addr : addr + PARAM_BYTES * lanes].reshape(lanes, PARAM_BYTES)
            word = step["params"] + index
            # The lower bits of a bias and the upper bits of a multiplier are stored.
            above, below = (
                32 - self.config.vector.bias_width,
                32 - self.config.vector.multiplier_width,
            )
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
