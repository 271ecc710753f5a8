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
    """A family of FPGA devices: its cells, and the options of its tools."""

    name: str
    synthesis: str
    router: str
    package: str
    cells: Mapping[str, Mapping[str, float]]
    """Amount of each resource, such as ``luts``, in one cell of each of Yosys's types."""
    placed: Mapping[str, Mapping[str, float]]
    """As ``cells``, for nextpnr's types."""
    multiplier_width: int
    bitstream: str
    block_ram_shapes: Sequence[tuple[int, int]] = ()
    """(Width in bits, depth in words) of a block RAM; empty if LUTs cannot replace block RAM."""
    output_registers: bool = False
    """True if nextpnr supports the output registers of block RAMs."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """An FPGA device: its family, its resources, and the options that select it in nextpnr.

    Rows and columns of the device's grid are numbered from 0. If ``blocks`` is empty, nextpnr
    chooses all sites. Otherwise :mod:`celosia.fpga.sites` assigns sites to some multipliers and
    block RAMs.
    """

    name: str
    family: Family
    capacity: Mapping[str, int]
    """Number of each resource in the device."""
    options: Sequence[str]
    placer: Sequence[str] = ()
    """Placement options of nextpnr for the device."""
    multiplier_rows: Sequence[int] = ()
    """Rows with groups of four multipliers."""
    ram_rows: Sequence[int] = ()
    """Rows with groups of four block RAMs."""
    blocks: Sequence[int] = ()
    """Columns at which the groups of all these rows begin."""
    wire_ps: int = 0
    """Delay of a wire between two LUTs in technology mapping (ps); 0 for Yosys's default."""


_OWN = Path(__file__).parent

FAMILIES = {name: Family(**values) for name, values in read_table(_OWN / "families.toml").items()}
"""Dictionary from the name of a family in devices.toml to the family."""

DEVICES = {
    name: Device(name=name, **{**values, "family": FAMILIES[values["family"]]})
    for name, values in read_table(_OWN / "devices.toml").items()
}
"""Dictionary from the name of a device to the device; it has the devices of all boards."""
