"""MATMUL in microcode: tile by tile, each of its weights once, then every row of activations."""

from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.memory import FLAGS, FREE, OPERANDS, ZERO

_B_STEP, _B_COLUMN = FREE[:2]  # bytes along k, along n
_A_TILE, _B_TILE, _B_TOP, _ACC_TILE = FREE[2:6]
_K_LEFT, _N_LEFT, _ROWS_LEFT, _COLUMNS, _LENGTH = FREE[6:11]
_POINT, _PLACE, _HELP, _ONE, _BLANKS, _MISSING = FREE[11:17]
_ODD, _LEAST, _TWO, _BACK = FREE[17:21]
_B_TRANSPOSE = 0


def matmul(a: Assembler, config: MicroConfig) -> None:
    """Append MATMUL of streamed weights without zero points.

    Weights past k or n are 0, so that it does not matter what is read or summed there. On an array
    of two rows, operands at even places come two bytes at a time.
    """
    words = config.rows == 2
    _begin(a, config)
    if words:
        _parity(a, config)
    a.label("MATMUL column")
    a.move(_A_TILE, OPERANDS["a_addr"])
    a.move(_B_TILE, _B_TOP)
    a.move(_K_LEFT, OPERANDS["k"])
    if words and config.cols % 2 == 0:
        _words(a, config)
    a.label("MATMUL tile")
    _weights(a, config)
    _stream(a, config, words=words)
    a.alu("ADDI", _A_TILE, _A_TILE, config.rows)
    _skip(a, _B_TILE, _B_STEP, config.rows)
    a.alu("ADDI", _K_LEFT, _K_LEFT, -config.rows)
    a.branch("BLT", ZERO, _K_LEFT, "MATMUL tile")
    a.label("MATMUL summed")
    a.alu("ADD", _ACC_TILE, _ACC_TILE, OPERANDS["acc_stride"])
    _skip(a, _B_TOP, _B_COLUMN, config.cols)
    a.alu("ADDI", _N_LEFT, _N_LEFT, -config.cols)
    a.branch("BLT", ZERO, _N_LEFT, "MATMUL column")


def _begin(a: Assembler, config: MicroConfig) -> None:
    """Append steps, strides and where the sums go."""
    a.constant(_ONE, 1)
    a.move(_B_COLUMN, _ONE)
    a.move(_B_STEP, OPERANDS["b_stride"])
    a.if_flag(FLAGS, _B_TRANSPOSE, "MATMUL straight", _HELP, clear=True)
    a.move(_B_COLUMN, OPERANDS["b_stride"])
    a.move(_B_STEP, _ONE)
    a.label("MATMUL straight")
    a.move(_ACC_TILE, OPERANDS["acc_addr"])
    a.move(_B_TOP, OPERANDS["b_addr"])
    a.move(_N_LEFT, OPERANDS["n"])


def _parity(a: Assembler, config: MicroConfig) -> None:
    """Note in ``_ODD`` whether activations may be odd, and the columns at least for whole words."""
    a.alu("OR", _ODD, OPERANDS["a_addr"], OPERANDS["a_stride"])
    a.alu("OR", _HELP, _ODD, OPERANDS["k"])
    a.alu("OR", _HELP, _HELP, OPERANDS["b_addr"])
    a.alu("OR", _HELP, _HELP, OPERANDS["b_stride"])
    a.alu("OR", _HELP, _HELP, FLAGS)
    a.alu("ANDI", _ODD, _ODD, 1)
    a.alu("ANDI", _HELP, _HELP, 1)
    # More columns than there are, where not all is even or weights are transposed.
    a.alu("ADD", _LEAST, _N_LEFT, _HELP)
    a.alu("ADDI", _LEAST, _LEAST, config.cols)
    a.branch("BNE", _HELP, ZERO, "MATMUL parity")
    a.constant(_LEAST, config.cols)
    a.label("MATMUL parity")
    a.constant(_TWO, 2)
    a.alu("ADD", _BACK, _B_STEP, _B_STEP)
    a.alu("ADDI", _BACK, _BACK, 2 - config.cols)


