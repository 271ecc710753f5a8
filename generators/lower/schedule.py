"""Search for the tiling, order and addresses that make an encoder's program fast.

Loops cost cycles and save program words, so the first entry of :data:`LOOPS` that fits is used.
Then one choice after another is improved (:mod:`celosia.generators.lower.search`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.assemble import TOO_LARGE, Refusal
from celosia.generators.lower.blocks import blocks_of
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

RELOAD_SHARES = ((2, 1), (2, 2), (4, 2), (4, 4), (8, 8), (16, 16))
"""Fractions of a bank for blocks and loads if each part of a product loads the input again."""
RELOAD_LOOPS = LOOPS[0], LOOPS[4]
"""Loops of such programs: in others iterations are not those of a product."""
SPILL_SHARES = ((4, 8), (2, 4), (8, 16), (2, 2), (16, 32), (1, 1), (1, 8))
"""Fractions of a bank for blocks and loads if blocks leave the scratchpad."""
SPILL_LOOPS = (*LOOPS[:2], LOOPS[-1])
"""Loops of such programs. All blocks of a loop of heads or parts are needed at once."""


def schedule(
    model: QuantizedModel,
    config: Config,
    *,
    batch: int = 1,
    sparse: bool = False,
    search: bool = True,
) -> Trial:
    """Return the fastest program found for an encoder, or without ``search`` the first.

    ``model`` is for ``batch`` inputs at once (:func:`celosia.generators.lower.batch.batched`).
    Raises :class:`FitError` if the configuration does not support an operation, or if no program
    fits. The message is from the attempt that was closest to fitting.
    """
    scheduler = Search(model, config, batch)
    zeros = sparse or _has_zero_tiles(model, config)
    series = partial(_series, config, zeros=zeros, sparse=sparse)
    plain = [series(loops, together) for loops in LOOPS for together in _together(loops)]
    chosen = _first(scheduler, plain, search=search)
    refusals, scheduler.refusals = scheduler.refusals, []
    entry = blocks_of(model, config.bank_bytes // RELOAD_SHARES[0][0], config)[model.input.buffer]
    if chosen is None and entry.column_step < entry.columns:
        again = [series(loops, 1, reloads=True) for loops in RELOAD_LOOPS]
        chosen = _first(scheduler, again, search=search)
    if chosen is None and any(refused.stage == TOO_LARGE for refused in refusals):
        spilled = [series(loops, TOGETHER_FIRST[0], spills=True) for loops in SPILL_LOOPS]
        chosen = _first(scheduler, spilled, search=search)
    if chosen is None and any(
        refused.stage == TOO_LARGE and refused.hopeless for refused in refusals
    ):
        # The sentence is that of the smallest loads.
        scheduler.patient, scheduler.refusals = True, []
        chosen, refusals = _first(scheduler, plain, search=search), scheduler.refusals
    if chosen is not None:
        return _keeping(scheduler, chosen, search=search)
    # The attempt that got furthest.
    refusal = min(refusals, key=lambda refusal: (-refusal.stage, refusal.excess))
    raise FitError(refusal.text, *refusal.remedies)


def _first(scheduler: Search, tries: Sequence[Sequence[Choices]], *, search: bool) -> Trial | None:
    """Return the whole program of the first plan that fits, improved if asked, or None.

    Each series of plans has ever smaller loads.
    """
    for plans in tries:
        ended, excess = list[Choices](), 0
        for plan in plans:
            if any(plan.is_smaller(other) for other in ended):
                continue
            trial = scheduler.try_out(plan)
            if isinstance(trial, Trial):
                # Layers that are not alike may differ in more than the first ones.
                whole = trial if scheduler.alike and search else scheduler.finish(trial)
                if isinstance(whole, Trial) and search:
                    whole = scheduler.finish(scheduler.rebank(scheduler.improve(trial)))
                if isinstance(whole, Trial):
                    return whole
                trial = whole
            if scheduler.ends(plan, trial) or (scheduler.patient and trial.excess == excess):
                ended.append(plan)
            excess = trial.excess
    return None


def _together(loops: tuple[bool, bool, bool]) -> tuple[int, ...]:
    """Return the heads whose scores one softmax takes at first: one where these are in a loop."""
    return TOGETHER_FIRST[:1] if loops[1] or loops[2] else TOGETHER_FIRST


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


def _series(
    config: Config,
    loops: tuple[bool, bool, bool],
    together: int,
    *,
    zeros: bool,
    sparse: bool,
    reloads: bool = False,
    spills: bool = False,
) -> list[Choices]:
    """Return plans of ever smaller loads, and with ``spills`` of blocks of several sizes.

    With ``zeros`` those that leave zeros out come first, but not in loops: iterations are alike,
    which tiles left out here and there are not.
    """
    layers, heads, parts = loops
    sizes = [(1, 1 << halvings) for halvings in range(config.bank_bytes.bit_length())]
    return [
        Choices(
            loop_layers=layers,
            loop_heads=heads,
            loop_parts=parts,
            blob_bytes=config.bank_bytes // blob,
            block_bytes=config.bank_bytes // block,
            together=together,
            ahead=1 if spills else AHEAD[0],
            compact=compact,
            sparse=sparse,
            reloads=reloads,
            spills=spills,
        )
        for compact in ((True, False) if zeros and not (layers or parts) else (False,))
        for block, blob in (SPILL_SHARES if spills else RELOAD_SHARES if reloads else sizes)
        if config.bank_bytes // blob >= min(SMALLEST_BLOB, config.bank_bytes)
    ]
