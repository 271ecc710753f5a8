"""Moves reset nets that drive many registers to an ECP5's clock network, in a netlist file."""

import json
from collections import Counter
from pathlib import Path

MANY = 512
"""Fewest registers with a common reset for which the reset is moved to the clock network."""

_REGISTER, _RESET, _BUFFER = "TRELLIS_FF", "LSR", "DCCA"


def spread_resets(netlist: Path, top: str) -> int:
    """Add a clock buffer to each reset net that drives at least ``MANY`` registers.

    The result is the number of added buffers. The file ``netlist`` with the top module ``top`` is
    changed in place. A clock buffer drives the clock network of an ECP5, which also reaches the
    reset inputs of all registers.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    module = design["modules"][top]
    registers = [cell for cell in module["cells"].values() if cell["type"] == _REGISTER]
    resets = Counter(bit for cell in registers for bit in cell["connections"].get(_RESET, ()))
    many = [bit for bit, count in resets.items() if isinstance(bit, int) and count >= MANY]
    if not many:
        return 0
    free = 1 + max(
        bit for name in module["netnames"].values() for bit in name["bits"] if isinstance(bit, int)
    )
    for place, bit in enumerate(many):
        module["cells"][f"global_reset_{place}"] = {
            "hide_name": 0,
            "type": _BUFFER,
            "parameters": {},
            "attributes": {},
            "port_directions": {"CLKI": "input", "CE": "input", "CLKO": "output"},
            "connections": {"CLKI": [bit], "CE": ["1"], "CLKO": [free + place]},
        }
        module["netnames"][f"global_reset_{place}"] = {
            "hide_name": 0,
            "bits": [free + place],
            "attributes": {},
        }
    moved = {bit: free + place for place, bit in enumerate(many)}
    for cell in registers:
        pins = cell["connections"]
        if _RESET in pins:
            pins[_RESET] = [moved.get(bit, bit) for bit in pins[_RESET]]
    netlist.write_text(json.dumps(design), encoding="utf-8")
    return len(many)
