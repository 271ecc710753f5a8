# amaranth: UnusedElaboratable=no
"""The matrix engine with an array and a sparse unit, which skips zero weights."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import Out

from celosia.arch.isa import Opcode
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.records import Sparse
from celosia.hdl.component import Component
from celosia.hdl.matrix.matrix import MatrixEngine
from celosia.hdl.sparse.sparse import SparseUnit


class SparseMatrixEngine(Component):
    """A :class:`MatrixEngine` that also runs the command SPARSE, on a :class:`SparseUnit`.

    The array and the sparse unit never work at the same time. ``skipped`` is the number of zero
    weights that SPARSE skips in a cycle. ``sends`` is 1 in each cycle in which the array or the
    sparse unit multiplies.
    """

    def __init__(self, config: MatrixConfig, sparse: Sparse):
        self._dense, self._sparse = MatrixEngine(config), SparseUnit(config, sparse)
        members = dict(self._dense.signature.members)
        members |= {
            "macs": Out(range(max(config.elements, sparse.lanes) + 1)),
            "skipped": Out(len(self._sparse.skipped)),
        }
        super().__init__(members)

    def circuit(self, m):
        m.submodules.dense = dense = self._dense
        m.submodules.sparse = sparse = self._sparse
        named = Signal()
        m.d.comb += [
            named.eq(self.i.p.opcode == Opcode.SPARSE),
            dense.i.p.eq(self.i.p),
            dense.i.valid.eq(self.i.valid & ~named & ~sparse.busy),
            sparse.i.p.eq(self.i.p),
            sparse.i.valid.eq(self.i.valid & named & ~dense.status.busy),
            self.i.ready.eq((dense.i.valid & dense.i.ready) | (sparse.i.valid & sparse.i.ready)),
        ]
        for name in ("a", "b"):
            outer, ours, other = (getattr(unit, name) for unit in (self, sparse, dense))
            m.d.comb += [
                outer.request.valid.eq(ours.request.valid | other.request.valid),
                outer.request.p.eq(Mux(sparse.busy, ours.request.p, other.request.p)),
                ours.request.ready.eq(outer.request.ready),
                other.request.ready.eq(outer.request.ready),
            ]
            for port in (ours, other):
                m.d.comb += port.data.eq(outer.data)
            # Each unit receives the answers to its own requests.
            m.d.comb += [
                ours.valid.eq(outer.valid & sparse.busy),
                other.valid.eq(outer.valid & ~sparse.busy),
            ]
        sums, ours, other = self.accumulate, sparse.accumulate, dense.accumulate
        m.d.comb += [
            sums.valid.eq(ours.valid | other.valid),
            sums.addr.eq(Mux(ours.valid, ours.addr, other.addr)),
            sums.data.eq(Mux(ours.valid, ours.data, other.data)),
            self.status.done.eq(sparse.done | dense.status.done),
            self.status.push.eq(Mux(sparse.done, sparse.push, dense.status.push)),
            self.status.busy.eq(self.i.valid | sparse.busy | sparse.done | dense.status.busy),
            self.status.stall.eq(sparse.stall | dense.status.stall),
            # The dense unit's sums arrive late, the sparse unit's late enough.
            self.macs.eq(sparse.macs | dense.macs),
            self.skipped.eq(sparse.skipped),
            self.sends.eq(sparse.sends | dense.sends),
            self.refused.eq(sparse.stall | dense.refused),
            self.filling.eq(sparse.busy | dense.filling),
            self.working.eq(sparse.working | dense.working),
        ]
        if self.config.slot_scales:
            m.d.comb += [
                sums.scaled.eq(other.scaled & ~ours.valid),
                sums.scales.eq(other.scales),
            ]
        if self.config.array.operand_gating:
            m.d.comb += self.gated.eq(dense.gated)
