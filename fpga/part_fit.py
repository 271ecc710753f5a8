"""Fits the Verilog of a configuration to a device, or finds a configuration that would fit."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.fpga.boards import BOARDS, get_board
from celosia.fpga.devices import RESOURCES, Device
from celosia.fpga.hierarchy import Hierarchy
from celosia.fpga.part import PARTS, Needs, Surplus, needs, surplus
from celosia.fpga.synthesis import exported, plain_needs

_USABLE = {"luts": 0.95}
"""Share of a device's resource that a design may use; nextpnr cannot place many more LUTs."""

_FIELDS = ("scratchpad_bytes", "weight_depth", "lanes", "cols", "rows", "acc_depth", "max_row")
"""Configuration fields that are halved to make a machine smaller, the least harmful first."""

_LOGIC = ("lanes", "cols", "rows")
"""Configuration fields that reduce other logic than multipliers and memories."""

_HALVINGS = 4
_SYNTHESES = 4  # of smaller machines, at the most: each takes minutes

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Fit:
    """An exported design that fits a device, and the resources that it uses.

    ``wanted`` are the multipliers and block RAMs that the design would use on a large enough
    device. ``made`` are the multipliers and memories that are made of LUTs, because the device has
    too few multipliers or block RAMs.
    """

    verilog: str
    wanted: Needs
    made: Surplus
    used: Mapping[str, int]
    """Resources that the design uses after the family's plain synthesis, by keys of ``RESOURCES``.
    """

    def sentence(self, device: Device) -> str:
        """Return a sentence with the amounts of the resources of ``device`` that the design uses.

        If multipliers or memories are made of LUTs, the sentence also contains their numbers.
        """
        products, memories = (
            sum(part.values()) for part in (self.made.products, self.made.memories)
        )
        tables = [
            f"{count:,} of {total:,} {title} made of tables"
            for count, total, title in (
                (products, sum(each.copies for each in self.wanted.products), "multipliers"),
                (memories, len(self.wanted.memories), "memories"),
            )
            if count
        ]
        figures = [
            f"{self.used[name]:,} of {device.capacity[name]:,} {title}"
            for name, title in RESOURCES.items()
        ]
        return f"{device.name}: {'; '.join([*tables, ', '.join(figures)])}"


class _OverfullError(Exception):
    """A design needs more of a resource than may be used; the text states both."""

    def __init__(self, text: str, resource: str, logic: int):
        super().__init__(text)
        self.resource = resource
        self.logic = logic
        """LUT4s beside those that replace multipliers and memories; of unknown logic a guess."""


def fit_part(
    config: Config, make: Callable[[Config], str], top: str, device: Device, tell: Tell
) -> Fit:
    """Fit a configuration's design to a device; return the Verilog and the used resources.

    ``make`` returns a configuration's Verilog with the top module ``top``. ``tell`` gets a message
    before each step. LUTs replace missing multipliers and block RAMs. Raises :class:`InputError` if
    the design does not fit; the message may name a field's value that fits.
    """
    try:
        return _fit(make(config), top, device, tell)
    except _OverfullError as error:
        refused = error
    tell(f"{refused}. Search for a configuration that fits")
    tried = []
    for field, value in _smaller(config, make, device, refused):
        tried.append(f"{field}={str(value).lower()}")
        try:
            _fit(make(config.replace(**{field: value})), top, device, tell)
        except _OverfullError:
            continue
        raise InputError(f"{refused}; it fits with --set {tried[-1]}")
    raise InputError(
        f"{refused}; {', '.join(tried) or 'half of any one field'} does not fit either"
    )


def with_registers(config: Config, device: Device) -> Config:
    """Return ``config`` with the field ``registered`` (more pipeline registers) for a large device.

    A device is large if the default configuration of a board with this device sets ``registered``.
    If the device is not large, or ``config`` is a microcoded machine, ``config`` is returned
    unchanged.
    """
    boards = [board for board in map(get_board, BOARDS) if board.device.name == device.name]
    if config.micro is None and any(board.config.control.registered for board in boards):
        return config.replace(registered=True)
    return config


def family_needs(verilog: str) -> str:
    """Return a sentence with the numbers of multipliers and block RAMs that a design needs.

    The sentence also names the devices that have enough of both, such as ``ecp5:85k``, or says that
    no device has enough. The sentence advises the option ``--device``. Only families whose LUTs can
    replace block RAMs are considered.
    """
    design = Hierarchy(verilog)
    parts = {name: device for name, device in PARTS.items() if device.family.block_ram_shapes}
    enough = []
    for name, device in parts.items():
        made = surplus(needs(design, device.family), device)
        if not made.products and not made.memories:
            enough.append(name)
    wanted = needs(design, parts[enough[0] if enough else "ecp5:85k"].family)
    multipliers = sum(product.copies for product in wanted.products)
    where = f"{', '.join(enough)} have them" if enough else "no part has as many"
    return (
        f"Needs {multipliers:,} multipliers and {wanted.block_rams:,} block RAMs: {where}; "
        f"--device FAMILY:PART brings it within a part"
    )


def _fit(verilog: str, top: str, device: Device, tell: Tell) -> Fit:
    wanted = needs(Hierarchy(verilog), device.family)
    made = surplus(wanted, device)
    room = device.capacity["luts"]
    if made.tables > room:
        raise _overfull(device, "luts", made.tables, wanted, room // 2, "at least ")
    tell(f"Multipliers and memories of {device.name}")
    text = exported(verilog, device.family.name, device)
    tell("Synthesis, to count what the design needs")
    used = plain_needs(text, top, device.family)
    for name, count in used.items():
        if count > _USABLE.get(name, 1) * device.capacity[name]:
            raise _overfull(device, name, count, wanted, used["luts"] - made.tables)
    return Fit(text, wanted, made, used)


def _overfull(
    device: Device, name: str, count: int, wanted: Needs, logic: int, least: str = ""
) -> _OverfullError:
    share = f" ({_USABLE[name]:.0%} of them can be placed)" if name in _USABLE else ""
    beside = ""
    if name == "luts":
        beside = (
            f", among them what replaces multipliers and block RAMs beyond its "
            f"{device.capacity['multipliers']:,} and {device.capacity['block_rams']:,}, "
            f"of {wanted.multipliers:,} and {wanted.block_rams:,}"
        )
    text = (
        f"{device.name} has {device.capacity[name]:,} {RESOURCES[name]}{share}, but the design "
        f"needs {least}{count:,}{beside}"
    )
    return _OverfullError(text, name, logic)


def _smaller(
    config: Config, make: Callable[[Config], str], device: Device, refused: _OverfullError
) -> Iterator[tuple[str, int]]:
    """Yield fields with values that may fit: no registers, then ``_SYNTHESES`` smaller machines."""
    room = math.floor(_USABLE["luts"] * device.capacity["luts"]) - refused.logic
    surplus_decides = refused.resource == "luts" and room > 0
    if refused.resource == "luts" and config.control.registered:
        yield "registered", False
    fields = _LOGIC if not surplus_decides and refused.resource != "block_rams" else _FIELDS
    tried = 0
    for field in fields:
        for halving in range(1, _HALVINGS + 1):
            value = config.read(field) >> halving
            try:
                design = Hierarchy(make(config.replace(**{field: value})))
            except InputError:
                break
            wanted = needs(design, device.family)
            if not surplus_decides or surplus(wanted, device).tables <= room:
                yield field, value
                tried += 1
            if tried == _SYNTHESES:
                return
