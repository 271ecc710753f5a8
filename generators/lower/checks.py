"""Checks that a configuration supports a model's operations.

The checks are for units (such as the softmax unit), lengths of rows and sums, alignment, and number
formats. They do not check whether the model fits the memories.
"""

from collections.abc import Sequence

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import RING_SLOTS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph import builder, network
from celosia.generators.graph.fewer_planes import is_nested
from celosia.generators.graph.operations import Attention, Linear, Norm, Op
from celosia.generators.graph.quantized import D, Decoder, Graph, IntegerGraph
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.plan import MOST_ROWS
from celosia.generators.lower.residence import MOST_TEXTS, Cache
from celosia.generators.quantize.multipliers import check_full_parameters, narrowed_parameters
from celosia.generators.quantize.options import MIXED, NARROW_BITS


def checked_graph(
    graph: Graph[D], config: Config, cache: Cache, *, rows: int = 1, texts: int = 1
) -> Graph[D]:
    """Check that a machine supports a model, and return the model with rounded multipliers.

    ``rows`` is the largest number of tokens of one text in a run. Memory sizes are not checked.

    - A unit is missing, or a row or sum is too long for a unit: raises :class:`FitError`, which
      proposes values for fields of ``config``.
    - ``rows``, ``texts``, ``cache`` or a number format is not supported: raises
      :class:`InputError`.
    """
    whole: IntegerGraph = graph
    model, deep = whole.description, config.array.weight_depth > RING_SLOTS
    _check_texts(graph, cache, texts)
    if not (deep and any(op.key.home is network.Home.CACHE for op in graph.attentions)):
        check_full_parameters(model.name, config)
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"Tokens of a chunk must be from 1 to {MOST_ROWS}, not {rows}")
    if cache.capacity > graph.places:
        raise InputError(
            f"Context must be at most the {graph.places} tokens that model {model.name} was "
            f"made for, not {cache.capacity}"
        )
    own, places = config.array.operand_width, cache.capacity
    for width in sorted({tensor.width for tensor in _operands(graph)} - {own}):
        raise InputError(
            f"Model {model.name} has operands of {width} bits, but operand_width is {own}"
        )
    if whole.source is not None:
        places = max(places, model.source_positions)
    _check_units(whole, config, places)
    _check_factors(graph, config, texts)
    if cache.recompute:
        _check_recomputed(whole)
    if graph.kv_bits < NARROW_BITS:
        _check_pairs(whole, config)
    if graph.block:
        _check_blocks(whole, config)
    return narrowed_parameters(graph, config)


def _operands(graph: IntegerGraph) -> list[Tensor]:
    """Return the tensors that linear layers multiply, without those of INT16."""
    return [op.source for op in graph.linears if not op.source.wide]


def _check_texts(graph: IntegerGraph, cache: Cache, texts: int) -> None:
    """Refuse a number of texts that a run cannot process at once."""
    if not 1 <= texts <= MOST_TEXTS:
        raise InputError(f"Texts of a run must be from 1 to {MOST_TEXTS}, not {texts}")
    if texts == 1:
        return
    graph.description.refuse_source("Taking two texts at once")
    if cache.recompute:
        raise InputError(
            f"Keys and values that are made anew are those of one text, but texts is {texts}"
        )


