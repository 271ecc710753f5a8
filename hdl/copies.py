"""Redundant copies of control registers, so that a flipped bit is outvoted or reported."""

from collections.abc import Callable, Iterable, Iterator

from amaranth.hdl import Cat, Elaboratable, Fragment, Module, Signal, Value
from amaranth.hdl._ast import Assign, Switch
from amaranth.hdl._xfrm import LHSMaskCollector, StatementTransformer, ValueTransformer
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from celosia.hdl.arithmetic.exponential import OctaveExponential
from celosia.hdl.arithmetic.multiplier import Multiplier, MultiplierPair, PackedMultiplier
from celosia.hdl.arithmetic.polynomial import PiecewisePolynomial
from celosia.hdl.arithmetic.requantize import Requantizer
from celosia.hdl.arithmetic.wide_multiplier import HalfProducts, WideMultiplier
from celosia.hdl.component import Component, Placer
from celosia.hdl.control.loops import Loops
from celosia.hdl.control.sequencer import Sequencer
from celosia.hdl.functions.function_table import FunctionLane
from celosia.hdl.functions.table import LookupTable
from celosia.hdl.matrix.column import ElementColumn
from celosia.hdl.matrix.decoder import WeightDecoder
from celosia.hdl.matrix.edges import ActivationEdge, SumEdge, WeightEdge
from celosia.hdl.matrix.entry import ActivationEntry
from celosia.hdl.matrix.parts import PartAdder
from celosia.hdl.matrix.streamer import ActivationStreamer
from celosia.hdl.matrix.tiles import StagedTileWalker, TileWalker
from celosia.hdl.matrix.tree import TreeColumn
from celosia.hdl.matrix.weights import WeightFetcher
from celosia.hdl.matrix.writer import WeightWriter
from celosia.hdl.memory.address import Bursts, Rows
from celosia.hdl.memory.bank import Bank
from celosia.hdl.memory.byte_ram import ByteRam
from celosia.hdl.memory.load import LoadEngine
from celosia.hdl.memory.protected import ProtectedRam
from celosia.hdl.memory.ram import Ram
from celosia.hdl.memory.store import StoreEngine
from celosia.hdl.stream.pipeline import KEPT
from celosia.hdl.stream.slice import RegisterSlice
from celosia.hdl.vector.bounds import OutputBounds
from celosia.hdl.vector.drain import DrainReader
from celosia.hdl.vector.reader import RowReader
from celosia.hdl.vector.walker import Walker

_DATA = (
    Bank,
    ByteRam,
    ElementColumn,
    FunctionLane,
    LookupTable,
    Multiplier,
    HalfProducts,
    MultiplierPair,
    OctaveExponential,
    PackedMultiplier,
    PartAdder,
    PiecewisePolynomial,
    ProtectedRam,
    Ram,
    Requantizer,
    WideMultiplier,
    SumEdge,
    TreeColumn,
    WeightDecoder,
    WeightEdge,
)
"""Components of the data path; their registers are not copied."""

_RECORDS = {
    ActivationEdge: 128,
    ActivationEntry: 128,
    ActivationStreamer: 128,
    Bursts: 128,
    DrainReader: 128,
    LoadEngine: 64,
    Loops: 64,
    OutputBounds: 128,
    RegisterSlice: 128,
    RowReader: 32,
    Rows: 128,
    Sequencer: 64,
    StoreEngine: 64,
    StagedTileWalker: 1024,
    TileWalker: 1024,
    Walker: 256,
    WeightFetcher: 32,
    WeightWriter: 32,
}
"""Components whose control registers are wider than ``_STATE``, with the greatest width (bits)."""

_STATE = 15
"""Widest registers of other components that count as state, counts or addresses (bits)."""


class Guarded(Component):
    """A component whose control registers have redundant copies; its ports are the same.

    With the level ``detect``, there are two copies; ``differs`` is 1 for one cycle, two cycles
    after a difference begins. With ``correct``, the circuit uses the majority of three copies. The
    data path has no copies.
    """

    def __init__(self, component: wiring.Component, level: str):
        members = dict(component.signature.members)
        super().__init__(members | ({"differs": Out(1)} if level == "detect" else {}))
        self.component = component
        self.level = level
        # Its ports are those of the component itself.
        vars(self).update({name: getattr(component, name) for name in members})

    def elaborate(self, platform):
        # Not a separate module, because its registers must be accessible.
        whole = Fragment.get(self.component, _Within(platform))
        parts = enumerate(_parts(whole))
        found = [report for number, part in parts for report in _copy(part, self.level, number)]
        if self.level == "detect":
            m = Module()
            m.d.sync += self.differs.eq(Cat(found).any())
            report = Fragment.get(m, platform)
            whole.add_statements("sync", report.statements["sync"])
        return whole


