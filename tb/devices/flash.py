"""A model of an SPI flash chip that checks the data sheet's rules and may start in any mode."""

from dataclasses import dataclass

import numpy as np

from celosia.tb.devices.data_sheets import FlashSheet

_SLACK = 1e-6  # nanoseconds
_NEVER = -1e12
_WAKE, _SLEEP, _RESET_ENABLE, _RESET, _ENTER_4BYTE = 0xAB, 0xB9, 0x66, 0x99, 0xB7
_READ, _READ_QUAD = 0x0B, 0x6B
_DUMMY = 8  # clocks of both


@dataclass
class FlashModes:
    """Operating modes of a flash chip, such as power-down, in which the chip's model starts.

    Earlier commands to the chip may have set these modes before the machine starts.
    """

    asleep: bool = False
    """True if the chip is in power-down."""
    four_bytes: bool = False
    """True if addresses have four bytes; otherwise they have three."""
    continuous: int = 0
    """2 or 4 if the chip expects an address without a command, on 2 or 4 data lines; otherwise 0.
    """
    commands: int = 1
    """Number of data lines for commands."""
    upper: int = 0
    """Bits 24 to 31 of the address, for addresses of three bytes."""
    dummy: int = _DUMMY
    """Clocks between address and data."""
    four_at_power_on: bool = False
    """Value of ``four_bytes`` after a reset of the chip, which sets other modes to their defaults.
    """


