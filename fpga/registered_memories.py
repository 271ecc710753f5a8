"""Turns memories and the registers at their outputs into an ECP5's block RAMs, in Verilog."""

import json
import re
import tempfile
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from celosia.fpga.memory_paths import DATA, carriers
from celosia.fpga.memory_registers import move, registered
from celosia.fpga.output_registers import use_output_registers
from celosia.fpga.templates import template
from celosia.fpga.tools import find_tool, run_tool
from celosia.generators.verilog.verilog import read_modules

_MODULE = re.compile(
    r"^((?://[^\n]*\n)*)module (\S+) \(\n(.*?)^\);\n(.*?)^endmodule\n", re.MULTILINE | re.DOTALL
)
_MEMORY = re.compile(r"(?:\w+_)?Ram(?:_\d+)?")
_INSTANCE = re.compile(r"^  (\w+) (?:#|\w+ |\\\S+  )\($", re.MULTILINE)
_PORT = re.compile(r"^  (?:input|output) [^,\n]*?(\w+),?$", re.MULTILINE)
_WORD = re.compile(rf"(?<=^  output wire )((?:\[(\d+):0\] )?){DATA}\b", re.MULTILINE)
_ZEROS = re.compile(r"^    \.INITVAL_..\(320'h0+\),\n", re.MULTILINE)

_BLOCKS = {"DP16KD", "LUT4", "$scopeinfo"}

# A register gets its reset at first, and its enable then.
_HIERARCHY = """\
read_verilog design.v
proc
opt_expr
opt_merge
opt_dff
opt_clean
opt_dff
opt_clean
attrmap -remove src
"""

_FLATTEN = """\
setattr -mod -set keep_hierarchy 1 *
setattr -mod -unset keep_hierarchy {name} {below}
flatten -noscopeinfo {name}
opt_expr {name}
opt_merge {name}
opt_dff {name}
opt_clean {name}
opt_dff {name}
opt_clean -purge {name}
memory_collect {name}
select {name}
write_json -selected {name}.json
select -clear
"""

_SYNTHESIZE = """\
design -reset
read_verilog {blocks}.v
synth_ecp5 -top {blocks} -json {blocks}.json
"""

# Tables become operators, which need no model.
_WRITE = """\
design -reset
read_json {name}.json
techmap -map operators.v
opt_clean
write_verilog {name}.out.v
"""


@dataclass(frozen=True)
class _Text:
    """The parts of a module's text; ``ports`` are all lines between the parentheses."""

    comment: str
    ports: str
    body: str

    def under(self, name: str) -> str:
        return f"{self.comment}module {name} (\n{self.ports});\n{self.body}endmodule\n"


def with_output_registers(verilog: str, family: str) -> str:
    """Return a design's Verilog in which registers at memory outputs are inside the block RAMs.

    Only designs for ``ecp5`` change; their outputs stay the same in every cycle. Modules between
    memories and registers are merged. Raises :class:`InputError` if Yosys is needed and missing.
    """
    texts = {match[2]: _Text(match[1], match[3], match[4]) for match in _MODULE.finditer(verilog)}
    memories = {
        name for name in texts if _MEMORY.fullmatch(name) and _WORD.search(texts[name].ports)
    }
    if family != "ecp5" or not memories:
        return verilog
    with tempfile.TemporaryDirectory() as place:
        made = _Maker(Path(place), texts, memories).make()
    return _joined(verilog, texts, made) if made else verilog


