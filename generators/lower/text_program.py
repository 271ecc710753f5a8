"""A compiled decoder: setup programs that load the chip once, and programs that process tokens.

The host writes the registers that :class:`celosia.generators.runtime.text_host.TextHost` computes,
and then starts a program at its first word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.generators.graph.fewer_planes import coarser
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.banks import LATENCY, Span, Timed, settle
from celosia.generators.lower.fill import Fill, fills
from celosia.generators.lower.fitting import FitError, doubled
from celosia.generators.lower.plan import Plan
from celosia.generators.lower.text_entries import text_calls, text_entries
from celosia.generators.program.allocate import Use, across, allocate, uses
from celosia.generators.program.draft import Draft, Node, flatten
from celosia.generators.program.executable import joined, written
from celosia.generators.program.image import Piece
from celosia.generators.program.loops import least_words, program_words
from celosia.generators.runtime.text_host import TextHost


@dataclass(frozen=True, kw_only=True)
class TextProgram(TextHost):
    """A decoder's program for a configuration, together with the quantized decoder."""

    decoder: Decoder

    def decoder_at(self, bits: int) -> Decoder:
        """Return the decoder with only the upper ``bits`` bits of its nested weights.

        Nested weights are weights from which a run may read only the upper bits.
        """
        return coarser(self.decoder, bits)

    @property
    def macs_resident(self) -> int:
        """Multiply-accumulates of one token's linear layers, without attention."""
        return sum(op.size for op in self.decoder.ops if isinstance(op, Linear))

    def macs(self, position: int, source: int = 0) -> int:
        """Return the number of multiply-accumulates that one token at a position of the text needs.

        These are the multiply-accumulates of linear layers and attention; those of padding are not
        counted. The token attends to itself, to the earlier tokens that the cache holds, and to
        ``source`` tokens of a source text.
        """
        model = self.decoder.description
        seen = self.cache.count(position) + source
        columns = self.decoder.key_dim + model.head_dim
        return self.macs_resident + model.layers * model.heads * seen * columns

    def source_macs(self, source: int) -> int:
        """Return the number of multiply-accumulates that encode a source of ``source`` tokens.

        Those of padding are not counted. The result is 0 if the model has no encoder.
        """
        encoder, model = self.decoder.source, self.decoder.description
        ops = () if encoder is None else encoder.ops
        linear = sum(op.size for op in ops if isinstance(op, Linear))
        columns = self.decoder.key_dim + model.head_dim
        return source * (linear + model.source_layers * model.heads * source * columns)


@dataclass(frozen=True)
class Trial(Timed):
    """A decoder's program with addresses, and its predicted cycles for a token and for a chunk."""

    program: TextProgram


class LongError(FitError):
    """The programs of a decoder are longer than the program memory."""

    def __init__(self, name: str, config: Config, words: int, least: str = ""):
        """Write the sentence, with the remedy; the words may be the ``least`` number."""
        depth = config.control.program_depth
        super().__init__(
            f"Model {name} needs {least}{words} program words, but program_depth is {depth}",
            doubled(config, "program_depth", words),
        )


def try_plan(plan: Plan, limit: int, *, search: bool = True) -> Trial:
    """Return a plan's :class:`Trial`: its programs with scratchpad addresses, and their cycles.

    If ``search`` is true, several assignments of buffers to banks are tried, and the result is the
    one with the fewest predicted cycles. If ``search`` is false, the first assignment found is
    used. ``limit`` is the size of external memory (bytes).

    Raises :class:`LongError`, before addresses are chosen, if the instructions alone have too many
    words for the program memory. Raises :class:`FitError` if the buffers do not fit the scratchpad.
    """
    decoder, config = plan.decoder, plan.config
    piece, programs = plan.scores, text_entries(plan)
    least = sum(map(least_words, programs.values()))
    if least > config.control.program_depth:
        raise LongError(decoder.description.name, config, least, "at least ")
    image = plan.image.finish(decoder.description.name).tobytes()
    whole: list[Sequence[Node]] = [plan.setup, *programs.values()]
    known = uses([draft for nodes in whole for draft in flatten(nodes)])
    used = {
        # What a buffer holds is there from run to run.
        name: Use([(0, 0)], known[name].beside if name in known else {})
        for name in plan.memory.buffers
    }

    def trial(addresses: Mapping[str, int]) -> Trial:
        made = _placed(plan, programs, image, piece, limit, addresses)
        return Trial(addresses, *_expected(made, programs), made)

    addresses, held = _addresses(plan, used)
    first, sizes = trial(addresses), plan.memory.buffers
    if not search:
        return first
    return settle(first, used, sizes, config, lambda _, moved: trial(moved), held)


