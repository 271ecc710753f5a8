"""The search for the cuts, the order and the places that make a model's program fast.

Loops cost cycles and save words, so the first of :data:`LOOPS` that fits is used; then one choice
after another is improved (:mod:`celosia.generators.lower.search`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.assemble import TOO_LARGE, TOO_LONG, Refusal
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.residence import weight_homes
from celosia.generators.lower.search import AHEAD, Search, Trial
from celosia.generators.lower.weights import tiles_used

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

TOGETHER_FIRST = (1, 4)
"""Numbers of heads with which a program is first tried."""

SPILL_SHARES = ((4, 8), (2, 4), (8, 16), (2, 2), (16, 32), (1, 1))
"""Fractions of a bank for blocks and loads if blocks leave the scratchpad."""
SPILL_LOOPS = LOOPS[:2]
"""Loops of such programs: in others all blocks of a loop would be needed at once."""


def schedule(
    model: QuantizedModel,
    config: Config,
    *,
    batch: int = 1,
    sparse: bool = False,
    search: bool = True,
) -> Trial:
    """Return the program of a model: the fastest found, or without ``search`` the first that fits.

    ``model`` is for ``batch`` inputs at once (:func:`celosia.generators.lower.batch.batched`).
    Raises :class:`FitError` if an operation cannot be done on the configuration, or if no program
    fits; the message is that of the attempt that got furthest.
    """
    scheduler = Search(model, config, batch)
    zeros = sparse or _has_zero_tiles(model, config)
    refusal: Refusal | None = None
    tries = [(loops, together, False) for loops in LOOPS for together in TOGETHER_FIRST]
    tries += [(loops, TOGETHER_FIRST[0], True) for loops in SPILL_LOOPS]
    for loops, together, spills in tries:
        if spills and refusal is None:
            if not any(refused.stage == TOO_LARGE for refused in scheduler.refusals):
                break
            refusal = _best(scheduler.refusals)
        # Iterations of a loop are alike, which tiles left out here and there are not.
        plain = not (loops[0] or loops[2])
        plans = [
            plan
            for compact in ((True, False) if zeros and plain else (False,))
            for plan in _fallbacks(
                loops, together, config, compact=compact, spills=spills, sparse=sparse
            )
        ]
        too_long: set[bool] = set()
        for plan in plans:
            if plan.compact in too_long:
                continue
            trial = scheduler.try_out(plan)
            if isinstance(trial, Trial):
                # All layers may differ in more than the first ones.
                whole = scheduler.finish(trial)
                if isinstance(whole, Trial) and search:
                    whole = scheduler.finish(scheduler.rebank(scheduler.improve(trial)))
                if isinstance(whole, Trial):
                    return _keeping(scheduler, whole, search=search)
                trial = whole
            if trial.stage == TOO_LONG and not spills:
                # Smaller loads would make the program longer still.
                too_long.add(plan.compact)
    refusal = refusal or _best(scheduler.refusals)
    raise FitError(refusal.text, *refusal.remedies)


def _keeping(scheduler: Search, best: Trial, *, search: bool) -> Trial:
    """Return the trial with weights that stay on the chip, if possible and if no run takes longer.

    These runs are those after the first one. Programs of loops, or whose blocks leave, keep
    nothing. Nor do those of nested weights, since each run may read other bits.
    """
    linears = [op for op in scheduler.model.ops if isinstance(op, Linear)]
    if best.plan.loops or best.plan.spills or is_nested(scheduler.model):
        return best
    kept = []
    for home in weight_homes(linears, scheduler.config)[:-1]:
        trial: Trial | Refusal = scheduler.try_out(replace(best.plan, home=home))
        if isinstance(trial, Trial):
            trial = scheduler.finish(scheduler.rebank(trial) if search else trial)
        if isinstance(trial, Trial) and trial.cycles <= best.cycles:
            kept.append(trial)
    return min(kept, key=lambda fitting: fitting.cycles, default=best)


def _has_zero_tiles(model: QuantizedModel, config: Config) -> bool:
    """Return whether a tile of any linear layer's weights has zeros only."""
    linears = (op for op in model.ops if isinstance(op, Linear))
    return any(
        not tiles_used(op.weight, config.array.rows, config.array.cols).all() for op in linears
    )


def _fallbacks(
    loops: tuple[bool, bool, bool],
    together: int,
    config: Config,
    *,
    compact: bool,
    spills: bool,
    sparse: bool,
) -> Iterator[Choices]:
    """Yield plans of ever smaller loads, and with ``spills`` of blocks of several sizes."""
    layers, heads, parts = loops
    sizes = [(1, 1 << halvings) for halvings in range(config.bank_bytes.bit_length())]
    for block, blob in SPILL_SHARES if spills else sizes:
        if config.bank_bytes // blob >= min(SMALLEST_BLOB, config.bank_bytes):
            yield Choices(
                loop_layers=layers,
                loop_heads=heads,
                loop_parts=parts,
                blob_bytes=config.bank_bytes // blob,
                block_bytes=config.bank_bytes // block,
                together=together,
                ahead=1 if spills else AHEAD[0],
                compact=compact,
                sparse=sparse,
                spills=spills,
            )


def _best(refusals: Sequence[Refusal]) -> Refusal:
    """Return the refusal of the attempt that got furthest."""
    return min(refusals, key=lambda refusal: (-refusal.stage, refusal.excess))
