"""Synthesis by Yosys: makes a netlist of a device's cells from Verilog, and counts resources."""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.support.cache import cached, digest
from celosia.fpga.devices import RESOURCES, Device, Family
from celosia.fpga.hierarchy import Hierarchy
from celosia.fpga.memories import place_memories, share_block_rams
from celosia.fpga.multiplier_pairs import place_pairs
from celosia.fpga.multipliers import OwnMultiplier, find_multipliers, own_name, with_multipliers
from celosia.fpga.output_registers import use_output_registers
from celosia.fpga.part import needs, surplus, within
from celosia.fpga.registered_memories import with_output_registers
from celosia.fpga.table_product import ROWS
from celosia.fpga.tools import find_tool, run_tool

NETLIST = "netlist.json"
"""Name of the file to which the netlist is written."""

_MULTIPLIERS = "multipliers.v"

_COLLECT = """\
read_verilog design.v
{synthesis} -run begin:{middle} -top {top}
{keep}proc
flatten
opt_clean
wreduce t:$mul
select {top}
write_rtlil -selected flat.il
"""

_SYNTHESIZE = """\
read_rtlil flat.il
read_verilog {multipliers}
{synthesis} -run begin:{middle} -top {top}
chtype -set $__soft_mul a:celosia_soft
{rest}{results}"""

_REST = "{synthesis} -run {middle}: -top {top} -json {netlist}\n"
_MAPPED = """\
{synthesis} -run {middle}:map_luts -top {top}
abc9 -W {wire_ps}
clean
{synthesis} -run map_cells: -top {top} -json {netlist}
"""

_RESULTS = "tee -q -o statistics.json stat -json\n"
_SIMULATION = "write_verilog -noattr netlist.v\n"

_CELL = re.compile(r"^  cell (\S+) (\S+)\n((?:    .*\n)*)", re.MULTILINE)
_WIDTH = re.compile(r"parameter \\[AB]_WIDTH (\d+)")
_MIDDLE = {"ecp5": "coarse", "ice40": "flatten", "gowin": "coarse"}


EXPORTED = ("ecp5", "ice40", "gowin")
"""Families for which :func:`exported` adapts a design."""


def exported(verilog: str, family: str, device: Device | None = None) -> str:
    """Return a design's Verilog for the user's own run of Yosys, such as ``synth_ecp5``.

    The circuit has as many multipliers and RAMs as in this project's build. If ``device`` is not
    None, multipliers and RAMs beyond the device's are made of LUTs (:mod:`celosia.fpga.part`).
    """
    verilog = _placed(verilog, family)
    if device is None:
        return with_multipliers(with_output_registers(verilog, family), family)
    made = surplus(needs(Hierarchy(verilog), device.family), device)
    verilog = within(Hierarchy(verilog), device.family, replace(made, products={}))
    verilog = with_output_registers(verilog, family)
    verilog = within(Hierarchy(verilog), device.family, replace(made, memories={}))
    return with_multipliers(verilog, family)


def plain_needs(verilog: str, top: str, family: Family) -> dict[str, int]:
    """Return the numbers of LUTs, registers, multipliers and block RAMs of a design.

    The design, with the top module ``top``, is synthesized by Yosys's command for the family, such
    as ``synth_ecp5``. The result has the keys of ``RESOURCES``, such as ``luts``.
    """
    with tempfile.TemporaryDirectory() as name:
        return _plain(verilog, top, family, Path(name), [])


def plain_netlist(verilog: str, top: str, family: Family, folder: Path) -> dict[str, int]:
    """Synthesize a design to ``netlist.json`` in ``folder`` by Yosys's command for the family.

    Returns the numbers of LUTs, registers, multipliers and block RAMs in the netlist. The result
    has the keys of ``RESOURCES``, such as ``luts``.
    """
    return _plain(verilog, top, family, folder, [NETLIST])


def _plain(
    verilog: str, top: str, family: Family, folder: Path, made: Sequence[str]
) -> dict[str, int]:
    netlist = "".join(f" -json {name}" for name in made)
    script = f"read_verilog design.v\n{family.synthesis} -top {top}{netlist}\n{_RESULTS}"
    (folder / "design.v").write_text(verilog, encoding="utf-8")
    made = [*made, "statistics.json"]
    _yosys(folder, "synthesis", script, ["design.v"], made, "Synthesis")
    return count(family, _cells(folder))


def _cells(folder: Path) -> dict[str, int]:
    statistics = json.loads((folder / "statistics.json").read_text(encoding="utf-8"))
    cells: dict[str, int] = statistics["design"]["num_cells_by_type"]
    return cells


def _placed(verilog: str, family: str) -> str:
    return place_memories(place_pairs(verilog, family), family)


def prepare(verilog: str, family: Family) -> tuple[str, dict[str, OwnMultiplier]]:
    """Return a design's Verilog for an FPGA family, and the modules for hardware multipliers.

    Memories are adapted by :func:`place_memories`, and pairs of multipliers by
    :func:`celosia.fpga.multiplier_pairs.place_pairs`. The second result is that of
    :func:`find_multipliers`: a dictionary from module name to Verilog.
    """
    verilog = _placed(verilog, family.name)
    return verilog, find_multipliers(verilog, family.name)


