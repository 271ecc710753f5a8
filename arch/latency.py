"""Latencies between units of the machine, in cycles, computed from its configuration.

Some circuits are built from these latencies. Others assert, when they are created, that their
latency equals the one computed here. Benches compare the latencies with simulated circuits. The
compiler predicts a program's cycles from them, without a simulation.
"""

from celosia.arch.access import Access
from celosia.arch.config import Config
from celosia.arch.datapath import Datapath
from celosia.arch.formats import EXPONENT_BITS, OPERAND_BITS
from celosia.arch.functions import WEIGHT_FRACTION
from celosia.arch.matrix_config import MatrixSizes
from celosia.arch.norm import EPS_WIDTH
from celosia.arch.records import Memory
from celosia.arch.sparse import MOST_LOADED
from celosia.arch.vector_config import VectorSizes

HARDWARE_WIDTH = 18
"""Width of the signed operands of a hardware multiplier (bits)."""
REGISTER_DEPTH = 4
"""Largest number of weights that an element keeps in registers instead of a memory."""
SHIFTS = (1 << EXPONENT_BITS) - 1
"""Largest left shift of an activation: the difference of the largest and smallest exponent
(bits)."""
BURST_BOUNDARY = 4096
"""No burst crosses a multiple of this external address (bytes); AXI4 demands it."""
TURNED_AT_ONCE = 8
"""Longest line that is rotated and queued in one cycle (bytes)."""
POLYNOMIAL_LATENCY = 6
"""Cycles from an operand to the value of a polynomial."""
TABLE_LATENCY = 2
"""Cycles from an index to its entry of an activation's table."""
POLYNOMIAL_WAIT = POLYNOMIAL_LATENCY - TABLE_LATENCY
"""Cycles by which a polynomial's result comes after an entry of a table."""
ROTARY_LATENCY = 5
"""Cycles from a pair of columns to the rotated pair."""
WORD_LATENCY = 3
"""Cycles from a walk's start to its first parameter word, without registers and factors."""
FACTOR_LATENCY = 3
"""Cycles in which a parameter word is multiplied by a row's factor."""
SECOND_AHEAD = 16
"""Lines of the second input that are asked for ahead, so that a command that follows can begin
while the back end has still to join them."""
COLUMN_CYCLES = 6
"""Fewest cycles between a zero-skip lane's sums of two consecutive columns."""
LANE_LATENCY = 4
"""Cycles from an entry that a zero-skip lane accepts to the cycle in which its product is in the
sum."""


def _log2(count: int) -> int:
    """Return the logarithm of a positive count, rounded up."""
    return (count - 1).bit_length()