def _words(a: Assembler, config: MicroConfig) -> None:
    """Append a tile column whose operands come as words, where there are whole ones."""
    a.branch("BLT", _N_LEFT, _LEAST, "MATMUL tile")
    a.alu("ADD", _PLACE, _B_TOP, _B_STEP)
    a.alu("SRLI", _K_LEFT, _K_LEFT, 1)
    a.label("MATMUL words")
    for pointer in (_B_TILE, _PLACE):
        for _ in range(config.cols // 2 - 1):
            a.emit("WEIGHTS", ra=pointer, rb=_TWO)
        a.emit("WEIGHTS", ra=pointer, rb=_BACK)
    a.emit("REPEAT", ra=_ACC_TILE, rb=OPERANDS["m"])
    a.move(_POINT, _A_TILE)
    a.alu("ADDI", _A_TILE, _A_TILE, 2)
    a.emit("ENTERS", ra=_POINT, rb=OPERANDS["a_stride"])
    a.loop(_K_LEFT, "MATMUL words")
    a.jump("MATMUL summed")


def _skip(a: Assembler, pointer: int, step: int, count: int) -> None:
    """Append a pointer's way over so many steps."""
    if count & (count - 1):
        for _ in range(count):
            a.alu("ADD", pointer, pointer, step)
    else:
        a.alu("SLLI", _HELP, step, count.bit_length() - 1)
        a.alu("ADD", pointer, pointer, _HELP)


def _weights(a: Assembler, config: MicroConfig) -> None:
    """Append the way of a tile's weights into the array."""
    columns = config.cols + config.cols % 2
    a.alu("MINI", _LENGTH, _K_LEFT, config.rows)
    a.alu("MINI", _COLUMNS, _N_LEFT, config.cols)
    a.constant(_HELP, columns)
    a.alu("SUB", _BLANKS, _HELP, _COLUMNS)
    a.constant(_HELP, config.rows)
    a.alu("SUB", _MISSING, _HELP, _LENGTH)
    a.move(_PLACE, _B_TILE)
    a.label("MATMUL weights")
    a.move(_POINT, _PLACE)
    a.alu("ADD", _PLACE, _PLACE, _B_STEP)
    a.alu("SLTI", _HELP, _COLUMNS, config.cols)
    a.branch("BNE", _HELP, ZERO, "MATMUL part")
    for _ in range(config.cols):
        a.emit("WEIGHT", ra=_POINT, rb=_B_COLUMN)
    if columns > config.cols:
        a.emit("BLANK")
    a.loop(_LENGTH, "MATMUL weights")
    a.jump("MATMUL missing")
    a.label("MATMUL part")
    a.move(_HELP, _COLUMNS)
    a.label("MATMUL weight")
    a.emit("WEIGHT", ra=_POINT, rb=_B_COLUMN)
    a.loop(_HELP, "MATMUL weight")
    a.move(_HELP, _BLANKS)
    a.label("MATMUL blank")
    a.emit("BLANK")
    a.loop(_HELP, "MATMUL blank")
    a.loop(_LENGTH, "MATMUL weights")
    a.label("MATMUL missing")
    a.branch("BEQ", _MISSING, ZERO, "MATMUL stream")
    for _ in range(columns):
        a.emit("BLANK")
    a.alu("ADDI", _MISSING, _MISSING, -1)
    a.jump("MATMUL missing")


def _stream(a: Assembler, config: MicroConfig, *, words: bool) -> None:
    """Append the way of m rows of activations, whose sums go to the accumulators."""
    a.label("MATMUL stream")
    a.emit("REPEAT", ra=_ACC_TILE, rb=OPERANDS["m"])
    a.move(_POINT, _A_TILE)
    if words:
        a.branch("BNE", _ODD, ZERO, "MATMUL bytes")
        a.emit("ENTERS", ra=_POINT, rb=OPERANDS["a_stride"])
        a.jump("MATMUL streamed")
        a.label("MATMUL bytes")
    a.move(_BLANKS, _A_TILE)
    a.move(_ROWS_LEFT, OPERANDS["m"])
    a.label("MATMUL row")
    for _ in range(config.rows):
        a.emit("ENTER", ra=_POINT, rb=_ONE)
    a.alu("ADD", _BLANKS, _BLANKS, OPERANDS["a_stride"])
    a.move(_POINT, _BLANKS)
    a.loop(_ROWS_LEFT, "MATMUL row")
    a.label("MATMUL streamed")
