"""Checks of each instruction of a program before an engine runs the instruction."""

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.formats import index_of
from celosia.arch.isa import COLUMN_WIDTH, COUNT_WIDTH, RING_SLOTS, WIDE_FLAGS, Opcode
from celosia.arch.sparse import LEAST_K
from celosia.sim.accesses import check_accesses
from celosia.sim.flow import Step
from celosia.sim.regions import meet, regions


def check_step(step: Step, config: Config) -> None:
    """Raise :class:`ProgramError` if a machine of the configuration cannot run an instruction.

    The check covers units, operands, flags, and accesses
    (:func:`celosia.sim.accesses.check_accesses`). It does not depend on earlier instructions.
    """
    unit = step.definition_unit
    if unit is not None and not config.read(unit):
        raise ProgramError(f"{step} needs the unit {unit}, which the configuration leaves out")
    for name in ("m", "k", "n", "row_bytes", "beats"):
        if name in step.operands and not 1 <= step[name] < 1 << COUNT_WIDTH:
            raise ProgramError(
                f"{step} needs {name} from 1 to {(1 << COUNT_WIDTH) - 1}, not {step[name]}"
            )
    if step.opcode == Opcode.PARAMS and step["i_addr"] % config.line_bytes:
        raise ProgramError(f"{step} must read from a multiple of {config.line_bytes} bytes")
    _check_flags(step, config)
    if step.opcode == Opcode.SPARSE and not LEAST_K <= step["k"] <= config.sparse_depth:
        raise ProgramError(
            f"{step} needs k from {LEAST_K} to sparse_depth = {config.sparse_depth}, "
            f"not {step['k']}"
        )
    if step.opcode == Opcode.SOFTMAX:
        _check_window(step)
        _check_beat(step, config)
    check_accesses(step, config)


_FLAG_UNITS = {
    "b_transpose": "b_transpose",
    "table": "activation",
    "polynomial": "wide_functions",
    **dict.fromkeys(WIDE_FLAGS, "wide_operands"),
    "rotate": "rotary",
    "argmax": "argmax",
    "times": "rotary",
    "drain": "fused",
    "followed": "fused",
    "factors": "row_factors",
    "by_tile": "row_factors",
    "spaced": "fused",
    "pair": "packed_cache",
    "lower": "low_rows",
    "block": "block_exponents",
}


_NEEDED = {"by_tile": "factors", **dict.fromkeys(("second", "lower", "block"), "pair")}
"""The flag that each of these flags needs."""

_EXCLUDED = {
    "polynomial": (
        "takes polynomials of 16-bit operands, excluding",
        ("wide_out", "table", "rotate", "times", "argmax"),
    ),
    "rotate": ("rotates pairs of columns, which excludes", ("relu", "table", "add")),
    "times": ("multiplies by a second input, which excludes", ("relu", "table", "add", "rotate")),
    "argmax": ("looks for the largest element, which excludes", ("table", "rotate", "times")),
    "block": ("has block, which excludes", ("b_transpose", "lower")),
}
"""For each of these flags, the words of a refusal, and the flags that it excludes."""


def _check_combined(step: Step) -> None:
    """Refuse flags without the flag that they need, or together with one that they exclude."""
    for flag, needed in _NEEDED.items():
        if flag in step.flags and needed not in step.flags:
            raise ProgramError(f"{step} has {flag}, which needs {needed}")
    for flag, (refusal, excluded) in _EXCLUDED.items():
        for other in excluded:
            if {flag, other} <= step.flags:
                raise ProgramError(f"{step} {refusal} {other}")


