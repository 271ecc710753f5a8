"""Addresses and predicted cycles of a decoder's programs.

Setup programs run once, and load data that stay on the chip, such as weights. The other programs
process tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.assembly import (
    Assembly,
    Routine,
    Trial,
    calls_of,
    check_programs,
    check_words,
    fewest_words,
    place,
)
from celosia.generators.lower.fill import fills
from celosia.generators.lower.plan import Plan
from celosia.generators.lower.text_entries import text_entries
from celosia.generators.program.allocate import Use, middle_banks_address, uses
from celosia.generators.program.draft import flatten
from celosia.generators.program.executable import Fill, written
from celosia.generators.program.image import Piece


def text_trial(plan: Plan) -> Trial[Plan]:
    """Return a decoder's programs with scratchpad addresses, and their predicted cycles.

    The prediction is for runs whose tokens use the last slots of the KV cache.

    Raises :class:`FitError` if program memory, weight slots or scratchpad are too small.
    """
    # Scores are behind all other data.
    _, programs = plan.scores, text_entries(plan)
    host, last = _host(plan, programs), plan.cache.capacity
    whole = [plan.setup, *(routine.nodes for routine in programs.values())]
    known = uses([draft for nodes in whole for draft in flatten(nodes)])
    used = {name: known.get(name, Use()) for name in plan.memory.buffers}
    check_programs(plan.memory, fewest_words(programs), used, plan.memory.buffers)
    held: Mapping[str, int] = {}
    if plan.data_placement.rows_stay:
        # In one bank the vocabulary would force all other buffers into the other banks.
        table = plan.rows_tables["words"]
        start = middle_banks_address(table.rows, table.stride, plan.config)
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
    return assembly.trial(addresses)


def text_program(trial: Trial[Plan], limit: int) -> Artefact:
    """Return a decoder's :class:`Artefact`, including the programs that set up the chip.

    Setup programs load the data that stay on the chip, part by part if they exceed ``limit`` bytes
    of external memory. Raises :class:`FitError` if a setup program exceeds the program memory.
    """
    plan, program, scores = trial.source, trial.program, trial.source.scores
    image = plan.image.finish(plan.memory.name).tobytes()
    assemble = partial(trial.assembly.words, addresses=trial.addresses)
    if plan.cuts.resident or plan.data_placement.rows_stay:
        once = plan.stage.image.finish(plan.memory.name)
        setup = fills(plan.setup, once, plan.config, limit, assemble)
        if not (plan.cuts.resident and plan.data_placement.rows_stay):
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


def _host(plan: Plan, programs: Mapping[str, Routine]) -> Artefact:
    """Return a decoder without words and memory contents, for the registers of its runs."""
    model, cache = plan.decoder.description, plan.cache
    return Artefact(
        config=plan.config,
        words=[],
        entries={},
        name=model.name,
        input=plan.decoder.input,
        input_piece=Piece(0, 0, 0),
        output=replace(plan.decoder.output, rows=1),
        output_piece=plan.scores,
        cache=cache,
        kv_bits=plan.decoder.kv_bits,
        kv_block=plan.decoder.block,
        # Keys that are made anew are rotated by their places in the cache, which is all there are.
        places=cache.capacity if plan.rotates_keys else plan.decoder.places,
        rows=plan.data_placement.rows,
        setup=[],
        memory_bytes=0,
        calls=calls_of(programs),
        resident=plan.cuts.resident,
        slots=plan.memory.slots,
        scratchpad_bytes=sum(plan.memory.buffers.values()),
        start=model.start,
        lookups=plan.cuts.lookups,
        source_positions=model.source_positions,
        batch=plan.texts,
        graph=plan.decoder,
    )
