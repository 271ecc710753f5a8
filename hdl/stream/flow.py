"""A stream without backpressure."""

from amaranth.hdl import ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class Flow(wiring.Signature):
    """A ``payload`` in each cycle with ``valid``, which the receiver must accept at once."""

    def __init__(self, payload: ShapeLike):
        super().__init__({"valid": Out(1), "payload": Out(payload)})
