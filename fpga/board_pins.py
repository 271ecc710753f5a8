"""Pins of a board's chips and connectors, from the board's resources in amaranth-boards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amaranth.build import DiffPairs, Pins, Resource, ResourceError, Subsignal


@dataclass(frozen=True)
class Pin:
    """A pin of a device: its name, whether the signal is active low, and electrical attributes."""

    name: str
    inverted: bool
    attributes: Mapping[str, str]


def has_resource(platform: Any, name: str) -> bool:
    """Return whether a platform has the resource ``name`` with number 0."""
    try:
        platform.lookup(name)
    except ResourceError:
        return False
    return True


def signals_of(resource: Resource) -> list[str]:
    """Return the names of the signals in a board resource, such as ``["tx", "rx"]`` for a UART.

    A resource is Amaranth's description of a chip or connector on a board. Some resources, such as
    an LED, are a single signal, which has no name. For such a resource, the list is empty.
    """
    return [part.name for part in resource.ios if isinstance(part, Subsignal)]


def pins_of(resource: Resource, signal: str = "") -> list[Pin]:
    """Return the pins of a resource, or only of its signal ``signal``.

    A differential pair has one pin in the list, the positive pin. Raises :class:`KeyError` if the
    resource has no such signal.
    """
    attributes = dict(resource.attrs)
    for io in resource.ios:
        if isinstance(io, Subsignal) and io.name == signal:
            attributes |= dict(io.attrs)
            io = io.ios[0]
        if isinstance(io, DiffPairs):
            io = io.p
        if isinstance(io, Pins):
            return [
                Pin(pin, io.invert, {key: str(value) for key, value in attributes.items()})
                for pin in io.map_names({}, resource)
            ]
    raise KeyError(signal)


def memory_pins(
    resource: Resource,
    ports: Mapping[str, str],
    buses: Sequence[str],
    moved: Mapping[str, Sequence[str]],
) -> dict[str, Pin]:
    """Return a dictionary from the ports of a memory chip's controller to their pins.

    A port's name, such as ``sdram_we_n``, is the name of ``resource`` and that of a signal.
    ``ports`` renames signals of amaranth-boards. Signals in ``buses`` have a port for each bit,
    such as ``sdram_a[0]``. ``moved`` maps a signal to pin names that replace amaranth-boards'.
    """
    pins = {}
    for signal in signals_of(resource):
        port, wired = f"{resource.name}_{ports.get(signal, signal)}", pins_of(resource, signal)
        names = moved.get(signal, [pin.name for pin in wired])
        for bit, (pin, name) in enumerate(zip(wired, names, strict=True)):
            pins[f"{port}[{bit}]" if signal in buses else port] = replace(pin, name=name)
    return pins
