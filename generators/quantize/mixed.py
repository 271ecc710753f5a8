"""Search for the weight format of each matrix: the smallest model within a bound of the loss.

The loss that each matrix adds in a format is estimated from measurements of one matrix at a time.
The losses of the best combinations are then measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from celosia.generators.frontend.weights import Floats
from celosia.generators.graph import builder, network
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.rebuilt import rebuilt
from celosia.generators.graph.stored import stored_rows
from celosia.generators.graph.tensors import Ints
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.quantize.options import INT8

COARSE = "int3"
"""The format in which matrices are tried alone."""
CANDIDATES = ("ternary", "int2", COARSE, "int4", "nf4", "int5", "int6")
UNIFORM = "int4"
"""The format that a mixture is compared with."""
ROUNDS = 10
"""Mixtures whose loss is measured."""
SHARE = 0.1
"""Least error that is assumed for a matrix alone, as a share of the mean of all."""
LEAST = 1e-6
"""Least error that is assumed for any matrix alone."""

Measure = Callable[[IntegerGraph], tuple[float, float]]
"""Takes a model, and returns its loss and a smooth error that increases with it."""
Look = Callable[[IntegerGraph], Mapping[str, Ints]]
"""Takes a model, and returns the tensors of some inputs by name, [rows, columns]."""


@dataclass(frozen=True)
class Mixture:
    """Weight formats of a model's matrices, the measured loss, and the weights' size in bytes."""

    chosen: dict[str, str]
    """Formats by the weights' names; weights that are not listed are in INT8."""
    loss: float
    """Measured loss, less that of INT8."""
    weight_bytes: int
    uniform_loss: float
    """Loss of ``UNIFORM`` for all."""
    uniform_bytes: int

    @property
    def summary(self) -> str:
        """A text for a user: number of matrices in each format, bytes of all weights, and loss.

        For comparison it also has the bytes and the loss of the model with all matrices in INT4
        (:data:`UNIFORM`).
        """
        counts = {name: list(self.chosen.values()).count(name) for name in CANDIDATES}
        parts = [f"{name} for {count}" for name, count in counts.items() if count]
        return (
            f"{', '.join(parts) or 'none'} of the matrices, {self.weight_bytes:,} bytes, loss "
            f"{self.loss:.3g}; {UNIFORM} for all: {self.uniform_bytes:,} bytes, loss "
            f"{self.uniform_loss:.3g}"
        )


def choose_formats(
    make: Callable[[str], IntegerGraph],
    measure: Measure,
    look: Look,
    bound: float,
    progress: Progress,
) -> Mixture:
    """Choose a weight format for each matrix; return the measured choice with the fewest bytes.

    The loss of the choice exceeds the INT8 model's loss by at most ``bound``. ``make(format)``
    returns the model with all weights in one format. ``progress(done, total)`` is called for each
    measured model with the counts of models.
    """
    models = {name: make(name) for name in (INT8, *CANDIDATES)}
    names = _names(models[INT8])
    total, done = len(names) + len(CANDIDATES) + ROUNDS + 1, 0

    def measured(model: IntegerGraph) -> tuple[float, float]:
        nonlocal done
        done += 1
        progress(done, total)
        return measure(model)

    base = measured(models[INT8])
    errors = _errors(models, look(models[INT8]))
    moved = {
        name: max(measured(mixture(models, {name: COARSE}))[1] - base[1], 0.0) for name in names
    }
    # A matrix that seems to lose nothing has been lucky on few inputs.
    least = max(LEAST, SHARE * float(np.mean(list(moved.values()))))
    rates = {name: max(moved[name], least) / max(errors[name][COARSE], LEAST) for name in names}
    losses = {form: measured(models[form])[0] - base[0] for form in CANDIDATES}
    best = Mixture(
        {}, 0.0, models[INT8].weight_bytes, losses[UNIFORM], models[UNIFORM].weight_bytes
    )

    def better(chosen: dict[str, str], made: IntegerGraph, loss: float) -> Mixture:
        if loss > bound or made.weight_bytes >= best.weight_bytes:
            return best
        return replace(best, chosen=chosen, loss=loss, weight_bytes=made.weight_bytes)

    for form, loss in losses.items():
        best = better(dict.fromkeys(names, form), models[form], loss)
    low, high = 0.0, 64.0
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        chosen = _chosen(models, names, errors, rates, 2.0**middle)
        made = mixture(models, chosen)
        loss = measured(made)[0] - base[0]
        best = better(chosen, made, loss)
        low, high = (low, middle) if loss <= bound else (middle, high)
    return best


def _by_form(models: Mapping[str, IntegerGraph]) -> dict[str, dict[str, Linear]]:
    return {form: _linears(graph) for form, graph in models.items()}


def mixture(models: Mapping[str, IntegerGraph], chosen: Mapping[str, str]) -> IntegerGraph:
    """Return a model whose weights have the formats in ``chosen``; all other weights are INT8.

    ``chosen`` is a dictionary from weight name to format name. ``models`` is a dictionary from
    format name to a model with all weights in this format.
    """
    linears = _by_form(models)
    moved = {
        id(op): linears[chosen[name]][name] for name, op in linears[INT8].items() if name in chosen
    }
    return rebuilt(models[INT8], lambda part: moved.get(id(part)))


def _names(model: IntegerGraph) -> list[str]:
    nodes = builder.network(model.description).nodes
    return [node.weight for node in nodes if isinstance(node, network.Linear)]


def _linears(model: IntegerGraph) -> dict[str, Linear]:
    """Return the linear layers by their weights' names."""
    return dict(zip(_names(model), model.linears, strict=True))


def _errors(
    models: Mapping[str, IntegerGraph], tensors: Mapping[str, Ints]
) -> dict[str, dict[str, float]]:
    """Return the squared error of each matrix's outputs in each format, relative to their size."""
    by_form = _by_form(models)
    errors_by_name: dict[str, dict[str, float]] = {}
    for name, exact in by_form[INT8].items():
        inputs = (tensors[exact.source.name] - exact.source.zero).astype(np.float64)
        wanted = inputs @ _real(exact)
        size = max(float(np.sum(wanted**2)), 1e-300)
        errors_by_name[name] = {
            form: float(np.sum((inputs @ _real(layers[name]) - wanted) ** 2)) / size
            for form, layers in by_form.items()
        }
    return errors_by_name


def _real(linear: Linear) -> Floats:
    """Return weights [k, n] in steps of the output."""
    return np.asarray(linear.weight * (linear.rescale.multiplier * 2.0**linear.rescale.shift))


def _chosen(
    models: Mapping[str, IntegerGraph],
    names: Sequence[str],
    errors: Mapping[str, Mapping[str, float]],
    rates: Mapping[str, float],
    price: float,
) -> dict[str, str]:
    """Return each matrix's format with the least sum of bytes and priced loss."""
    formats, linears = {}, _by_form(models)
    for name in names:
        costs = {}
        for form, ops in linears.items():
            op = ops[name]
            size = stored_rows(op.stored, len(op.weight)) * op.weight.shape[1]
            costs[form] = size + price * rates[name] * errors[name][form]
        form = min(costs, key=lambda candidate: costs[candidate])
        if form != INT8:
            formats[name] = form
    return formats
