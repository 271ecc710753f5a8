"""Random programs: every instruction that a configuration has, with random shapes and places."""

from dataclasses import dataclass, field, replace

import numpy as np

from arch.config import Config
from arch.instruction import Instruction, Operand, pack, wrap
from arch.isa import DEFINITIONS, LOOP_LEVELS, REGISTERS, Opcode
from generators.layout import param_words, rows_image
from generators.tokens import insert_tokens
from sim.admission import check_step
from sim.checker import check
from sim.flow import run
from sim.regions import Region, regions

IMAGE_ROWS = 96
MAX_M = 10
MAX_K = 40
_TAKERS = {"softmax": Opcode.SOFTMAX, "norm": Opcode.NORM}
"""What can take accumulators, by its unit."""


@dataclass(frozen=True)
class RandomProgram:
    """Words, the external memory they start from, and the bytes of it that they may change."""

    words: list[int]
    image: bytes
    result_addr: int
    result_bytes: int


def _in_place(written: Region, read: Region) -> bool:
    """Tell whether elements go where they came from, or before, where they become narrower."""
    return (
        (written.addr, written.stride, written.m) == (read.addr, read.stride, read.m)
        and written.count <= read.count
        and abs(written.stride) >= read.count
    )


@dataclass
class _Maker:
    """Makes instructions that fit the configuration."""

    config: Config
    rng: np.random.Generator
    row_bytes: int
    result_addr: int
    filled: dict[int, tuple[int, int]] = field(default_factory=dict)

    def below(self, high: int) -> int:
        return int(self.rng.integers(high))

    def size(self, high: int) -> int:
        return 1 + self.below(max(1, high))

    def zero(self, allowed: bool = True) -> int:
        bound = self.config.operand_max
        return int(self.rng.integers(-bound - 1, bound + 1)) if allowed else 0

    def matrix(self, name: str, m: int, row: int) -> dict[str, int]:
        """Place m rows of ``row`` bytes in a bank, upwards or downwards; not all have room."""
        config = self.config
        stride = row + self.below(8)
        span = stride * (m - 1) + row
        bank = self.below(config.scratchpad_banks) * config.bank_bytes
        addr = bank + self.below(max(1, config.bank_bytes - span + 1))
        if self.rng.random() < 0.1:
            addr, stride = addr + stride * (m - 1), -stride
        return {f"{name}_addr": addr, f"{name}_stride": stride}

    def shape(self, wide: bool) -> tuple[int, int]:
        """Return m and n such that a matrix takes at most a quarter of a bank."""
        quarter = self.config.bank_bytes // 4 // (2 if wide else 1)
        n = self.size(min(MAX_K, self.config.max_row, quarter // 2))
        m = self.size(min(MAX_M, quarter // (n + 8)))
        return m, n

    def flags(self, opcode: Opcode, likely: float = 0.4) -> set[str]:
        return {
            flag for flag in DEFINITIONS[opcode].flags if self.rng.random() < likely
        } - self._absent()

    def _absent(self) -> set[str]:
        config = self.config
        absent = {"resident"} if config.weight_depth < 3 else set()
        for unit, names in (
            ("a_transpose", {"a_transpose"}),
            ("b_transpose", {"b_transpose"}),
            ("tile_skip", {"masked", "a_masked", "b_masked"}),
            ("activation", {"table"}),
            ("attention", {"online", "first", "running"}),
            ("rotary", {"rotate", "times"}),
            ("argmax", {"argmax"}),
            ("fused", {"drain"}),
        ):
            if not getattr(config, unit):
                absent |= names
        return absent | {"followed"}  # see _split

    def matmul(self) -> Instruction:
        config = self.config
        k = self.size(min(MAX_K, config.max_k))
        m = self.size(min(MAX_M, config.acc_depth // 4))
        n = self.size(min(4, config.acc_depth // 4 // m) * config.cols)
        acc_addr = self.below(4) * (config.acc_depth // 4)
        m, n = self.filled.get(acc_addr, (m, n))
        flags = self.flags(Opcode.MATMUL)
        kt, nt = -(-k // config.rows), -(-n // config.cols)
        if kt * nt + 2 > config.weight_depth:
            flags -= {"resident"}
        operands = {
            **self.matrix("a", *((k, m) if "a_transpose" in flags else (m, k))),
            **self.matrix("b", *((n, k) if "b_transpose" in flags else (k, n))),
            "acc_addr": acc_addr,
            "acc_stride": m,
            "m": m,
            "k": k,
            "n": n,
            "a_zero": self.zero(config.zero_points),
            "b_zero": self.zero(config.zero_points),
            "slot": 2,
        }
        if kt * nt <= config.mask_depth:
            operands["a_mask"] = self.below(config.mask_depth - kt + 1)
            operands["b_mask"] = self.below(config.mask_depth - kt * nt + 1)
        else:
            flags -= {"a_masked", "b_masked"}
        self.filled[acc_addr] = (m, n)
        return Instruction(Opcode.MATMUL, operands, frozenset(flags))

    def preload(self) -> Instruction:
        config = self.config
        room = config.weight_depth - 2
        k = self.size(min(MAX_K, room * config.rows))
        n = self.size(min(MAX_K, room // -(-k // config.rows) * config.cols))
        flags = self.flags(Opcode.PRELOAD)
        if "append" in flags and "b_transpose" not in flags:
            n = min(n, config.cols)
        operands = {
            **self.matrix("b", *((n, k) if "b_transpose" in flags else (k, n))),
            "k": k,
            "n": n,
            "b_zero": self.zero(config.zero_points),
            "slot": 2,
            "line": self.below(config.cols if "b_transpose" in flags else config.rows),
        }
        return Instruction(Opcode.PRELOAD, operands, frozenset(flags))

    def drain(self) -> Instruction:
        acc_addr = int(self.rng.choice([*self.filled]))
        m, n = self.filled.pop(acc_addr)
        flags = self.flags(Opcode.DRAIN)
        if "running" in flags:
            flags |= {"per_tensor"}
            if self.rng.random() < 0.7:
                flags |= {"add", "wide_out"}
        flags = self._output_flags(flags)
        if "running" in flags:
            flags -= {"per_row"}
        if "per_row" in flags and n > self.config.lanes:
            flags |= {"per_tensor"}
        operands = {"acc_addr": acc_addr, "acc_stride": m, **self._output(m, n, flags)}
        operands["row"] = self._running_row(m)
        self._in_place(operands, {"r"} if flags & {"add", "times"} else set())
        return Instruction(Opcode.DRAIN, operands, frozenset(flags))

    def _in_place(self, operands: dict[str, int], inputs: set[str]) -> None:
        """Sometimes write over an input, or read the same row over and over."""
        for name in sorted(inputs):
            if self.rng.random() < 0.1:
                operands[f"{name}_stride"] = 0
        for output in ("o", "s"):
            if inputs and f"{output}_addr" in operands and self.rng.random() < 0.3:
                source = str(self.rng.choice(sorted(inputs)))
                for part in ("addr", "stride"):
                    operands[f"{output}_{part}"] = operands[f"{source}_{part}"]

    def _running_row(self, m: int) -> int:
        """Return where m running rows begin; few places, so that rows go on and are drained."""
        room = self.config.running_rows - m
        return min(2 * self.below(3), room) if room > 0 else 0

    def _output_flags(self, flags: set[str]) -> set[str]:
        flags = flags - ({"table"} if "wide_out" in flags else {"add"})
        if "argmax" in flags and self.rng.random() < 0.7:
            return flags - {"table", "rotate", "times"}
        turning = flags & {"rotate", "times"}
        if turning:
            flags -= {"relu", "table", "add", "running", *turning}
            flags |= {str(self.rng.choice(sorted(turning)))}
        return flags - {"argmax"}

    def _output(self, m: int, n: int, flags: set[str]) -> dict[str, int]:
        table, pairs = self.below(self.config.table_slots), n
        if "rotate" in flags:
            table = 2 * self.size(n)
            pairs = min(n, table + self.config.lanes)
        elif "times" in flags:
            table = self.zero()
        elif "argmax" in flags:
            # Begin anew, or go on.
            table = self.below(2) * self.size(1 << 20)
        return {
            **self.matrix("o", m, 2 * n if "wide_out" in flags else n),
            **self.matrix("r", m, 2 * pairs),
            "o_zero": 0 if flags & {"rotate", "times"} else self.zero(),
            "m": m,
            "n": n,
            "params": self.below(2),
            "table": table,
        }

    def row_step(self, opcode: Opcode) -> Instruction:
        """Make MAP, SOFTMAX, NORM, ADD or MUL."""
        flags = self._output_flags(self.flags(opcode))
        if opcode == Opcode.NORM and self.rng.random() < 0.5:
            flags |= {"add"}
        if not self.filled:
            flags -= {"drain"}
        elif self.config.fused and opcode in _TAKERS.values() and self.rng.random() < 0.8:
            flags |= {"drain"}
        m, n = self.shape(wide=True)
        if "argmax" in flags:
            m = 1
        if "rotate" in flags:
            n += n % 2
        taken: dict[str, int] = {}
        if "drain" in flags:
            acc_addr = int(self.rng.choice([*self.filled]))
            m, n = self.filled.pop(acc_addr)
            taken = {"i_addr": acc_addr, "i_stride": m}
        if "per_row" in flags and n > self.config.lanes:
            flags |= {"per_tensor"}
        if "online" in flags:
            flags -= {"diagonal"}
        else:
            flags -= {"first"}
        operands = self._output(m, n, flags)
        operands["row"] = self._running_row(m)
        wide = opcode in (Opcode.SOFTMAX, Opcode.NORM) or "wide_in" in flags
        operands |= taken or self.matrix("i", m, 2 * n if wide else n)
        operands |= self.matrix("s", m, 2 * n)
        if opcode == Opcode.SOFTMAX:
            operands |= {
                "start": int(self.rng.integers(-3, 4)),
                "start_step": int(self.rng.integers(-1, 2)),
                "limit": self.size(n + 3),
                "limit_step": int(self.rng.integers(-1, 2)),
                "diagonal": int(self.rng.integers(-2, n)),
                "diagonal_value": int(self.rng.integers(-(1 << 24), 1 << 24)),
            }
        if opcode == Opcode.NORM:
            operands |= {"eps_low": self.below(1 << 27), "eps_high": self.below(4)}
            operands["pre"] = self.below(2)
        operands |= {"i_zero": self.zero(), "r_zero": self.zero()}
        known = DEFINITIONS[opcode].operands
        operands = {name: value for name, value in operands.items() if name in known}
        inputs = set() if taken else {"i"}
        if flags & {"add", "times"} or opcode in (Opcode.ADD, Opcode.MUL):
            inputs |= {"r"}
        self._in_place(operands, inputs)
        return Instruction(opcode, operands, frozenset(flags))

    def attention(self) -> Instruction:
        """Make an ATTENTION of a few steps; accumulators must be clear."""
        config = self.config
        k, n = self.size(24), self.size(min(48, config.max_row))
        height, group = self.size(6), self.size(2)
        m, heads = self.size(3 * height), self.size(3)
        key_heads = -(-heads // group)
        flags = self.flags(Opcode.ATTENTION, 0.6)
        flags |= set() if "first" in flags else {"wide_out"}
        width = 2 if "wide_out" in flags else 1
        operands = {"heads": heads, "group": group, "height": height, "m": m, "n": n, "k": k}
        for name, count, rows, size in (
            ("q", heads, m, 1),
            ("k", key_heads, n, 1),
            ("v", key_heads, n, 1),
            ("o", heads, m, width),
        ):
            # Heads one after the other, or side by side in the same rows.
            beside = count * k * size
            if self.rng.random() < 0.5:
                operands |= self.matrix(name, rows, beside) | {f"{name}_head": k * size}
            else:
                operands |= self.matrix(name, count * rows, k * size)
                operands[f"{name}_head"] = rows * operands[f"{name}_stride"]
            operands[f"{name}_zero"] = self.zero(config.zero_points)
        operands |= self.matrix("p", 2 * height, 2 * n)
        operands |= {
            "p_buffer": height * operands["p_stride"],
            "p_zero": self.zero(config.zero_points),
            "v_acc_addr": config.acc_depth // 2,
            "acc_buffer": config.acc_depth // 4,
            "row": self.below(max(1, config.running_rows - heads * m)),
            "row_head": m,
            "params": self.below(2),
            "start": int(self.rng.integers(-6, 6)),
            "start_step": int(self.rng.integers(-1, 2)),
            "limit": self.size(n + 3),
            "limit_step": int(self.rng.integers(-1, 2)),
        }
        return Instruction(Opcode.ATTENTION, operands, frozenset(flags))

    def mover(self, opcode: Opcode) -> Instruction:
        config = self.config
        flags = self.flags(opcode)
        m = self.size(MAX_M)
        row = self.size(min(self.row_bytes, config.bank_bytes // 4 // m))
        first = self.below(IMAGE_ROWS - m + 1) * self.row_bytes
        if opcode == Opcode.STORE:
            first += self.result_addr
        operands = {
            "dram_addr": first,
            "dram_stride": self.row_bytes,
            **self.matrix("sp", m, row),
            "m": m,
            "row_bytes": row,
            "mask": self.below(config.mask_depth - min(m, config.mask_depth) + 1),
        }
        if m > config.mask_depth:
            flags -= {"masked"}
        return Instruction(opcode, operands, frozenset(flags))

    def fill(self, opcode: Opcode) -> Instruction:
        config = self.config
        if opcode == Opcode.TABLE:
            addr = self.below(max(1, config.scratchpad_bytes - 255))
            operands = {"i_addr": addr, "table": self.below(config.table_slots)}
        elif opcode == Opcode.MASK:
            n = self.size(min(40, config.mask_depth))
            operands = {
                "i_addr": self.below(config.scratchpad_bytes - n + 1),
                "n": n,
                "mask": self.below(config.mask_depth - n + 1),
            }
        else:
            m, n = self.shape(wide=False)
            tiles = -(-n // config.rows)
            operands = {
                **self.matrix("i", m, n),
                "i_zero": self.zero(),
                "m": m,
                "n": n,
                "mask": self.below(max(1, config.mask_depth - tiles + 1)),
            }
        return Instruction(opcode, operands)

    def fits(self, instruction: Instruction) -> bool:
        """Tell whether a step is admissible and has one meaning in whatever order it runs."""
        words = pack([instruction, Instruction(Opcode.HALT)])
        if instruction.opcode == Opcode.ATTENTION:
            try:
                check(words, self.config)
            except ValueError:
                return False
        for step in run(words):
            try:
                check_step(step, self.config)
            except ValueError:
                return False
            reads, writes = regions(step, self.config)
            read = [region for region in reads if region.memory == "sp"]
            written = [region for region in writes if region.memory == "sp"]
            for index, region in enumerate(written):
                cells = region.cells().ravel()
                if np.unique(cells).size < cells.size:
                    return False
                others = [other for other in read if not _in_place(region, other)]
                others += written[index + 1 :]
                if any(np.intersect1d(cells, other.cells()).size for other in others):
                    return False
        return True

    def any(self) -> Instruction:
        """Make one instruction of a kind that the configuration has."""
        config = self.config
        makers = [
            self.matmul,
            lambda: self.row_step(Opcode.MAP),
            lambda: self.mover(Opcode.LOAD),
            lambda: self.mover(Opcode.STORE),
        ]
        makers += [self.drain] * 2 if self.filled else []
        if self.filled and config.fused:
            units = [opcode for unit, opcode in _TAKERS.items() if getattr(config, unit)]
            makers += [lambda opcode=opcode: self.row_step(opcode) for opcode in 3 * units]
        makers += [self.preload] if config.weight_depth > 2 else []
        online = config.attention and "online" not in self._absent()
        if online and config.b_transpose and not self.filled:
            makers += [self.attention] * 2
        for unit, opcodes in (
            ("softmax", (Opcode.SOFTMAX,)),
            ("attention", (Opcode.SOFTMAX,)),
            ("norm", (Opcode.NORM,)),
            ("elementwise", (Opcode.ADD, Opcode.MUL)),
        ):
            if getattr(config, unit):
                makers += [lambda opcode=opcode: self.row_step(opcode) for opcode in opcodes]
        for unit, opcodes in (
            ("activation", (Opcode.TABLE,)),
            ("tile_skip", (Opcode.MASK, Opcode.SCAN)),
        ):
            if getattr(config, unit):
                makers += [lambda opcode=opcode: self.fill(opcode) for opcode in opcodes]
        return makers[self.below(len(makers))]()


def _head(config: Config, rng: np.random.Generator, addr: int) -> tuple[list[Instruction], bytes]:
    """Return the loading of random parameters that lie at an external address."""
    room = config.bank_bytes // (config.param_lines * config.line_bytes)
    columns = min(config.param_depth, room, 64) * config.lanes
    shifts = rng.integers(-20, 3, columns)
    shifts[: 3 * config.lanes] -= 2  # ADD's inputs are never shifted left
    params = param_words(
        rng.integers(-(1 << 20), 1 << 20, columns),
        rng.integers(1 << 29, 1 << 31, columns),
        shifts,
        config,
        by_tile=False,
    )
    data, stride = rows_image(params, config)
    load = {"dram_addr": addr, "dram_stride": stride, "sp_stride": params.shape[1]}
    load |= {"m": len(params), "row_bytes": params.shape[1]}
    return [
        Instruction(Opcode.LOAD, load),
        Instruction(Opcode.PARAMS, {"n": len(params)}),
    ], data


def _split(instruction: Instruction, rng: np.random.Generator) -> list[Instruction]:
    """Return an instruction, or sometimes a SOFTMAX of sums as two, the second begun early."""
    rows = instruction.operand("m").immediate if "m" in instruction.operands else 1
    splits = instruction.opcode == Opcode.SOFTMAX and "drain" in instruction.flags
    if not splits or instruction.flags & {"online", "diagonal"} or rows < 2 or rng.random() < 0.3:
        return [instruction]
    first = int(rng.integers(1, rows))
    behind = {name: instruction.operand(name).immediate for name in instruction.operands}
    words = 2 if "per_row" in instruction.flags else 0
    for name, step in (
        ("i_addr", 1),
        ("o_addr", behind["o_stride"]),
        ("params", words),
        ("start", behind["start_step"]),
        ("limit", behind["limit_step"]),
        ("m", -1),
    ):
        behind[name] += first * step
    operands = {**instruction.operands, "m": first}
    return [
        replace(instruction, operands=operands, flags=instruction.flags | {"followed"}),
        replace(instruction, operands=behind),
    ]


def _controlled(program: list[Instruction], rng: np.random.Generator) -> list[Instruction]:
    """Let registers bring parts of operands, and run instructions without tokens several times."""
    values = [0, *(int(rng.integers(-(1 << 20), 1 << 20)) for _ in range(1, REGISTERS))]
    controlled = [
        Instruction(Opcode.SET, {"register": register, "value": values[register]})
        for register in range(1, REGISTERS)
    ]
    for instruction in program:
        operands = dict(instruction.operands)
        for name, value in instruction.operands.items():
            register = int(rng.integers(REGISTERS))
            if isinstance(value, int) and rng.random() < 0.3:
                operands[name] = Operand(wrap(value - values[register]), register)
        levels = 0
        alone = instruction.definition.engine is not None
        if alone and not instruction.pop | instruction.push and rng.random() < 0.2:
            levels = int(rng.integers(1, LOOP_LEVELS + 1))
        for _ in range(levels):
            count = 1 + int(rng.random() < 0.3)
            controlled.append(Instruction(Opcode.LOOP, {"count": count}))
        controlled.append(replace(instruction, operands=operands))
        controlled += [Instruction(Opcode.ENDLOOP)] * levels
    return controlled


def random_program(config: Config, rng: np.random.Generator, steps: int) -> RandomProgram:
    """Return a program of ``steps`` random instructions between its loading and its drains.

    The external memory and, from it, parts of the scratchpad are random, a fifth of it zeros.
    Registers and loops take part, so that some instructions run more than once.
    """
    row_bytes = -(-64 // config.mem_bytes) * config.mem_bytes
    data = rng.integers(0, 256, (IMAGE_ROWS, row_bytes)).astype(np.uint8)
    data[rng.random(data.shape) < 0.2] = 0
    program, params = _head(config, rng, data.size)
    image = data.tobytes() + params
    maker = _Maker(config, rng, row_bytes, len(image))
    while len(program) < 14 + steps:
        filled = dict(maker.filled)
        instruction = maker.mover(Opcode.LOAD) if len(program) < 14 else maker.any()
        if maker.fits(instruction):
            program += _split(instruction, rng)
        else:
            maker.filled = filled
    while maker.filled:
        filled = dict(maker.filled)
        instruction = maker.drain()
        if maker.fits(instruction):
            program.append(instruction)
        else:
            maker.filled = filled
    program = _controlled(insert_tokens(program, config), rng)
    words = pack([*program, Instruction(Opcode.HALT)])
    return RandomProgram(words, image, maker.result_addr, IMAGE_ROWS * row_bytes)
