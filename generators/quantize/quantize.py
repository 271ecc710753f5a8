"""Quantization of a float model: converts each operation of its graph to an integer operation.

Scales are chosen from the values of tensors in calibration.
"""

from dataclasses import replace

from celosia.arch.config import Config
from celosia.arch.formats import FORMATS, NESTED
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph import builder, network
from celosia.generators.graph.network import Description
from celosia.generators.graph.quantized import D, Decoder, Graph, QuantizedModel
from celosia.generators.quantize.calibrate import Calibration, Progress, Samples, calibrate
from celosia.generators.quantize.nested import is_nested
from celosia.generators.quantize.options import INT8, Quantization
from celosia.generators.quantize.quantizer import Quantizer
from celosia.generators.quantize.refusals import check_options
from celosia.generators.quantize.stored import trained_steps
from celosia.generators.quantize.tensor_steps import Steps
from celosia.generators.quantize.texts import calibration_texts


def quantize_model(
    model: ModelDescription,
    weights: Weights,
    inputs: Samples,
    config: Config,
    options: Quantization | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """Return an encoder calibrated on sample inputs and quantized for a configuration.

    Raises :class:`InputError` if there are no samples, a sample is not finite, an option is
    invalid, or a value of the model cannot be represented in integers.
    """
    options = options or Quantization()
    wanted = _multiplied(model) if options.low_rank or options.weights == NESTED else set()
    ranges = calibrate(model, weights, inputs, options.percentile, progress, wanted)
    return quantize_calibrated(model, weights, ranges, config, options, progress)


def quantize_calibrated(
    model: D,
    weights: Weights,
    calibration: Calibration,
    config: Config | None,
    options: Quantization | None = None,
    progress: Progress | None = None,
) -> Graph[D]:
    """Return a quantized model, with scales chosen from the tensors' values in ``calibration``.

    ``config`` is the machine's configuration, which sets the operand width and zero points of an
    encoder. None, as for models of texts, stands for INT8 operands. Raises :class:`InputError` if
    the model does not support an option, or a value cannot be represented in integers.
    """
    options = options or Quantization()
    check_options(model, options)
    options = _settled(model, weights, options)
    steps = Steps(model, weights, calibration, options, config)
    return quantize_stepped(model, weights, steps, options, progress)


def _multiplied(model: ModelDescription) -> set[str]:
    """Return the names of the tensors that linear layers take."""
    nodes = builder.network(model).all_nodes
    return {node.source.name for node in nodes if isinstance(node, network.Linear)}


def quantize_decoder(
    model: TextDescription,
    weights: Weights,
    begin: int | None,
    options: Quantization | None = None,
) -> Decoder:
    """Return a quantized decoder, calibrated on texts that the model samples.

    Each sampled text begins with the token ``begin``, or a random token if ``begin`` is None. An
    encoder-decoder is calibrated on random sources, and on its outputs for these. Raises
    :class:`InputError` if a value of the model cannot be represented in integers.
    """
    options = options or Quantization()
    samples = calibration_texts(model, weights, begin, options)
    return quantize_calibrated(model, weights, samples, None, options)


def quantize_stepped(
    model: D,
    weights: Weights,
    steps: Steps,
    options: Quantization,
    progress: Progress | None = None,
) -> Graph[D]:
    """Return a model quantized with the scales that ``steps`` chooses.

    The scales of tensors do not depend on weight formats. So a caller can use the same ``steps``
    with different weight formats in ``options``. Raises :class:`InputError` if a value of the model
    cannot be represented in integers.
    """
    graph = builder.network(model)
    whole = Quantizer(model, weights, steps, options, graph, progress).graph()
    if graph.source is None:
        return whole
    source = Quantizer(model, weights, steps, options, graph.source, progress).graph()
    return replace(whole, source=source)


def _settled(model: Description, weights: Weights, options: Quantization) -> Quantization:
    """Return options without gains of columns if weights are codes of their formats already.

    Gains would be multiplied into the weights, which then would not be codes.
    """
    forms = {
        node.weight: options.chosen.get(node.weight, options.weights)
        for node in builder.network(model).all_nodes
        if isinstance(node, network.Linear)
    }
    narrow = {name: form for name, form in forms.items() if form != INT8}
    if options.balance is not None or options.group or not narrow:
        return options
    trained = all(_is_trained(weights[name], form) for name, form in narrow.items())
    return replace(options, balance=0.0) if trained else options


def _is_trained(weight: Floats, form: str) -> bool:
    """Return whether weights [n, k] are codes of a format already."""
    if form == NESTED:
        return is_nested(weight)
    return trained_steps(weight, FORMATS[form]) is not None
