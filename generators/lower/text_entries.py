"""The programs of a decoder's plan, and what the host writes before it starts each of them."""

from celosia.arch.formats import PLANES
from celosia.generators.graph.fewer_planes import BITS, is_nested, planes_of
from celosia.generators.graph.quantized import TextGraph
from celosia.generators.lower.decoder import Layers
from celosia.generators.lower.moves import store
from celosia.generators.lower.plan import INPUTS, SOURCE_ROW, WORDS_PLACE, Plan
from celosia.generators.lower.residence import TEXT_REGISTERS, Register, of_text
from celosia.generators.program.draft import Given, Node, Ref
from celosia.generators.program.executable import entry_at
from celosia.generators.program.image import Piece
from celosia.generators.runtime.text_host import SCORES, Call, Index, Value


def text_entries(found: Plan) -> dict[str, list[Node]]:
    """Return the instructions of each entry of a plan, by its name."""
    decoder, rows = found.decoder, found.rows
    # Scores that pass are stored already.
    programs = {"step": _step(found), "logits": [] if found.passing else _logits(found.scores)}
    if rows > 1:
        programs |= {"words": _words(found), "chunk": _chunk(found)}
    for bits in BITS[1:] if is_nested(decoder) else ():
        programs[entry_at("step", bits)] = _step(found, planes_of(bits))
        if rows > 1:
            programs[entry_at("chunk", bits)] = _chunk(found, planes_of(bits))
        if found.texts > 1:
            programs[entry_at(SCORES, bits)] = _scores(found, planes_of(bits))
    if found.texts > 1:
        programs[SCORES] = _scores(found)
    if decoder.source is not None:
        programs |= {
            "lookup": _lookup(found, decoder.source),
            "encode": _encode(found, decoder.source),
        }
    return programs


def text_calls(found: Plan) -> dict[str, Call]:
    """Return what the host writes before each program starts."""
    config, strides = found.config, found.cache_strides
    model, key_dim = found.decoder.description, found.decoder.key_dim
    tables = {name: table.stride for name, table in found.rows_tables.items()}
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
    if found.cache.recompute:
        common[Register.KEY] = Value(Index.PLACE, strides[INPUTS])
    elif found.resident:
        common |= {
            Register.KEY: Value(Index.PLACE, -(-key_dim // config.rows), config.cols),
            Register.KEY_LINE: Value(Index.PLACE, modulo=config.cols),
            Register.VALUE: Value(Index.PLACE, divide=config.rows),
            Register.VALUE_LINE: Value(Index.PLACE, modulo=config.rows),
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
    if found.texts > 1:
        # Those behind are the other text's.
        step = {number: value for number, value in step.items() if number <= TEXT_REGISTERS}
    calls: dict[str, Call] = {"step": step, "logits": {}}
    calls |= {SCORES: {}} if found.texts > 1 else {}
    if found.rows > 1:
        calls["words"] = {**words(found.rows), WORDS_PLACE: Value(Index.POSITION, place)}
        calls["chunk"] = {**common}
    if found.lookups:
        calls["lookup"] = {
            **words(found.lookups),
            SOURCE_ROW: Value(Index.FIRST, 2 * model.dim),
            WORDS_PLACE: Value(Index.FIRST, tables["source.places"]),
        }
        calls["encode"] = {Register.SOURCE: Value(Index.SOURCE)}
    return calls


def _step(found: Plan, planes: int = len(PLANES)) -> list[Node]:
    layers = Layers(found, found.texts, found.decoder, planes, texts=found.texts)
    if found.resident:
        layers.turn()
    for text in range(found.texts):
        layers.embed(text, of_text(Register.WORD, text), of_text(Register.PLACE, text))
    layers.layers()
    layers.head()
    return layers.done()


def _scores(found: Plan, planes: int = len(PLANES)) -> list[Node]:
    """Make the scores of the other text: ARGMAX and the buffer of scores have one text's."""
    layers = Layers(found, found.texts, found.decoder, planes, texts=found.texts)
    layers.head(1)
    return layers.done()


def _words(found: Plan) -> list[Node]:
    """Look up as many tokens as a chunk has; register i + 1 is the word of token i."""
    layers = Layers(found, found.rows, found.decoder)
    for row in range(found.rows):
        layers.embed(row, row + 1, WORDS_PLACE, behind=row)
    return layers.done()


def _chunk(found: Plan, planes: int = len(PLANES)) -> list[Node]:
    layers = Layers(found, found.rows, found.decoder, planes)
    layers.layers()
    layers.head()
    return layers.done()


def _lookup(found: Plan, source: TextGraph) -> list[Node]:
    """Look up some tokens of a source; register i + 1 is the word of token i."""
    layers = Layers(found, found.source_rows, source, register=Register.SOURCE)
    most = 2 * found.decoder.description.dim * (found.source_rows - found.lookups)
    for row in range(found.lookups):
        layers.embed(row, row + 1, WORDS_PLACE, Given(SOURCE_ROW, most, Ref("x")), behind=row)
    return layers.done()


def _encode(found: Plan, source: TextGraph) -> list[Node]:
    longest = found.decoder.description.source_positions
    layers = Layers(found, longest, source, register=Register.SOURCE)
    layers.layers()
    return layers.done()


def _logits(piece: Piece) -> list[Node]:
    return [store(Ref("logits"), piece.addr, piece.m, piece.row_bytes)]
