"""The option --quantize, the same for every command: number formats of a model."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celosia.arch.errors import InputError, check_known
from celosia.arch.formats import FORMATS, NESTED, OPERAND_BITS
from celosia.cli.options import QUANTIZE, Adder, Command, grouped
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.quantize.options import INT8, MIXED

AUTO = "auto"
"""Name of the search for weights' formats."""
WIDE = "wide"
"""Name of functions with INT16 inputs."""


@dataclass(frozen=True)
class Key:
    """A key of ``--quantize``: its argument of the command, and the kind of its value."""

    name: str
    kind: type | tuple[str, ...]
    """``int``, ``float``, ``str``, ``bool`` for yes and no, ``tuple`` of integers, or choices."""
    default: Any
    meaning: str

    def value(self, key: str, text: str) -> Any:
        """Return the value that a text stands for; raise :class:`InputError` if there is none."""
        choices = YES_NO if self.kind is bool else self.kind
        if isinstance(choices, tuple) and text not in choices:
            raise InputError(
                f"Option --quantize {key} must be {' or '.join(choices)}, not {text!r}"
            )
        if self.kind is bool:
            return text == YES_NO[0]
        if isinstance(self.kind, tuple):
            return text
        try:
            return tuple(map(int, text.split(","))) if self.kind is tuple else self.kind(text)
        except ValueError:
            noun = {int: "an integer", float: "a number", tuple: "numbers with commas between"}
            raise InputError(
                f"Option --quantize {key} takes {noun[self.kind]}, not {text!r}"
            ) from None


