"""Random commands for the vector engine's front ends, each with the results of the golden models.

A front end is a circuit that executes the first part of a MAP, SOFTMAX or NORM command. The bench
of the front ends runs these commands.
"""

from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.isa import FACTOR_SHIFT
from celosia.hdl.vector.beats import beat_layout
from celosia.hdl.vector.decode import flag_layout, opcode_layout
from celosia.sim.norm import normalize, row_factors
from celosia.sim.softmax import row_weights, softmax
from celosia.tb.benches.bench_addnorm import beats_of, masks_of, random_rows
from celosia.tb.machine.packing import pack

Ints = NDArray[np.int64]
MOST_ROWS, MOST_MATRICES = 7, 4
FARTHEST = 1 << 14
"""Largest random step from row to row of a softmax's first and last column."""
POWERS = tuple(1 << bit for bit in range(3, 18))
"""Further steps, each a power of two: the numbers of two rows' columns differ in one bit."""


@dataclass
class Work:
    """Test case of the vector engine's front ends: a command, or overlapping SOFTMAX commands.

    Front ends execute the first part of MAP, SOFTMAX and NORM commands. The lists ``fields`` and
    ``beats`` have one element for each command. Each other list joins the elements of all commands.
    """

    opcode: str
    flags: tuple[str, ...] = ()
    fields: list[dict[str, int]] = field(default_factory=list)
    """Values of each command's fields by name; fields that a dictionary lacks are random."""
    beats: list[list[int]] = field(default_factory=list)
    """Input beats of each command."""
    second: list[int] = field(default_factory=list)
    """Beats of a NORM's second input, the stream ``r``."""
    expected: list[tuple[list[int | None], int]] = field(default_factory=list)
    """Output beats: each lane's value (None if it is not compared), and a mask with a bit for each
    lane. If the bit is 0, the back end will write the zero point of the output."""
    sums: list[list[int]] = field(default_factory=list)
    """Beats of a NORM's output ``o_sum``: the elements that it normalizes."""
    factors: list[tuple[int | None, int, int]] = field(default_factory=list)
    """Row factors: index at which a SOFTMAX stores it (None for NORM), mantissa, right shift."""


