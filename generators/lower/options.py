"""Options of the compiler: quantization, inputs or texts of a run, and the KV cache."""

from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.generators.quantize.options import Quantization


@dataclass(frozen=True, kw_only=True)
class Options(Quantization):
    """Compiler options that change a program's results or its speed.

    Raises :class:`InputError` if an option is out of its bounds or contradicts another option.
    """

    sparse: bool = False
    """True if matrices are coded for the zero-skip unit if that is faster."""
    batch: int = 1
    """Number of inputs or texts of one run; a step processes one token of each text. Weights are
    loaded once for all, and one input's products hide the others' softmax and norm."""
    search: bool = True
    """True to search the fastest of many programs; otherwise the first that fits is used."""
    context: int = 0
    """Most tokens in the KV cache; 0 for all positions of the model."""
    sinks: int = 4
    """Number of a text's first tokens that never leave the cache."""
    recompute: bool = False
    """True if the inputs of attention are kept, and keys and values are computed from them for each
    run."""

    def __post_init__(self) -> None:
        """Check the numbers that do not depend on the model."""
        super().__post_init__()
        if self.context < 0:
            raise InputError(f"Context must be 0 or more tokens, not {self.context}")
        if self.sinks < 0:
            raise InputError(f"Sinks must not be negative, not {self.sinks}")
