"""Assembly of a lowered encoder into a program.

Loads are moved ahead of the instructions that use them, buffers get scratchpad addresses, and
instructions are encoded as words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.generators.graph.fewer_planes import BITS, planes_of
from celosia.generators.lower.fitting import Changes, doubled
from celosia.generators.lower.lower import Lowered
from celosia.generators.lower.spill import Spill, Spilled
from celosia.generators.program.allocate import (
    Use,
    allocate,
    live_bytes,
    repeated,
    uses,
)
from celosia.generators.program.draft import Draft, Node, Repeat, arrange, flatten, upper
from celosia.generators.program.executable import AGAIN, ENCODE, Entry, entry_at, joined
from celosia.generators.program.loops import least_words, program_words, with_barriers

TOO_VARIED, TOO_LARGE, TOO_LONG = range(3)
"""Reasons why there is no program, the closest to a program last."""


@dataclass(frozen=True)
class Refusal:
    """The reason why an encoder's program does not fit the configuration.

    If a memory is too small, ``excess`` is the size that the program needs of this memory: bytes of
    the scratchpad, weight slots, or words of the program memory. If all memories suffice, but the
    program's loops cannot be encoded, ``excess`` is 0.
    """

    stage: int
    excess: int
    text: str
    remedies: tuple[Changes, ...]
    """Changes of the configuration; any one of them may help."""
    hopeless: bool = False
    """Smaller or later loads do not help: they make a program longer, or tensors have no room."""


@dataclass(frozen=True)
class Placed:
    """A lowered encoder whose buffers have scratchpad addresses."""

    name: str
    lowered: Lowered
    ahead: int
    """Number of items by which a load precedes its use."""
    loop_layers: bool
    addresses: Mapping[str, int]
    used: Mapping[str, Use]
    """Lifetime of each buffer."""
    spilled: Spilled | None = None
    """The sections in which blocks leave the scratchpad and come back."""


@dataclass(frozen=True)
class Program:
    """A program's words, instructions and entry points."""

    words: list[int]
    drafts: list[Draft]
    """Every instruction of an engine in the program of a later run, in the order in which they
    run."""
    loops: int
    """Number of loops that are not inside another."""
    spilled_bytes: int
    """External memory after the image, for blocks that leave the scratchpad."""
    entries: dict[str, Entry]
    """The program of a run, that of later runs if weights stay, and those of fewer bits."""
    kept_bytes: int
    """Bytes that the first run reads from external memory, and later ones find on the chip."""


def place(
    name: str,
    lowered: Lowered,
    ahead: int,
    config: Config,
    *,
    loop_layers: bool,
    spills: bool = False,
) -> Placed | Refusal:
    """Return a lowered model with buffer addresses, or the reason why it does not fit.

    ``name`` is the model's name in messages. Each load is moved ahead of the instructions that use
    its data, by at most ``ahead`` items. If ``loop_layers`` is true, the program executes the
    layers in a loop, otherwise one after another without a loop.

    If the scratchpad has no room for all tensors and ``spills`` is true, blocks of tensors are
    stored to external memory until their next use. If ``spills`` is false, such a model is refused.
    """
    sections = _sections(lowered, ahead, loop_layers)
    nodes = _nodes(sections, loop_layers)
    least, used = _extent(nodes)
    if lowered.missing:
        fewer = replace(lowered, layers=lowered.layers[:-1])
        words_before, before = _extent(_nodes(_sections(fewer, ahead, loop_layers), loop_layers))
        least += lowered.missing * (least - words_before)
        used = repeated(used, before, lowered.missing)
    if least > config.control.program_depth:
        return replace(_too_long(name, least, config), hopeless=True)
    for buffer in kept_buffers(nodes):
        used[buffer] = Use([(0, least)], used[buffer].beside)
    addresses = allocate(used, lowered.sizes, config)
    if lowered.slots > config.array.weight_depth:
        text = f"Model {name} needs {lowered.slots} weight slots"
        return Refusal(TOO_LARGE, lowered.slots, text, ())
    if addresses is not None:
        return Placed(name, lowered, ahead, loop_layers, addresses, used)
    spilled = None
    if spills:
        spilled = Spill(sections, lowered.sizes, used, config, lowered.image_bytes).run()
    if spilled is not None:
        return Placed(name, lowered, ahead, loop_layers, spilled.addresses, used, spilled)
    needed = live_bytes(used, lowered.sizes)
    largest = max(lowered.sizes, key=lambda buffer: lowered.sizes[buffer])
    text = (
        f"Model {name} needs {needed} scratchpad bytes at once and {largest} of "
        f"{lowered.sizes[largest]} bytes in one bank, but scratchpad_bytes is "
        f"{config.scratchpad.bytes} in banks of {config.bank_bytes}"
    )
    least = max(needed, lowered.sizes[largest] * config.scratchpad.banks)
    remedies = (doubled(config, "scratchpad_bytes", least),)
    tensors = {name: use for name, use in used.items() if name in lowered.blocks}
    hopeless = live_bytes(tensors, lowered.sizes) > config.scratchpad.bytes
    return Refusal(TOO_LARGE, needed, text, remedies, hopeless and not spills)


