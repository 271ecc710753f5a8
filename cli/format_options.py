"""The option --quantize of all commands: the number formats of a quantized model."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celosia.arch.errors import InputError, check_known
from celosia.arch.formats import FORMATS, NESTED, OPERAND_BITS
from celosia.cli.options import QUANTIZE, Adder, Command
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.quantize.options import INT8, MIXED, check_group
from celosia.generators.studies.mixtures import check_loss

AUTO = "auto"
"""Format that a command reports for weights whose formats are searched."""
WIDE = "wide"
"""Name of functions with INT16 inputs."""


@dataclass(frozen=True)
class Key:
    """A key of ``--quantize KEY=VALUE``: the type, default and meaning of its value.

    ``name`` is the name of the parameter by which the command's function receives the value.
    """

    name: str
    kind: type | tuple[str, ...]
    """``int``, ``float``, ``str``, ``tuple`` for several integers, or choices."""
    default: Any
    meaning: str

    def value(self, key: str, text: str) -> Any:
        """Convert ``text`` (the text after ``KEY=``) to the type ``kind``, and return the value.

        ``key`` is the name of the key in error messages. If ``kind`` is a tuple of texts, ``text``
        must be one of them, and is returned. Raises :class:`InputError` if it is not one of them or
        cannot be converted.
        """
        if isinstance(self.kind, tuple):
            if text not in self.kind:
                raise InputError(
                    f"Option --quantize {key} must be {' or '.join(self.kind)}, not {text!r}"
                )
            return text
        try:
            return tuple(map(int, text.split(","))) if self.kind is tuple else self.kind(text)
        except ValueError:
            noun = {int: "an integer", float: "a number", tuple: "numbers with commas between"}
            raise InputError(
                f"Option --quantize {key} takes {noun[self.kind]}, not {text!r}"
            ) from None


WEIGHT_KEYS = {
    "weights": Key(
        "weights",
        str,
        INT8,
        f"format of linear layers' weights, {', '.join((INT8, *FORMATS))}, {NESTED}",
    )
}
LAYER_KEYS = WEIGHT_KEYS | {
    "group": Key("group", int, 0, "inputs that share a scale of weights of fewer bits"),
    "low-rank": Key("low_rank", int, 0, "rank of their correction by two thin INT8 products"),
    "bits": Key("bits", tuple, (OPERAND_BITS,), f"bits {NESTED} weights are read at, in turn"),
    "activations": Key("activations", (INT8, MIXED), INT8, f"rows of products, or {MIXED}, INT16"),
}
"""Keys of a layer of random weights."""
RANGE_KEYS = {
    "percentile": Key("percentile", float, 100.0, "share of values in a range (percent)"),
    "balance": Key("balance", float, None, "how far columns fill ranges, 0 to 1"),
}
NORMS = {
    "plain": {},
    "folded": {"folded": True},
    "deferred": {"folded": True, "deferred": True},
}
"""Options of quantization for each value of the key ``norms``."""
KV = (INT8, "int4", "int4-blocks", "recompute")
DECODER_KEYS = {
    "kv": Key(
        "kv",
        KV,
        INT8,
        "keys and values; int4-blocks: values share exponents; recompute: their inputs are kept",
    ),
    "kv-whole": Key("kv_whole", int, None, "columns of a key head that keep 8 bits of 4"),
    "norms": Key(
        "norms",
        tuple(NORMS),
        "plain",
        "RMS norms; folded: gains in the weights; deferred: also rows' factors in the products",
    ),
}
MODEL_KEYS = {
    **LAYER_KEYS,
    "functions": Key("functions", ("table", WIDE), "table", f"GELU etc. of INT8, or {WIDE}, INT16"),
    "loss": Key(
        "loss",
        float,
        None,
        "loss (points of accuracy, or log-likelihood) up to which fewer bits are searched (slow)",
    ),
    **RANGE_KEYS,
    **DECODER_KEYS,
}
"""Keys of the commands that make integers of a trained model."""


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Number formats of a quantized model, which the user selects with the option ``--quantize``.

    Raises :class:`InputError` in each of these cases:

    - an entry of ``bits`` is not 8, 4 or 2;
    - ``group`` is above 0, but the weights are INT8;
    - ``loss`` is negative or infinite;
    - ``loss`` is given, but the weights are not INT8.
    """

    weights: str = INT8
    """Format of weights."""
    group: int = 0
    """Number of weights that share a scale, in formats narrower than INT8; 0 for none."""
    low_rank: int = 0
    bits: tuple[int, ...] = (OPERAND_BITS,)
    """Upper bits of a weight that inference i reads, ``bits[i % len(bits)]``; below 8 if nested."""
    loss: float | None = None
    """Largest loss of a search for narrower formats: percentage points, or nats per token; or None.
    """
    functions: str = "table"
    activations: str = INT8

    def __post_init__(self) -> None:
        """Check the fields as far as possible without the model."""
        check_group(self.group, self.weights)
        check_bits(self.bits, NESTED)
        check_loss(self.loss, self.weights)

    @property
    def quantization(self) -> Mapping[str, Any]:
        """Keyword arguments of the quantizer for these formats: a dictionary from name to value.

        The names are fields of :class:`celosia.generators.quantize.options.Quantization`. Raises
        :class:`InputError` if ``bits`` has a number below 8, but the weights are not nested
        (readable at several widths).
        """
        check_bits(self.bits, self.weights)
        return {
            "weights": self.weights,
            "group": self.group,
            "low_rank": self.low_rank,
            "wide_functions": self.functions == WIDE,
            "activations": self.activations,
        }

    @property
    def figures(self) -> dict[str, Any]:
        """Settings of the quantization that a command prints: a dictionary from name to value.

        The names are ``weights``, ``group``, ``activations``, ``low_rank`` and ``functions``.
        """
        return {
            "weights": self.weights if self.loss is None else AUTO,
            "group": self.group,
            "activations": self.activations,
            "low_rank": self.low_rank,
            "functions": self.functions,
        }

    def one_bits(self, user: str) -> int:
        """Return the number of upper weight bits that a run reads: the only entry of ``bits``.

        Raises :class:`InputError` if ``bits`` has several entries. ``user`` is the beginning of the
        error's message, such as "A layer is measured" in "A layer is measured with one number of
        bits, not 2".
        """
        if len(self.bits) > 1:
            raise InputError(f"{user} with one number of bits, not {len(self.bits)}")
        return self.bits[0]

    def refuse_bits(self, user: str) -> None:
        """Raise :class:`InputError` if ``bits`` is not its default 8.

        With fewer bits, a run reads only a part of each weight. The message says that an option
        needs all bits; ``user`` is the option's name, such as ``--answers``.
        """
        if self.bits != (OPERAND_BITS,):
            asked = ",".join(map(str, self.bits))
            raise InputError(
                f"Option --quantize bits={asked} is not for {user}, which computes with all"
            )


