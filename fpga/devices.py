"""FPGA families and devices: their resources, and the options of the tools for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from celosia.arch.tables import read_table

RESOURCES = {
    "luts": "LUT4s",
    "ffs": "registers",
    "multipliers": "multipliers",
    "block_rams": "block RAMs",
}
"""Dictionary from each resource that a report counts to the resource's name in messages."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of FPGA devices: its cells, and the options of its tools.

    - ``cells``: a dictionary from each resource, such as ``luts``, to a dictionary from cell type
      to the amount of the resource in one cell. The cell types are those of Yosys's netlist.
    - ``placed``: a dictionary as ``cells``, but with nextpnr's cell types.
    - ``block_ram_shapes``: the pairs (width in bits, depth in words) that a block RAM can have.
      From these shapes, a build computes each memory's number of block RAMs, and decides which
      memories to make of LUTs. The list is empty if LUTs of the family cannot replace block RAM.
    - ``output_registers``: true if nextpnr supports the output registers of block RAMs.
    """

    name: str
    synthesis: str
    router: str
    package: str
    cells: Mapping[str, Mapping[str, float]]
    placed: Mapping[str, Mapping[str, float]]
    multiplier_width: int
    bitstream: str
    block_ram_shapes: Sequence[tuple[int, int]] = ()
    output_registers: bool = False


@dataclass(frozen=True, kw_only=True)
class Device:
    """An FPGA device: its family, its resources, and the options that select it in nextpnr.

    ``capacity`` maps each resource to the number that the device has. ``placer`` are nextpnr's
    placement options for the device.

    Three fields give the positions of multipliers and block RAMs in the device's grid. Rows and
    columns of the grid are counted from 0. Multipliers are in groups of four in one row, and so are
    block RAMs.

    - ``multiplier_rows`` lists the rows with groups of multipliers.
    - ``ram_rows`` lists the rows with groups of block RAMs.
    - ``blocks`` lists the columns at which the groups begin. These columns are the same in all rows
      of the two other lists.

    For example, the fields are ``multiplier_rows=[10]``, ``ram_rows=[22]`` and ``blocks=[4, 13]``.
    Row 10 then has eight multipliers: one group from column 4 on, and one group from column 13 on.
    Row 22 has eight block RAMs, in groups that begin at the same columns.

    :mod:`celosia.fpga.sites` uses the positions to place the multipliers and memories of a
    machine's array. If the three fields are empty, nextpnr chooses the places.

    ``wire_ps`` is the delay that technology mapping assumes for a wire between two LUTs (ps); 0
    stands for Yosys's default. On a large device the default is less than a fifth of the real
    delay. With the default, mapping would put too many LUTs in series.
    """

    name: str
    family: Family
    capacity: Mapping[str, int]
    options: Sequence[str]
    placer: Sequence[str] = ()
    multiplier_rows: Sequence[int] = ()
    ram_rows: Sequence[int] = ()
    blocks: Sequence[int] = ()
    wire_ps: int = 0


_OWN = Path(__file__).parent

FAMILIES = {name: Family(**values) for name, values in read_table(_OWN / "families.toml").items()}
"""Dictionary from the name of a family in devices.toml to the family."""

DEVICES = {
    name: Device(name=name, **{**values, "family": FAMILIES[values["family"]]})
    for name, values in read_table(_OWN / "devices.toml").items()
}
"""Dictionary from the name of a device to the device; it has the devices of all boards."""
