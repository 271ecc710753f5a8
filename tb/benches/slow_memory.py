"""External memory for cocotb benches of the whole accelerator: slow, with random pauses."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.latency import BURST_BOUNDARY
from celosia.hdl.ports import MemoryWritePort, burst_layout
from celosia.tb.benches.axi4_memory import AxiMemory
from celosia.tb.benches.wishbone_memory import WishboneMemory, WishbonePackage
from celosia.tb.machine.packing import unpack

QUEUE = 4
"""Most bursts of a kind that are accepted before the first of them is finished."""

CHANNELS = ("read_request", "read_data", "write_request", "write_data", "written")
"""The channels of a memory; each one does something in a cycle, or nothing."""

SIZE = 1 << 17
"""Largest external memory (bytes); nothing may access an address beyond it."""


@dataclass
class _Burst:
    addr: int
    words: int
    time: int


class ExternalMemory:
    """A model of external memory at the accelerator's ports ``mem_read`` and ``mem_write``.

    In each cycle each channel pauses with probability ``stall``. A burst waits up to ``latency``
    cycles. The ports' rules are asserted. The bench must call :meth:`drive` after each rising edge,
    and :meth:`sample` at each falling edge.
    """

    def __init__(
        self, dut: Any, config: Config, rng: np.random.Generator, stall: float, latency: int
    ):
        self.bytes = np.zeros(min(1 << config.memory.addr_width, SIZE), np.uint8)
        """Content; a burst is written when it is reported as written."""
        self.loaded = self.stored = 0
        self.silent: frozenset[str] = frozenset()
        """Channels that pause in all cycles."""
        self.stray = False
        """If true, a word is offered and a burst reported, both without a request."""
        self._dut, self._config, self._rng = dut, config, rng
        self._stall, self._latency = stall, latency
        self._time = 0
        self._reads: deque[_Burst] = deque()
        self._writes: deque[_Burst] = deque()
        self._written: deque[tuple[int, list[tuple[int, int]]]] = deque()
        self._word: int | None = None
        self._pending: list[tuple[int, int]] = []  # bytes of the burst that is being written
        self._offered: dict[str, int] = {}
        self._word_layout = (
            MemoryWritePort(config.memory).members["data"].signature.members["payload"]
        )

    def forget(self) -> None:
        """Drop all requests that are not completed, as a memory does at a reset."""
        for queue in (self._reads, self._writes, self._written):
            queue.clear()
        self._word, self._pending = None, []
        self.let_go()

    def let_go(self) -> None:
        """Allow the accelerator to change or withdraw the payloads that it offers to the memory.

        Call this method during a reset of the accelerator. Otherwise an assertion of the model
        fails if an offered payload changes before the memory accepts it.
        """
        self._offered.clear()

    @property
    def owes(self) -> bool:
        """True if the memory has not yet completed a read or write request."""
        return bool(self._word is not None or self._reads or self._writes or self._written)

    @property
    def owes_reports(self) -> bool:
        """True if a requested write burst has not been reported as written."""
        return bool(self._writes or self._written)

    def _willing(self, channel: str) -> bool:
        return channel not in self.silent and bool(self._rng.random() >= self._stall)

    def _soon(self) -> int:
        return self._time + int(self._rng.integers(self._latency + 1))

    def drive(self) -> None:
        """Drive the accelerator's memory inputs in this cycle; call it after a rising edge."""
        dut, width = self._dut, self._config.mem_bytes
        self._time += 1
        if self._word is None and self._due(self._reads) and self._willing("read_data"):
            addr = self._reads[0].addr
            self._word = int.from_bytes(self.bytes[addr : addr + width].tobytes(), "little")
        noise = int.from_bytes(self._rng.bytes(width), "little")
        dut.mem_read__data__valid.value = int(self._word is not None or self.stray)
        dut.mem_read__data__payload.value = noise if self._word is None else self._word
        dut.mem_read__request__ready.value = int(
            len(self._reads) < QUEUE and self._willing("read_request")
        )
        dut.mem_write__request__ready.value = int(
            len(self._writes) < QUEUE and self._willing("write_request")
        )
        dut.mem_write__data__ready.value = int(
            self._due(self._writes) and self._willing("write_data")
        )
        written = bool(self._written) and self._written[0][0] <= self._time
        written = written and self._willing("written")
        dut.mem_write__written.value = int(written or self.stray)
        if written:
            for addr, byte in self._written.popleft()[1]:
                self.bytes[addr] = byte

    def _due(self, bursts: deque[_Burst]) -> bool:
        return bool(bursts) and bursts[0].time <= self._time

    def sample(self) -> None:
        """Check and record this cycle's transfers at the ports; call it at each falling edge."""
        assert not self.stray or not int(self._dut.mem_read__data__ready.value)
        if self._word is not None and int(self._dut.mem_read__data__ready.value):
            self._word = None
            self.loaded += 1
            self._advance(self._reads)
        word = self._taken("mem_write__data")
        if word is not None:
            self.stored += 1
            self._store(word)
        for name, bursts in (("mem_read", self._reads), ("mem_write", self._writes)):
            request = self._taken(f"{name}__request")
            if request is not None:
                bursts.append(self._burst(request))

    def _taken(self, stream: str) -> int | None:
        """Return the accepted payload; a waiting one must neither vanish nor change."""
        ready = int(getattr(self._dut, f"{stream}__ready").value)
        valid = int(getattr(self._dut, f"{stream}__valid").value)
        payload = int(getattr(self._dut, f"{stream}__payload").value) if valid else None
        if stream in self._offered:
            assert payload == self._offered.pop(stream), f"{stream} changed while it waited"
        if payload is not None and not ready:
            self._offered[stream] = payload
        return payload if ready else None

    def _burst(self, bits: int) -> _Burst:
        request = unpack(burst_layout(self._config.memory), bits)
        addr, width = request["addr"], self._config.mem_bytes
        end = addr + (request["last"] + 1) * width
        assert addr % width == 0, f"burst at {addr:#x} is not aligned"
        assert end <= self.bytes.size, f"burst ends at {end:#x}, past the end"
        assert addr // BURST_BOUNDARY == (end - 1) // BURST_BOUNDARY
        return _Burst(addr, request["last"] + 1, self._soon())

    def _store(self, bits: int) -> None:
        word = unpack(self._word_layout.shape, bits)
        burst = self._writes[0]
        for index in range(self._config.mem_bytes):
            if word["mask"] >> index & 1:
                self._pending.append((burst.addr + index, word["data"] >> 8 * index & 255))
        if self._advance(self._writes):
            self._written.append((self._soon(), self._pending))
            self._pending = []

    def _advance(self, bursts: deque[_Burst]) -> bool:
        """Go to a burst's next word; return whether there is none."""
        bursts[0].addr += self._config.mem_bytes
        bursts[0].words -= 1
        if bursts[0].words:
            return False
        bursts.popleft()
        return True


MODELS = {"axi4": AxiMemory, "wishbone": WishboneMemory, "wishbone_package": WishbonePackage}
"""Each model by name; the last and the first are packages of other projects."""