class FlashModel:
    """A model of an SPI flash chip at its pins, which asserts the data sheet's rules.

    ``clock`` is the circuit's clock (Hz). ``way`` is the delay of the wires to the chip and back
    (ns). ``quad`` is the chip's bit QE. The bytes after ``contents`` are 255. The bits in the mask
    ``wrong`` are inverted in each byte.
    """

    def __init__(
        self,
        sheet: FlashSheet,
        clock: float,
        contents: bytes,
        *,
        quad: bool,
        way: float,
        modes: FlashModes | None = None,
        wrong: int = 0,
    ):
        self.sheet = sheet
        self.contents = contents
        self.commands: list[tuple[int, int]] = []
        """Received commands, pairs (command code, address)."""
        self.modes = modes or FlashModes(asleep=True)
        self._quad, self._way, self._wrong = quad, way, wrong
        self._period = 1e9 / clock
        self._rng = np.random.default_rng(1)
        self._now = 0.0
        self._sck, self._cs_n = 0, 1
        self._rose = self._fell = self._selected = self._deselected = _NEVER
        self._awake = sheet.vsl * 1e3
        self._enabled = False  # the command before was RESET_ENABLE
        self._clocks: list[int] = []
        self._code = -1
        self._driven = 0  # lines
        self._value = 0
        self._changed = _NEVER

    def step(self, pins: dict[str, int]) -> int:
        """Run one cycle; return the circuit's input ``dq_i``, with one bit for each data line.

        ``pins`` is a dictionary from pin name to the level that the circuit drives. A data line
        that is not driven, or whose new level has not arrived, is a random bit.
        """
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
        steady = self._now - self._changed + _SLACK >= self.sheet.clqv + self._way - self._period
        self._now += self._period
        if not steady:
            return noise
        return self._value & self._driven | noise & ~self._driven

    def _check_lines(self, pins: dict[str, int]) -> None:
        assert not self._driven & pins["dq_oe"], "a data line is driven from both sides"
        single = not self._quad and not pins["cs_n"]
        assert not single or (pins["dq_o"] & pins["dq_oe"]) >> 2 == 3, "WP and HOLD are not 1"

    def _since(self, before: float, least: float, rule: str) -> None:
        elapsed = self._now - before
        assert elapsed + _SLACK >= least, f"{rule}: {elapsed:g} ns, at least {least:g}"

    def _select(self) -> None:
        self._since(self._awake, 0, "a command before the chip is awake")
        self._since(self._deselected, self.sheet.shsl, "tSHSL")
        assert not self._sck, "mode 0 begins with a low clock"
        # An address without a command is one of the read on as many lines.
        self._code = 0xBB if self.modes.continuous == 2 else 0xEB if self.modes.continuous else -1
        self._selected, self._clocks = self._now, []

    def _rise(self, pins: dict[str, int]) -> None:
        self._since(self._selected, self.sheet.slch, "tSLCH")
        self._since(self._fell, 0.45e3 / self.sheet.frequency, "tCLL")
        self._since(self._rose, 1e3 / self.sheet.frequency, "clock's period")
        self._rose = self._now
        noise = int(self._rng.integers(16))
        self._clocks.append(pins["dq_o"] & pins["dq_oe"] | noise & ~pins["dq_oe"])
        if self.modes.continuous:
            self._continue()
            return
        lines = self.modes.commands
        if len(self._clocks) == 8 // lines:
            self._code = self._number(0, 8, lines)
            reads = (_READ, _READ_QUAD)
            assert not (self.modes.asleep and self._code in reads), "a command in power-down"
            assert self._code != _READ_QUAD or self._quad, "four lanes without QE"
        if len(self._clocks) <= 8 + self._addr_width:
            assert pins["dq_oe"] & 1, "nobody drives the command"

    @property
    def _addr_width(self) -> int:
        return 32 if self.modes.four_bytes else 24

    def _continue(self) -> None:
        """Handle a clock of a read without a command, whose mode bits follow its address."""
        lines = self.modes.continuous
        if len(self._clocks) == (self._addr_width + 8) // lines:
            bits = self._number(self._addr_width, 8, lines)
            # Winbond's chips look at two bits, ISSI's and Puya's at four.
            goes_on = bits >> 4 & 3 == 0b10
            self.modes.continuous = lines if goes_on else 0

    def _fall(self) -> None:
        self._since(self._rose, 0.45e3 / self.sheet.frequency, "tCLH")
        self._fell = self._now
        if self._code in (0xBB, 0xEB):
            # Data follow mode bits on two lines, and four clocks of waiting on four lines. Winbond
            # has hosts end this mode with as many clocks, so that their last fall does no harm.
            lines = 2 if self._code == 0xBB else 4
            if len(self._clocks) > (self._addr_width + 8) // lines + (0, 4)[lines == 4]:
                self._drive(int(self._rng.integers(16)), 0b11 if lines == 2 else 0b1111)
            return
        if self._code not in (_READ, _READ_QUAD) or self.modes.asleep:
            return
        place = len(self._clocks) - 8 - self._addr_width - self.modes.dummy
        if place < 0:
            return
        lanes = 4 if self._code == _READ_QUAD else 1
        addr = self._number(8, self._addr_width, 1) + place * lanes // 8
        if not self.modes.four_bytes:
            addr |= self.modes.upper << 24
        addr %= self.sheet.size
        byte = (self.contents[addr] if addr < len(self.contents) else 0xFF) ^ self._wrong
        low = 8 - lanes - place * lanes % 8
        self._drive(byte >> low << (0 if lanes == 4 else 1) & 0xF, 0xF if lanes == 4 else 0b0010)

    def _drive(self, value: int, lines: int) -> None:
        self._value, self._driven, self._changed = value, lines, self._now

    def _deselect(self, pins: dict[str, int]) -> None:
        self._since(self._rose, self.sheet.chsh, "tCHSH")
        assert not pins["sck"], "the clock is high at the end"
        assert self._clocks, "no command"
        self._deselected, self._driven = self._now, 0
        if self._code < 0 or self._code in (0xBB, 0xEB):
            return  # less than a command, or a read without one
        # A command alone is carried out where it ends with its last bit.
        whole = len(self._clocks) == 8 // self.modes.commands
        long = len(self._clocks) >= 8 + self._addr_width and self.modes.commands == 1
        addr = self._number(8, self._addr_width, 1) if long else 0
        self.commands.append((self._code, addr))
        if whole:
            self._carry_out(self._code)
        self._enabled = whole and self._code == _RESET_ENABLE and not self.modes.asleep

    def _carry_out(self, code: int) -> None:
        modes = self.modes
        if code == _WAKE:
            modes.asleep, self._awake = False, self._now + self.sheet.res1 * 1e3
        elif modes.asleep:
            return
        elif code == _RESET and self._enabled:
            self.modes = FlashModes(
                four_bytes=modes.four_at_power_on, four_at_power_on=modes.four_at_power_on
            )
            self._awake = self._now + self.sheet.rst * 1e3
        elif code == _ENTER_4BYTE:
            modes.four_bytes = True
        elif code == self.sheet.exit_4byte:
            modes.four_bytes = False
        elif code == _SLEEP:
            modes.asleep = True
        else:
            known = (_RESET_ENABLE, _RESET, 0xFF)  # the last is none, and does nothing
            assert code in known or modes.commands == 4, f"command {code:#x}"

    def _number(self, low: int, count: int, lines: int) -> int:
        """Return received bits as a number: each clock's on ``lines``, the highest first."""
        text = "".join(f"{clock & (1 << lines) - 1:0{lines}b}" for clock in self._clocks)
        return int(text[low : low + count], 2)
