"""Instructions of the vector engine in microcode, against the golden machine, bit for bit."""

from dataclasses import dataclass

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.micro.memory import memory_map
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter
from celosia.sim.micro_machine import MicroMachine

CONFIG = PRESETS["micro"]
ABSENT = {
    "rotate",
    "argmax",
    "times",
    "drain",
    "followed",
    "polynomial",
    "factors",
    "by_tile",
    "spaced",
}
"""Flags that only parallel machines have."""
PLACES = {"i": 0, "r": 1, "o": 2, "s": 3}
"""Quarters of the scratchpad."""


def skewed(rng: np.random.Generator, shape: tuple[int, ...], width: int = 32) -> np.ndarray:
    """Return signed integers of every magnitude, the extremes among them."""
    half = 1 << (width - 1)
    values = rng.integers(-half, half, shape) >> rng.integers(0, width, shape)
    extremes = rng.choice([-half, 1 - half, half - 2, half - 1], shape)
    return np.where(rng.random(shape) < 0.15, extremes, values)


def fill(machine: Interpreter, rng: np.random.Generator) -> None:
    """Put random content into every memory."""
    config, shape = machine.config, machine.bias.shape
    machine.sp[:] = skewed(rng, machine.sp.shape, 8) & 0xFF
    machine.acc[:] = skewed(rng, machine.acc.shape, config.accumulators.width)
    machine.bias[:] = skewed(rng, shape) * (rng.random(shape) < 0.6)
    machine.multiplier[:] = skewed(rng, shape)
    near = rng.random(shape) < 0.2
    machine.shift[:] = np.where(near, rng.integers(-2, 2, shape), rng.integers(-31, 31, shape))
    machine.tables[:] = rng.integers(-128, 128, machine.tables.shape)


def twin(machine: Interpreter) -> MicroMachine:
    """Return a microcoded machine with the same content."""
    config = machine.config
    micro, where = MicroMachine(config), memory_map(config)
    data = micro.core.data
    micro.core.sp[:] = machine.sp.tobytes()
    params = np.stack([machine.bias, machine.multiplier, machine.shift], axis=-1)
    for start, values in (
        (where.tables, machine.tables.astype(np.int8).view("<u4")),
        (where.params, params),
    ):
        flat = [int(value) % (1 << 32) for value in values.ravel()]
        data[start : start + len(flat)] = flat
    micro.core.acc[:] = machine.acc.tolist()
    return micro


