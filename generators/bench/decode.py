"""A decoder layer's step as a program: every weight comes once from external memory, and is used.

Weights lie in external memory in the order of their use, each chunk of columns as one dense row,
so that a LOAD is one row and its bursts are as long as they can be. They pass through a ring of all
scratchpad banks but the last, which holds vectors and parameters: so the array's two readers never
want the same bank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.instruction import Instruction, pack
from arch.isa import Opcode
from generators.bench.decode_layer import PROJECTIONS, Layer
from generators.program.layout import param_words
from generators.program.tokens import insert_tokens
from generators.stored import format_flags, part_rows, stored_data, stored_rows

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

CHUNK_CYCLES = 1200
"""The weights of one LOAD keep the port busy for at most so long (cycles)."""

AHEAD = 3
"""Loads of weights that stand, in program order, before the products of those before them."""

CACHE_BANKS = 2
"""Banks for keys and values, where there are any of positions before."""

PARTS = 4
"""Chunks that the last columns are cut into along k, so that little is left when they have come."""

_SOURCES = dict(zip(PROJECTIONS, ("h", "h", "h", "context", "g", "g", "hidden"), strict=True))
_RESULTS = dict(zip(PROJECTIONS, ("q", "k", "v", "y", "gate", "up", "z"), strict=True))
_RESIDUALS = {"o": "x", "down": "y"}
_STORED = ("q", "k", "v", "y", "hidden", "z")
_BESIDE = {"o": ("norm2",), "gate": ("table",), "up": ("mul",)}  # comes with a projection
_WIDE = ("x", "y", "z")


@dataclass(frozen=True)
class Stored:
    """A tensor that the step writes to external memory, dense, from ``addr`` on."""

    addr: int
    shape: tuple[int, int]
    wide: bool

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.shape[0] * self.shape[1] * (2 if self.wide else 1)

    def value(self, read: bytes) -> Ints:
        """Return the tensor from the ``size`` bytes at ``addr``."""
        found = np.frombuffer(read, "<i2" if self.wide else np.int8)
        return found.reshape(self.shape).astype(np.int64)


@dataclass(frozen=True)
class DecodeProgram:
    """The step's program and external memory."""

    fill: list[int]
    """Puts keys and values of positions before into the scratchpad, where they stay."""
    words: list[int]
    image: bytes
    """External memory before the run, from address 0."""
    memory_bytes: int
    """External memory that the run touches, from address 0."""
    weight_bytes: int
    loaded_words: int
    """Words that come over the port: weights, parameters, table and input, each once."""
    stored: dict[str, Stored]


@dataclass
class _Chunk:
    """Weights of one LOAD and one MATMUL: k rows from row ``first`` on, n columns."""

    name: str
    first: int
    k: int
    column: int
    n: int
    addr: int = 0


def compile_decode(layer: Layer, config: Config) -> DecodeProgram:
    """Return the step's program.

    Raises :class:`InputError` where a tensor or the program does not fit the configuration, or
    the configuration lacks a unit that the step needs.
    """
    if config.scratchpad_banks < 2:
        raise InputError(
            "Decoding needs a scratchpad bank for vectors besides those for weights, but "
            f"scratchpad_banks is {config.scratchpad_banks}"
        )
    if layer.positions > 1 and config.scratchpad_banks < 2 + CACHE_BANKS:
        raise InputError(
            f"Attention over {layer.positions} positions needs a scratchpad bank for keys and one "
            f"for values, but scratchpad_banks is {config.scratchpad_banks}"
        )
    if layer.positions * layer.dim > config.bank_bytes and layer.positions > 1:
        raise InputError(
            f"Keys of {layer.positions} positions need {layer.positions * layer.dim} bytes of a "
            f"scratchpad bank of {config.bank_bytes}"
        )
    return _Builder(layer, config).build()


