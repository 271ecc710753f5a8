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
    """A family of devices: its cells, and the options of the tools.

    ``cells`` maps each resource to the types of netlist cells that use it, and these to the number
    that one cell uses. ``placed`` maps each resource to the cell types that place-and-route counts.
    ``block_ram_shapes`` are the pairs (width, depth) of a block RAM (bits, words). They are empty
    if LUTs cannot replace block RAM. With ``output_registers`` block RAMs have output registers
    that nextpnr supports.
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
    """A device: its family, its resources, and the options that select it in nextpnr.

    ``capacity`` maps each resource to the number that the device has. ``placer`` are nextpnr's
    placement options for the device. Three fields serve the placement of an array's cells
    (``celosia.fpga.sites``), on devices that have it. ``multiplier_rows`` and ``ram_rows`` are the
    rows of the device with blocks of four multipliers or four block RAMs, and ``blocks`` the first
    columns of the blocks.

    ``wire_ps`` is the delay that technology mapping assumes for a wire between two LUTs (ps); 0:
    Yosys's default. On a large device that default is less than a fifth of the delay of routed
    wires, so paths would have more LUTs.
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
