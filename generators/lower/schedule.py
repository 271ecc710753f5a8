"""The search for the cuts, the order and the places that make a model's program fast.

Every candidate is lowered, given addresses and assembled, and its cycles are predicted
(``predict``) for an external memory of :data:`LATENCY`. Every weight is loaded once in
each candidate, so that cycles are all there is to compare. Loops cost cycles and save words, hence
the first of :data:`LOOPS` that fits is taken; in it, one choice after the other is improved.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arch.config import Config
from generators.fitting import FitError
from generators.graph import Linear, QuantizedModel
from generators.lower.assemble import TOO_LARGE, TOO_LONG, Placed, Program, Refusal, assemble, place
from generators.lower.banks import LATENCY, Timed, settle
from generators.lower.lower import Lowered, lower
from generators.lower.lowering import Limits
from generators.lower.weights import tiles_used
from generators.program.draft import LENGTH_REGISTER, row_counts
from generators.program.predict import Prediction, predict

LOOPS = (
    (False, False, False),
    (True, False, False),
    (False, True, False),
    (True, True, False),
    (True, False, True),
    (True, True, True),
)
"""Kinds of loops, in order of preference: layers, heads, parts of a product."""

SMALLEST_BLOB = 256
"""Smallest part into which a load of weights is cut (bytes)."""

SHORT = 16
"""A short input has one row in so many."""
SHORT_WEIGHT = 2
"""A short input's cycles count for one in so many of the longest one's."""

AHEAD = (8, 4, 2, 1, 0)
"""Items that a load may come ahead of its use."""

TOGETHER = (1, 2, 4, 8, 16)
"""Heads that one softmax may take at once."""
TOGETHER_FIRST = (1, 4)
"""Those with which a program is tried to fit."""

_SHARES = (8, 7, 6, 5, 4, 3, 2)
"""Eighths of a bank that loads and blocks are cut to."""

SPILL_SHARES = ((4, 8), (2, 4), (8, 16), (2, 2), (16, 32), (1, 1))
"""The parts of a bank that blocks and loads are where blocks leave the scratchpad."""
SPILL_LOOPS = LOOPS[:2]
"""Loops of such programs: in the others all blocks of a loop would be there at once."""
WHOLE_SHARES = (5, 6, 8)
"""Parts of 32 of a bank that loads are cut to where sums take all accumulators."""
SPILL_INTERVAL = 2
"""Cycles of an external word that such programs are made for, as boards' SDRAM has them."""

_TRIAL_LAYERS = 2
"""Layers of the programs that are compared; layers are alike."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The choices that make a program of a quantized model."""

    loop_layers: bool
    loop_heads: bool
    loop_parts: bool
    blob_bytes: int
    """Scratchpad bytes of one load of weights."""
    block_bytes: int
    """Scratchpad bytes of one block of a tensor."""
    together: int = 1
    """Heads whose scores one softmax takes."""
    height: int = 0
    """Rows of a chunk that norms and the products beside them are cut into; 0 for no chunks."""
    ahead: int = 0
    """Items that a load comes ahead of its use."""
    compact: bool = False
    """Zeros of weights are left out, of image and program."""
    whole: bool = False
    """Sums that are added to the stream may take all accumulators."""
    spills: bool = False
    """Blocks leave for external memory where the scratchpad has no room."""


@dataclass(frozen=True)
class Schedule:
    """A plan, and the program that it gives."""

    plan: Plan
    lowered: Lowered
    program: Program


