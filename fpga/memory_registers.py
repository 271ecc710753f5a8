"""Merges registers at the outputs of memories into the memories, in one module of a design.

The module is read from Yosys's JSON netlist. A memory is a module with an output ``read_data``, on
which a word of the memory appears (:mod:`celosia.fpga.memory_paths`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from celosia.fpga.memory_paths import DATA, REGISTERS, Bit, Load, Module, loads_of

TAKE, CLEAR = "take", "clear"
"""Inputs of a memory with a merged output register: the register's enable and its reset."""


@dataclass(frozen=True)
class Control:
    """The nets that control a register: ``take`` is its enable, and ``clear`` is its reset to 0.

    ``take_low`` is true if ``take`` is active low, ``clear_low`` if ``clear`` is active low.
    """

    take: Bit
    clear: Bit
    take_low: bool
    clear_low: bool


def registered(module: Module, memories: Collection[str]) -> dict[str, tuple[str, Control]]:
    """Return the memories of a module that can absorb the registers at their outputs.

    A memory's outputs may drive only registers with the memory's clock, one common enable, one
    common reset to 0, and initial values 0 or undefined. The result maps a memory's instance to its
    module's name and the registers' :class:`Control`.
    """
    loads = loads_of(module)
    initial = _initial(module)
    absorbed = {}
    for name, cell in module["cells"].items():
        if cell["type"] not in memories:
            continue
        behind = [load for bit in cell["connections"][DATA] for load in loads.get(bit, [])]
        clock = cell["connections"]["clk"]
        controls = {_control(module, load, clock, initial) for load in behind}
        control = controls.pop() if len(controls) == 1 else None
        if control is not None:
            absorbed[name] = cell["type"], control
    return absorbed


def _initial(module: Module) -> dict[Bit, str]:
    """Return the initial values of nets, if stated."""
    initial = {}
    for net in module["netnames"].values():
        values = net["attributes"].get("init", "")
        initial.update(zip(net["bits"], reversed(values), strict=False))
    return initial


def _control(
    module: Module, load: Load, clock: list[Bit], initial: Mapping[Bit, str]
) -> Control | None:
    """Return the control of a register of a clock that is 0 at first and after its reset.

    Returns None for anything else.
    """
    name, port, index = load
    cell = module["cells"].get(name, {"type": ""})
    if cell["type"] not in REGISTERS or port != "D" or "keep" in cell["attributes"]:
        return None
    pins, parameters = cell["connections"], cell["parameters"]
    if pins["CLK"] != clock or int(parameters["CLK_POLARITY"], 2) != 1:
        return None
    reset = parameters["SRST_VALUE"][::-1][index] if "SRST" in pins else "0"
    if reset != "0" or initial.get(pins["Q"][index], "x") == "1":
        return None
    return Control(
        pins.get("EN", ["1"])[0],
        pins.get("SRST", ["0"])[0],
        int(parameters.get("EN_POLARITY", "1"), 2) == 0,
        int(parameters.get("SRST_POLARITY", "1"), 2) == 0,
    )


def move(module: Module, cells: Mapping[str, Control], names: Mapping[str, str]) -> None:
    """Merge registers at the outputs of memory cells into these cells, in one module of a netlist.

    ``cells`` maps the name of a memory cell to the enable and reset of the registers at its
    outputs. ``names`` maps the type of a memory cell to the type of the same memory with output
    registers.
    """
    loads = loads_of(module)
    gone: dict[str, set[int]] = defaultdict(set)
    same: dict[Bit, Bit] = {}
    for name, control in cells.items():
        cell = module["cells"][name]
        pins = cell["connections"]
        held = []
        for bit in pins[DATA]:
            outputs = []
            for register, _, index in loads.get(bit, []):
                gone[register].add(index)
                outputs.append(module["cells"][register]["connections"]["Q"][index])
            same.update(dict.fromkeys(outputs[1:], outputs[0]) if outputs else {})
            held.append(outputs[0] if outputs else bit)
        cell["type"] = names[cell["type"]]
        take = _inverted(module, control.take) if control.take_low else control.take
        clear = _inverted(module, control.clear) if control.clear_low else control.clear
        pins |= {DATA: held, TAKE: [take], CLEAR: [clear]}
        cell["port_directions"] |= {TAKE: "input", CLEAR: "input"}
    moved = {module["cells"][name]["connections"]["Q"][bit] for name in gone for bit in gone[name]}
    for name, bits in gone.items():
        _narrow(module["cells"], name, bits)
    for net in module["netnames"].values():
        if "init" in net["attributes"]:
            values = list(reversed(net["attributes"]["init"]))
            for place, bit in enumerate(net["bits"][: len(values)]):
                values[place] = "x" if bit in moved else values[place]
            net["attributes"]["init"] = "".join(reversed(values))
    holders = [*module["ports"].values(), *module["netnames"].values()]
    for holder in holders:
        holder["bits"] = [same.get(bit, bit) for bit in holder["bits"]]
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            cell["connections"][port] = [same.get(bit, bit) for bit in bits]


def _inverted(module: Module, bit: Bit) -> Bit:
    """Return the net of a net's inverse, made by a new cell."""
    name = f"$not_{bit}"
    if name not in module["cells"]:
        used = [each for net in module["netnames"].values() for each in net["bits"]]
        used += [
            each for cell in module["cells"].values() for each in cell["connections"].get("Y", [])
        ]
        module["cells"][name] = {
            "type": "$not",
            "parameters": {"A_SIGNED": "0", "A_WIDTH": f"{1:032b}", "Y_WIDTH": f"{1:032b}"},
            "attributes": {},
            "port_directions": {"A": "input", "Y": "output"},
            "connections": {
                "A": [bit],
                "Y": [1 + max(each for each in used if isinstance(each, int))],
            },
        }
    net: Bit = module["cells"][name]["connections"]["Y"][0]
    return net


def _narrow(cells: dict[str, Any], name: str, gone: Collection[int]) -> None:
    """Remove bits from a register, and the register if no bit is left."""
    cell = cells[name]
    kept = [bit for bit in range(len(cell["connections"]["Q"])) if bit not in gone]
    if not kept:
        del cells[name]
        return
    for pin in ("D", "Q"):
        cell["connections"][pin] = [cell["connections"][pin][bit] for bit in kept]
    cell["parameters"]["WIDTH"] = f"{len(kept):032b}"
    if "SRST_VALUE" in cell["parameters"]:
        value = cell["parameters"]["SRST_VALUE"][::-1]
        cell["parameters"]["SRST_VALUE"] = "".join(value[bit] for bit in kept)[::-1]
