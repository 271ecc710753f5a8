"""Fits a design to a device: LUTs replace the multipliers and block RAMs that the device lacks."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from celosia.arch.errors import check_known
from celosia.fpga.devices import DEVICES, Device, Family
from celosia.fpga.hierarchy import Hierarchy
from celosia.fpga.memories import Memory, beyond, memory_needs, table_style
from celosia.fpga.multipliers import find_multipliers, with_table_product
from celosia.fpga.table_product import ROWS, product_tables

_MULTIPLIER = re.compile(r"^(?:\w+_)?Multiplier(?:_\d+)?$")
_OPERAND = re.compile(r"input +wire +(?:\[(\d+):0\] )?[ab]\b")
_STORAGE = re.compile(r"^  reg (?:\[(\d+):0\] )?(\w+) \[(\d+):0\];", re.MULTILINE)


def _parts() -> dict[str, Device]:
    """Return devices by family and part, as in ``ecp5:85k``: by the names that nextpnr has."""
    return {
        f"{device.family.name}:{device.options[-1].split('=')[-1].lstrip('-').lower()}": device
        for device in DEVICES.values()
    }


PARTS = _parts()
"""A dictionary from the names that ``celosia generate --device`` accepts to devices."""


def get_part(name: str) -> Device:
    """Return the device with the name ``name`` in the form FAMILY:PART, such as ``ecp5:85k``.

    Raises :class:`InputError` if the name is unknown.
    """
    check_known("device", name.lower(), PARTS)
    return PARTS[name.lower()]


@dataclass(frozen=True)
class _Product:
    """The multiplier modules of a name: operand widths (bits), places of a device, and copies."""

    name: str
    widths: tuple[int, int]
    places: Fraction
    copies: int


@dataclass(frozen=True)
class Needs:
    """Hardware multipliers and block RAMs that a design needs in a family of devices."""

    products: list[_Product]
    memories: list[Memory]

    @property
    def multipliers(self) -> int:
        """Number of hardware multipliers that the design needs if none is made of LUTs."""
        return math.ceil(sum(product.places * product.copies for product in self.products))

    @property
    def block_rams(self) -> int:
        """Number of block RAMs that the design needs if memories above 16 words use block RAM."""
        return sum(memory.blocks for memory in self.memories)


@dataclass(frozen=True)
class Surplus:
    """Multipliers and memories of a design that must be made of LUTs to fit a device."""

    products: Mapping[str, int]
    """The number of multipliers to make of LUTs, by the name of their module."""
    memories: Mapping[str, int]
    """The number of memories to make of LUTs, by the name of their module."""
    tables: int
    """Fewest LUT4s that these multipliers and memories need."""


def needs(design: Hierarchy, family: Family) -> Needs:
    """Return the numbers of hardware multipliers and block RAMs that a design needs in a family.

    The numbers are computed from the Verilog, without synthesis. Block RAMs are counted only for
    families in which LUTs can replace block RAMs.
    """
    own = find_multipliers("\n".join(design.texts.values()), family.name)
    products, memories = [], []
    for name, text in design.texts.items():
        copies = design.copies[name]
        if _MULTIPLIER.match(name):
            a, b = (int(width or 0) + 1 for width in _OPERAND.findall(text))
            rows, columns = (math.ceil((w - 1) / family.multiplier_width) for w in (a, b))
            places = own[name].places if name in own else Fraction(max(1, rows * columns))
            products.append(_Product(name, (a, b), places, copies))
        for width, _, size in _STORAGE.findall(text) if family.block_ram_shapes else ():
            words = int(size) + 1
            shapes = family.block_ram_shapes
            memory = memory_needs(name, int(width or 0) + 1, words, _writes(text), shapes)
            memories += [memory] * copies if memory else []
    return Needs(products, memories)


def _writes(text: str) -> int:
    """Return the number of parts of a module's memory that are written alone."""
    storage = _STORAGE.search(text)
    assert storage is not None
    return len(re.findall(rf"^ +{storage[2]}\[[^\n]*\] <= ", text, re.MULTILINE))


def surplus(wanted: Needs, device: Device) -> Surplus:
    """Return the multipliers and memories to make of LUTs so that a design fits ``device``.

    ``wanted`` is the result of :func:`needs`. The narrowest multipliers are chosen first. The
    memories that need the fewest LUTs per saved block RAM are chosen first.
    """
    left: Fraction | int = device.capacity["multipliers"]
    products: dict[str, int] = {}
    tables = 0
    for product in sorted(wanted.products, key=lambda each: (-math.prod(each.widths), each.name)):
        hard = min(product.copies, math.floor(left / product.places))
        left -= hard * product.places
        if product.copies > hard:
            products[product.name] = product.copies - hard
            tables += (product.copies - hard) * product_tables(*product.widths)
    memories = beyond(wanted.memories, device.capacity["block_rams"])
    tables += sum(memory.tables for memory in memories)
    return Surplus(products, Counter(memory.name for memory in memories), tables)


def within(design: Hierarchy, family: Family, made: Surplus) -> str:
    """Return a design's Verilog in which some multipliers and memories are made of LUTs.

    ``made``, a result of :func:`surplus`, lists the multipliers and memories to make of LUTs.
    """
    variants = {}
    for name, count in made.memories.items():
        text = design.texts[name]
        style = f'  (* ram_style = "{table_style(_writes(text))}" *)\n'
        variants[name] = (count, _STORAGE.sub(rf"{style}\g<0>", text))
    for name, count in made.products.items():
        a, b = (int(width or 0) + 1 for width in _OPERAND.findall(design.texts[name]))
        variants[name] = (count, with_table_product(design.texts[name], name, a, b, family.name))
    rows = f"\n{ROWS}" if made.products and family.name == "ecp5" else ""
    return design.with_variants(variants) + rows