def synthesize(
    verilog: str, top: str, device: Device, folder: Path, *, simulation: bool = False
) -> dict[str, int]:
    """Synthesize a design for a device, and return the number of cells of each type.

    The netlist is written to ``netlist.json`` in ``folder``, and to ``netlist.v`` if ``simulation``
    is true. If the device has too few multipliers or block RAMs, the narrowest multipliers and some
    memories are made of LUTs.
    """
    family = device.family
    verilog, own = prepare(verilog, family)
    (folder / "design.v").write_text(verilog, encoding="utf-8")
    both = [each.tables + each.own for each in own.values()]
    (folder / _MULTIPLIERS).write_text("".join([*both, ROWS]), encoding="utf-8")
    keep = "".join(f"setattr -mod -set keep_hierarchy 1 {name}\n" for name in own)
    script = _COLLECT.format(
        synthesis=family.synthesis, middle=_MIDDLE[family.name], top=top, keep=keep
    )
    _yosys(folder, "collect", script, ["design.v"], ["flat.il"], "Reading the design")
    flat = (folder / "flat.il").read_text(encoding="utf-8")
    flat = share_block_rams(_share(flat, device, own), device)
    (folder / "flat.il").write_text(flat, encoding="utf-8")
    results = _RESULTS + (_SIMULATION if simulation else "")
    names = {"synthesis": family.synthesis, "middle": _MIDDLE[family.name], "top": top}
    rest = _MAPPED if device.wire_ps else _REST
    rest = rest.format(**names, netlist=NETLIST, wire_ps=device.wire_ps)
    script = _SYNTHESIZE.format(**names, multipliers=_MULTIPLIERS, rest=rest, results=results)
    made = [NETLIST, "statistics.json", *(["netlist.v"] if simulation else [])]
    _yosys(folder, "synthesis", script, ["flat.il", _MULTIPLIERS], made, "Synthesis")
    if family.output_registers and use_output_registers(folder / NETLIST, top):
        script = f"read_json {NETLIST}\n{results}"
        _yosys(folder, "count", script, [NETLIST], made[1:], "Counting cells")
    return _cells(folder)


def _yosys(
    folder: Path, name: str, script: str, read: Sequence[str], made: Sequence[str], work: str
) -> None:
    """Let a script make files from others in a folder, or copy the results of an earlier run."""
    tool = find_tool("yosys")
    texts = [(folder / each).read_text(encoding="utf-8") for each in read]

    def make(place: Path) -> None:
        for each, content in zip(read, texts, strict=True):
            (place / each).write_text(content, encoding="utf-8")
        (place / "script.ys").write_text(script, encoding="utf-8")
        run_tool(tool, ["-q", "script.ys"], folder=place, log=f"{name}.log", work=work)
        for each in read:
            (place / each).unlink()

    kept = cached("netlists", digest(str(tool.native), tool.version, script, *texts), make)
    for each in (*made, f"{name}.log"):
        shutil.copyfile(kept / each, folder / each)


def _share(flat: str, device: Device, own: Mapping[str, OwnMultiplier]) -> str:
    """Give a device's multipliers to the widest multiplications, and mark those that get none.

    A module of ``own`` gets its multiplier when it is replaced by the other module. The mark on
    others is an attribute; the script gives such cells the type ``$__soft_mul``. Yosys turns this
    into ``$mul`` again once it has made hardware multipliers of all ``$mul``.
    """
    width = device.family.multiplier_width
    left: Fraction | int = device.capacity["multipliers"]
    products: list[tuple[int, Fraction | int, str]] = []
    for kind, name, content in _CELL.findall(flat):
        if kind == "$mul":
            a, b = map(int, _WIDTH.findall(content))
            # Yosys divides wider factors into unsigned parts, which are one bit narrower.
            places = math.ceil((a - 1) / width) * math.ceil((b - 1) / width)
            products.append((a * b, max(1, places), name))
        elif kind[1:] in own:
            module = own[kind[1:]]
            products.append((math.prod(module.widths), module.places, name))
        elif kind[1:] in device.family.cells["multipliers"]:
            left -= 1
    hard = set()
    for _, needed, name in sorted(products, reverse=True):
        if needed <= left:
            left -= needed
            hard.add(name)

    def mark(cell: re.Match[str]) -> str:
        kind, name = cell[1], cell[2]
        if kind == "$mul" and name not in hard:
            return f"  attribute \\celosia_soft 1\n{cell[0]}"
        if kind[1:] in own and name in hard:
            return cell[0].replace(f"cell {kind} ", f"cell {own_name(kind)} ", 1)
        return cell[0]

    return _CELL.sub(mark, flat)


def count(family: Family, cells: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of LUTs, registers, multipliers and block RAMs that a netlist uses.

    The result has the keys of ``RESOURCES``, such as ``luts``. ``cells`` maps each type of cell to
    the number of its cells in the netlist. A cell can use a part of a multiplier; the numbers are
    rounded up.
    """
    return {
        name: math.ceil(sum(cells.get(cell, 0) * each for cell, each in kinds.items()))
        for name, kinds in family.cells.items()
    }


def check_fits(device: Device, needed: Mapping[str, int], place: str) -> None:
    """Raise :class:`InputError` if a design needs more of a resource than a device has.

    ``needed`` is a dictionary from keys of ``RESOURCES`` to the numbers that the design needs, as
    :func:`count` returns it. The message begins with ``place``, such as "Board ulx3s_85f".
    """
    for name, title in RESOURCES.items():
        if needed[name] > device.capacity[name]:
            raise InputError(
                f"{place} has {device.capacity[name]:,} {title}, but the design needs "
                f"{needed[name]:,}; take a smaller configuration"
            )
