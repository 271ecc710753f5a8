"""One cocotb build or run in a process: ``python -m celosia.tb.benches.runner JOB.json``.

The file JOB.json contains a dictionary, the job. ``simulator`` is ``verilator`` or ``icarus``, and
selects cocotb's runner for this simulator. ``action`` is the name of the runner's method to call,
``build`` or ``test``, and ``arguments`` are that method's keyword arguments. ``make`` lists options
of make, which compiles the C++ files that Verilator writes.
"""

import json
import os
import sys
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.config import libs_dir
from cocotb_tools.runner import Icarus, Verilator


class PortsOnly(Verilator):
    """cocotb's runner for Verilator, in which a bench can access only the ports.

    A Verilator control file names the accessible signals. Verilator may remove all others, and
    generates no code for a bench's access to them, so that a build takes half the time. The built
    program contains no path to cocotb's libraries, because another checkout may also run it.
    ``options`` lists the options of make, which compiles the C++ files that Verilator writes.
    """

    def __init__(self, options: list[str]):
        super().__init__()
        self._options = options

    def _build_command(self):
        verilator, make = super()._build_command()
        verilator.remove("--public-flat-rw")
        verilator = [word.replace(f"-Wl,-rpath,{libs_dir} ", "") for word in verilator]
        return [verilator, [*make, *self._options]]

    def _set_env_test(self):
        super()._set_env_test()
        folders = [str(libs_dir), self.env.get("LD_LIBRARY_PATH", "")]
        self.env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))


class Dumper(Icarus):
    """cocotb's runner for Icarus, which can also write waveforms as VCD.

    It writes waveforms as VCD if the name of the waveform file ends in ``.vcd``, otherwise as FST.
    """

    def _test_command(self):
        vcd = any(
            word.startswith("+dumpfile_path=") and word.endswith(".vcd") for word in self.plusargs
        )
        (command,) = super()._test_command()
        return [["-vcd" if vcd and word == "-fst" else word for word in command]]


def main(path: Path) -> int:
    """Do the job in the JSON file ``path``: build a bench, or run its tests.

    Return 0 if nothing failed, otherwise 1.
    """
    job = json.loads(path.read_text(encoding="utf-8"))
    simulator = job["simulator"]
    runner = PortsOnly(job["make"]) if simulator == "verilator" else Dumper()
    if job["action"] == "build":
        runner.build(**job["arguments"])
        return 0
    count, failed = get_results(runner.test(**job["arguments"]))
    if not count:
        print(f"{job['arguments']['test_module']} has no test of that name")
    return 0 if count and not failed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
