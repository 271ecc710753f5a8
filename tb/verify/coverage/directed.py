"""Random instructions for directed tests, with given flags and sizes.

The addresses are chosen so that the matrices of an instruction do not overlap.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.formats import index_of
from celosia.arch.instruction import Instruction
from celosia.arch.isa import COUNT_WIDTH, DEFINITIONS, FACTOR_SHIFT, PAIR_FLAGS, RING_SLOTS, Opcode
from celosia.arch.sparse import LEAST_K
from celosia.sim.admission import check_step
from celosia.sim.flow import Step
from celosia.sim.regions import Region, regions, sizes

SIZES = ("m", "k", "n", "row_bytes")
"""Operands that are sizes which a program chooses."""
SOURCE_BYTES = 1 << 16
"""Bytes of external memory that LOAD reads; STORE writes as many after them."""

_BYTES = ("b_high", "b_low")
_COMPANIONS = {"followed": "drain", "per_row": "per_tensor", "grouped": "format_1"}
_COMPANIONS |= {"by_tile": "factors", **dict.fromkeys(_BYTES, "a_wide")}
_MARK = 1 << 40  # more than any memory has
_TRIES = 12


def companions(opcode: Opcode, flag: str, config: Config) -> frozenset[str]:
    """Return all flags that an instruction with the flag ``flag`` must have, including ``flag``.

    The result is empty if ``flag`` is empty.
    """
    flags = {flag} if flag else set()
    if flag in _COMPANIONS and _COMPANIONS[flag] in DEFINITIONS[opcode].flags:
        flags.add(_COMPANIONS[flag])
    if flag in PAIR_FLAGS:
        flags |= {"pair", "append" if opcode == Opcode.PRELOAD else "resident"}
    if flag == "add" and opcode != Opcode.NORM:
        flags.add("wide_out")
    if flag and config.row_factors and opcode in (Opcode.SOFTMAX, Opcode.NORM):
        flags |= {"factors", "rms"} & set(DEFINITIONS[opcode].flags)
    if flag and opcode == Opcode.SOFTMAX and config.beat_lanes > config.vector.lanes:
        flags.add("per_tensor")
    return frozenset(flags)


@cache
def largest(opcode: Opcode, flag: str, size: str, config: Config) -> int:
    """Return the largest legal value of one size of an instruction, such as m (rows).

    The instruction has the flag ``flag``, or no flag if ``flag`` is empty. The other sizes of the
    instruction are the smallest, and its matrices must fit the memories. The result is 0 if no
    value is legal.
    """
    rng = np.random.default_rng(0)
    flags = companions(opcode, flag, config)
    unit = least_sizes(opcode, flags, config)[size] if opcode != Opcode.SPARSE else 1

    def fits(count: int) -> bool:
        return build(opcode, flags, {size: count * unit}, config, rng, least=True) is not None

    low, high = least_sizes(opcode, flags, config)[size] // unit, (1 << COUNT_WIDTH) // unit
    if not fits(low):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * unit


def least_sizes(opcode: Opcode, flags: frozenset[str], config: Config) -> dict[str, int]:
    """Return a dictionary with the smallest allowed value of each size of an instruction.

    A size, such as ``m`` (rows), is an operand that a program chooses. An instruction with the
    given opcode and flags can have all smallest values at the same time.
    """
    least = {name: 1 for name in SIZES if name in DEFINITIONS[opcode].operands}
    if "rotate" in flags:
        least["n"] = 2
    if "spaced" in flags:
        least["n"] = config.array.cols
    if opcode == Opcode.SPARSE:
        least["k"] = LEAST_K
    return least


def build(
    opcode: Opcode,
    flags: frozenset[str],
    asked: Mapping[str, int],
    config: Config,
    rng: np.random.Generator,
    *,
    least: bool = False,
) -> Instruction | None:
    """Return a random instruction with the given flags and sizes, or None if no attempt succeeds.

    ``asked`` maps sizes, such as ``m``, to required values. Other sizes are random, but the
    smallest in the last attempt. If ``least`` is true, the last attempt is the only one. The
    instruction is legal, and its matrices fit the memories.
    """
    if index_of(flags) > len(config.formats):
        return None
    smallest = least_sizes(opcode, flags, config)
    for attempt in range(1 if least else _TRIES):
        small = least or attempt == _TRIES - 1
        chosen = {
            name: low if small else int(rng.integers(low, low + 2 * config.array.cols + 1))
            for name, low in smallest.items()
        }
        if "rotate" in flags and not small:
            # Beyond the second tile column a head's pairs may begin again.
            chosen["n"] = 2 * int(rng.integers(1, 2 * config.array.cols + 1))
        if "spaced" in flags and not small:
            chosen["n"] = config.array.cols * int(rng.integers(1, 5))
        if flags & {"argmax", "spaced"}:
            chosen["m"] = 1
        operands = _operands(opcode, flags, {**chosen, **asked}, config, rng)
        if small:
            operands |= {name: 0 for name in ("line",) if name in operands}
            operands |= {"table": 2} if "rotate" in flags else {}
        placed = _placed(opcode, flags, operands, config, rng, tight=small)
        if placed is None:
            continue
        try:
            check_step(_step(opcode, flags, placed), config)
        except ProgramError:
            continue
        return Instruction(opcode, placed, flags)
    return None


def _step(opcode: Opcode, flags: frozenset[str], operands: Mapping[str, int]) -> Step:
    engine = DEFINITIONS[opcode].engine
    assert engine is not None
    return Step(0, opcode, engine, operands, flags, frozenset(), frozenset())


def _operands(
    opcode: Opcode,
    flags: frozenset[str],
    chosen: dict[str, int],
    config: Config,
    rng: np.random.Generator,
) -> dict[str, int]:
    """Return all operands, addresses and strides being 0."""
    n = chosen.get("n", 1)

    def zero(allowed: bool = True) -> int:
        return int(rng.integers(config.operand_min, config.operand_max + 1)) if allowed else 0

    values = {
        "a_zero": zero(config.array.zero_points and "a_wide" not in flags),
        "b_zero": zero(config.array.zero_points and not (index_of(flags) or flags & {*_BYTES})),
        "i_zero": zero(),
        "o_zero": zero(not flags & {"rotate", "times"}),
        "slot": RING_SLOTS,
        "line": int(
            rng.integers(config.array.cols if "b_transpose" in flags else config.array.rows)
        ),
        "table": int(rng.integers(config.table_slots)),
        "start": int(rng.integers(-3, 4)),
        "start_step": int(rng.integers(-1, 2)),
        "limit": int(rng.integers(1, n + 4)),
        "limit_step": int(rng.integers(-1, 2)),
        "diagonal": int(rng.integers(-2, n)),
        "diagonal_value": int(rng.integers(-(1 << 24), 1 << 24)),
        "eps_low": int(rng.integers(1 << 27)),
        "eps_high": int(rng.integers(4)),
        "beats": -(-chosen.get("k", 1) * n // max(1, config.sparse_lanes)) + 1,
    }
    if "rotate" in flags:
        values["table"] = 2 * int(rng.integers(1, 1 + max(1, min(n, 32) // 2)))
    elif "times" in flags:
        values["table"] = zero()
    elif "argmax" in flags:
        values["table"] = int(rng.integers(1 << 20))
    if "factors" in flags:
        rows = -(-n // config.array.cols) if "by_tile" in flags else chosen["m"]
        values["params"] = int(rng.integers(max(1, config.row_factors - rows + 1))) << FACTOR_SHIFT
    known = DEFINITIONS[opcode].operands
    return dict.fromkeys(known, 0) | {
        name: value for name, value in (values | chosen).items() if name in known
    }


def _placed(
    opcode: Opcode,
    flags: frozenset[str],
    operands: dict[str, int],
    config: Config,
    rng: np.random.Generator,
    *,
    tight: bool,
) -> dict[str, int] | None:
    """Return operands with addresses and strides, or None if they do not fit."""
    names = [name for name in operands if name.endswith("_addr")]
    marked = operands | {name: (place + 1) * _MARK for place, name in enumerate(names)}
    reads, writes = regions(_step(opcode, flags, marked), config)
    regions_by_name = {
        names[region.addr // _MARK - 1]: region
        for region in (*reads, *writes)
        if region.addr >= _MARK and region.m * region.count
    }
    result = dict(operands)
    free = [0] * config.scratchpad.banks
    # A command that is followed leaves room for the one behind it.
    twice = 2 if "followed" in flags else 1
    for name, region in sorted(
        regions_by_name.items(), key=lambda item: -item[1].m * item[1].count
    ):
        stride = name.replace("addr", "stride")
        if region.memory == "acc":
            room = sizes(config)["acc"] // twice - region.m * region.count
            if room < 0:
                return None
            result[name], result[stride] = int(rng.integers(room + 1)), region.count
        elif region.memory == "dram":
            step = -(-region.count // config.mem_bytes) * config.mem_bytes
            room = SOURCE_BYTES - region.m * step
            if room < 0:
                return None
            first = int(rng.integers(room // config.mem_bytes + 1)) * config.mem_bytes
            result[name] = first + (SOURCE_BYTES if opcode == Opcode.STORE else 0)
            result[stride] = step
        elif not _place(result, name, region, free, twice, config, 0 if tight else 7, rng):
            return None
    return result


def _place(
    result: dict[str, int],
    name: str,
    region: Region,
    free: list[int],
    twice: int,
    config: Config,
    slack: int,
    rng: np.random.Generator,
) -> bool:
    """Give a matrix the next free bytes of the emptiest bank; return whether it has room."""
    stride = name.replace("addr", "stride")
    strided = stride in result
    align = config.scratchpad.align
    step = region.count + int(rng.integers(slack + 1)) if strided else region.stride
    step = -(-step // align) * align
    span = step * (region.m * twice - 1) + region.count
    bank = int(np.argmin(free))
    begin = free[bank] + int(rng.integers(slack + 1))
    unit = align if strided else config.line_bytes
    begin = -(-begin // unit) * unit
    if begin + span > config.bank_bytes:
        return False
    free[bank] = begin + span
    result[name] = bank * config.bank_bytes + begin
    if strided:
        result[stride] = step
    return True
