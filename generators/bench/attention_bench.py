"""Random attention, run on a machine, compared and measured."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.isa import Opcode
from generators.bench.attention import (
    AttentionProgram,
    compile_resident,
    steps_of,
    weight_steps,
    weight_zero,
)
from generators.bench.attention_problem import MASKS, AttentionProblem
from generators.bench.attention_stream import compile_streamed
from generators.bench.gemm_bench import Machine, check_operands
from sim.flow import Step
from sim.interpreter import Interpreter
from sim.report import Report
from sim.requantize import quantize_multiplier, requantize

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SCORE_OCTAVES = 2.0
"""Standard deviation of random scores (octaves)."""


def random_attention(
    config: Config,
    rng: np.random.Generator,
    *,
    seq: int,
    head_dim: int,
    heads: int,
    kv_heads: int | None = None,
    mask: str = "none",
    span: int | None = None,
) -> AttentionProblem:
    """Return attention of random operands over their whole range.

    ``kv_heads`` are as many as ``heads`` if not given. ``span`` is :func:`windows`'s; without it
    a window or a block is a quarter of the sequence, and a quarter of the keys is padding.

    Raises :class:`InputError` where a size is not positive, the heads cannot be grouped, the mask
    is unknown or the span not from 1 to ``seq``.
    """
    key_heads = heads if kv_heads is None else kv_heads
    for name, size in (
        ("seq", seq),
        ("head_dim", head_dim),
        ("heads", heads),
        ("kv_heads", key_heads),
    ):
        if size < 1:
            raise InputError(f"Size {name} of attention must be positive, not {size}")
    check_operands(config, (heads + 2 * key_heads) * seq * head_dim)
    if heads % key_heads:
        raise InputError(f"Attention of {heads} heads cannot share {key_heads} key heads")
    if mask not in MASKS:
        raise InputError(f"Unknown mask {mask!r}; known are {', '.join(MASKS)}")
    if span is None:
        span = max(1, seq - seq // 4 if mask == "padding" else -(-seq // 4))
    if not 1 <= span <= seq:
        raise InputError(f"Span of a mask must be from 1 to seq = {seq}, not {span}")
    low, high = config.operand_min, config.operand_max + 1
    zeros = [int(rng.integers(low, high)) if config.zero_points else 0 for _ in range(4)]
    q, k, v = (
        rng.integers(low, high, (count, seq, head_dim)) for count in (heads, key_heads, key_heads)
    )
    # The spread of a sum of products of two uniform operands, each about its own mean.
    spread = float(high * high) / 3 * np.sqrt(head_dim)
    return AttentionProblem(
        q=q,
        k=k,
        v=v,
        q_zero=zeros[0],
        k_zero=zeros[1],
        v_zero=zeros[2],
        o_zero=zeros[3],
        score_scale=SCORE_OCTAVES / spread,
        output_scale=0.5,
        mask=mask,
        span=span,
    )


def visible(problem: AttentionProblem) -> NDArray[np.bool_]:
    """Return which query sees which key, [seq, seq]."""
    row, key = np.arange(problem.seq)[:, None], np.arange(problem.seq)[None, :]
    seen = np.ones((problem.seq, problem.seq), np.bool_)
    if problem.mask in ("causal", "window"):
        seen &= key <= row
    if problem.mask == "window":
        seen &= key > row - problem.span
    if problem.mask == "padding":
        seen &= key < problem.span
    if problem.mask == "block":
        seen &= key // problem.span == row // problem.span
    return seen


def exact_output(problem: AttentionProblem) -> Floats:
    """Return the output [heads, seq, head_dim] before rounding, by float64 softmax.

    Scores are the machine's integers; all else is exact.
    """
    mask = visible(problem)
    multiplier, shift = quantize_multiplier(problem.score_scale * 256)
    output = np.zeros(problem.q.shape)
    for head in range(problem.heads):
        q = (problem.q[head] - problem.q_zero).astype(np.float64)  # [seq, head_dim]
        k = (problem.k[head // problem.group] - problem.k_zero).astype(np.float64)
        v = (problem.v[head // problem.group] - problem.v_zero).astype(np.float64)
        sums = (q @ k.T).astype(np.int64)  # [seq, seq], exact
        scores = requantize(sums, 0, multiplier, shift, 0, -32768, 32767).astype(np.float64)
        scores = np.where(mask, scores, -np.inf)
        weights = np.exp2((scores - scores.max(axis=1, keepdims=True)) / 256)
        output[head] = weights @ v / weights.sum(axis=1, keepdims=True) * problem.output_scale
    return output + problem.o_zero


def useful_products(problem: AttentionProblem, program: AttentionProgram) -> int:
    """Return the products of the array's tiles in which some query sees some key.

    A step counts with the keys from the first to the last that any of its rows sees.
    """
    keys = sum(
        rows * count
        for window in problem.windows
        for _, rows, count in steps_of(window, program.height)
    )
    return 2 * problem.heads * problem.head_dim * keys


class WeightError:
    """Follows the golden machine, and finds the largest error of a weight, in its last bit.

    The exact weight is ``2**(score - largest so far)`` of the same integer scores, by float64.
    """

    def __init__(self, config: Config):
        self.largest = np.zeros(config.running_rows)
        self.error = 0.0
        self._zero, self._steps = weight_zero(config), weight_steps(config)
        self._scores: dict[int, Ints] = {}

    def on_step(self, step: Step, machine: Interpreter) -> None:
        """Look at a step that has run."""
        if step.opcode == Opcode.DRAIN and "running" not in step.flags:
            self._scores[step["o_addr"]] = machine.read_rows(step, "o", wide=True)
        if step.opcode != Opcode.SOFTMAX:
            return
        scores = self._scores.pop(step["o_addr"]).astype(np.float64)
        found = machine.read_rows(step, "o", wide=False) - self._zero
        row, column = np.arange(step["m"])[:, None], np.arange(step["n"])[None, :]
        keep = column >= step["start"] + row * step["start_step"]
        keep &= column < step["limit"] + row * step["limit_step"]
        scores = np.where(keep, scores, -np.inf)
        running = slice(step["row"], step["row"] + step["m"])
        before = -32768.0 if "first" in step.flags else self.largest[running]
        self.largest[running] = np.maximum(scores.max(axis=1), before)
        exact = np.exp2((scores - self.largest[running, None]) / 256) * self._steps
        self.error = max(self.error, float(np.abs(found - exact).max()))


def compile_attention(
    problem: AttentionProblem, config: Config, *, stream: bool | None = None
) -> AttentionProgram:
    """Return a program: with operands in the scratchpad if they fit, or else streamed.

    Raises :class:`InputError` where the configuration has no ATTENTION, or neither fits.
    """
    for unit in ("attention", "b_transpose"):
        if not getattr(config, unit):
            raise InputError(f"Attention needs the unit {unit}, which {config.name} lacks")
    if not stream:
        try:
            return compile_resident(problem, config)
        except InputError:
            if stream is False:
                raise
    return compile_streamed(problem, config)


def run_attention(
    problem: AttentionProblem, program: AttentionProgram, machine: Machine
) -> tuple[Ints, Report]:
    """Return the output [heads, seq, head_dim] of a machine, and the report of what counts."""
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    reports = [machine.start(start) for start in program.starts]
    read = machine.read_memory(program.result_addr, program.result_bytes(problem))
    return program.result(problem, read), reports[program.counted]


def bench_attention(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    seq: int,
    head_dim: int,
    heads: int,
    kv_heads: int | None = None,
    mask: str = "none",
    span: int | None = None,
    stream: bool | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Run random attention and return its figures.

    Where everything fits the scratchpad, operands are there before the count begins, and the
    count ends when the INT8 output is there; otherwise the count is from the first load to the
    last store. ``ideal_cycles`` is the useful products over the elements, ``utilization`` their
    share in ``cycles``; a product is useful in a tile in which some query sees some key.
    ``mismatches`` counts outputs that differ from the golden machine's, and is None where that is
    the machine; ``max_lsb`` is the largest error of a weight against float64, ``output_max_lsb``
    that of the output.

    Raises :class:`InputError` where the attention does not fit the configuration.
    """
    problem = random_attention(
        config,
        np.random.default_rng(seed),
        seq=seq,
        head_dim=head_dim,
        heads=heads,
        kv_heads=kv_heads,
        mask=mask,
        span=span,
    )
    program = compile_attention(problem, config, stream=stream)
    memory = program.result_addr + program.result_bytes(problem)
    machine = make_machine(config, memory)
    golden = machine if isinstance(machine, Interpreter) else Interpreter(config)
    errors = WeightError(config)
    golden.on_step = errors.on_step
    expected, report = run_attention(problem, program, golden)
    mismatches = None
    if machine is not golden:
        found, report = run_attention(problem, program, machine)
        mismatches = int(np.count_nonzero(found != expected))
    exact = np.clip(exact_output(problem), config.operand_min, config.operand_max)
    useful = useful_products(problem, program)
    return {
        "config": config.name,
        "seq": seq,
        "head_dim": head_dim,
        "heads": heads,
        "kv_heads": heads // problem.group,
        "mask": mask,
        "span": problem.span,
        "seed": seed,
        "streamed": program.streamed,
        "height": program.height,
        "key_chunk": program.key_chunk,
        "query_block": program.query_block,
        "scratchpad_bytes": program.scratchpad_bytes,
        "acc_rows": program.acc_rows,
        "running_rows": program.running_rows,
        "cycles": report.cycles,
        "ideal_cycles": -(-useful // config.elements),
        "utilization": useful / (config.elements * report.cycles) if report.cycles else None,
        "mismatches": mismatches,
        "max_lsb": errors.error,
        "output_max_lsb": float(np.abs(expected - exact).max()),
        "counters": report.counters,
    }
