"""Instructions of attention in a decoder's program."""

from collections.abc import Sequence
from functools import partial
from itertools import chain

from celosia.generators.graph.operations import Attention, Linear
from celosia.generators.lower.attention import pipeline
from celosia.generators.lower.blocks import Part
from celosia.generators.lower.cached import Cached
from celosia.generators.lower.instructions import View
from celosia.generators.lower.projections import Instructions
from celosia.generators.lower.token_attention import TokenAttention
from celosia.generators.lower.walk import Product, Rowwise
from celosia.generators.program.draft import Ref


def keep_source(make: Instructions, key: Linear, value: Linear) -> None:
    """Append instructions that write a source text's keys and values for one layer to the KV cache.

    ``make`` collects the instructions of an encoder-decoder's encoder. ``key`` and ``value`` are
    the linear layers that compute the keys and values of one decoder layer.
    """
    cached = Cached(make, make.plan.kept[key.target.name][0])
    for projection in (key, value):
        make.linear(projection)
    make.drain(key, cached.target("keys"))
    cached.append_keys()
    make.drain(value, cached.target("values"))
    cached.append_values()


def attend(make: Instructions, op: Attention, waiting: Sequence[Product]) -> None:
    """Append the instructions of one attention to a decoder's program.

    ``waiting`` has the linear layers of queries, keys and values, each with the rowwise operations
    after it. Their instructions are appended too. If the program has the option ``recompute``, it
    computes the keys and values of all tokens in each run.
    """
    texts = [TokenAttention(make, op, text) for text in range(make.texts)]
    made = {(linear, *behind)[-1].target.name: (linear, behind) for linear, behind in waiting}
    own = op.key.name in made
    for attended in texts:
        attended.cached.recall()
    anew, own = own and texts[0].kept.made, own and not texts[0].kept.made
    # Keys and queries of one text are multiplied beside the norm of the next text's row.
    stride = make.plan.query_stride(op)
    keys, values = ([text.cached.target(name) for text in texts] for name in ("keys", "values"))
    for rows in make.apart:
        for tensor in (op.key, op.query) if own else (op.query,):
            linear, _ = made[tensor.name]
            for tiles in make.plan.cuts.query_parts if tensor is op.query else (None,):
                within = tiles and make.plan.matrices[linear.target.name].layer_tiles(*tiles)
                make.linear(linear, tiles=within, rows=rows)
        if own and sum(rows) == make.rows:
            make.linear(made[op.value.name][0])
        if anew:
            Cached(make, texts[0].kept).remember()
        if own:
            spaced = make.plan.cuts.spaced and op.key.element * make.config.array.cols
            _drain(make, *made[op.key.name], keys, rows, spaced=spaced)
            if len(texts) == 1:
                texts[0].cached.append_keys()
        for tiles in make.plan.cuts.query_parts:
            column = make.plan.cuts.query_starts[0] + tiles[0] * make.config.array.cols
            places = (column * op.query.element + place * stride for place in range(make.texts))
            targets = [View(Ref("query", place), stride) for place in places]
            spaced = make.plan.cuts.spaced and stride // len(op.heads)
            _drain(make, *made[op.query.name], targets, rows, spaced=spaced, tiles=tiles)
    drain = None
    if own:
        drain = partial(_drain, make, *made[op.value.name], values, make.whole)
        if not texts[0].ahead:
            drain()
        if len(texts) > 1:
            # The queues have no room for all of these before the drains of the queries.
            texts[0].cached.append_keys()
        for attended in texts:
            attended.cached.keep()
    if anew:
        texts[0].make_all("keys", *made[op.key.name])
        texts[0].cached.append_keys()
        texts[0].make_all("values", *made[op.value.name])
    steps = [
        text.chunk_steps() if text.rows > 1 else text.token_steps(drain if text.ahead else None)
        for text in texts
    ]
    # Of all texts the first steps, then the next ones.
    probabilities, *behind = ([*chain(*each)] for each in zip(*steps, strict=True))
    for draft in pipeline(probabilities, [*chain(*behind)]):
        make.stage.add(draft)


def _drain(
    make: Instructions,
    op: Linear,
    behind: Sequence[Rowwise],
    targets: Sequence[View],
    rows: Part,
    *,
    spaced: int = 0,
    tiles: Part | None = None,
) -> None:
    """Add the requantization of a product whose rows belong to texts with separate targets.

    ``rows`` (first, count) are all rows, or those of one text. It is one instruction if the targets
    of all rows are adjacent. Tile columns of its only row are ``spaced`` bytes apart, if this is
    not 0. ``tiles`` (first, count) restricts it to some tile columns.
    """
    if spaced:
        targets = [View(target.place, spaced) for target in targets]
    flags = ("spaced",) if spaced else ()
    if rows == make.whole and isinstance(targets[0].place, Ref):
        targets = targets[:1]
    count = make.rows // len(targets)
    for first, target in zip(range(0, make.rows, count), targets, strict=True):
        if rows in (make.whole, (first, count)):
            make.drain(op, target, *flags, rows=(first, count), tiles=tiles, behind=behind)