def _check_recomputed(decoder: Decoder) -> None:
    """Refuse recomputed keys and values that are no larger than inputs, or would differ."""
    model, subject = decoder.description, "Keys and values that are made anew"
    model.refuse_source("Making keys and values anew")
    kept = model.kv_heads * decoder.key_dim + model.kv_width
    if model.head_norms:
        raise InputError(f"{subject} need head_norms false, but model {model.name} has them")
    if "0" in model.rotated:
        raise InputError(
            f"{subject} need rotations in every layer or none, but model {model.name} has them in "
            f"the layers {model.rotated}"
        )
    if model.dim >= kept:
        raise InputError(
            f"{subject} must be larger than their inputs, but model {model.name} has "
            f"inputs of {model.dim} columns and keys and values of {kept}"
        )
    if decoder.kv_bits < NARROW_BITS:
        raise InputError(f"{subject} have {NARROW_BITS} bits, not {decoder.kv_bits}")
    if decoder.attentions[0].query.wide:
        raise InputError(
            f"{subject} have inputs of {NARROW_BITS} bits, but activations of model {model.name} "
            f"are {MIXED}"
        )
    if is_nested(decoder):
        raise InputError(
            f"{subject} are of one precision, but the weights of model {model.name} are nested"
        )


def _check_pairs(decoder: Decoder, config: Config) -> None:
    """Refuse keys and values in pairs that do not fit slots."""
    model, whole = decoder.description, decoder.full_width_key_columns
    depth = config.array.weight_depth
    if not config.packed_cache or depth <= RING_SLOTS:
        packed = config.read("packed_cache")
        raise InputError(
            f"Model {model.name} keeps keys and values of {decoder.kv_bits} bits in pairs, which "
            f"needs packed_cache and weight_depth above {RING_SLOTS}, but packed_cache is "
            f"{str(packed).lower()} and weight_depth {depth}"
        )
    narrow = decoder.key_bits < NARROW_BITS
    if narrow and whole and (whole != config.low_rows or decoder.key_dim > config.high_rows):
        raise InputError(
            f"Model {model.name} keeps 8 bits of {whole} columns of each key head of "
            f"{decoder.key_dim}, which needs low_rows {whole} and {decoder.key_dim} rows above "
            f"them, but low_rows is {config.low_rows} and {config.high_rows} rows are"
        )
    if model.head_dim > config.array.cols and model.head_dim % config.array.cols:
        raise InputError(
            f"Model {model.name} keeps keys and values of {decoder.kv_bits} bits in pairs, which "
            f"needs heads of at most cols columns or a multiple, but heads have {model.head_dim} "
            f"and cols is {config.array.cols}"
        )


def value_block(model: TextDescription, config: Config) -> int:
    """Return the number of adjacent elements of the KV cache's values that share one exponent.

    The result is ``2 * min(cols, head_dim)``: a byte of the array's weights stores two such
    elements, and ``cols`` is the array's width. Elements of 8 bits have no exponents.
    """
    return 2 * min(config.array.cols, model.head_dim)


def _check_blocks(decoder: Decoder, config: Config) -> None:
    """Refuse values that share exponents if slots have none, or have them for other columns."""
    model, block = decoder.description, value_block(decoder.description, config)
    if not config.block_exponents or decoder.block != block:
        raise InputError(
            f"Model {model.name} keeps values in blocks of {decoder.block}, which needs "
            f"block_exponents and blocks of {block}, twice the smaller of head_dim "
            f"{model.head_dim} and cols {config.array.cols}, but block_exponents is "
            f"{str(config.block_exponents).lower()}"
        )


def _check_factors(graph: IntegerGraph, config: Config, texts: int) -> None:
    """Refuse a machine whose ``row_factors`` does not suit a model's norms and softmaxes."""
    name, capacity = graph.description.name, config.row_factors
    ops = [op for op in graph.ops if isinstance(op, Norm | Attention)]
    rows = texts * (1 + graph.description.heads)
    if any(op.deferred for op in ops) and capacity < rows:
        raise FitError(
            f"Model {name} has deferred norms and softmaxes of {rows} rows, but row_factors is "
            f"{capacity}",
            {"row_factors": rows, "multiplier_width": 16},
        )
    if capacity and not all(op.deferred for op in ops):
        raise FitError(
            f"Model {name} has norms or softmaxes that are not deferred, but row_factors is "
            f"{capacity}",
            {"row_factors": 0},
        )


