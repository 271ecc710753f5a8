"""Description of a Transformer encoder: its sizes and its structure, without weights."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from celosia.arch.errors import InputError, InputTypeError
from celosia.arch.files import read_toml
from celosia.arch.names import check_name

ACTIVATIONS = (
    "gelu",
    "gelu_tanh",
    "silu",
    "relu",
    "leaky_relu",
    "relu6",
    "relu_squared",
    "hard_sigmoid",
    "hard_swish",
    "quick_gelu",
    "elu",
    "mish",
    "sigmoid",
    "tanh",
)
"""The activation functions of an MLP: tables of the machine, except ``relu``."""


MOST = {"layers": 1000, "epsilon": 1.0, "rotary_base": 1e12}
MOST_OF_ANY = 1 << 24
"""Admissible range of each field of a description; a value outside is refused first."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """Fields and checks that descriptions of encoders and decoders share."""

    name: str
    """Name of the model."""
    dim: int
    """Width of the residual stream."""
    layers: int
    """Number of blocks."""
    heads: int
    """Number of query heads."""
    ffn: int
    """Width of the hidden layer of the MLP; 0 for an encoder's blocks without one."""
    kv_heads: int = 0
    """Key and value heads, a divisor of ``heads``; 0 for the same number as ``heads``."""
    head_dim: int = 0
    """Width of a head; 0 for ``dim / heads``."""
    epsilon: float = 1e-5
    """Epsilon that norms add to the variance."""

    POSITIVE: ClassVar[tuple[str, ...]]
    """Numbers that must be positive."""
    NOT_NEGATIVE: ClassVar[tuple[str, ...]]
    """Numbers that may be 0."""
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]]
    """Values that texts may have."""

    def check_fields(self) -> None:
        """Check types and values of the fields; replace 0 in ``kv_heads`` and ``head_dim``.

        ``kv_heads`` 0 stands for ``heads``, and ``head_dim`` 0 for ``dim / heads``. Raises
        :class:`InputTypeError` if a field has the wrong type. Raises :class:`InputError` if a
        number is out of its range, or a text is not one of the field's choices. :class:`InputError`
        is also raised if ``head_dim`` is 0 and ``heads`` does not divide ``dim``, or if
        ``kv_heads`` does not divide ``heads``.
        """
        for field in fields(self):
            self._check_type(field.name, field.type)
        check_name("Model field name", self.name)
        for name in self.POSITIVE:
            if getattr(self, name) < 1:
                raise InputError(f"Model field {name} must be positive, not {getattr(self, name)}")
        for name in self.NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise InputError(
                    f"Model field {name} must not be negative, not {getattr(self, name)}"
                )
        for name, known in self.CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(
                    f"Model field {name} must be one of {', '.join(known)}, "
                    f"not {getattr(self, name)!r}"
                )
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.dim % self.heads:
            raise InputError(
                f"Model field dim must be a multiple of heads where head_dim is not given, "
                f"but dim is {self.dim} and heads is {self.heads}"
            )
        object.__setattr__(self, "head_dim", self.head_dim or self.dim // self.heads)
        if self.heads % self.kv_heads:
            raise InputError(
                f"Model field heads must be a multiple of kv_heads, but heads is {self.heads} "
                f"and kv_heads is {self.kv_heads}"
            )

    @property
    def query_width(self) -> int:
        """Number of columns of the queries of all heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Number of columns of the keys of all heads together; the values have as many columns."""
        return self.kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """Number of query heads that share one key head."""
        return self.heads // self.kv_heads

    def _check_type(self, name: str, kind: Any) -> None:
        value = getattr(self, name)
        if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputTypeError(f"Model field {name} must be an integer, not {value!r}")
        if kind is float and (isinstance(value, bool) or not isinstance(value, float)):
            raise InputTypeError(f"Model field {name} must be a real number, not {value!r}")
        most = MOST.get(name, MOST_OF_ANY)
        if kind in (int, float) and not value <= most:
            raise InputError(f"Model field {name} must be at most {most}, not {value}")
        if kind in (bool, str) and not isinstance(value, kind):
            text = "true or false" if kind is bool else "a string"
            raise InputTypeError(f"Model field {name} must be {text}, not {value!r}")

    def replace(self, **changes: Any) -> Self:
        """Return a copy of this description with the fields in ``changes`` set to new values."""
        return dataclasses.replace(self, **changes)

    def to_toml(self) -> str:
        """Return the description as TOML text that :func:`read_fields` accepts."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            quoted = isinstance(value, str)
            text = json.dumps(value, ensure_ascii=False) if quoted else str(value).lower()
            lines.append(f"{field.name} = {text}\n")
        return "".join(lines)


@dataclass(frozen=True, kw_only=True)
class ModelDescription(Description):
    """A Transformer encoder over feature vectors or over the tokens of a text.

    The input of an inference is a float array [tokens, features], for example patches of an image,
    frames of a sound or rows of a table. If ``embedding`` is "tokens", the input is token numbers
    [tokens] instead. If ``variable`` is true, an input may have fewer than ``tokens`` tokens:
    attention and pooling ignore the missing tokens.

    The output of an inference is [classes], or [sequence, classes] if ``pooling`` is "none".
    ``sequence`` is the number of tokens, including the class token if the model has one. If
    ``classes`` is 0, there is no classifier, and the output has ``dim`` columns.

    By default a block computes ``x = x + attention(norm(x))``, then ``x = x + mlp(norm(x))``. These
    fields change the formulas:

    - ``placement = "post"`` normalizes both sums instead of the inputs of attention and MLP;
    - ``parallel = true`` computes ``x = x + a * attention(n) + m * mlp(n)``, with ``n = norm(x)``
      and trained gains ``a`` and ``m``;
    - ``skip = false`` leaves out ``x +``;
    - ``shaped = true`` replaces the attention matrix ``P`` (the softmax of the scores) by
      ``alpha * I + beta * P - gamma / sequence``;
    - ``values = false`` leaves out the projection of values: the values of each head are a slice of
      the columns of the attention's input;
    - ``output = false`` leaves out the projection of the heads' results.

    ``alpha``, ``beta`` and ``gamma`` are trained scalars, separate for each head (He and Hofmann
    2023, "Simplifying Transformer Blocks").

    Raises :class:`InputTypeError` if a field has the wrong type, and :class:`InputError` if a value
    is invalid or does not fit the others.
    """

    tokens: int
    """Number of feature vectors of one inference."""
    features: int = 0
    """Length of a feature vector; ``dim`` without a linear embedding."""
    classes: int = 0
    """Outputs of the classifier; 0 for none."""
    head_hidden: int = 0
    """Width of a hidden layer before the classifier, like BERT's pooler; 0 for none."""
    head_activation: str = "tanh"
    """The activation function of that layer."""
    embedding: str = "linear"
    """Kind of the embedding, which makes vectors of ``dim``: a linear layer, the rows of a
    vocabulary, or none if the inputs are such vectors."""
    vocabulary: int = 0
    """Rows of the vocabulary, if the inputs are tokens."""
    types: int = 0
    """Token types, each with a trained vector; 0 for none."""
    embedding_norm: bool = False
    """True if the first block's input is normalized; needs a norm."""
    variable: bool = False
    """True if an input may have fewer tokens than ``tokens``."""
    class_token: bool = False
    """True if a trained token is placed before the others."""
    pooling: str = "mean"
    """Pooling of the sequence into one vector: its mean, its first token, or none."""
    positions: str = "learned"
    """``learned`` if a trained vector is added at each place of the sequence, or ``none``."""
    norm: str = "layernorm"
    """The normalization of the blocks."""
    placement: str = "pre"
    """Position of the norms: a block's input or its sum."""
    final_norm: bool = True
    """True if the last block's output is normalized; needs a norm."""
    activation: str = "gelu"
    """The activation function of the MLP; ``gelu`` is the exact form, with erf."""
    bias: bool = True
    """True if linear layers have biases."""
    skip: bool = True
    """True if blocks add their input."""
    parallel: bool = False
    """True if attention and MLP share their input and are summed."""
    shaped: bool = False
    """True if attention is shaped."""
    window: int = 0
    """Tokens to each side to which a token attends, besides itself; 0 for all tokens."""
    global_tokens: int = 0
    """First tokens of the sequence that attend to all tokens, and all tokens to them."""
    values: bool = True
    """True if attention projects its values."""
    output: bool = True
    """True if attention projects its output."""
    unit: bool = False
    """True if the host scales each row of the output to length 1."""

    gated: ClassVar[bool] = False
    """True if the MLP has a gate, as no encoder's has."""

    POSITIVE = ("tokens", "features", "dim", "layers", "heads")
    NOT_NEGATIVE = (
        *("classes", "kv_heads", "head_dim", "epsilon", "vocabulary", "types", "head_hidden"),
        *("ffn", "window", "global_tokens"),
    )
    CHOICES: ClassVar = {
        "embedding": ("linear", "tokens", "none"),
        "pooling": ("mean", "class", "none"),
        "positions": ("learned", "none"),
        "norm": ("layernorm", "rmsnorm", "none"),
        "placement": ("pre", "post"),
        "activation": ACTIVATIONS,
        "head_activation": ACTIVATIONS,
    }

    def __post_init__(self) -> None:
        """Fill in the defaults that depend on other fields and check everything."""
        if self.embedding != "linear":
            object.__setattr__(self, "features", self.features or self.dim)
        self.check_fields()
        self._check_rules()

    def _check_rules(self) -> None:
        if self.pooling == "class" and self.embedding == "linear" and not self.class_token:
            raise InputError("Model field pooling cannot be class where class_token is false")
        if self.head_hidden and not self.classes:
            raise InputError(
                f"Model field head_hidden must be 0 where classes is 0, not {self.head_hidden}"
            )
        self._check_inputs()
        for name in ("final_norm", "embedding_norm"):
            if getattr(self, name) and self.norm == "none":
                raise InputError(f"Model field {name} cannot be true where norm is none")
        if self.parallel and not self.ffn:
            raise InputError("Model field ffn cannot be 0 where parallel is true")
        if self.parallel and self.placement == "post" and self.norm != "none":
            raise InputError("Model field placement cannot be post where parallel is true")
        if not self.output and self.query_width != self.dim:
            raise InputError(
                f"Model field output cannot be false where heads * head_dim is not dim, but "
                f"heads is {self.heads}, head_dim is {self.head_dim} and dim is {self.dim}"
            )
        if not self.values and self.kv_width != self.dim:
            raise InputError(
                f"Model field values cannot be false where kv_heads * head_dim is not dim, but "
                f"kv_heads is {self.kv_heads}, head_dim is {self.head_dim} and dim is {self.dim}"
            )

    def _check_inputs(self) -> None:
        if self.embedding != "linear" and self.features != self.dim:
            raise InputError(
                f"Model field features must be dim where embedding is {self.embedding}, but "
                f"features is {self.features} and dim is {self.dim}"
            )
        words = self.embedding == "tokens"
        if words != (self.vocabulary > 0):
            raise InputError(
                f"Model field vocabulary must be {'positive' if words else '0'} where embedding "
                f"is {self.embedding}, not {self.vocabulary}"
            )
        if self.types and not words:
            raise InputError(
                f"Model field types must be 0 where embedding is {self.embedding}, not {self.types}"
            )
        for name in ("variable", "window"):
            if getattr(self, name) and self.shaped:
                value = str(getattr(self, name)).lower()
                raise InputError(f"Model field {name} cannot be {value} where shaped is true")
        if self.variable and self.window:
            raise InputError("Model field variable cannot be true where window is not 0")
        if self.global_tokens and not self.window:
            raise InputError(
                f"Model field global_tokens must be 0 where window is 0, not {self.global_tokens}"
            )

    @property
    def sequence(self) -> int:
        """Number of tokens that the blocks process.

        These are the input's tokens, and the class token if the model has one.
        """
        return self.tokens + self.class_token

    @property
    def outputs(self) -> tuple[int, int]:
        """Shape (rows, columns) of the output."""
        rows = self.sequence if self.pooling == "none" else 1
        return rows, self.classes or self.dim

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return a dictionary from weights' names to shapes.

        Matrices of linear layers are [outputs, inputs]; embedding tables are [entries, dim].
        """
        shapes_by_name: dict[str, tuple[int, ...]] = {}

        def linear(name: str, outputs: int, inputs: int) -> None:
            shapes_by_name[f"{name}.weight"] = (outputs, inputs)
            if self.bias:
                shapes_by_name[f"{name}.bias"] = (outputs,)

        def norm(name: str) -> None:
            if self.norm != "none":
                shapes_by_name[f"{name}.weight"] = (self.dim,)
            if self.norm == "layernorm":
                shapes_by_name[f"{name}.bias"] = (self.dim,)

        if self.embedding == "linear":
            linear("embed", self.dim, self.features)
        elif self.embedding == "tokens":
            shapes_by_name["words"] = (self.vocabulary, self.dim)
        if self.types:
            shapes_by_name["types"] = (self.types, self.dim)
        if self.class_token:
            shapes_by_name["class_token"] = (self.dim,)
        if self.positions == "learned":
            shapes_by_name["positions"] = (self.sequence, self.dim)
        if self.embedding_norm:
            norm("embedding_norm")
        for layer in range(self.layers):
            prefix = f"layers.{layer}"
            norm(f"{prefix}.norm" if self.parallel else f"{prefix}.attention_norm")
            linear(f"{prefix}.query", self.query_width, self.dim)
            linear(f"{prefix}.key", self.kv_width, self.dim)
            if self.values:
                linear(f"{prefix}.value", self.kv_width, self.dim)
            if self.shaped:
                shapes_by_name |= {
                    f"{prefix}.{name}": (self.heads,) for name in ("alpha", "beta", "gamma")
                }
            if self.output:
                linear(f"{prefix}.output", self.dim, self.query_width)
            if self.parallel:
                shapes_by_name |= {f"{prefix}.{name}_gain": (1,) for name in ("attention", "mlp")}
            if not self.ffn:
                continue
            if not self.parallel:
                norm(f"{prefix}.mlp_norm")
            linear(f"{prefix}.up", self.ffn, self.dim)
            linear(f"{prefix}.down", self.dim, self.ffn)
        if self.final_norm:
            norm("final_norm")
        if self.head_hidden:
            linear("head_hidden", self.head_hidden, self.dim)
        if self.classes:
            linear("head", self.classes, self.head_hidden or self.dim)
        return shapes_by_name


def read_description(path: Path) -> ModelDescription:
    """Return an encoder's description from a TOML file.

    Raises :class:`InputError` in the same cases as :func:`read_fields`.
    """
    return read_fields(path, ModelDescription)


Described = TypeVar("Described", bound=Description)


def read_fields(path: Path, kind: type[Described]) -> Described:
    """Return the description in a TOML file, as an object of class ``kind``.

    Raises :class:`InputError` if the file cannot be read, is not TOML, or its description is
    invalid.
    """
    values = read_toml(path, "model description")
    declared = fields(kind)
    known = {field.name for field in declared}
    for name in values:
        if name not in known:
            raise InputError(
                f"Unknown model field {name!r} in {path}; known are {', '.join(sorted(known))}"
            )
    required = [
        field.name
        for field in declared
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    if required:
        raise InputError(f"Model description {path} lacks the field {required[0]!r}")
    try:
        return kind(**values)
    except InputTypeError as error:
        raise InputError(f"{error} in {path}") from error