@dataclass
class Case:
    """One random instruction, and the golden machine that it runs on."""

    machine: Interpreter
    opcode: Opcode
    rng: np.random.Generator
    longest: int
    """Columns at most."""

    def below(self, high: int) -> int:
        return int(self.rng.integers(high))

    def rows(self, name: str, m: int, width: int) -> dict[str, int]:
        """Place m rows of this number of bytes in their quarter, upwards or downwards."""
        stride = width + self.below(4)
        room = self.machine.sp.size // len(PLACES) - stride * m
        addr = PLACES[name] * self.machine.sp.size // len(PLACES) + self.below(room + 1)
        if self.below(4) == 0:
            addr, stride = addr + stride * (m - 1), -stride
        return {f"{name}_addr": addr, f"{name}_stride": stride}

    def flags(self) -> set[str]:
        flags = {name for name in DEFINITIONS[self.opcode].flags if self.below(2)} - ABSENT
        flags -= {"table"} if "wide_out" in flags else {"add"}
        flags -= set() if self.machine.config.activation else {"table"}
        if self.opcode == Opcode.NORM and self.below(2):
            flags |= {"add"}
        return flags | ({"per_tensor"} if "per_row" in flags else set())

    def wide(self, name: str, operands: dict[str, int], m: int, n: int) -> None:
        """Fill an input with 16-bit elements of one order of magnitude."""
        values = skewed(self.rng, (m, n), 16) >> self.below(16)
        for row, data in enumerate(values.astype("<i2")):
            start = operands[f"{name}_addr"] + row * operands[f"{name}_stride"]
            self.machine.sp[start : start + 2 * n] = data.view(np.uint8)

    def instruction(self) -> Instruction:
        config, flags, opcode = self.machine.config, self.flags(), self.opcode
        n = 1 + self.below(self.longest if self.below(8) else 3)
        m = 1 + self.below(
            min(6, config.accumulators.depth * config.array.cols // (n + config.array.cols))
        )
        wide_in = opcode in (Opcode.SOFTMAX, Opcode.NORM) or "wide_in" in flags
        sizes = {"i": 1 + wide_in, "r": 2, "s": 2}
        sizes["o"] = 1 + ("wide_out" in flags)
        operands = {"m": m, "n": n}
        for name, size in sizes.items():
            operands |= self.rows(name, m, n * size)
        if wide_in:
            self.wide("i", operands, m, n)
        self.wide("r", operands, m, n)
        if opcode != Opcode.DRAIN and sizes["o"] <= sizes["i"] and self.below(3) == 0:
            operands |= {f"o_{part}": operands[f"i_{part}"] for part in ("addr", "stride")}
        if self.below(3) == 0:
            operands |= {f"s_{part}": operands[f"r_{part}"] for part in ("addr", "stride")}
        tiles = -(-n // config.array.cols)
        room = config.accumulators.depth - m * tiles
        operands |= {
            "acc_stride": m + (self.below(room // tiles + 1) if tiles > 1 else 0),
            "i_zero": int(skewed(self.rng, (), 8)),
            "o_zero": int(skewed(self.rng, (), 8)),
            "params": self.below(config.vector.words - max(n, m) - 1),
            "table": self.below(config.table_slots),
            "start": self.below(2 * n + 2) - n,
            "limit": self.below(2 * n + 2),
            "start_step": self.below(5) - 2,
            "limit_step": self.below(5) - 2,
            "diagonal": self.below(2 * n) - n // 2,
            "diagonal_value": int(skewed(self.rng, (), 28)),
            "eps_low": int(skewed(self.rng, (), 28)) * self.below(2),
            "eps_high": int(skewed(self.rng, (), 28)) * (self.below(3) == 0),
        }
        operands["acc_addr"] = self.below(
            config.accumulators.depth - operands["acc_stride"] * (tiles - 1) - m + 1
        )
        known = DEFINITIONS[opcode].operands
        operands = {name: value for name, value in operands.items() if name in known}
        return Instruction(opcode, operands, frozenset(flags))


def run_case(
    config: Config, opcode: Opcode, seed: int, longest: int = 40
) -> tuple[Instruction, int]:
    """Run one random instruction on both machines; return it, and its cycles in microcode."""
    machine, rng = Interpreter(config), np.random.default_rng(seed)
    fill(machine, rng)
    instruction = Case(machine, opcode, rng, longest).instruction()
    return instruction, compare(machine, instruction, f"seed {seed}: {instruction}")


def compare(machine: Interpreter, instruction: Instruction, told: str = "") -> int:
    """Run an instruction on the golden machine and its twin; return the twin's cycles."""
    micro = twin(machine)
    words = pack([instruction, Instruction(Opcode.HALT)])
    machine.load_program(words)
    micro.load_program(words)
    expected, report = machine.start(), micro.start()
    differ = np.nonzero(machine.sp != np.frombuffer(bytes(micro.core.sp), np.uint8))[0]
    assert not differ.size, f"{told}, bytes {differ}"
    assert machine.acc.tolist() == micro.core.acc, told
    assert report.signatures == expected.signatures, told
    return report.cycles


VECTOR = (Opcode.DRAIN, Opcode.MAP, Opcode.SOFTMAX, Opcode.NORM)


@pytest.mark.parametrize(
    ("opcode", "flags", "most"),
    [
        (Opcode.DRAIN, "", 9),
        (Opcode.DRAIN, "wide_out", 9),
        (Opcode.DRAIN, "wide_out add", 14),
        (Opcode.DRAIN, "table", 15),
        (Opcode.MAP, "", 16),
        (Opcode.SOFTMAX, "per_tensor", 42),
        (Opcode.NORM, "", 30),
        (Opcode.NORM, "add write_sum", 38),
    ],
)
def test_cycles_of_a_value(opcode: Opcode, flags: str, most: int) -> None:
    cycles = []
    for n in (32, 96):
        machine = Interpreter(CONFIG)
        fill(machine, np.random.default_rng(3))
        machine.shift[:] = -9
        sizes = {"m": 1, "n": n, "acc_stride": 1, "limit": n, "o_addr": 8192, "s_addr": 12288}
        known = DEFINITIONS[opcode].operands
        operands = {name: value for name, value in sizes.items() if name in known}
        cycles.append(compare(machine, Instruction(opcode, operands, frozenset(flags.split()))))
    assert (cycles[1] - cycles[0]) / 64 <= most


def test_corners_of_requantization() -> None:
    low, high = -(1 << 31), (1 << 31) - 1
    corners = [low, low + 1, low >> 1, -1, 0, 1, 1 << 30, high - 1, high]
    factors = [(m, shift) for m in corners for shift in (-31, -30, -2, -1, 0, 1, 2, 30)]
    machine = Interpreter(CONFIG)
    machine.multiplier[: len(factors), 0], machine.shift[: len(factors), 0] = np.transpose(factors)
    rows = len(corners)
    machine.acc[:] = np.resize(corners, CONFIG.accumulators.depth)[:, None]
    sizes = {"m": rows, "n": len(factors), "acc_stride": rows, "o_stride": 2 * len(factors)}
    compare(machine, Instruction(Opcode.DRAIN, sizes, frozenset({"wide_out"})))


@pytest.mark.parametrize("opcode", VECTOR, ids=lambda opcode: opcode.name)
def test_instructions(opcode: Opcode) -> None:
    for seed in range(80):
        run_case(CONFIG, opcode, seed)


@pytest.mark.parametrize("opcode", VECTOR, ids=lambda opcode: opcode.name)
@pytest.mark.parametrize(
    "changes",
    [
        {"cols": 1, "rows": 1},
        {"cols": 7, "operand_width": 5},
        {"activation": False, "acc_width": 27},
        {"param_depth": 512, "max_row": 200},
        {"requantizer": False},
    ],
    ids=str,
)
def test_instructions_of_other_machines(changes: dict[str, int], opcode: Opcode) -> None:
    config = CONFIG.replace(**changes)
    for seed in range(1000, 1012):
        run_case(config, opcode, seed, longest=min(150, config.vector.longest_row))
