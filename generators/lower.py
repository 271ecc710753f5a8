"""From a quantized model to instructions: cuts operations into what the memories hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arch.config import Config
from arch.isa import Opcode, wrap
from generators.draft import Draft, Item, Node, Ref, Repeat, Written
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
from sim.requantize import quantize_multiplier

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (see generators.schedule)."""
BARRIER = "barrier"
"""The buffer that those words are read from."""


@dataclass(frozen=True)
class Limits:
    """What the lowering may use of the memories."""

    blob_bytes: int
    """Scratchpad bytes of one load of weights, and of the scores of one step of attention."""
    split_heads: bool
    """Whether heads come one after the other, as iterations of a loop, and not interleaved."""
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


def lower(model: QuantizedModel, config: Config, limits: Limits) -> Lowered:
    """Return a model's instructions with buffers that have no addresses yet.

    Raises :class:`ValueError` where an operation cannot be done on the configuration at all.
    """
    return _Lowering(model, config, limits).run()


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

    def run(self) -> Lowered:
        model = self.model
        self._check()
        source = self.image.reserve(model.input.bytes)
        output = self.image.reserve(model.output.bytes)
        before = self._section("before", model.before)
        first = Item()
        self._load(first, BARRIER, np.zeros(self._word_bytes, np.uint8))
        if model.start is not None:
            data = model.start.astype("<i2").view(np.uint8).ravel()
            self._load(first, model.stream.buffer, data)
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
            param_words(r.bias, r.multiplier, r.shift, self.config, by_tile=by_tile)
            if not r.per_tensor
            else self._word(r)
            for r in rescales
        ]
        return np.concatenate(words).ravel()

    def _word(self, r: Rescale) -> Bytes:
        """Return the word of a tensor whose columns are all alike, the same in every lane."""
        lanes = np.ones(self.config.lanes, np.int64)
        values = (r.bias * lanes, r.multiplier * lanes, r.shift * lanes)
        return param_words(*values, self.config, by_tile=False)

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

    def _height(self, m: int, tiles: int) -> int:
        """Return how many of m rows of so many tile columns the accumulators take at a time."""
        for share in (2, 1):
            most = self.config.acc_depth // share // tiles
            if most:
                return _even(m, min(m, most))
        raise ValueError(
            f"Model {self.name} needs {tiles} accumulator rows at least, but acc_depth is "
            f"{self.config.acc_depth}"
        )

    def _linear(self, label: str, op: Linear) -> list[Item]:
        config, (k, n) = self.config, op.weight.shape
        m = op.source.rows
        kt, nt = -(-k // config.rows), -(-n // config.cols)
        self._buffer(op.source)
        self._buffer(op.target)
        self._room_for(config.lane_groups)
        height = self._height(m, 1)
        tiles = max(1, config.acc_depth // 2 // height)
        tiles = min(tiles, (config.param_depth - SPARE_WORDS) // config.lane_groups)
        masked = self.limits.skip_zero_tiles and 2 * kt <= config.mask_depth
        if masked:
            tiles = min(tiles, config.mask_depth // 2 // kt)
        fixed = 0 if op.table is None else 256
        per_tile = config.lane_groups * self._word_bytes + kt * masked + k * config.cols
        tiles = min(tiles, max(1, (self.limits.blob_bytes - fixed) // per_tile))
        width = _even(nt, tiles) * config.cols
        return [
            self._columns(f"{label}.{part}", op, height, first, count, part == 0, masked)
            for part, (first, count) in enumerate(_parts(n, width))
        ]

    def _columns(
        self,
        blob: str,
        op: Linear,
        height: int,
        first: int,
        count: int,
        with_table: bool,
        masked: bool,
    ) -> Item:
        """Return the item that computes columns ``first`` to ``first + count - 1``."""
        config, k = self.config, len(op.weight)
        columns = slice(first, first + count)
        rescale = Rescale(
            op.rescale.bias[columns], op.rescale.multiplier[columns], op.rescale.shift[columns]
        )
        params = param_words(
            rescale.bias, rescale.multiplier, rescale.shift, config, by_tile=True
        ).ravel()
        words = len(params) // self._word_bytes
        table = np.zeros(0, np.uint8)
        if op.table is not None and with_table:
            table = op.table.astype(np.int8).view(np.uint8)
        weight = op.weight[:, columns]
        mask = self._tile_mask(weight) if masked else np.zeros(0, np.uint8)
        item = Item()
        data = weight.astype(np.int8).view(np.uint8).ravel()
        self._load(item, blob, np.concatenate([params, table, mask, data]))
        item.body.append(self._params_draft(blob, words))
        if table.size:
            operands: dict[str, int | Ref] = {"i_addr": Ref(blob, params.size)}
            item.body.append(Draft(Opcode.TABLE, operands, written=Written("table")))
        flags = set()
        mask_addr = self.mask_half * (config.mask_depth // 2)
        if masked:
            self.mask_half ^= 1
            place = Ref(blob, params.size + table.size)
            operands = {"i_addr": place, "n": mask.size, "mask": mask_addr}
            item.body.append(Draft(Opcode.MASK, operands, written=Written("mask")))
            flags.add("b_masked")
        size = 2 if op.target.wide else 1
        tiles = -(-count // config.cols)
        for row, m in _parts(op.source.rows, height):
            acc = self._acc(m * tiles)
            item.body.append(
                Draft(
                    Opcode.MATMUL,
                    {
                        "a_addr": Ref(op.source.buffer, row * op.source.stride),
                        "a_stride": op.source.stride,
                        "b_addr": Ref(blob, params.size + table.size + mask.size),
                        "b_stride": count,
                        "acc_addr": acc,
                        "acc_stride": m,
                        "m": m,
                        "k": k,
                        "n": count,
                        "a_zero": op.source.zero,
                        "b_mask": mask_addr,
                    },
                    frozenset(flags),
                )
            )
            item.body.append(self._drain(op, acc, row, m, first, count, size))
        return item

    def _drain(
        self, op: Linear, acc: int, row: int, m: int, first: int, count: int, size: int
    ) -> Draft:
        target = op.target
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
        params = self._params([op.rescale])
        self._load(item, label, np.concatenate([params, np.ones(source.rows, np.uint8)]))
        item.body.append(self._params_draft(label, 1))
        nt = -(-target.columns // config.cols)
        width = _even(nt, max(1, config.acc_depth // 2)) * config.cols
        for first, count in _parts(target.columns, width):
            acc = self._acc(-(-count // config.cols))
            operands: dict[str, int | Ref] = {
                "a_addr": Ref(label, params.size),
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
        tiles = max(-(-sequence // self.config.cols), -(-op.head_dim // self.config.cols))
        height = self._height(op.query.rows, tiles)
        most = max(1, self.limits.blob_bytes // (2 * sequence))
        height = _even(op.query.rows, min(height, most))
        for parity in range(2):
            self.sizes[f"scores.{parity}"] = 2 * sequence * height
            self.sizes[f"probabilities.{parity}"] = sequence * height
        group = len(op.heads) * op.head_dim // op.key.columns
        steps = _Steps(self, op, height, alike)
        if self.limits.split_heads:
            outer = range(0, len(op.heads), group)
            item.body.append(
                Repeat(
                    [
                        [Repeat([steps.pipeline([head]) for head in range(first, first + group)])]
                        if group > 1
                        else steps.pipeline([first])
                        for first in outer
                    ]
                )
            )
        else:
            item.body += steps.pipeline(range(len(op.heads)))
        return item

    def _transpose(self, op: Attention, identity: Ref, words: int) -> list[Node]:
        """Write the transposed keys, [kv_heads * head_dim, sequence], as a product with one."""
        key, config = op.key, self.config
        self.sizes["key_transposed"] = key.bytes
        tiles = -(-key.rows // config.cols)
        height = self._height(key.columns, tiles)
        nodes: list[Node] = []
        for row, m in _parts(key.columns, height):
            acc = self._acc(m * tiles)
            operands: dict[str, int | Ref] = {
                "a_addr": Ref(key.buffer, row),
                "a_stride": key.stride,
                "b_addr": identity,
                "b_stride": key.rows,
                "acc_addr": acc,
                "acc_stride": m,
                "m": m,
                "k": key.rows,
                "n": key.rows,
                "a_zero": key.zero,
            }
            nodes.append(Draft(Opcode.MATMUL, operands, frozenset({"a_transpose"})))
            operands = {
                "acc_addr": acc,
                "acc_stride": m,
                "o_addr": Ref("key_transposed", row * key.rows),
                "o_stride": key.rows,
                "o_zero": key.zero,
                "m": m,
                "n": key.rows,
                "params": SPARE_WORDS + words - 1,
            }
            name = f"{key.name}_transposed"
            written = Written(name, row, m, 0, key.rows)
            defines = "" if row else "key_transposed"
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

    def pipeline(self, heads: Sequence[int]) -> list[Node]:
        """Return steps such that the products of one run beside the softmax of the one before.

        Accumulators are handed out from the first on, so that each pipeline uses the same.
        """
        self.lowering.acc_next = 0
        steps = [(head, row, m) for head in heads for row, m in self.parts]
        nodes: list[Node] = []
        for place in range(len(steps) + 1):
            if place < len(steps):
                nodes += self._weigh(*steps[place], place % 2)
            if place:
                nodes += self._mix(*steps[place - 1], (place - 1) % 2)
        return nodes

    def _weigh(self, head: int, row: int, m: int, parity: int) -> list[Node]:
        """Return scores and softmax."""
        op, config = self.op, self.lowering.config
        n = op.key.rows
        scores, probabilities = f"scores.{parity}", f"probabilities.{parity}"
        acc = self.lowering._acc(m * -(-n // config.cols))
        product: dict[str, int | Ref] = {
            "a_addr": Ref(op.query.buffer, row * op.query.stride + head * op.head_dim),
            "a_stride": op.query.stride,
            "a_zero": op.query.zero,
            "b_zero": op.key.zero,
            "acc_addr": acc,
            "acc_stride": m,
            "m": m,
            "k": op.head_dim,
            "n": n,
        }
        first = head // self.group * op.head_dim
        if config.b_transpose:
            product |= {"b_addr": Ref(op.key.buffer, first), "b_stride": op.key.stride}
        else:
            product |= {"b_addr": Ref("key_transposed", first * n), "b_stride": n}
        drain: dict[str, int | Ref] = {
            "acc_addr": acc,
            "acc_stride": m,
            "o_addr": Ref(scores),
            "o_stride": 2 * n,
            "m": m,
            "n": n,
            "params": SPARE_WORDS,
        }
        diagonal = op.heads[head].diagonal
        softmax: dict[str, int | Ref] = {
            "i_addr": Ref(scores),
            "i_stride": 2 * n,
            "o_addr": Ref(probabilities),
            "o_stride": n,
            "o_zero": op.probability_zero,
            "m": m,
            "n": n,
            "params": self._word(head),
            "limit": n,
            "diagonal": 0 if diagonal is None else row,
            "diagonal_value": diagonal or 0,
        }
        flags = frozenset({"b_transpose"} if config.b_transpose else ())
        shaped = {"per_tensor"} | (set() if diagonal is None else {"diagonal"})
        written = {
            name: Written(f"{self.prefix}.{name}", row, m, 0, n, head)
            for name in ("scores", "probabilities")
        }
        wide = frozenset({"wide_out", "per_tensor"})
        return [
            Draft(Opcode.MATMUL, product, flags),
            Draft(Opcode.DRAIN, drain, wide, scores, written["scores"]),
            Draft(
                Opcode.SOFTMAX,
                softmax,
                frozenset(shaped),
                probabilities,
                written["probabilities"],
            ),
        ]

    def _mix(self, head: int, row: int, m: int, parity: int) -> list[Node]:
        """Return the sums of values by their probabilities."""
        op, config = self.op, self.lowering.config
        acc = self.lowering._acc(m * -(-op.head_dim // config.cols))
        product: dict[str, int | Ref] = {
            "a_addr": Ref(f"probabilities.{parity}"),
            "a_stride": op.key.rows,
            "a_zero": op.probability_zero,
            "b_addr": Ref(op.value.buffer, head // self.group * op.head_dim),
            "b_stride": op.value.stride,
            "b_zero": op.value.zero,
            "acc_addr": acc,
            "acc_stride": m,
            "m": m,
            "k": op.key.rows,
            "n": op.head_dim,
        }
        target = op.target
        size = 2 if target.wide else 1
        place = Ref(target.buffer, row * target.stride + head * op.head_dim * size)
        drain: dict[str, int | Ref] = {
            "acc_addr": acc,
            "acc_stride": m,
            "o_addr": place,
            "o_stride": target.stride,
            "o_zero": target.zero,
            "m": m,
            "n": op.head_dim,
            "params": self._word(head) + 1,
        }
        flags = {"per_tensor"} | ({"wide_out"} if target.wide else set())
        if op.residual:
            drain |= {"r_addr": place, "r_stride": target.stride}
            flags.add("add")
        written = Written(target.name, row, m, head * op.head_dim, op.head_dim)
        defines = target.buffer if not (op.residual or head or row) else ""
        return [
            Draft(Opcode.MATMUL, product),
            Draft(Opcode.DRAIN, drain, frozenset(flags), defines, written),
        ]

    def _word(self, head: int) -> int:
        """Return the parameter word of a head's probabilities; its context's follows."""
        return SPARE_WORDS + 1 + (0 if self.alike else 2 * head)
