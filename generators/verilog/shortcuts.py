"""Shortcuts through Amaranth's conversion to RTLIL: the same circuit in half the time.

What the text does not need is left out: checks of the type of every bit, the first of two checks
that no bit has two drivers, the search for combinational loops (Verilator's lint finds them in the
result) and for bits that cross from module to module in a design of one module, aliases of the
fields of signals, and a copy of each shared expression for every use.
"""

import functools
import gc
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

# Amaranth has no public way to change its conversion; pyproject.toml pins its version.
from amaranth.back import rtlil
from amaranth.hdl import _ast, _dsl, _ir, _nir, _xfrm
from amaranth.lib import data

_BITS = 1 << 16
"""Most output bits of a cell; a net's number is its cell's, times this, and its own."""


class _Signals(MutableMapping[Any, Any]):
    """What is known of signals, in the order in which they came."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Any]] = {}

    def __contains__(self, signal: Any) -> bool:
        return id(signal) in self._found

    def __getitem__(self, signal: Any) -> Any:
        return self._found[id(signal)][1]

    def __setitem__(self, signal: Any, value: Any) -> None:
        self._found[id(signal)] = (signal, value)

    def __delitem__(self, signal: Any) -> None:
        del self._found[id(signal)]

    def __iter__(self) -> Iterator[Any]:
        return iter([signal for signal, _ in self._found.values()])

    def __len__(self) -> int:
        return len(self._found)

    def items(self) -> Any:
        """Return pairs of a signal and its value."""
        return self._found.values()


class _Drivers(_xfrm.LHSMaskCollector):  # type: ignore[misc]
    """The bits that a statement drives, which are looked at when cells are made of it."""

    def visit_stmt(self, stmt: Any) -> None:
        """Note nothing."""


class _Net(_nir.Net):  # type: ignore[misc]
    """One bit."""

    @classmethod
    def from_cell(cls, cell: int, bit: int) -> Any:
        return cls(cell * _BITS + bit)


class _Value(_nir.Value):  # type: ignore[misc]
    """Bits, which are taken for what they are."""

    def __new__(cls, nets: Any = ()) -> Any:
        return tuple.__new__(cls, (nets,) if isinstance(nets, _Net) else nets)


class _Netlist(_nir.Netlist):  # type: ignore[misc]
    """The bits and cells of a module."""

    def __init__(self) -> None:
        super().__init__()
        self._resolved: dict[Any, Any] = {}

    def add_value_cell(self, width: int, cell: Any) -> Any:
        assert width <= _BITS
        first = self.add_cell(cell) * _BITS
        return _Value(map(_Net, range(first, first + width)))

    def alloc_late_value(self, signal: Any) -> Any:
        self.last_late_net -= len(signal)
        return _Value(map(_Net, range(self.last_late_net, self.last_late_net + len(signal))))

    def resolve_value(self, value: Any) -> Any:
        found = self._resolved.get(value)
        if found is None:
            found = value
            while found and min(found) < 0:
                found = _Value([self.connections[net] if net < 0 else net for net in found])
            self._resolved[value] = found
        return found

    def check_comb_cycles(self) -> None:
        """Look for no loop."""


class _NetlistEmitter(_ir.NetlistEmitter):  # type: ignore[misc]
    """Makes cells of statements."""

    def emit_signal_fields(self) -> None:
        for signal in self.design.signal_lca:
            whole = _nir.SignalField(self.emit_signal(signal), signed=signal.shape().signed)
            self.netlist.signal_fields[signal] = {(): whole}


class _Lowerer(_xfrm.DomainLowerer):  # type: ignore[misc]
    """Replaces clocks and resets in values; one without any stays the same object."""

    def __init__(self) -> None:
        super().__init__()
        # Each value is kept beside the answer, so that its identity stays its own.
        self._known: dict[int, tuple[bool, Any]] = {}

    def on_value(self, value: Any) -> Any:
        return super().on_value(value) if self._names_domain(value) else value

    def _names_domain(self, value: Any) -> bool:
        known = self._known.get(id(value))
        if known is None:
            kind = type(value)
            found = kind in (_ast.ClockSignal, _ast.ResetSignal) or any(
                self._names_domain(part) for part in _parts(value)
            )
            known = self._known[id(value)] = (found, value)
        return known[0]


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the values that a value is made of."""
    match value:
        case _ast.Operator():
            return tuple(value.operands)
        case _ast.Slice():
            return (value.value,)
        case _ast.Part():
            return (value.value, value.offset)
        case _ast.Concat():
            return tuple(value.parts)
        case _ast.SwitchValue():
            return (value.test, *(part for _, part in value.cases))
        case _:
            return ()


