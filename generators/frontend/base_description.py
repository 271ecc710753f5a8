"""Fields and checks of model descriptions that encoders and decoders share."""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
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
Shapes = dict[str, tuple[int, ...]]
"""Shapes of weight tensors by name."""
MOST = {"layers": 1000, "epsilon": 1.0, "rotary_base": 1e12}
MOST_OF_ANY = 1 << 24
"""Admissible range of each field of a description; a value outside is refused first."""


@dataclass(frozen=True, kw_only=True)
class Description(ABC):
    """Base class of descriptions of encoders and decoders: the common fields and checks."""

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
    norm: str = "layernorm"
    """The normalization of the blocks."""
    epsilon: float = 1e-5
    """Epsilon that norms add to the variance."""
    placement: str = "pre"
    """``pre`` if inputs of attention and MLP are normalized, ``post`` if the sums after them are:
    ``norm(x + attention(x))`` and ``norm(x + mlp(x))``."""
    final_norm: bool = True
    """True if the last block's output is normalized; needs a norm."""
    activation: str = "gelu"
    """The activation function of the MLP; ``gelu`` is the exact form, with erf."""
    bias: bool = True
    """True if the linear layers of the blocks have biases."""

    POSITIVE: ClassVar[tuple[str, ...]]
    """Names of the fields that must be positive."""
    NOT_NEGATIVE: ClassVar[tuple[str, ...]]
    """Names of the fields that must not be negative."""
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]]
    """Allowed values of text fields, by field name."""

    def check_fields(self) -> None:
        """Check all fields, and replace 0 in ``kv_heads`` and ``head_dim`` by the default.

        The default of ``kv_heads`` is ``heads``, and that of ``head_dim`` is ``dim / heads``.
        Raises :class:`InputTypeError` if a field has the wrong type, and :class:`InputError` if a
        value is out of range or does not fit other fields.
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

    @abstractmethod
    def shapes(self) -> Shapes:
        """Return a dictionary from the name of each weight tensor to the tensor's shape.

        Matrices of linear layers are [outputs, inputs]; embedding tables are [entries, dim].
        """

    @property
    def query_width(self) -> int:
        """Number of columns of the queries of all heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Number of columns of all key heads together, which is also that of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """Number of query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Dictionary from the name of each linear layer in a block to its shape [outputs, inputs].

        The layers are those of the attention and of the MLP. The dictionary also has ``gate``, a
        layer that only a gated MLP uses.
        """
        return {
            "query": (self.query_width, self.dim),
            "key": (self.kv_width, self.dim),
            "value": (self.kv_width, self.dim),
            "output": (self.dim, self.query_width),
            "gate": (self.ffn, self.dim),
            "up": (self.ffn, self.dim),
            "down": (self.dim, self.ffn),
        }

    def linear_shapes(self, name: str, outputs: int, inputs: int) -> Shapes:
        """Return a dictionary from tensor name to shape, for the tensors of linear layer ``name``.

        These are the weight [outputs, inputs] and, if :attr:`bias` is true, the bias [outputs].
        """
        bias: Shapes = {f"{name}.bias": (outputs,)} if self.bias else {}
        return {f"{name}.weight": (outputs, inputs)} | bias

    def projection_shapes(self, prefix: str, names: Iterable[str]) -> Shapes:
        """Return a dictionary from tensor name to shape, for the tensors of several linear layers.

        ``names`` are the layers, which are keys of :attr:`projections`. The tensors' names begin
        with ``prefix`` and a dot.
        """
        linears = (self.linear_shapes(f"{prefix}.{n}", *self.projections[n]) for n in names)
        return {name: shape for shapes in linears for name, shape in shapes.items()}

    def norm_shapes(self, name: str) -> Shapes:
        """Return a dictionary from tensor name to shape, for the tensors of norm ``name``.

        A layer norm has a weight and a bias, an RMS norm has only a weight; their shape is [dim].
        If the model has no norms, the dictionary is empty.
        """
        parts = {"layernorm": ("weight", "bias"), "rmsnorm": ("weight",), "none": ()}[self.norm]
        return {f"{name}.{part}": (self.dim,) for part in parts}

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
