"""Buffer addresses, program words and predicted cycles of a model's programs.

An :class:`Assembly` has the instructions of all programs. A :class:`Trial` also has scratchpad
addresses of the buffers, program words and predicted cycles. The compiler makes several trials, and
chooses the fastest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import BITS, planes_of
from celosia.generators.lower.banks import LATENCY, Banks, Span, conflicts
from celosia.generators.lower.choices import Choices, DataPlacement
from celosia.generators.lower.fitting import FitError, Reason, doubled
from celosia.generators.lower.residence import Memory
from celosia.generators.program.allocate import Use, allocate, live_bytes
from celosia.generators.program.calls import Call
from celosia.generators.program.draft import Draft, Node, flatten
from celosia.generators.program.executable import Entry, Executable, Run, entry_at, written
from celosia.generators.program.loops import least_words, program_words

REBANKS = 4
"""Number of times that banks are chosen again, each by the timeline of the previous program."""

Source = TypeVar("Source")
Chosen = TypeVar("Chosen", Choices, DataPlacement)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Routine:
    """A program's instructions, and the registers that the host writes before each run.

    A run is one execution of the program. ``call`` has a formula for each register's value.
    """

    nodes: Sequence[Node]
    call: Call = field(default_factory=dict)


def routines(name: str, make: Callable[[int], Routine], *, nested: bool) -> dict[str, Routine]:
    """Return the programs of an entry point by name, one for each precision of the weights.

    If ``nested`` is true, a run can read the upper 8, 4 or 2 bits of each weight, which are 3, 2 or
    1 bit planes. ``make(planes)`` returns the program for a number of planes. The names are then,
    for example, ``step`` (8 bits), ``step.4`` and ``step.2``. Otherwise, the only program is
    ``name``.
    """
    widths = BITS if nested else BITS[:1]
    return {entry_at(name, bits): make(planes_of(bits)) for bits in widths}


def calls_of(programs: Mapping[str, Routine]) -> dict[str, Call]:
    """Return the registers that the host writes before it starts each program, by program name.

    Some programs read fewer bits of each weight, such as ``step.4`` (4 bits). They need the
    registers of the program ``step``, and have no separate entry.
    """
    return {name.partition(".")[0]: routine.call for name, routine in programs.items()}


@dataclass(frozen=True, kw_only=True)
class Assembly(Generic[Source]):
    """The instructions of a model's programs, before their buffers have scratchpad addresses.

    The host starts each program by a name, such as ``step``. Given a scratchpad address for each
    buffer, the methods encode the instructions as program words, and predict the cycles of the
    programs.
    """

    source: Source
    """The plan from which the instructions were made."""
    memory: Memory
    """The buffers, and the model's name."""
    programs: Mapping[str, Routine]
    used: Mapping[str, Use]
    runs: Sequence[Sequence[Run]]
    """Groups of runs. The cycles of a group are added, and programs are compared group by group;
    banks are chosen by the first run of each group."""
    interval: int = 1
    """Cycles of a word of the external memory that programs are optimized for."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Addresses of the buffers that must not move."""
    unrolls: bool = False
    """True if loops that the registers cannot encode are unrolled, false if they are refused."""

    def words(self, nodes: Sequence[Node], addresses: Mapping[str, int]) -> list[int]:
        """Return the program words that encode ``nodes``, which are instructions and loops.

        ``addresses`` is a dictionary from buffer name to scratchpad address. If a loop cannot be
        encoded, all loops are unrolled if :attr:`unrolls` is true. Otherwise :class:`FitError` is
        raised.
        """
        name, config = self.memory.name, self.memory.config
        made = program_words(nodes, addresses, config)
        if made is None and self.unrolls:
            # Layers that differ in more than steps are no iterations of a loop.
            made = program_words([*flatten(nodes)], addresses, config)
        if made is None:
            text = f"The loops of model {name} differ in more than the registers can hold"
            raise FitError(text, *_more_words(config), reason=Reason.TOO_VARIED)
        return made

    def program(self, addresses: Mapping[str, int]) -> Executable:
        """Return all programs of the model as program words, with their entry points.

        ``addresses`` has the scratchpad address of each buffer. Raises :class:`FitError` if the
        words exceed the program memory, or a loop cannot be encoded and :attr:`unrolls` is false.
        """
        words, entries = list[int](), dict[str, Entry]()
        for name, routine in self.programs.items():
            entries[name] = Entry(len(words), written(routine.nodes))
            words += self.words(routine.nodes, addresses)
        check_words(self.memory, len(words))
        return Executable(self.memory.config, words, entries)

    def trial(self, addresses: Mapping[str, int]) -> "Trial[Source]":
        """Return a :class:`Trial`: the model's programs as words, with their predicted cycles.

        ``addresses`` is a dictionary from buffer name to scratchpad address. Raises
        :class:`FitError` if a loop cannot be encoded, or if the programs exceed the program memory.
        """
        program = self.program(addresses)
        drafts, timeline, cycles, cost = list[Draft](), list[Span](), dict[str, int](), list[int]()
        for group in self.runs:
            start, spent = sum(cost), 0
            for run in group:
                expected = program.expect(run, LATENCY, self.interval)
                part = expected.cycles // run.divisor
                cycles[run.entry] = cycles.get(run.entry, 0) + part
                spent += part
                if run is group[0]:
                    drafts += flatten(self.programs[run.entry].nodes)
                    timeline += [(start + begin, start + end) for begin, end in expected.timeline]
            cost.append(spent)
        costs = *cost, len(program.words)
        return Trial(self, addresses, program, drafts, timeline, cycles, costs)


