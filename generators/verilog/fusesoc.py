"""The core file by which FuseSoC finds a generated design."""

from collections.abc import Sequence

from arch.config import Config

VERSION = "0.1.0"
"""Version of a generated core."""

_HEAD = """\
CAPI=2:

name: celosia:accelerators:{name}:{version}
description: {description}

filesets:
  rtl:
    files:
      - {module}.v
    file_type: verilogSource-2005
"""

_TESTBENCH_FILES = """\
  tb:
    files:
      - {testbench}: {{file_type: verilogSource-2005}}
{data}
"""

_TARGETS = """
targets:
  default: &default
    filesets: [rtl]
    toplevel: {module}
  lint:
    <<: *default
    flow: lint
    flow_options:
      tool: verilator
"""

_SIMULATION = """\
  sim:
    <<: *default
    filesets: [rtl, tb]
    flow: sim
    flow_options:
      tool: icarus
      iverilog_options: [-g2005]
    toplevel: {testbench_module}
"""


def core_file(config: Config, module: str, meaning: str, testbench: Sequence[str] = ()) -> str:
    """Return a core description (CAPI 2) of a module, with a target that simulates its testbench.

    ``testbench`` names the testbench's files, its Verilog first.
    """
    name = "".join(letter if letter.isalnum() else "_" for letter in f"{module}_{config.name}")
    text = _HEAD.format(name=name, version=VERSION, description=meaning, module=module)
    if testbench:
        source, *others = testbench
        data = "\n".join(f"      - {file}: {{file_type: user, copyto: {file}}}" for file in others)
        text += _TESTBENCH_FILES.format(testbench=source, data=data).rstrip() + "\n"
    text += _TARGETS.format(module=module)
    if testbench:
        text += _SIMULATION.format(testbench_module=testbench[0].removesuffix(".v"))
    return text
