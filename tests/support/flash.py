"""A model of an SPI flash that watches its data sheet's rules, cycle by cycle."""

import numpy as np

from arch.flash import BOARD_NS, READS, WAITED, WAKE, FlashChip

_SLACK = 1e-6  # nanoseconds
_NEVER = -1e12


class FlashModel:
    """A chip at its pins: it raises :class:`AssertionError` where a rule is broken.

    It is in power-down at first, and holds ``contents`` from address 0, 255 behind them. Times are
    those of ``chip`` and of a clock of ``clock`` Hz. ``quad`` is its bit QE. ``commands`` are those
    that came, each with its address. A line that nobody drives, and one of the chip's in the time
    until its data are valid and have come back, is a random bit.
    """

    def __init__(self, chip: FlashChip, clock: float, contents: bytes, *, quad: bool):
        self.chip = chip
        self.contents = contents
        self.commands: list[tuple[int, int]] = []
        self._quad = quad
        self._period = 1e9 / clock
        self._rng = np.random.default_rng(1)
        self._now = 0.0
        self._sck, self._cs_n = 0, 1
        self._rose = self._fell = self._selected = self._deselected = _NEVER
        self._asleep, self._awake = True, chip.power_us * 1e3
        self._bits: list[int] = []
        self._driven = 0  # lines
        self._value = 0
        self._changed = _NEVER

    def step(self, pins: dict[str, int]) -> int:
        """Take the pins of one cycle; return ``dq_i`` of it."""
        self._check_lines(pins)
        if not pins["cs_n"]:
            if self._cs_n:
                self._select()
            if pins["sck"] and not self._sck:
                self._rise(pins)
            if self._sck and not pins["sck"]:
                self._fall()
        elif not self._cs_n:
            self._deselect(pins)
        self._sck, self._cs_n = pins["sck"], pins["cs_n"]
        noise = int(self._rng.integers(16))
        steady = self._now - self._changed + _SLACK >= self.chip.valid + BOARD_NS - self._period
        self._now += self._period
        if not steady:
            return noise
        return self._value & self._driven | noise & ~self._driven

    def _check_lines(self, pins: dict[str, int]) -> None:
        assert not self._driven & pins["dq_oe"], "a data line is driven from both sides"
        single = not self._quad and not pins["cs_n"]
        assert not single or (pins["dq_o"] & pins["dq_oe"]) >> 2 == 3, "WP and HOLD are not 1"

    def _since(self, before: float, least: float, rule: str) -> None:
        found = self._now - before
        assert found + _SLACK >= least, f"{rule}: {found:g} ns, at least {least:g}"

    def _select(self) -> None:
        self._since(self._awake, 0, "a command before the chip is awake")
        self._since(self._deselected, self.chip.deselect, "tSHSL")
        assert not self._sck, "mode 0 begins with a low clock"
        self._selected, self._bits = self._now, []

    def _rise(self, pins: dict[str, int]) -> None:
        self._since(self._selected, self.chip.select, "tSLCH")
        self._since(self._fell, 0.45e3 / self.chip.max_mhz, "tCLL")
        self._since(self._rose, 1e3 / self.chip.max_mhz, "clock's period")
        self._rose = self._now
        self._bits.append(pins["dq_o"] & 1)
        if len(self._bits) <= 32:
            assert pins["dq_oe"] & 1, "nobody drives the command"
        if len(self._bits) == 8:
            code = self._number(0, 8)
            assert code == WAKE or not self._asleep, "a command in power-down"
            assert code in (WAKE, *READS.values()), f"command {code:#x}"
            assert code != READS[4] or self._quad, "four lanes without QE"

    def _fall(self) -> None:
        self._since(self._rose, 0.45e3 / self.chip.max_mhz, "tCLH")
        self._fell = self._now
        code = self._number(0, 8)
        place = len(self._bits) - 8 - 24 - WAITED
        if code == WAKE or place < 0:
            return
        lanes = 4 if code == READS[4] else 1
        addr = self._number(8, 24) + place * lanes // 8
        byte = self.contents[addr] if addr < len(self.contents) else 0xFF
        low = 8 - lanes - place * lanes % 8
        self._value = byte >> low << (0 if lanes == 4 else 1) & 0xF
        self._driven = 0xF if lanes == 4 else 0b0010
        self._changed = self._now

    def _deselect(self, pins: dict[str, int]) -> None:
        self._since(self._rose, self.chip.select, "tCHSH")
        assert not pins["sck"], "the clock is high at the end"
        assert len(self._bits) >= 8, "no command"
        code = self._number(0, 8)
        self.commands.append((code, self._number(8, 24) if len(self._bits) >= 32 else 0))
        if code == WAKE:
            self._asleep, self._awake = False, self._now + self.chip.wake_us * 1e3
        self._deselected, self._driven = self._now, 0

    def _number(self, low: int, count: int) -> int:
        return int("".join(map(str, self._bits[low : low + count])), 2)
