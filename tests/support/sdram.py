"""A model of an SDR SDRAM chip that watches every rule of its data sheet, cycle by cycle."""

from collections import deque

from arch.sdram import POSTPONED, SdramChip

_MODE, _REFRESH, _PRECHARGE, _ACTIVATE, _WRITE, _READ, _NOTHING = 0, 1, 2, 3, 4, 5, 7
_SLACK = 1e-6  # nanoseconds


class SdramModel:
    """A chip at its pins: it raises :class:`AssertionError` where a rule is broken.

    Times are looked at in nanoseconds, of a clock of ``clock`` Hz. Contents are bytes, those that
    were never written a hash of their address. ``counts`` says how often each command came.
    """

    def __init__(self, chip: SdramChip, clock: float):
        self.chip = chip
        self.period = 1e9 / clock
        self.memory: dict[int, int] = {}
        self.counts = dict.fromkeys(range(8), 0)
        self.cas: int | None = None
        self._now = 0
        self._open: dict[int, int] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._due: deque[tuple[int, int]] = deque()
        self._driven = -9
        self._refreshes = 0
        self._refreshed = 0
        self._started = 0

    def peek(self, addr: int) -> int:
        """Return a byte."""
        return self.memory.get(addr, untouched(addr))

    def step(self, pins: dict[str, int]) -> int | None:
        """Take the pins of one cycle; return what the chip drives in it, if anything."""
        answer = None
        if self._due and self._due[0][0] == self._now:
            answer = self._due.popleft()[1]
            self._driven = self._now
        if pins["dq_oe"]:
            assert self._now > self._driven + 1, "the data pins are driven from both sides"
        if pins["cke"] and not pins["cs_n"]:
            command = pins["ras_n"] << 2 | pins["cas_n"] << 1 | pins["we_n"]
            self.counts[command] += 1
            if command != _NOTHING:
                self._command(command, pins)
        self._check_refresh()
        self._now += 1
        return answer

    def _since(self, what: str, bank: int) -> float:
        before = self._last.get((what, bank))
        return float("inf") if before is None else (self._now - before) * self.period

    def _check(self, what: str, bank: int, least: float, rule: str) -> None:
        found = self._since(what, bank)
        assert found + _SLACK >= least, f"{rule}: {found:g} ns in bank {bank}, at least {least:g}"

    def _command(self, command: int, pins: dict[str, int]) -> None:
        chip, bank = self.chip, pins["ba"]
        if self._started == 0:
            least = chip.init_us * 1e3
            assert self._now * self.period >= least, "a command before the chip is awake"
            assert command == _PRECHARGE, "the first command closes all rows"
            self._started = 1
        self._check("refresh", 0, chip.rfc, "tRFC")
        self._check("mode", 0, chip.mrd * self.period, "tMRD")
        if command in (_ACTIVATE, _WRITE, _READ):
            assert self.cas is not None, "an access before the mode register is set"
        if command == _PRECHARGE:
            closed = range(1 << chip.bank_bits) if pins["a"] >> 10 & 1 else (bank,)
            for each in closed:
                if each in self._open:
                    self._check("activate", each, chip.ras, "tRAS")
                    self._check("write", each, chip.wr, "tWR")
                    del self._open[each]
                self._last["precharge", each] = self._now
        elif command == _ACTIVATE:
            assert bank not in self._open, f"bank {bank} has a row open"
            self._check("precharge", bank, chip.rp, "tRP")
            self._check("activate", bank, chip.rc, "tRC")
            for each in range(1 << chip.bank_bits):
                self._check("activate", each, chip.rrd, "tRRD")
            self._open[bank] = pins["a"]
            self._last["activate", bank] = self._now
        elif command in (_READ, _WRITE):
            self._access(command, pins)
        else:
            assert not self._open, "rows are open"
            for each in range(1 << chip.bank_bits):
                self._check("precharge", each, chip.rp, "tRP")
            if command == _REFRESH:
                self._refreshes += 1
                self._last["refresh", 0] = self._now
            else:
                assert self._refreshes >= 2, "too few refreshes before the mode register is set"
                assert pins["a"] & 0b111 == 0, "bursts are of one column"
                self.cas = pins["a"] >> 4 & 7
                clock = 1e3 / self.period
                slow = clock <= chip.cas_mhz + _SLACK
                assert self.cas == 3 or (self.cas == 2 and slow), "CAS latency"
                self._last["mode", 0] = self._now
                self._refreshed, self._refreshes = self._now, 0

    def _access(self, command: int, pins: dict[str, int]) -> None:
        chip, bank, col = self.chip, pins["ba"], pins["a"] & (1 << self.chip.col_bits) - 1
        assert bank in self._open, f"bank {bank} has no row open"
        assert not pins["a"] >> 10 & 1, "the row would be closed behind the access"
        self._check("activate", bank, chip.rcd, "tRCD")
        lanes = chip.data_width // 8
        place = (self._open[bank] << chip.bank_bits | bank) << chip.col_bits | col
        addrs = [place * lanes + lane for lane in range(lanes)]
        if command == _READ:
            assert not pins["dqm"], "a column that is read is masked"
            value = sum(self.peek(addr) << 8 * lane for lane, addr in enumerate(addrs))
            assert self.cas is not None
            self._due.append((self._now + self.cas, value))
            return
        assert pins["dq_oe"], "nobody drives what is written"
        for lane, addr in enumerate(addrs):
            if not pins["dqm"] >> lane & 1:
                self.memory[addr] = pins["dq_o"] >> 8 * lane & 0xFF
        self._last["write", bank] = self._now

    def _check_refresh(self) -> None:
        if self.cas is not None:
            rows = 1 << self.chip.row_bits
            passed = (self._now - self._refreshed) * self.period
            due = passed / (self.chip.refresh_ms * 1e6 / rows)
            late = due - self._refreshes
            assert late < POSTPONED + 1, f"{late:.1f} refreshes are late"


def untouched(addr: int) -> int:
    """Return the byte at an address that was never written."""
    return (addr * 2654435761 >> 8) & 0xFF
