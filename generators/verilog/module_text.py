"""Conversion of a Verilog module in Yosys's output to readable text."""

import itertools
import re
import textwrap

# Without it, a process whose inputs never change would not run once in an event simulator.
_START = """\
  // Simulators: lets each `always @*` run at time 0.
  reg _start;
  initial _start <= 1'b0;
"""

_STARTER = re.compile(r"^  reg (\\\$auto\$verilog_backend\S+)  = 0;\n", re.MULTILINE)
_ESCAPED = re.compile(r"\\(\S+) ")
_PORT = re.compile(r"^  (input|output) (\[\d+:0\] )?(\w+|\\\w+ );\n", re.MULTILINE)
_DECLARED = re.compile(r"^  (?:input|output) [^,\n]*?(\w+|\\\w+ )(,?)$", re.MULTILINE)
_STORAGE = re.compile(r"^  (wire|reg) (?:\[\d+:0\] )?(\w+|\\\w+ )( = [^;]+)?;\n", re.MULTILINE)
_DECLARED_VALUE = re.compile(r"^(  reg (?:\[\d+:0\] )?(\w+|\\\w+ ))( = [^;]+;\n)", re.MULTILINE)
_ENTRIES = re.compile(r"(?:^    \S+\[\d+\] = [^;]+;\n){4,}", re.MULTILINE)
_MEMORY = re.compile(
    r"^  reg (\[\d+:0\] )?(\w+) \[(\d+):0\];\n(?!  initial begin\n    \2\[)", re.MULTILINE
)
_ENTRY = re.compile(r"^    (\S+)\[(\d+)\] = ([^;]+);\n", re.MULTILINE)
_TEMPORARY = re.compile(r"^  (wire|reg) (\[\d+:0\] )?(_\d+);\n", re.MULTILINE)
# A process for port bits that are constant, or have not changed yet, would not run at time 0.
_CONSTANT = re.compile(r"^  always @\*\n    (\S+ = [^;]+;)\n", re.MULTILINE)
_STARTED = r"  always @* begin\n    if (_start) begin end\n    \1\n  end\n"
_REGISTER = re.compile(r"^  always @\(posedge \w+\)\n    (\w+) <= (_\d+);\n", re.MULTILINE)

_KEPT = re.compile(
    r"^  \(\* keep = 32'd1 \*\)\n(?=  (?:input|output|reg) (?:\[\d+:0\] )?(\w+))", re.MULTILINE
)
_PROCESS = re.compile(r"^(?=  always @\(posedge \w+\)\n    (\w+) <= )", re.MULTILINE)