@dataclass(frozen=True)
class Trial(Generic[Source]):
    """One candidate in a search for fast programs: a model's programs and their predicted cycles.

    The programs of a trial have addresses for all scratchpad buffers.
    """

    assembly: Assembly[Source]
    addresses: Mapping[str, int]
    program: Executable
    drafts: Sequence[Draft]
    """Every instruction of the first run of each group, in the order in which they run."""
    timeline: Sequence[Span]
    """Predicted span of each of these instructions."""
    cycles: Mapping[str, int]
    """Predicted cycles of the runs from each entry point."""
    cost: tuple[int, ...]
    """Cost that the search minimizes: cycles of each group of runs, then words."""

    @property
    def source(self) -> Source:
        """Data from which the compiler made the programs.

        For a decoder, it is a ``Plan``: the locations of weights, parameters, keys and values in
        memory. For an encoder, it is a ``Placed``: the instructions with the addresses of their
        buffers.
        """
        return self.assembly.source


def settle(best: Trial[Source]) -> Trial[Source]:
    """Search for better scratchpad banks of a program's buffers, and return the fastest trial.

    ``best`` is the program. In each of at most :data:`REBANKS` rounds, buffers move so that fewer
    reads of two buffers in one bank coincide. The result is ``best`` if no round gives a faster
    program.
    """
    assembly, memory = best.assembly, best.assembly.memory
    fixed = memory.config, assembly.held
    for _ in range(REBANKS):
        costs = conflicts(best.drafts, best.timeline, memory.config)
        addresses = Banks(assembly.used, memory.buffers, best.addresses, costs, *fixed).run()
        if addresses == best.addresses:
            break
        try:
            changed = assembly.trial(addresses)
        except FitError:
            break
        if changed.cost >= best.cost:
            break
        best = changed
    return best


def first_fit(
    series: Iterable[Sequence[Chosen]],
    make: Callable[[Chosen], Result],
    skips_smaller: Callable[[Chosen, FitError], bool],
    known: Sequence[Chosen] = (),
) -> Result | None:
    """Return the result of ``make`` for the first compiler settings that fit, or None.

    Each of ``series`` is a list of settings to try in order. If ``make`` raises :class:`FitError`,
    the next settings are tried. If ``skips_smaller(settings, error)`` then returns True, smaller
    settings in this list are skipped. Settings at most as large as one of ``known`` are always
    skipped.
    """
    for alternatives in series:
        ended: list[Chosen] = list(known)
        for choices in alternatives:
            if any(choices.is_at_most(other) for other in ended):
                continue
            try:
                return make(choices)
            except FitError as error:
                # A traceback would hold the memory images of all that are refused.
                if skips_smaller(choices, error.with_traceback(None)):
                    ended.append(choices)
    return None


