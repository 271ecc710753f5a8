"""Common parts of cocotb benches: parameters, random numbers, a clock, and streams.

Benches must drive signals just after a rising edge of ``clk``, and sample signals at the falling
edge.
"""

# At the falling edge signals are settled in every simulator.

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.tb.machine.toolchain import PERIOD_NS

_DISTURBED = 40  # cycles of random inputs


def parameters() -> dict[str, Any]:
    """Return the parameters of the bench, a dictionary from name to value.

    The call of ``celosia.tb.benches.simulate.simulate`` that started the simulation has passed the
    parameters as its argument ``parameters``.
    """
    return dict(json.loads(os.environ.get("CELOSIA_PARAMETERS", "{}")))


def rng() -> np.random.Generator:
    """Return a new random generator that starts from the seed of the run.

    The seed was passed to ``celosia.tb.benches.simulate.simulate``, which printed it. The
    generators of all calls return the same numbers.
    """
    return np.random.default_rng(int(os.environ.get("CELOSIA_SEED", "0")))


async def start_clock(
    dut: Any, disturbed: np.random.Generator | None = None, *, still: Iterable[str] = ()
) -> None:
    """Start ``clk``, hold ``rst`` at 1 for two cycles, and return just after a rising edge.

    From the reset on, every input is 0. If the random generator ``disturbed`` is given, inputs have
    random values for some cycles before the reset, except that inputs named in ``still`` are 0.
    """
    names = json.loads(os.environ.get("CELOSIA_INPUTS", "[]"))
    has_reset = hasattr(dut, "rst")
    cocotb.start_soon(Clock(dut.clk, PERIOD_NS, unit="ns").start(start_high=False))
    # Inputs in ``still`` would write a memory, which a reset does not clear.
    if has_reset and disturbed is not None and "CELOSIA_COVERAGE" not in os.environ:
        dut.rst.value = 0
        for _ in range(_DISTURBED):
            for name in names:
                port = getattr(dut, name)
                port.value = 0 if name in still else noise(disturbed, port)
            await RisingEdge(dut.clk)
    await reset(dut)


async def reset(dut: Any) -> None:
    """Set every input to 0, and hold ``rst`` for two cycles; return just after a rising edge.

    The clock must run. A component without ``rst`` keeps its state.
    """
    has_reset = hasattr(dut, "rst")
    for name in json.loads(os.environ.get("CELOSIA_INPUTS", "[]")):
        getattr(dut, name).value = 0
    if has_reset:
        dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    if has_reset:
        dut.rst.value = 0
    await RisingEdge(dut.clk)


def noise(rng: np.random.Generator, port: Any) -> int:
    """Return a random value for a port, as wide as the port."""
    bits = int.from_bytes(rng.bytes(len(port) // 8 + 1), "little")
    return bits & ((1 << len(port)) - 1)


class StreamDriver:
    """Producer that sends payloads to the input stream ``name`` of the circuit under test, ``dut``.

    Before each offer the driver pauses in each cycle with probability ``stall``. An offered payload
    stays until the circuit accepts it. If a payload is negative, the port gets its low bits.
    """

    def __init__(self, dut: Any, name: str, rng: np.random.Generator, stall: float = 0.0):
        self._dut = dut
        self._rng = rng
        self._stall = stall
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready", None)
        self._payload = getattr(dut, f"{name}__payload", None)
        self._valid.value = 0
        # Between two offers the port's payload is random.
        self._noise = self._payload is not None and "CELOSIA_COVERAGE" not in os.environ

    async def send(self, payloads: Iterable[int]) -> None:
        """Send payloads in order; return just after the clock edge that accepts the last."""
        for payload in payloads:
            while self._stall and self._rng.random() < self._stall:
                await RisingEdge(self._dut.clk)
            if self._payload is not None:
                self._payload.value = int(payload) & ((1 << len(self._payload)) - 1)
            self._valid.value = 1
            accepted = False
            while not accepted:
                await FallingEdge(self._dut.clk)
                accepted = self._ready is None or int(self._ready.value) == 1
                await RisingEdge(self._dut.clk)
            self._valid.value = 0
            if self._noise:
                self._payload.value = noise(self._rng, self._payload)


class StreamMonitor:
    """Consumer of payloads from the output stream ``name`` of the circuit under test, ``dut``.

    In each cycle ``ready`` is 0 with probability ``stall``. If ``stable`` is true, an assertion
    fails if the circuit withdraws or changes an offered payload that is not yet accepted.
    """

    def __init__(
        self,
        dut: Any,
        name: str,
        rng: np.random.Generator,
        stall: float = 0.0,
        *,
        stable: bool = True,
    ):
        self._dut = dut
        self._name = name
        self._rng = rng
        self._stall = stall
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready", None)
        self._payload = getattr(dut, f"{name}__payload", None)
        self._offered: int | None = None
        self._stable = stable
        if self._ready is not None:
            self._ready.value = 0

    async def receive(
        self, count: int, check: Callable[[int, int], None] | None = None
    ) -> list[int]:
        """Return the next ``count`` payloads, just after the clock edge that accepts the last.

        ``check(index, payload)`` is called as soon as payload number ``index`` (from 0 on) is
        received, so that a bench fails at the first wrong payload.
        """
        payloads: list[int] = []
        while len(payloads) < count:
            ready = self._ready is None or not self._stall or self._rng.random() >= self._stall
            if self._ready is not None:
                self._ready.value = int(ready)
            await FallingEdge(self._dut.clk)
            valid = int(self._valid.value) == 1
            payload = int(self._payload.value) if valid and self._payload is not None else 0
            if self._ready is not None:
                self._check_stable(valid, payload)
                self._offered = payload if valid and not ready else None
            if valid and ready:
                if check is not None:
                    check(len(payloads), payload)
                payloads.append(payload)
            await RisingEdge(self._dut.clk)
        if self._ready is not None:
            self._ready.value = 0
        return payloads

    def _check_stable(self, valid: bool, payload: int) -> None:
        if self._stable and self._offered is not None:
            assert valid, f"{self._name} withdrew a payload before it was taken"
            assert payload == self._offered, f"{self._name} changed a payload before it was taken"


class ByteMonitor:
    """Monitor of the output stream ``o`` of a circuit that receives bytes, such as a UART.

    A payload of the stream has a byte in bits 0 to 7; its bit 8 is 1 if the byte's stop bit was
    wrong. ``bytes`` lists a pair for each byte received so far: the byte, and whether its stop bit
    was wrong.
    """

    def __init__(self, dut: Any):
        self.bytes: list[tuple[int, bool]] = []
        self._dut = dut
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await FallingEdge(self._dut.clk)
            if int(self._dut.o__valid.value):
                payload = int(self._dut.o__payload.value)
                self.bytes.append((payload & 255, bool(payload >> 8)))
