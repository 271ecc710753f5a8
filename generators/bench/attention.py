"""Attention as a program that keeps all of its operands in the scratchpad."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arch.attention import cut
from arch.config import Config
from arch.errors import InputError
from arch.instruction import Instruction, pack
from arch.isa import Engine, Opcode
from generators.bench.attention_problem import AttentionProblem, Window
from generators.program.layout import param_words, rows_image
from sim.requantize import quantize_multiplier

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

VECTOR_OVERHEAD = 160
"""Cycles that the vector engine's three commands of a step take beside their elements, about."""
PARAMS = 4
"""Parameter words: for scores, weights, output, and the output's last requantization."""
CONTEXT_STEPS = 128
"""Steps of the 16-bit output to one of the values, whose difference is at most 255."""


def weight_zero(config: Config) -> int:
    """Return the zero point of the weights, which are from 0 to 1 in as many steps as there are."""
    return config.operand_min if config.zero_points else 0


def weight_steps(config: Config) -> int:
    """Return the steps from a weight of 0 to one of 1."""
    return config.operand_max - weight_zero(config)


def parameters(problem: AttentionProblem, config: Config, *, wide: bool) -> Bytes:
    """Return the parameter words: for scores, weights, output, and what makes INT8 of INT16."""
    output = CONTEXT_STEPS if wide else problem.output_scale
    scales = (
        problem.score_scale * 256,
        weight_steps(config) / (1 << 24),
        output / weight_steps(config),
        problem.output_scale / CONTEXT_STEPS,
    )
    pairs = [quantize_multiplier(scale) for scale in scales for _ in range(config.lanes)]
    multiplier = np.array([multiplier for multiplier, _ in pairs], np.int64)
    shift = np.array([shift for _, shift in pairs], np.int64)
    return param_words(np.zeros_like(shift), multiplier, shift, config, by_tile=False)


