"""Search for the program of an encoder with the fewest predicted cycles.

The prediction is for an external memory with a latency of
:data:`celosia.generators.lower.banks.LATENCY` cycles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.templates import are_alike
from celosia.generators.lower.assembly import Trial, fastest, first_fit, settle
from celosia.generators.lower.choices import MOST_AHEAD, Choices
from celosia.generators.lower.encoder_entries import Placed, assembly, placed
from celosia.generators.lower.fitting import FitError, Reason
from celosia.generators.lower.lower import SAMPLED, Lowered, lower
from celosia.generators.lower.residence import WeightHome
from celosia.generators.program.allocate import check_apart

AHEAD = (*range(MOST_AHEAD, -1, -1),)
"""Numbers of items by which a load may precede its use."""

TOGETHER = (1, 2, 4, 8, 16)
"""Numbers of heads that one softmax may take at once."""
_EIGHTHS = (8, 7, 6, 5, 4, 3, 2)
"""Eighths of a bank that loads and blocks are cut to."""

WHOLE_EIGHTHS = (5, 6, 8)
"""Sizes of loads in 32nds of a bank if sums use all accumulators."""


PlacedTrial: TypeAlias = Trial[Placed]
"""The program of some of an encoder's layers, or the whole one when the search has ended."""


class Search:
    """Searches for the fastest encoder program that fits the memories of an accelerator.

    Candidate programs differ in tile sizes, loops and the order of loads (:class:`Choices`).
    """

    def __init__(self, model: QuantizedModel, config: Config, batch: int):
        self.model, self.config, self.batch = model, config, batch
        self.patient = False
        """True if smaller loads are tried even if the tensors alone exceed the scratchpad."""
        self.long: list[Choices] = []
        """Plans that need too many words before any block leaves, so that smaller loads need more.

        Plans with loops over parts are not among them, and none that loads the input again: the
        same loads without ``reloads`` have fewer words."""
        self.alike = are_alike(model.layers)
        self._lowered: dict[Choices, Lowered] = {}
        self._tried: dict[tuple[object, ...], PlacedTrial] = {}

    def _lower(self, plan: Choices) -> Lowered:
        choices = plan.unplaced
        if choices not in self._lowered:
            # The image of a model is large: only the last one is kept.
            # Slots, and outside of loops the zeros that are left out, differ from layer to layer.
            equal = plan.loop_layers or not plan.compact
            sample = self.alike and equal and plan.home == WeightHome.STREAM
            lowered = lower(self.model, self.config, choices, self.batch, sample=sample)
            self._lowered = {choices: lowered}
        return self._lowered[choices]

    def skips_smaller(self, plan: Choices, refusal: FitError) -> bool:
        """Return True if the search skips all settings with smaller loads than ``plan``.

        The program with the settings ``plan`` does not fit. ``refusal`` is its error:

        - The program is too long: usually True.
        - The tensors alone exceed the scratchpad: True, unless :attr:`patient`.
        - Any other reason: False.
        """
        if refusal.reason == Reason.TOO_LONG:
            # Smaller loads and blocks may save words in two cases: if each iteration loads the
            # product's input again, and if only the moves of blocks make the program too long.
            varied = plan.reloads and plan.loop_parts
            return not varied and (refusal.hopeless or not plan.spills)
        return refusal.hopeless and not self.patient

    def try_out(self, plan: Choices) -> PlacedTrial:
        """Return a program of :data:`SAMPLED` layers with the settings ``plan``, and its cycles.

        A load is at most ``plan.ahead`` groups of instructions before its use. If the program does
        not fit, smaller distances are tried. Raises :class:`FitError` if no distance fits.
        """
        try:
            lowered = self._lower(plan)
        except FitError as refusal:
            self._note(plan, refusal)
            raise
        plans = [replace(plan, ahead=ahead) for ahead in AHEAD if ahead <= plan.ahead]
        refused = list[FitError]()

        def skips_smaller(plan: Choices, refusal: FitError) -> bool:
            refused.append(refusal)
            return refusal.reason == Reason.TOO_LONG or self.skips_smaller(plan, refusal)

        trial = first_fit([plans], partial(self._try_one, lowered=lowered), skips_smaller)
        if trial is not None:
            return trial
        self._note(plan, refused[-1])
        raise refused[-1]

    def _note(self, plan: Choices, refusal: FitError) -> None:
        """Add ``plan`` to :attr:`long` if its program is too long whatever the loads."""
        too_long = refusal.reason == Reason.TOO_LONG and refusal.hopeless
        if too_long and not (plan.loop_parts or plan.reloads):
            self.long.append(plan)

    def _try_one(self, plan: Choices, lowered: Lowered) -> PlacedTrial:
        fitting = placed(lowered, plan)
        # Choices with the same cuts give the same buffers.
        shape = (
            lowered.image_bytes,
            *sorted(fitting.addresses.items()),
            *sorted(lowered.memory.buffers.items()),
        )
        loops = plan.loop_layers, plan.loop_heads, plan.loop_parts, plan.piped, plan.home
        order = plan.ahead, plan.whole, plan.input_last, plan.ends_ahead
        key = *loops, plan.height, plan.together, *order, shape
        if key not in self._tried:
            sample = assembly(fitting, self.model.description, SAMPLED)
            self._tried[key] = sample.trial(fitting.addresses)
        return self._tried[key]

    def changes(self, plan: Choices) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the changes of the compiler settings ``plan`` that the search tries.

        The result has a list of alternative changes for each setting. A change is a dictionary from
        field names of :class:`Choices` to new values. Many changes also set ``ahead``, the distance
        between a load and its use, to the largest value.
        """
        bank = self.config.bank_bytes
        sizes = [bank * share // 8 for share in _EIGHTHS]
        rows = self.model.stream.rows
        heights = [-(-rows // count) for count in (2, 4) if rows // count >= self.config.array.rows]
        axes: tuple[list[dict[str, Any]], ...] = (
            [{"compact": 0}],
            [{"blob_bytes": size, "ahead": AHEAD[0]} for size in sizes],
            [{"together": count, "ahead": AHEAD[0]} for count in TOGETHER],
            [{"height": height, "ahead": AHEAD[0]} for height in heights],
            [
                {"block_bytes": size, "ahead": AHEAD[0]}
                for size in sizes[1 : 7 if plan.loop_parts else 5]
            ],
            [{"ahead": ahead} for ahead in AHEAD],
            [{"input_last": True}],
        )
        if plan.spills and plan.reloads:
            axes = axes[1:2]
        elif plan.spills:
            blocks = [{"block_bytes": bank * share // 16} for share in (2, 3, 6)]
            parts = [bank * share // 32 for share in WHOLE_EIGHTHS]
            wholes = [{"blob_bytes": size, "whole": True} for size in parts]
            chunks = [{"height": height} for height in heights]
            axes = (blocks, wholes, axes[1], [{"ahead": ahead} for ahead in (0, 2, 4)], chunks)
        return axes

    def improve(self, best: PlacedTrial) -> list[PlacedTrial]:
        """Change one setting of ``best`` after another, and return the fastest programs in a list.

        ``best`` is a trial: a program with its compiler settings. The list usually has one program.
        If :attr:`Choices.ends_ahead` makes ``best`` faster, both versions of ``best`` are improved.
        The list then has two programs, the faster first.
        """
        plan, plans = best.source.choices, list[Choices]()
        # The iterations of a loop are at equal distances, which the last layer's end is not.
        if not plan.loop_layers or len(self.model.layers) <= SAMPLED:
            plans = [replace(plan, ends_ahead=True, ahead=plan.ahead if plan.spills else AHEAD[0])]
        faster = fastest(self.try_out, plans, best)
        starts = [best] if faster is best else [best, faster]
        ended = [settle(self._improved(start)) for start in starts]
        return sorted(ended, key=lambda trial: trial.cost)

    def _improved(self, best: PlacedTrial) -> PlacedTrial:
        """Return the fastest program that is found from ``best`` on."""
        for changes in self.changes(best.source.choices):
            plans = [replace(best.source.choices, **change) for change in changes]
            best = fastest(self.try_out, plans, best)
        return best

    def finish(self, best: PlacedTrial) -> PlacedTrial:
        """Return the trial ``best`` with a program of all layers of the encoder.

        The search compares programs of only :data:`SAMPLED` layers. Raises :class:`FitError` if the
        complete program does not fit.
        """
        whole, addresses = best.source, best.addresses
        if whole.lowered.missing:
            lowered = lower(self.model, self.config, whole.choices.unplaced, self.batch)
            whole = placed(lowered, whole.choices)
            if whole.spilled:
                addresses = whole.addresses
            else:
                check_apart(whole.used, lowered.memory.buffers, addresses)
        # Trials have no programs of fewer bits.
        if len(whole.lowered.layers) > SAMPLED or is_nested(self.model):
            made = assembly(whole, self.model.description)
            best = replace(best, assembly=made, program=made.program(addresses))
        return best
