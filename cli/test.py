"""celosia test: runs the cocotb benches of the circuits."""

from pathlib import Path

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.support.writing import check_folder
from celosia.cli.options import check_unit, config_options, seed_option
from celosia.cli.output import as_json, progress, report, say, text
from celosia.cli.paths import FILE, check_ending
from celosia.cli.tree import Command
from celosia.tb.benches.catalog import BENCHES
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.toolchain import SIMULATORS, check_simulator, check_waves


@click.command(cls=Command, example="softmax --config tiny")
@config_options("tiny")
@click.argument("units", metavar="[UNIT]...", nargs=-1)
@click.option(
    "--sim",
    "simulators",
    multiple=True,
    metavar="NAME",
    default=("verilator",),
    show_default=True,
    help=f"Simulator; repeatable: {', '.join(SIMULATORS)}.",
)
@click.option(
    "--waves",
    type=FILE,
    help="File for the waveforms, .vcd or .fst; needs one unit and one simulator.",
)
@seed_option
def test(
    config: Config,
    units: tuple[str, ...],
    simulators: tuple[str, ...],
    waves: Path | None,
    seed: int,
) -> None:
    """Run the cocotb benches of all units or the given ones, with random data and random stalls."""
    config = config.replace(trace=True, mem_addr_width=16)
    for unit in units:
        if unit not in BENCHES:
            raise InputError(f"Unknown unit {unit!r}; benches are for {', '.join(BENCHES)}")
        check_unit(unit, config)
    for simulator in simulators:
        check_simulator(simulator)
    chosen = units or tuple(BENCHES)
    if waves is not None:
        if len(chosen) * len(simulators) != 1:
            raise InputError("Waveforms need exactly one unit and one --sim")
        check_ending(waves, (".vcd", ".fst"))
        check_waves(simulators[0], waves.suffix[1:])
        check_folder(waves.parent, [waves.name])
        waves.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with progress(f"Benches with seed {seed}") as update:
        for unit in chosen:
            for simulator in simulators:
                rows.append(_run(unit, config, simulator, seed, waves))
                update(len(rows), len(chosen) * len(simulators))
    result = {
        "benches": rows,
        "failed": sum(row["result"] != "passed" for row in rows),
        "tests": sum(row["tests"] or 0 for row in rows),
        "cycles": sum(row["cycles"] or 0 for row in rows),
    }
    report(f"Benches on {config.name}", rows, result)
    if not as_json():
        shown = {name: text(value) for name, value in result.items() if name != "benches"}
        say(
            "{failed} of {benches} benches failed; {tests} tests, {cycles} cycles".format(
                benches=len(rows), **shown
            )
        )


def _run(unit, config, simulator, seed, waves) -> dict[str, object]:
    component, parameters = BENCHES[unit].make(config)
    row = {"unit": unit, "simulator": simulator, "seed": seed}
    try:
        ran = simulate(
            component,
            bench=BENCHES[unit].module,
            simulator=simulator,
            seed=seed,
            parameters=parameters,
            waves=waves,
        )
    except RunError as error:
        say(str(error), err=True)
        return {**row, "result": "failed", "tests": None, "cycles": None}
    return {**row, "result": "passed", "tests": ran.tests, "cycles": ran.cycles}
