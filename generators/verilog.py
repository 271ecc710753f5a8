"""Verilog for people to read, from any component."""

from amaranth.back import verilog
from amaranth.lib.wiring import Component


def to_verilog(component: Component, name: str | None = None) -> str:
    """Return the Verilog of a component and everything below it.

    The top module has the given name, or the component's class name.
    """
    top = name or type(component).__name__
    return str(verilog.convert(component, name=top, emit_src=False, strip_internal_attrs=True))