def quantize_options(keys: Mapping[str, Key]) -> Adder:
    """Return a decorator that adds the option ``--quantize KEY=VALUE[,...]`` to a command.

    ``keys`` is a dictionary from each KEY that the user may write to its :class:`Key`. The command
    gets one argument ``formats``, a :class:`Formats` object, for all keys that are fields of this
    class. It gets each other value as a separate argument, such as ``kv_whole``.
    """
    fields = {each.name for each in dataclasses.fields(Formats)}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_keys(quantize: tuple[str, ...], **named: Any) -> Any:
            values = read_keys(quantize, keys)
            formats = Formats(**{name: values.pop(name) for name in fields & values.keys()})
            return command(formats=formats, **values, **named)

        meanings = " ".join(f"{name}: {key.meaning}." for name, key in keys.items())
        return click.option(
            "--quantize",
            multiple=True,
            metavar="KEY=VALUE[,...]",
            help=f"How the model is made integers. {meanings}",
        )(with_keys)

    return decorate


def read_keys(texts: Sequence[str], keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the values of all keys of ``--quantize``, as a dictionary from ``Key.name`` to value.

    ``texts`` are the values of ``--quantize`` on the command line, such as ``bits=8,4,group=32``.
    ``keys`` has a :class:`Key` for each key. A key that is not written has its default value. Text
    after a comma without ``=`` continues the previous value. Raises :class:`InputError` if a key is
    unknown, or a value is invalid.
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
