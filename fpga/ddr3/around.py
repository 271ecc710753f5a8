"""Verilog that connects LiteDRAM's core to a machine."""

import re
from collections.abc import Mapping

from amaranth.hdl import Shape

from celosia.arch.ddr3 import Ddr3Chip
from celosia.fpga.ddr3.core import NAME
from celosia.hdl.memory.ddr3.pins import CorePorts

_PORT = re.compile(r"^  (input |output) wire (\[\d+:0\] )?(\w+),?$", re.MULTILINE)
_TIED = {"wb_ctrl_sel": "4'hf", "wb_ctrl_cti": "3'b0", "wb_ctrl_bte": "2'b0"}


def core_wires(chip: Ddr3Chip, prefix: str) -> str:
    """Return Verilog that declares the wires between a machine and LiteDRAM's core.

    There is one wire for each port in :class:`CorePorts`. Its name is ``prefix``, followed by the
    port's name.
    """
    return "".join(
        f"  wire [{Shape.cast(member.shape).width - 1}:0] {prefix}{name};\n"
        for name, member in CorePorts(chip).members.items()
    )


def core_instance(chip: Ddr3Chip, prefix: str, others: Mapping[str, str]) -> str:
    """Return the Verilog of an instance of LiteDRAM's core, with connected ports.

    Ports of :class:`CorePorts` are connected to the wires that :func:`core_wires` declares.
    ``others`` maps the names of the core's other ports to the wires for them.
    """
    ports = {
        (f"wb_{name}" if name.startswith("ctrl_") else f"user_port_0_{name}"): f"{prefix}{name}"
        for name in CorePorts(chip).members
    }
    ports |= _TIED | dict(others)
    connections = ",\n".join(f"    .{port}({wire})" for port, wire in ports.items())
    return f"  {NAME} ddr3 (\n{connections}\n  );\n"


def modelled(machine: str, name: str, chip: Ddr3Chip, prefix: str, core: str, top: str) -> str:
    """Return Verilog whose module ``top`` connects a machine to the model of LiteDRAM's core.

    ``machine`` is the Verilog of the machine's module ``name``, and ``core`` the Verilog of the
    model. The machine's ports whose names begin with ``prefix`` are connected to the model. Its
    other ports become ports of ``top``; in their names, ``_`` replaces ``__``.
    """
    head = machine[machine.index(f"module {name} (") :]
    outer_ports = [
        (way, width, port)
        for way, width, port in _PORT.findall(head[: head.index("\n);")])
        if not port.startswith(prefix)
    ]
    ports = ", ".join(f"{way} {width}{port.replace('__', '_')}" for way, width, port in outer_ports)
    machine_ports = [port for _, _, port in outer_ports] + [
        f"{prefix}{port}" for port in CorePorts(chip).members
    ]
    connections = ", ".join(f".{port}({port.replace('__', '_')})" for port in machine_ports)
    wires = core_wires(chip, prefix.replace("__", "_"))
    instance = core_instance(chip, prefix.replace("__", "_"), {"clk": "clk", "rst": "rst"})
    return (
        f"module {top}({ports});\n{wires}  {name} machine ({connections});\n"
        f"{instance}endmodule\n{machine}{core}"
    )
