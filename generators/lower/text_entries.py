"""Programs of a decoder, for example for one token or for a chunk of a prompt.

Each program has a formula for each register that the host writes before a run
(:class:`celosia.generators.program.calls.RegisterFormula`).
"""

from functools import partial

from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.lower.assembly import Routine, routines
from celosia.generators.lower.cuts import SOURCE_ROW, WORDS_PLACE
from celosia.generators.lower.decoder import STREAM, Layers
from celosia.generators.lower.moves import store
from celosia.generators.lower.plan import INPUTS, Plan
from celosia.generators.lower.residence import TEXT_REGISTERS, Register, of_text
from celosia.generators.program.calls import RegisterFormula, RunNumber
from celosia.generators.program.draft import Given, Node, Ref
from celosia.generators.program.executable import CHUNK, SCORES, STEP
from celosia.generators.program.image import Piece


def text_entries(plan: Plan) -> dict[str, Routine]:
    """Return a decoder's programs by name, with the registers that each program reads.

    The name is that of the entry point at which the host starts the program. For example, the
    program ``step`` processes one token.
    """
    rows, source = plan.data_placement.rows, plan.decoder.source
    tables = {name: table.stride for name, table in plan.rows_tables.items()}
    place = RegisterFormula(RunNumber.POSITION, tables.get("places", 0))
    common = _tokens(plan, place)

    def words(count: int) -> dict[int, RegisterFormula]:
        return {
            row + 1: RegisterFormula(RunNumber.TOKEN, tables["words"], row=row)
            for row in range(count)
        }

    step = {**common, Register.WORD: words(1)[1]}
    if plan.texts > 1:
        # Those behind are the other text's.
        step = {number: value for number, value in step.items() if number <= TEXT_REGISTERS}
    # Scores that pass are stored already.
    stored = [] if plan.data_placement.passing else _logits(plan.scores)
    every = partial(routines, nested=is_nested(plan.decoder))
    programs = every(STEP, lambda planes: Routine(_step(plan, planes), step))
    programs["logits"] = Routine(stored)
    if rows > 1:
        chunk = _lookup(Layers(plan, rows, plan.decoder), rows)
        programs["words"] = Routine(chunk, {**words(rows), WORDS_PLACE: place})
        several = partial(Layers, plan, rows, plan.decoder)
        programs |= every(CHUNK, lambda planes: Routine(_run(several(planes)), common))
    if plan.texts > 1:
        programs |= every(SCORES, lambda planes: Routine(_scores(plan, planes)))
    if source is not None:
        longest, count = plan.cuts.source_rows, plan.cuts.lookups
        first = Given(SOURCE_ROW, 2 * plan.decoder.description.dim * (longest - count), STREAM)
        layers = Layers(plan, longest, source, register=Register.SOURCE)
        call = words(count)
        call[SOURCE_ROW] = RegisterFormula(RunNumber.FIRST, 2 * plan.decoder.description.dim)
        call[WORDS_PLACE] = RegisterFormula(RunNumber.FIRST, tables["source.places"])
        programs["lookup"] = Routine(_lookup(layers, count, first), call)
        encode = {int(Register.SOURCE): RegisterFormula(RunNumber.SOURCE)}
        longest = plan.decoder.description.source_positions
        whole = Layers(plan, longest, source, register=Register.SOURCE)
        programs["encode"] = Routine(_run(whole), encode)
    return programs


def _tokens(plan: Plan, place: RegisterFormula) -> dict[int, RegisterFormula]:
    """Return the registers with the places and numbers of a run's tokens."""
    config, strides, model = plan.config, plan.cache_strides, plan.decoder.description
    common: dict[int, RegisterFormula] = {
        Register.PLACE: place,
        Register.COUNT: RegisterFormula(RunNumber.COUNT),
        Register.LIMIT: RegisterFormula(RunNumber.LIMIT),
        Register.ROWS: RegisterFormula(RunNumber.ROWS),
        Register.LAST: RegisterFormula(RunNumber.LAST, model.dim),
    }
    if model.source_layers:
        common[Register.SOURCE] = RegisterFormula(RunNumber.SOURCE)
    if plan.cache.recompute:
        return common | {Register.KEY: RegisterFormula(RunNumber.PLACE, strides[INPUTS])}
    if not plan.cuts.resident:
        return common | {
            Register.KEY: RegisterFormula(RunNumber.PLACE, strides["keys"]),
            Register.VALUE: RegisterFormula(RunNumber.PLACE, strides["values"]),
        }
    rows, cols = config.array.rows, config.array.cols
    return common | {
        Register.KEY: RegisterFormula(RunNumber.PLACE, -(-plan.decoder.key_dim // rows), cols),
        Register.KEY_LINE: RegisterFormula(RunNumber.PLACE, modulo=cols),
        Register.VALUE: RegisterFormula(RunNumber.PLACE, divide=rows),
        Register.VALUE_LINE: RegisterFormula(RunNumber.PLACE, modulo=rows),
    }


def _run(layers: Layers) -> list[Node]:
    """Compute all layers and, unless the graph is an encoder's, the scores of the last token."""
    layers.layers()
    if not layers.graph.encodes:
        layers.head()
    return layers.done()


def _step(plan: Plan, planes: int) -> list[Node]:
    layers = Layers(plan, plan.texts, plan.decoder, planes, texts=plan.texts)
    if plan.cuts.resident:
        layers.bring_rotations()
    for text in range(plan.texts):
        layers.embed(text, of_text(Register.WORD, text), of_text(Register.PLACE, text))
    return _run(layers)


def _scores(plan: Plan, planes: int) -> list[Node]:
    """Make the scores of the other text: ARGMAX and the buffer of scores have one text's."""
    layers = Layers(plan, plan.texts, plan.decoder, planes, texts=plan.texts)
    layers.head(1)
    return layers.done()


def _lookup(layers: Layers, count: int, first: Ref | Given = STREAM) -> list[Node]:
    """Look up ``count`` tokens, whose rows begin at ``first``; register i + 1 is token i's word."""
    for row in range(count):
        layers.embed(row, row + 1, WORDS_PLACE, first, behind=row)
    return layers.done()


def _logits(piece: Piece) -> list[Node]:
    return [store(Ref("logits"), piece.addr, piece.m, piece.row_bytes)]
