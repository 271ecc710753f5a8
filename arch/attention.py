"""ATTENTION as commands of the engines: what the sequencer expands it into, in order.

The query rows of all heads are taken in steps of ``height`` rows. Each step is five commands:

======= ===================================================================================
scores  MATMUL of its queries with the keys that its rows may see, into sums region i mod 2
drain   DRAIN of these to 16-bit scores in buffer i mod 2
weights SOFTMAX of the buffer in place, online: weights relative to the running maximum
values  MATMUL of the weights with the values, into sums region i mod 2 of the second kind
output  DRAIN of these over the running sum, added to the output scaled, except with ``first``
======= ===================================================================================

They come interleaved, so that the array computes the scores of the next step while the vector
engine makes weights of this one's::

    scores 0 | scores 1, drain 0, weights 0, values 0
             | scores 2, drain 1, weights 1, output 0, values 1 | ..
             | drain n, weights n, output n - 1, values n | output n

Three tokens a step suffice: MATRIX gives one with scores for drain and one with values for output,
VECTOR one with weights for values. All else follows, as each engine runs its commands in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arch.errors import ProgramError
from arch.instruction import Instruction, wrap
from arch.isa import COUNT_WIDTH, Engine, Opcode

_MATRIX = frozenset({Engine.MATRIX})
_VECTOR = frozenset({Engine.VECTOR})


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One ATTENTION with its operands resolved."""

    operands: Mapping[str, int]
    flags: frozenset[str]
    pop: frozenset[Engine]
    push: frozenset[Engine]

    def __getitem__(self, name: str) -> int:
        """Return the value of an operand."""
        return self.operands[name]


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The query rows of one step."""

    index: int
    head: int
    first: int
    """The first row of the head."""
    rows: int
    start: int
    """First column that row 0 of the step sees, as the window says."""
    limit: int
    """Columns before the window's end, of row 0 of the step."""
    lowest: int
    """First key that is taken."""
    keys: int
    """Keys that are taken."""


def cut(starts: tuple[int, int], limits: tuple[int, int], n: int) -> tuple[int, int]:
    """Return the first of n keys that rows may see, and how many there are up to the last.

    ``starts`` and ``limits`` are the window of the first row and of the last. It is at least one
    key, which SOFTMAX masks where the window is empty.
    """
    lowest = min(max(min(starts), 0), n - 1)
    highest = max(min(max(limits), n), lowest + 1)
    return lowest, highest - lowest


def _blocks(it: Attention) -> Iterator[_Block]:
    index = 0
    for head in range(it["heads"]):
        for first in range(0, it["m"], it["height"]):
            rows = min(it["height"], it["m"] - first)
            start = wrap(it["start"] + first * it["start_step"])
            limit = wrap(it["limit"] + first * it["limit_step"])
            starts = start, wrap(start + (rows - 1) * it["start_step"])
            limits = limit, wrap(limit + (rows - 1) * it["limit_step"])
            lowest, keys = cut(starts, limits, it["n"])
            yield _Block(
                index=index,
                head=head,
                first=first,
                rows=rows,
                start=start,
                limit=limit,
                lowest=lowest,
                keys=keys,
            )
            index += 1


def _instruction(
    opcode: Opcode,
    operands: Mapping[str, int],
    flags: set[str],
    pop: frozenset[Engine] = frozenset(),
    push: frozenset[Engine] = frozenset(),
) -> Instruction:
    resolved = {name: wrap(value) for name, value in operands.items()}
    return Instruction(opcode, resolved, frozenset(flags), pop, push)


def _buffers(it: Attention, block: _Block) -> tuple[int, int, int]:
    """Return where a step has its scores, its sums for scores and its sums of values."""
    odd = block.index % 2
    return (
        it["p_addr"] + odd * it["p_buffer"],
        it["acc_addr"] + odd * it["acc_buffer"],
        it["v_acc_addr"] + odd * it["acc_buffer"],
    )


def _scores(it: Attention, block: _Block) -> Instruction:
    _, acc, _ = _buffers(it, block)
    key_head = block.head // it["group"]
    return _instruction(
        Opcode.MATMUL,
        {
            "a_addr": it["q_addr"] + block.head * it["q_head"] + block.first * it["q_stride"],
            "a_stride": it["q_stride"],
            "a_zero": it["q_zero"],
            "b_addr": it["k_addr"] + key_head * it["k_head"] + block.lowest * it["k_stride"],
            "b_stride": it["k_stride"],
            "b_zero": it["k_zero"],
            "acc_addr": acc,
            "acc_stride": block.rows,
            "m": block.rows,
            "k": it["k"],
            "n": block.keys,
        },
        {"b_transpose"},
        it.pop if block.index == 0 else frozenset(),
        _VECTOR,
    )