def _extent(nodes: Sequence[Node]) -> tuple[int, dict[str, Use]]:
    """Return the least words of the programs of some instructions, and the use of buffers."""
    return sum(map(least_words, _programs(nodes).values())), uses(list(flatten(nodes)))


def assemble(placed: Placed, config: Config, layers: int | None = None) -> Program | Refusal:
    """Return the program of a lowered model, or the reason why the program does not fit.

    The model's buffers have addresses. If ``layers`` is given, the program ends after that number
    of layers.
    """
    lowered = placed.lowered
    if layers is not None:
        lowered = replace(lowered, layers=lowered.layers[:layers])
    if placed.spilled is None:
        sections = _sections(lowered, placed.ahead, placed.loop_layers)
    else:
        before, *inside, after = placed.spilled.sections
        sections = [before, *inside[: len(lowered.layers)], after]
    nodes = _nodes(sections, placed.loop_layers)
    programs = _programs(nodes, coarser=layers is None)
    assembled = joined(programs, lambda some: program_words(some, placed.addresses, config))
    if assembled is None:
        text = f"The loops of model {placed.name} differ in more than the registers can hold"
        return Refusal(TOO_VARIED, 0, text, _longer(config))
    made, entries = assembled
    if len(made) > config.control.program_depth:
        return _too_long(placed.name, len(made), config)
    drafts = list(flatten(nodes))
    vector = [d for d in drafts if DEFINITIONS[d.opcode].engine == Engine.VECTOR]
    assert len(entries[ENCODE].written) == len(vector)
    loops = sum(isinstance(node, Repeat) for node in nodes)
    spilled = 0 if placed.spilled is None else placed.spilled.bytes
    kept = sum(_loaded(draft) for draft in drafts if draft.once)
    later = [*flatten(programs.get(AGAIN, nodes))]
    return Program(made, later, loops, spilled, entries, kept)


def _programs(nodes: Sequence[Node], *, coarser: bool = True) -> dict[str, list[Node]]:
    """Return the instructions of every program by its entry, ``coarser`` ones only on request."""
    programs, later = {ENCODE: [*nodes]}, again(nodes)
    if later:
        programs[AGAIN] = later
    if coarser and any(draft.plane for draft in flatten(nodes)):
        for bits in BITS[1:]:
            programs[entry_at(ENCODE, bits)] = upper(nodes, planes_of(bits))
    return programs


def again(nodes: Sequence[Node]) -> list[Node]:
    """Return the instructions of later runs, which find the first run's weights on the chip.

    These are ``nodes`` without the loads that only the first run executes. The result is empty if
    there are no such loads: then all runs have the same instructions.
    """
    repeated = [node for node in nodes if isinstance(node, Repeat) or not node.once]
    return repeated if len(repeated) < len(nodes) else []


def kept_buffers(nodes: Sequence[Node]) -> set[str]:
    """Return the names of the buffers that only the first run loads, and that every run reads."""
    once, later = set[str](), set[str]()
    for draft in flatten(nodes):
        (once if draft.once else later).update(draft.buffers)
    return once & later


def _loaded(draft: Draft) -> int:
    if draft.opcode != Opcode.LOAD:
        return 0
    m, row_bytes = (draft.operands[name] for name in ("m", "row_bytes"))
    assert isinstance(m, int)
    assert isinstance(row_bytes, int)
    return m * row_bytes


def _too_long(name: str, least: int, config: Config) -> Refusal:
    text = (
        f"Model {name} needs a program of at least {least} words, but program_depth is "
        f"{config.control.program_depth}"
    )
    return Refusal(TOO_LONG, least, text, _longer(config, least))


def _longer(config: Config, least: int = 0) -> tuple[Changes, ...]:
    """Return changes that give room for more words, or for larger loads and so fewer words."""
    return doubled(config, "program_depth", least), doubled(config, "scratchpad_bytes")


def _sections(lowered: Lowered, ahead: int, loop_layers: bool) -> list[Sequence[Node]]:
    """Return the instructions before the layers, of each layer, and after the layers."""
    sections = [lowered.before, *lowered.layers, lowered.after]
    return arrange(sections, ahead, across=not loop_layers)


def _nodes(sections: Sequence[Sequence[Node]], loop_layers: bool) -> list[Node]:
    """Return the whole program, with loops as asked."""
    before, *layers, after = sections
    if loop_layers:
        return with_barriers([*before, Repeat(layers), *after])
    return with_barriers([*before, *(node for layer in layers for node in layer), *after])