def _check_flags(step: Step, config: Config) -> None:
    for flag in step.flags:
        unit = _FLAG_UNITS.get(flag)
        if unit is not None and not config.read(unit):
            raise ProgramError(f"{step} needs the unit {unit}, which the configuration leaves out")
    if {"wide_out", "table"} <= step.flags:
        raise ProgramError(f"{step} cannot look up a table with a 16-bit output")
    if "add" in step.flags and step.opcode != Opcode.NORM and "wide_out" not in step.flags:
        raise ProgramError(f"{step} can add a residual only with a 16-bit output")
    if step.opcode == Opcode.NORM and config.row_factors and not {"rms", "factors"} <= step.flags:
        raise ProgramError(f"{step} needs rms and factors, as row_factors is {config.row_factors}")
    if step.opcode == Opcode.SOFTMAX and config.row_factors:
        _check_weights(step, config)
    if "spaced" in step.flags and (step["m"] != 1 or step["n"] % config.array.cols):
        raise ProgramError(
            f"{step} is spaced, so m must be 1 and n a multiple of {config.array.cols}, not "
            f"{step['m']} and {step['n']}"
        )
    if "followed" in step.flags:
        _check_follows(step)
    if "drain" in step.flags and config.pre_depth:
        _check_pre(step, config)
    if "per_row" in step.flags:
        _check_per_row(step, config)
    _check_combined(step)
    if "rotate" in step.flags:
        _check_rotate(step, config)
    if "times" in step.flags:
        _check_times(step)
    if "argmax" in step.flags:
        _check_argmax(step)
    for name in ("a_zero", "b_zero"):
        zero = step.operands.get(name, 0)
        if not config.operand_min <= zero <= config.operand_max:
            raise ProgramError(
                f"{step} needs {name} from {config.operand_min} to {config.operand_max}, not {zero}"
            )
        if zero and not config.array.zero_points:
            raise ProgramError(f"{step} has {name} {step[name]}, but zero_points is false")
    for name in ("i_zero", "o_zero"):
        if not -128 <= step.operands.get(name, 0) <= 127:
            raise ProgramError(f"{step} needs {name} from -128 to 127, not {step[name]}")
    resident = step.opcode == Opcode.PRELOAD or "resident" in step.flags
    if resident and step["slot"] < RING_SLOTS:
        raise ProgramError(
            f"{step} needs a slot from {RING_SLOTS} on, not {step['slot']}: those before are for "
            f"streamed weights"
        )
    if "append" in step.flags:
        _check_append(step, config)
    _check_format(step, config)
    _check_wide(step)
    _check_pair(step, config)
    if step.operands.get("k", 0) > config.accumulators.longest_sum:
        raise ProgramError(
            f"{step} sums k = {step['k']} products, but max_k is {config.accumulators.longest_sum}"
        )
    if step.opcode in (Opcode.SOFTMAX, Opcode.NORM) and step["n"] > config.vector.longest_row:
        raise ProgramError(
            f"{step} has rows of n = {step['n']}, but max_row is {config.vector.longest_row}"
        )


def _check_weights(step: Step, config: Config) -> None:
    """Refuse a softmax that returns probabilities on a machine whose softmax returns weights."""
    if "factors" not in step.flags or "diagonal" in step.flags:
        raise ProgramError(
            f"{step} needs factors and excludes diagonal, as row_factors is {config.row_factors}"
        )


