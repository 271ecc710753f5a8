"""A compiled decoder: setup programs that load the chip once, and programs that process tokens.

The host writes the registers that :class:`celosia.generators.runtime.text_host.TextHost` computes,
and then starts a program at its first word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.assembly import (
    Assembly,
    Routine,
    Trial,
    check_programs,
    check_words,
    fewest_words,
    place,
    settle,
)
from celosia.generators.lower.fill import fills
from celosia.generators.lower.plan import Plan
from celosia.generators.lower.text_entries import text_entries
from celosia.generators.program.allocate import Use, across, uses
from celosia.generators.program.draft import flatten
from celosia.generators.program.executable import Fill, written
from celosia.generators.runtime.text_host import TextHost


@dataclass(frozen=True, kw_only=True)
class TextProgram(TextHost, Artefact[TextDescription]):
    """A decoder's program for a configuration, together with the quantized decoder."""

    @property
    def macs_resident(self) -> int:
        """Multiply-accumulates of one token's linear layers, without attention."""
        return sum(op.size for op in self.graph.ops if isinstance(op, Linear))

    def macs(self, position: int, source: int = 0) -> int:
        """Return the number of multiply-accumulates that one token at a position of the text needs.

        These are the multiply-accumulates of linear layers and attention; those of padding are not
        counted. The token attends to itself, to the earlier tokens that the cache holds, and to
        ``source`` tokens of a source text.
        """
        model = self.graph.description
        seen = self.cache.count(position) + source
        columns = self.graph.key_dim + model.head_dim
        return self.macs_resident + model.layers * model.heads * seen * columns

    def source_macs(self, source: int) -> int:
        """Return the number of multiply-accumulates that encode a source of ``source`` tokens.

        Those of padding are not counted. The result is 0 if the model has no encoder.
        """
        encoder, model = self.graph.source, self.graph.description
        ops = () if encoder is None else encoder.ops
        linear = sum(op.size for op in ops if isinstance(op, Linear))
        columns = self.graph.key_dim + model.head_dim
        return source * (linear + model.source_layers * model.heads * source * columns)


def text_trial(plan: Plan, *, search: bool = True) -> Trial[Plan]:
    """Return a plan's programs with scratchpad addresses, and their predicted cycles.

    The cycles are those of runs that fill the last slots of the cache with their tokens. If
    ``search`` is true, the assignment of buffers to banks is the best of several (fewest cycles),
    otherwise the first. Raises :class:`FitError` if the programs have too many words, or if the
    buffers exceed the scratchpad.
    """
    # Scores are behind all other data.
    _, programs = plan.scores, text_entries(plan)
    host, last = _host(plan, programs), plan.cache.capacity
    whole = [plan.setup, *(routine.nodes for routine in programs.values())]
    known = uses([draft for nodes in whole for draft in flatten(nodes)])
    used = {name: known.get(name, Use()) for name in plan.memory.buffers}
    check_programs(plan.memory, fewest_words(programs), used, plan.memory.buffers)
    held: Mapping[str, int] = {}
    if plan.way.rows_stay:
        # In one bank the vocabulary would force all other buffers into the other banks.
        table = plan.rows_tables["words"]
        start = across(table.rows, table.stride, plan.config)
        held = {} if start is None else {"words": start}
    addresses, held = place(plan.memory, used, held)
    assembly = Assembly(
        source=plan,
        memory=plan.memory,
        programs=programs,
        used=used,
        runs=[[host.run(last - rows, rows=rows)] for rows in dict.fromkeys((1, host.rows))],
        held=held,
        unrolls=True,
    )
    first = assembly.trial(addresses)
    return settle(first) if search else first


def text_program(trial: Trial[Plan], limit: int) -> TextProgram:
    """Return a decoder's :class:`TextProgram`, including the programs that set up the chip.

    ``limit`` is the size of external memory (bytes). Raises :class:`FitError` if a setup
    program has too many words.
    """
    plan, program, scores = trial.source, trial.program, trial.source.scores
    image = plan.image.finish(plan.memory.name).tobytes()
    assemble = partial(trial.assembly.words, addresses=trial.addresses)
    if plan.cuts.resident or plan.way.rows_stay:
        once = plan.stage.image.finish(plan.memory.name)
        setup = fills(plan.setup, once, plan.config, limit, assemble)
        if not (plan.cuts.resident and plan.way.rows_stay):
            setup.append(Fill(image, assemble([]), []))
    else:
        setup = [Fill(image, assemble(plan.setup), written(plan.setup))]
    check_words(plan.memory, max(len(fill.words) for fill in setup))
    memory_bytes = max(scores.addr + scores.size, *(len(fill.image) for fill in setup))
    return replace(
        _host(plan, trial.assembly.programs),
        words=program.words,
        entries=program.entries,
        setup=setup,
        memory_bytes=memory_bytes,
    )


def _host(plan: Plan, programs: Mapping[str, Routine]) -> TextProgram:
    """Return a decoder without words and memory contents, for the registers of its runs."""
    model, cache = plan.decoder.description, plan.cache
    return TextProgram(
        config=plan.config,
        words=[],
        entries={},
        name=model.name,
        vocabulary=model.vocabulary,
        cache=cache,
        kv_bits=plan.decoder.kv_bits,
        kv_block=plan.decoder.block,
        # Keys that are made anew are rotated by their places in the cache, which is all there are.
        places=cache.capacity if plan.rotates_keys else plan.decoder.places,
        rows=plan.way.rows,
        setup=[],
        memory_bytes=0,
        logits=plan.scores,
        logits_step=plan.decoder.output.scale,
        calls={name.partition(".")[0]: each.call for name, each in programs.items()},
        resident=plan.cuts.resident,
        slots=plan.memory.slots,
        scratchpad_bytes=sum(plan.memory.buffers.values()),
        start=model.start,
        lookups=plan.cuts.lookups,
        source_positions=model.source_positions,
        texts=plan.texts,
        graph=plan.decoder,
    )
