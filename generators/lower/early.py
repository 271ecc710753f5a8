"""Checks that refuse a large model before its calibration, if it cannot fit a configuration.

The calibration of a large model takes long. Small models are checked only after calibration.
"""

from collections.abc import Callable
from dataclasses import replace

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS, NESTED
from celosia.arch.isa import RING_SLOTS
from celosia.arch.rules import RANGES
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph import builder, network
from celosia.generators.graph.network import Description
from celosia.generators.graph.quantized import D, Graph
from celosia.generators.graph.templates import are_alike, deepened
from celosia.generators.lower.checks import check_described
from celosia.generators.lower.fitting import FitError, Progress, remedy
from celosia.generators.lower.weights import tiles_used
from celosia.generators.quantize.options import INT8, Quantization

LAYERS = 2
"""Layers that are quantized first, to compile a model like the whole one before calibration."""
MANY = 1 << 22
"""Number of weights from which on a model is compiled before its calibration, which takes long;
and number of scores from which on their rows are checked first."""


def check_memory(
    model: Description,
    weights: Weights,
    config: Config,
    options: Quantization,
    memory_bytes: int | None = None,
) -> None:
    """Raise :class:`InputError` before calibration if a large model's weights exceed its memory.

    ``memory_bytes`` is the size of external memory; None stands for all that ``mem_addr_width`` can
    address. Models of fewer than :data:`MANY` weights are not checked.
    """
    attentions = (n for n in builder.network(model).nodes if isinstance(n, network.Attention))
    caches = any(node.key.home is network.Home.CACHE for node in attentions)
    if caches and config.array.weight_depth > RING_SLOTS:
        return
    limit = 1 << config.memory.addr_width if memory_bytes is None else memory_bytes
    names = _linear_weights(model)
    if sum(weights[name].size for name in names) < MANY:
        return
    least = _least_bytes(weights, names, options)
    if least <= limit or _leaves_out(weights, names, config):
        return
    widest = RANGES["mem_addr_width"][1]
    room = f"external memory has {limit}"
    if memory_bytes is None:
        room = f"mem_addr_width is {config.memory.addr_width}, which reaches {limit}"
        needed = (least - 1).bit_length()
        if needed <= widest:
            raise InputError(
                f"Model {model.name} needs at least {least} bytes of external memory for its "
                f"weights, but {room}; set mem_addr_width={needed} or more"
            )
        limit = 1 << widest
    narrow = sorted(FORMATS.values(), key=lambda form: -form.bits)
    sizes = {
        form.name: _least_bytes(weights, names, replace(options, weights=form.name, chosen={}))
        for form in narrow
    }
    fits = [name for name, size in sizes.items() if size <= limit]
    advice = (
        f"--quantize weights={fits[0]} makes them {sizes[fits[0]]}"
        if fits
        else "take a smaller model"
    )
    narrower = memory_bytes or config.memory.addr_width < widest
    raise InputError(
        f"Model {model.name} needs at least {least} bytes of external memory for its weights, but "
        f"{room}{'' if narrower else ', the most there is'}; {advice}"
    )


def check_units(
    model: Description, weights: Weights, config: Config, options: Quantization
) -> None:
    """Raise :class:`InputError` before calibration if the machine lacks a unit for a large model.

    The error names the configuration fields to set. Models with fewer than :data:`MANY` weights are
    not checked.
    """
    if sum(weights[name].size for name in _linear_weights(model)) >= MANY:
        check_described(model, config, wide_functions=options.wide_functions)


def check_rows(model: ModelDescription, config: Config) -> None:
    """Raise :class:`InputError` if a large encoder attends to more tokens than a machine supports.

    The limits are the fields ``max_row`` and ``max_k``. The error names a remedy. Encoders with
    fewer than :data:`MANY` scores are not checked.
    """
    if model.layers * model.heads * model.sequence**2 < MANY:
        return
    most, own = RANGES["max_row"][1], model.class_token
    if model.sequence > most:
        raise InputError(
            f"Model {model.name} attends to {model.sequence} tokens, but a row of scores has at "
            f"most {most} in any configuration (max_row); make the model for at most {most - own} "
            "tokens"
        )
    needs = dict.fromkeys(("max_row", "max_k"), model.sequence)
    short = {name: least for name, least in needs.items() if config.read(name) < least}
    if short:
        least = " and ".join(f"{name} of at least {value}" for name, value in short.items())
        has = " and ".join(str(config.read(name)) for name in short)
        change = " and ".join(f"{name}={value}" for name, value in short.items())
        most = min(config.vector.longest_row, config.accumulators.longest_sum) - own
        raise InputError(
            f"Model {model.name} attends to {model.sequence} tokens and needs {least}, but "
            f"configuration {config.name} has {has}; set {change}, or, where the model leaves the "
            f"number of tokens open, give at most {most} with --context"
        )


def check_layers(
    model: D,
    weights: Weights,
    config: Config,
    options: Quantization,
    quantize: Callable[[D], Graph[D]],
    compile: Callable[[Graph[D]], object],
    progress: Progress | None = None,
) -> None:
    """Raise :class:`InputError` before calibration if a large model does not fit a configuration.

    The first :data:`LAYERS` layers are quantized. If all layers are alike, the other layers are
    copies, and the whole model is checked. The error names larger configurations that fit.
    ``progress`` is called before each compilation for a larger configuration.
    """
    names = _linear_weights(model)
    if model.layers <= LAYERS or sum(weights[name].size for name in names) < MANY:
        return
    try:
        graph = quantize(replace(model, layers=LAYERS))
    except InputError:
        # Numbers may differ from layer to layer, so only the whole model decides.
        return
    whole = _repeats(model, weights, config, options)
    try:
        compile(deepened(graph, model) if whole else graph)
    except FitError as error:
        part = "" if whole else f"of the first {LAYERS} layers alone, "
        helps = remedy(error) if progress is None else remedy(error, progress)
        raise InputError(f"{error}; {part}{helps}") from None
    except InputError:
        if whole:
            raise


def _repeats(model: Description, weights: Weights, config: Config, options: Quantization) -> bool:
    """Return whether all layers of a model have equal operations, formats, and tiles of weights."""
    layers = builder.network(model).layers
    formats = [
        [options.chosen.get(node.weight) for node in layer if isinstance(node, network.Linear)]
        for layer in layers
    ]
    alike = are_alike(layers) and all(each == formats[0] for each in formats)
    return alike and not _leaves_out(weights, _linear_weights(model), config)


def _leaves_out(weights: Weights, names: list[str], config: Config) -> bool:
    """Return whether a tile of weights is zero."""
    rows, cols = config.array.rows, config.array.cols
    return any(not tiles_used(weights[name].T != 0, rows, cols).all() for name in names)


def _linear_weights(model: Description) -> list[str]:
    """Return the names of the weights of linear layers, each once."""
    nodes = builder.network(model).all_nodes
    return list(dict.fromkeys(node.weight for node in nodes if isinstance(node, network.Linear)))


def _least_bytes(weights: Weights, names: list[str], options: Quantization) -> int:
    """Return the bytes of weights in their formats, without corrections."""
    total = 0
    for name in names:
        n, k = weights[name].shape
        form = options.chosen.get(name, options.weights)
        stored = k if form in (INT8, NESTED) else FORMATS[form].stored_rows(k, options.group)
        total += stored * n
    return total
