"""Comparison of a quantized model with its float model: errors of the output and each tensor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.embedding import accelerator_rows
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.operations import Linear, Norm, Op
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.tensors import Ints, Tensor
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.quantize.score_error import score_errors
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward, unit_rows
from celosia.generators.reference.integers import evaluate

COMPARED = 16
"""Number of an encoder's calibration inputs that are compared."""
LEAST_COSINE, LEAST_AGREEMENT = 0.98, 0.9
"""Mean cosine similarity and share of equal choices below which a user is warned."""
FEWEST, ENOUGH_ROWS = 4, 256
"""Fewest inputs and rows of the output that are compared for a large model."""
ENOUGH_PRODUCTS = 1 << 35
"""Products in linear layers after which no further input is compared, given enough rows."""
MOST_ERROR = 0.2
"""Error of the output, relative to its size, above which a user is warned: that of a cosine of
0.98."""
SPREAD = 1 << 12
"""Ratio of columns above which a single step loses all of the smallest column."""
_PARTS = ("source", "up", "query", "key", "value")


@dataclass(frozen=True)
class Parting:
    """Errors of a quantized model against its float model on the same inputs.

    The relative error of a tensor is the root mean square (RMS) of its errors, divided by the RMS
    of its float values.
    """

    inputs: int
    cosine: float
    """Mean cosine similarity of the output's rows."""
    square_error: float
    """Mean square of the output's error, in its float unit squared."""
    agreement: float | None
    """Share of the output's rows whose largest column is the floats'; None without classes."""
    tensor: str
    """The tensor whose relative error increases most over those of the operation's inputs."""
    error: float
    """That tensor's error, relative to the size of its float values."""
    score_error: float | None = None
    """Mean size of the errors of scores (2**-8 octaves), see :func:`score_errors`; None if
    unknown."""
    largest_score_error: float | None = None
    """The largest error of scores."""
    output_error: float = 0.0
    """Error of the output, relative to the size of its float values."""
    spread_tensor: str = ""
    """The tensor before ``tensor`` whose columns' largest magnitudes differ most."""
    spread: float = 1.0
    """The largest of these magnitudes over the smallest."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """The error of each tensor, relative to the size of its float values."""
    balanced: bool = False
    """True if an option can give each column its range: for encoders."""

    @property
    def warning(self) -> str:
        """A warning for the user; empty if the quantized model is close to its float model.

        The model is close if the mean cosine similarity is at least :data:`LEAST_COSINE`, the
        output's relative error at most :data:`MOST_ERROR`, and the agreement, if any, at least
        :data:`LEAST_AGREEMENT`.
        """
        chosen = self.agreement
        far = self.output_error > MOST_ERROR
        near = self.cosine >= LEAST_COSINE and (chosen is None or chosen >= LEAST_AGREEMENT)
        if near and not far:
            return ""
        remedy = "calibrate on inputs like those to come (--calibration)"
        if self.spread > SPREAD:
            remedy = (
                f"columns of {self.spread_tensor} differ in size by {self.spread:.1e}: "
                f"{'give them ranges of their own (--quantize balance=1), or ' * self.balanced}"
                "rescale the weights before and behind it"
            )
        same = "" if chosen is None else f", same choice in {chosen:.1%}"
        return (
            f"integers part from floats on {self.inputs} calibration inputs: cosine "
            f"{self.cosine:.3f}{f', outputs {self.output_error:.0%} off' * (near and far)}{same}; "
            f"most at {self.tensor}, which is {self.error:.1%} off; {remedy}"
        )

    def figures(self) -> dict[str, Any]:
        """Return the errors of the quantized model as a dictionary for a report.

        The keys are the names of this class's fields from ``inputs`` to ``largest_score_error``,
        and ``warning``. The value of ``warning`` is the text for the user, or None if there is
        none.
        """
        return {
            "inputs": self.inputs,
            "cosine": self.cosine,
            "square_error": self.square_error,
            "agreement": self.agreement,
            "tensor": self.tensor,
            "error": self.error,
            "score_error": self.score_error,
            "largest_score_error": self.largest_score_error,
            "warning": self.warning or None,
        }


def compare_models(
    model: IntegerGraph,
    weights: Weights,
    inputs: Sequence[NDArray[np.generic]],
    sources: Sequence[Sequence[int]] = (),
    progress: Progress | None = None,
) -> Parting:
    """Return the errors of a quantized model against its float model on ``inputs``.

    ``inputs`` are inputs of an encoder, or token arrays of a decoder. For an encoder-decoder,
    ``sources`` has the encoder's token list for each element of ``inputs``. For large models, only
    the first inputs are compared.
    """
    description = model.description
    squares: dict[str, NDArray[np.float64]] = {}
    cosines, square, alike, rows = 0.0, 0.0, 0, 0
    source = model.source
    ops = model.all_ops
    scores: list[tuple[float, int, float]] = []
    columns: dict[str, Floats] = {}
    of_output = 0.0
    size, products = sum(op.size for op in ops if isinstance(op, Linear)), 0
    for index, sample in enumerate(inputs):
        cache, exact_cache = KvCache(), KvCache()
        tensors: dict[str, Ints] = {}
        exact: dict[str, Floats] = {}
        if source is not None:
            tokens = np.array(sources[index])
            tensors = evaluate(source, tokens, cache)
            exact = forward(description, weights, tokens[None], exact_cache, source=True)
        values = (
            sample
            if model.reads_tokens
            else accelerator_rows(description, weights, sample[None])[0]
        )
        tensors |= evaluate(model, values, cache)
        scores += [(x.sum(), x.size, x.max()) for x in score_errors(model, tensors, values)]
        exact |= forward(description, weights, sample[None], exact_cache)
        for op in ops:
            target = op.target
            # The rows of a deferred norm lack their factors.
            whole = not isinstance(op, Norm) or not op.deferred
            if whole and target.name in exact and target.name in tensors:
                # Rows before the first one are loaded, not computed.
                first = op.row if isinstance(op, Linear) else 0
                floats = exact[target.name][0, first:]
                pair = np.array(_squares(target, tensors[target.name][first:], floats))
                squares[target.name] = squares.get(target.name, np.zeros(2)) + pair
                largest = np.abs(floats).max(axis=0)
                columns[target.name] = np.maximum(columns.get(target.name, 0.0), largest)
        output = model.output
        wanted = exact["output"][0]
        made = _real(output, tensors[_last(model)])[: len(wanted)]
        if description.unit:
            made = unit_rows(made)
        norms = np.linalg.norm(made, axis=1) * np.linalg.norm(wanted, axis=1)
        cosines += float(np.sum((made * wanted).sum(axis=1) / np.where(norms > 0, norms, 1.0)))
        of_output += float(np.mean(wanted**2, axis=1).sum())
        square += float(np.mean((made - wanted) ** 2, axis=1).sum())
        alike += int(np.sum(made.argmax(axis=1) == wanted.argmax(axis=1)))
        rows += len(wanted)
        products += size * len(sample)
        if progress is not None:
            progress(index + 1, len(inputs))
        if index + 1 >= FEWEST and rows >= ENOUGH_ROWS and products >= ENOUGH_PRODUCTS:
            break
    errors = {name: float(np.sqrt(off / (size or 1.0))) for name, (off, size) in squares.items()}
    growth: dict[str, float] = {}
    known: dict[str, float] = {}
    for op in ops:
        before = max((known.get(name, 0.0) for name in _made_of(op)), default=0.0)
        known[op.target.name] = errors.get(op.target.name, before)
        if op.target.name in errors:
            growth[op.target.name] = errors[op.target.name] - before
    worst = max(growth, key=lambda name: growth[name])
    names = [worst, *(name for op in ops if op.target.name == worst for name in _made_of(op))]
    spreads = {name: _spread(columns[name]) for name in names if name in columns}
    widest = max(spreads, key=lambda name: spreads[name])
    chooses = model.reads_tokens or description.classes > 0
    agreement = alike / rows if chooses else None
    error = largest = None
    if scores:
        sums, sizes, sizes_of_errors = zip(*scores, strict=True)
        error, largest = float(sum(sums) / sum(sizes)), float(max(sizes_of_errors))
    return Parting(
        index + 1,
        cosines / rows,
        square / rows,
        agreement,
        worst,
        errors[worst],
        error,
        largest,
        math.sqrt(square / (of_output or 1.0)),
        widest,
        spreads[widest],
        errors,
        balanced=not model.reads_tokens,
    )


def _made_of(op: Op) -> list[str]:
    """Return the names of the tensors that an operation takes."""
    parts = [getattr(op, part, None) for part in _PARTS]
    return [part.name for part in parts if isinstance(part, Tensor)]


def _spread(columns: Floats) -> float:
    """Return the ratio of the largest to the smallest column, without columns of zeros."""
    sizes = columns[columns > 0]
    return float(sizes.max() / sizes.min()) if sizes.size else 1.0


def _last(model: IntegerGraph) -> str:
    """Return the name of the output's tensor."""
    return model.ops[-1].target.name


def _real(tensor: Tensor, values: Ints) -> Floats:
    """Return the real values of a tensor's integers."""
    reals = tensor.steps * (values - tensor.zero)
    return np.asarray(reals if tensor.offsets is None else reals + tensor.offsets)


def _squares(tensor: Tensor, values: Ints, exact: Floats) -> tuple[float, float]:
    """Return the sums of squares of a tensor's error and of its float values."""
    if tensor.picks is not None:
        exact = exact[:, tensor.picks]
    made = _real(tensor, values)[: len(exact)]
    exact = exact[: len(made)]
    if made.shape != exact.shape:
        return 0.0, 0.0
    return float(np.sum((made - exact) ** 2)), float(np.sum(exact**2))
