"""Latencies between units of the machine, in cycles, computed from its configuration.

Circuits are built or checked with these latencies, and the compiler predicts cycles from them.
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
    """Return the length of the longest burst of external memory (words)."""
    return min(256, BURST_BOUNDARY // memory.word_bytes)


def queue_latency(depth: int) -> int:
    """Return the cycles that a command takes to pass through an empty command queue.

    The cycles are counted from the input of the command's last word to the output of the command.
    ``depth`` is the number of commands that the queue can hold.
    """
    return min(depth, 2)


def requests_latency(stages: int) -> int:
    """Return the cycles from an engine's scratchpad read request to the arrival of its data.

    The result assumes that the scratchpad accepts the request at once.
    """
    return 2 + 2 * stages


def has_line_register(access: Access, stages: int) -> bool:
    """Return whether an additional register delays data from the scratchpad by one cycle.

    ``stages`` is 1 if the machine has registers between distant units, otherwise 0. Only accesses
    of more than 8 bytes have the register.
    """
    return stages > 0 and access.line_bytes > TURNED_AT_ONCE


def reader_latency(stages: int) -> int:
    """Return the cycles from a vector command's start to its first beat from the scratchpad.

    A beat is the group of elements that the vector engine processes in one cycle.
    """
    return requests_latency(stages) + 3 + stages


def drain_latency(config: Datapath) -> int:
    """Return the cycles from a DRAIN's start to the first beat of sums from the accumulators.

    DRAIN is the command that reads and clears accumulators. A beat is the group of sums that are
    read in one cycle.
    """
    return config.acc_latency + 1


def words_wait(config: VectorSizes, first: int) -> int:
    """Return how many cycles a vector command waits for its first requantization parameters.

    ``first`` is the number of cycles from the command's start to the arrival of its first elements.
    The result is 0 if the parameters arrive before the elements or together with them.
    """
    return max(0, WORD_LATENCY + FACTOR_LATENCY * (config.row_factors > 0) - first)


def requantizer_latency(*, registered: bool) -> int:
    """Return the cycles from a 32-bit sum at the requantizer's input to the element at its output.

    If ``registered`` is true, the requantizer has one more register, which adds one cycle.
    """
    return 6 + registered


def intake_latency(config: VectorSizes) -> int:
    """Return the cycles that the vector engine takes to requantize a beat to INT16 elements.

    A beat is the group of sums that the engine reads from the accumulators in one cycle. The
    elements are the input of a softmax or a norm.
    """
    registered = config.control.registered
    return requantizer_latency(registered=registered) + 2 * registered


def epilogue_latency(config: VectorSizes) -> int:
    """Return the cycles from sums at the requantizer's input to the write of their results.

    The result applies to the sums that enter in the same cycle. It does not include the rotary unit
    or activation functions with polynomials, which take more cycles.
    """
    registered = config.control.registered
    table = TABLE_LATENCY * bool(config.activation)
    return requantizer_latency(registered=registered) + table + registered + 1


def softmax_latency(lanes: int, longest_row: int, *, deferred: bool) -> int:
    """Return the cycles from a row's scores to the row's result in the softmax unit.

    The row has at most ``lanes`` scores, which arrive in one cycle; each further cycle of scores
    adds :func:`softmax_beat_cycles`. ``longest_row`` is the largest number of scores in a row.
    Results are probabilities, or exponentials if ``deferred`` is true.
    """
    if deferred:
        return _log2(lanes) + 8
    columns = -(-longest_row // lanes) * lanes
    sum_width = WEIGHT_FRACTION + columns.bit_length()
    return 2 * _log2(lanes) + -(-_log2(sum_width) // 2) + 13 + POLYNOMIAL_LATENCY


def softmax_beat_cycles(*, deferred: bool) -> int:
    """Return the cycles that each further beat of a row adds to :func:`softmax_latency`.

    A beat is the group of scores that arrive in one cycle. Results are probabilities, or
    exponentials if ``deferred`` is true.
    """
    return 1 if deferred else 2


def norm_latency(lanes: int, longest_row: int) -> int:
    """Return the cycles from a row's last input beat at the norm unit to its first output beat.

    A beat has ``lanes`` elements. ``longest_row`` is the largest number of elements in a row that
    the unit accepts.
    """
    variance_width = ((longest_row**2 << 30) + (1 << EPS_WIDTH) - 1).bit_length()
    root = -(-_log2(variance_width) // 2) + POLYNOMIAL_LATENCY
    return 14 + -(-_log2(lanes) // 2) + root


def part_width(width: int) -> int:
    """Return the operand width of a signed multiplier for ``width`` bits of an 8-bit weight (bits).

    The result is ``width + 1`` if ``width`` is below 8, because bits without the sign are unsigned.
    """
    return width + (width < OPERAND_BITS)


def factor_width(config: MatrixSizes) -> int:
    """Return the width of the weight operand at a multiplier of the array (bits).

    The operand is a weight minus its zero point. If the array takes several passes, it is
    ``pass_width`` bits of a weight and a sign bit.
    """
    return part_width(config.array.pass_width) if config.passes > 1 else config.element_width


def row_width(config: MatrixSizes) -> int:
    """Return the width of an activation at a multiplier's input (bits).

    If the configuration has ``block_exponents``, each row of a weight tile may have an exponent.
    The activation of the row is shifted left by up to ``SHIFTS`` bits, and the width includes the
    shift.
    """
    return config.element_width + (SHIFTS if config.block_exponents else 0)


def overlaps(width: int, b_width: int, factor_width: int = HARDWARE_WIDTH) -> bool:
    """Return whether the two products of one multiplier, ``a * (b[0] + (b[1] << shift))``, overlap.

    ``a`` has ``width`` bits, and each ``b[i]`` has ``b_width`` bits. Without overlap, ``shift`` is
    the width of ``a * b[0]``. The products overlap if the second operand would then need more than
    the multiplier's ``factor_width`` bits.
    """
    return width + 2 * b_width + (width == b_width) > factor_width


def product_latency(config: MatrixSizes) -> int:
    """Return the cycles from two operands at a multiplier of the array to their product.

    The latency is one cycle longer if a multiplier computes two products that share bits of its
    output (:func:`overlaps`).
    """
    shares = config.array.packed and config.array.cols > 1
    return 2 + (shares and overlaps(row_width(config), factor_width(config)))


def weights_latency(config: Datapath) -> int:
    """Return the cycles in which an adder-tree array reads a tile of weights from its memory.

    The cycles are counted from the tile's number at an input of the array to the tile's weights at
    the multipliers. The result is 2 with ``registered`` and more than four tiles, otherwise 1.
    """
    return 1 + config.stages * (config.array.weight_depth > REGISTER_DEPTH)


def array_latency(config: MatrixSizes, kind: str = "") -> int:
    """Return the cycles from a row of activations at the array's input to the row's sums.

    ``kind`` is ``systolic`` or ``tree``, by default the kind of the configuration's array.
    """
    if (kind or config.array.kind) == "tree":
        added = _log2(config.array.rows)
        return weights_latency(config) + product_latency(config) + added
    return config.array.rows + config.array.cols + 1 + product_latency(config)


def dispatch_cycles(config: Datapath) -> int:
    """Return the cycles from the end of a command to the first request of another engine's command.

    The second command waits for a token of the first. The result is 2, or 3 with the option
    ``registered``.
    """
    return 2 + config.stages


def load_bytes(access: Access) -> int:
    """Return the number of activations that the sparse unit loads per cycle, a power of two."""
    return min(MOST_LOADED, access.line_bytes)


def sparse_cycles(config: Config, lanes: int, m: int, k: int, n: int, beats: int) -> int:
    """Return the fewest cycles of a SPARSE instruction: [m, k] activations times a sparse [k, n].

    Each of ``lanes`` lanes processes ``beats`` entries of the matrix, one per cycle. Lanes that
    finish columns faster than sums are added to the accumulators take more cycles.
    """
    load = -(-k // load_bytes(config.access))
    row = max(beats, COLUMN_CYCLES * -(-n // lanes)) + lanes + LANE_LATENCY + 7
    return load + config.sram_latency - 2 + row + (m - 1) * max(row, load)
