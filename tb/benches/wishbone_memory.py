"""External memory on a Wishbone bus for cocotb benches: two memory models, and a bus checker."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from cocotbext.wishbone.monitor import WishboneSlave

from celosia.arch.config import Config
from celosia.hdl.bus.wishbone import CycleType

PREFIX = "wbm"

LONGEST = 32
"""Words of a bus cycle, at most."""

_SIGNALS = {
    "cyc": "cyc_o",
    "stb": "stb_o",
    "we": "we_o",
    "adr": "adr_o",
    "datwr": "dat_o",
    "datrd": "dat_i",
    "ack": "ack_i",
    "sel": "sel_o",
    "err": "err_i",
}
"""The names that cocotbext-wishbone has for the signals."""


class WishboneRules:
    """Asserts in each cycle the rules of Wishbone B4 for a master.

    The rules include those for bursts with registered feedback.
    """

    def __init__(self, dut: Any, config: Config):
        self._dut, self._config = dut, config
        self._before: dict[str, int] | None = None
        self._words = 0  # of the bus cycle

    def get(self, name: str) -> int:
        """Return the value of the port ``wbm_`` + ``name`` of the circuit under test."""
        return int(getattr(self._dut, f"{PREFIX}_{name}").value)

    def sample(self) -> dict[str, int]:
        """Assert the Wishbone rules in this cycle; return the values of the bus signals by name."""
        now = {name: self.get(f"{name}_o") for name in ("cyc", "stb", "we", "adr", "cti", "bte")}
        now |= {name: self.get(f"{name}_i") for name in ("ack", "err")}
        now |= {"sel": self.get("sel_o"), "dat": self.get("dat_o")}
        assert now["cyc"] or not now["stb"], "stb without cyc (rule 3.25)"
        if now["stb"]:
            assert now["bte"] == 0, "burst is not linear"
            assert now["cti"] in (CycleType.INCREMENTING.value, CycleType.END.value)
            assert now["adr"] % self._config.mem_bytes == 0, f"{now['adr']:#x} is not aligned"
            assert now["we"] or now["sel"] == (1 << self._config.mem_bytes) - 1
        self._words = self._words * now["cyc"] + (now["stb"] and (now["ack"] or now["err"]))
        assert self._words <= LONGEST, "a bus cycle of too many words"
        if self._before is not None:
            self._follows(self._before, now)
        self._before = now
        return now

    def _follows(self, before: dict[str, int], now: dict[str, int]) -> None:
        """Check the rules that bind a cycle to the previous one."""
        if not before["stb"]:
            return
        if not (before["ack"] or before["err"]):
            held = ("cyc", "stb", "we", "adr", "cti", "sel") + (("dat",) if now["we"] else ())
            for name in held:
                assert now[name] == before[name], f"{name} changed before the acknowledge"
        elif before["err"] or before["cti"] == CycleType.END.value:
            assert not now["cyc"], "the bus cycle goes on behind its end (rule 4.05)"
        else:
            assert now["cyc"], "a burst ended without its last word (rule 4.10)"
            assert now["stb"], "a wait state of the master"
            assert now["we"] == before["we"], "a burst changed its direction"
            assert now["adr"] == before["adr"] + self._config.mem_bytes, "not the next address"


class WishboneMemory:
    """A Wishbone memory with registered feedback: one word per cycle in a burst, random waits.

    An answer waits in each cycle with probability ``stall``. Accesses at or above the address
    ``broken`` are answered with ``err``. The bench must call :meth:`drive` after each rising edge
    and :meth:`sample` at each falling edge.
    """

    def __init__(
        self,
        dut: Any,
        config: Config,
        rng: np.random.Generator,
        stall: float,
        size: int,
        broken: int | None = None,
    ):
        self.bytes = np.zeros(size, np.uint8)
        """Content of the memory; bus addresses are taken modulo its size."""
        self.loaded = self.stored = 0
        self.turns: list[int] = []  # each bus cycle's direction, 1 where it writes
        self._dut, self._config, self._rng, self._stall = dut, config, rng, stall
        self._broken = size if broken is None else broken
        self._rules = WishboneRules(dut, config)
        self._expected: int | None = None  # address of the word that may move next

    def drive(self) -> None:
        """Drive ``ack``, ``err`` and the read data for this cycle; call it after a rising edge."""
        dut, width = self._dut, self._config.mem_bytes
        answers = self._expected is not None and self._rng.random() >= self._stall
        word = self._rng.bytes(width)
        refused = False
        if answers and self._expected is not None:
            addr = self._expected % self.bytes.size
            word, refused = self.bytes[addr : addr + width].tobytes(), addr >= self._broken
        dut.wbm_ack_i.value = int(answers and not refused)
        dut.wbm_err_i.value = int(answers and refused)
        dut.wbm_dat_i.value = int.from_bytes(word, "little")

    def sample(self) -> None:
        """Assert the rules of Wishbone in this cycle, and store the word of an acknowledged write.

        Call this method at each falling edge of the clock.
        """
        now, width = self._rules.sample(), self._config.mem_bytes
        moved = now["stb"] and (now["ack"] or now["err"])
        if now["stb"] and self._expected is None:
            self.turns.append(now["we"])
        if moved:
            assert now["adr"] == self._expected, "the word that was answered is another one"
            self.loaded += not now["we"]
            self.stored += now["we"]
            if now["we"] and now["ack"]:
                self._write(now)
        if now["stb"] and not moved:
            self._expected = now["adr"]
        elif moved and now["ack"] and now["cti"] == CycleType.INCREMENTING.value:
            self._expected = now["adr"] + width
        else:
            self._expected = None

    def _write(self, now: dict[str, int]) -> None:
        addr = now["adr"] % self.bytes.size
        for index in range(self._config.mem_bytes):
            if now["sel"] >> index & 1:
                self.bytes[addr + index] = now["dat"] >> 8 * index & 255


class WishbonePackage:
    """A memory on a Wishbone bus that uses cocotbext-wishbone's slave, and checks the bus rules.

    Each word takes two cycles, even in a burst, or more: in each cycle, the answer is delayed with
    probability ``stall``. Accesses at or above the address ``broken``, which the bench may change,
    are answered with ``err``.
    """

    def __init__(
        self,
        dut: Any,
        config: Config,
        rng: np.random.Generator,
        stall: float,
        size: int,
        broken: int | None = None,
    ):
        self.broken = size if broken is None else broken
        self.bytes = np.zeros(size, np.uint8)
        """Content of the memory; bus addresses are taken modulo its size."""
        self.loaded = self.stored = 0
        self._dut, self._config, self._rng, self._stall = dut, config, rng, stall
        self._rules = WishboneRules(dut, config)
        slave = WishboneSlave(
            dut,
            PREFIX,
            dut.clk,
            width=config.memory.width,
            signals_dict=_SIGNALS,
            datgen=self._words(),
            ackgen=self._replies(),
            waitreplygen=self._waits(),
        )
        slave.add_callback(self._cycle)

    def _words(self) -> Iterator[int]:
        """Yield the word at the address of the bus, in the cycle in which the slave requests it."""
        width = self._config.mem_bytes
        while True:
            addr = self._rules.get("adr_o") % self.bytes.size
            yield int.from_bytes(self.bytes[addr : addr + width].tobytes(), "little")

    def _replies(self) -> Iterator[int]:
        """Yield how the slave answers the word at the address of the bus, as it numbers answers."""
        while True:
            yield 2 if self._rules.get("adr_o") % self.bytes.size >= self.broken else 1

    def _waits(self) -> Iterator[int]:
        while True:
            waits = 0
            while self._rng.random() < self._stall:
                waits += 1
            yield waits

    def _cycle(self, results: list[Any]) -> None:
        """Apply the writes of a bus cycle that the package recorded."""
        for result in results:
            if result.ack != 1:
                continue
            if result.datwr is None:
                self.loaded += 1
                continue
            self.stored += 1
            addr = int(result.adr) % self.bytes.size
            for index in range(self._config.mem_bytes):
                if int(result.sel) >> index & 1:
                    self.bytes[addr + index] = int(result.datwr) >> 8 * index & 255

    def drive(self) -> None:
        """Do nothing: cocotbext-wishbone's slave drives the bus signals itself."""

    def sample(self) -> None:
        """Assert the rules of Wishbone in this cycle; call it at a falling edge."""
        self._rules.sample()