def schedule(
    model: QuantizedModel,
    config: Config,
    *,
    batch: int = 1,
    sparse: bool = False,
    search: bool = True,
) -> Schedule:
    """Return the program of a model: the fastest found, or without ``search`` the first that fits.

    ``model`` is for ``batch`` inputs at once (:func:`generators.lower.batch.batched`).

    Raises :class:`FitError` where an operation cannot be done on the configuration, or where no
    program fits; the message is that of the attempt that came furthest.
    """
    scheduler = _Scheduler(model, config, batch, sparse=sparse)
    zeros = sparse or _has_zero_tiles(model, config)
    refusal: Refusal | None = None
    tries = [(loops, together, False) for loops in LOOPS for together in TOGETHER_FIRST]
    tries += [(loops, TOGETHER_FIRST[0], True) for loops in SPILL_LOOPS]
    for loops, together, spills in tries:
        if spills and refusal is None:
            if not any(one.stage == TOO_LARGE for one in scheduler.refusals):
                break
            refusal = _best(scheduler.refusals)
        # Iterations of a loop are alike, which tiles left out here and there are not.
        plain = not (loops[0] or loops[2])
        plans = [
            plan
            for compact in ((True, False) if zeros and plain else (False,))
            for plan in _fallbacks(loops, together, config, compact=compact, spills=spills)
        ]
        too_long: set[bool] = set()
        for plan in plans:
            if plan.compact in too_long:
                continue
            found = scheduler.try_out(plan)
            if isinstance(found, _Trial):
                # All layers may differ in more than the first ones.
                whole = scheduler.finish(found)
                if isinstance(whole, Schedule) and search:
                    whole = scheduler.finish(scheduler.rebank(scheduler.improve(found)))
                if isinstance(whole, Schedule):
                    return whole
                found = whole
            if found.stage == TOO_LONG and not spills:
                # Smaller loads would make the program longer still.
                too_long.add(plan.compact)
    refusal = refusal or _best(scheduler.refusals)
    raise FitError(refusal.text, *refusal.ways)


def _has_zero_tiles(model: QuantizedModel, config: Config) -> bool:
    """Return whether a tile of any linear layer's weights has zeros only."""
    linears = (op for op in model.ops if isinstance(op, Linear))
    return any(not tiles_used(op.weight, config.rows, config.cols).all() for op in linears)


def _fallbacks(
    loops: tuple[bool, bool, bool], together: int, config: Config, *, compact: bool, spills: bool
) -> Iterator[Plan]:
    """Yield plans of ever smaller loads, and with ``spills`` of blocks of several sizes."""
    layers, heads, parts = loops
    sizes = [(1, 1 << halvings) for halvings in range(config.bank_bytes.bit_length())]
    for block, blob in SPILL_SHARES if spills else sizes:
        if config.bank_bytes // blob >= min(SMALLEST_BLOB, config.bank_bytes):
            yield Plan(
                loop_layers=layers,
                loop_heads=heads,
                loop_parts=parts,
                blob_bytes=config.bank_bytes // blob,
                block_bytes=config.bank_bytes // block,
                together=together,
                ahead=1 if spills else AHEAD[0],
                compact=compact,
                spills=spills,
            )


def _best(refusals: Sequence[Refusal]) -> Refusal:
    """Return the refusal that came furthest."""
    return min(refusals, key=lambda refusal: (-refusal.stage, refusal.excess))


@dataclass(frozen=True)
class _Trial(Timed):
    """A plan that fits, and what it is worth."""

    plan: Plan
    placed: Placed
    program: Program
    """That of the first layers."""


