"""Compilation of a decoder, with the first placement of its data that fits the machine.

Placements (:class:`DataPlacement`) are tried in order of preference. Among programs with the same
placement, the fastest is used.
"""

from dataclasses import replace
from functools import partial

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import RING_SLOTS
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.assembly import fastest, first_fit, settle
from celosia.generators.lower.checks import checked_graph
from celosia.generators.lower.choices import DataPlacement
from celosia.generators.lower.fitting import FitError, Reason, prepare_remedy
from celosia.generators.lower.key_slots import most_key_heads, query_starts
from celosia.generators.lower.plan import MOST_ROWS
from celosia.generators.lower.planner import plan
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.staging import least_size
from celosia.generators.lower.text_program import text_program, text_trial
from celosia.generators.program.image import LONGEST_ROW

PIECES = (LONGEST_ROW, LONGEST_ROW * 3 // 4)
"""Most bytes of a piece of streamed weights."""


def skips_zeros(config: Config) -> bool:
    """Return whether a machine can skip multiplications by the zeros in a decoder's weights.

    The machine needs the zero-skip unit (``sparse_lanes``), and weights that each run loads.
    """
    return config.sparse_lanes > 0 and config.array.weight_depth <= RING_SLOTS


def check_sparse(config: Config) -> None:
    """Raise :class:`InputError` if a machine cannot skip zero weights of a decoder.

    The machine needs the zero-skip unit (``sparse_lanes``) and an array with at most two weight
    slots (``weight_depth``), so that each run loads all weights. The message names the field to
    change.
    """
    if not config.sparse_lanes:
        raise InputError(f"Skipping zero weights needs sparse_lanes, which {config.name} lacks")
    if config.array.weight_depth > RING_SLOTS:
        raise InputError(
            f"Skipping zero weights needs weights that come from external memory, but weight_depth "
            f"is {config.array.weight_depth}"
        )


def compile_text(
    decoder: Decoder,
    config: Config,
    *,
    context: int,
    sinks: int = 0,
    rows: int = MOST_ROWS,
    memory_bytes: int | None = None,
    sparse: bool = False,
    recompute: bool = False,
    texts: int = 1,
    search: bool = True,
) -> Artefact:
    """Return a decoder's compiled programs: for setup, and to process tokens.

    - ``context``: most tokens in the KV cache. The first ``sinks`` tokens always stay there.
    - ``rows``: most prompt tokens in a run.
    - ``texts``: number of texts in a run, 1 or 2.
    - ``memory_bytes``: size of external memory.

    Other arguments are fields of :class:`celosia.generators.lower.options.Options`. Raises
    :class:`FitError` if the model does not fit, and :class:`InputError` for wrong arguments.
    """
    cache = Cache(context, sinks, recompute)

    data = decoder, cache, rows, memory_bytes
    compiled = partial(_compile_fitting, *data, sparse=sparse, texts=texts, search=search)
    with prepare_remedy(config, compiled):
        return compiled(config)


def _compile_fitting(
    decoder: Decoder,
    cache: Cache,
    rows: int,
    memory_bytes: int | None,
    config: Config,
    *,
    sparse: bool,
    texts: int,
    search: bool,
) -> Artefact:
    """Return the programs with as many tokens at once as fit, at most ``rows``."""
    if sparse:
        check_sparse(config)
    decoder = checked_graph(decoder, config, cache, rows=rows, texts=texts)
    name = decoder.description.name
    limit = 1 << config.memory.addr_width if memory_bytes is None else memory_bytes
    if limit < least_size(config):
        raise InputError(
            f"Model {name} comes to the chip in pieces of {least_size(config)} bytes, but external "
            f"memory has {limit}"
        )

    def compiled(placement: DataPlacement) -> Artefact:
        """Return the programs that take the fewest cycles, with pieces of weights of some sizes."""
        alone = placement.passing or config.array.weight_depth > RING_SLOTS or not search

        made = partial(plan, decoder, config, cache, placement, sparse=sparse, texts=texts)
        pieces = [min(limit, most) for most in PIECES[: 1 if alone else None]]
        best = fastest(lambda most: text_trial(made(most)), pieces)
        program = text_program(settle(best) if search else best, limit)
        if program.memory_bytes <= limit:
            return program
        needed = program.memory_bytes
        text = f"Model {name} needs {needed} bytes of external memory, but it has {limit}"
        raise FitError(text, reason=Reason.OUTSIDE, excess=needed)

    placements = data_placements(decoder, config, cache, rows, texts)
    series = [
        [placement, replace(placement, rows=1)] if placement.rows > 1 else [placement]
        for placement in placements
    ]
    refused, outside = list[FitError](), list[FitError]()

    def skips_smaller(placement: DataPlacement, error: FitError) -> bool:
        # A placement that does not decide counts only behind one that fits the machine.
        if placement.decides or (outside and error.reason == Reason.OUTSIDE):
            (outside if error.reason == Reason.OUTSIDE else refused).append(error)
        # Shorter chunks have shorter programs.
        return error.reason != Reason.TOO_LONG

    program = first_fit(series, compiled, skips_smaller)
    if program is not None:
        return program
    if outside:
        # No change of the configuration helps.
        raise InputError(str(min(outside, key=lambda error: error.excess)))
    raise refused[-1]


def data_placements(
    decoder: Decoder, config: Config, cache: Cache, rows: int, texts: int
) -> list[DataPlacement]:
    """Return the possible placements of a decoder's data in memories, the preferred one first.

    A run has at most ``rows`` prompt tokens, and fewer if the KV cache or the accumulators are too
    small. A run has one token in these cases: several texts, normalized heads, an encoder-decoder,
    or a machine with ``row_factors``.
    """
    alone = decoder.source is not None or decoder.description.head_norms
    if alone or texts > 1 or config.row_factors:
        # An answer begins with one token, as several texts do; a chunk's last row is any, and the
        # rows of its heads are no number that the host writes.
        rows = 1
    rows = min(rows, cache.capacity)
    alone, placements = decoder.source is None, list[DataPlacement]()
    if config.array.weight_depth > RING_SLOTS:
        # If there are too few slots for each key head alone, slots hold several.
        for heads in dict.fromkeys((1, most_key_heads(decoder, config))):
            most = min(rows, _most_rows(decoder, config, cache, heads))
            placements += [
                DataPlacement(most, stay, key_heads=heads, decides=stay) for stay in (True, False)
            ]
    else:
        rows = min(rows, _most_rows(decoder, config, cache, 1))
        placements.append(DataPlacement(rows, rows_stay=False))
        placements += [DataPlacement(rows, rows_stay=True, decides=False)] if alone else []
        placements += (
            [DataPlacement(rows, rows_stay=False, passing=True)] if alone and texts == 1 else []
        )
    return placements


def _most_rows(decoder: Decoder, config: Config, cache: Cache, key_heads: int) -> int:
    """Return the most tokens of a chunk that fit the accumulators, at least 1.

    Slots have the keys of ``key_heads`` heads.
    """
    model = decoder.description
    rotated = query_starts(decoder, key_heads)[-1] + model.kv_heads * decoder.key_dim
    widths = [rotated, model.kv_width, 2 * model.ffn, model.dim, 2 * cache.capacity]
    widths += [model.kv_heads * decoder.key_dim, 2 * model.head_dim]
    linears = [op for op in (*decoder.layers[0], *decoder.after) if isinstance(op, Linear)]
    widths += [op.low_rank.first.target.columns for op in linears if op.low_rank is not None]
    tiles = sum(-(-width // config.array.cols) + 1 for width in widths)
    head = 2 * -(-model.vocabulary // config.array.cols)
    return max(1, (config.accumulators.depth - min(head, 64)) // tiles)
