"""Device families and devices: their resources, and the tools' options for them."""

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
"""Resources that a report counts, and their names in messages."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tool options of a family of devices.

    ``cells`` maps each resource to the cells of a synthesized netlist that need it, each with its
    number; ``placed`` to the names under which place-and-route reports it. ``block_ram_shapes`` are
    the widths and depths that a block RAM can have (bits, words), none if no other memory can
    replace it. With ``output_registers`` they have output registers that nextpnr uses.
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

    ``placer`` are nextpnr's options for its placement. If an array's cells are given places
    (``celosia.fpga.sites``), ``multiplier_rows`` and ``ram_rows`` are the device's rows of blocks
    of four multipliers or block RAMs, and ``blocks`` the blocks' first columns.

    ``wire_ps`` is the cost that mapping assumes for a wire between two tables (ps), if it differs
    from Yosys's default. That default is less than a fifth of the delay of routed wires on a large
    device, so that paths would have more tables.
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
"""Families by their names in devices.toml."""

DEVICES = {
    name: Device(name=name, **{**values, "family": FAMILIES[values["family"]]})
    for name, values in read_table(_OWN / "devices.toml").items()
}
"""Every device that a board has."""
