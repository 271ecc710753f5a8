"""Checks of module names: reserved words and collisions."""

import re

from amaranth.lib.wiring import Component

from celosia.arch.errors import InputError

KEYWORDS = frozenset(
    [
        "accept_on",
        "alias",
        "always",
        "always_comb",
        "always_ff",
        "always_latch",
        "and",
        "assert",
        "assign",
        "assume",
        "automatic",
        "before",
        "begin",
        "bind",
        "bins",
        "binsof",
        "bit",
        "break",
        "buf",
        "bufif0",
        "bufif1",
        "byte",
        "case",
        "casex",
        "casez",
        "cell",
        "chandle",
        "checker",
        "class",
        "clocking",
        "cmos",
        "config",
        "const",
        "constraint",
        "context",
        "continue",
        "cover",
        "covergroup",
        "coverpoint",
        "cross",
        "deassign",
        "default",
        "defparam",
        "design",
        "disable",
        "dist",
        "do",
        "edge",
        "else",
        "end",
        "endcase",
        "endchecker",
        "endclass",
        "endclocking",
        "endconfig",
        "endfunction",
        "endgenerate",
        "endgroup",
        "endinterface",
        "endmodule",
        "endpackage",
        "endprimitive",
        "endprogram",
        "endproperty",
        "endsequence",
        "endspecify",
        "endtable",
        "endtask",
        "enum",
        "event",
        "eventually",
        "expect",
        "export",
        "extends",
        "extern",
        "final",
        "first_match",
        "for",
        "force",
        "foreach",
        "forever",
        "fork",
        "forkjoin",
        "function",
        "generate",
        "genvar",
        "global",
        "highz0",
        "highz1",
        "if",
        "iff",
        "ifnone",
        "ignore_bins",
        "illegal_bins",
        "implements",
        "implies",
        "import",
        "incdir",
        "include",
        "initial",
        "inout",
        "input",
        "inside",
        "instance",
        "int",
        "integer",
        "interconnect",
        "interface",
        "intersect",
        "join",
        "join_any",
        "join_none",
        "large",
        "let",
        "liblist",
        "library",
        "local",
        "localparam",
        "logic",
        "longint",
        "macromodule",
        "matches",
        "medium",
        "modport",
        "module",
        "nand",
        "negedge",
        "nettype",
        "new",
        "nexttime",
        "nmos",
        "nor",
        "noshowcancelled",
        "not",
        "notif0",
        "notif1",
        "null",
        "or",
        "output",
        "package",
        "packed",
        "parameter",
        "pmos",
        "posedge",
        "primitive",
        "priority",
        "program",
        "property",
        "protected",
        "pull0",
        "pull1",
        "pulldown",
        "pullup",
        "pulsestyle_ondetect",
        "pulsestyle_onevent",
        "pure",
        "rand",
        "randc",
        "randcase",
        "randsequence",
        "rcmos",
        "real",
        "realtime",
        "ref",
        "reg",
        "reject_on",
        "release",
        "repeat",
        "restrict",
        "return",
        "rnmos",
        "rpmos",
        "rtran",
        "rtranif0",
        "rtranif1",
        "s_always",
        "s_eventually",
        "s_nexttime",
        "s_until",
        "s_until_with",
        "scalared",
        "sequence",
        "shortint",
        "shortreal",
        "showcancelled",
        "signed",
        "small",
        "soft",
        "solve",
        "specify",
        "specparam",
        "static",
        "string",
        "strong",
        "strong0",
        "strong1",
        "struct",
        "super",
        "supply0",
        "supply1",
        "sync_accept_on",
        "sync_reject_on",
        "table",
        "tagged",
        "task",
        "this",
        "throughout",
        "time",
        "timeprecision",
        "timeunit",
        "tran",
        "tranif0",
        "tranif1",
        "tri",
        "tri0",
        "tri1",
        "triand",
        "trior",
        "trireg",
        "type",
        "typedef",
        "union",
        "unique",
        "unique0",
        "unsigned",
        "until",
        "until_with",
        "untyped",
        "use",
        "uwire",
        "var",
        "vectored",
        "virtual",
        "void",
        "wait",
        "wait_order",
        "wand",
        "weak",
        "weak0",
        "weak1",
        "while",
        "wildcard",
        "wire",
        "with",
        "within",
        "wor",
        "xnor",
        "xor",
    ]
)
"""The reserved words of IEEE 1800-2023 (annex B), among them all of Verilog's."""

_KEYWORD = re.compile(rf"\\((?:{'|'.join(sorted(KEYWORDS))})_*)(?=[\s\"])")
_TAKEN = {"std": "SystemVerilog's own package", "TOP": "Verilator's own module"}


def check_module_name(label: str, name: str) -> None:
    """Raise :class:`InputError` if ``name`` is not a valid module name.

    A prefix of module names is checked in the same way. A valid name has only ASCII letters, digits
    and underscores, and its first character is not a digit. It is not a reserved word of
    SystemVerilog. ``label`` is the subject of the error message.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(
            f"{label} must be letters, digits and underscores, no digit first, not {name!r}"
        )
    if name in KEYWORDS:
        raise InputError(
            f"{label} must be no reserved word of SystemVerilog, not {name!r}; "
            f"celosia_{name} is free"
        )


def check_top_name(label: str, name: str, component: Component) -> None:
    """Raise :class:`InputError` if ``name`` cannot be the name of a component's top module.

    Names that :func:`check_module_name` refuses are invalid. ``clk``, ``rst`` and the names of the
    component's other ports are invalid too: Verilator refuses a top module with the name of a port.
    ``std`` and ``TOP`` are invalid because SystemVerilog and Verilator use these names. ``label``
    is the subject of the error message.
    """
    check_module_name(label, name)
    if name in _TAKEN:
        raise InputError(f"{label} cannot be {name}, the name of {_TAKEN[name]}")
    ports = {"__".join(map(str, path)) for path, *_ in component.signature.flatten(component)}
    if name in ports | {"clk", "rst"}:
        raise InputError(f"{label} cannot be {name}, the name of one of the module's ports")


def free_name(name: str) -> str:
    """Return ``name``, with an underscore added if it is a reserved word of SystemVerilog.

    A reserved word that already ends in an underscore gets one more: ``reg`` becomes ``reg_``, and
    ``reg_`` becomes ``reg__``. So different names have different results.
    """
    return f"{name}_" if name.rstrip("_") in KEYWORDS else name


def without_keywords(rtlil: str) -> str:
    """Return RTLIL in which :func:`free_name` has changed each name that is a reserved word."""
    return _KEYWORD.sub(lambda match: f"\\{free_name(match[1])}", rtlil)
