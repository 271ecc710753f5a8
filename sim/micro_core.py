"""Golden model of the microcoded machine's core, with its memories and its array."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.micro.isa import (
    IMMEDIATE_WIDTH,
    MULTIPLY_CYCLES,
    OPERATIONS,
    REGISTERS,
    SCALE_CYCLES,
    SUM_CYCLES,
    Form,
    Signal,
)
from celosia.arch.micro.memory import memory_map
from celosia.sim.micro_decode import Micro, decode, signed

_WORD = (1 << 32) - 1


class MicroCore:
    """The core of the microcoded machine, which runs one micro-instruction at a time.

    ``address`` is the address of the next micro-instruction. ``cycles`` leaves out waits for
    external memory. ``registers`` and ``data`` hold unsigned 32-bit words; ``sp`` (scratchpad) and
    ``dram`` hold bytes. All are 0 at first.
    """

    def __init__(self, config: Config, microcode: Sequence[int]):
        self.config = config
        self.microcode = list(microcode)
        self._decoded: dict[int, Micro] = {}
        self.registers = [0] * REGISTERS
        self.sp = bytearray(config.scratchpad.bytes)
        self.data = [0] * memory_map(config).end
        self.dram: NDArray[np.uint8] = np.zeros(1 << config.memory.addr_width, np.uint8)
        self.address = 0
        self.cycles = 0
        self.running = False
        self.pc = 0
        """The host's PC, which START takes."""
        self.on_write: Callable[[int, int], None] | None = None
        """Called with address and value of each byte that is written to the scratchpad."""
        self.on_signal: Callable[[Signal], None] | None = None
        """Called with each event that the microcode reports."""
        self._product = 0
        self._product_at = 0
        self._limits = (0, 0, 0)
        self._moves_on = False
        """True if SCALE advances to the next parameters."""
        self._waiting: list[tuple[int, int]] = []
        """Requantized values that have not been taken, and the cycles from which they can be."""
        self.acc = [[0] * config.array.cols for _ in range(config.accumulators.depth)]
        """The array's accumulators, signed."""
        self._columns = config.array.cols + config.array.cols % 2
        self._held = [[0] * self._columns for _ in range(config.array.rows)]
        self._activations = [0] * config.array.rows
        self._weight_at = self._activation_at = self._row_at = 0
        self._times = 1
        self._taken: list[int] = []
        self._entered_at = -SUM_CYCLES - 1
        self._asked: list[int] = []
        self._offered: list[int] = []
        self._run: dict[str, Callable[[Micro, int, int], None]] = {
            name: getattr(self, f"_{name.lower()}")
            for name in OPERATIONS
            if name not in _ALU and name not in _BRANCHES
        }

    def step(self) -> None:
        """Run the micro-instruction at ``address``, and set ``address`` to that of the next one."""
        if self.address not in self._decoded:
            self._decoded[self.address] = decode(self.microcode[self.address])
        micro = self._decoded[self.address]
        a, b = self.registers[micro.ra], self.registers[micro.rb]
        self.address += 1
        name = micro.name
        if name in _ALU:
            if OPERATIONS[name].form == Form.IMMEDIATE:
                b = micro.value & _WORD
            self._set(micro.rd, _ALU[name](a, b))
        elif name in _BRANCHES:
            self._to(micro, _BRANCHES[name](a, b))
        else:
            self._run[name](micro, a, b)
        self.cycles += 1 + OPERATIONS[name].more

    def run(self, until: int, limit: int = 10_000_000) -> None:
        """Run until the next micro-instruction is at address ``until``.

        Raises :class:`RunError` if the core runs ``limit`` micro-instructions without reaching
        ``until``.
        """
        for _ in range(limit):
            if self.address == until:
                return
            self.step()
        raise RunError(f"Microcode did not come to {until} within {limit} steps")

    def call(self, address: int, link: int) -> None:
        """Run the microcode routine that begins at ``address``, until it returns.

        The method stores a return address in the core's register of number ``link``. The routine
        must end with a jump to this return address.
        """
        until = len(self.microcode)
        self.registers[link], self.address = until, address
        self.run(until)

    def start(self, pc: int) -> None:
        """Let the next :meth:`step` start a run of the program at word address ``pc``.

        The next micro-instruction must be START, at which the core waits between runs.
        """
        self.running, self.pc = True, pc

    def _set(self, number: int, value: int) -> None:
        if number:
            self.registers[number] = value & _WORD

    def _byte(self, address: int) -> int:
        return self.sp[address % len(self.sp)]

    def _write(self, address: int, value: int) -> None:
        self.sp[address % len(self.sp)] = value & 0xFF
        if self.on_write is not None:
            self.on_write(address % len(self.sp), value & 0xFF)

    # Loads and stores.

    def _load(self, micro: Micro, address: int) -> None:
        kind = micro.name.removesuffix("P")
        if kind == "LD":
            if address == self.config.control.program_depth:
                raise RunError("The program counter left the program memory")
            value = self.data[address]
        elif kind == "LB":
            value = self._byte(address)
        else:
            value = self._byte(address) | self._byte(address + 1) << 8
            self.cycles += address % 2
        if kind in ("LB", "LH"):
            value = signed(value, 8 if kind == "LB" else 16)
        self._set(micro.rd, value)

    def _lb(self, micro: Micro, a: int, _b: int) -> None:
        self._load(micro, signed(a + micro.value))

    def _lbp(self, micro: Micro, a: int, _b: int) -> None:
        self._set(micro.ra, a + micro.value)
        self._load(micro, signed(a))

    _lh = _lhu = _ld = _lb
    _lhp = _lhup = _ldp = _lbp

    def _store(self, micro: Micro, address: int, b: int) -> None:
        kind = micro.name.removesuffix("P")
        if kind == "ST":
            self.data[address] = b
        else:
            self._write(address, b)
        if kind == "SH":
            self._write(address + 1, b >> 8)
            self.cycles += address % 2

    def _st(self, micro: Micro, a: int, b: int) -> None:
        self._store(micro, signed(a + micro.value), b)

    def _sbp(self, micro: Micro, a: int, b: int) -> None:
        self._store(micro, signed(a), b)
        self._set(micro.ra, a + micro.value)

    _shp = _stp = _sbp

    def _lc(self, micro: Micro, a: int, _b: int) -> None:
        self._set(micro.rd, self.microcode[(a + micro.value) % (1 << IMMEDIATE_WIDTH)])

    # Products.

    def _mul(self, _micro: Micro, a: int, b: int) -> None:
        self._leave_multiplier()
        self._product = signed(a) * signed(b)
        self._product_at = self.cycles + MULTIPLY_CYCLES

    def _bounds(self, _micro: Micro, a: int, b: int) -> None:
        self._limits = (signed(a, 16), signed(a >> 16, 16), signed(b, 16))
        self._moves_on = bool((b >> 16 ^ b >> 15) & 1)

    def _scale(self, micro: Micro, a: int, b: int) -> None:
        assert len(self._waiting) < 2, "two requantized values have not been taken"
        self._leave_multiplier()
        bias, factor, shift = (signed(self.data[a + place]) for place in range(3))
        low, high, zero = self._limits
        value = (signed((b + bias) << max(shift, 0)) * factor + (1 << 30)) >> 31
        if shift < 0:
            value = (((value - (value < 0)) >> (-shift - 1)) + 1) >> 1
        delay = shift + 1 if shift > 0 else 0
        ready = self.cycles + SCALE_CYCLES + delay
        self._waiting.append((min(max(value + zero, low), high), ready))
        if self._moves_on:
            self._set(micro.ra, a + micro.value)

    def _scalesum(self, micro: Micro, a: int, _b: int) -> None:
        self._scale(micro, a, self._taken.pop(0))

    def _leave_multiplier(self) -> None:
        """Wait until the previous value has left the left shifter."""
        if self._waiting:
            self.cycles = max(self.cycles, self._waiting[-1][1] - SCALE_CYCLES + 4)

    def _scaled(self, micro: Micro, _a: int, _b: int) -> None:
        self._set(micro.rd, self._oldest())

    def _scaledb(self, micro: Micro, a: int, _b: int) -> None:
        self._write(signed(a), self._oldest())
        self._set(micro.ra, a + micro.value)

    def _oldest(self) -> int:
        """Wait for the oldest requantized value and return it."""
        value, ready = self._waiting.pop(0)
        self.cycles = max(self.cycles, ready)
        behind = self._waiting[0][1] if self._waiting else self.cycles + 1
        assert self.cycles < behind, "the next value has replaced this one"
        return value

    def _low(self, micro: Micro, _a: int, _b: int) -> None:
        self.cycles = max(self.cycles, self._product_at)
        self._set(micro.rd, self._product)

    def _middle(self, micro: Micro, _a: int, _b: int) -> None:
        self.cycles = max(self.cycles, self._product_at)
        self._set(micro.rd, self._product >> 31)

    # Control.

    def _to(self, micro: Micro, jumps: bool) -> None:
        if jumps:
            self.address = micro.value
            self.cycles += 1

    def _loop(self, micro: Micro, a: int, _b: int) -> None:
        self._set(micro.ra, a - 1)
        self._to(micro, (a - 1) & _WORD != 0)

    def _jump(self, micro: Micro, a: int, _b: int) -> None:
        self._set(micro.rd, self.address)
        self.address = (a + micro.value) % (1 << IMMEDIATE_WIDTH)

    def _put(self, _micro: Micro, a: int, b: int) -> None:
        self._set(a % REGISTERS, b)

    def _signal(self, micro: Micro, _a: int, _b: int) -> None:
        if self.on_signal is not None:
            self.on_signal(Signal(micro.value))

    def _start(self, micro: Micro, _a: int, _b: int) -> None:
        if self.running:
            self.running = False
            self._set(micro.rd, self.pc)
        else:
            self.address -= 1

    # The array.

    def _next_weight(self, value: int) -> None:
        row, column = divmod(self._weight_at, self._columns)
        self._held[row][column] = value
        self._weight_at = (self._weight_at + 1) % (self._columns * self.config.array.rows)

    def _operand(self, address: int) -> int:
        return signed(self._byte(signed(address)), self.config.array.operand_width)

    def _weight(self, micro: Micro, a: int, b: int) -> None:
        self._next_weight(self._operand(a))
        self._set(micro.ra, a + b)

    def _weights(self, micro: Micro, a: int, b: int) -> None:
        assert a % 2 == 0, "two weights from an odd address on"
        self._next_weight(self._operand(a))
        self._next_weight(self._operand(a + 1))
        self._set(micro.ra, a + b)

    def _blank(self, _micro: Micro, _a: int, _b: int) -> None:
        self._next_weight(0)

    def _enter(self, micro: Micro, a: int, b: int) -> None:
        self._next_activation(self._operand(a))
        self._set(micro.ra, a + b)

    def _next_activation(self, value: int) -> None:
        self._activations[self._activation_at] = value
        self._activation_at = (self._activation_at + 1) % self.config.array.rows
        self._entered_at = self.cycles
        if self._activation_at:
            return
        assert not self._weight_at, "weights are not complete"
        acc = self.acc[self._row_at % len(self.acc)]
        self._row_at += 1
        for column in range(self.config.array.cols):
            for row, x in zip(self._held, self._activations, strict=True):
                acc[column] += row[column] * x
            acc[column] = signed(acc[column], self.config.accumulators.width)

    def _repeat(self, _micro: Micro, a: int, b: int) -> None:
        self._times, self._row_at = b, a

    def _again(self) -> range:
        """Return the repetitions of an operation; each takes one cycle."""
        self.cycles += self._times - 1
        return range(self._times)

    def _enters(self, micro: Micro, a: int, b: int) -> None:
        assert a % 2 == b % 2 == 0, "two activations from an odd address on"
        for _ in self._again():
            self._next_activation(self._operand(a))
            self._next_activation(self._operand(a + 1))
            a += b
        self._set(micro.ra, a)

    def _sums(self, micro: Micro, a: int, b: int) -> None:
        assert self.cycles - self._entered_at > SUM_CYCLES, "a sum was taken too early"
        assert not self._activation_at, "activations are not complete"
        row = a % len(self.acc)
        self._taken, self.acc[row] = self.acc[row], [0] * self.config.array.cols
        self._set(micro.ra, a + b)

    def _sum(self, micro: Micro, _a: int, _b: int) -> None:
        self._set(micro.rd, self._taken.pop(0))

    # External memory; its port has mem_addr_width bits of an address.

    def _burst(self, a: int, b: int) -> list[int]:
        step, size = self.config.mem_bytes, len(self.dram)
        return [(a + step * word) % size for word in range(b % 256 + 1)]

    def _ask(self, _micro: Micro, a: int, b: int) -> None:
        self._asked += self._burst(a, b)

    def _take(self, micro: Micro, _a: int, _b: int) -> None:
        address = self._asked.pop(0)
        data = self.dram[address : address + self.config.mem_bytes].tobytes()
        self._set(micro.rd, int.from_bytes(data, "little"))

    def _takes(self, micro: Micro, a: int, b: int) -> None:
        assert a % 2 == 0, "two bytes to an odd address"
        for _ in self._again():
            address = self._asked.pop(0)
            for byte in range(2):
                self._write(signed(a) + byte, int(self.dram[address + byte]))
            a += b
        self._set(micro.ra, a)

    def _offer(self, _micro: Micro, a: int, b: int) -> None:
        self._offered += self._burst(a, b)

    def _give(self, _micro: Micro, a: int, b: int) -> None:
        address = self._offered.pop(0)
        for byte in range(self.config.mem_bytes):
            if b >> byte & 1:
                self.dram[address + byte] = a >> 8 * byte & 0xFF

    def _await(self, _micro: Micro, _a: int, _b: int) -> None:
        assert not self._offered, "words that were offered have not been given"


_ALU: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "MIN": lambda a, b: min(signed(a), signed(b)),
    "MAX": lambda a, b: max(signed(a), signed(b)),
    "SLTI": lambda a, b: int(signed(a) < signed(b)),
    "SLTU": lambda a, b: int(a < b),
    "SLL": lambda a, b: a << b % 32,
    "SRL": lambda a, b: a >> b % 32,
    "SRA": lambda a, b: signed(a) >> b % 32,
}
_ALU |= {f"{name}I": function for name, function in _ALU.items() if name != "SLTI"}
_BRANCHES: dict[str, Callable[[int, int], bool]] = {
    "BEQ": lambda a, b: a == b,
    "BNE": lambda a, b: a != b,
    "BLT": lambda a, b: signed(a) < signed(b),
    "BGE": lambda a, b: signed(a) >= signed(b),
    "BGEU": lambda a, b: a >= b,
}
