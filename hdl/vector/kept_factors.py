"""Storage indices of row factors; a later command multiplies a row by the row's factor."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH, FACTOR_SHIFT, Engine
from celosia.hdl.component import Component
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.ports import command_layout
from celosia.hdl.stream.flow import Flow


class KeptFactors(Component):
    """Outputs the row factors of NORM and SOFTMAX with their storage indices.

    A row factor is a number by which a matrix product after the NORM or SOFTMAX multiplies a row.

    - ``norm``, ``softmax``: 1 when ``command``, a NORM or a SOFTMAX, starts.
    - ``factor``, ``sum_factor``: a computed row factor of the NORM, or of a SOFTMAX.
    - ``norms``: 1 while factors of a NORM are not computed; no command may start then.
    - ``softmaxes``: 1 while factors of a SOFTMAX are not computed; no NORM may start then.
    """

    def __init__(self, *, rows: int, norm: bool, softmax: bool):
        self.has_norm = norm
        self.has_softmax = softmax
        numbered = numbered_layout(rows)
        flows = {"factor": (norm, factor_layout()), "sum_factor": (softmax, numbered)}
        self.flows = [name for name, (present, _) in flows.items() if present]
        super().__init__(
            {
                "command": In(command_layout(Engine.VECTOR)),
                "norm": In(1),
                "softmax": In(1),
                **{name: In(Flow(flows[name][1])) for name in self.flows},
                "first": Out(range(rows)),  # the index of the command's factor for row 0
                "o": Out(Flow(numbered)),
                "norms": Out(1),
                "softmaxes": Out(1),
            }
        )

    def circuit(self, m):
        """Count the row factors that started NORM and SOFTMAX commands have not yet computed.

        A row factor is a number by which a later command multiplies a row. The two kinds of
        commands have separate counters.
        """
        m.d.comb += self.first.eq(self.command.params[FACTOR_SHIFT:])
        if self.has_norm:
            self._norms(m)
        if self.has_softmax:
            self._softmaxes(m)

    def _norms(self, m):
        number, left = Signal.like(self.first), Signal(range(self.rows + 1))
        m.d.comb += [
            self.o.valid.eq(self.factor.valid),
            self.o.payload.number.eq(number),
            self.o.payload.factor.eq(self.factor.payload),
            self.norms.eq(left != 0),
        ]
        with m.If(self.norm):
            m.d.sync += [number.eq(self.first), left.eq(self.command.m)]
        with m.Elif(self.factor.valid):
            m.d.sync += [number.eq(number + 1), left.eq(left - 1)]

    def _softmaxes(self, m):
        owed = Signal(COUNT_WIDTH)
        m.d.sync += owed.eq(owed + Mux(self.softmax, self.command.m, 0) - self.sum_factor.valid)
        m.d.comb += self.softmaxes.eq(owed != 0)
        with m.If(self.sum_factor.valid):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(self.sum_factor.payload)]