def _check_pre(step: Step, config: Config) -> None:
    first, words = step["params"], 1
    if step.opcode == Opcode.NORM:
        first, words = step["pre"], -(-step["n"] // config.vector.lanes)
    if first + words > config.pre_depth:
        raise ProgramError(
            f"{step} requantizes accumulators with words {first} to {first + words - 1}, but "
            f"pre_depth is {config.pre_depth}"
        )


_STRAIGHT = ("b_transpose", "append", "resident")
"""Flags that exclude a weight format, whose codes are stored column by column and tile by tile."""


def _check_format(step: Step, config: Config) -> None:
    index = index_of(step.flags)
    if index > len(config.formats):
        raise ProgramError(
            f"{step} has weights of format {index}, but weight_formats is {config.weight_formats!r}"
        )
    slots = config.slot_scales and step.opcode == Opcode.PRELOAD
    if "grouped" in step.flags and not (config.weight_group and (index or slots)):
        raise ProgramError(
            f"{step} is grouped, which needs a weight format and weight_group, which is "
            f"{config.weight_group}"
        )
    for flag in _STRAIGHT:
        if flag == "resident" and index and _paired(step, config):
            continue
        if flag in step.flags and (index or "grouped" in step.flags):
            raise ProgramError(f"{step} has weights of a format, which excludes {flag}")
    if index and step["b_zero"]:
        raise ProgramError(
            f"{step} has weights of a format, so b_zero must be 0, not {step['b_zero']}"
        )


def _check_pair(step: Step, config: Config) -> None:
    """Refuse pairs of tiles that are neither appended nor resident, and lower bits without room."""
    if "pair" not in step.flags:
        return
    needed = "append" if step.opcode == Opcode.PRELOAD else "resident"
    if needed not in step.flags:
        raise ProgramError(f"{step} has pair, which needs {needed}")
    if index_of(step.flags) or "grouped" in step.flags:
        raise ProgramError(f"{step} has pair, which excludes a weight format")
    name = "k" if "b_transpose" in step.flags else "n"
    if step.opcode == Opcode.PRELOAD and step[name] % config.scratchpad.align:
        raise ProgramError(
            f"{step} has pair, so {name} must be a multiple of scratchpad_align = "
            f"{config.scratchpad.align}, not {step[name]}"
        )
    if "lower" in step.flags and not config.low_rows <= step["k"] <= config.high_rows:
        raise ProgramError(
            f"{step} has lower, which needs k from low_rows = {config.low_rows} to the "
            f"{config.high_rows} rows above them, not {step['k']}"
        )


def _paired(step: Step, config: Config) -> bool:
    """Return whether slots can hold the weights of a step in pairs."""
    form = config.formats[index_of(step.flags) - 1]
    return config.packed_slots and form.paired


def _check_wide(step: Step) -> None:
    """Refuse zero points of INT16, and a byte of INT16 weights where it is not allowed."""
    byte = step.flags & {"b_high", "b_low"}
    if byte and "a_wide" not in step.flags:
        raise ProgramError(f"{step} takes a byte of weights, which needs a_wide")
    if len(byte) > 1:
        raise ProgramError(f"{step} takes the high byte of weights, which excludes b_low")
    if byte and (index_of(step.flags) or step.flags & {"grouped", "resident"}):
        raise ProgramError(
            f"{step} takes a byte of weights, which excludes resident and weight formats"
        )
    for name in ["a_zero"] * ("a_wide" in step.flags) + ["b_zero"] * len(byte):
        if step[name]:
            raise ProgramError(
                f"{step} has operands of INT16, so {name} must be 0, not {step[name]}"
            )


def _check_append(step: Step, config: Config) -> None:
    """Refuse lines that begin outside their tile, and rows that are longer than one."""
    transpose = "b_transpose" in step.flags
    lines, side = (config.array.cols, "cols") if transpose else (config.array.rows, "rows")
    if not 0 <= step["line"] < lines:
        raise ProgramError(
            f"{step} needs line from 0 to {side} - 1 = {lines - 1}, not {step['line']}"
        )
    if not transpose and step["n"] > config.array.cols:
        raise ProgramError(
            f"{step} appends rows of n = {step['n']}, but a tile has cols = {config.array.cols}"
        )


def _check_beat(step: Step, config: Config) -> None:
    if "per_tensor" not in step.flags and config.beat_lanes > config.vector.lanes:
        raise ProgramError(
            f"{step} needs per_tensor, as it has one parameter word for softmax_lanes = "
            f"{config.beat_lanes} columns of a beat, and a word is of lanes = "
            f"{config.vector.lanes}"
        )


def _check_per_row(step: Step, config: Config) -> None:
    if "per_tensor" not in step.flags and step["n"] > config.vector.lanes:
        raise ProgramError(
            f"{step} takes one parameter word for each row, so it needs per_tensor or n of at most "
            f"lanes = {config.vector.lanes}, not {step['n']}"
        )


def _check_rotate(step: Step, config: Config) -> None:
    if step["n"] % 2:
        raise ProgramError(f"{step} rotates pairs of columns, so n must be even, not {step['n']}")
    period = step["table"]
    longest = config.bank_bytes // 2 - 2
    if period % 2 or not 2 <= period <= longest:
        raise ProgramError(
            f"{step} rotates the columns of heads, so table must be even and from 2 to {longest}, "
            f"not {period}"
        )
    if 2 * period % config.scratchpad.align:
        raise ProgramError(
            f"{step} rotates the columns of heads, so table must be a multiple of half of "
            f"scratchpad_align = {config.scratchpad.align}, not {period}"
        )
    if step["o_zero"]:
        raise ProgramError(f"{step} rotates about 0, so o_zero must be 0, not {step['o_zero']}")


def _check_times(step: Step) -> None:
    if not -128 <= step["table"] <= 127:
        raise ProgramError(
            f"{step} multiplies by a second input whose zero point is table, which must be from "
            f"-128 to 127, not {step['table']}"
        )
    if step["o_zero"]:
        raise ProgramError(f"{step} multiplies, so o_zero must be 0, not {step['o_zero']}")


def _check_argmax(step: Step) -> None:
    if step["m"] != 1:
        raise ProgramError(
            f"{step} looks for the largest element of one row, so m must be 1, not {step['m']}"
        )
    last = (1 << COLUMN_WIDTH) - step["n"]
    if not 0 <= step["table"] <= last:
        raise ProgramError(
            f"{step} numbers its columns from table on, which must be from 0 to {last}, "
            f"not {step['table']}"
        )


def check_followed(before: Step | None, step: Step | None, config: Config) -> None:
    """Raise :class:`ProgramError` if a vector instruction must not overlap the previous one.

    Overlap is checked only if ``before``, the previous instruction, has the flag ``followed``. Then
    the next one, ``step``, must exist, do the same operation (:func:`alike`), and not read the
    output of ``before``.
    """
    if before is None or "followed" not in before.flags:
        return
    if step is None or not alike(before, step):
        raise ProgramError(f"{before} is followed by {step or 'nothing'}, which is another command")
    # Accumulators that both read are zero the second time.
    reads = [region for region in regions(step, config)[0] if region.memory != "acc"]
    if meet(regions(before, config)[1], reads):
        raise ProgramError(f"{before} is followed by {step}, which reads its output")


def _check_follows(step: Step) -> None:
    """Refuse the flag ``followed`` on a step that must end before the next one begins."""
    if step.opcode == Opcode.DRAIN and "argmax" in step.flags:
        raise ProgramError(f"{step} is followed, which excludes argmax")
    if step.opcode == Opcode.SOFTMAX and ("drain" not in step.flags or "diagonal" in step.flags):
        raise ProgramError(f"{step} is followed, which needs drain and excludes diagonal")


def alike(before: Step, step: Step) -> bool:
    """Return whether two vector instructions do the same operation, on any addresses and sizes.

    Opcodes and flags must be equal, except the flag ``followed``. The operands ``o_zero``,
    ``table``, ``start_step`` and ``limit_step`` must also be equal.
    """
    same = {"o_zero", "table", "start_step", "limit_step"} & step.operands.keys()
    return (
        step.opcode == before.opcode
        and step.flags | {"followed"} == before.flags | {"followed"}
        and all(step[name] == before[name] for name in same)
    )


def _check_window(step: Step) -> None:
    """Refuse a mask whose columns leave the range of the softmax unit's counters."""
    bound = 1 << (COUNT_WIDTH + 1)
    for name, change in (("start", "start_step"), ("limit", "limit_step")):
        last = step[name] + step[change] * (step["m"] - 1)
        for column in (step[name], step[change], last):
            if not -bound <= column < bound:
                raise ProgramError(f"{step} moves {name} to {column}, outside +-{bound}")
    if not -bound <= step["diagonal"] < bound:
        raise ProgramError(f"{step} has its diagonal at {step['diagonal']}, outside +-{bound}")
