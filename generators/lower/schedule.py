"""Search for a fast program of an encoder, over tilings, loops, loads and addresses.

:data:`LOOPS` has combinations of loops, such as a loop over layers. The search uses the first
combination with which a program fits the machine. Then :mod:`celosia.generators.lower.search`
improves the other settings.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.assembly import first_fit, settle
from celosia.generators.lower.blocks import blocks_of
from celosia.generators.lower.checks import checked_graph
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.fitting import FitError, Reason, doubled
from celosia.generators.lower.residence import Cache, WeightHome, weight_homes
from celosia.generators.lower.search import AHEAD, PlacedTrial, Search
from celosia.generators.lower.weights import (
    PRODUCT_WORDS,
    WeightRectangle,
    tiles_held,
    tiles_used,
    weights_used,
)
from celosia.generators.program.executable import AGAIN, ENCODE

LOOPS = (
    (False, False, False),
    (True, False, False),
    (False, True, False),
    (True, True, False),
    (True, False, True),
    (True, True, True),
)
"""Combinations of loops, the preferred one first.

Each has three booleans: loop over layers, loop over attention heads, loop over a product's parts.
"""

RATIOS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Least ratios of cycles to words of zeros that are left out; the first that fits is used."""

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
PASS_SHARES = tuple((1, Fraction(8, eighths)) for eighths in (8, 7, 6, 4))
"""The same fractions if tensors between products pass through external memory as well."""
PASS_LOOPS = LOOPS[4:]


def schedule(
    model: QuantizedModel,
    config: Config,
    *,
    batch: int = 1,
    sparse: bool = False,
    search: bool = True,
    spills: bool = True,
) -> PlacedTrial:
    """Return the fastest program found for an encoder, with its addresses and predicted cycles.

    - ``batch``: number of inputs in a run. ``model`` must be made for this number.
    - ``sparse``: true to allow sparse weight matrices.
    - ``search``: false to return the first program that fits.
    - ``spills``: true to also try programs that move tensors to external memory.

    Raises :class:`FitError` if no program fits.
    """
    model = checked_graph(model, config, Cache(model.places, 0))
    scheduler = Search(model, config, batch)
    plain, tight, again, spilled = first_plans(model, config, sparse=sparse)
    refusals = list[FitError]()
    size = _largest_bytes(model)
    if not spills and size > config.scratchpad.bytes:
        text = (
            f"Model {model.description.name} needs at least {size} scratchpad bytes, but "
            f"scratchpad_bytes is {config.scratchpad.bytes}"
        )
        changes = doubled(config, "scratchpad_bytes", size)
        refusals, plain = [FitError(text, changes, reason=Reason.TOO_LARGE, excess=size)], []
    chosen = _first(scheduler, plain, refusals, search=search)
    final = (refusal.hopeless and (not spills or _is_far(refusal, config)) for refusal in refusals)
    if chosen is None and plain and not all(final):
        chosen = _first(scheduler, tight, refusals, search=search)
    if chosen is None:
        chosen = _first(scheduler, again, [], search=search)
    large = [refused for refused in refusals if refused.reason == Reason.TOO_LARGE]
    if chosen is None and spills and large:
        chosen = _first(scheduler, spilled, [], search=search)
    if chosen is None and spills and any(refused.hopeless for refused in large):
        # The sentence is that of the smallest loads.
        scheduler.patient, refusals = True, []
        chosen = _first(scheduler, plain, refusals, search=search)
    if chosen is not None:
        return _keeping(scheduler, chosen, search=search)
    # The attempt that got furthest.
    raise min(refusals, key=lambda refusal: (-refusal.reason, refusal.excess))


def _largest_bytes(model: QuantizedModel) -> int:
    """Return the bytes of a linear layer's operand and result, of the layer with the most of them.

    Both are in the scratchpad at once if no block is moved. The last layer is not counted: its
    result may be stored column by column.
    """
    linears = (op for op in model.linears if op.target != model.output)
    pairs = (
        {op.source.buffer: op.source.bytes, op.target.buffer: op.target.bytes} for op in linears
    )
    return max((sum(pair.values()) for pair in pairs), default=0)


def _is_far(refusal: FitError, config: Config) -> bool:
    """Return whether a program is too long even if its loops had half of the words.

    An iteration whose loads run beside products has two parts of a product, and otherwise one.
    """
    return refusal.reason == Reason.TOO_LONG and refusal.excess > 2 * config.control.program_depth


