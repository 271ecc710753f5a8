"""From a quantized model to instructions: cuts operations into what the memories hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arch.config import Config
from arch.isa import Opcode, wrap
from generators.draft import LENGTH_REGISTER, Draft, Given, Item, Node, Ref, Repeat, Written
from generators.graph import (
    Attention,
    Convert,
    Ints,
    Linear,
    Norm,
    Op,
    Pool,
    QuantizedModel,
    Rescale,
    Tensor,
)
from generators.image import Bytes, ImageBuilder, Piece
from generators.layout import param_words
from generators.loops import BARRIER
from sim.requantize import quantize_multiplier

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (see generators.loops)."""


@dataclass(frozen=True)
class Limits:
    """What the lowering may use of the memories."""

    blob_bytes: int
    """Scratchpad bytes of one load of weights, and of the scores of one step of attention."""
    loop_heads: bool
    """Whether heads come one after the other, as iterations of a loop, and not interleaved."""
    loop_parts: bool
    """Whether the parts that a product is cut into are iterations of a loop."""
    barriers: bool
    """Whether there is any loop (see generators.loops)."""
    skip_zero_tiles: bool
    """Whether weight tiles of zeros are masked."""


@dataclass(frozen=True)
class Lowered:
    """A model's items by section, and what lies in external memory."""

    before: list[Item]
    layers: list[list[Item]]
    after: list[Item]
    sizes: dict[str, int]
    """Bytes of every buffer."""
    image: Bytes
    input: Piece
    output: Piece
    pool: Piece | None
    """What the host writes for each inference, :func:`pool_bytes`; None where it needs nothing."""


def lower(model: QuantizedModel, config: Config, limits: Limits) -> Lowered:
    """Return a model's instructions with buffers that have no addresses yet.

    Raises :class:`ValueError` where an operation cannot be done on the configuration at all.
    """
    return _Lowering(model, config, limits).run()


def pool_bytes(op: Pool, rows: int, config: Config) -> Bytes:
    """Return the parameter word and the row of weights that make a mean of the first rows."""
    ones = np.arange(op.source.rows) < rows
    return np.concatenate([word(op.rescale(rows), config), ones.astype(np.uint8)])


def word(r: Rescale, config: Config) -> Bytes:
    """Return the word of a tensor whose columns are all alike, the same in every lane, [bytes]."""
    lanes = np.ones(config.lanes, np.int64)
    values = (r.bias * lanes, r.multiplier * lanes, r.shift * lanes)
    return param_words(*values, config, by_tile=False).ravel()


