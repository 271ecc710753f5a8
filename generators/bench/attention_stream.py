"""Attention over sequences of any length, keys and values coming from external memory in chunks.

A block of queries goes over its chunks of keys one after the other, by online softmax; then its
16-bit output becomes INT8 and is stored. Keys and values of the chunk that follows, of this block
or the next, are loaded while a chunk is computed, and so are the queries of the next block. So
there are two chunks and two blocks on the chip, however long the sequence is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arch.config import Config
from arch.errors import InputError
from arch.instruction import Instruction, Operand, pack
from arch.isa import Engine, Opcode
from generators.bench.attention import (
    PARAMS,
    AttentionProgram,
    Banks,
    Bytes,
    Ints,
    Working,
    check_length,
    parameters,
    place_working,
    zeros,
)
from generators.bench.attention_problem import AttentionProblem
from generators.program.layout import rows_image

CHUNK = 256
"""Keys of a chunk, if they fit: enough that the commands of a chunk are few (keys)."""
_LOAD, _MATRIX = frozenset({Engine.LOAD}), frozenset({Engine.MATRIX})
_VECTOR, _STORE = frozenset({Engine.VECTOR}), frozenset({Engine.STORE})
_BUFFER, _OTHER_BUFFER, _QUERIES, _OTHER_QUERIES = 1, 2, 3, 4
_SPARE, _BLOCK, _HEAD, _CHUNK, _WINDOW = 5, 6, 7, 8, 9
"""Registers: offsets of the buffers in use and the others, of the block's rows, the key head's keys
and the chunk to load in external memory; what the window has moved by."""


@dataclass(frozen=True)
class _Block:
    """Query rows, and the chunks of keys that they go over; the window is from ``key`` on."""

    rows: int
    key: int
    chunks: int
    start: int
    start_step: int
    limit: int
    limit_step: int


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Where everything is, on the chip and outside."""

    working: Working
    q: int
    k: int
    v: int
    wide: int
    narrow: int
    params: int
    chunk: int
    row_bytes: int
    """Bytes from row to row outside."""
    head_bytes: int
    """Bytes of a key head's keys outside."""
    outside: dict[str, int]


