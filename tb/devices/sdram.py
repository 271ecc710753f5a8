"""A model of an SDR SDRAM chip, which checks the data sheet's rules in every cycle."""

from collections import deque

from celosia.tb.devices.data_sheets import SdramSheet

_MODE, _REFRESH, _PRECHARGE, _ACTIVATE, _WRITE, _READ, _NOTHING = 0, 1, 2, 3, 4, 5, 7
_SLACK = 1e-6  # nanoseconds


class SdramModel:
    """A model of an SDR SDRAM chip at its pins, which asserts the data sheet's rules.

    ``clock`` is the clock frequency (Hz). Two arguments model a broken chip: data of a READ come
    ``late`` cycles too late, and the output bits in the mask ``wrong`` are inverted.
    """

    def __init__(self, sheet: SdramSheet, clock: float, *, late: int = 0, wrong: int = 0):
        self.sheet = sheet
        self.period = 1e9 / clock
        self.memory: dict[int, int] = {}
        self.counts = dict.fromkeys(range(8), 0)
        """Number of received commands, by command code."""
        self.cas: int | None = None
        self._late, self._wrong = late, wrong
        self._now = 0
        self._open: dict[int, int] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._due: deque[tuple[int, int]] = deque()
        self._driven = -9
        self._refreshes = 0
        self._refreshed = 0
        self._last_refresh = 0
        self._started = 0

    @property
    def now(self) -> int:
        """Number of clock cycles since power-on."""
        return self._now

    def peek(self, addr: int) -> int:
        """Return the byte that the modelled chip holds at an address."""
        return self.memory.get(addr, untouched(addr))

    def step(self, pins: dict[str, int]) -> int | None:
        """Run one cycle; ``pins`` is a dictionary from pin name to the level driven by the circuit.

        Return the word that the chip drives on the data pins, or None if it drives no word.
        """
        answer = None
        if self._due and self._due[0][0] == self._now:
            answer = self._due.popleft()[1] ^ self._wrong
            self._driven = self._now
        if pins["dq_oe"]:
            # A cycle stays free between both, in which neither side drives.
            assert self._now > self._driven + 1, "the data pins are driven from both sides"
            assert not self._due or self._due[0][0] > self._now, "a READ's data are written over"
        if pins["cke"] and not pins["cs_n"]:
            command = pins["ras_n"] << 2 | pins["cas_n"] << 1 | pins["we_n"]
            self.counts[command] += 1
            if command != _NOTHING:
                self._command(command, pins)
        self._check_refresh()
        self._now += 1
        return answer

    def _since(self, command: str, bank: int) -> float:
        before = self._last.get((command, bank))
        return float("inf") if before is None else (self._now - before) * self.period

    def _check(self, command: str, bank: int, rule: str) -> None:
        """Check the time since a command to a bank against the data sheet's ``rule``."""
        elapsed, least = self._since(command, bank), getattr(self.sheet, rule[1:].lower())
        assert elapsed + _SLACK >= least.at(self.period), (
            f"{rule}: {elapsed:g} ns in bank {bank}, at least {least.at(self.period):g}"
        )

    def _command(self, command: int, pins: dict[str, int]) -> None:
        sheet, bank = self.sheet, pins["ba"]
        if self._started == 0:
            least = sheet.power * 1e3
            assert self._now * self.period + _SLACK >= least, "a command before the chip is awake"
            assert command == _PRECHARGE, "the first command closes all rows"
            assert pins["a"] >> 10 & 1, "the first command closes all rows"
            self._started = 1
        self._check("refresh", 0, "tRFC")
        self._check("mode", 0, "tMRD")
        if command in (_ACTIVATE, _WRITE, _READ):
            assert self.cas is not None, "an access before the mode register is set"
        if command == _PRECHARGE:
            closed = range(sheet.banks) if pins["a"] >> 10 & 1 else (bank,)
            for each in closed:
                if each in self._open:
                    self._check("activate", each, "tRAS")
                    self._check("write", each, "tWR")
                    del self._open[each]
                self._last["precharge", each] = self._now
        elif command == _ACTIVATE:
            assert bank not in self._open, f"bank {bank} has a row open"
            assert pins["a"] < sheet.rows, "a row that the chip has not"
            self._check("precharge", bank, "tRP")
            self._check("activate", bank, "tRC")
            for each in range(sheet.banks):
                self._check("activate", each, "tRRD")
            self._open[bank] = pins["a"]
            self._last["activate", bank] = self._now
        elif command in (_READ, _WRITE):
            self._access(command, pins)
        else:
            assert not self._open, "rows are open"
            for each in range(sheet.banks):
                self._check("precharge", each, "tRP")
            if command == _REFRESH:
                self._refreshes += 1
                self._last["refresh", 0] = self._last_refresh = self._now
            else:
                self._set_mode(pins)

    def _set_mode(self, pins: dict[str, int]) -> None:
        assert self._refreshes >= 2, "too few refreshes before the mode register is set"
        assert pins["a"] & 0b111 == 0, "bursts are of one column"
        assert not pins["ba"], "another mode register"
        assert not pins["a"] & ~0b111_0000, "bits of the mode register that are reserved"
        self.cas = pins["a"] >> 4 & 7
        fastest = self.sheet.frequency.get(f"CL{self.cas}", 0.0)
        assert 1e3 / self.period <= fastest + _SLACK, "CAS latency"
        self._last["mode", 0] = self._now
        self._refreshed, self._refreshes = self._now, 0

    def _access(self, command: int, pins: dict[str, int]) -> None:
        sheet, bank, col = self.sheet, pins["ba"], pins["a"]
        assert bank in self._open, f"bank {bank} has no row open"
        assert not pins["a"] >> 10 & 1, "the row would be closed behind the access"
        assert col < sheet.columns, "a column that the chip has not"
        self._check("activate", bank, "tRCD")
        lanes = sheet.bits // 8
        place = (self._open[bank] * sheet.banks + bank) * sheet.columns + col
        addrs = [place * lanes + lane for lane in range(lanes)]
        if command == _READ:
            assert not pins["dqm"], "a column that is read is masked"
            assert not pins["dq_oe"], "the data pins are driven while a column is read"
            value = sum(self.peek(addr) << 8 * lane for lane, addr in enumerate(addrs))
            assert self.cas is not None
            self._due.append((self._now + self.cas + self._late, value))
            return
        assert pins["dq_oe"], "nobody drives what is written"
        for lane, addr in enumerate(addrs):
            if not pins["dqm"] >> lane & 1:
                self.memory[addr] = pins["dq_o"] >> 8 * lane & 0xFF
        self._last["write", bank] = self._now

    def _check_refresh(self) -> None:
        for bank in self._open:
            opened = self._since("activate", bank)
            assert opened <= self.sheet.ras_max.at(self.period), "tRAS_max: a row is open for long"
        if self.cas is not None:
            refi = self.sheet.refi
            late = (self._now - self._refreshed) * self.period / refi - self._refreshes
            assert late < 9, f"{late:.1f} refreshes are late"
            apart = (self._now - max(self._last_refresh, self._refreshed)) * self.period / refi
            assert apart <= self.sheet.apart, f"refreshes are late: {apart:.1f} apart"


def untouched(addr: int) -> int:
    """Return the byte that a modelled chip holds at an address that was never written."""
    return (addr * 2654435761 >> 8) & 0xFF
