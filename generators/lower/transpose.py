"""Keys transposed by a product with one, where the array has no path for columns of B."""

from arch.isa import Opcode
from generators.graph import Attention
from generators.lower.blocks import Blocks, column_parts, cut, even, parts
from generators.lower.instructions import View, product, requantize
from generators.lower.lowering import Lowering
from generators.program.draft import Node, Ref, Written


def transposed(lowering: Lowering, op: Attention) -> Blocks:
    """Return the blocks of the transposed keys, [kv_heads * head_dim, sequence]."""
    # As many rows in a block as the keys have columns there: blocks of whole heads.
    step = lowering.blocks[op.key.buffer].column_step
    blocks = Blocks("key_transposed", op.key.columns, op.key.rows, 1, step, op.key.rows)
    lowering.sizes |= blocks.sizes()
    return blocks


def transpose(
    lowering: Lowering, op: Attention, keys: Blocks, identity: Ref, word: int
) -> list[Node]:
    """Write the transposed keys as a product with one."""
    config, key = lowering.config, op.key
    source = lowering.blocks[key.buffer]
    height = lowering.height(key.columns)
    tiles = lowering.tiles(height)
    rows = [
        (first + begin, m)
        for first, count in cut(key.columns, source.column_marks)
        for begin, m in parts(count, even(count, height))
    ]
    nodes: list[Node] = []
    for row, m in rows:
        for column, count in column_parts(key.rows, config.cols, tiles):
            acc = lowering.acc(m * -(-count // config.cols))
            n = lowering.run_rows(column, count, key.rows)
            sums, target = View(acc, m), keys.view(row, column)
            one = View(Ref(identity.buffer, identity.offset + column), key.rows)
            k = lowering.run_rows(0, key.rows, key.rows)
            taken, zero = source.view(0, row), key.zero
            nodes.append(product(taken, one, sums, m, k, n, "a_transpose", a_zero=zero))
            written = Written(f"{key.name}_transposed", row, m, column, count)
            defines = lowering.defines(target)
            nodes.append(
                requantize(
                    Opcode.DRAIN,
                    sums,
                    target,
                    m,
                    n,
                    word,
                    written,
                    "per_tensor",
                    zero=zero,
                    defines=defines,
                )
            )
    return nodes
