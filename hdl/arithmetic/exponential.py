"""Powers of two with negative fractional exponents, for the softmax."""

from amaranth.hdl import Mux, unsigned
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from celosia.arch.functions import OCTAVE_FRACTION, OCTAVE_LIMIT, OCTAVE_MANTISSA, octave_table
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import delay

EXPONENTIAL_LATENCY = 2
"""Cycles with ``en`` at 1 from ``distance`` to ``mantissa`` and ``shift``."""
DISTANCE_WIDTH = 16
"""Width of ``distance``, in units of 1/256 octave (bits)."""
SHIFT_WIDTH = exact_log2(OCTAVE_LIMIT)
"""Width of ``shift`` (bits)."""


class OctaveExponential(Component):
    """Computes ``2**(-distance / 256)`` as approximately ``mantissa * 2**(-16 - shift)``.

    ``mantissa`` is 0 if ``keep`` is 0 or ``distance`` is at least 8,192. The relative error is at
    most ``2**-16``. Latency is ``EXPONENTIAL_LATENCY`` cycles with ``en`` at 1, throughput one
    result per such cycle.
    """

    en: In(1)
    distance: In(unsigned(DISTANCE_WIDTH))
    keep: In(1)
    mantissa: Out(unsigned(OCTAVE_MANTISSA + 1))
    shift: Out(unsigned(SHIFT_WIDTH))
    """Whole octaves of the distance."""

    def circuit(self, m):
        # The gates after the table force a mantissa to 0.
        entries = octave_table().tolist()
        m.submodules.table = table = Memory(
            shape=unsigned(OCTAVE_MANTISSA + 1), depth=len(entries), init=entries
        )
        read = table.read_port()
        octaves = self.distance[OCTAVE_FRACTION:]
        m.d.comb += [read.en.eq(self.en), read.addr.eq(self.distance[:OCTAVE_FRACTION])]
        keep = delay(m, self.keep & (octaves < OCTAVE_LIMIT), 2, en=self.en)
        mantissa = delay(m, read.data, 1, en=self.en)
        m.d.comb += [
            self.mantissa.eq(Mux(keep, mantissa, 0)),
            self.shift.eq(delay(m, octaves[:SHIFT_WIDTH], 2, en=self.en)),
        ]
