"""Search for the fastest program of an encoder among several candidates.

Every candidate is lowered, given addresses and assembled, and its cycles are predicted
(``predict``) for an external memory of :data:`LATENCY`. Every candidate loads each weight once, so
the traffic of weights is equal and only cycles are compared.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.templates import are_alike
from celosia.generators.lower.assemble import TOO_LONG, Placed, Program, Refusal, assemble, place
from celosia.generators.lower.banks import LATENCY, Timed, settle
from celosia.generators.lower.choices import MOST_AHEAD, Choices
from celosia.generators.lower.lower import SAMPLED, Lowered, lower
from celosia.generators.lower.residence import WeightHome
from celosia.generators.program.allocate import check_apart
from celosia.generators.program.draft import LENGTH_REGISTER, row_counts
from celosia.generators.program.executable import AGAIN, ENCODE
from celosia.generators.program.predict import Prediction, predict

SHORT = 16
"""Ratio of the longest input's rows to a short one's."""
SHORT_WEIGHT = 2
"""Divisor of a short input's cycles in the sum with the longest one's."""

AHEAD = (MOST_AHEAD, 4, 2, 1, 0)
"""Numbers of items by which a load may precede its use."""

TOGETHER = (1, 2, 4, 8, 16)
"""Numbers of heads that one softmax may take at once."""
_EIGHTHS = (8, 7, 6, 5, 4, 3, 2)
"""Eighths of a bank that loads and blocks are cut to."""

WHOLE_EIGHTHS = (5, 6, 8)
"""Sizes of loads in 32nds of a bank if sums use all accumulators."""
SPILL_INTERVAL = 2
"""Cycles of an external word that such programs are optimized for, as with boards' SDRAM."""


@dataclass(frozen=True)
class Trial(Timed):
    """Choices with which an encoder fits, the resulting program, and its cost."""

    plan: Choices
    placed: Placed
    program: Program
    """The program of the first layers, or the whole one when the search has ended."""
    cycles: int
    """Cycles of a later run, including short inputs."""


