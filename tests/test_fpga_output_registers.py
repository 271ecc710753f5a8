"""Which registers go into a block RAM's own output register, and which stay."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from celosia.fpga.devices import DEVICES
from celosia.fpga.output_registers import use_output_registers

Module = dict[str, Any]

CLOCK, ENABLE, OTHER = 2, 3, 4
"""Nets of the design's inputs."""


def ram(width: int, outputs: dict[str, int]) -> dict[str, Any]:
    """Return a block RAM whose outputs in use are nets of some numbers."""
    parameters = {"GSR": "DISABLED", "RESETMODE": "ASYNC"}
    pins: dict[str, list[Any]] = {}
    for side in "AB":
        parameters |= {
            f"DATA_WIDTH_{side}": f"{width:032b}",
            f"REGMODE_{side}": "NOREG",
            f"CLK{side}MUX": f"CLK{side}",
        }
        pins |= {f"CLK{side}": [CLOCK], f"RST{side}": ["0"], f"OCE{side}": ["1"]}
    directions = dict.fromkeys(pins, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": "DP16KD",
        "parameters": parameters,
        "attributes": {},
        "port_directions": directions,
        "connections": pins | {pin: [net] for pin, net in outputs.items()},
    }


def register(net: int, held: int, *, enable: int | None = ENABLE) -> dict[str, Any]:
    """Return a register of a net, which nothing resets."""
    pins: dict[str, list[Any]] = {"CLK": [CLOCK], "DI": [net], "LSR": ["0"], "Q": [held]}
    if enable is not None:
        pins["CE"] = [enable]
    return {
        "type": "TRELLIS_FF",
        "parameters": {
            "CEMUX": "1 " if enable is None else "CE",
            "CLKMUX": "CLK",
            "GSR": "DISABLED",
            "LSRMUX": "LSR",
            "REGSET": "RESET",
        },
        "attributes": {},
        "port_directions": {pin: "output" if pin == "Q" else "input" for pin in pins},
        "connections": pins,
    }


def design(width: int = 18, *, enable: int | None = ENABLE) -> Module:
    """Return a block RAM with two outputs of each side in use, a register behind each."""
    nets = {"DOA0": 10, "DOA1": 11, "DOB0": 12, "DOB1": 13}
    cells = {"ram": ram(width, nets | {"DOB2": 14})}
    cells |= {f"reg_{net}": register(net, net + 10, enable=enable) for net in nets.values()}
    return {
        "ports": {
            "i": {"direction": "input", "bits": [CLOCK, ENABLE, OTHER]},
            "o": {"direction": "output", "bits": [20, 21, 22, 23]},
        },
        "cells": cells,
        "netnames": {
            "now": {"bits": [10, 11, 12, 13]},
            "some": {"bits": [12, 13, 14]},
            "held": {"bits": [20, 21, 22, 23]},
        },
    }


def passed(module: Module, folder: Path) -> tuple[int, Module]:
    path = folder / "netlist.json"
    path.write_text(json.dumps({"modules": {"top": module}}), encoding="utf-8")
    moved = use_output_registers(path, "top")
    return moved, json.loads(path.read_text(encoding="utf-8"))["modules"]["top"]


def modes(module: Module) -> list[str]:
    parameters = module["cells"]["ram"]["parameters"]
    return [parameters[f"REGMODE_{side}"] for side in "AB"]


@pytest.mark.parametrize("width", [1, 18, 36])
@pytest.mark.parametrize("enable", [None, ENABLE])
def test_registers_go_in(width: int, enable: int | None, tmp_path: Path) -> None:
    moved, module = passed(design(width, enable=enable), tmp_path)
    assert moved == 4
    assert list(module["cells"]) == ["ram"]
    assert modes(module) == ["OUTREG", "OUTREG"]
    pins = module["cells"]["ram"]["connections"]
    enable_net = "1" if enable is None else enable
    assert (pins["OCEA"], pins["OCEB"]) == ([enable_net], [enable_net])
    assert [pins[pin] for pin in ("DOA0", "DOA1", "DOB0", "DOB1")] == [[20], [21], [22], [23]]
    # Nothing names nets that are no more.
    assert module["netnames"] == {
        "some": {"bits": ["x", "x", 14]},
        "held": {"bits": [20, 21, 22, 23]},
    }