def burst_words(memory: Memory) -> int:
    """Return the longest burst of external memory (words)."""
    return min(256, BURST_BOUNDARY // memory.word_bytes)


def queue_latency(depth: int) -> int:
    """Return the cycles that a command takes to pass through an empty command queue.

    They are counted from the input of the command's last word to the output of the command.
    ``depth`` is the number of commands that the queue can hold.
    """
    return min(depth, 2)


def requests_latency(stages: int) -> int:
    """Return the cycles from a scratchpad read request, granted at once, to the requested data."""
    return 2 + 2 * stages


def lines_wait(access: Access, stages: int) -> bool:
    """Return whether a line read from the scratchpad passes a register before it enters a queue.

    The register takes one cycle. Only a machine with registers between distant units (``stages``
    1) and lines longer than 8 bytes has it. Without it, the path from block RAM through the
    rotation of the line's bytes to the queue would be too long.
    """
    return stages > 0 and access.line_bytes > TURNED_AT_ONCE


def reader_latency(stages: int) -> int:
    """Return the cycles from a vector command's start to the first beat read from the scratchpad.

    The vector engine reads this beat for the command.
    """
    return requests_latency(stages) + 3 + stages


def drain_latency(config: Datapath) -> int:
    """Return the cycles from the start of a drain command to its first beat of sums."""
    return config.acc_latency + 1


def words_wait(config: VectorSizes, first: int) -> int:
    """Return the cycles that a vector command's first beat waits for its requantization parameters.

    ``first`` is the number of cycles from the command's start to this beat. If the parameters
    arrive before the beat or with it, the result is 0.
    """
    return max(0, WORD_LATENCY + FACTOR_LATENCY * (config.row_factors > 0) - first)


def requantizer_latency(*, registered: bool) -> int:
    """Return the cycles from a 32-bit sum at the requantizer's input to the element at its output.

    If ``registered`` is true, the requantizer has one more register, which adds one cycle.
    """
    return 6 + registered


def intake_latency(config: VectorSizes) -> int:
    """Return the cycles in which accumulator sums are requantized to INT16 for softmax or norm.

    They are counted from the input of a beat of sums to the output of its INT16 elements.
    """
    registered = config.control.registered
    return requantizer_latency(registered=registered) + 2 * registered


def epilogue_latency(config: VectorSizes) -> int:
    """Return the cycles that a beat takes from the vector engine's requantizer to the scratchpad.

    They are counted from the input of a beat of values to the write of the beat's elements.
    Rotations and polynomials take more cycles, which the result does not include.
    """
    registered = config.control.registered
    table = TABLE_LATENCY * bool(config.activation)
    return requantizer_latency(registered=registered) + table + registered + 1


def softmax_latency(lanes: int, longest_row: int, *, deferred: bool) -> int:
    """Return the cycles from the last beat of a row of scores to the softmax unit's first result.

    The row has one beat of ``lanes`` scores; :func:`softmax_beat_cycles` is for longer rows.
    ``longest_row`` is the largest number of scores in a row that the unit accepts. If ``deferred``
    is false, results are probabilities. If it is true, they are exponentials; a later instruction
    divides by their sum over the row.
    """
    if deferred:
        return _log2(lanes) + 8
    columns = -(-longest_row // lanes) * lanes
    sum_width = WEIGHT_FRACTION + columns.bit_length()
    return 2 * _log2(lanes) + -(-_log2(sum_width) // 2) + 13 + POLYNOMIAL_LATENCY


def softmax_beat_cycles(*, deferred: bool) -> int:
    """Return the cycles that each further beat of a row adds to :func:`softmax_latency`."""
    return 1 if deferred else 2


def norm_latency(lanes: int, longest_row: int) -> int:
    """Return the cycles that the norm unit takes from a row's input to its normalized output.

    They are counted from the input of the row's last beat to the output of the first beat of its
    result.
    """
    variance_width = ((longest_row**2 << 30) + (1 << EPS_WIDTH) - 1).bit_length()
    root = -(-_log2(variance_width) // 2) + POLYNOMIAL_LATENCY
    return 14 + -(-_log2(lanes) // 2) + root


def part_width(width: int) -> int:
    """Return the width of the multiplier operand that holds a part of an 8-bit weight (bits).

    The part has ``width`` bits. If ``width`` is below 8, the operand has an additional sign bit; a
    whole weight already has one.
    """
    return width + (width < OPERAND_BITS)


def row_width(config: MatrixSizes) -> int:
    """Return the width of an activation at a multiplier (bits).

    If the configuration has ``block_exponents``, each row of a weight slot may have an exponent, by
    which the row's activation is shifted left. The width then includes the largest shift.
    """
    return config.element_width + (SHIFTS if config.block_exponents else 0)


def overlaps(width: int, b_width: int, factor_width: int = HARDWARE_WIDTH) -> bool:
    """Return whether products ``a * b[0]`` and ``a * b[1]`` overlap in one multiplier's result.

    The multiplier computes both at once: one of its operands is ``a``, the other contains ``b[0]``
    and ``b[1]``. If this second operand would need more than ``factor_width`` bits, ``b[1]`` is
    placed closer to ``b[0]``, and the products overlap. ``a`` has ``width`` bits, and each ``b[i]``
    has ``b_width`` bits.
    """
    return width + 2 * b_width + (width == b_width) > factor_width


def product_latency(config: MatrixSizes) -> int:
    """Return the cycles from two operands at a multiplier of the array to their product.

    It is one cycle longer if a multiplier computes two products that overlap (:func:`overlaps`).
    """
    width = part_width(config.array.pass_width) if config.passes > 1 else config.element_width
    return 2 + (
        config.array.packed and config.array.cols > 1 and overlaps(row_width(config), width)
    )


def weights_latency(config: Datapath) -> int:
    """Return the cycles from a slot number at the weight memory's input to the slot's weights.

    The latency is for an array of adder trees. In a ``registered`` machine, a memory of more than
    four slots has an output register, which adds one cycle.
    """
    return 1 + config.stages * (config.array.weight_depth > REGISTER_DEPTH)


def array_latency(config: MatrixSizes, kind: str = "") -> int:
    """Return the cycles from a row of activations at the array's input to the row's last sum.

    ``kind`` is ``systolic`` or ``tree``, by default the kind of the configuration's array.
    """
    if (kind or config.array.kind) == "tree":
        added = _log2(config.array.rows)
        return weights_latency(config) + product_latency(config) + added
    return config.array.rows + config.array.cols + 1 + product_latency(config)


def dispatch_cycles(config: Datapath) -> int:
    """Return the cycles from a command's end to the first memory request of a waiting command.

    The commands are on different engines. At its end the first command sends a token, which the
    second command requires. One cycle passes until the token is counted, and one until the second
    engine has accepted its command. In a ``registered`` machine that engine starts one cycle later.
    """
    return 2 + config.stages


def load_bytes(access: Access) -> int:
    """Return the number of activations that a zero-skip unit loads per cycle, a power of two."""
    return min(MOST_LOADED, access.line_bytes)


def sparse_cycles(config: Config, lanes: int, m: int, k: int, n: int, beats: int) -> int:
    """Return the cycles of a SPARSE instruction that multiplies ``m`` rows of ``k`` activations.

    The sparse matrix has ``n`` columns, and ``beats`` entries for each of the ``lanes`` lanes. The
    first row is loaded before the products, and each further row during the products of the
    previous row. Each lane has a sum for one column at a time. The finished sums of all lanes are
    added to accumulators one after another. A lane cannot finish a column until its previous
    sum has been added; meanwhile all lanes stall. After each row, the lanes' last sums are added in
    the same way. The result is exact if no lane stalls, otherwise the instruction takes more
    cycles.
    """
    load = -(-k // load_bytes(config.access))
    row = max(beats, COLUMN_CYCLES * -(-n // lanes)) + lanes + LANE_LATENCY + 7
    return load + config.sram_latency - 2 + row + (m - 1) * max(row, load)
