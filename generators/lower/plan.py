"""The plan of a decoder: the addresses of its weights, KV cache, parameters and tables.

Some of these data stay on the chip from run to run. The other data are in external memory, and each
run loads them.
"""

import functools
import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from celosia.arch.config import Config
from celosia.arch.vector_config import PARAM_BYTES
from celosia.generators.graph.operations import Attention, Convert, Linear
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.stored import stored_rows
from celosia.generators.graph.tensors import Rescale, Tensor
from celosia.generators.lower.blocks import Blocks, cut
from celosia.generators.lower.choices import DataPlacement
from celosia.generators.lower.cuts import WORDS_PLACE, Cuts
from celosia.generators.lower.instructions import rescale_words
from celosia.generators.lower.products import Matrix
from celosia.generators.lower.residence import Cache, Kept, Memory, Words
from celosia.generators.lower.staging import STAGES, Stage
from celosia.generators.lower.weights import split
from celosia.generators.program.draft import Draft, Ref
from celosia.generators.program.image import ImageBuilder, Piece, piece_of
from celosia.generators.quantize.options import NARROW_BITS

MOST_ROWS = WORDS_PLACE - 1
"""Most tokens of a chunk: each has a register for its lookup, from 1 on."""
INPUTS = "inputs"
"""Name of the kept inputs if keys and values are made anew, and of their identity parameters."""
PAIRS = "pairs"
"""Name of the rotations of several texts' places, or of each layer, copied from those that stay,
and of their identity parameters."""
QUERIES = frozenset({"query", "query_sums"})
"""Results of the linear layer that makes queries."""
HIDDEN = frozenset({"active", "up", "hidden"})
"""Results of the linear layers that make an MLP's hidden layer."""


@dataclass(frozen=True)
class Table:
    """Location of a table, from which a run reads one row for each of its tokens.

    A table has a row for each word of the vocabulary (its embedding), or a row for each position.
    """

    place: Ref
    """Scratchpad address of the first row, or of the rows that a run has loaded."""
    stride: int
    """Bytes from row to row."""
    rows: int
    addr: int
    """External address of the first row."""


