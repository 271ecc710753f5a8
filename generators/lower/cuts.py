"""Division of a decoder's operations into parts that are computed one after another.

A part is, for example, a range of output columns. One part can be multiplied while another part is
requantized, which shortens a run.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from celosia.arch.config import Config
from celosia.arch.isa import REGISTERS, RING_SLOTS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.blocks import Part
from celosia.generators.lower.choices import DataPlacement
from celosia.generators.lower.key_slots import query_starts
from celosia.generators.lower.weights import split

FFN_PARTS = 2
"""Parts that the MLP is cut into if weights stay on the chip."""
APART = 24
"""Fewest cycles of a row's product with as many columns for which texts' rows are separated: the
vector engine then has more instructions, some 200 cycles of a layer."""
HEAD_TILES = 16
"""Tile columns of a long head's products that are requantized at once."""
MOST_TILES = 16
"""Most tile columns of a passing matrix that are requantized at once."""
WORDS_PLACE = REGISTERS - 1
"""The register of the first token's place if several are looked up."""
SOURCE_ROW = WORDS_PLACE - 1
"""The register of the bytes to the first row if tokens of a source are looked up."""


@dataclass(frozen=True)
class Cuts:
    """Parts into which a decoder's operations are divided, such as ranges of output columns.

    The parts of an operation are computed one after another. For example, one part is requantized
    while the next is multiplied. The division affects the cycles of a run, but not its results.
    """

    resident: bool
    """True if weights, keys and values stay in weight slots."""
    apart: bool
    """True if the rows of several texts are multiplied and drained one by one.

    So the norm and the drains of one text's row run beside products of the next text's row. Rows of
    all texts are multiplied at once in three cases: if these products are short, if weights are
    streamed, and if the head is one product, since each norm of the last layer then needs a
    separate product.
    """
    spaced: bool
    """True if drains leave out the zeros before each head's queries of one tile column.

    Keys are drained in the same way, as consecutive drains are alike.
    """
    query_starts: list[int]
    """First column of each head's queries in a row, then the row's number of columns."""
    query_parts: list[Part]
    """Tile columns (first, count) of queries that are drained together.

    The queries of several texts may have zeros before them. Then the scores of the first half of
    the key heads begin while the other half is drained, if the half ends with a tile column. If
    texts' rows are separated, one text's queries are drained beside the next text's products.
    """
    key_parts: list[Part]
    """Ranges (first, end) of key heads that share one softmax and one product with values.

    The values of a range are multiplied while the softmax of the next range divides. The first half
    of the heads belongs to the first softmax. The last head is separate, as nothing remains to run
    beside it. If texts' rows are separated, all heads of a text are one part.
    """
    ffn_parts: list[Part]
    """Tile columns (first, end) of the MLP that are drained while the next are multiplied.

    If texts' rows are separated, there is one part, drained while another text's row is multiplied.
    """
    head_tiles: int
    """Most tile columns of the output head that are multiplied and drained at once.

    A head of more than three quarters of ``HEAD_TILES``, and at most ``HEAD_TILES``, is two
    products, so that the rows of texts can be separated.
    """
    score_tiles: int
    """Smallest number of tile columns whose vocabulary scores are whole external words."""
    part_tiles: int
    """Most tile columns of a streamed matrix that are requantized at once.

    At the same time previous tile columns, and the gate and up layers, may use other parameter
    words.
    """
    most_words: int
    """Most streamed parameter words that are in the parameter memory at once."""
    by_row: bool
    """True if a token's context is drained by key head, with parameters for each head."""
    lookups: int
    """Number of a source's tokens that one run looks up; 0 without a source."""
    source_rows: int
    """Source tokens rounded up to whole lookup runs; 0 without a source."""


def cuts_of(decoder: Decoder, config: Config, placement: DataPlacement, texts: int) -> Cuts:
    """Return the parts into which a decoder's operations are divided, as a :class:`Cuts`.

    One part is requantized while the next is multiplied. Results do not depend on the parts.
    ``texts`` is the number of texts of a run.
    """
    key_heads = placement.key_heads
    model, cols, lanes = decoder.description, config.array.cols, config.vector.lanes
    resident = config.array.weight_depth > RING_SLOTS
    head_tiles = HEAD_TILES if -(-model.vocabulary // cols) > HEAD_TILES else 3 * HEAD_TILES // 4
    long = -(-model.dim // config.array.rows) * -(-model.dim // cols) >= APART
    apart = texts > 1 and resident and long and model.vocabulary > head_tiles * cols
    alone = placement.rows == 1 and (texts == 1 or apart)
    spaced = config.fused is not None and key_heads > 1 and alone and decoder.key_dim == cols
    starts = query_starts(decoder, key_heads, spaced=spaced)

    tiles, half = -(-starts[-1] // cols), -(-model.kv_heads // 2) * model.group
    end = starts[half - 1] + decoder.key_dim
    together = texts > 1 and not apart and key_heads > 1
    query_parts = [(0, tiles)]
    if spaced:
        query_parts = [(0, model.heads)]
    elif together and not end % cols and half != model.heads:
        query_parts = [(0, end // cols), (end // cols, tiles - end // cols)]

    heads = {0, -(-model.kv_heads // 2), model.kv_heads - 1, model.kv_heads}
    score_tiles = config.mem_bytes // math.gcd(2 * cols, config.mem_bytes)
    words = min(MOST_TILES * config.lane_groups, config.vector.words // 4)
    part_tiles = max(score_tiles, words // config.lane_groups)
    ffn_tiles, parts = -(-model.ffn // cols), FFN_PARTS if resident and not apart else 1
    widest = -(-max(model.dim, model.query_width, model.kv_width) // cols)
    lookups = min(SOURCE_ROW - 1, model.source_positions)
    return Cuts(
        resident=resident,
        apart=apart,
        spaced=spaced,
        query_starts=starts,
        query_parts=query_parts,
        key_parts=[(0, model.kv_heads)] if apart else [*pairwise(sorted(heads))],
        ffn_parts=split(ffn_tiles, -(-ffn_tiles // part_tiles) if placement.passing else parts),
        head_tiles=head_tiles,
        score_tiles=score_tiles,
        part_tiles=part_tiles,
        most_words=max(widest, part_tiles) * config.lane_groups,
        by_row=model.head_dim <= min(lanes, cols),
        lookups=lookups,
        source_rows=-(-model.source_positions // lookups) * lookups if lookups else 0,
    )
