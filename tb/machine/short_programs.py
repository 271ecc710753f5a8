"""Short programs that use every engine; their results depend only on the data that they load."""

from dataclasses import dataclass, replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, Operand, pack, wrap
from celosia.arch.isa import REGISTERS, Opcode
from celosia.generators.program.layout import param_words, rows_image
from celosia.generators.program.tokens import insert_tokens
from celosia.sim.regions import ceil_div

ROWS, COLUMNS, DEPTH = 6, 12, 12
"""The largest product."""


@dataclass(frozen=True)
class ShortProgram:
    """A short program, and the registers and memory contents that the host writes beforehand."""

    words: list[int]
    """Instruction words."""
    registers: dict[int, int]
    """Value for each register number."""
    image: bytes
    """Content of external memory from address 0 on."""
    result_addr: int
    """Address of the first byte that the program writes."""
    result_bytes: int
    """Number of bytes that the program writes."""


def has_room(config: Config) -> bool:
    """Return True if a machine with ``config`` can run every program of :func:`short_program`."""
    return (
        config.scratchpad.banks > 1
        and config.bank_bytes >= 1024
        and config.accumulators.depth >= 2 * COLUMNS
        and config.vector.words >= 4 * COLUMNS
        and config.control.program_depth >= 128
        and config.vector.longest_row > 1
        and config.accumulators.longest_sum >= DEPTH
    )


def short_program(config: Config, rng: np.random.Generator) -> ShortProgram:
    """Return a random program that loads two matrices, multiplies them, and stores the product.

    The program also copies a long row in external memory. Some operands are relative to registers,
    which the host must write before the run.
    """
    width = config.mem_bytes
    m, k = (int(rng.integers(2, high + 1)) for high in (ROWS, DEPTH))
    n = int(rng.integers(2, min(COLUMNS, config.vector.longest_row) + 1))
    tiles = ceil_div(n, config.array.cols)
    m = max(1, min(m, config.accumulators.depth // (2 * tiles)))
    half = config.bank_bytes // 2

    def stride(columns: int) -> int:
        return ceil_div(columns, width) * width

    image, places = b"", {}
    count = min(200 if rng.random() < 0.1 else 64, config.bank_bytes // 4 // width)
    for name, rows, columns in (("a", m, k), ("b", k, n), ("long", 1, count * width)):
        places[name] = len(image)
        shape = (rows, stride(columns))
        image += rng.integers(0, 256, shape).astype(np.uint8).tobytes()
    columns = config.lane_groups * config.vector.lanes * tiles
    params = param_words(
        rng.integers(-1000, 1000, columns),
        rng.integers(1 << 29, 1 << 31, columns),
        rng.integers(-9, -3, columns),
        config,
        by_tile=False,
    )
    places["params"] = len(image)
    data, params_stride = rows_image(params, config)
    image += data
    image += bytes(-len(image) % width)
    result = len(image)
    acc = int(rng.integers(config.accumulators.depth - m * tiles + 1))
    bank = config.bank_bytes * (config.scratchpad.banks - 1)
    product = {
        **{"a_addr": 0, "a_stride": stride(k), "b_addr": bank, "b_stride": stride(n)},
        **{"acc_addr": acc, "acc_stride": m, "m": m, "k": k, "n": n},
    }
    out = half
    program = [
        _load(places["a"], 0, m, stride(k)),
        _load(places["b"], bank, k, stride(n)),
        _load(places["params"], bank + half, len(params), params.shape[1], params_stride),
        Instruction(Opcode.PARAMS, {"i_addr": bank + half, "n": len(params)}),
        Instruction(Opcode.MATMUL, product),
        _load(places["long"], out + half // 2, 1, count * width),
        Instruction(Opcode.MATMUL, product),
        Instruction(
            Opcode.DRAIN,
            {"acc_addr": acc, "acc_stride": m, "o_addr": out, "o_stride": stride(n)}
            | {"m": m, "n": n},
        ),
        _store(result, out, m, n, stride(n)),
        _store(result + m * stride(n), out + half // 2, 1, count * width, count * width),
    ]
    registers = {number: int(rng.integers(-(1 << 27), 1 << 27)) for number in range(1, REGISTERS)}
    program = [
        _relative(instruction, registers, rng) for instruction in insert_tokens(program, config)
    ]
    words = pack([*program, Instruction(Opcode.HALT)])
    return ShortProgram(words, registers, image, result, m * stride(n) + count * width)


def _load(addr: int, to: int, m: int, row: int, stride: int | None = None) -> Instruction:
    operands = {"dram_addr": addr, "dram_stride": row if stride is None else stride}
    operands |= {"sp_addr": to, "sp_stride": row, "m": m, "row_bytes": row}
    return Instruction(Opcode.LOAD, operands)


def _store(addr: int, of: int, m: int, row: int, stride: int) -> Instruction:
    operands = {"dram_addr": addr, "dram_stride": stride, "sp_addr": of, "sp_stride": stride}
    return Instruction(Opcode.STORE, operands | {"m": m, "row_bytes": row})


def _relative(
    instruction: Instruction, registers: dict[int, int], rng: np.random.Generator
) -> Instruction:
    """Return an instruction some of whose operands are relative to registers."""
    operands = dict(instruction.operands)
    for name, value in instruction.operands.items():
        number = int(rng.integers(1, REGISTERS))
        if isinstance(value, int) and rng.random() < 0.4:
            operands[name] = Operand(wrap(value - registers[number]), number)
    return replace(instruction, operands=operands)
