"""Programs of an encoder, with scratchpad addresses of the tensors and weights that they use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.assembly import (
    Assembly,
    Routine,
    check_programs,
    fewest_words,
    place,
    routines,
)
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.lower import Lowered
from celosia.generators.lower.spill import Spill, Spilled
from celosia.generators.program.allocate import Use, extrapolated, live_bytes, uses
from celosia.generators.program.calls import Call, RunNumber, registers
from celosia.generators.program.draft import Node, Repeat, flatten, place_loads, repeat, upper
from celosia.generators.program.executable import AGAIN, ENCODE, Run
from celosia.generators.program.loops import with_barriers

Section = TypeVar("Section")

SHORT = 16
"""Ratio of the longest input's rows to a short one's."""
SHORT_WEIGHT = 2
"""Divisor of a short input's cycles in the sum with the longest one's."""
SPILL_INTERVAL = 2
"""Cycles of an external word that such programs are optimized for, as with boards' SDRAM."""


@dataclass(frozen=True)
class Placed:
    """An encoder's instructions, with scratchpad addresses of their buffers."""

    choices: Choices
    lowered: Lowered
    addresses: Mapping[str, int]
    used: Mapping[str, Use]
    """Lifetime of each buffer."""
    spilled: Spilled | None = None
    """The sections in which blocks leave the scratchpad and come back."""


def placed(lowered: Lowered, choices: Choices) -> Placed:
    """Return an encoder's instructions with the scratchpad addresses of their buffers.

    A load comes at most ``choices.ahead`` items (groups of instructions) before the use of its
    data. If ``choices.spills`` is true, blocks of tensors may be moved to external memory. Raises
    :class:`FitError` if the encoder does not fit.
    """
    memory, sizes = lowered.memory, lowered.memory.buffers
    sections = _sections(lowered, choices)
    nodes = _nodes(sections, choices)
    least, used = _extent(nodes)
    if lowered.missing:
        fewer = replace(lowered, layers=_sampled(lowered.layers, len(lowered.layers) - 1))
        words_before, before = _extent(_nodes(_sections(fewer, choices), choices))
        least += lowered.missing * (least - words_before)
        used = extrapolated(used, before, lowered.missing)
    tensors = live_bytes({name: used[name] for name in used if name in lowered.blocks}, sizes)
    check_programs(memory, least, used, kept_buffers(nodes), tensors)
    try:
        return Placed(choices, lowered, place(memory, used)[0], used)
    except FitError as refusal:
        if choices.spills:
            spilled = Spill(sections, sizes, used, memory.config, lowered.image_bytes).run()
            if spilled is not None:
                return Placed(choices, lowered, spilled.addresses, used, spilled)
        else:
            refusal.hopeless = tensors > memory.config.scratchpad.bytes
        raise


def assembly(
    placed: Placed, model: ModelDescription, layers: int | None = None
) -> Assembly[Placed]:
    """Return an encoder's programs, and the runs by which the compiler compares candidate programs.

    The compiler prefers the candidate whose runs have the smallest sum of predicted cycles. If
    ``layers`` is given, the programs have only this number of layers. Programs that read only some
    bits of each weight are then omitted.
    """
    lowered, choices = placed.lowered, placed.choices
    if layers is not None:
        lowered = replace(lowered, layers=_sampled(lowered.layers, layers))
    if placed.spilled is None:
        sections = _sections(lowered, choices)
    else:
        before, *inside, after = placed.spilled.sections
        inside = inside if layers is None else _sampled(inside, layers)
        sections = [before, *inside, after]
    programs = _programs(_nodes(sections, choices), lowered.call, coarser=layers is None)

    def run(entry: str, length: int, divisor: int = 1) -> Run:
        return Run(entry, registers(lowered.call, {RunNumber.ROWS: length}), divisor)

    last = AGAIN if AGAIN in programs else ENCODE
    runs = [run(last, model.sequence)]
    if model.variable:
        runs.append(run(last, max(model.sequence // SHORT, 1), SHORT_WEIGHT))
    if last != ENCODE:
        # A first run counts as much as a later one.
        runs.append(run(ENCODE, model.sequence))
    return Assembly(
        source=placed,
        memory=lowered.memory,
        programs=programs,
        used=placed.used,
        runs=[runs],
        held={} if placed.spilled is None else placed.addresses,
        interval=SPILL_INTERVAL if choices.spills else 1,
    )


def _sampled(layers: Sequence[Section], count: int) -> list[Section]:
    """Return the first layers and the last one, at most ``count`` in all."""
    return [*layers[: count - 1], *layers[max(count - 1, 0) :][-1:]]


def _extent(nodes: Sequence[Node]) -> tuple[int, dict[str, Use]]:
    """Return the least words of the programs of some instructions, and the use of buffers."""
    return fewest_words(_programs(nodes, {})), uses(list(flatten(nodes)))


def _programs(nodes: Sequence[Node], call: Call, *, coarser: bool = True) -> dict[str, Routine]:
    """Return every program by its entry, ``coarser`` ones only on request."""
    nested = coarser and any(draft.plane for draft in flatten(nodes))
    made = routines(ENCODE, lambda planes: Routine(upper(nodes, planes), call), nested=nested)
    later = again(nodes)
    return made | {AGAIN: Routine(later, call)} if later else made


def again(nodes: Sequence[Node]) -> list[Node]:
    """Return the instructions of all runs after the first run, without loads for data on the chip.

    ``nodes`` are the instructions of the first run. Only the first run loads data that stay on the
    chip, such as weights. If no data stay on the chip, the result is empty, and ``nodes`` are for
    all runs.
    """
    repeated = [node for node in nodes if isinstance(node, Repeat) or not node.once]
    return repeated if len(repeated) < len(nodes) else []


def kept_buffers(nodes: Sequence[Node]) -> set[str]:
    """Return the names of scratchpad buffers whose contents stay from the first run to later runs.

    Only the first run loads these contents, for example weights, and all runs read them. ``nodes``
    are the instructions of the first run.
    """
    once, later = set[str](), set[str]()
    for draft in flatten(nodes):
        (once if draft.once else later).update(draft.buffers)
    return once & later


def _sections(lowered: Lowered, choices: Choices) -> Sequence[Sequence[Node]]:
    """Return the instructions before the layers, of each layer, and after the layers."""
    sections = [lowered.before, *lowered.layers, lowered.after]
    return place_loads(sections, choices.ahead, across=not choices.loop_layers)


def _nodes(sections: Sequence[Sequence[Node]], choices: Choices) -> list[Node]:
    """Return the whole program, with loops as chosen."""
    before, *layers, after = sections
    apart = 0 if choices.loop_layers else len(layers)
    return with_barriers([*before, *repeat(layers, apart), *after])
