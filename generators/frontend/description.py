"""Description of a Transformer encoder: its sizes and its structure, without weights."""

from dataclasses import dataclass
from typing import ClassVar

from celosia.arch.errors import InputError
from celosia.generators.frontend.base_description import ACTIVATIONS, Description, Shapes


@dataclass(frozen=True, kw_only=True)
class ModelDescription(Description):
    """Shape and settings of a Transformer encoder; its inputs are feature vectors or token numbers.

    An input is [tokens, features], or [tokens] for token numbers. The output is [classes] or, if
    ``pooling`` is "none", [sequence, classes]. By default a block computes
    ``x + attention(norm(x))``, then ``x + mlp(norm(x))``.

    Raises :class:`InputTypeError` for a field of the wrong type, and :class:`InputError` for an
    invalid value.
    """

    tokens: int
    """Number of feature vectors of one inference."""
    features: int = 0
    """Length of a feature vector; ``dim`` without a linear embedding."""
    classes: int = 0
    """Outputs of the classifier; 0 for none, with an output of ``dim`` columns."""
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
    """True if an input may have fewer tokens than ``tokens``; attention and pooling ignore those
    that are missing."""
    class_token: bool = False
    """True if a trained token is placed before the others."""
    pooling: str = "mean"
    """Pooling of the sequence into one vector: its mean, its first token, or none."""
    positions: str = "learned"
    """``learned`` if a trained vector is added at each place of the sequence, or ``none``."""
    skip: bool = True
    """True if blocks add their input, the ``x +`` of the formulas."""
    parallel: bool = False
    """True if a block computes ``x + a * attention(n) + m * mlp(n)``, with ``n = norm(x)`` and
    trained gains ``a`` and ``m``."""
    shaped: bool = False
    """True if ``alpha * I + beta * P - gamma / sequence`` replaces the attention matrix ``P``, the
    softmax of the scores. The scalars are trained for each head (He and Hofmann 2023)."""
    window: int = 0
    """Tokens to each side to which a token attends, besides itself; 0 for all tokens."""
    global_tokens: int = 0
    """First tokens of the sequence that attend to all tokens, and all tokens to them."""
    values: bool = True
    """True if attention projects its values; if not, they are slices of its input's columns."""
    output: bool = True
    """True if attention projects its output, the results of all heads."""
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
        """Shape (rows, columns) of the model's output for an input of the greatest length."""
        rows = self.sequence if self.pooling == "none" else 1
        return rows, self.classes or self.dim

    def shapes(self) -> Shapes:
        """Return a dictionary from the name of each weight tensor to the tensor's shape."""
        shapes: Shapes = {}
        if self.embedding == "linear":
            shapes |= self.linear_shapes("embed", self.dim, self.features)
        elif self.embedding == "tokens":
            shapes["words"] = (self.vocabulary, self.dim)
        if self.types:
            shapes["types"] = (self.types, self.dim)
        if self.class_token:
            shapes["class_token"] = (self.dim,)
        if self.positions == "learned":
            shapes["positions"] = (self.sequence, self.dim)
        if self.embedding_norm:
            shapes |= self.norm_shapes("embedding_norm")
        for layer in range(self.layers):
            shapes |= self._block(f"layers.{layer}")
        if self.final_norm:
            shapes |= self.norm_shapes("final_norm")
        if self.head_hidden:
            shapes |= self.linear_shapes("head_hidden", self.head_hidden, self.dim)
        if self.classes:
            shapes |= self.linear_shapes("head", self.classes, self.head_hidden or self.dim)
        return shapes

    def _block(self, prefix: str) -> Shapes:
        shapes = self.norm_shapes(f"{prefix}.norm" if self.parallel else f"{prefix}.attention_norm")
        inputs = ("query", "key", "value") if self.values else ("query", "key")
        shapes |= self.projection_shapes(prefix, inputs)
        if self.shaped:
            shapes |= {f"{prefix}.{name}": (self.heads,) for name in ("alpha", "beta", "gamma")}
        if self.output:
            shapes |= self.projection_shapes(prefix, ["output"])
        if self.parallel:
            shapes |= {f"{prefix}.{name}_gain": (1,) for name in ("attention", "mlp")}
        if self.ffn and not self.parallel:
            shapes |= self.norm_shapes(f"{prefix}.mlp_norm")
        return shapes | self.projection_shapes(prefix, ("up", "down") if self.ffn else ())
