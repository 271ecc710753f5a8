"""Verilog for people to read, from any component."""

import re

from amaranth.back import verilog
from amaranth.lib.wiring import Component

# Yosys starts each `always @*` at time 0 by a variable that its declaration initializes, which
# from SystemVerilog on is no event.
_STARTER = re.compile(r"^  reg (\\\$auto\$verilog_backend\S+ ) = 0;$", re.MULTILINE)


def to_verilog(component: Component, name: str | None = None) -> str:
    """Return the Verilog of a component and everything below it.

    The top module has the given name, or the component's class name.
    """
    top = name or type(component).__name__
    text = verilog.convert(component, name=top, emit_src=False, strip_internal_attrs=True)
    return _STARTER.sub(r"  reg \1;\n  initial \1 <= 0;", str(text))
