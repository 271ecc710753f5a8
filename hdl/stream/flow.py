"""A stream without backpressure."""

from amaranth.hdl import ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class Flow(wiring.Signature):
    """A stream without ``ready``: the receiver must accept ``payload`` whenever ``valid`` is 1."""

    def __init__(self, payload: ShapeLike):
        super().__init__({"valid": Out(1), "payload": Out(payload)})