class ModuleText:
    """Converts a Verilog module that Yosys wrote to readable text.

    The arguments are parts of Yosys's output: ``name`` is the module's name, ``ports`` the list of
    port names in its header, and ``body`` all lines from the header to ``endmodule``.
    """

    def __init__(self, name: str, ports: str, body: str):
        self.name = _plain(f"{name} ").strip()
        starters = _STARTER.findall(body)
        body = _STARTER.sub("", body)
        for starter in starters:
            body = body.replace(starter + " ", "_start")
        body = _keep_registers(self._plain_names(body))
        order = [_plain(port) for port in re.findall(r"\\\S+ |\w+", ports)]
        declarations = {match[3]: match for match in _PORT.finditer(body)}
        storage: dict[str, re.Match[str]] = {}

        def keep(match: re.Match[str]) -> str:
            if match[2] not in declarations or match[2] in storage:
                return match[0]
            storage[match[2]] = match
            return ""

        body = _STORAGE.sub(keep, _PORT.sub("", body))
        self._ports: dict[str, str] = {}
        initial = []
        for port in sorted(order, key=lambda port: (port not in ("clk", "rst"), port)):
            direction, width = declarations[port].group(1, 2)
            kind, start = storage[port].group(1, 3)
            if start:
                initial.append(f"  initial {port}{start};\n")
            self._ports[port] = f"{direction:6} {kind:4} {width or ''}{port}"
        # Verilator reports a value in a declaration as an error if a process assigns too.
        body = _DECLARED_VALUE.sub(r"\1;\n  initial \2\3", body)
        body = _gather_temporaries(body)
        body = _MEMORY.sub(_zeros, body)
        body = _ENTRIES.sub(lambda match: _loops(match[0]), body)
        counter = "  integer _entry;\n" if "_entry = " in body else ""
        body, constants = _CONSTANT.subn(_STARTED, body)
        self._body = (_START if starters or constants else "") + counter + "".join(initial) + body

    def _plain_names(self, body: str) -> str:
        """Replace escaped names by plain ones, and name a register's next value after it."""
        used = set(re.findall(r"(?<![\\'$\w])[A-Za-z_]\w*", body))
        names: dict[str, str] = {}
        for escaped in dict.fromkeys(_ESCAPED.findall(body)):
            name = _plain(f"\\{escaped} ")
            while name in used:
                name += "_"
            names[escaped] = name
            used.add(name)
        body = _ESCAPED.sub(lambda match: names[match[1]], body)
        following: dict[str, str] = {}
        for register, value in _REGISTER.findall(body):
            if f"{register}_next" not in used:
                following.setdefault(value, f"{register}_next")
                used.add(f"{register}_next")
        return re.sub(r"\b_\d+\b", lambda match: following.get(match[0], match[0]), body)

    def text(self, comment: str, texts: dict[str, str], interfaces: dict[str, str]) -> str:
        """Return the module's Verilog with ``comment`` before it, and comments for ports.

        ``texts`` has a comment for each port, in the order in which ports are written.
        ``interfaces`` has a comment for each interface, the common first part of port names.
        """
        ports = list(self._ports)
        if texts:
            ports.sort(key=lambda port: _rank(port, list(texts)))
        lines: list[str] = []
        interface = ""
        for port in ports:
            if port.partition("__")[0] != interface:
                interface = port.partition("__")[0]
                if interface in interfaces:
                    title = interfaces[interface]
                    lines += ["", *(f"  // {line}" for line in textwrap.wrap(title, 95))]
            comma = "," if port != ports[-1] else ""
            meaning = texts.get(re.sub(r"__\d+", "", port), "")
            lines += [f"  // {line}" for line in textwrap.wrap(meaning, 93)]
            lines.append(f"  {self._ports[port]}{comma}")
        return self._under(comment, "\n".join(lines))

    def like(self, comment: str, header: str) -> str:
        """Return the module's Verilog with ``comment`` before it, and a port list like ``header``.

        ``header`` is a port list with comments and the same port names. The result has its order
        and comments, but this module's declarations.
        """

        def port(line: re.Match[str]) -> str:
            return f"  {self._ports[line[1]]}{line[2]}"

        return self._under(comment, _DECLARED.sub(port, header.strip("\n")))

    def _under(self, comment: str, header: str) -> str:
        return f"{comment}module {self.name} (\n{header}\n);\n{self._body}endmodule\n"


def _rank(port: str, order: list[str]) -> int:
    name = re.sub(r"__\d+", "", port)
    return order.index(name) if name in order else len(order)


def _keep_registers(body: str) -> str:
    """Move the ``keep`` attribute of registers to the position that Yosys requires."""
    kept = {match[1] for match in _KEPT.finditer(body)}
    body = _KEPT.sub("", body)
    return _PROCESS.sub(lambda match: "  (* keep *)\n" if match[1] in kept else "", body)


def _gather_temporaries(body: str) -> str:
    """Declare the numbered wires and variables of each width together."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for kind, width, name in _TEMPORARY.findall(body):
        kinds.setdefault((kind, width), []).append(name)
    lines = []
    for (kind, width), names in sorted(kinds.items(), key=lambda item: (item[0][0], item[1])):
        names.sort(key=lambda name: int(name[1:]))
        declaration = f"{kind} {width}{', '.join(names)};"
        lines += textwrap.wrap(declaration, 97, initial_indent="  ", subsequent_indent="    ")
    return "".join(f"{line}\n" for line in lines) + _TEMPORARY.sub("", body)


def _zeros(memory: re.Match[str]) -> str:
    """Initialize a memory without initial contents to zeros."""
    name, last = memory[2], memory[3]
    loop = f"for (_entry = 0; _entry <= {last}; _entry = _entry + 1) {name}[_entry] = 0;"
    return f"{memory[0]}  initial {loop}\n"


def _loops(entries: str) -> str:
    """Write runs of equal initial entries of a memory as loops."""
    lines = []
    for (memory, value), run in itertools.groupby(
        _ENTRY.findall(entries), key=lambda entry: (entry[0], entry[2])
    ):
        places = [int(place) for _, place, _ in run]
        if len(places) < 4 or places != list(range(places[0], places[0] + len(places))):
            lines += [f"    {memory}[{place}] = {value};\n" for place in places]
        else:
            condition = f"_entry = {places[0]}; _entry <= {places[-1]}; _entry = _entry + 1"
            lines.append(f"    for ({condition}) {memory}[_entry] = {value};\n")
    return "".join(lines)


def _plain(name: str) -> str:
    """Return an escaped name as a plain one, unless it is escaped because it is a keyword."""
    if not name.startswith("\\") or name[1:-1].isidentifier():
        return name
    return re.sub(r"\W", "_", name[1:-1])