@dataclass
class Plan:
    """The locations of a decoder's weights, parameters, activations, keys and values.

    ``setup`` has instructions that run once, to load the data that stay on the chip.
    """

    decoder: Decoder
    config: Config
    data_placement: DataPlacement
    cuts: Cuts
    cache: Cache
    memory: Memory
    image: ImageBuilder
    stage: Stage
    sparse: bool
    """True if streamed weights are stored without zeros if that is faster."""
    texts: int = 1
    """Number of texts; a step processes one token of each."""
    blocks: dict[str, Blocks] = field(default_factory=dict)
    """The tensors of all graphs that are not in the cache, by the name of each one's buffer."""
    matrices: dict[str, Matrix] = field(default_factory=dict)
    """By the name of each one's result, like words and tables."""
    words: dict[str, Words] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    passing_tables: dict[str, Piece] = field(default_factory=dict)
    """Tables of activations if parameters pass; all use the same slot."""
    kept: dict[str, list[Kept]] = field(default_factory=dict)
    """Places of each text's keys and values, by the name of an attention's keys."""
    rows_tables: dict[str, Table] = field(default_factory=dict)
    setup: list[Draft] = field(default_factory=list)

    def query_stride(self, op: Attention) -> int:
        """Return the row stride of an attention's queries (bytes)."""
        return self.cuts.query_starts[-1] * op.query.element

    def paired(self, kept: Kept) -> bool:
        """Return whether a byte of a weight slot contains two elements of attention values (V).

        The result is True if the KV cache has fewer than 8 bits for each element. However, the
        values of an encoder-decoder's source text always have 8 bits.
        """
        return kept.grows and self.decoder.kv_bits < NARROW_BITS

    @property
    def head(self) -> Linear:
        """The linear layer that computes the scores of the vocabulary."""
        (linear,) = (op for op in self.decoder.after if isinstance(op, Linear))
        return linear

    @functools.cached_property
    def contexts(self) -> frozenset[str]:
        """Names of the tensors with attention results, which the output projections read."""
        ops = self.decoder.all_ops
        return frozenset(op.target.name for op in ops if isinstance(op, Attention))

    @property
    def head_parts(self) -> list[tuple[int, int]]:
        """Ranges (first, count) of the output head's tile columns, computed one after another.

        A tile column is as wide as the array. The ranges are for programs that load requantization
        parameters in each run. A loop computes :data:`STAGES` ranges of equal width in each
        iteration. The ranges after the loop may be narrower.
        """
        head = self.head
        step, total = self.cuts.score_tiles, -(-head.weight.shape[1] // self.config.array.cols)
        column = stored_rows(head.stored, head.weight.shape[0]) * self.config.array.cols
        units = -(-total // step)
        width = max(1, min(self.stage.size // column, self.cuts.part_tiles) // step)
        while width > 1 and 0 < units % (STAGES * width) < STAGES:
            width -= 1
        whole = units - units % (STAGES * width)
        starts = [*range(0, whole, width)]
        starts += [whole + first for first, _ in split(units - whole, STAGES)]
        return cut(total, [start * step for start in starts])

    def keep(self, *rescales: Rescale, by_tile: bool = False, for_sums: bool = False) -> Words:
        """Store requantization parameters as parameter words, and return the location of the words.

        A word has the parameters of one column for each lane of the vector engine. Each of
        ``rescales`` begins a new word.

        - ``by_tile``: true for DRAIN. Each tile column (as wide as the array) then begins a new
          word.
        - ``for_sums``: true for SOFTMAX or NORM of accumulator sums, which may have reserved words.
        """
        words = rescale_words(self.config, *rescales, by_tile=by_tile)
        if not self.data_placement.passing:
            return self.memory.take_words(words, for_sums=for_sums)
        used = self.config.vector.lanes * PARAM_BYTES
        packed = words[:, : -(-used // self.config.mem_bytes) * self.config.mem_bytes]
        return Words(self.image.add(packed.ravel()).addr, len(words), packed.shape[1])

    @functools.cached_property
    def scores(self) -> Piece:
        """The range of external memory to which a run writes the scores of the vocabulary.

        The range begins at the first address after the data that runs load from external memory. If
        runs load no data, because all data stay on the chip, the range begins at address 0.
        """
        size, alone = self.logits_bytes, self.cuts.resident and self.data_placement.rows_stay
        return piece_of(0, size, self.config) if alone else self.image.reserve(size)

    @property
    def logits_bytes(self) -> int:
        """Size (bytes) of one token's vocabulary scores, of two bytes each.

        The size is rounded up to whole words of external memory.
        """
        words = -(-2 * self.decoder.description.vocabulary // self.config.mem_bytes)
        return words * self.config.mem_bytes

    @property
    def cache_strides(self) -> dict[str, int]:
        """Bytes that each token takes in one layer's KV cache, as a dictionary from name to size.

        The names are ``keys`` and ``values``. If the cache stores each token's attention input
        instead, the only name is ``inputs``. Sizes are rounded up to whole words of external
        memory.
        """
        model, least = self.decoder.description, self.config.mem_bytes
        widths = {"keys": model.kv_heads * self.decoder.key_dim, "values": model.kv_width}
        if self.cache.recompute:
            widths = {INPUTS: model.dim}
        return {name: -(-width // least) * least for name, width in widths.items()}

    @property
    def rotates_keys(self) -> bool:
        """True if each run computes and rotates the keys of all cached tokens.

        This is the case if the cache stores the inputs of attention, and if positions are rotary.
        Each key is then rotated by an angle that depends on its token's place in the cache.
        """
        return self.cache.recompute and self.decoder.rotary is not None

    @functools.cached_property
    def turning(self) -> list[tuple[int, bool, int]]:
        """Ranges of successive layers that all have a rotary embedding, or that all have none.

        A range is (first layer, True for a rotary embedding, number of layers). For example, only
        the last of three layers has none: ``[(0, True, 2), (2, False, 1)]``. The list is empty if
        all layers have rotary embeddings, or none has.
        """
        model = self.decoder.description
        layers = [model.rotates(layer) for layer in range(model.layers)]
        if self.decoder.rotary is None or all(layers):
            return []
        grouped = itertools.groupby(range(model.layers), layers.__getitem__)
        runs = [(rotates, [*run]) for rotates, run in grouped]
        return [(run[0], rotates, len(run)) for rotates, run in runs]

    def turned(self, layer: int, row: int = 0) -> Ref:
        """Return the scratchpad address of the rotary cosines and sines of one token in one layer.

        The method is for models in which only some layers have rotary embeddings. Each layer then
        has its own cosines and sines in the scratchpad. ``layer`` is the number of the layer, and
        ``row`` is the index of the token in the run.
        """
        rows = max(self.data_placement.rows, self.texts)
        return Ref(PAIRS, (layer * rows + row) * self.rows_tables["places"].stride)

    def recomputed_parts(self, op: Linear) -> list[tuple[int, int]]:
        """Return the ranges of columns in which a run computes keys or values of all tokens again.

        ``op`` is the linear layer that computes keys or values from cached inputs of attention. A
        range is (first, end) in tile columns (as wide as the array). If possible, the sums of a
        range need at most half of the free accumulators. With rotary embeddings, a range of keys
        begins with a head.
        """
        tiles, rows = -(-op.target.columns // self.config.array.cols), self.cache.capacity
        low = 0 if op.low_rank is None else op.low_rank.first.target.columns
        # The products of a correction have separate rows for keys and for values.
        room = self.config.accumulators.depth - 2 * -(-low // self.config.array.cols) * rows
        unit = 1
        if self.rotates_keys and kind(op.target) == "key_sums":
            # A rotation begins with a head.
            unit = math.lcm(self.config.array.cols, self.decoder.key_dim) // self.config.array.cols
        units, most = -(-tiles // unit), max(1, room // 2 // rows // unit)
        parts = split(units, -(-units // most))
        return [(first * unit, min(end * unit, tiles)) for first, end in parts]


def kind(tensor: Tensor) -> str:
    """Return the last part of a tensor's name, such as ``query`` in ``layers.3.query``."""
    return tensor.name.rpartition(".")[2]


def layer_of(tensor: Tensor) -> int:
    """Return the number of a tensor's layer, which is part of the tensor's name.

    For example, the result is 3 for a tensor with the name ``layers.3.query``.
    """
    return int(tensor.name.split(".")[1])


def identity_of(op: Convert, head_dim: int, config: Config) -> Linear:
    """Return the conversion ``op`` as a linear layer whose weights are an identity matrix.

    The matrix has ``head_dim`` columns, rounded up to a multiple of the array's width, but no more
    columns than the result of ``op``. If the result has more columns, the caller must divide the
    result into ranges, with a product for each range.
    """
    side = -(-head_dim // config.array.cols) * config.array.cols
    return Linear(op.source, op.target, np.eye(min(side, op.target.columns), dtype=int), op.rescale)


def context_of(op: Attention) -> Rescale:
    """Return the requantization parameters of an attention's result, for every column."""
    parts = [(head.context.bias, head.context.multiplier, head.context.shift) for head in op.heads]
    shape = len(parts), op.head_dim
    return Rescale(*(np.broadcast_to(each, shape).ravel() for each in zip(*parts, strict=True)))


def part(rescale: Rescale, first: int, count: int) -> Rescale:
    """Return the requantization parameters of some adjacent columns of a tensor.

    ``rescale`` has the parameters of all columns. The function selects ``count`` columns, from
    column ``first`` on. If these columns have equal parameters, the result has only one set, which
    is for all of them.
    """
    columns = rescale if rescale.per_tensor else rescale.columns(first, count)
    values = np.stack((columns.bias, columns.multiplier, columns.shift))
    return columns.columns(0, 1) if np.all(values == values[:, :1]) else columns


def runs(rescale: Rescale, total: int) -> list[tuple[int, int]]:
    """Divide ``total`` columns into ranges with equal requantization parameters.

    The ranges (first, count) are as long as possible. For example, four columns with parameters a,
    a, b, a give ``[(0, 2), (2, 1), (3, 1)]``.
    """
    if rescale.per_tensor:
        return [(0, total)]
    columns = np.stack((rescale.bias, rescale.multiplier, rescale.shift)).T  # [total, 3]
    return cut(total, (np.flatnonzero(np.any(np.diff(columns, axis=0), axis=1)) + 1).tolist())
