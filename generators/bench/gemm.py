"""A matrix product as a program: operands in, one product in the scratchpad, result out."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.instruction import Instruction, pack
from arch.isa import Engine, Opcode
from arch.sparse import HEADER_BEATS, LEAST_K, beat_bytes
from generators.program.layout import param_words, rows_image
from sim.sparse import encode

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

DRAIN_CYCLES = 20
"""About what a drain takes besides a cycle for each of its steps."""

DRAINS_BEHIND = 2
"""Products that are in the program before the drain of one before them."""

ITEM_CYCLES = 64
"""Products of one item last at least about this long, so that fetching the next one hides."""


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """A product C = requantize((A - a_zero) (B - b_zero)), INT8, equation (1).

    ``a`` is [m, k]; ``b`` is [k, n], or [n, k] with ``b_transpose``; ``bias``, ``multiplier`` and
    ``shift`` are [n]. With ``sparse``, B, whose zero point is 0, is coded for the zero-skip unit.
    """

    a: Ints
    b: Ints
    bias: Ints
    multiplier: Ints
    shift: Ints
    a_zero: int = 0
    b_zero: int = 0
    o_zero: int = 0
    b_transpose: bool = False
    sparse: bool = False

    @property
    def m(self) -> int:
        """Rows of the result."""
        return int(self.a.shape[0])

    @property
    def k(self) -> int:
        """Length of the sums."""
        return int(self.a.shape[1])

    @property
    def n(self) -> int:
        """Columns of the result."""
        return int(self.b.shape[0 if self.b_transpose else 1])


@dataclass(frozen=True)
class GemmProgram:
    """Three programs in one: load the operands, compute, store the result.

    ``load_pc`` and ``store_pc`` are None where computing does all three.
    """

    words: list[int]
    load_pc: int | None
    compute_pc: int
    store_pc: int | None
    image: bytes
    """External memory before the run, from address 0."""
    result_addr: int
    result_stride: int
    m: int
    n: int

    @property
    def result_bytes(self) -> int:
        """Bytes of the stored result."""
        return self.m * self.result_stride

    def result(self, read: bytes) -> Ints:
        """Return C [m, n] from the ``result_bytes`` bytes at ``result_addr``."""
        rows = np.frombuffer(read, np.int8).reshape(self.m, self.result_stride)
        return rows[:, : self.n].astype(np.int64)


@dataclass
class _Banks:
    """Places tensors in the scratchpad, each inside one bank, each in the emptiest."""

    config: Config
    used: list[int] = field(default_factory=list)

    def place(self, name: str, size: int) -> int:
        if not self.used:
            self.used = [0] * self.config.scratchpad_banks
        bank = int(np.argmin(self.used))
        line = self.config.line_bytes
        addr = bank * self.config.bank_bytes + self.used[bank]
        self.used[bank] += -(-size // line) * line
        if self.used[bank] > self.config.bank_bytes:
            raise InputError(
                f"Tensor {name} of {size} bytes does not fit a scratchpad bank of "
                f"{self.config.bank_bytes} bytes beside the other operands"
            )
        return addr


@dataclass(frozen=True)
class _Item:
    """One MATMUL and its DRAIN: ``m`` rows from ``row`` on, ``n`` columns from ``column`` on."""

    row: int
    m: int
    column: int
    n: int


def _items(gemm: Gemm, config: Config) -> tuple[list[_Item], int]:
    """Cut the result so that it is drained while it is computed; return also the regions."""
    kt = -(-gemm.k // config.rows)
    height = min(gemm.m, max(1, config.acc_depth // 2))
    if gemm.sparse:
        return [_Item(0, gemm.m, 0, gemm.n)], 1
    tiles = -(-ITEM_CYCLES // (height * kt))
    tiles = max(1, min(tiles, config.acc_depth // 2 // height))
    width = tiles * config.cols
    items = [
        _Item(row, min(height, gemm.m - row), column, min(width, gemm.n - column))
        for column in range(0, gemm.n, width)
        for row in range(0, gemm.m, height)
    ]
    # The last item is cut again, so that little is left to drain when its last product ends; but
    # tiles must last long enough to hide the weights of the next one.
    last = items.pop()
    columns = -(-last.n // config.cols)
    row = last.row
    for part in parts_of(last.m, config.rows, columns * kt, columns * config.lane_groups):
        items.append(_Item(row, part, last.column, last.n))
        row += part
    return items, config.acc_depth // (height * tiles)


def parts_of(m: int, unit: int, product: int, drain: int) -> list[int]:
    """Cut rows in at most three, so that the last drain ends soonest.

    A row takes ``product`` cycles, and then ``drain`` cycles; parts but the first have powers of
    two times ``unit`` rows.
    """
    sizes = [0, *(unit << bit for bit in range((m // unit).bit_length()))]
    best, soonest = [m], m * (product + drain)
    for middle in sizes:
        for final in sizes[1:]:
            parts = [part for part in (m - middle - final, middle, final) if part]
            if parts[0] < unit:
                continue
            computed = drained = 0
            for part in parts:
                computed += part * product
                drained = max(drained, computed) + part * drain + DRAIN_CYCLES
            if drained < soonest:
                best, soonest = parts, drained
    return best


def compile_gemm(gemm: Gemm, config: Config) -> GemmProgram:
    """Return the programs of a product.

    Raises :class:`InputError` where an operand does not fit the scratchpad, the program does not
    fit the configuration, or the configuration lacks a unit that the product needs.
    """
    _check(gemm, config)
    items, regions = _items(gemm, config)
    banks = _Banks(config)
    a_addr = banks.place("A", gemm.a.size)
    b = gemm.b.astype(np.int8).view(np.uint8)
    if gemm.sparse:
        b = encode(gemm.b, config.sparse_lanes, config.cols)[None, :]
    b_addr = banks.place("B", b.size)
    c_addr = banks.place("C", gemm.m * gemm.n)
    params = param_words(gemm.bias, gemm.multiplier, gemm.shift, config, by_tile=True)
    params_addr = banks.place("parameters", params.size)
    if len(params) > config.param_depth:
        raise InputError(
            f"The product needs {len(params)} parameter words, but param_depth is "
            f"{config.param_depth}"
        )

    image = bytearray()
    load: list[Instruction] = []
    pieces = [
        (gemm.a.astype(np.int8).view(np.uint8), a_addr),
        (b, b_addr),
        (params, params_addr),
    ]
    for data, addr in pieces:
        data_bytes, stride = rows_image(data, config)
        load.append(
            Instruction(
                Opcode.LOAD,
                {
                    "dram_addr": len(image),
                    "dram_stride": stride,
                    "sp_addr": addr,
                    "sp_stride": data.shape[1],
                    "m": data.shape[0],
                    "row_bytes": data.shape[1],
                },
                push=frozenset({Engine.VECTOR}) if addr == pieces[-1][1] else frozenset(),
            )
        )
        image += data_bytes
    load.append(
        Instruction(
            Opcode.PARAMS,
            {"i_addr": params_addr, "n": len(params)},
            pop=frozenset({Engine.LOAD}),
        )
    )

    compute = _compute(gemm, config, items, regions, (a_addr, b_addr, c_addr), b.size)
    stride = -(-gemm.n // config.mem_bytes) * config.mem_bytes
    store = Instruction(
        Opcode.STORE,
        {
            "dram_addr": len(image),
            "dram_stride": stride,
            "sp_addr": c_addr,
            "sp_stride": gemm.n,
            "m": gemm.m,
            "row_bytes": gemm.n,
        },
    )
    halt = Instruction(Opcode.HALT)
    parts = [pack([*load, halt]), pack([*compute, halt]), pack([store, halt])]
    words = [word for part in parts for word in part]
    if len(words) > config.program_depth:
        raise InputError(
            f"The product needs a program of {len(words)} words, but program_depth is "
            f"{config.program_depth}"
        )
    return GemmProgram(
        words=words,
        load_pc=0,
        compute_pc=len(parts[0]),
        store_pc=len(parts[0]) + len(parts[1]),
        image=bytes(image),
        result_addr=len(image),
        result_stride=stride,
        m=gemm.m,
        n=gemm.n,
    )


def _check(gemm: Gemm, config: Config) -> None:
    if gemm.b_transpose and not config.b_transpose:
        raise InputError(f"The product has b_transpose, which configuration {config.name} lacks")
    if gemm.sparse:
        if not config.sparse_lanes:
            raise InputError(f"Skipping zeros needs sparse_lanes, which {config.name} lacks")
        if not LEAST_K <= gemm.k <= config.sparse_depth:
            raise InputError(
                f"Skipping zeros needs k from {LEAST_K} to sparse_depth = {config.sparse_depth}, "
                f"not {gemm.k}"
            )
        if gemm.m * -(-gemm.n // config.cols) > config.acc_depth:
            raise InputError(
                f"The product needs {gemm.m * -(-gemm.n // config.cols)} accumulator rows, but "
                f"acc_depth is {config.acc_depth}"
            )
    if gemm.k > config.max_k:
        raise InputError(
            f"A sum of k = {gemm.k} products could overflow the accumulator: max_k is "
            f"{config.max_k}"
        )


def _compute(
    gemm: Gemm,
    config: Config,
    items: list[_Item],
    regions: int,
    addresses: tuple[int, int, int],
    stored: int,
) -> list[Instruction]:
    """Return products and drains of B of so many ``stored`` bytes."""
    a_addr, b_addr, c_addr = addresses
    region_rows = config.acc_depth // regions
    b_column = gemm.k if gemm.b_transpose else 1
    flags = {"b_transpose"} if gemm.b_transpose else set()
    products, drains = [], []
    for index, item in enumerate(items):
        tile = item.column // config.cols
        acc = index % regions * region_rows
        opcode, operands = Opcode.MATMUL, {"b_stride": gemm.b.shape[1], "b_zero": gemm.b_zero}
        if gemm.sparse:
            beats = stored // beat_bytes(config.sparse_lanes) - HEADER_BEATS
            opcode, operands = Opcode.SPARSE, {"beats": beats}
        products.append(
            Instruction(
                opcode,
                {
                    "a_addr": a_addr + item.row * gemm.k,
                    "a_stride": gemm.a.shape[1],
                    "b_addr": b_addr + item.column * b_column,
                    "acc_addr": acc,
                    "acc_stride": item.m,
                    "m": item.m,
                    "k": gemm.k,
                    "n": item.n,
                    "a_zero": gemm.a_zero,
                    **operands,
                },
                frozenset(flags),
                frozenset({Engine.VECTOR} if index >= regions else ()),
                frozenset({Engine.VECTOR}),
            )
        )
        drains.append(
            Instruction(
                Opcode.DRAIN,
                {
                    "acc_addr": acc,
                    "acc_stride": item.m,
                    "o_addr": c_addr + item.row * gemm.n + item.column,
                    "o_stride": gemm.n,
                    "o_zero": gemm.o_zero,
                    "m": item.m,
                    "n": item.n,
                    "params": tile * config.lane_groups,
                },
                pop=frozenset({Engine.MATRIX}),
                push=frozenset({Engine.MATRIX} if index + regions < len(items) else ()),
            )
        )
    # Products go ahead of the drains before them, so that full queues of drains hold none back.
    ahead = min(regions - 1, DRAINS_BEHIND)
    program = products[:ahead]
    for index, drain in enumerate(drains):
        program += [*products[index + ahead : index + ahead + 1], drain]
    return program
