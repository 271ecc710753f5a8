"""Formats of weights and activations, the same options for every command that makes integers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS, NESTED, OPERAND_BITS
from celosia.cli.options import grouped
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.quantize.options import INT8, MIXED

AUTO = "auto"
"""Weights whose formats are searched for."""
WIDE = "wide"
"""Functions that take INT16."""


def _check_group(context: click.Context, _option: click.Parameter, group: int) -> int:
    """Return the inputs of a group of weights; refuse them for INT8, which has no such scales."""
    if group > 0 and context.params["weights"] == INT8:
        raise InputError(
            f"Option --group {group} needs a format of fewer bits in --weights, which is {INT8}"
        )
    return group


def _read_bits(_context: click.Context, _option: click.Parameter, given: str) -> tuple[int, ...]:
    """Return the bits that tokens are computed with in turn."""
    try:
        return tuple(int(one) for one in given.split(","))
    except ValueError:
        raise InputError(
            f"Option --bits takes numbers with commas between, not {given!r}"
        ) from None


FORMAT_OPTIONS = (
    click.option(
        "--weights",
        default=INT8,
        is_eager=True,
        show_default=True,
        metavar="FORMAT",
        help=f"Format of the linear layers' weights: {', '.join((INT8, *FORMATS))}, {NESTED}, "
        f"{AUTO}.",
    ),
    click.option(
        "--group",
        default=0,
        callback=_check_group,
        show_default=True,
        help="Inputs that share a scale of such weights; 0: outputs have scales alone.",
    ),
    click.option(
        "--low-rank",
        default=0,
        show_default=True,
        metavar="RANK",
        help="Rank of what is added to weights of fewer bits as two thin INT8 products; 0 for "
        "none.",
    ),
    click.option(
        "--bits",
        default=str(OPERAND_BITS),
        callback=_read_bits,
        show_default=True,
        metavar="BITS",
        help=f"Bits that --weights {NESTED} are read at, 8, 4 or 2; several are taken in turn.",
    ),
    click.option(
        "--loss",
        type=float,
        help=f"What --weights {AUTO} may lose: points of accuracy, or log-likelihood of a token.",
    ),
    click.option(
        "--functions",
        type=click.Choice(["table", WIDE]),
        default="table",
        show_default=True,
        help="What GELU, SiLU and their like take: INT8 from a table, or INT16, as polynomials.",
    ),
    click.option(
        "--activations",
        type=click.Choice([INT8, MIXED]),
        default=INT8,
        show_default=True,
        help="Rows of products: INT8, or mixed, INT16 of attention.",
    ),
    click.option("--sparse", is_flag=True, help="Skip zero weights where that is faster."),
)


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Formats that a model is made integers in.

    Raises :class:`InputError` where bits are asked for that no weights are read at, a search
    without a bound, or a bound without it.
    """

    weights: str = INT8
    group: int = 0
    low_rank: int = 0
    bits: tuple[int, ...] = (OPERAND_BITS,)
    loss: float | None = None
    functions: str = "table"
    activations: str = INT8
    sparse: bool = False

    def __post_init__(self) -> None:
        """Check what does not depend on where the model comes from."""
        check_bits(self.bits, NESTED)
        if self.loss is not None and not 0 <= self.loss < math.inf:
            raise InputError(f"Loss must be a number from 0 on, not {self.loss}")
        if (self.weights == AUTO) != (self.loss is not None):
            raise InputError(
                f"Options --weights {AUTO} and --loss need each other, but weights is "
                f"{self.weights} and loss {self.loss}"
            )

    @property
    def quantization(self) -> Mapping[str, Any]:
        """Fields of :class:`celosia.generators.quantize.options.Quantization`, before any search.

        Raises :class:`InputError` where bits are asked for that these weights are not read at.
        """
        check_bits(self.bits, self.weights)
        return {
            "weights": INT8 if self.weights == AUTO else self.weights,
            "group": self.group,
            "low_rank": self.low_rank,
            "wide_functions": self.functions == WIDE,
            "activations": self.activations,
        }

    @property
    def figures(self) -> dict[str, Any]:
        """Figures that a command reports of them."""
        return {
            "weights": self.weights,
            "group": self.group,
            "activations": self.activations,
            "low_rank": self.low_rank,
            "functions": self.functions,
            "sparse": self.sparse,
        }

    def one_bits(self, what: str) -> int:
        """Return the bits; raise :class:`InputError` where several are taken in turn."""
        if len(self.bits) > 1:
            raise InputError(f"{what} with one number of bits, not {len(self.bits)}")
        return self.bits[0]

    def refuse_bits(self, what: str) -> None:
        """Raise :class:`InputError` where fewer bits are asked for by what computes with all."""
        if self.bits != (OPERAND_BITS,):
            asked = ",".join(map(str, self.bits))
            raise InputError(f"Option --bits {asked} is not for {what}, which computes with all")

    def refuse_search(self, what: str) -> None:
        """Raise :class:`InputError` where formats are to be searched for by what has no loss."""
        if self.loss is not None:
            raise InputError(f"Option --weights {AUTO} needs a trained model, not {what}")


format_options = grouped("formats", Formats, *FORMAT_OPTIONS)
"""Adds the options; the command gets them as ``formats``."""