@dataclass
class _Builder:
    layer: Layer
    config: Config
    image: bytearray = field(default_factory=bytearray)
    program: list[Instruction] = field(default_factory=list)
    fill: list[Instruction] = field(default_factory=list)
    where: dict[str, int] = field(default_factory=dict)
    """Scratchpad address of each vector, and first parameter word of each set of scales."""
    loaded: int = 0
    taken: int = 0  # bytes of the last bank
    ring: int = 0  # where the next weights go
    words: int = 0  # of parameters
    acc: int = 0  # accumulator rows
    results: int = 0  # bytes of external memory behind the image
    stored: dict[str, Stored] = field(default_factory=dict)

    def build(self) -> DecodeProgram:
        """Return the program."""
        layer = self.layer
        self.n = dict.fromkeys(("x", "h", "q", "k", "v", "y", "g", "z"), layer.dim)
        self.n |= dict.fromkeys(("gate", "up", "hidden"), layer.ffn)
        self.ring_banks = self.config.scratchpad_banks - 1
        for name, n in self.n.items():
            self.where[name] = self._vector(layer.batch * n * (2 if name in _WIDE else 1))
        self.n["context"] = layer.dim
        if layer.positions > 1:
            self._keep_cache()
        else:
            self.where["context"] = self.where["v"]
        chunks = [chunk for name in PROJECTIONS for chunk in self._chunks(name)]
        self._load(layer.x.astype("<i2").view(np.uint8), self.where["x"])
        self._load_scales("norm1")
        self._set_scales("norm1")
        self._norm("x", "h", "norm1")
        loads = self._loads(chunks)
        for _ in range(AHEAD):
            next(loads)
        for name in PROJECTIONS:
            self._project(name, [chunk for chunk in chunks if chunk.name == name], loads)
            if name in ("k", "v") and layer.positions > 1:
                (self._score if name == "k" else self._mix)()
            if name == "o":
                self._norm("y", "g", "norm2")
            elif name == "up":
                self._multiply()
            result = "hidden" if name == "up" else _RESULTS[name]
            if result in _STORED:
                self._store(result)
        rows = {name: stored_rows(layer.codes[name], len(w)) for name, w in layer.weights.items()}
        return self._done(sum(rows[name] * w.shape[1] for name, w in layer.weights.items()))

    def _keep_cache(self) -> None:
        """Give keys and values of all positions a bank each, and room to what becomes of them."""
        layer, config = self.layer, self.config
        self.ring_banks -= CACHE_BANKS
        for index, name in enumerate(("keys", "values")):
            self.where[name] = (self.ring_banks + index) * config.bank_bytes
            self.where[name[0]] = self.where[name] + (layer.positions - 1) * layer.dim
            self._load(getattr(layer, name).astype(np.int8).view(np.uint8), self.where[name])
        # They come before the step begins.
        self.fill, self.program, self.loaded = self.program, [], 0
        self.where["context"] = self._vector(layer.dim)
        self.where["scores"] = self._vector(2 * layer.heads * layer.positions)
        self.where["shares"] = self._vector(layer.heads * layer.positions)

    def _rows(self, count: int) -> int:
        """Return the first of so many accumulator rows."""
        if self.acc + count > self.config.acc_depth:
            self.acc = 0
        first, self.acc = self.acc, self.acc + count
        return first

    def _score(self) -> None:
        """Multiply each head's query by its keys, and take the softmax of all heads at once."""
        layer, heads, n = self.layer, self.layer.heads, self.layer.positions
        width = layer.dim // heads
        acc = self._rows(-(-n // self.config.cols) * heads)
        for head in range(heads):
            operands = {
                "a_addr": self.where["q"] + head * width,
                "b_addr": self.where["keys"] + head * width,
                "b_stride": layer.dim,
                "acc_addr": acc + head,
                "acc_stride": heads,
                **{"m": 1, "k": width, "n": n},
            }
            self._add(Opcode.MATMUL, operands, "b_transpose")
        self._set_scales("attention")
        words, size = self.where["attention words"], {"m": heads, "n": n}
        scores = {"o_addr": self.where["scores"], "o_stride": 2 * n, "params": words}
        operands = {"acc_addr": acc, "acc_stride": heads, **scores, **size}
        self._add(Opcode.DRAIN, operands, "per_tensor", "wide_out")
        operands = {"i_addr": self.where["scores"], "i_stride": 2 * n, "limit": n, **size}
        operands |= {"o_addr": self.where["shares"], "o_stride": n, "params": words + 1}
        self._add(Opcode.SOFTMAX, operands, "per_tensor")

    def _mix(self) -> None:
        """Multiply each head's probabilities by its values."""
        layer, heads, k = self.layer, self.layer.heads, self.layer.positions
        width = layer.dim // heads
        tiles = -(-width // self.config.cols)
        acc = self._rows(tiles * heads)
        for head in range(heads):
            operands = {
                "a_addr": self.where["shares"] + head * k,
                "b_addr": self.where["values"] + head * width,
                "b_stride": layer.dim,
                "acc_addr": acc + head * tiles,
                "acc_stride": 1,
                **{"m": 1, "k": k, "n": width},
            }
            self._add(Opcode.MATMUL, operands)
        for head in range(heads):
            operands = {"acc_addr": acc + head * tiles, "acc_stride": 1, "m": 1, "n": width}
            operands |= {"o_addr": self.where["context"] + head * width, "o_stride": layer.dim}
            operands["params"] = self.where["attention words"] + 2
            self._add(Opcode.DRAIN, operands, "per_tensor")

    def _chunks(self, name: str) -> Iterator[_Chunk]:
        """Yield a projection's weights in the order of their use."""
        config = self.config
        cols = config.cols
        k, n = self.layer.weights[name].shape
        codes = self.layer.codes[name]
        # The ring holds those that are ahead, one that is used and one that comes, though each
        # bank's end may have no room for a whole one.
        banks, least = self.ring_banks, part_rows(codes, config)
        room = banks * config.bank_bytes // (AHEAD + 2 + banks)
        limit = min(CHUNK_CYCLES * config.mem_bytes, room)
        deepest = max(1, limit // (stored_rows(codes, least) * cols)) * least
        width = max(1, limit // (stored_rows(codes, k) * cols)) * cols
        column = 0
        while column < n:
            # Little at first, so that products start soon.
            count = min(n - column, width if column or name != PROJECTIONS[0] else cols)
            step = deepest
            if name == PROJECTIONS[-1] and column + count == n:
                step = min(deepest, -(-k // (PARTS * least)) * least)
            for first in range(0, k, step):
                yield _Chunk(name, first, min(step, k - first), column, count)
            column += count

    def _vector(self, size: int) -> int:
        """Return the address of a place in the last bank."""
        config = self.config
        addr = (config.scratchpad_banks - 1) * config.bank_bytes + self.taken
        self.taken += -(-size // config.line_bytes) * config.line_bytes
        if self.taken > config.bank_bytes:
            raise InputError(
                f"Vectors and parameters of the step need more than a scratchpad bank of "
                f"{config.bank_bytes} bytes"
            )
        return addr

    def _add(self, opcode: Opcode, operands: dict[str, int], *flags: str) -> None:
        self.program.append(Instruction(opcode, operands, frozenset(flags)))

    def _load(self, data: Bytes, addr: int) -> None:
        """Append data to external memory, and load it as one row."""
        size, word = data.size, self.config.mem_bytes
        operands = {"dram_addr": len(self.image), "sp_addr": addr, "m": 1, "row_bytes": size}
        self._add(Opcode.LOAD, operands)
        self.image += np.ascontiguousarray(data).tobytes()
        self.image += bytes(-size % word)
        self.loaded += -(-size // word)

    def _loads(self, chunks: list[_Chunk]) -> Iterator[None]:
        """Load the next chunk, and with a projection's first its parameters."""
        config = self.config
        for place, chunk in enumerate(chunks):
            codes = self.layer.codes[chunk.name]
            size = stored_rows(codes, chunk.k) * chunk.n
            if self.ring % config.bank_bytes + size > config.bank_bytes:
                self.ring = -(-self.ring // config.bank_bytes) * config.bank_bytes
            if self.ring >= self.ring_banks * config.bank_bytes:
                self.ring = 0
            chunk.addr = self.ring
            self.ring += -(-size // config.line_bytes) * config.line_bytes
            begins = place == 0 or chunks[place - 1].name != chunk.name
            rows = slice(chunk.first, chunk.first + chunk.k)
            columns = slice(chunk.column, chunk.column + chunk.n)
            weights = self.layer.weights[chunk.name]
            self._load(stored_data(weights, codes, rows, columns), chunk.addr)
            if begins:
                for name in self._beside(chunk.name):
                    self._load_scales(name)
            yield

    def _beside(self, name: str) -> tuple[str, ...]:
        """Return what comes with a projection's first weights, its own scales first."""
        attention = ("attention",) if name == "k" and self.layer.positions > 1 else ()
        return (name, *_BESIDE.get(name, ()), *attention)

    def _load_scales(self, name: str) -> None:
        if name == "table":
            data = self.layer.table.astype(np.int8).view(np.uint8)
        else:
            by_tile, scales = name in PROJECTIONS, self.layer.scales[name]
            if name == "attention":  # of all columns alike
                bias, multiplier, shift = (np.repeat(one, self.config.lanes) for one in scales)
                scales = bias, multiplier, shift
            data = param_words(*scales, self.config, by_tile=by_tile)
        self.where[f"{name} scales"] = addr = self._vector(data.size)
        self._load(data, addr)
        if name != "table":
            if self.words + len(data) > self.config.param_depth:
                self.words = 0
            self.where[f"{name} words"], self.where[f"{name} count"] = self.words, len(data)
            self.words += len(data)

    def _set_scales(self, name: str) -> None:
        addr = self.where[f"{name} scales"]
        if name == "table":
            self._add(Opcode.TABLE, {"i_addr": addr})
            return
        count, first = self.where[f"{name} count"], self.where[f"{name} words"]
        self._add(Opcode.PARAMS, {"i_addr": addr, "n": count, "params": first})

    def _project(self, name: str, chunks: list[_Chunk], loads: Iterator[None]) -> None:
        """Multiply by all chunks; requantize all columns but the last, then those."""
        config, batch = self.config, self.layer.batch
        tiles = -(-self.layer.weights[name].shape[1] // config.cols)
        if self.acc + tiles * batch > config.acc_depth:
            self.acc = 0
        drained = 0
        flags = format_flags(self.layer.codes[name], config, "of the bench")
        for place, chunk in enumerate(chunks):
            next(loads, None)
            operands = {
                "a_addr": self.where[_SOURCES[name]] + chunk.first,
                "a_stride": self.n[_SOURCES[name]],
                "b_addr": chunk.addr,
                "b_stride": chunk.n,
                "acc_addr": self.acc + chunk.column // config.cols * batch,
                "acc_stride": batch,
                "m": batch,
                "k": chunk.k,
                "n": chunk.n,
            }
            self._add(Opcode.MATMUL, operands, *flags)
            if place == 0:
                for scales in self._beside(name):
                    if scales != "attention":
                        self._set_scales(scales)
            end, last = chunk.column + chunk.n, chunks[-1].column
            if place == len(chunks) - 1 or (end == last and chunks[place + 1].column == last):
                self._drain(name, drained, end)
                drained = end
        self.acc += tiles * batch

    def _drain(self, name: str, first: int, end: int) -> None:
        """Requantize columns from ``first`` to ``end`` of a projection."""
        config, batch, result = self.config, self.layer.batch, _RESULTS[name]
        wide, tile = 2 if result in _WIDE else 1, first // config.cols
        operands = {
            "acc_addr": self.acc + tile * batch,
            "acc_stride": batch,
            "o_addr": self.where[result] + first * wide,
            "o_stride": self.n[result] * wide,
            "m": batch,
            "n": end - first,
            "params": self.where[f"{name} words"] + tile * config.lane_groups,
        }
        flags = {"table"} if name == "gate" else set()
        if name in _RESIDUALS:
            flags = {"wide_out", "add"}
            operands["r_addr"] = self.where[_RESIDUALS[name]] + 2 * first
            operands["r_stride"] = 2 * self.n[result]
        self._add(Opcode.DRAIN, operands, *flags)

    def _norm(self, source: str, result: str, scales: str) -> None:
        operands = self._vectors(source, result) | {"params": self.where[f"{scales} words"]}
        self._add(Opcode.NORM, operands, "rms")

    def _multiply(self) -> None:
        operands = self._vectors("gate", "hidden")
        operands |= {"r_addr": self.where["up"], "r_stride": self.n["up"]}
        self._add(Opcode.MUL, operands | {"params": self.where["mul words"]})

    def _vectors(self, source: str, result: str) -> dict[str, int]:
        return {
            "i_addr": self.where[source],
            "i_stride": self.n[source] * (2 if source in _WIDE else 1),
            "o_addr": self.where[result],
            "o_stride": self.n[result],
            "m": self.layer.batch,
            "n": self.n[result],
        }

    def _store(self, name: str) -> None:
        """Store a vector behind all that is loaded, which has no end yet."""
        found = Stored(self.results, (self.layer.batch, self.n[name]), name in _WIDE)
        self.stored[name] = found
        operands = {"dram_addr": found.addr, "sp_addr": self.where[name], "m": 1}
        self._add(Opcode.STORE, operands | {"row_bytes": found.size})
        self.results += -(-found.size // self.config.mem_bytes) * self.config.mem_bytes

    def _done(self, weight_bytes: int) -> DecodeProgram:
        """Give the results their place, and return the program."""
        base = len(self.image)
        stored = {name: replace(one, addr=base + one.addr) for name, one in self.stored.items()}
        program = [
            replace(
                one,
                operands={**one.operands, "dram_addr": base + one.operand("dram_addr").immediate},
            )
            if one.opcode == Opcode.STORE
            else one
            for one in self.program
        ]
        words = pack([*insert_tokens(program, self.config), Instruction(Opcode.HALT)])
        if len(words) > self.config.program_depth:
            raise InputError(
                f"The step needs a program of {len(words)} words, but program_depth is "
                f"{self.config.program_depth}"
            )
        memory_bytes = base + self.results
        fill = pack([*insert_tokens(self.fill, self.config), Instruction(Opcode.HALT)])
        return DecodeProgram(
            fill, words, bytes(self.image), memory_bytes, weight_bytes, self.loaded, stored
        )
