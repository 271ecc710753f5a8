"""Functions that return the instructions of an operation, for operands at given addresses.

Activations are in the scratchpad, sums in the accumulators, and weights in the scratchpad or in the
array's weight slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from celosia.arch.config import Config
from celosia.arch.instruction import wrap
from celosia.arch.isa import FACTOR_SHIFT, Opcode
from celosia.generators.graph.operations import Convert, Norm
from celosia.generators.graph.tensors import Ints, Rescale, Tensor
from celosia.generators.program.draft import Draft, Given, Node, Ref, Written
from celosia.generators.program.image import Bytes
from celosia.generators.program.layout import param_words

Operands = dict[str, int | Ref | Given]
Count = int | Given
"""A number of rows or columns, or a register that has it."""
EPS_HIGH = 28
"""Number of bits of an added variance in the lower of its two operands."""


@dataclass(frozen=True)
class View:
    """Address and stride of an operand in the scratchpad or in the accumulators.

    Sums of one tile column (as wide as the array) are in successive accumulator rows.
    """

    place: int | Ref | Given
    """First byte, or first accumulator row."""
    stride: int
    """Bytes from row to row, or accumulator rows from tile column to tile column."""

    def operands(self, name: str) -> Operands:
        """Return the address and the stride as operands of an instruction.

        The result is a dictionary from operand name to value. ``name`` is the first part of the
        operand names: for example, ``a`` stands for ``a_addr`` and ``a_stride``.
        """
        return {f"{name}_addr": self.place, f"{name}_stride": self.stride}

    def behind(self, offset: int) -> "View":
        """Return a view that begins ``offset`` after the start of this view, with the same stride.

        For a view in the scratchpad, the unit of ``offset`` is bytes. For a view in the
        accumulators, it is accumulator rows.
        """
        place = self.place + offset if isinstance(self.place, int) else self.place.behind(offset)
        return View(place, self.stride)


def rescale_words(config: Config, *rescales: Rescale, by_tile: bool = False) -> Bytes:
    """Return requantization parameters as an array of parameter words, [words, bytes].

    A word has the parameters of one column for each lane of the vector engine. Each of ``rescales``
    begins a new word. If ``by_tile`` is true, each tile column (as wide as the array) also begins a
    new word. DRAIN needs ``by_tile``.
    """
    words = []
    for rescale in rescales:
        repeat = config.vector.lanes if rescale.per_tensor else 1
        bias, multiplier, shift = (
            np.repeat(values, repeat)
            for values in (rescale.bias, rescale.multiplier, rescale.shift)
        )
        ordered = by_tile and not rescale.per_tensor
        words.append(param_words(bias, multiplier, shift, config, by_tile=ordered))
    return np.concatenate(words)


def table_bytes(values: Ints) -> Bytes:
    """Return the lookup table [256] of an activation function as bytes, one for each INT8 entry."""
    return values.astype(np.int8).view(np.uint8)


def product(
    source: View,
    other: View | int,
    sums: View,
    m: Count,
    k: Count,
    n: Count,
    *flags: str,
    a_zero: int = 0,
    b_zero: int = 0,
) -> Draft:
    """Return the MATMUL instruction that adds the product of two matrices to accumulators.

    - ``source``: the first matrix, [m, k].
    - ``other``: the second matrix, [k, n], or the number of its first weight slot.
    - ``sums``: the accumulators.
    - ``a_zero``, ``b_zero``: zero points of the two matrices.
    """
    operands = source.operands("a") | sums.operands("acc")
    operands |= {"m": m, "k": k, "n": n, "a_zero": a_zero}
    if isinstance(other, View):
        operands |= other.operands("b") | {"b_zero": b_zero}
        return Draft(Opcode.MATMUL, operands, frozenset(flags))
    return Draft(Opcode.MATMUL, operands | {"slot": other}, frozenset({"resident", *flags}))


@dataclass(frozen=True)
class Work:
    """Addresses and sizes for an instruction of the vector engine.

    Each method returns an instruction that processes ``m`` rows of ``n`` columns.
    """

    source: View
    """Input: accumulator rows for sums of products, otherwise scratchpad rows."""
    target: View
    """Result in the scratchpad."""
    m: Count
    n: Count
    params: int
    """First word of the parameters."""
    written: Written
    defines: str = ""
    """The buffer that is written anew."""

    def _draft(
        self, opcode: Opcode, source: str, flags: Iterable[str], operands: Operands
    ) -> Draft:
        rows = self.source.operands(source) | self.target.operands("o")
        rows |= {"m": self.m, "n": self.n, "params": self.params}
        return Draft(opcode, rows | operands, frozenset(flags), self.defines, self.written)

    def requantize(
        self,
        opcode: Opcode,
        *flags: str,
        tensor: Tensor | None = None,
        residual: bool = False,
        table: int = 0,
        beside: View | None = None,
    ) -> Draft:
        """Return the instruction that requantizes the numbers at :attr:`source`.

        - ``opcode``: DRAIN for sums in the accumulators, MAP for rows in the scratchpad.
        - ``tensor``: tensor with the result's data type and zero point; None for zero point 0.
        - ``residual``: true to add the old content of :attr:`target`.
        - ``beside``: address and stride of the second input for the flags ``add``, ``times``,
          ``rotate``.
        - ``table``: a number that depends on the flags, such as the slot of a table
          (``docs/isa.md``).
        """
        names, zero, beside = {*flags}, 0, self.target if residual else beside
        if tensor is not None:
            names |= {"wide_out"} if tensor.wide else set()
            # The entries of a function's table include the zero point.
            zero = 0 if {"table", "polynomial"} & names else tensor.zero
        names |= {"add"} if residual else set()
        operands: Operands = {"o_zero": zero, "table": table}
        operands |= {} if beside is None else beside.operands("r")
        return self._draft(opcode, "acc" if opcode == Opcode.DRAIN else "i", names, operands)

    def norm(self, op: Norm) -> Draft:
        """Return the NORM instruction for ``op``, a layer norm or an RMS norm.

        It normalizes the rows at :attr:`source`, and writes the requantized result to
        :attr:`target`.
        """
        on = {"rms": op.rms, "wide_out": op.target.wide, "per_tensor": op.rescale.per_tensor}
        on |= {"factors": op.deferred}
        operands: Operands = {"o_zero": op.target.zero}
        operands |= {"eps_low": wrap(op.eps), "eps_high": op.eps >> EPS_HIGH}
        return self._draft(
            Opcode.NORM, "i", (name for name, enabled in on.items() if enabled), operands
        )

    def softmax(
        self,
        *flags: str,
        limit: Count,
        limit_step: int = 0,
        start: tuple[int, int] = (0, 0),
        zero: int = 0,
        diagonal: tuple[int, int] = (0, 0),
    ) -> Draft:
        """Return the SOFTMAX instruction, which computes probabilities from rows of scores.

        Row r has probabilities in columns ``start[0] + r * start[1]`` to ``limit + r * limit_step -
        1``. In all other columns, the probability is 0.

        - Flag ``drain``: the scores are in the accumulators, not in the scratchpad.
        - Flag ``diagonal``: row r adds ``d * 2**-24`` to the probability in column ``c + r``. The
          argument ``diagonal`` is (c, d).
        """
        operands: Operands = {"o_zero": zero, "limit": limit, "limit_step": limit_step}
        operands |= {"start": start[0], "start_step": start[1]} if any(start) else {}
        operands |= {"diagonal": diagonal[0], "diagonal_value": diagonal[1]}
        return self._draft(Opcode.SOFTMAX, "i", ("per_tensor", *flags), operands)


def rowwise(op: Norm | Convert, work: Work) -> Draft:
    """Return the instruction that computes the norm or conversion ``op`` for rows of INT16 numbers.

    A conversion changes the scale or the width of numbers. For a norm, the instruction is NORM. For
    a conversion, it is MAP. ``work`` has the addresses and sizes.
    """
    if isinstance(op, Norm):
        return work.norm(op)
    flags = ("wide_in", "per_tensor") if op.rescale.per_tensor else ("wide_in",)
    return work.requantize(Opcode.MAP, *flags, tensor=op.target)


def fused(nodes: Sequence[Node], *, keep: bool) -> list[Node]:
    """Return ``nodes`` with a DRAIN and the NORM after it merged into one NORM, if possible.

    ``nodes`` begins with the DRAIN. If ``keep`` is true, the merged instruction also writes the
    requantized rows that it normalizes.
    """
    first, *rest = nodes
    if not rest:
        return [first]
    then = rest[0]
    assert isinstance(first, Draft)
    if not isinstance(then, Draft) or then.opcode != Opcode.NORM or first.defines:
        return [*nodes]
    drained, normed = first.operands, then.operands
    same = (("o_addr", "i_addr"), ("o_stride", "i_stride"), ("m", "m"), ("n", "n"))
    if first.flags - {"wide_out", "add"} or any(drained[a] != normed[b] for a, b in same):
        return [*nodes]
    source, target = drained["o_addr"], normed["o_addr"]
    operands: Operands = {
        **normed,
        "i_addr": drained["acc_addr"],
        "i_stride": drained["acc_stride"],
    }
    operands |= {"pre": drained["params"]}
    flags = then.flags | {"drain"}
    if "add" in first.flags:
        flags |= {"add"}
        operands |= {name: drained[name] for name in ("r_addr", "r_stride")}
    if keep and source != target:
        flags |= {"write_sum"}
        operands |= {"s_addr": source, "s_stride": drained["o_stride"]}
    return [Draft(Opcode.NORM, operands, flags, then.defines, then.written), *rest[1:]]


def preload(
    source: View,
    k: Count,
    n: Count,
    slot: int | Given,
    line: int | Given = 0,
    flags: frozenset[str] = frozenset(),
) -> Draft:
    """Return the PRELOAD instruction that copies a matrix [k, n] to weight slots.

    Weight slots, storage in the array, have one weight tile each. ``slot`` is the first.

    - Flag ``b_transpose``: the scratchpad has the transposed matrix, [n, k].
    - Flag ``append``: ``line`` is the first row of the slot to write, or with ``b_transpose`` the
      first column.
    """
    operands: Operands = source.operands("b") | {"k": k, "n": n, "slot": slot, "line": line}
    return Draft(Opcode.PRELOAD, operands, flags)


def parameters(place: Ref, count: int, first: int) -> Draft:
    """Return the PARAMS instruction that copies parameter words to the parameter memory.

    Parameter words have requantization parameters. The instruction copies ``count`` words from
    scratchpad address ``place`` to the words of the parameter memory from index ``first`` on.
    """
    operands: Operands = {"i_addr": place, "n": count, "params": first}
    return Draft(Opcode.PARAMS, operands, written=Written("parameters"))


def factored(words: int, first: int) -> int:
    """Return the operand ``params`` of an instruction that writes or reads factors of rows.

    The vector engine stores a scale factor for each row of a result, such as 1 / sum of a softmax.

    - ``words``: index of the instruction's first parameter word (low bits of the operand).
    - ``first``: index of the first row's factor (bits from ``FACTOR_SHIFT`` on); the second row
      has the next factor, and so on.
    """
    return words + (first << FACTOR_SHIFT)


def table(place: Ref, slot: int = 0) -> Draft:
    """Return the TABLE instruction that copies an activation function's table to a table slot.

    The table has 256 bytes at scratchpad address ``place``. A table slot is storage in the vector
    engine for one table.
    """
    return Draft(Opcode.TABLE, {"i_addr": place, "table": slot}, written=Written("table"))
