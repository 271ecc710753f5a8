"""Merges registers after block RAMs into the output registers of the block RAMs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from celosia.fpga.memory_paths import Bit, Load, loads_of

_RAM, _REGISTER = "DP16KD", "TRELLIS_FF"
_PLAIN = {"CLKMUX": "CLK", "GSR": "DISABLED", "LSRMUX": "LSR", "REGSET": "RESET"}
"""Parameters of a register that begins at 0 and is clocked by a rising edge."""
_FREE = {"CEMUX", "SRMODE"}
"""Parameters that such a register may have with any value: its enable, and its kind of reset."""
_PINS = {"CLK", "CE", "LSR", "DI", "Q"}
_WIDE = 36
"""Word width of a block RAM that writes by port A and reads by port B, on the outputs of A and B
(bits)."""


def use_output_registers(netlist: Path, top: str) -> int:
    """Merge registers after block RAMs into the block RAMs; return the number of merged flip-flops.

    The file ``netlist`` of an ECP5 design is changed in place. Registers are merged if each bit of
    a block RAM's port drives one register, with the port's clock, an enable common to all, no
    reset, and initial value 0.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    moved = _take_registers(design["modules"][top])
    if moved:
        netlist.write_text(json.dumps(design), encoding="utf-8")
    return moved


def _take_registers(module: dict[str, Any]) -> int:
    cells = module["cells"]
    rams = [cell for cell in cells.values() if cell["type"] == _RAM]
    loads = loads_of(module)
    gone: set[Bit] = set()
    for ram in rams:
        for sides, clock in _readers(ram):
            used = [(pin, bit) for pin, bit in _outputs(ram, sides) if loads.get(bit)]
            names = [_single(loads[bit]) for _, bit in used]
            enables = {_enable(cells.get(name), clock) for name in names}
            enable = enables.pop() if len(enables) == 1 else None
            if enable is None:
                continue
            for (pin, bit), name in zip(used, names, strict=True):
                ram["connections"][pin] = cells.pop(name)["connections"]["Q"]
                gone.add(bit)
            for side in sides:
                ram["parameters"][f"REGMODE_{side}"] = "OUTREG"
                ram["connections"][f"OCE{side}"] = [enable]
    _forget(module["netnames"], gone)
    return len(gone)


def _outputs(ram: Mapping[str, Any], sides: str) -> Iterator[tuple[str, Bit]]:
    """Yield the outputs of a block RAM's ports, with their nets."""
    for pin, bits in ram["connections"].items():
        if pin[:2] == "DO" and pin[2] in sides:
            yield from ((pin, bit) for bit in bits if isinstance(bit, int))


def _readers(ram: Mapping[str, Any]) -> Iterator[tuple[str, Bit]]:
    """Yield the sides that a block RAM reads by, each with its clock, unless they are reset.

    An output as wide as both sides has one reader, whose enable goes to both sides' output
    registers; so either one may be used.
    """
    parameters, pins = ram["parameters"], ram["connections"]
    width_a, width_b = (int(parameters[f"DATA_WIDTH_{side}"], 2) for side in "AB")
    if parameters["GSR"] != "DISABLED" or (width_b == _WIDE and width_a != _WIDE):
        return
    plain = [
        side
        for side in "AB"
        if parameters[f"REGMODE_{side}"] == "NOREG"
        and parameters[f"CLK{side}MUX"] == f"CLK{side}"
        and pins[f"RST{side}"] == ["0"]
    ]
    if width_a != _WIDE:
        yield from ((side, pins[f"CLK{side}"][0]) for side in plain)
    elif len(plain) == 2 and pins["CLKA"] == pins["CLKB"]:
        yield "AB", pins["CLKB"][0]


def _single(loads: list[Load]) -> str:
    """Return the name of the only cell that a net leads to, by its input ``DI``; else nothing."""
    return loads[0][0] if len(loads) == 1 and loads[0][1] == "DI" else ""


def _enable(cell: Mapping[str, Any] | None, clock: Bit) -> Bit | None:
    """Return the enable of a register of a clock without a reset; None for anything else."""
    if cell is None or cell["type"] != _REGISTER or "keep" in cell["attributes"]:
        return None
    pins, parameters = cell["connections"], cell["parameters"]
    plain = {name: value for name, value in parameters.items() if name not in _FREE}
    if plain != _PLAIN or not pins.keys() <= _PINS:
        return None
    if pins["CLK"] != [clock] or pins["LSR"] != ["0"]:
        return None
    kind = parameters["CEMUX"].strip()  # Yosys puts a space behind digits alone.
    enable: Bit | None = {"1": "1", "CE": pins.get("CE", [None])[0]}.get(kind)
    return enable if enable == "1" or isinstance(enable, int) else None


def _forget(names: dict[str, Any], gone: set[Bit]) -> None:
    """Remove nets that no longer exist from the names of a design's nets."""
    for name, net in list(names.items()):
        if not gone.isdisjoint(net["bits"]):
            net["bits"] = ["x" if bit in gone else bit for bit in net["bits"]]
            if all(bit == "x" for bit in net["bits"]):
                del names[name]