def _even(total: int, most: int) -> int:
    """Return the size of equal parts of ``total``, each at most ``most``."""
    return -(-total // -(-total // most))


def _parts(total: int, size: int) -> list[tuple[int, int]]:
    """Return (first, count) of the parts of ``total`` in steps of ``size``."""
    return [(first, min(size, total - first)) for first in range(0, total, size)]


class _Lowering:
    def __init__(self, model: QuantizedModel, config: Config, limits: Limits):
        self.model, self.config, self.limits = model, config, limits
        self.image = ImageBuilder(config)
        self.sizes: dict[str, int] = {}
        self.acc_next = 0
        self.mask_half = 0
        self.name = model.description.name
        self.pool: Piece | None = None

    def run(self) -> Lowered:
        model = self.model
        self._check()
        source = self.image.reserve(model.input.bytes)
        output = self.image.reserve(model.output.bytes)
        before = self._section("before", model.before)
        first = Item()
        if self.limits.barriers:
            self._load(first, BARRIER, np.zeros(self._word_bytes, np.uint8))
        if model.start is not None:
            data = model.start.astype("<i2").view(np.uint8).ravel()
            self._load(first, model.before[0].target.buffer, data)
        self._buffer(model.stream)
        self._load_piece(first, model.input.buffer, source)
        layers = [self._section("layer", layer) for layer in model.layers]
        after = self._section("after", model.after)
        last = Item(body=self._store(output))
        return Lowered(
            [first, *before],
            layers,
            [*after, last],
            self.sizes,
            self.image.finish(self.name),
            source,
            output,
            self.pool,
        )

    def _check(self) -> None:
        """Refuse what no tiling can make fit."""
        config, model = self.config, self.model.description
        needs = {
            "softmax": True,
            "norm": model.norm != "none",
            "activation": model.activation != "relu",
        }
        for unit, needed in needs.items():
            if needed and not getattr(config, unit):
                raise ValueError(
                    f"Model {self.name} needs the unit {unit}, which configuration "
                    f"{config.name} leaves out"
                )
        if not (config.b_transpose or config.a_transpose):
            raise ValueError(
                f"Model {self.name} needs b_transpose or a_transpose for its attention, but "
                f"configuration {config.name} has neither"
            )
        longest = {
            "max_k": max(model.dim, model.ffn, model.features, model.sequence),
            "max_row": max(model.sequence, model.dim if model.norm != "none" else 0),
        }
        for field, least in longest.items():
            if least > getattr(config, field):
                raise ValueError(
                    f"Model {self.name} needs {field} of at least {least}, but configuration "
                    f"{config.name} has {getattr(config, field)}"
                )

    @property
    def _word_bytes(self) -> int:
        return self.config.param_lines * self.config.line_bytes

    def _section(self, name: str, ops: Sequence[Op]) -> list[Item]:
        self.acc_next = self.mask_half = 0
        items: list[Item] = []
        for index, op in enumerate(ops):
            label = f"{name}.{index}"
            if isinstance(op, Linear):
                items += self._linear(label, op)
            elif isinstance(op, Attention):
                items.append(self._attention(label, op))
            elif isinstance(op, Pool):
                items += self._pool(label, op)
            else:
                items.append(self._elementwise(label, op))
        return items

    def _buffer(self, tensor: Tensor) -> None:
        self.sizes[tensor.buffer] = max(self.sizes.get(tensor.buffer, 0), tensor.bytes)

    def _load(self, item: Item, buffer: str, data: Bytes) -> None:
        """Add bytes to the image and load them."""
        self._load_piece(item, buffer, self.image.add(data))

    def _load_piece(self, item: Item, buffer: str, piece: Piece) -> None:
        self.sizes[buffer] = max(self.sizes.get(buffer, 0), piece.size)
        operands: dict[str, int | Ref] = {
            "dram_addr": piece.addr,
            "dram_stride": piece.row_bytes,
            "sp_addr": Ref(buffer),
            "sp_stride": piece.row_bytes,
            "m": piece.m,
            "row_bytes": piece.row_bytes,
        }
        item.loads.append(Draft(Opcode.LOAD, operands, defines=buffer))

    def _store(self, piece: Piece) -> list[Node]:
        """Store the output, byte behind byte, in rows as long as possible."""
        output = self.model.output
        nodes: list[Node] = []
        row = min(output.bytes, piece.row_bytes)
        rest = output.bytes % row
        for first, m, row_bytes in ((0, output.bytes // row, row), (output.bytes - rest, 1, rest)):
            if row_bytes:
                operands: dict[str, int | Ref] = {
                    "dram_addr": piece.addr + first,
                    "dram_stride": piece.row_bytes,
                    "sp_addr": Ref(output.buffer, first),
                    "sp_stride": row,
                    "m": m,
                    "row_bytes": row_bytes,
                }
                nodes.append(Draft(Opcode.STORE, operands))
        return nodes

    def _params(self, rescales: Sequence[Rescale], *, by_tile: bool = False) -> Bytes:
        """Return parameter words one behind the other, [bytes]."""
        words = [
            param_words(r.bias, r.multiplier, r.shift, self.config, by_tile=by_tile).ravel()
            if not r.per_tensor
            else word(r, self.config)
            for r in rescales
        ]
        return np.concatenate(words)

    def _params_draft(self, blob: str, count: int) -> Draft:
        operands: dict[str, int | Ref] = {"i_addr": Ref(blob), "n": count, "params": SPARE_WORDS}
        return Draft(Opcode.PARAMS, operands, written=Written("parameters"))

    def _room_for(self, words: int) -> None:
        if words + SPARE_WORDS > self.config.param_depth:
            raise ValueError(
                f"Model {self.name} needs {words + SPARE_WORDS} parameter words at once, but "
                f"param_depth is {self.config.param_depth}"
            )

    def _acc(self, rows: int) -> int:
        """Return the first of so many accumulator rows, other ones than the last time."""
        if self.acc_next + rows > self.config.acc_depth:
            self.acc_next = 0
        first = self.acc_next
        self.acc_next += rows
        return first

    def _height(self, m: int) -> int:
        """Return how many of m rows of one tile column half of the accumulators take."""
        return _even(m, min(m, self.config.acc_depth // 2))

    def _linear(self, label: str, op: Linear) -> list[Item]:
        config, (k, n) = self.config, op.weight.shape
        m = op.source.rows
        kt, nt = -(-k // config.rows), -(-n // config.cols)
        self._buffer(op.source)
        self._buffer(op.target)
        self._room_for(config.lane_groups)
        height = self._height(m)
        tiles = max(1, config.acc_depth // 2 // height)
        tiles = min(tiles, (config.param_depth - SPARE_WORDS) // config.lane_groups)
        masked = self.limits.skip_zero_tiles and 2 * kt <= config.mask_depth
        if masked:
            tiles = min(tiles, config.mask_depth // 2 // kt)
        fixed = 0 if op.table is None else 256
        per_tile = config.lane_groups * self._word_bytes + kt * masked + k * config.cols
        tiles = min(tiles, max(1, (self.limits.blob_bytes - fixed) // per_tile))
        width = _even(nt, tiles) * config.cols
        parts = _parts(n, width)
        if not self.limits.loop_parts:
            return [
                self._columns(f"{label}.{part}", op, height, columns, masked, table=part == 0)
                for part, columns in enumerate(parts)
            ]
        items = []
        if op.table is not None:
            items.append(Item())
            self._load(items[0], f"{label}.table", op.table.astype(np.int8).view(np.uint8))
            items[0].body.append(self._table_draft(Ref(f"{label}.table")))

        def column_part(first: int, count: int) -> list[Node]:
            self.mask_half = 0
            item = self._columns(label, op, height, (first, count), masked, table=False)
            return [*item.loads, *item.body]

        return [*items, Item(body=self._each(parts, column_part))]

    def _each(
        self, parts: Sequence[tuple[int, int]], make: Callable[[int, int], list[Node]]
    ) -> list[Node]:
        """Return the instructions of parts (first, count), those of one size as a loop if asked."""
        if not self.limits.loop_parts or len(parts) == 1:
            return [node for part in parts for node in make(*part)]
        bodies = []
        for part in parts:
            self.acc_next = 0
            bodies.append(make(*part))
        alike = sum(count == parts[0][1] for _, count in parts)
        rest = [node for body in bodies[alike:] for node in body]
        return [Repeat(bodies[:alike]), *rest] if alike > 1 else [*bodies[0], *rest]

    def _table_draft(self, place: Ref) -> Draft:
        return Draft(Opcode.TABLE, {"i_addr": place}, written=Written("table"))

    def _columns(
        self,
        blob: str,
        op: Linear,
        height: int,
        part: tuple[int, int],
        masked: bool,
        *,
        table: bool,
    ) -> Item:
        """Return the item that computes the columns of a part (first, count)."""
        config, (first, count) = self.config, part
        columns = slice(first, first + count)
        rescale = op.rescale
        params = param_words(
            rescale.bias[columns],
            rescale.multiplier[columns],
            rescale.shift[columns],
            config,
            by_tile=True,
        ).ravel()
        pieces = [params]
        body: list[Node] = [self._params_draft(blob, len(params) // self._word_bytes)]
        if op.table is not None and table:
            body.append(self._table_draft(Ref(blob, params.size)))
            pieces.append(op.table.astype(np.int8).view(np.uint8))
        weight = op.weight[:, columns]
        mask_addr = self.mask_half * (config.mask_depth // 2)
        if masked:
            self.mask_half ^= 1
            mask = self._tile_mask(weight)
            place = Ref(blob, sum(piece.size for piece in pieces))
            mask_operands: dict[str, int | Ref] = {
                "i_addr": place,
                "n": mask.size,
                "mask": mask_addr,
            }
            body.append(Draft(Opcode.MASK, mask_operands, written=Written("mask")))
            pieces.append(mask)
        weight_ref = Ref(blob, sum(piece.size for piece in pieces))
        item = Item(body=body)
        pieces.append(weight.astype(np.int8).view(np.uint8).ravel())
        self._load(item, blob, np.concatenate(pieces))
        flags = frozenset({"b_masked"} if masked else ())

        def row_part(row: int, m: int) -> list[Node]:
            acc = self._acc(m * -(-count // config.cols))
            operands: dict[str, int | Ref] = {
                "a_addr": Ref(op.source.buffer, row * op.source.stride),
                "a_stride": op.source.stride,
                "b_addr": weight_ref,
                "b_stride": count,
                "acc_addr": acc,
                "acc_stride": m,
                "m": m,
                "k": len(weight),
                "n": count,
                "a_zero": op.source.zero,
                "b_mask": mask_addr,
            }
            drain = self._drain(op, acc, row, m, first, count)
            return [Draft(Opcode.MATMUL, operands, flags), drain]

        item.body += self._each(_parts(op.source.rows, height), row_part)
        return item

    def _drain(self, op: Linear, acc: int, row: int, m: int, first: int, count: int) -> Draft:
        target = op.target
        size = 2 if target.wide else 1
        place = Ref(target.buffer, (op.row + row) * target.stride + first * size)
        operands: dict[str, int | Ref] = {
            "acc_addr": acc,
            "acc_stride": m,
            "o_addr": place,
            "o_stride": target.stride,
            "o_zero": 0 if op.table is not None else target.zero,
            "m": m,
            "n": count,
            "params": SPARE_WORDS,
        }
        flags = {
            "wide_out": target.wide,
            "relu": op.relu,
            "table": op.table is not None,
            "add": op.residual,
        }
        if op.residual:
            operands |= {"r_addr": place, "r_stride": target.stride}
        fresh = not op.residual and row == 0 and first == 0 and op.row == 0
        return Draft(
            Opcode.DRAIN,
            operands,
            frozenset(name for name, on in flags.items() if on),
            target.buffer if fresh else "",
            Written(target.name, op.row + row, m, first, count),
        )

    def _tile_mask(self, weight: Ints) -> Bytes:
        """Return one byte per tile, in order (nt, kt): whether any weight is other than zero."""
        config, (k, n) = self.config, weight.shape
        kt, nt = -(-k // config.rows), -(-n // config.cols)
        padded = np.zeros((kt * config.rows, nt * config.cols), np.bool_)
        padded[:k, :n] = weight != 0
        tiles = padded.reshape(kt, config.rows, nt, config.cols).any(axis=(1, 3))  # [kt, nt]
        return tiles.T.astype(np.uint8).ravel()

    def _elementwise(self, label: str, op: Norm | Convert) -> Item:
        source, target = op.source, op.target
        self._buffer(source)
        self._buffer(target)
        item = Item()
        params = self._params([op.rescale])
        words = len(params) // self._word_bytes
        self._room_for(words)
        self._load(item, label, params)
        item.body.append(self._params_draft(label, words))
        operands: dict[str, int | Ref] = {
            "i_addr": Ref(source.buffer),
            "i_stride": source.stride,
            "o_addr": Ref(target.buffer),
            "o_stride": target.stride,
            "o_zero": target.zero,
            "m": target.rows,
            "n": target.columns,
            "params": SPARE_WORDS,
        }
        flags = {"wide_out"} if target.wide else set()
        if isinstance(op, Norm):
            operands |= {"eps_low": wrap(op.eps), "eps_high": op.eps >> 28}
            flags |= {"rms"} if op.rms else set()
        else:
            flags |= {"wide_in", "per_tensor"}
        opcode = Opcode.NORM if isinstance(op, Norm) else Opcode.MAP
        written = Written(target.name, 0, target.rows, 0, target.columns)
        item.body.append(Draft(opcode, operands, frozenset(flags), target.buffer, written))
        return item

    def _pool(self, label: str, op: Pool) -> list[Item]:
        """Sum over rows as the product of a row of ones and the tensor."""
        config, source, target = self.config, op.source, op.target
        self._buffer(source)
        self._buffer(target)
        self._room_for(1)
        item = Item()
        data = pool_bytes(op, source.rows, config)
        piece = self.image.add(data)
        if op.variable:
            self.pool = piece
        self._load_piece(item, label, piece)
        item.body.append(self._params_draft(label, 1))
        nt = -(-target.columns // config.cols)
        width = _even(nt, max(1, config.acc_depth // 2)) * config.cols
        for first, count in _parts(target.columns, width):
            acc = self._acc(-(-count // config.cols))
            operands: dict[str, int | Ref] = {
                "a_addr": Ref(label, self._word_bytes),
                "a_stride": source.rows,
                "b_addr": Ref(source.buffer, first),
                "b_stride": source.stride,
                "b_zero": source.zero,
                "acc_addr": acc,
                "acc_stride": 1,
                "m": 1,
                "k": source.rows,
                "n": count,
            }
            item.body.append(Draft(Opcode.MATMUL, operands))
            size = 2 if target.wide else 1
            operands = {
                "acc_addr": acc,
                "acc_stride": 1,
                "o_addr": Ref(target.buffer, first * size),
                "o_stride": target.stride,
                "o_zero": target.zero,
                "m": 1,
                "n": count,
                "params": SPARE_WORDS,
            }
            flags = {"per_tensor"} | ({"wide_out"} if target.wide else set())
            written = Written(target.name, 0, 1, first, count)
            defines = "" if first else target.buffer
            item.body.append(Draft(Opcode.DRAIN, operands, frozenset(flags), defines, written))
        return [item]

    def _attention(self, label: str, op: Attention) -> Item:
        """Return all heads of an attention, in steps of rows that scores and sums have room for."""
        for tensor in (op.query, op.key, op.value, op.target):
            self._buffer(tensor)
        alike = all(head == op.heads[0] for head in op.heads)
        heads = op.heads[:1] if alike else op.heads
        rescales = [op.scores, *(r for head in heads for r in (head.probabilities, head.context))]
        self._room_for(len(rescales) + 1)
        if not self.config.b_transpose:
            rescales.append(_rescale_by_one())
        params = self._params(rescales)
        item = Item()
        sequence = op.key.rows
        parts = [params]
        if not self.config.b_transpose:
            parts.append(np.eye(sequence, dtype=np.uint8).ravel())
        self._load(item, label, np.concatenate(parts))
        item.body.append(self._params_draft(label, len(rescales)))
        if not self.config.b_transpose:
            item.body += self._transpose(op, Ref(label, params.size), len(rescales))
        most = max(1, self.limits.blob_bytes // (2 * sequence))
        height = min(self._height(op.query.rows), most)
        height = _even(op.query.rows, height)
        for parity in range(2):
            self.sizes[f"scores.{parity}"] = 2 * sequence * height
            self.sizes[f"probabilities.{parity}"] = sequence * height
        group = len(op.heads) * op.head_dim // op.key.columns
        steps = _Steps(self, op, height, alike)
        if self.limits.loop_heads:
            groups = [
                [steps.one_by_one(head) for head in range(first, first + group)]
                for first in range(0, len(op.heads), group)
            ]
            item.body.append(
                Repeat([[Repeat(bodies)] if group > 1 else bodies[0] for bodies in groups])
            )
        else:
            item.body += steps.pipeline(range(len(op.heads)))
        return item

    def _transpose(self, op: Attention, identity: Ref, words: int) -> list[Node]:
        """Write the transposed keys, [kv_heads * head_dim, sequence], as a product with one."""
        key, config = op.key, self.config
        self.sizes["key_transposed"] = key.bytes
        height = self._height(key.columns)
        tiles = max(1, config.acc_depth // 2 // height)
        width = _even(-(-key.rows // config.cols), tiles) * config.cols
        nodes: list[Node] = []
        for row, m in _parts(key.columns, height):
            for column, count in _parts(key.rows, width):
                acc = self._acc(m * -(-count // config.cols))
                operands: dict[str, int | Ref] = {
                    "a_addr": Ref(key.buffer, row),
                    "a_stride": key.stride,
                    "b_addr": Ref(identity.buffer, identity.offset + column),
                    "b_stride": key.rows,
                    "acc_addr": acc,
                    "acc_stride": m,
                    "m": m,
                    "k": key.rows,
                    "n": count,
                    "a_zero": key.zero,
                }
                nodes.append(Draft(Opcode.MATMUL, operands, frozenset({"a_transpose"})))
                operands = {
                    "acc_addr": acc,
                    "acc_stride": m,
                    "o_addr": Ref("key_transposed", row * key.rows + column),
                    "o_stride": key.rows,
                    "o_zero": key.zero,
                    "m": m,
                    "n": count,
                    "params": SPARE_WORDS + words - 1,
                }
                written = Written(f"{key.name}_transposed", row, m, column, count)
                defines = "" if row or column else "key_transposed"
                flags = frozenset({"per_tensor"})
                nodes.append(Draft(Opcode.DRAIN, operands, flags, defines, written))
        return nodes


def _rescale_by_one() -> Rescale:
    multiplier, shift = quantize_multiplier(1.0)
    return Rescale(np.array([0]), np.array([multiplier]), np.array([shift]))


class _Steps:
    """The instructions of an attention, head by head and some rows at a time."""

    def __init__(self, lowering: _Lowering, op: Attention, height: int, alike: bool):
        self.lowering, self.op, self.alike = lowering, op, alike
        self.prefix = op.query.name.rpartition(".")[0]
        self.parts = _parts(op.query.rows, height)
        self.group = len(op.heads) * op.head_dim // op.key.columns
        self.tiles = max(1, lowering.config.acc_depth // 2 // height)

    def _column_parts(self, n: int) -> list[tuple[int, int]]:
        """Return the parts (first, count) of n columns that the accumulators have room for."""
        cols = self.lowering.config.cols
        return _parts(n, _even(-(-n // cols), self.tiles) * cols)

    def pipeline(self, heads: Sequence[int]) -> list[Node]:
        """Return steps such that the products of one run beside the softmax of the one before."""
        steps = [(head, row, m) for head in heads for row, m in self.parts]
        nodes: list[Node] = []
        for place in range(len(steps) + 1):
            if place < len(steps):
                nodes += self._weigh(*steps[place], place % 2)
            if place:
                nodes += self._mix(*steps[place - 1], (place - 1) % 2)
        return nodes

    def one_by_one(self, head: int) -> list[Node]:
        """Return the steps of a head as a loop's body: each head's use the same accumulators."""
        if self.lowering.limits.loop_parts:
            return self.lowering._each(
                self.parts,
                lambda row, m: [*self._weigh(head, row, m, 0), *self._mix(head, row, m, 0)],
            )
        self.lowering.acc_next = 0
        return self.pipeline([head])

    def _weigh(self, head: int, row: int, m: int, parity: int) -> list[Node]:
        """Return scores and softmax."""
        op, config = self.op, self.lowering.config
        n = op.key.rows
        scores, probabilities = f"scores.{parity}", f"probabilities.{parity}"
        first = head // self.group * op.head_dim
        nodes: list[Node] = []
        for column, count in self._column_parts(n):
            acc = self.lowering._acc(m * -(-count // config.cols))
            product: dict[str, int | Ref] = {
                "a_addr": Ref(op.query.buffer, row * op.query.stride + head * op.head_dim),
                "a_stride": op.query.stride,
                "a_zero": op.query.zero,
                "b_zero": op.key.zero,
                "acc_addr": acc,
                "acc_stride": m,
                "m": m,
                "k": op.head_dim,
                "n": count,
            }
            if config.b_transpose:
                place = Ref(op.key.buffer, column * op.key.stride + first)
                product |= {"b_addr": place, "b_stride": op.key.stride}
            else:
                product |= {"b_addr": Ref("key_transposed", first * n + column), "b_stride": n}
            drain: dict[str, int | Ref] = {
                "acc_addr": acc,
                "acc_stride": m,
                "o_addr": Ref(scores, 2 * column),
                "o_stride": 2 * n,
                "m": m,
                "n": count,
                "params": SPARE_WORDS,
            }
            flags = frozenset({"b_transpose"} if config.b_transpose else ())
            nodes.append(Draft(Opcode.MATMUL, product, flags))
            wide = frozenset({"wide_out", "per_tensor"})
            written = Written(f"{self.prefix}.scores", row, m, column, count, head)
            nodes.append(Draft(Opcode.DRAIN, drain, wide, "" if column else scores, written))
        diagonal = op.heads[head].diagonal
        softmax: dict[str, int | Ref | Given] = {
            "i_addr": Ref(scores),
            "i_stride": 2 * n,
            "o_addr": Ref(probabilities),
            "o_stride": n,
            "o_zero": op.probability_zero,
            "m": m,
            "n": n,
            "params": self._word(head),
            "limit": Given(LENGTH_REGISTER, n) if op.variable else n,
            "diagonal": 0 if diagonal is None else row,
            "diagonal_value": diagonal or 0,
        }
        shaped = {"per_tensor"} | (set() if diagonal is None else {"diagonal"})
        written = Written(f"{self.prefix}.probabilities", row, m, 0, n, head)
        nodes.append(Draft(Opcode.SOFTMAX, softmax, frozenset(shaped), probabilities, written))
        return nodes

    def _mix(self, head: int, row: int, m: int, parity: int) -> list[Node]:
        """Return the sums of values by their probabilities."""
        op, config = self.op, self.lowering.config
        target = op.target
        size = 2 if target.wide else 1
        nodes: list[Node] = []
        for column, count in self._column_parts(op.head_dim):
            acc = self.lowering._acc(m * -(-count // config.cols))
            product: dict[str, int | Ref] = {
                "a_addr": Ref(f"probabilities.{parity}"),
                "a_stride": op.key.rows,
                "a_zero": op.probability_zero,
                "b_addr": Ref(op.value.buffer, head // self.group * op.head_dim + column),
                "b_stride": op.value.stride,
                "b_zero": op.value.zero,
                "acc_addr": acc,
                "acc_stride": m,
                "m": m,
                "k": op.key.rows,
                "n": count,
            }
            first = head * op.head_dim + column
            place = Ref(target.buffer, row * target.stride + first * size)
            drain: dict[str, int | Ref] = {
                "acc_addr": acc,
                "acc_stride": m,
                "o_addr": place,
                "o_stride": target.stride,
                "o_zero": target.zero,
                "m": m,
                "n": count,
                "params": self._word(head) + 1,
            }
            flags = {"per_tensor"} | ({"wide_out"} if target.wide else set())
            if op.residual:
                drain |= {"r_addr": place, "r_stride": target.stride}
                flags.add("add")
            written = Written(target.name, row, m, first, count)
            defines = target.buffer if not (op.residual or first or row) else ""
            nodes.append(Draft(Opcode.MATMUL, product))
            nodes.append(Draft(Opcode.DRAIN, drain, frozenset(flags), defines, written))
        return nodes

    def _word(self, head: int) -> int:
        """Return the parameter word of a head's probabilities; its context's follows."""
        return SPARE_WORDS + 1 + (0 if self.alike else 2 * head)