class Drawn:
    """Generator of random commands for a configuration, each with the results of a golden model."""

    def __init__(self, config: Config, random: np.random.Generator):
        self.config, self.random = config, random
        self.layout = beat_layout(config.access)
        self.powers = cycle((power, side) for power in POWERS for side in range(2))

    def draw(self) -> Work:
        """Return a random test case for the vector engine's front ends.

        The test case has a MAP, one or several SOFTMAXes, a NORM, or a command that no front end
        executes. SOFTMAX and NORM occur only if the configuration has their units.
        """
        kinds = [self.map, *[self.softmax] * bool(self.config.softmax)]
        kinds += [self.norm] * bool(self.config.vector.norm) + [self.others]
        return kinds[self.random.integers(len(kinds))]()

    def others(self) -> Work:
        """Return a test case with a random vector engine command that no front end executes.

        Front ends execute only MAP, SOFTMAX and NORM. During any other command they must accept no
        input and output nothing, so the test case has neither input nor output.
        """
        fronts = {"map", "softmax", "norm"}
        names = sorted(set(opcode_layout().members) - fronts)
        return Work(str(self.random.choice(names)), self._flags("wide_in", "add", "diagonal"))

    def map(self) -> Work:
        """Return a test case with one random MAP command for 8-bit or 16-bit input elements."""
        lanes, random = self.config.vector.lanes, self.random
        work = Work("map", self._flags("wide_in", "rms", "diagonal"))
        bytes_each = 2 if "wide_in" in work.flags else 1
        zero = int(random.integers(-128, 128))
        work.fields.append({"i_zero": zero})
        work.beats.append([])
        low = -(1 << 8 * bytes_each - 1)
        for _ in range(int(random.integers(1, 20))):
            row = random.integers(low, -low, lanes)
            work.beats[0].append(self._beat(row, lanes, False, bytes_each))
            # A lane at the end of a beat of fewer lanes than SOFTMAX has no element.
            spare: list[int | None] = [None] * (self.config.beat_lanes - lanes)
            keep = (1 << self.config.beat_lanes) - 1
            work.expected.append(([*(row - zero).tolist(), *spare], keep))
        return work

    def softmax(self) -> Work:
        """Return a test case of up to ``MOST_MATRICES`` SOFTMAX commands, each for a random matrix.

        The bench starts each command without waiting for the end of the previous command.
        """
        random, lanes, factors = self.random, self.config.beat_lanes, self.config.row_factors
        drains = ["drain"] * int(self.config.fused is not None and random.random() < 0.5)
        several = int(random.choice([1, random.integers(1, MOST_MATRICES + 1)]))
        diagonal = [] if several > 1 else list(self._flags("diagonal"))
        work = Work("softmax", (*drains, *diagonal))
        # Far apart, the rows' windows reach all bits of a column's number.
        most = int(random.choice([4, FARTHEST]))
        steps = [int(random.integers(-most, most)) for _ in range(2)]
        power = random.random() < 0.75
        if power:
            distance, side = next(self.powers)
            steps = [0, 0]
            steps[side] = distance * int(random.choice([-1, 1]))
        start_step, limit_step = steps
        place, value = int(random.integers(-4, 20)), int(random.integers(-(1 << 27), 1 << 27))
        for _ in range(several):
            n = int(random.integers(1, self.config.vector.longest_row + 1))
            n = min(n, int(random.choice([2 * lanes, 6 * lanes])))
            if power:
                # The middle one of three rows has columns inside its window, and some outside.
                m, n = 3, max(n, 2)
                first = int(random.integers(n))
                start = first - start_step
                limit = int(random.integers(first + 1, n + (first > 0))) - limit_step
            else:
                m = int(random.integers(1, MOST_ROWS + 1))
                start = int(random.integers(-6, n)) - start_step * int(random.integers(m))
                limit = int(random.integers(1, n + 6)) - limit_step * int(random.integers(m))
            number = int(random.integers(factors)) if factors else 0
            work.fields.append(
                {
                    **{"start_step": start_step, "limit_step": limit_step},
                    **{"start": start, "limit": limit, "n": n, "params": number << FACTOR_SHIFT},
                    **{"diagonal": place, "diagonal_value": value},
                }
            )
            span = int(random.choice([8, 500, 32768]))
            scores = random.integers(-span, span, (m, n))
            row, column = np.ogrid[:m, :n]
            keep = (column >= start + start_step * row) & (column < limit + limit_step * row)
            p, mantissa, right = (
                row_weights(scores, keep) if factors else (softmax(scores, keep), None, None)
            )
            work.beats.append(self._rows(scores, lanes))
            if mantissa is not None and right is not None:
                work.factors += [
                    ((number + index) % factors, int(mantissa[index, 0]), int(right[index, 0]))
                    for index in range(m)
                ]
            padding = -n % lanes
            wide = np.pad(p, ((0, 0), (0, padding)))
            kept = np.pad(keep, ((0, 0), (0, padding)))
            if diagonal:
                columns = np.arange(n + padding)
                wide = wide + value * (columns == place + np.arange(m)[:, None])
            values, masks = wide.reshape(-1, lanes), kept.reshape(-1, lanes)
            bits = (masks << np.arange(lanes)).sum(axis=1)
            work.expected += list(zip(values.tolist(), bits.tolist(), strict=True))
        return work

    def norm(self) -> Work:
        """Return a test case with one random NORM command.

        If the command has the flag ``add``, it adds the rows of two inputs and normalizes the sums;
        otherwise it normalizes the rows of one input.
        """
        random, lanes = self.random, self.config.vector.lanes
        fused = ["drain"] * int(self.config.fused is not None and random.random() < 0.5)
        # Row factors are those of RMS norms only.
        rms = ["rms"] * int(bool(self.config.row_factors) or random.random() < 0.5)
        work = Work("norm", (*fused, *rms, *self._flags("add")))
        n = int(random.choice([1, random.integers(1, self.config.vector.longest_row + 1)]))
        m = int(random.integers(1, 2 + 20 * lanes // n))
        eps = int(random.integers(1 << 56)) >> int(random.integers(57))
        low, high = eps & (1 << 28) - 1, eps >> 28
        work.fields.append({"n": n, "eps_low": low, "eps_high": high})
        x, r = random_rows(random, m, n), random_rows(random, m, n)
        work.beats.append(self._rows(x, lanes))
        second = r if "add" in work.flags else None
        if second is not None:
            work.second = self._rows(second, lanes)
        if self.config.row_factors:
            mantissa, right, s = row_factors(x, second, eps=eps)
            value = s.astype(np.int64)
            work.factors = [
                (None, int(a), int(b) if a else 0)
                for a, b in zip(mantissa[:, 0], right[:, 0], strict=True)
            ]
        else:
            normalized, s = normalize(x, second, rms=bool(rms), eps=eps)
            value = normalized.astype(np.int64)
        masks, _ = masks_of(m, n, lanes)
        spare: list[int | None] = [None] * (self.config.beat_lanes - lanes)
        for values, sums, mask in zip(
            beats_of(value, lanes), beats_of(s.astype(np.int64), lanes), masks, strict=True
        ):
            kept = [mask >> lane & 1 for lane in range(lanes)]
            lane_values = [a if b else None for a, b in zip(values.tolist(), kept, strict=True)]
            work.expected.append(([*lane_values, *spare], mask))
            work.sums.append([a * b for a, b in zip(sums.tolist(), kept, strict=True)])
        return work

    def _flags(self, *names: str) -> tuple[str, ...]:
        """Return a random part of flags that the machine has."""
        have = flag_layout().members
        return tuple(name for name in names if name in have and self.random.random() < 0.5)

    def _rows(self, rows: Ints, lanes: int) -> list[int]:
        """Return the beats of rows of 16-bit elements."""
        masks, lasts = masks_of(*rows.shape, lanes)
        beats = beats_of(rows, lanes)
        counts = [mask.bit_count() for mask in masks]
        return [
            self._beat(beat, count, bool(last), 2, index == len(beats) - 1)
            for index, (beat, count, last) in enumerate(zip(beats, counts, lasts, strict=True))
        ]

    def _beat(self, row: Ints, count: int, row_last: bool, width: int, last: bool = False) -> int:
        """Return a beat's bits; bytes after its elements are random."""
        bytes_ = self.random.integers(0, 256, self.config.line_bytes).astype(np.uint8)
        content = row.astype(f"<i{width}").tobytes()
        bytes_[: len(content)] = np.frombuffer(content, np.uint8)
        fields = {"count": count, "row_last": int(row_last), "last": int(last)}
        tile_last = int(self.random.integers(2))
        return pack(self.layout, {"data": bytes_.tolist(), "tile_last": tile_last, **fields})