def _placed(
    plan: Plan,
    programs: Mapping[str, Sequence[Node]],
    image: bytes,
    logits: Piece,
    limit: int,
    addresses: Mapping[str, int],
) -> TextProgram:
    """Return programs whose buffers have addresses."""
    config = plan.config

    def assemble(nodes: Sequence[Node]) -> list[int]:
        # Layers that differ in more than steps are no iterations of a loop.
        made = program_words(nodes, addresses, config)
        made = made or program_words([*flatten(nodes)], addresses, config)
        assert made is not None, "only loops vary too much"
        return made

    joint = joined(programs, assemble)
    assert joint is not None, "loops that vary too much are unrolled"
    made, entries = joint
    if plan.cuts.resident or plan.way.rows_stay:
        once = plan.stage.image.finish(plan.memory.name)
        setup = fills(plan.setup, once, config, limit, assemble)
        if not (plan.cuts.resident and plan.way.rows_stay):
            setup.append(Fill(image, assemble([]), []))
    else:
        setup = [Fill(image, assemble(plan.setup), written(plan.setup))]
    model, cache = plan.decoder.description, plan.cache
    return TextProgram(
        config=config,
        words=made,
        entries=entries,
        name=model.name,
        vocabulary=model.vocabulary,
        cache=cache,
        kv_bits=plan.decoder.kv_bits,
        kv_block=plan.decoder.block,
        # Keys that are made anew are rotated by their places in the cache, which is all there are.
        places=cache.capacity if plan.rotates_keys else plan.decoder.places,
        rows=plan.way.rows,
        setup=setup,
        memory_bytes=max(logits.addr + logits.size, *(len(fill.image) for fill in setup)),
        logits=logits,
        logits_step=plan.decoder.output.scale,
        calls=text_calls(plan),
        resident=plan.cuts.resident,
        slots=plan.memory.slots,
        scratchpad_bytes=sum(plan.memory.buffers.values()),
        start=model.start,
        lookups=plan.cuts.lookups,
        source_positions=model.source_positions,
        texts=plan.texts,
        decoder=plan.decoder,
    )


def _expected(
    program: TextProgram, programs: Mapping[str, Sequence[Node]]
) -> tuple[list[Draft], list[Span], tuple[int, ...]]:
    """Return instructions, timeline and cost of a trial, for the last tokens of the cache."""
    drafts, timeline, cost = list[Draft](), list[Span](), list[int]()
    for name, rows in (("step", 1), ("chunk", program.rows)):
        if name not in programs:
            continue
        expected = program.predict(program.cache.capacity - rows, LATENCY, rows=rows)
        start = sum(cost)
        drafts += flatten(programs[name])
        timeline += [(start + begin, start + end) for begin, end in expected.timeline]
        cost.append(expected.cycles)
    return drafts, timeline, tuple(cost)


def _addresses(plan: Plan, used: Mapping[str, Use]) -> tuple[dict[str, int], Mapping[str, int]]:
    """Return a scratchpad address for every buffer, and those that must not be changed.

    No two buffers overlap. A vocabulary that stays has half of its rows in each of two banks if all
    others still fit: in one bank it would force all of these into the other.
    """
    sizes, config = plan.memory.buffers, plan.config
    if plan.way.rows_stay:
        table = plan.rows_tables["words"]
        start = across(table.rows, table.stride, config)
        held = {} if start is None else {"words": start}
        addresses = allocate(used, sizes, config, held)
        if addresses is not None:
            return addresses, held
    addresses = allocate(used, sizes, config)
    if addresses is None:
        raise plan.memory.no_room()
    return addresses, {}
