"""The option --trace of benchmarks: a timeline of the measured run."""

import json
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.support.writing import check_folder, write_files
from celosia.cli.options import as_one_argument
from celosia.cli.paths import FILE
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.simulated import SimulatedMachine
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.places import places
from celosia.tb.models.timeline import timeline


class RunTrace:
    """Records a benchmark's runs on a machine, and writes a timeline of one run to ``file``.

    The timeline shows the run that has the most cycles in which the array multiplies. If ``file``
    is None, nothing is recorded or written. Raises :class:`InputError` if the file cannot be
    written.
    """

    def __init__(self, file: Path | None):
        self._file = file
        self._machine: SimulatedMachine | None = None
        if file is not None:
            check_folder(file.parent, [file.name])

    def machine(self, config: Config, simulator: str, *arguments: Any) -> Machine:
        """Return a new machine that runs a benchmark, and record its runs if ``file`` is not None.

        The arguments are those of :func:`celosia.tb.machine.simulators.make_machine`: the
        configuration, the simulator's name and further arguments. Raises the errors of that
        function. Also raises :class:`InputError` if runs must be recorded but the simulator does
        not count cycles.
        """
        if self._file is None:
            return make_machine(config, simulator, *arguments)
        made = make_machine(config.replace(trace=True), simulator, *arguments)
        if not isinstance(made, SimulatedMachine):
            raise InputError(f"The {simulator} machine has no clock to trace")
        made.record()
        self._machine = made
        return made

    def write(self, title: str) -> None:
        """Write the timeline of one recorded run to ``file``.

        The timeline shows the run that has the most cycles in which the array multiplies. ``title``
        is the title of the timeline. If no runs are recorded, nothing is written.
        """
        if self._file is None or self._machine is None:
            return
        config = self._machine.config
        recording = max(self._machine.recordings, key=lambda run: sum(run.sums["product"]))
        commands = places(recording.commands, [], config)
        shown = timeline(recording, commands, [], title=title, mem_bytes=config.mem_bytes)
        write_files(self._file.parent, {self._file.name: json.dumps(shown)})


trace_option = as_one_argument(
    "run",
    RunTrace,
    click.option(
        "--trace",
        "file",
        type=FILE,
        help="File for a timeline of the measured run, for ui.perfetto.dev.",
    ),
)
"""Adds ``--trace``; the command gets a :class:`RunTrace` as ``run``."""