def test_sides_have_enables_of_their_own(tmp_path: Path) -> None:
    module = design()
    for net in (12, 13):
        module["cells"][f"reg_{net}"]["connections"]["CE"] = [OTHER]
    moved, changed = passed(module, tmp_path)
    pins = changed["cells"]["ram"]["connections"]
    assert (moved, pins["OCEA"], pins["OCEB"]) == (4, [ENABLE], [OTHER])
    # But of 36 bits both are one.
    module["cells"]["ram"] = ram(36, {"DOA0": 10, "DOA1": 11, "DOB0": 12, "DOB1": 13})
    assert passed(module, tmp_path) == (0, module)


def parameter(name: str, value: str) -> Callable[[Module], Any]:
    return lambda module: module["cells"]["reg_12"]["parameters"].update({name: value})


def pin(name: str, net: Any, cell: str = "reg_12") -> Callable[[Module], Any]:
    return lambda module: module["cells"][cell]["connections"].update({name: [net]})


def of_ram(name: str, value: str) -> Callable[[Module], Any]:
    return lambda module: module["cells"]["ram"]["parameters"].update({name: value})


def second_register(module: Module) -> None:
    module["cells"]["more"] = register(12, 30)


SPOILED: dict[str, Callable[[Module], Any]] = {
    "another load": second_register,
    "a load outside": lambda module: module["ports"]["o"]["bits"].append(12),
    "no register": lambda module: module["cells"]["reg_12"].update(type="LUT4"),
    "another pin": lambda module: module["cells"]["reg_12"]["connections"].update(
        DI=["0"], CE=[12]
    ),
    "an initial 1": parameter("REGSET", "SET"),
    "the falling edge": parameter("CLKMUX", "INV"),
    "an inverted enable": parameter("CEMUX", "INV"),
    "never": parameter("CEMUX", "0 "),
    "no enable": parameter("CEMUX", "1 "),
    "the global reset": parameter("GSR", "ENABLED"),
    "a parameter": parameter("LSRMODE", "PRLD"),
    "an inverted reset": parameter("LSRMUX", "INV"),
    "a reset": pin("LSR", OTHER),
    "a reset that is always": pin("LSR", "1"),
    "another clock": pin("CLK", OTHER),
    "another enable": pin("CE", OTHER),
    "a constant enable": pin("CE", "0"),
    "another input": pin("M", OTHER),
    "to be kept": lambda module: module["cells"]["reg_12"]["attributes"].update(keep="1"),
    "a reset of the block RAM": pin("RSTB", OTHER, "ram"),
    "another clock of the block RAM": pin("CLKB", OTHER, "ram"),
    "the block RAM's falling edge": of_ram("CLKBMUX", "INV"),
    "an output register": of_ram("REGMODE_B", "OUTREG"),
}
"""Reasons to leave the registers of port B, or of both ports of one reader, in place."""


@pytest.mark.parametrize("width", [18, 36])
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_registers_stay(spoil: Callable[[Module], Any], width: int, tmp_path: Path) -> None:
    module = design(width)
    spoil(module)
    before = copy.deepcopy(module)
    moved, changed = passed(module, tmp_path)
    if width == 36:
        assert (moved, changed) == (0, before)
        return
    assert moved == 2
    for cell in ("reg_12", "reg_13"):
        assert changed["cells"][cell] == before["cells"][cell]
    assert modes(changed) == ["OUTREG", modes(before)[1]]
    assert changed["cells"]["ram"]["connections"]["OCEB"] == ["1"]


@pytest.mark.parametrize(
    "spoil",
    [of_ram("GSR", "ENABLED"), of_ram("DATA_WIDTH_B", f"{36:032b}")],
    ids=["the global reset", "36 bits on one side"],
)
def test_block_rams_stay(spoil: Callable[[Module], Any], tmp_path: Path) -> None:
    module = design()
    spoil(module)
    assert passed(module, tmp_path) == (0, module)


def test_only_devices_whose_own_nextpnr_uses_have_them() -> None:
    families = {device.family.name for device in DEVICES.values() if device.family.output_registers}
    assert families == {"ecp5"}
