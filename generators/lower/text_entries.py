"""Programs of a decoder, one for each entry point, and the registers that each program reads.

The host computes the registers' values by rules, and writes them before a run.
"""

from celosia.arch.formats import PLANES
from celosia.generators.graph.fewer_planes import BITS, is_nested, planes_of
from celosia.generators.graph.quantized import TextGraph
from celosia.generators.lower.cuts import SOURCE_ROW, WORDS_PLACE
from celosia.generators.lower.decoder import Layers
from celosia.generators.lower.moves import store
from celosia.generators.lower.plan import INPUTS, Plan
from celosia.generators.lower.residence import TEXT_REGISTERS, Register, of_text
from celosia.generators.program.draft import Given, Node, Ref
from celosia.generators.program.executable import entry_at
from celosia.generators.program.image import Piece
from celosia.generators.runtime.text_host import SCORES, Call, Index, Value


def text_entries(plan: Plan) -> dict[str, list[Node]]:
    """Return the programs of a plan: a dictionary from entry point name to list of instructions."""
    decoder, rows = plan.decoder, plan.way.rows
    # Scores that pass are stored already.
    programs = {"step": _step(plan), "logits": [] if plan.way.passing else _logits(plan.scores)}
    if rows > 1:
        programs |= {"words": _words(plan), "chunk": _chunk(plan)}
    for bits in BITS[1:] if is_nested(decoder) else ():
        programs[entry_at("step", bits)] = _step(plan, planes_of(bits))
        if rows > 1:
            programs[entry_at("chunk", bits)] = _chunk(plan, planes_of(bits))
        if plan.texts > 1:
            programs[entry_at(SCORES, bits)] = _scores(plan, planes_of(bits))
    if plan.texts > 1:
        programs[SCORES] = _scores(plan)
    if decoder.source is not None:
        programs |= {
            "lookup": _lookup(plan, decoder.source),
            "encode": _encode(plan, decoder.source),
        }
    return programs


def text_calls(plan: Plan) -> dict[str, Call]:
    """Return the rules by which the host computes the registers of each program.

    The result is a dictionary from the program's entry point to a dictionary from register number
    to :class:`Value`, a formula for the register's content.
    """
    config, strides = plan.config, plan.cache_strides
    model, key_dim = plan.decoder.description, plan.decoder.key_dim
    tables = {name: table.stride for name, table in plan.rows_tables.items()}
    place = tables.get("places", 0)
    common: dict[int, Value] = {
        Register.PLACE: Value(Index.POSITION, place),
        Register.COUNT: Value(Index.COUNT),
        Register.LIMIT: Value(Index.LIMIT),
        Register.ROWS: Value(Index.ROWS),
        Register.LAST: Value(Index.LAST, model.dim),
    }
    if model.source_layers:
        common[Register.SOURCE] = Value(Index.SOURCE)
    if plan.cache.recompute:
        common[Register.KEY] = Value(Index.PLACE, strides[INPUTS])
    elif plan.cuts.resident:
        common |= {
            Register.KEY: Value(Index.PLACE, -(-key_dim // config.array.rows), config.array.cols),
            Register.KEY_LINE: Value(Index.PLACE, modulo=config.array.cols),
            Register.VALUE: Value(Index.PLACE, divide=config.array.rows),
            Register.VALUE_LINE: Value(Index.PLACE, modulo=config.array.rows),
        }
    else:
        common |= {
            Register.KEY: Value(Index.PLACE, strides["keys"]),
            Register.VALUE: Value(Index.PLACE, strides["values"]),
        }

    def words(rows: int) -> dict[int, Value]:
        stride = tables["words"]
        return {row + 1: Value(Index.TOKEN, stride, row=row) for row in range(rows)}

    step = {**common, Register.WORD: words(1)[1]}
    if plan.texts > 1:
        # Those behind are the other text's.
        step = {number: value for number, value in step.items() if number <= TEXT_REGISTERS}
    calls: dict[str, Call] = {"step": step, "logits": {}}
    calls |= {SCORES: {}} if plan.texts > 1 else {}
    if plan.way.rows > 1:
        calls["words"] = {**words(plan.way.rows), WORDS_PLACE: Value(Index.POSITION, place)}
        calls["chunk"] = {**common}
    if plan.cuts.lookups:
        calls["lookup"] = {
            **words(plan.cuts.lookups),
            SOURCE_ROW: Value(Index.FIRST, 2 * model.dim),
            WORDS_PLACE: Value(Index.FIRST, tables["source.places"]),
        }
        calls["encode"] = {Register.SOURCE: Value(Index.SOURCE)}
    return calls


def _step(plan: Plan, planes: int = len(PLANES)) -> list[Node]:
    layers = Layers(plan, plan.texts, plan.decoder, planes, texts=plan.texts)
    if plan.cuts.resident:
        layers.turn()
    for text in range(plan.texts):
        layers.embed(text, of_text(Register.WORD, text), of_text(Register.PLACE, text))
    layers.layers()
    layers.head()
    return layers.done()


def _scores(plan: Plan, planes: int = len(PLANES)) -> list[Node]:
    """Make the scores of the other text: ARGMAX and the buffer of scores have one text's."""
    layers = Layers(plan, plan.texts, plan.decoder, planes, texts=plan.texts)
    layers.head(1)
    return layers.done()


def _words(plan: Plan) -> list[Node]:
    """Look up the tokens of a chunk; register i + 1 is the word of token i."""
    layers = Layers(plan, plan.way.rows, plan.decoder)
    for row in range(plan.way.rows):
        layers.embed(row, row + 1, WORDS_PLACE, behind=row)
    return layers.done()


def _chunk(plan: Plan, planes: int = len(PLANES)) -> list[Node]:
    layers = Layers(plan, plan.way.rows, plan.decoder, planes)
    layers.layers()
    layers.head()
    return layers.done()


def _lookup(plan: Plan, source: TextGraph) -> list[Node]:
    """Look up some tokens of a source; register i + 1 is the word of token i."""
    layers = Layers(plan, plan.cuts.source_rows, source, register=Register.SOURCE)
    most = 2 * plan.decoder.description.dim * (plan.cuts.source_rows - plan.cuts.lookups)
    for row in range(plan.cuts.lookups):
        layers.embed(row, row + 1, WORDS_PLACE, Given(SOURCE_ROW, most, Ref("x")), behind=row)
    return layers.done()


def _encode(plan: Plan, source: TextGraph) -> list[Node]:
    longest = plan.decoder.description.source_positions
    layers = Layers(plan, longest, source, register=Register.SOURCE)
    layers.layers()
    return layers.done()


def _logits(piece: Piece) -> list[Node]:
    return [store(Ref("logits"), piece.addr, piece.m, piece.row_bytes)]
