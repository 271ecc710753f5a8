"""Properties of registers in streams, such as register slices and skid buffers."""

from types import ModuleType

from amaranth.hdl import Assert, Assume, Signal

from celosia.tb.verify.formal.harness import (
    Harness,
    ModelQueue,
    assert_held,
    assume_held,
    transfers,
)
from celosia.tb.verify.formal.prover import properties

_WIDTH = 2  # bits; nothing depends on a payload's value
_PIPELINE = 2  # cycles


def _slice(module: ModuleType) -> Harness:
    def state(m, dut, probes):
        assume_held(m, dut.i)
        assert_held(m, dut.o)
        queue = ModelQueue(m, 2, dut.i.payload, transfers(dut.i), transfers(dut.o), "queue")
        m.d.comb += [
            Assert(dut.o.valid == (queue.count != 0)),
            Assert(dut.i.ready == (queue.count != 2)),
            Assert(~dut.o.valid | (dut.o.payload == queue.values[0])),
            # What the circuit holds apart from its output is the model's second value.
            Assert(~dut.i.ready | ~dut.o.valid | (queue.count == 1)),
            Assert(dut.i.ready | (probes.spare == queue.values[1])),
        ]

    return Harness(module.RegisterSlice(_WIDTH), state, {"spare": _WIDTH})


def _skid(module: ModuleType) -> Harness:
    def state(m, dut, _probes):
        assume_held(m, dut.i)
        assert_held(m, dut.o)
        queue = ModelQueue(m, 1, dut.i.payload, transfers(dut.i), transfers(dut.o), "queue")
        m.d.comb += [
            Assert(queue.count <= 1),
            Assert(dut.i.ready == (queue.count == 0)),
            Assert(dut.o.valid == ((queue.count != 0) | dut.i.valid)),
            Assert(~dut.o.valid | (dut.o.payload == queue.oldest)),
        ]

    return Harness(module.Skid(_WIDTH), state)


def _credits(module: ModuleType) -> Harness:
    dut = module.CreditQueue(_WIDTH, _PIPELINE)

    def state(m, dut, _probes):
        # A pipeline that takes as long as it likes, and brings no more than entered it.
        inside = Signal(range(_PIPELINE + 2))
        m.d.sync += inside.eq(inside + dut.taken - dut.i.valid)
        m.d.comb += [Assume(~dut.taken | dut.room), Assume(~dut.i.valid | (inside != 0))]
        assert_held(m, dut.o)
        queue = ModelQueue(m, _PIPELINE + 1, dut.i.payload, dut.i.valid, transfers(dut.o), "queue")
        m.d.comb += [
            Assert(dut.room == (queue.count + inside != _PIPELINE + 1)),
            Assert(dut.o.valid == queue.any),
            Assert(~dut.o.valid | (dut.o.payload == queue.oldest)),
        ]

    return Harness(dut, state)


STREAMS = properties(
    {"slice-order": _slice, "skid-order": _skid, "credits-order": _credits},
    probes={"slice-order": {"spare": "dut.spare"}},
)