class Search:
    """Searches for the choices with which an encoder's program fits the memories and is fastest."""

    def __init__(self, model: QuantizedModel, config: Config, batch: int):
        self.model, self.config, self.batch = model, config, batch
        self.refusals: list[Refusal] = []
        self.patient = False
        """Loads are made smaller and later even if tensors alone have no room."""
        self.long: list[Choices] = []
        """Plans without loops over parts that need too many words before any block leaves."""
        self.alike = are_alike(model.layers)
        self._lowered: dict[Choices, Lowered] = {}
        self._tried: dict[tuple[object, ...], Trial | Refusal] = {}

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

    def ends(self, plan: Choices, refusal: Refusal) -> bool:
        """Return whether plans with smaller loads and blocks than ``plan`` cannot help.

        If the result is true, such plans are not tried. ``refusal`` is the reason why the program
        of ``plan`` does not fit. If the program has too many words, smaller loads and blocks can
        only help in two cases: if blocks are moved to external memory (``spills``), or if loops
        load the input again (``reloads``). If the tensors alone have no room in the scratchpad, the
        result is True unless ``self.patient`` is true.
        """
        if refusal.stage == TOO_LONG:
            varied = plan.reloads and plan.loop_parts
            return not varied and (refusal.hopeless or not plan.spills)
        return refusal.hopeless and not self.patient

    def try_out(self, plan: Choices) -> Trial | Refusal:
        """Compile an encoder's first layers with the choices ``plan``.

        Return the :class:`Trial`, or the :class:`Refusal` if the program does not fit. Each load
        precedes its use by at most ``plan.ahead`` items. If the buffers do not fit the scratchpad,
        the method tries again with loads closer to their uses.
        """
        lowered = self._lower(plan)
        longest = max(len(section) for section in lowered.layers) - 1
        aheads = sorted({min(a, longest) for a in AHEAD if a <= plan.ahead}, reverse=True)
        for ahead in aheads:
            trial = self._try_one(dataclasses.replace(plan, ahead=ahead), lowered)
            if isinstance(trial, Trial) or trial.stage == TOO_LONG or self.ends(plan, trial):
                break
        if isinstance(trial, Refusal) and trial.stage == TOO_LONG and trial.hopeless:
            self.long += [] if plan.loop_parts else [plan]
        return trial

    def _place(self, plan: Choices, lowered: Lowered) -> Placed | Refusal:
        name, kinds = self.model.description.name, {"loop_layers": plan.loop_layers}
        return place(name, lowered, plan.ahead, self.config, **kinds, spills=plan.spills)

    def _try_one(self, plan: Choices, lowered: Lowered) -> Trial | Refusal:
        placed = self._place(plan, lowered)
        if isinstance(placed, Refusal):
            self.refusals.append(placed)
            return placed
        # Choices with the same cuts give the same buffers.
        shape = (
            lowered.image_bytes,
            *sorted(placed.addresses.items()),
            *sorted(lowered.sizes.items()),
        )
        loops = plan.loop_layers, plan.loop_heads, plan.loop_parts, plan.home
        key = *loops, plan.height, plan.together, plan.ahead, plan.whole, plan.input_last, shape
        if key not in self._tried:
            program = assemble(placed, self.config, SAMPLED)
            if isinstance(program, Refusal):
                self.refusals.append(program)
                self._tried[key] = program
            else:
                self._tried[key] = self._trial(plan, placed, program)
        return self._tried[key]

    def _trial(self, plan: Choices, placed: Placed, program: Program) -> Trial:
        model = self.model.description

        def expect(length: int, start: int) -> Prediction:
            registers = {LENGTH_REGISTER: length, **row_counts(placed.lowered.rows, length)}
            interval = SPILL_INTERVAL if plan.spills else 1
            return predict(
                program.words,
                self.config,
                latency=LATENCY,
                interval=interval,
                registers=registers,
                start=start,
            )

        entries = program.entries
        *first, last = (entries[name].pc for name in (ENCODE, AGAIN) if name in entries)
        short = expect(max(model.sequence // SHORT, 1), last).cycles if model.variable else 0
        whole = expect(model.sequence, last)
        cycles = whole.cycles + short // SHORT_WEIGHT
        # A first run counts as much as one behind it.
        loading = sum(expect(model.sequence, start).cycles for start in first)
        cost = cycles + loading, len(program.words)
        addresses, drafts = placed.addresses, program.drafts
        return Trial(addresses, drafts, whole.timeline, cost, plan, placed, program, cycles)

    def rebank(self, best: Trial) -> Trial:
        """Return the fastest trial found by moving the buffers of ``best`` to other banks.

        If the program spills blocks to external memory, ``best`` is returned unchanged.
        """
        if best.placed.spilled:
            return best

        def moved(trial: Trial, addresses: Mapping[str, int]) -> Trial | None:
            placed = dataclasses.replace(trial.placed, addresses=addresses)
            changed = assemble(placed, self.config, SAMPLED)
            return (
                None if isinstance(changed, Refusal) else self._trial(trial.plan, placed, changed)
            )

        placed = best.placed
        return settle(best, placed.used, placed.lowered.sizes, self.config, moved)

    def changes(self, plan: Choices) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the changes to try: a list with one entry for each choice, in the order of trials.

        Each entry is a list of alternative changes of ``plan``. A change is a dictionary from the
        name of a field of :class:`Choices` to a new value. It may reset another field to its first
        value: new sizes of loads reset ``ahead``, for example.
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

    def improve(self, best: Trial) -> Trial:
        """Return the trial with the lowest cost found by changing the choices of ``best``.

        The choices are changed one after another. For each choice, every change of :meth:`changes`
        is tried, and the trial with the lowest cost is kept.
        """
        for changes in self.changes(best.plan):
            start = best
            for change in changes:
                trial = self.try_out(dataclasses.replace(start.plan, **change))
                if isinstance(trial, Trial) and trial.cost < best.cost:
                    best = trial
        return best

    def finish(self, best: Trial) -> Trial | Refusal:
        """Return the trial ``best`` with the program of all layers instead of the first ones.

        If the whole program does not fit, the result is the :class:`Refusal`.
        """
        placed = self._whole(best)
        if isinstance(placed, Refusal):
            self.refusals.append(placed)
            return placed
        program: Program | Refusal = best.program
        # Trials have no programs of fewer bits.
        if len(placed.lowered.layers) > SAMPLED or is_nested(self.model):
            program = assemble(placed, self.config)
        if isinstance(program, Refusal):
            self.refusals.append(program)
            return program
        return dataclasses.replace(best, placed=placed, program=program)

    def _whole(self, best: Trial) -> Placed | Refusal:
        """Return a trial's model with all of its layers, at the addresses of the trial."""
        plan, placed = best.plan, best.placed
        if not placed.lowered.missing:
            return placed
        lowered = lower(self.model, self.config, plan.unplaced, self.batch)
        whole = self._place(plan, lowered)
        if isinstance(whole, Refusal) or whole.spilled:
            return whole
        check_apart(whole.used, lowered.sizes, placed.addresses)
        return dataclasses.replace(whole, addresses=placed.addresses)
