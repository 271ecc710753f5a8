"""The FuseSoC core file of a generated design."""

from collections.abc import Sequence
from typing import Any

import yaml

from celosia.arch.config import Config

VERSION = "0.1.0"
"""Version of a generated core."""

_VERILOG = "verilogSource-2005"


def core_file(config: Config, module: str, meaning: str, testbench: Sequence[str] = ()) -> str:
    """Return the text of a FuseSoC core file (CAPI 2) for a module.

    ``meaning`` is the module's description. ``testbench`` lists the files of a testbench, the
    Verilog file first; with it, the core has a target ``sim``.
    """
    name = "".join(letter if letter.isalnum() else "_" for letter in f"{module}_{config.name}")
    filesets: dict[str, Any] = {"rtl": {"files": [f"{module}.v"], "file_type": _VERILOG}}
    targets: dict[str, Any] = {
        "default": {"filesets": ["rtl"], "toplevel": module},
        "lint": {
            "filesets": ["rtl"],
            "flow": "lint",
            "flow_options": {"tool": "verilator"},
            "toplevel": module,
        },
    }
    if testbench:
        source, *others = testbench
        files = [{source: {"file_type": _VERILOG}}]
        files += [{file: {"file_type": "user", "copyto": file}} for file in others]
        filesets["tb"] = {"files": files}
        targets["sim"] = {
            "filesets": ["rtl", "tb"],
            "flow": "sim",
            "flow_options": {"tool": "icarus", "iverilog_options": ["-g2005"]},
            "toplevel": source.removesuffix(".v"),
        }
    core = {
        "name": f"celosia:accelerators:{name}:{VERSION}",
        "description": meaning.replace("``", ""),
        "filesets": filesets,
        "targets": targets,
    }
    return f"CAPI=2:\n{yaml.safe_dump(core, sort_keys=False)}"