YES_NO = ("yes", "no")
FORMAT_KEYS = {
    "weights": Key(
        "weights",
        str,
        INT8,
        f"format of linear layers' weights, {', '.join((INT8, *FORMATS))}, {NESTED}, {AUTO} (slow)",
    ),
    "group": Key("group", int, 0, "inputs that share a scale of weights of fewer bits"),
    "low-rank": Key("low_rank", int, 0, "rank of their correction by two thin INT8 products"),
    "bits": Key("bits", tuple, (OPERAND_BITS,), f"bits {NESTED} weights are read at, in turn"),
    "loss": Key(
        "loss", float, None, f"loss allowed to {AUTO}: points of accuracy, or log-likelihood"
    ),
    "functions": Key("functions", ("table", WIDE), "table", f"GELU etc. of INT8, or {WIDE}, INT16"),
    "activations": Key("activations", (INT8, MIXED), INT8, f"rows of products, or {MIXED}, INT16"),
    "sparse": Key("sparse", bool, False, "yes: skip zero weights where that is faster"),
}
RANGE_KEYS = {
    "percentile": Key("percentile", float, 100.0, "share of values in a range (percent)"),
    "balance": Key("balance", float, None, "how far columns fill ranges, 0 to 1"),
    "scales": Key("scales", ("channel", "tensor"), "channel", "scales of INT8 weights"),
}
NORM_KEYS = {
    "folded": Key("folded", bool, False, "yes: RMS norms' gains in the weights"),
    "deferred": Key("deferred", bool, False, "yes: rows' factors left to the next products"),
}
KV_KEYS = {
    "kv-bits": Key("kv_bits", int, OPERAND_BITS, "width of the KV cache, 8 or 4"),
    "kv-whole": Key("kv_whole", int, None, "columns of a key head that keep 8 bits of 4"),
    "kv-blocks": Key("kv_blocks", int, 0, "columns of 4-bit values that share an exponent"),
}
KEPT_KEYS = {"kv": Key("kv", ("keep", "recompute"), "keep", "keys and values, or their inputs")}
DECODER_KEYS = KV_KEYS | KEPT_KEYS | NORM_KEYS


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Number formats of a quantized model, as option ``--quantize`` gives them.

    Raises :class:`InputError` if bits are requested that the weights cannot be read with, a search
    without a bound, or a bound without a search.
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
        """Check the fields as far as possible without the model."""
        if self.group > 0 and self.weights == INT8:
            raise InputError(
                f"Option --quantize group={self.group} needs a format of fewer bits in weights, "
                f"which is {INT8}"
            )
        check_bits(self.bits, NESTED)
        if self.loss is not None and not 0 <= self.loss < math.inf:
            raise InputError(f"Loss must be a number from 0 on, not {self.loss}")
        if (self.weights == AUTO) != (self.loss is not None):
            raise InputError(
                f"Options --quantize weights={AUTO} and loss need each other, but weights is "
                f"{self.weights} and loss {self.loss}"
            )

    @property
    def quantization(self) -> Mapping[str, Any]:
        """Options of the quantizer that ``--quantize`` gives, a dictionary of keyword arguments.

        They are those of :class:`celosia.generators.quantize.options.Quantization`. With
        ``weights=auto`` weights are INT8, as before the search for formats. Raises
        :class:`InputError` if bits are requested that these weights cannot be read with.
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
        """Dictionary of the formats that a command reports with its results."""
        return {
            "weights": self.weights,
            "group": self.group,
            "activations": self.activations,
            "low_rank": self.low_rank,
            "functions": self.functions,
            "sparse": self.sparse,
        }

    def one_bits(self, user: str) -> int:
        """Return the number of bits at which weights are read.

        Raises :class:`InputError`, whose message begins with ``user``, if several numbers are
        given.
        """
        if len(self.bits) > 1:
            raise InputError(f"{user} with one number of bits, not {len(self.bits)}")
        return self.bits[0]

    def refuse_bits(self, user: str) -> None:
        """Refuse ``bits`` below 8, at which nested weights would be read.

        ``user`` is the noun in the message for the computation that needs all bits. Raises
        :class:`InputError`.
        """
        if self.bits != (OPERAND_BITS,):
            asked = ",".join(map(str, self.bits))
            raise InputError(
                f"Option --quantize bits={asked} is not for {user}, which computes with all"
            )

    def refuse_search(self, model: str) -> None:
        """Refuse ``weights=auto``, which searches formats by the loss of a trained model.

        ``model`` is the noun in the message for a model that is not trained. Raises
        :class:`InputError`.
        """
        if self.loss is not None:
            raise InputError(f"Option --quantize weights={AUTO} needs a trained model, not {model}")


def quantize_options(*others: Mapping[str, Key]) -> Adder:
    """Add ``--quantize``; the command gets ``formats``, and other keys' values by their names."""
    keys = FORMAT_KEYS | {key: value for each in others for key, value in each.items()}
    formats = grouped("formats", Formats)

    def decorate(command: Command) -> Command:
        inner = formats(command)

        @functools.wraps(inner)
        def with_keys(quantize: tuple[str, ...], **named: Any) -> Any:
            return inner(**read_keys(quantize, keys), **named)

        meanings = " ".join(f"{name}: {key.meaning}." for name, key in keys.items())
        return click.option(
            "--quantize",
            multiple=True,
            metavar="KEY=VALUE[,...]",
            help=f"How the model is made integers. {meanings}",
        )(with_keys)

    return decorate


def read_keys(texts: Sequence[str], keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the values of ``--quantize`` by the names of the command's arguments.

    A part without ``=`` continues the value before it: ``bits=8,4``. Raises :class:`InputError` for
    a key that the command does not accept, or a wrong value.
    """
    texts_by_key: dict[str, str] = {}
    for text in texts:
        key = ""
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals and not key:
                raise InputError(f"Option --quantize takes KEY=VALUE, not {text!r}")
            if not equals:
                texts_by_key[key] += f",{part}"
                continue
            key = name.strip()
            check_known("key of --quantize", key, keys)
            texts_by_key[key] = value.strip()
    click.get_current_context().meta[QUANTIZE] = {keys[key].name: key for key in texts_by_key}
    values = {each.name: each.default for each in keys.values()}
    return values | {
        keys[key].name: keys[key].value(key, text) for key, text in texts_by_key.items()
    }