def _drain(it: Attention, block: _Block) -> Instruction:
    buffer, acc, _ = _buffers(it, block)
    return _instruction(
        Opcode.DRAIN,
        {
            "acc_addr": acc,
            "acc_stride": block.rows,
            "o_addr": buffer,
            "o_stride": it["p_stride"],
            "m": block.rows,
            "n": block.keys,
            "params": it["params"],
        },
        {"wide_out", "per_tensor"},
        pop=_MATRIX,
    )


def _weights(it: Attention, block: _Block) -> Instruction:
    buffer, _, _ = _buffers(it, block)
    return _instruction(
        Opcode.SOFTMAX,
        {
            "i_addr": buffer,
            "i_stride": it["p_stride"],
            "o_addr": buffer,
            "o_stride": it["p_stride"],
            "o_zero": it["p_zero"],
            "m": block.rows,
            "n": block.keys,
            "params": it["params"] + 1,
            "row": it["row"] + block.head * it["row_head"] + block.first,
            "start": block.start - block.lowest,
            "start_step": it["start_step"],
            "limit": block.limit - block.lowest,
            "limit_step": it["limit_step"],
        },
        {"per_tensor", "online"} | ({"first"} & it.flags),
        push=_MATRIX,
    )


def _values(it: Attention, block: _Block) -> Instruction:
    buffer, _, acc = _buffers(it, block)
    key_head = block.head // it["group"]
    return _instruction(
        Opcode.MATMUL,
        {
            "a_addr": buffer,
            "a_stride": it["p_stride"],
            "a_zero": it["p_zero"],
            "b_addr": it["v_addr"] + key_head * it["v_head"] + block.lowest * it["v_stride"],
            "b_stride": it["v_stride"],
            "b_zero": it["v_zero"],
            "acc_addr": acc,
            "acc_stride": block.rows,
            "m": block.rows,
            "k": block.keys,
            "n": it["k"],
        },
        set(),
        _VECTOR,
        _VECTOR,
    )


def _output(it: Attention, block: _Block, last: bool) -> Instruction:
    _, _, acc = _buffers(it, block)
    output = it["o_addr"] + block.head * it["o_head"] + block.first * it["o_stride"]
    added = set() if "first" in it.flags else {"add"}
    return _instruction(
        Opcode.DRAIN,
        {
            "acc_addr": acc,
            "acc_stride": block.rows,
            "r_addr": output,
            "r_stride": it["o_stride"],
            "o_addr": output,
            "o_stride": it["o_stride"],
            "o_zero": it["o_zero"],
            "m": block.rows,
            "n": it["k"],
            "params": it["params"] + 2,
            "row": it["row"] + block.head * it["row_head"] + block.first,
        },
        {"per_tensor", "running", *added} | ({"wide_out"} & it.flags),
        _MATRIX,
        it.push if last else frozenset(),
    )


def check_sizes(it: Attention) -> None:
    """Refuse an ATTENTION that has no steps.

    Raises :class:`ProgramError` where a size is not positive.
    """
    for name in ("m", "k", "n", "heads", "group", "height"):
        if not 1 <= it[name] < 1 << COUNT_WIDTH:
            raise ProgramError(f"needs {name} from 1 to {(1 << COUNT_WIDTH) - 1}, not {it[name]}")


def expand(it: Attention) -> Iterator[Instruction]:
    """Yield the commands of an ATTENTION in the order in which they are sent.

    Raises :class:`ProgramError` where a size is not positive.
    """
    check_sizes(it)
    # The blocks that wait for their weights and for their output.
    newest: _Block | None = None
    older: _Block | None = None
    for block in [*_blocks(it), None, None]:
        if block is not None:
            yield _scores(it, block)
        if newest is not None:
            yield _drain(it, newest)
            yield _weights(it, newest)
        if older is not None:
            yield _output(it, older, last=newest is None)
        if newest is not None:
            yield _values(it, newest)
        newest, older = block, newest
