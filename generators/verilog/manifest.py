"""The machine-readable description (JSON) of generated Verilog."""

import json
from dataclasses import asdict
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.isa import OPERAND_MEANINGS, Definition
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.verilog.describe import ports, summary
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.bus.axi4_lite import ADDR_WIDTH
from celosia.hdl.bus.control import CONTROL_PREFIXES, ControlledAccelerator
from celosia.hdl.bus_accelerator import PREFIXES, BusAccelerator
from celosia.hdl.micro.machine import MicroMachine


def manifest(component: Component, name: str, config: Config) -> str:
    """Return a JSON object that describes a generated module.

    The object has the module's name, meaning, configuration and ports. Accelerators also have
    ``registers``, ``instructions`` and ``operands``, and ``bus`` or ``control`` for ports on a
    standard bus.
    """
    result: dict[str, Any] = {
        "module": name,
        "meaning": summary(type(component)),
        "configuration": config.fields(),
        "ports": ports(component),
    }
    if isinstance(component, ControlledAccelerator):
        result["control"] = {
            "protocol": component.control,
            "prefix": CONTROL_PREFIXES[component.control],
            "data_width": 32,
            "addr_width": ADDR_WIDTH,
        }
        component = component.accelerator
    if isinstance(component, BusAccelerator):
        result["bus"] = {
            "protocol": component.bus,
            "prefix": PREFIXES[component.bus],
            "data_width": config.memory.width,
            "addr_width": component.addresses.width,
            "base": component.addresses.base,
            "bytes": 1 << config.memory.addr_width,
        }
    if isinstance(component, Accelerator | BusAccelerator | MicroMachine):
        result["registers"] = [asdict(register) for register in REGISTER_MAP.values()]
        result["operands"] = OPERAND_MEANINGS
        result["instructions"] = list(map(_instruction, config.instructions))
    return json.dumps(result, indent=2) + "\n"


def _instruction(definition: Definition) -> dict[str, Any]:
    return {
        "name": definition.opcode.name,
        "opcode": int(definition.opcode),
        "engine": definition.engine.name if definition.engine is not None else None,
        "operands": list(definition.operands),
        "flags": list(definition.flags),
        "meaning": definition.summary,
    }