class _Maker:
    """Lets Yosys convert modules in a folder."""

    def __init__(self, folder: Path, texts: dict[str, _Text], memories: Collection[str]):
        self._folder = folder
        self._texts = texts
        self._memories = memories
        self._tool = find_tool("yosys")

    def make(self) -> dict[str, str]:
        """Return the texts of all modules that are changed or new, by name."""
        # What memories hold at first takes most of the time to read, and is not needed here.
        outside = (
            (replace(text, body="") if name in self._memories else text).under(name)
            for name, text in self._texts.items()
        )
        (self._folder / "design.v").write_text("".join(outside), encoding="utf-8")
        (self._folder / "operators.v").write_text(template("operators"), encoding="utf-8")
        self._yosys(_HIERARCHY + "write_rtlil design.il\nwrite_json hierarchy.json\n")
        carrying = carriers(self._read("hierarchy"), self._memories)
        if not carrying:
            return {}
        script = "read_rtlil design.il\n"
        for name, below in carrying.items():
            script += _FLATTEN.format(name=name, below=" ".join(sorted(below)))
        self._yosys(script)
        modules = {name: self._read(name)[name] for name in carrying}
        behind = {name: registered(module, self._memories) for name, module in modules.items()}
        able = self._synthesized(
            {memory for cells in behind.values() for memory, _ in cells.values()}
        )
        names = {memory: f"{memory}_registered" for memory in able}
        changed = []
        for name, module in modules.items():
            moved = {cell: to for cell, (memory, to) in behind[name].items() if memory in able}
            if moved:
                move(module, moved, names)
                self._write(name, module)
                changed.append(name)
        blocks = [f"{memory}_blocks" for memory in able]
        self._yosys("".join(_WRITE.format(name=name) for name in [*changed, *blocks]))
        made = {name: self._text(name, self._texts[name]) for name in changed}
        for memory in able:
            made |= self._memory(memory)
        return made

    def _yosys(self, script: str) -> None:
        (self._folder / "script.ys").write_text(script, encoding="utf-8")
        work = "Putting registers into block RAMs"
        run_tool(self._tool, ["-q", "script.ys"], folder=self._folder, log="log", work=work)

    def _read(self, name: str) -> dict[str, Any]:
        content = (self._folder / f"{name}.json").read_text(encoding="utf-8")
        modules: dict[str, Any] = json.loads(content)["modules"]
        return modules

    def _write(self, name: str, module: dict[str, Any]) -> None:
        content = json.dumps({"modules": {name: module}})
        (self._folder / f"{name}.json").write_text(content, encoding="utf-8")

    def _synthesized(self, memories: Collection[str]) -> list[str]:
        """Return the memories that, with a register after each bit, consist of block RAMs only."""
        able, script = [], ""
        for memory in sorted(memories):
            blocks = f"{memory}_blocks"
            text = self._texts[memory].under(memory)
            text += self._filled("registered_memory_core", memory)
            (self._folder / f"{blocks}.v").write_text(text, encoding="utf-8")
            script += _SYNTHESIZE.format(blocks=blocks)
        self._yosys(script)
        for memory in sorted(memories):
            blocks = f"{memory}_blocks"
            moved = use_output_registers(self._folder / f"{blocks}.json", blocks)
            module = self._read(blocks)[blocks]
            types = {cell["type"] for cell in module["cells"].values()}
            if moved == len(module["ports"]["held"]["bits"]) and types <= _BLOCKS:
                able.append(memory)
                _tidy(module)
                self._write(blocks, module)
        return able

    def _filled(self, name: str, memory: str) -> str:
        """Return a template's text for a memory."""
        text = self._texts[memory]
        ports = [port for port in _PORT.findall(text.ports) if port != DATA]
        word = _WORD.search(text.ports)
        assert word is not None, memory
        connections = "\n".join(textwrap.wrap(", ".join(f".{port}({port})" for port in ports), 90))
        own = text.ports if name == "registered_memory" else _WORD.sub(r"\1held", text.ports)
        return template(name).format(
            memory=memory,
            name=f"{memory}_registered",
            blocks=f"{memory}_blocks",
            comment=text.comment,
            ports=own.rstrip("\n"),
            range=word[1],
            width=int(word[2] or 0) + 1,
            connections="\n" + textwrap.indent(connections, "    "),
        )

    def _memory(self, memory: str) -> dict[str, str]:
        """Return the texts of a memory with its registers, and of its block RAMs."""
        blocks = f"{memory}_blocks"
        ports = _WORD.sub(r"\1held", self._texts[memory].ports).rstrip("\n")
        like = _Text("// Block RAMs with their registers.\n", f"{ports},\n  input  wire take\n", "")
        return {
            f"{memory}_registered": self._filled("registered_memory", memory),
            blocks: _ZEROS.sub("", self._text(blocks, like)),
        }

    def _text(self, name: str, like: _Text) -> str:
        content = (self._folder / f"{name}.out.v").read_text(encoding="utf-8")
        return read_modules(content)[name].like(like.comment, like.ports)


def _tidy(module: dict[str, Any]) -> None:
    """Remove all names but those of ports, unused outputs, and inputs without a value."""
    module["netnames"] = {name: module["netnames"][name] for name in module["ports"]}
    held = set(module["ports"]["held"]["bits"])
    for cell in module["cells"].values():
        if cell["type"] == "DP16KD":
            cell["connections"] = {
                pin: ["0" if bit == "x" else bit for bit in bits]
                for pin, bits in cell["connections"].items()
                if cell["port_directions"][pin] == "input" or held.intersection(bits)
            }


def _joined(verilog: str, texts: dict[str, _Text], made: dict[str, str]) -> str:
    """Return a design with other texts of modules, without modules that are no longer used."""
    everything = {name: text.under(name) for name, text in texts.items()} | made
    work, needed = [next(iter(texts))], set()
    while work:
        name = work.pop()
        if name in everything and name not in needed:
            needed.add(name)
            work += _INSTANCE.findall(everything[name])
    head = verilog[: _MODULE.search(verilog).start()]
    return head + "\n".join(everything[name] for name in everything if name in needed)
