"""Properties of stream ports: an offered payload stays valid and the same until it is accepted."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from amaranth.hdl import Assume, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.stream.pipeline import delay
from celosia.tb.verify.formal.harness import Harness, assert_held, assume_held, transfers
from celosia.tb.verify.formal.prover import properties

_CONFIG = PRESETS["tiny"]
_MATRIX, _VECTOR = _CONFIG.part(MatrixConfig), _CONFIG.part(VectorConfig)
_BEAT = data.StructLayout({"value": 2, "last": 1})
_ROW = data.StructLayout({"sum": 2})


def _streams(interface: Any, flow: Any = Out) -> Iterator[tuple[Any, bool]]:
    """Yield the streams of an interface, nested ones too, each with a flag: it is an output."""
    for name, member in interface.signature.members.items():
        if member.is_signature:
            leads_out = member.flow == flow
            inner = getattr(interface, name)
            if set(member.signature.members) == {"payload", "valid", "ready"}:
                yield inner, leads_out
            else:
                yield from _streams(inner, Out if leads_out else wiring.In)


def _held(
    make: Callable[[ModuleType], Any], around: Callable[[Module, Any], None] | None = None
) -> Callable[[ModuleType], Harness]:
    def state(m, dut, _probes):
        for port, leads_out in _streams(dut):
            (assert_held if leads_out else assume_held)(m, port)
        if around is not None:
            around(m, dut)

    return lambda module: Harness(make(module), state)


def _answered(m: Module, port: Any, latency: int) -> None:
    """Assume that each accepted request is answered ``latency`` cycles later, and no other."""
    m.d.comb += Assume(port.valid == delay(m, transfers(port.request), latency, reset=True))


def _walk(latency: int) -> Callable[[Module, Any], None]:
    """Assume answers, and that no walk begins while a request of the previous one waits."""

    def around(m: Module, dut: Any) -> None:
        _answered(m, dut.port, latency)
        m.d.comb += Assume(~dut.start | ~dut.port.request.valid)

    return around


PORTS = properties(
    {
        "held-address": _held(lambda module: module.Bursts(_CONFIG.memory, _CONFIG.access)),
        "held-load": _held(lambda module: module.LoadEngine(_CONFIG.memory, _CONFIG.access)),
        "held-store": _held(
            lambda module: module.StoreEngine(_CONFIG.memory, _CONFIG.access),
            lambda m, dut: _answered(m, dut.read, _CONFIG.sram_latency),
        ),
        "held-tiles": _held(lambda module: module.TileWalker(_MATRIX)),
        "held-streamer": _held(lambda module: module.ActivationStreamer(_MATRIX)),
        "held-reader": _held(
            lambda module: module.RowReader(_CONFIG.access), _walk(_CONFIG.sram_latency)
        ),
        "held-drain": _held(lambda module: module.DrainReader(_VECTOR), _walk(_CONFIG.acc_latency)),
        "held-row-queue": _held(
            lambda module: module.RowQueue(_BEAT, _ROW, max_beats=2, waiting=1)
        ),
    }
)