def first_plans(
    model: QuantizedModel, config: Config, *, sparse: bool
) -> tuple[list[list[Choices]], ...]:
    """Return the compiler settings with which the search for an encoder's program begins.

    The result has four lists of series. A series is a list of settings with the same loops.

    - List 0: all tensors stay in the scratchpad.
    - List 1: as list 0, with less scratchpad room for weights.
    - List 2: each part of a product loads the model's input again.
    - List 3: tensors move to external memory if the scratchpad is full.
    """
    ratios = [_ratios(model, config, looped=looped) for looped in (False, True)]
    ratios[0] = ratios[0] or [1] * sparse
    series = partial(_series, config, ratios=ratios, sparse=sparse)
    buffers = blocks_of(model, config.bank_bytes // RELOAD_SHARES[0][0], config)
    passing = any(blocks.passes for blocks in blocks_of(model, config.bank_bytes, config).values())
    spilled = [series(loops, TOGETHER_FIRST[0], spills=True) for loops in SPILL_LOOPS]
    spilled[2:2] = [series(loops, 1, reloads=True, spills=True) for loops in PASS_LOOPS if passing]
    plain = [series(loops, together) for loops in LOOPS for together in _together(loops)]
    return (
        plain,
        [series(loops, TOGETHER_FIRST[0], piped=False) for loops in LOOPS if loops[2]],
        [
            series(loops, 1, reloads=True)
            for loops in RELOAD_LOOPS
            if buffers[model.input.buffer].in_columns
        ],
        spilled,
    )


def _first(
    scheduler: Search,
    tries: Sequence[Sequence[Choices]],
    refusals: list[FitError],
    *,
    search: bool,
) -> PlacedTrial | None:
    """Return the whole program of the first plan that fits, improved if asked, or None.

    Each series of plans has ever smaller loads. The reasons against plans are added to
    ``refusals``.
    """

    def fitting(plan: Choices) -> PlacedTrial:
        trial = scheduler.try_out(plan)
        # Layers that are not alike may differ in more than the first ones.
        whole = trial if scheduler.alike and search else scheduler.finish(trial)
        if not search:
            return whole
        *faster, last = scheduler.improve(trial)
        for each in faster:
            with suppress(FitError):
                return scheduler.finish(each)
        return scheduler.finish(last)

    def skips_smaller(plan: Choices, refusal: FitError) -> bool:
        alike = bool(refusals) and refusal.excess == refusals[-1].excess
        refusals.append(refusal)
        return scheduler.skips_smaller(plan, refusal) or (scheduler.patient and alike)

    return first_fit(tries, fitting, skips_smaller, scheduler.long)


def _together(loops: tuple[bool, bool, bool]) -> tuple[int, ...]:
    """Return the heads whose scores one softmax takes at first: one where these are in a loop."""
    return TOGETHER_FIRST[:1] if loops[1] or loops[2] else TOGETHER_FIRST


def _keeping(scheduler: Search, best: PlacedTrial, *, search: bool) -> PlacedTrial:
    """Return the trial with weights that stay on the chip, if possible and if no run takes longer.

    These runs are those after the first one.
    """

    def whole(plan: Choices) -> PlacedTrial:
        trial = scheduler.try_out(plan)
        return scheduler.finish(settle(trial) if search else trial)

    kept, plan = [], best.source.choices
    for home in homes(scheduler.model, scheduler.config, plan):
        # Programs of the first run and of later runs may fit without ``ends_ahead`` alone.
        ends = dict.fromkeys((plan.ends_ahead, False))
        plans = [replace(plan, home=home, ends_ahead=ahead) for ahead in ends]
        trial = first_fit([plans], whole, lambda _plan, _refusal: False)
        if trial is not None and _later(trial) <= _later(best):
            kept.append(trial)
    return min(kept, key=_later, default=best)


def _later(trial: PlacedTrial) -> int:
    """Return the predicted cycles of a later run, including short inputs."""
    return trial.cycles.get(AGAIN, trial.cycles[ENCODE])


def homes(model: QuantizedModel, config: Config, plan: Choices) -> list[WeightHome]:
    """Return the on-chip memories in which weights can stay between runs, in order of preference.

    The list is empty in these cases: the program has loops, the program may move tensors to
    external memory, or the weights are stored as bit planes.
    """
    if plan.loops or plan.spills or is_nested(model):
        return []
    return weight_homes(model.linears, config)[:-1]


def _ratios(model: QuantizedModel, config: Config, *, looped: bool) -> list[int]:
    """Return the ratios with which tiles are left out and the products alone fit the program.

    With ``looped`` layers, a tile is left out if it has zeros in all layers.
    """
    layers = model.layers[:1] if looped else model.layers
    linears = [
        (op, WeightRectangle(slice(0, len(used)), slice(0, used.shape[1])), used)
        for op in [*model.before, *(op for layer in layers for op in layer), *model.after]
        if isinstance(op, Linear)
        and (used := weights_used(model, op, looped=looped)) is not None
        and not tiles_used(used, config.array.rows, config.array.cols).all()
    ]
    ratios, sums = list[int](), Accumulators(config, model.description.name)
    for ratio in RATIOS:
        parts = left_out = 0
        for op, whole, used in linears:
            height = sums.height(op.source.rows)
            held = tiles_held(op, whole, config, used, ratio, height)
            parts += len(held)
            left_out += whole.tiles(config) - sum(part.tiles(config) for part in held)
        if left_out and parts * PRODUCT_WORDS <= config.control.program_depth:
            ratios.append(ratio)
    return ratios


def _series(
    config: Config,
    loops: tuple[bool, bool, bool],
    together: int,
    *,
    ratios: Sequence[Sequence[int]],
    sparse: bool,
    piped: bool = True,
    reloads: bool = False,
    spills: bool = False,
) -> list[Choices]:
    """Return plans of ever smaller loads, and with ``spills`` of blocks of several sizes.

    Plans that leave zeros out come first, with the ``ratios`` for no loop and for loops of layers.
    Loops over the parts of a product keep all zeros.
    """
    layers, heads, parts = loops
    bank = config.bank_bytes
    sizes: Sequence[tuple[int, int | Fraction]] = [(1, 1 << at) for at in range(bank.bit_length())]
    if spills or reloads:
        sizes = RELOAD_SHARES if not spills else PASS_SHARES if reloads else SPILL_SHARES
    return [
        Choices(
            loop_layers=layers,
            loop_heads=heads,
            loop_parts=parts,
            blob_bytes=int(bank // blob),
            block_bytes=bank // block,
            together=together,
            ahead=1 if spills else AHEAD[0],
            compact=compact,
            sparse=sparse,
            piped=piped,
            reloads=reloads,
            spills=spills,
        )
        for compact in ([*ratios[layers], 0] if not parts else [0])
        for block, blob in sizes
        if bank // blob >= min(SMALLEST_BLOB, bank)
    ]