def fastest(
    make: Callable[[Result], Trial[Source]],
    choices: Iterable[Result],
    best: Trial[Source] | None = None,
) -> Trial[Source]:
    """Return the trial (a program with its predicted cycles) of lowest cost.

    The trials are ``best`` and the results of ``make`` for each of ``choices``. A choice is skipped
    if ``make`` raises :class:`FitError`. If all are skipped and ``best`` is None, the first of
    these errors is raised. The cost is the predicted cycles, then the number of program words.
    """
    errors = list[FitError]()
    for each in choices:
        try:
            trial = make(each)
        except FitError as error:
            errors.append(error.with_traceback(None))
            continue
        if best is None or trial.cost < best.cost:
            best = trial
    if best is None:
        raise errors[0]
    return best


def check_words(memory: Memory, words: int, *, least: bool = False, tensor_bytes: int = 0) -> None:
    """Raise :class:`FitError` if a model's programs are longer than the program memory.

    ``words`` is the length of the programs, or a lower bound if ``least`` is true. The error
    proposes a larger program memory, or a scratchpad of at least ``tensor_bytes`` bytes for larger
    and fewer loads. If ``least`` is true, the error says that smaller loads do not help.
    """
    config = memory.config
    if words > config.control.program_depth:
        text = (
            f"Model {memory.name} needs a program of at least {words} words, but program_depth is "
            f"{config.control.program_depth}"
        )
        remedies, reason = _more_words(config, words, tensor_bytes), Reason.TOO_LONG
        raise FitError(text, *remedies, reason=reason, excess=words, hopeless=least)


def fewest_words(programs: Mapping[str, Routine]) -> int:
    """Return a lower bound of the number of program words that several programs need together.

    Instructions that the assembler inserts, such as those that set the registers of loops, are not
    counted.
    """
    return sum(least_words(routine.nodes) for routine in programs.values())


def _more_words(
    config: Config, words: int = 0, tensor_bytes: int = 0
) -> tuple[Mapping[str, int], ...]:
    """Return changes that give room for more words, or for larger loads and so fewer words."""
    larger = doubled(config, "scratchpad_bytes", tensor_bytes)
    return doubled(config, "program_depth", words), larger


def check_programs(
    memory: Memory,
    least: int,
    used: dict[str, Use],
    lasting: Iterable[str],
    tensor_bytes: int = 0,
) -> None:
    """Raise :class:`FitError` if a model needs more program words or weight slots than there are.

    - ``least``: lower bound of the program's words.
    - ``tensor_bytes``: least size of a scratchpad that the error proposes.
    - ``used``: lifetimes of the buffers. The function extends the lifetimes of the buffers in
      ``lasting`` to the whole program.
    """
    check_words(memory, least, least=True, tensor_bytes=tensor_bytes)
    for name in lasting:
        used[name] = Use([(0, least)], used[name].beside)
    memory.check_slots()


def place(
    memory: Memory, used: Mapping[str, Use], held: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, int], Mapping[str, int]]:
    """Return the scratchpad addresses of all buffers, and those addresses that are fixed.

    - ``held``: fixed addresses of some buffers. If the other buffers have no room beside them, all
      buffers get new addresses, and none is fixed.
    - ``used``: lifetimes of the buffers.

    Raises :class:`FitError` if the scratchpad is too small.
    """
    addresses = allocate(used, memory.buffers, memory.config, held)
    if addresses is not None:
        return addresses, held
    if not held:
        raise memory.no_room(live_bytes(used, memory.buffers))
    return place(memory, used)