class _ModuleEmitter(rtlil.ModuleEmitter):  # type: ignore[misc]
    """Makes text of cells."""

    def sigspec(self, *parts: Any) -> str:
        """Return bits as text, neighbours in a wire or in a constant together."""
        nets: list[int] = []
        for part in parts:
            nets += (part,) if isinstance(part, _Net) else part
        chunks = []
        position = 0
        while position < len(nets):
            begin = position
            if nets[position] in (0, 1):
                while position < len(nets) and nets[position] in (0, 1):
                    position += 1
                digits = "".join("1" if net else "0" for net in reversed(nets[begin:position]))
                chunks.append(f"{position - begin}'{digits}")
                continue
            wire, low = self.nets[nets[position]]
            high = low
            position += 1
            while position < len(nets) and self.nets.get(nets[position]) == (wire, high + 1):
                position += 1
                high += 1
            chunks.append(f"{wire.name} [{low}]" if high == low else f"{wire.name} [{high}:{low}]")
        return chunks[0] if len(chunks) == 1 else f"{{ {' '.join(reversed(chunks))} }}"


def _compute_net_flows(netlist: Any) -> None:
    if len(netlist.modules) > 1:
        _own_net_flows(netlist)


def _length(value: Any) -> int:
    kind = type(value)
    if kind is _ast.Signal:
        return int(value._width)
    return int(value._stop - value._start if kind is _ast.Slice else value.shape().width)


def _get_init_value(init: Any, shape: Any, what: str = "signal") -> int:
    """Return a signal's start; without one, that of numbers and of layouts is 0."""
    if init is None and isinstance(shape, int | _ast.Shape | data.Layout):
        return 0
    return int(_own_init_value(init, shape, what))


_own_init_value = _ast._get_init_value
_own_net_flows = _ir._compute_net_flows
_SHORTCUTS = (
    (_ast, "SignalDict", _Signals),
    (_ast, "_get_init_value", _get_init_value),
    (_ast.Shape, "_cast_plain_enum", functools.cache(_ast.Shape._cast_plain_enum)),
    (_ast.Value, "__len__", _length),
    (_dsl, "LHSMaskCollector", _Drivers),
    (_nir, "SignalDict", _Signals),
    (_nir, "Net", _Net),
    (_nir, "Value", _Value),
    (_nir, "Netlist", _Netlist),
    (_ir, "NetlistEmitter", _NetlistEmitter),
    (_ir, "_compute_net_flows", _compute_net_flows),
    (_xfrm, "DomainLowerer", _Lowerer),
    (rtlil, "ModuleEmitter", _ModuleEmitter),
)


@contextmanager
def shortcuts() -> Iterator[None]:
    """Let conversions take the shortcuts, and Python not search millions of live objects."""
    enabled = gc.isenabled()
    gc.disable()
    own = [(place, name, vars(place)[name]) for place, name, _ in _SHORTCUTS]
    for place, name, short in _SHORTCUTS:
        setattr(place, name, short)
    try:
        yield
    finally:
        for place, name, thing in own:
            setattr(place, name, thing)
        if enabled:
            gc.enable()