def guarded(component: wiring.Component, level: str) -> wiring.Component:
    """Return ``component`` with or without redundant copies of its control registers.

    If ``level`` is ``detect`` or ``correct``, the result has copies (:class:`Guarded`). If
    ``level`` is ``none``, the result is ``component`` itself.
    """
    if level == "none":
        return component
    kind = type(component)
    return type(kind.__name__, (Guarded,), {"__doc__": kind.__doc__})(component, level)


def differences_of(components: Iterable[wiring.Component]) -> list[Value]:
    """Return a list of the outputs ``differs`` of those ``components`` that have this output.

    The output is 1 if the copies of a control register in the component differ (:class:`Guarded`).
    """
    return [one.differs for one in components if "differs" in one.signature.members]


class _Within:
    """A platform (:class:`Placer`) that merges components into their surroundings.

    Only data path components are placed as on the platform ``around`` it.
    """

    def __init__(self, around):
        self.around = around

    def place(self, component: wiring.Component, elaborate: Callable) -> Elaboratable:
        """Return the component's circuit, or its replacement."""
        if _is_data(component) and isinstance(self.around, Placer):
            return self.around.place(component, elaborate)
        return elaborate(component, self)


def _is_data(component) -> bool:
    return isinstance(component, _DATA)


def _parts(fragment: Fragment) -> Iterator[Fragment]:
    """Yield a fragment and those below it, except data path components."""
    if any(_is_data(origin) for origin in fragment.origins or ()):
        return
    yield fragment
    for part, *_ in fragment.subfragments:
        yield from _parts(part)


def majority(one: Value, two: Value, three: Value) -> Value:
    """Return the bitwise majority of three words."""
    return one & two | two & three | one & three


def _copy(fragment: Fragment, level: str, number: int) -> list[Signal]:
    """Copy a fragment's control registers; return the signal that reports differences, if any."""
    written = LHSMaskCollector()
    written.visit_stmt(fragment.statements.get("sync", ()))
    origin = (fragment.origins or (None,))[0]
    widest = _RECORDS.get(type(origin), _STATE)
    chosen = [chunk for chunk in written.chunks() if len(chunk[0]) <= widest]
    if not chosen:
        return []
    copies: list[dict[int, Signal]] = [{} for _ in range(2 if level == "detect" else 3)]
    m = Module()
    differences = []
    for register, low, high in chosen:
        own = []
        for index, names in enumerate(copies):
            copy = Signal.like(register, name_suffix=f"_copy_{index}", attrs=dict(KEPT))
            own.append(names.setdefault(id(register), copy)[low:high])
        value = majority(*own) if level == "correct" else own[0]
        m.d.comb += register[low:high].eq(value)
        differences.append((own[0] ^ own[1]).any())
    plain = fragment.statements["sync"]
    fragment.statements["sync"] = _Renamed(copies[0], others=True).on_statements(plain)
    for names in copies[1:]:
        fragment.add_statements("sync", _Renamed(names).on_statements(plain))
    if level == "detect":
        # Reported once: a register that is not written again may differ for long.
        differ, differed, report = Signal(), Signal(), Signal(name=f"report_{number}")
        m.d.sync += [differ.eq(Cat(differences).any()), differed.eq(differ)]
        m.d.comb += report.eq(differ & ~differed)
    for domain, statements in Fragment.get(m, None).statements.items():
        fragment.add_statements(domain, statements)
    return [report] if level == "detect" else []


class _Renamed(ValueTransformer, StatementTransformer):
    """Turns statements into those that write register copies; with ``others`` the rest too.

    Values that are read stay unchanged.
    """

    def __init__(self, names: dict[int, Signal], *, others: bool = False):
        self._names = names
        self._others = others
        self._renamed = False

    def on_Signal(self, value):
        self._renamed |= id(value) in self._names
        return self._names.get(id(value), value)

    def on_Assign(self, stmt):
        self._renamed = False
        assign = Assign(self.on_value(stmt.lhs), stmt.rhs)
        return assign if self._renamed or self._others else []

    def on_Switch(self, stmt):
        return Switch(stmt.test, [(k, self.on_statement(s), at) for k, s, at in stmt.cases])

    def on_Property(self, stmt):
        return stmt if self._others else []
