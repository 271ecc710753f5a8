"""Finds the paths from the outputs of memories to registers, through the modules of a design.

The modules are read from Yosys's JSON netlist after the pass ``opt_dff``, which merges enables and
resets into register cells. A memory is a module with an output ``read_data``, on which a word of
the memory appears.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

Bit = int | str
"""A net of a module, or a constant."""
Module = dict[str, Any]
Load = tuple[str, str, int]
"""A load of a net: cell, port, and bit of the port. The cell is "" for a port of the module."""

DATA = "read_data"
"""Name of the output port of a memory."""

REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe"}
"""Yosys's register cells; in a cell with reset and enable, the reset takes precedence."""


def carriers(modules: Mapping[str, Module], memories: Collection[str]) -> dict[str, set[str]]:
    """Return, for each module, the submodules to merge so that memories meet their registers.

    A block RAM can only absorb the registers at its outputs if both are in one module. If ``Top``
    connects a memory in ``Store`` to registers in ``Reader``, the result is
    ``{"Top": {"Store", "Reader"}}``.
    """
    paths = _Paths(modules, memories)
    outputs: dict[str, set[str]] = {}
    for name, module in modules.items():
        if name in memories:
            continue
        loads = loads_of(module)
        for cell in module["cells"].values():
            through: set[str] = set()
            wanted = [bit for bit in paths.read(cell) if loads.get(bit)]
            leads = [paths.leads(module, load, through) for bit in wanted for load in loads[bit]]
            if leads and all(leads):
                below = paths.below(cell["type"])
                outputs.setdefault(name, set()).update(through, below)
    return outputs


class _Paths:
    """Follows memories' outputs through a design's modules."""

    def __init__(self, modules: Mapping[str, Module], memories: Collection[str]):
        self._modules = modules
        self._memories = memories
        self._loads: dict[str, dict[Bit, list[Load]]] = {}
        self._outputs: dict[str, set[tuple[str, int]]] = {}

    def read(self, cell: Mapping[str, Any]) -> Iterator[Bit]:
        """Yield the nets of a cell's outputs that carry the output of a memory inside it."""
        for port, index in sorted(self._raw(cell["type"])):
            yield cell["connections"][port][index]

    def below(self, name: str) -> set[str]:
        """Return a module and those below it that have memories' words at their outputs."""
        if name in self._memories:
            return set()
        cells = self._modules[name]["cells"].values()
        inner = (self.below(cell["type"]) for cell in cells if self._raw(cell["type"]))
        return {name}.union(*inner)

    def leads(self, module: Module, load: Load, through: set[str]) -> bool:
        """Return whether a load is a register, or a port of a cell with nothing but such loads."""
        name, port, index = load
        if not name:
            return False
        cell = module["cells"][name]
        if cell["type"] in REGISTERS:
            return port == "D"
        inner = self._modules.get(cell["type"])
        if inner is None or cell["type"] in self._memories:
            return False
        through.add(cell["type"])
        if cell["type"] not in self._loads:
            self._loads[cell["type"]] = loads_of(inner)
        behind = self._loads[cell["type"]].get(inner["ports"][port]["bits"][index], [])
        return all(self.leads(inner, each, through) for each in behind)

    def _raw(self, name: str) -> set[tuple[str, int]]:
        """Return a module's outputs that are directly the output of a memory."""
        if name not in self._outputs:
            self._outputs[name] = set()
            module = self._modules.get(name)
            if module is None:
                return set()
            driven = set(module["ports"].get(DATA, {"bits": []})["bits"])
            if name not in self._memories:
                driven = {bit for cell in module["cells"].values() for bit in self.read(cell)}
            self._outputs[name] = {
                (port, index)
                for port, each in module["ports"].items()
                for index, bit in enumerate(each["bits"])
                if each["direction"] == "output" and bit in driven
            }
        return self._outputs[name]


def loads_of(module: Mapping[str, Any]) -> dict[Bit, list[Load]]:
    """Return a dictionary from each net to its loads: cell inputs and ports that the net drives.

    The loads of a net are a list of tuples (cell, port, bit of the port). If the load is a port of
    the module, the cell is "".
    """
    loads = defaultdict(list)
    for port, each in module["ports"].items():
        if each["direction"] != "input":
            for index, bit in enumerate(each["bits"]):
                loads[bit].append(("", port, index))
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell.get("port_directions", {}).get(port) != "output":
                for index, bit in enumerate(bits):
                    loads[bit].append((name, port, index))
    return loads