@dataclass
class Banks:
    """Places tensors in the scratchpad, each inside one bank."""

    config: Config
    used: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with empty banks."""
        self.used = [0] * self.config.scratchpad_banks

    @property
    def total(self) -> int:
        """Bytes that are taken."""
        return int(sum(self.used))

    def place(self, name: str, size: int, *preferred: int) -> int:
        """Return an address in the first preferred bank that has room, or else in any.

        A machine with fewer banks takes their numbers modulo what it has.

        Raises :class:`InputError` where no bank has room.
        """
        banks, line = self.config.scratchpad_banks, self.config.line_bytes
        taken = -(-size // line) * line
        for bank in [*(number % banks for number in preferred), *range(banks)]:
            if self.used[bank] + taken <= self.config.bank_bytes:
                addr = bank * self.config.bank_bytes + self.used[bank]
                self.used[bank] += taken
                return int(addr)
        raise InputError(
            f"Tensor {name} of {size} bytes does not fit a scratchpad bank of "
            f"{self.config.bank_bytes} bytes beside the others"
        )


def step_height(config: Config, head_dim: int, keys: int) -> int:
    """Return the query rows of a step over so many keys.

    A multiple of the rows that hide the loading of a tile's weights; the least whose products, at
    full rate, take as long as the vector engine's work on the step, because small steps leave
    little to do at the end, and masks are cut step by step. Where the vector engine is slower at
    any height, it is the least for which its overhead is a tenth.
    """
    grain = max(config.rows, config.cols)
    array = -(-head_dim // config.rows) * -(-keys // config.cols)
    array += -(-keys // config.rows) * -(-head_dim // config.cols)
    vector = 2 * -(-keys // config.lanes) + -(-head_dim // config.lanes)
    spare = array - vector if array > vector else vector / 10
    return grain * max(1, -(-VECTOR_OVERHEAD // int(max(1, spare * grain))))


@dataclass(frozen=True, kw_only=True)
class Working:
    """What an ATTENTION needs beside its operands: score buffers, accumulators, steps."""

    height: int
    p_addr: int
    p_stride: int
    p_buffer: int
    v_acc_addr: int
    acc_buffer: int

    @property
    def operands(self) -> dict[str, int]:
        """The operands that say so."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def place_working(banks: Banks, head_dim: int, rows: int, keys: int) -> Working:
    """Place the score buffers, each in a bank of its own, and divide the accumulators.

    Raises :class:`InputError` where they do not fit.
    """
    config = banks.config
    if keys > config.max_row:
        raise InputError(f"Rows of {keys} scores are longer than max_row = {config.max_row}")
    grain = max(config.rows, config.cols)
    height = min(rows, step_height(config, head_dim, keys))
    tiles = -(-keys // config.cols) + -(-head_dim // config.cols)
    while height > grain and 2 * height * tiles > config.acc_depth:
        height = (height - 1) // grain * grain
    if 2 * height * tiles > config.acc_depth:
        raise InputError(
            f"Steps of {height} rows of {keys} scores need {2 * height * tiles} accumulator rows, "
            f"but acc_depth is {config.acc_depth}"
        )
    first = banks.place("scores", 2 * height * keys, 2)
    second = banks.place("scores", 2 * height * keys, 3)
    return Working(
        height=height,
        p_addr=first,
        p_stride=2 * keys,
        p_buffer=second - first,
        v_acc_addr=height * -(-keys // config.cols),
        acc_buffer=height * tiles,
    )


@dataclass(frozen=True)
class AttentionProgram:
    """A program in up to three runs: load the operands, compute, store the result."""

    words: list[int]
    starts: tuple[int, ...]
    """Where each run begins."""
    counted: int
    """The run that is measured."""
    image: bytes
    """External memory before the run, from address 0."""
    result_addr: int
    result_stride: int
    """Bytes from row to row of the result, head by head."""
    rows: int
    """Rows of the result to a head, of which the first ``seq`` count."""
    scratchpad_bytes: int
    acc_rows: int
    running_rows: int
    height: int
    key_chunk: int
    query_block: int
    streamed: bool

    def result(self, problem: AttentionProblem, read: bytes) -> Ints:
        """Return the output [heads, seq, head_dim] from the bytes at ``result_addr``."""
        heads, seq, dim = problem.q.shape
        rows = np.frombuffer(read, np.int8).reshape(-1, self.result_stride)
        if self.streamed:
            found = rows.reshape(heads, self.rows, self.result_stride)[:, :seq, :dim]
        else:
            found = rows[:, : heads * dim].reshape(seq, heads, dim).transpose(1, 0, 2)
        return found.astype(np.int64)

    def result_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of the stored result."""
        return self.rows * self.result_stride * (problem.heads if self.streamed else 1)


def steps_of(window: Window, height: int) -> Iterator[tuple[int, int, int]]:
    """Yield first row, rows and keys of the steps of a window; none of rows that see no key."""
    for first in range(0, window.rows, height):
        rows = min(height, window.rows - first)
        last = first + rows - 1
        starts = window.start + first * window.start_step, window.start + last * window.start_step
        limits = window.limit + first * window.limit_step, window.limit + last * window.limit_step
        _, keys = cut(starts, limits, window.keys)
        if max(min(starts), 0) < min(max(limits), window.keys):
            yield window.row + first, rows, keys


def zeros(problem: AttentionProblem, config: Config) -> dict[str, int]:
    """Return the zero points of an ATTENTION."""
    found = {f"{name}_zero": int(getattr(problem, f"{name}_zero")) for name in "qkvo"}
    return found | {"p_zero": weight_zero(config)}


def _pieces(
    window: Window, problem: AttentionProblem, height: int, config: Config
) -> Iterator[dict[str, int]]:
    """Yield the heads, rows and running rows of the ATTENTIONs of a window.

    Running rows are needed only until a step's output is drained, so that heads of two steps or
    more may all take the same.
    """
    most = config.running_rows // height * height or config.running_rows
    for offset in range(0, window.rows, most):
        rows = min(most, window.rows - offset)
        batch, row_head = problem.heads, 0
        if rows <= height or problem.heads * rows <= config.running_rows:
            row_head = rows
            batch = min(batch, config.running_rows // rows)
            batch = batch // problem.group * problem.group or 1
        for head in range(0, problem.heads, batch):
            heads = min(batch, problem.heads - head)
            yield {
                "offset": offset,
                "head": head,
                "heads": heads,
                "group": min(problem.group, batch),
                "m": rows,
                "k": problem.head_dim,
                "n": window.keys,
                "row_head": row_head,
                "start": window.start + offset * window.start_step,
                "start_step": window.start_step,
                "limit": window.limit + offset * window.limit_step,
                "limit_step": window.limit_step,
            }


def _beside(tensor: Ints) -> Bytes:
    """Return [heads, seq, head_dim] as rows with the heads side by side."""
    heads, seq, dim = tensor.shape
    return tensor.transpose(1, 0, 2).reshape(seq, heads * dim).astype(np.int8).view(np.uint8)


def check_length(words: Sequence[int], config: Config) -> None:
    """Refuse a program that does not fit the program memory.

    Raises :class:`InputError` where it does not.
    """
    if len(words) > config.program_depth:
        raise InputError(
            f"The attention needs a program of {len(words)} words, but program_depth is "
            f"{config.program_depth}"
        )


def compile_resident(problem: AttentionProblem, config: Config) -> AttentionProgram:
    """Return a program whose operands and result all lie in the scratchpad.

    Queries, keys, values and output are [seq, heads * head_dim]: heads side by side, as
    projections make them. The output is INT8 at once.

    Raises :class:`InputError` where they do not fit the configuration.
    """
    banks = Banks(config)
    heads, seq, dim = problem.q.shape
    key_heads = heads // problem.group
    q_addr = banks.place("Q", heads * seq * dim, 0)
    k_addr = banks.place("K", key_heads * seq * dim, 1)
    v_addr = banks.place("V", key_heads * seq * dim, 1, 0)
    params = parameters(problem, config, wide=False)
    longest = max(window.keys for window in problem.windows)
    widest = max(window.rows for window in problem.windows)
    working = place_working(banks, dim, widest, longest)
    o_addr = banks.place("O", heads * seq * dim, 2, 3)
    params_addr = banks.place("parameters", params.size, 3)

    image = bytearray()
    load: list[Instruction] = []
    for data, addr in (
        (_beside(problem.q), q_addr),
        (_beside(problem.k), k_addr),
        (_beside(problem.v), v_addr),
        (params, params_addr),
    ):
        data_bytes, stride = rows_image(data, config)
        operands = {"dram_addr": len(image), "dram_stride": stride, "sp_addr": addr}
        operands |= {"sp_stride": data.shape[1], "m": data.shape[0], "row_bytes": data.shape[1]}
        push = frozenset({Engine.VECTOR}) if addr == params_addr else frozenset[Engine]()
        load.append(Instruction(Opcode.LOAD, operands, push=push))
        image += data_bytes
    load.append(
        Instruction(
            Opcode.PARAMS,
            {"i_addr": params_addr, "n": len(params)},
            pop=frozenset({Engine.LOAD}),
        )
    )
    compute: list[Instruction] = []
    running = 0
    for window in problem.windows:
        places = {
            "q_addr": q_addr + window.row * heads * dim,
            "k_addr": k_addr + window.key * key_heads * dim,
            "v_addr": v_addr + window.key * key_heads * dim,
            "o_addr": o_addr + window.row * heads * dim,
        }
        strides = {"q_stride": heads * dim, "o_stride": heads * dim}
        strides |= {"k_stride": key_heads * dim, "v_stride": key_heads * dim}
        strides |= {f"{name}_head": dim for name in "qkvo"}
        for piece in _pieces(window, problem, working.height, config):
            head, row = piece.pop("head"), piece.pop("offset")
            operands = places | strides | working.operands | zeros(problem, config) | piece
            operands["q_addr"] += row * heads * dim + head * dim
            operands["o_addr"] += row * heads * dim + head * dim
            operands["k_addr"] += head // problem.group * dim
            operands["v_addr"] += head // problem.group * dim
            compute.append(Instruction(Opcode.ATTENTION, operands, frozenset({"first"})))
            running = max(running, (piece["heads"] - 1) * piece["row_head"] + piece["m"])
    stride = -(-heads * dim // config.mem_bytes) * config.mem_bytes
    operands = {"dram_addr": len(image), "dram_stride": stride, "sp_addr": o_addr}
    operands |= {"sp_stride": heads * dim, "m": seq, "row_bytes": heads * dim}
    store = Instruction(Opcode.STORE, operands)
    halt = Instruction(Opcode.HALT)
    parts = [pack([*load, halt]), pack([*compute, halt]), pack([store, halt])]
    words = [word for part in parts for word in part]
    check_length(words, config)
    return AttentionProgram(
        words=words,
        starts=(0, len(parts[0]), len(parts[0]) + len(parts[1])),
        counted=1,
        image=bytes(image),
        result_addr=len(image),
        result_stride=stride,
        rows=seq,
        scratchpad_bytes=banks.total,
        acc_rows=2 * working.acc_buffer,
        running_rows=running,
        height=working.height,
        key_chunk=longest,
        query_block=widest,
        streamed=False,
    )