def check_described(model: network.Description, config: Config, *, wide_functions: bool) -> None:
    """Raise :class:`InputError` if a configuration lacks a unit that a model description needs.

    The error names the fields to set. ``wide_functions`` is true if activation functions are
    computed by polynomials of INT16 values, not by tables.
    """
    nodes = builder.network(model).all_nodes
    functions = {node.activation for node in nodes if isinstance(node, network.Linear)}
    acts = bool(functions - {"", "relu"})
    needs = _units(nodes, tables=acts and not wide_functions, wide=acts and wide_functions)
    missing = [unit for unit, needed in needs.items() if needed and not config.read(unit)]
    if missing:
        raise InputError(
            f"Model {model.name} needs the unit{'s' * (len(missing) > 1)} {' and '.join(missing)}, "
            f"which configuration {config.name} leaves out; set "
            f"{' and '.join(f'{unit}=true' for unit in missing)}"
        )


def _units(
    nodes: Sequence[network.Node] | Sequence[Op], *, tables: bool, wide: bool
) -> dict[str, bool]:
    """Return whether the nodes of a float or an integer graph need each unit, by its name.

    ``tables`` and ``wide`` are true if there are activation tables and polynomials of INT16 values.
    """
    kinds = {type(node).__name__ for node in nodes}
    attends = "Attention" in kinds
    return {
        "softmax": attends,
        "b_transpose": attends,
        "norm": "Norm" in kinds,
        "activation": tables,
        "rotary": not kinds.isdisjoint(("Rotary", "Gate")),
        "wide_functions": wide,
    }


def _check_units(graph: IntegerGraph, config: Config, places: int) -> None:
    """Refuse a model that needs units, rows or sums which a configuration lacks.

    Attention is to ``places`` places.
    """
    ops = graph.all_ops
    linears = [op for op in ops if isinstance(op, Linear)]
    norms = [op for op in ops if isinstance(op, Norm)]
    tables = any(op.table is not None for op in linears)
    units = _units(ops, tables=tables, wide=any(op.polynomial for op in linears))
    units["wide_operands"] = any(op.source.wide for op in linears)
    lengths = {
        "max_k": max(places, *(op.weight.shape[0] for op in linears)),
        "max_row": max(places, *(op.width for op in norms), 0),
    }
    name, align = config.name, config.scratchpad.align
    lacks: list[tuple[str, dict[str, int]]] = [
        (f"needs the unit {unit}, which configuration {name} leaves out", {unit: True})
        for unit, needed in units.items()
        if needed and not config.read(unit)
    ]
    lacks += [
        (
            f"has rows of {width} bytes in {rows}, but scratchpad_align is {align}",
            {"scratchpad_align": width & -width},
        )
        for rows, width in _widths(graph).items()
        if width % align
    ]
    lacks += [
        (
            f"needs {field} of at least {least}, but configuration {name} has {config.read(field)}",
            {field: least},
        )
        for field, least in lengths.items()
        if least > config.read(field)
    ]
    for lack, change in lacks:
        raise FitError(f"Model {graph.description.name} {lack}", change)


def _widths(model: IntegerGraph) -> dict[str, int]:
    """Return the bytes of rows, and of heads in them, that begin at the scratchpad's alignment.

    A single row may have any columns, like the scores of a text's tokens.
    """
    widths: dict[str, int] = {}
    for graph in model.graphs:
        tensors = [op.target for op in graph.ops]
        corrections = (op.low_rank for op in graph.linears if op.low_rank is not None)
        tensors += [low_rank.first.target for low_rank in corrections]
        if graph.reads_tokens:
            tensors.remove(graph.output)
        else:
            tensors = [tensor for tensor in (graph.input, *tensors) if tensor.rows > 1]
        widths |= {tensor.name: tensor.stride for tensor in tensors}
        for op in graph.attentions:
            widths[f"heads of {op.query.name}"] = op.key_dim
            widths[f"heads of {op.value.name}"] = op.head_dim
    return widths
