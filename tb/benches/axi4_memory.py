"""External memory with AXI4 for cocotb benches: cocotbext-axi's RAM, and checks of bus rules."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from cocotbext.axi import AxiBus, AxiRam

from celosia.arch.config import Config
from celosia.arch.latency import BURST_BOUNDARY

PREFIX = "m_axi"

_AHEAD = 32  # bursts whose addresses are accepted before any data
_ADDRESS = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos")
_PAYLOADS = {"aw": _ADDRESS, "w": ("data", "strb", "last"), "ar": _ADDRESS}


class AxiMemory:
    """A memory on an AXI4 bus: cocotbext-axi's ``AxiRam``, and a monitor that checks the bus rules.

    In each cycle each channel pauses with probability ``stall``. Accesses at or above the address
    ``broken``, if any, are answered with errors. The bench must call :meth:`sample` at each falling
    edge.
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
        content = bytearray(size)
        self.bytes = np.frombuffer(content, np.uint8)
        """Content of the memory; bus addresses are taken modulo its size."""
        self.loaded = self.stored = 0
        self._dut, self._rng, self._stall = dut, rng, stall
        self._rules = AxiRules(dut, config)
        ram = AxiRam(AxiBus.from_prefix(dut, PREFIX), dut.clk, dut.rst, mem=content)
        self.broken = broken
        """First address with errors; a bench may change it if it is not None at first."""
        if broken is not None:
            self._break(ram)
        writes, reads = ram.write_if, ram.read_if
        # Addresses are accepted far ahead of their data.
        writes.aw_channel.queue_occupancy_limit = _AHEAD
        if stall:
            for channel in (
                writes.aw_channel,
                writes.w_channel,
                writes.b_channel,
                reads.ar_channel,
                reads.r_channel,
            ):
                channel.set_pause_generator(self._pauses())

    def _break(self, ram: AxiRam) -> None:
        """Make a RAM refuse words from the address ``broken`` on."""
        reads, writes = ram.read_if, ram.write_if

        def check(address: int) -> None:
            if self.broken is not None and address >= self.broken:
                raise OSError("broken")

        async def read(address: int, length: int) -> bytes:
            check(address)
            return bytes(reads.read(address, length))

        async def write(address: int, data: bytes) -> None:
            check(address)
            writes.write(address, data)

        reads._read, writes._write = read, write

    def _pauses(self) -> Iterator[bool]:
        while True:
            yield bool(self._rng.random() < self._stall)

    def drive(self) -> None:
        """Do nothing: ``AxiRam`` drives the bus signals itself."""

    def sample(self) -> None:
        """Check the AXI rules in this cycle, and count the words that are transferred.

        The attributes ``loaded`` and ``stored`` are the numbers of words read and written.
        """
        self._rules.sample()
        self.loaded += self._rules.moves("r")
        self.stored += self._rules.moves("w")


class AxiRules:
    """Asserts the rules of AMBA AXI (IHI 0022) for a bus manager, in each sampled cycle."""

    def __init__(self, dut: Any, config: Config):
        self._dut, self._config = dut, config
        self._waiting: dict[str, tuple[int, ...]] = {}
        self._writes: deque[int] = deque()  # beats of bursts with incomplete data
        self._reads: deque[int] = deque()
        self._unanswered = 0
        self._beat = {"w": 0, "r": 0}

    def _get(self, name: str) -> int:
        return int(getattr(self._dut, f"{PREFIX}_{name}").value)

    def moves(self, channel: str) -> bool:
        """Return whether an AXI channel, named by its prefix, transfers a beat in this cycle."""
        return bool(self._get(f"{channel}valid") and self._get(f"{channel}ready"))

    def sample(self) -> None:
        """Assert the rules for the bus signals of this cycle; call it at the falling edge."""
        for channel in ("aw", "w", "ar"):
            self._holds(channel)
        for channel, lengths in (("aw", self._writes), ("ar", self._reads)):
            if self.moves(channel):
                lengths.append(self._burst(channel))
        for channel, lengths in (("w", self._writes), ("r", self._reads)):
            if self.moves(channel):
                self._beats(channel, lengths)
        if self.moves("b"):
            assert self._unanswered > 0, "a response without a burst"
            self._unanswered -= 1

    def _holds(self, channel: str) -> None:
        """Check that an offer that was not accepted is still there, unchanged."""
        if not self._get(f"{channel}valid"):
            assert channel not in self._waiting, f"{channel}valid fell before {channel}ready"
            return
        payload = tuple(self._get(f"{channel}{name}") for name in _PAYLOADS[channel])
        if channel in self._waiting:
            assert payload == self._waiting.pop(channel), f"{channel} changed before it was taken"
        if not self._get(f"{channel}ready"):
            self._waiting[channel] = payload

    def _burst(self, channel: str) -> int:
        """Check a burst's address; return its beats."""
        width = self._config.mem_bytes
        addr, beats = self._get(f"{channel}addr"), self._get(f"{channel}len") + 1
        assert 1 << self._get(f"{channel}size") == width, "not the data's whole width"
        assert self._get(f"{channel}burst") == 1, "not INCR"
        assert addr % width == 0, f"burst at {addr:#x} is not aligned"
        last = addr + beats * width - 1
        assert addr // BURST_BOUNDARY == last // BURST_BOUNDARY, f"burst at {addr:#x} crosses"
        assert self._get(f"{channel}lock") == self._get(f"{channel}id") == 0
        return beats

    def _beats(self, channel: str, lengths: deque[int]) -> None:
        """Count a beat, and check that the last beat of each burst is marked."""
        # Some data of a write may precede its address, but not all.
        self._beat[channel] += 1
        if not self._get(f"{channel}last"):
            return
        assert lengths, f"{channel}: data of a burst that was not asked for"
        assert self._beat[channel] == lengths.popleft(), f"{channel}last is in the wrong place"
        self._beat[channel] = 0
        self._unanswered += channel == "w"
