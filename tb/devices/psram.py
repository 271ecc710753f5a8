"""A model of a PSRAM chip with HyperBus, which checks the data sheet's rules in each half cycle."""

import numpy as np

from celosia.tb.devices.data_sheets import PsramSheet
from celosia.tb.devices.sdram import untouched

_SLACK = 1e-6  # nanoseconds
_NEVER = 1 << 30  # edges
_COMMAND = 3  # periods of the chip's clock that a command takes
_CONFIGURE = 0x6000_0100_0000  # the command that writes configuration register 0


class PsramModel:
    """A model of a PSRAM chip at its pins, which asserts the data sheet's rules.

    ``clock`` is the circuit's clock (Hz). The chip has ``dies`` dies, which get the same commands.
    The output bits in the mask ``wrong`` are inverted. If the chip's latency is variable, a random
    quarter of the commands has twice the latency.
    """

    def __init__(
        self, sheet: PsramSheet, clock: float, seed: int = 1, *, dies: int = 1, wrong: int = 0
    ):
        self.sheet, self.dies, self._wrong = sheet, dies, wrong
        self.half = 5e8 / clock
        self.memory: dict[int, int] = {}
        self.counts = {"reads": 0, "writes": 0, "collisions": 0}
        """Numbers of reads, writes, and ``collisions``: commands with twice the latency, as in a
        refresh."""
        (self.latency, self._max_mhz), self.fixed = self._latency(0b0001), True
        self._rng = np.random.default_rng(seed)
        self._time = 0.0
        self._pins: dict[str, int] = {}
        self._changed = dict.fromkeys(("reset_n", "dq_o", "rwds_o", "cs_n", "ck"), -1e9)
        self._awake = float("inf")
        self._raised = -1e9
        self._edges = -1
        self._command = 0
        self._begin = _NEVER
        self._place = 0
        self._twice = False
        self._rwds: int | None = None
        self._dq: int | None = None
        self._coming: tuple[int, int] | None = None

    def peek(self, addr: int) -> int:
        """Return the byte that the modelled chip holds at an address."""
        return self.memory.get(addr, untouched(addr))

    def step(self, pins: dict[str, int]) -> tuple[int, int]:
        """Run half a clock cycle, and return the levels of the lines DQ and RWDS.

        ``pins`` is a dictionary from pin name to the level that the circuit drives. Data arrive
        half a cycle after the clock edge. Levels of lines that the chip does not drive are random.
        """
        before, self._pins = self._pins or pins, pins
        if self._coming is not None:
            self._dq, self._rwds = self._coming
            self._coming = None
        for name in ("dq", "rwds"):
            both = (pins[f"{name}_oe"], pins[f"{name}_o"])
            if both != (before[f"{name}_oe"], before[f"{name}_o"]):
                held = pins["cs_n"] or self._since("ck") + _SLACK >= self.sheet.hold
                assert held, f"tIH of {name}"
                self._changed[f"{name}_o"] = self._time
        assert pins["ck_n"] == 1 - pins["ck"], "CK# is not CK's complement"
        if pins["reset_n"] != before["reset_n"] or self._time == 0:
            self._reset(pins["reset_n"])
        if pins["cs_n"] != before["cs_n"]:
            assert not pins["ck"], "CS# changes while CK is high"
            if pins["cs_n"]:
                self._end()
            else:
                self._start()
            self._changed["cs_n"] = self._time
        if pins["ck"] != before["ck"]:
            assert not pins["cs_n"], "an edge of CK without a command"
            self._edge(pins)
            self._changed["ck"] = self._time
        if not pins["cs_n"]:
            low = self._time - self._changed["cs_n"]
            assert low <= self.sheet.csm * 1e3 + _SLACK, f"tCSM: {low:g} ns"
        for name, driven in (("dq", self._dq), ("rwds", self._rwds)):
            both = driven is not None and pins[f"{name}_oe"]
            assert not both, f"the pins of {name} are driven from both sides"
        self._time += self.half
        return self._driven(self._dq, 8 * self.dies), self._driven(self._rwds, self.dies)

    def _driven(self, value: int | None, width: int) -> int:
        """Return the level of lines: random if the chip does not drive them, or not yet."""
        noise = int(self._rng.integers(1 << width))
        return noise if value is None or self._coming else value

    def _since(self, event: str) -> float:
        return self._time - self._changed[event]

    def _reset(self, high: int) -> None:
        if high:
            low = self._since("reset_n") if self._time else 0.0
            assert low + _SLACK >= self.sheet.rp, f"tRP: {low:g} ns"
            self._awake = self._time + self.sheet.vcs * 1e3
        self._changed["reset_n"] = self._time

    def _start(self) -> None:
        assert self._time + _SLACK >= self._awake, "a command before the chip is awake (tVCS)"
        high = self._since("cs_n")
        assert high + _SLACK >= self.sheet.cshi, f"tCSHI: {high:g} ns"
        assert high + _SLACK >= self.sheet.rwr, f"tRWR: {high:g} ns"
        self._edges, self._command = 0, 0
        self._twice = self.fixed or self._rng.random() < 0.25
        self.counts["collisions"] += self._twice
        self._rwds = (1 << self.dies) - 1 if self._twice else 0

    def _end(self) -> None:
        held = self._since("ck")
        assert held + _SLACK >= self.sheet.csh, f"tCSH: {held:g} ns"
        moved = self._edges - self._begin
        assert moved > 0, "CS# rises before data moved"
        assert moved % 2 == 0, "CS# rises within a column"
        assert self._coming is None, "CS# rises before the last data came"
        self._edges, self._dq, self._rwds, self._begin = -1, None, None, _NEVER

    def _edge(self, pins: dict[str, int]) -> None:
        edge, sheet = self._edges, self.sheet
        self._edges += 1
        assert pins["ck"] == 1 - edge % 2, "CK's first edge is none that rises"
        if edge == 0:
            assert self._since("cs_n") + _SLACK >= sheet.css, "tCSS"
        else:
            period = 2 * self._since("ck")
            assert abs(self._since("ck") - 2 * self.half) < _SLACK, "CK is not even"
            assert period + _SLACK >= 1e3 / self._max_mhz, f"tCK: {period:g} ns"
            assert period <= sheet.ck_max + _SLACK, f"tCK: {period:g} ns"
        if edge < 2 * _COMMAND:
            byte = self._taken("dq", pins) & 0xFF
            every = byte * (((1 << 8 * self.dies) - 1) // 0xFF)
            assert pins["dq_o"] == every, "the dies get different commands"
            self._command = self._command << 8 | byte
            if edge == 2 * _COMMAND - 1:
                self._decode()
        elif self._command >> 46 & 1:
            self._configure(edge - self._begin, pins)
        elif edge >= self._begin:
            self._move(edge - self._begin, pins)
        elif edge == self._begin - 1 and not self._command >> 47:
            assert pins["rwds_oe"], "RWDS is not driven before the data"
            assert self._taken("rwds", pins) == 0, "RWDS is not low before the data"

    def _taken(self, name: str, pins: dict[str, int]) -> int:
        """Return the machine's level at an edge, after a check of its setup time."""
        assert pins[f"{name}_oe"], f"nobody drives {name}"
        assert self._since(f"{name}_o") + _SLACK >= self.sheet.setup, f"tIS of {name}"
        return pins[f"{name}_o"]

    def _decode(self) -> None:
        command, sheet = self._command, self.sheet
        if command >> 46 & 1:
            assert command == _CONFIGURE, "a register that is not known"
            self._begin, self._rwds = 2 * _COMMAND, None
            return
        places = sheet.rows * sheet.columns - 1
        used = 0b111 << 45 | places >> 3 << 16 | places & 7
        assert not command & ~used, "bits of the command that are reserved, or past the chip's end"
        assert command >> 45 & 1, "the burst wraps"
        reads = command >> 47
        self._place = command >> 16 << 3 & places | command & 7
        period = 4 * self.half
        assert self.latency * period + _SLACK >= sheet.acc, "tACC"
        self._begin = 2 * (_COMMAND - 1 + (1 + self._twice) * self.latency)
        self._rwds = 0 if reads else None
        self.counts["reads" if reads else "writes"] += 1

    def _configure(self, place: int, pins: dict[str, int]) -> None:
        """Accept a byte of configuration register 0."""
        assert not pins["rwds_oe"], "RWDS is driven while a register is written"
        byte = self._taken("dq", pins) & 0xFF
        assert place < 2, "more than a register's two bytes"
        if place == 0:
            assert byte == 0x8F, "the chip is put to sleep, or bits that are reserved"
            return
        self.latency, self._max_mhz = self._latency(byte >> 4)
        self.fixed = bool(byte >> 3 & 1)
        assert self.fixed or self.dies == 1, "dies side by side do not move in step"

    def _latency(self, code: int) -> tuple[int, float]:
        """Return the periods of a latency's code, and the highest clock with it (MHz)."""
        name = f"0b{code:04b}"
        assert name in self.sheet.latency, "a latency that the chip has not"
        periods, mhz = self.sheet.latency[name]
        return int(periods), mhz

    def _move(self, edge: int, pins: dict[str, int]) -> None:
        """Move a byte of each die."""
        sheet, column = self.sheet, self._place + edge // 2
        row = self._place // sheet.columns
        assert column // sheet.columns == row, "the burst leaves its row"
        addrs = [(2 * column + edge % 2) * self.dies + die for die in range(self.dies)]
        if self._command >> 47:
            value = sum(self.peek(addr) << 8 * die for die, addr in enumerate(addrs)) ^ self._wrong
            strobe = 0 if edge % 2 else (1 << self.dies) - 1
            self._dq, self._coming = value, (value, strobe)
            assert 2 * self.half + _SLACK >= sheet.ckd, "tCKD"
            return
        data, mask = self._taken("dq", pins), self._taken("rwds", pins)
        for die, addr in enumerate(addrs):
            if not mask >> die & 1:
                self.memory[addr] = data >> 8 * die & 0xFF
