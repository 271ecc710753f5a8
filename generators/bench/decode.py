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

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

CHUNK_CYCLES = 1200
"""The weights of one LOAD keep the port busy for at most so long (cycles)."""

AHEAD = 3
"""Loads of weights that stand, in program order, before the products of those before them."""

PARTS = 4
"""Chunks that the last columns are cut into along k, so that little is left when they have come."""

_SOURCES = dict(zip(PROJECTIONS, ("h", "h", "h", "v", "g", "g", "hidden"), strict=True))
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
    return _Builder(layer, config).build()


@dataclass
class _Builder:
    layer: Layer
    config: Config
    image: bytearray = field(default_factory=bytearray)
    program: list[Instruction] = field(default_factory=list)
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
        for name, n in self.n.items():
            self.where[name] = self._vector(layer.batch * n * (2 if name in _WIDE else 1))
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
            if name == "o":
                self._norm("y", "g", "norm2")
            elif name == "up":
                self._multiply()
            result = "hidden" if name == "up" else _RESULTS[name]
            if result in _STORED:
                self._store(result)
        return self._done(sum(weight.size for weight in layer.weights.values()))

    def _chunks(self, name: str) -> Iterator[_Chunk]:
        """Yield a projection's weights in the order of their use."""
        config = self.config
        rows, cols = config.rows, config.cols
        k, n = self.layer.weights[name].shape
        # The ring holds those that are ahead, one that is used and one that comes, though each
        # bank's end may have no room for a whole one.
        banks = config.scratchpad_banks - 1
        room = banks * config.bank_bytes // (AHEAD + 2 + banks)
        limit = min(CHUNK_CYCLES * config.mem_bytes, room)
        deepest = max(1, limit // cols // rows) * rows
        width = max(1, limit // (k * cols)) * cols
        column = 0
        while column < n:
            # Little at first, so that products start soon.
            count = min(n - column, width if column or name != PROJECTIONS[0] else cols)
            step = deepest
            if name == PROJECTIONS[-1] and column + count == n:
                step = min(deepest, -(-k // (PARTS * rows)) * rows)
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
            size = chunk.k * chunk.n
            if self.ring % config.bank_bytes + size > config.bank_bytes:
                self.ring = -(-self.ring // config.bank_bytes) * config.bank_bytes
            if self.ring >= (config.scratchpad_banks - 1) * config.bank_bytes:
                self.ring = 0
            chunk.addr = self.ring
            self.ring += -(-size // config.line_bytes) * config.line_bytes
            weights = self.layer.weights[chunk.name][chunk.first :, chunk.column :]
            piece = weights[: chunk.k, : chunk.n].astype(np.int8).view(np.uint8)
            self._load(piece, chunk.addr)
            if place == 0 or chunks[place - 1].name != chunk.name:
                for name in (chunk.name, *_BESIDE.get(chunk.name, ())):
                    self._load_scales(name)
            yield

    def _load_scales(self, name: str) -> None:
        if name == "table":
            data = self.layer.table.astype(np.int8).view(np.uint8)
        else:
            by_tile = name in PROJECTIONS
            data = param_words(*self.layer.scales[name], self.config, by_tile=by_tile)
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
            self._add(Opcode.MATMUL, operands)
            if place == 0:
                for scales in (name, *_BESIDE.get(name, ())):
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
        return DecodeProgram(
            words, bytes(self.image), memory_bytes, weight_bytes, self.loaded, stored
        )