class _Scheduler:
    def __init__(self, model: QuantizedModel, config: Config, batch: int, *, sparse: bool):
        self.model, self.config, self.sparse = model, config, sparse
        self.batch = batch
        self.refusals: list[Refusal] = []
        self._lowered: dict[Limits, Lowered] = {}
        self._tried: dict[tuple[object, ...], _Trial | Refusal] = {}

    def _lower(self, plan: Plan) -> Lowered:
        limits = Limits(
            blob_bytes=plan.blob_bytes,
            block_bytes=plan.block_bytes,
            height=plan.height,
            together=plan.together,
            loop_heads=plan.loop_heads,
            loop_parts=plan.loop_parts,
            barriers=plan.loop_layers or plan.loop_heads or plan.loop_parts,
            compact=plan.compact,
            sparse=plan.compact and self.sparse,
            whole=plan.whole,
        )
        if limits not in self._lowered:
            # The image of a model is large: only the last one is kept.
            self._lowered = {limits: lower(self.model, self.config, limits, self.batch)}
        return self._lowered[limits]

    def try_out(self, plan: Plan) -> "_Trial | Refusal":
        """Return the program of a plan's first layers, with loads as early as it asks, if it can.

        Where the buffers have no room, loads come later.
        """
        lowered = self._lower(plan)
        longest = max(len(section) for section in lowered.layers) - 1
        aheads = sorted({min(a, longest) for a in AHEAD if a <= plan.ahead}, reverse=True)
        for ahead in aheads:
            found = self._try_one(dataclasses.replace(plan, ahead=ahead), lowered)
            if isinstance(found, _Trial) or found.stage == TOO_LONG:
                return found
        return found

    def _try_one(self, plan: Plan, lowered: Lowered) -> "_Trial | Refusal":
        name = self.model.description.name
        placed = place(
            name,
            lowered,
            plan.ahead,
            self.config,
            loop_layers=plan.loop_layers,
            spills=plan.spills,
        )
        if isinstance(placed, Refusal):
            self.refusals.append(placed)
            return placed
        # Plans that cut nothing in another way give the same buffers.
        shape = (
            len(lowered.image),
            *sorted(placed.addresses.items()),
            *sorted(lowered.sizes.items()),
        )
        loops = plan.loop_layers, plan.loop_heads, plan.loop_parts
        key = *loops, plan.height, plan.together, plan.ahead, plan.whole, shape
        if key not in self._tried:
            program = assemble(placed, self.config, _TRIAL_LAYERS)
            if isinstance(program, Refusal):
                self.refusals.append(program)
                self._tried[key] = program
            else:
                self._tried[key] = self._trial(plan, placed, program)
        return self._tried[key]

    def _trial(self, plan: Plan, placed: Placed, program: Program) -> _Trial:
        model = self.model.description

        def expect(length: int) -> Prediction:
            registers = {LENGTH_REGISTER: length, **row_counts(placed.lowered.rows, length)}
            interval = SPILL_INTERVAL if plan.spills else 1
            return predict(
                program.words,
                self.config,
                latency=LATENCY,
                interval=interval,
                registers=registers,
            )

        short = expect(max(model.sequence // SHORT, 1)).cycles if model.variable else 0
        whole = expect(model.sequence)
        cost = whole.cycles + short // SHORT_WEIGHT, len(program.words)
        addresses, drafts = placed.addresses, program.drafts
        return _Trial(addresses, drafts, whole.timeline, cost, plan, placed, program)

    def rebank(self, best: _Trial) -> _Trial:
        """Return the best trial that moving buffers to other banks leads to."""
        if best.placed.spilled:
            return best

        def moved(trial: _Trial, addresses: Mapping[str, int]) -> _Trial | None:
            placed = dataclasses.replace(trial.placed, addresses=addresses)
            changed = assemble(placed, self.config, _TRIAL_LAYERS)
            return (
                None if isinstance(changed, Refusal) else self._trial(trial.plan, placed, changed)
            )

        placed = best.placed
        return settle(best, placed.used, placed.lowered.sizes, self.config, moved)

    def improve(self, best: _Trial) -> _Trial:
        """Return the best trial that changing one choice after the other leads to."""
        bank = self.config.bank_bytes
        shares = [bank * share // 8 for share in _SHARES]
        rows = self.model.stream.rows
        heights = [-(-rows // count) for count in (2, 4) if rows // count >= self.config.rows]
        axes: tuple[list[dict[str, Any]], ...] = (
            [{"compact": False}],
            [{"blob_bytes": share, "ahead": AHEAD[0]} for share in shares],
            [{"together": count, "ahead": AHEAD[0]} for count in TOGETHER],
            [{"height": height, "ahead": AHEAD[0]} for height in heights],
            [{"block_bytes": share, "ahead": AHEAD[0]} for share in shares[1:5]],
            [{"ahead": ahead} for ahead in AHEAD],
        )
        if best.plan.spills:
            blocks = [{"block_bytes": bank * share // 16} for share in (2, 3, 6)]
            parts = [bank * share // 32 for share in WHOLE_SHARES]
            wholes = [{"blob_bytes": size, "whole": True} for size in parts]
            axes = (blocks, wholes, axes[1], [{"ahead": ahead} for ahead in (0, 2, 4)])
        for changes in axes:
            start = best
            for change in changes:
                found = self.try_out(dataclasses.replace(start.plan, **change))
                if isinstance(found, _Trial) and found.cost < best.cost:
                    best = found
        return best

    def finish(self, best: _Trial) -> Schedule | Refusal:
        """Return the whole program of a trial, or why there is none."""
        program: Program | Refusal = best.program
        if len(best.placed.lowered.layers) > _TRIAL_LAYERS:
            program = assemble(best.placed, self.config)
        if isinstance(program, Refusal):
            self.refusals.append(program)
            return program
        return Schedule(best.plan, best.placed.lowered, program)