def _blocks(problem: AttentionProblem, rows: int, chunk: int) -> list[_Block]:
    """Return the blocks of one query head, at least two chunks each."""
    found = []
    for window in problem.windows:
        for first in range(0, window.rows, rows):
            count = min(rows, window.rows - first)
            start = window.start + first * window.start_step
            limit = window.limit + first * window.limit_step
            last = limit + (count - 1) * window.limit_step
            key = max(start, 0)
            chunks = -(-(min(max(limit, last), window.keys) - key) // chunk)
            found.append(
                _Block(
                    rows=count,
                    key=window.key + key,
                    chunks=max(2, chunks),
                    start=start - key,
                    start_step=window.start_step,
                    limit=min(limit, window.keys) - key if not window.limit_step else limit - key,
                    limit_step=window.limit_step,
                )
            )
    return found


def _place(
    problem: AttentionProblem, config: Config, rows: int, chunk: int
) -> tuple[Banks, dict[str, int], Working]:
    banks, dim = Banks(config), problem.head_dim
    places = {"q": banks.place("Q", 2 * rows * dim, 0)}
    places["k"] = banks.place("K", 2 * chunk * dim, 1)
    places["v"] = banks.place("V", 2 * chunk * dim, 1, 0)
    working = place_working(banks, dim, rows, chunk)
    places["wide"] = banks.place("16-bit O", 2 * rows * dim, 2, 3)
    places["narrow"] = banks.place("O", rows * dim, 3, 2)
    places["params"] = banks.place("parameters", PARAMS * config.param_lines * config.line_bytes, 3)
    return banks, places, working


def _fit(problem: AttentionProblem, config: Config) -> tuple[int, int]:
    """Return the rows of a block and the keys of a chunk: the longest chunk that fits, by halves.

    Raises :class:`InputError` where none fits.
    """
    grain = max(config.rows, config.cols)
    chunk = min(CHUNK, config.max_row, -(-problem.seq // 2))
    refused = ""
    while chunk >= min(grain, -(-problem.seq // 2)):
        rows = min(config.running_rows, problem.seq)
        while rows >= min(grain, problem.seq):
            try:
                _place(problem, config, rows, chunk)
            except InputError as error:
                refused = str(error)
                rows //= 2
                continue
            return rows, chunk
        chunk //= 2
    raise InputError(f"Attention of head_dim {problem.head_dim} does not fit: {refused}")


def compile_streamed(problem: AttentionProblem, config: Config) -> AttentionProgram:
    """Return a program whose operands and result lie in external memory.

    They are [heads, seq, head_dim] there. Blocks that all see the same keys are a loop, others
    follow each other.

    Raises :class:`InputError` where the program or its buffers do not fit the configuration.
    """
    rows, chunk = _fit(problem, config)
    banks, inside, working = _place(problem, config, rows, chunk)
    blocks = _blocks(problem, rows, chunk)
    deepest = max(block.key + block.chunks * chunk for block in blocks)
    keys = max(problem.seq, deepest)
    params = parameters(problem, config, wide=True)
    key_heads = int(problem.k.shape[0])

    image = bytearray()
    outside, row_bytes = {}, 0
    for name, tensor, padded in (
        ("q", problem.q, problem.seq),
        ("k", problem.k, keys),
        ("v", problem.v, keys),
    ):
        outside[name] = len(image)
        data, row_bytes = rows_image(_padded(tensor, padded), config)
        image += data
    image += bytes(chunk * row_bytes)  # the last load goes beyond the last head
    outside["params"] = len(image)
    data, params_stride = rows_image(params, config)
    image += data
    outside["o"] = len(image)
    places = _Places(
        working=working,
        chunk=chunk,
        row_bytes=row_bytes,
        head_bytes=keys * row_bytes,
        outside=outside,
        **inside,
    )
    program = _begin(problem, places, params, params_stride, rows, blocks[0])
    body = _head(problem, places, blocks * problem.group, config)
    if key_heads > 1:
        body = [
            Instruction(Opcode.LOOP, {"count": key_heads}),
            *body,
            Instruction(Opcode.ENDLOOP),
        ]
    program += body + _end(places, params, params_stride) + [Instruction(Opcode.HALT)]
    words = pack(program)
    check_length(words, config)
    return AttentionProgram(
        words=words,
        starts=(0,),
        counted=0,
        image=bytes(image),
        result_addr=outside["o"],
        result_stride=row_bytes,
        rows=problem.seq,
        scratchpad_bytes=banks.total,
        acc_rows=2 * working.acc_buffer,
        running_rows=rows,
        height=working.height,
        key_chunk=chunk,
        query_block=rows,
        streamed=True,
    )


def _padded(tensor: Ints, rows: int) -> Bytes:
    """Return [heads, seq, head_dim] as rows, zeros behind each head's."""
    heads, seq, dim = tensor.shape
    data = np.zeros((heads, rows, dim), np.int8)
    data[:, :seq] = tensor
    return data.reshape(heads * rows, dim).view(np.uint8)


def _set(register: int, value: int, other: int = 0) -> Instruction:
    return Instruction(Opcode.SET, {"register": register, "value": Operand(value, other)})


def _swap(one: int, other: int) -> list[Instruction]:
    return [_set(_SPARE, 0, one), _set(one, 0, other), _set(other, 0, _SPARE)]


def _move(
    places: _Places, dim: int, rows: int, outside: Operand, inside: Operand
) -> dict[str, int | Operand]:
    """Return the operands that move rows; one long row where they are dense on both sides."""
    operands: dict[str, int | Operand] = {"dram_addr": outside, "sp_addr": inside}
    if places.row_bytes == dim and rows * dim < 1 << 16:
        return operands | {"m": 1, "row_bytes": rows * dim}
    strides = {"dram_stride": places.row_bytes, "sp_stride": dim}
    return operands | strides | {"m": rows, "row_bytes": dim}


def _load_chunk(places: _Places, dim: int, buffer: int, *, wait: bool) -> list[Instruction]:
    """Load keys and values of the chunk at register _CHUNK, and go to the next."""
    loads = []
    for name in ("k", "v"):
        source = Operand(places.outside[name], _CHUNK)
        target = Operand(getattr(places, name), buffer)
        operands = _move(places, dim, places.chunk, source, target)
        pop = _VECTOR if wait and name == "k" else frozenset[Engine]()
        push = _MATRIX if name == "v" else frozenset[Engine]()
        loads.append(Instruction(Opcode.LOAD, operands, pop=pop, push=push))
    return [*loads, _set(_CHUNK, places.chunk * places.row_bytes, _CHUNK)]


def _load_queries(places: _Places, dim: int, rows: int, offset: int, buffer: int) -> Instruction:
    source = Operand(places.outside["q"] + offset, _BLOCK)
    return Instruction(Opcode.LOAD, _move(places, dim, rows, source, Operand(places.q, buffer)))


def _params_load(
    places: _Places, params: Bytes, stride: int, pop: frozenset[Engine], push: frozenset[Engine]
) -> Instruction:
    operands = {"dram_addr": places.outside["params"], "dram_stride": stride}
    operands |= {"sp_addr": places.params, "sp_stride": params.shape[1]}
    operands |= {"m": len(params), "row_bytes": params.shape[1]}
    return Instruction(Opcode.LOAD, operands, pop=pop, push=push)


def _begin(
    problem: AttentionProblem,
    places: _Places,
    params: Bytes,
    stride: int,
    rows: int,
    first: _Block,
) -> list[Instruction]:
    """Load parameters and the first operands; give the tokens that say that buffers are free."""
    dim = problem.head_dim
    row = _move(places, dim, 1, Operand(places.outside["o"]), Operand(places.narrow))
    sizes = {_OTHER_BUFFER: places.chunk * dim, _OTHER_QUERIES: rows * dim}
    return [
        _params_load(places, params, stride, frozenset(), _VECTOR),
        Instruction(
            Opcode.PARAMS, {"i_addr": places.params, "n": len(params)}, pop=_LOAD, push=_LOAD
        ),
        Instruction(Opcode.STORE, row, push=_VECTOR),
        *(_set(register, sizes.get(register, 0)) for register in range(1, _WINDOW + 1)),
        _load_queries(places, dim, first.rows, 0, _QUERIES),
        *_load_chunk(places, dim, _BUFFER, wait=False),
    ]


def _end(places: _Places, params: Bytes, stride: int) -> list[Instruction]:
    """Take the tokens of what was loaded for a block that does not come, and of the last store."""
    one = {"m": 1, "k": 1, "n": 1}
    return [
        _params_load(places, params, stride, _VECTOR, frozenset()),
        Instruction(
            Opcode.MATMUL, {"a_addr": places.q, "b_addr": places.q} | one, pop=_LOAD, push=_VECTOR
        ),
        Instruction(
            Opcode.DRAIN,
            {"o_addr": places.working.p_addr, "m": 1, "n": 1},
            frozenset({"per_tensor"}),
            _MATRIX | _STORE,
        ),
    ]


def _head(
    problem: AttentionProblem, places: _Places, blocks: Sequence[_Block], config: Config
) -> list[Instruction]:
    """Return the blocks of all query heads of a key head, then go to the next."""
    last = blocks[-1]
    next_head = places.head_bytes + blocks[0].key * places.row_bytes
    found = []
    if len(set(blocks)) == 1 and len(blocks) > 1:
        found += [
            Instruction(Opcode.LOOP, {"count": len(blocks) - 1}),
            *_block(problem, places, last, last, last.key * places.row_bytes, config),
            Instruction(Opcode.ENDLOOP),
        ]
    else:
        for block, after in pairwise(blocks):
            following = after.key * places.row_bytes
            found += _block(problem, places, block, after, following, config)
    found += _block(problem, places, last, blocks[0], next_head, config)
    return [*found, _set(_HEAD, places.head_bytes, _HEAD)]


def _block(
    problem: AttentionProblem,
    places: _Places,
    block: _Block,
    after: _Block,
    following: int,
    config: Config,
) -> list[Instruction]:
    """Return one block; ``following`` is where, in its head, the next one's keys begin."""
    dim = problem.head_dim
    row_bytes = block.rows * places.row_bytes
    # Queries are asked for behind the second chunk, so that they wait for no token.
    found = [_set(_WINDOW, 0), *_chunk(problem, places, block, config, first=True)]
    found.append(_load_queries(places, dim, after.rows, row_bytes, _OTHER_QUERIES))
    middle = _chunk(problem, places, block, config, first=False)
    if block.chunks > 3:
        loop = Instruction(Opcode.LOOP, {"count": block.chunks - 2})
        found += [loop, *middle, Instruction(Opcode.ENDLOOP)]
    elif block.chunks == 3:
        found += middle
    found += [_set(_CHUNK, following, _HEAD), *middle, *_swap(_QUERIES, _OTHER_QUERIES)]
    narrow = {"o_addr": places.narrow, "o_stride": dim, "o_zero": problem.o_zero}
    wide = {"i_addr": places.wide, "i_stride": 2 * dim, "m": block.rows, "n": dim}
    target = Operand(places.outside["o"], _BLOCK)
    return [
        *found,
        Instruction(
            Opcode.MAP,
            narrow | wide | {"params": PARAMS - 1},
            frozenset({"wide_in", "per_tensor"}),
            _STORE,
            _STORE,
        ),
        Instruction(
            Opcode.STORE,
            _move(places, dim, block.rows, target, Operand(places.narrow)),
            pop=_VECTOR,
            push=_VECTOR,
        ),
        _set(_BLOCK, row_bytes, _BLOCK),
    ]


def _chunk(
    problem: AttentionProblem, places: _Places, block: _Block, config: Config, *, first: bool
) -> list[Instruction]:
    """Return a chunk of a block, and the loading of the next one before it."""
    dim = problem.head_dim
    operands: dict[str, int | Operand] = {
        "q_addr": Operand(places.q, _QUERIES),
        "k_addr": Operand(places.k, _BUFFER),
        "v_addr": Operand(places.v, _BUFFER),
        "o_addr": places.wide,
        "o_stride": 2 * dim,
        "start": Operand(block.start, _WINDOW),
        "start_step": block.start_step,
        "limit": Operand(block.limit, _WINDOW),
        "limit_step": block.limit_step,
        "m": block.rows,
        "k": dim,
        "n": places.chunk,
        "heads": 1,
        "group": 1,
    }
    operands |= {f"{name}_stride": dim for name in "qkv"}
    operands |= places.working.operands | zeros(problem, config) | {"o_zero": 0}
    flags = {"wide_out", "first"} if first else {"wide_out"}
    return [
        *_load_chunk(places, dim, _OTHER_BUFFER, wait=True),
        Instruction(Opcode.ATTENTION, operands, frozenset(flags), _LOAD, _LOAD),
        *_swap(_BUFFER, _OTHER_BUFFER),
        _set(_WINDOW, -places.chunk, _WINDOW),
    ]
