"""celosia verify faults: inferences in which one random bit of the circuit is flipped."""

from collections import Counter

import click

from celosia.arch.errors import RunError
from celosia.cli.campaign_options import Runner, campaign_options
from celosia.cli.options import override_option, seed_option, source_option
from celosia.cli.output import report
from celosia.cli.tree import Command
from celosia.hdl.machine import machine_component
from celosia.tb.machine.fast_build import accelerator_verilog
from celosia.tb.verify.faults.campaign import CASES, CLASSES, KIND, UNITS, fault_config, run, table
from celosia.tb.verify.faults.faulty_machine import check_names, check_units
from celosia.tb.verify.faults.problems import open_problem
from celosia.tb.verify.faults.sites import find_sites


@click.command(cls=Command, example="digits --count 100")
@click.argument("model")
@click.argument("units", metavar="[UNIT]...", nargs=-1)
@source_option("small")
@override_option
@click.option(
    "--count", type=click.IntRange(min=1), default=1000, show_default=True, help="Faults."
)
@seed_option
@campaign_options
def faults(
    model: str,
    source: str,
    overrides: tuple[str, ...],
    units: tuple[str, ...],
    count: int,
    seed: int,
    runner: Runner,
) -> None:
    """Flip a random bit of the circuit in a random cycle of each inference; report the effects.

    MODEL is any model that `celosia run` accepts. All bits of registers and memories are equally
    likely, and so are all cycles. The effects are printed as a table with a row for each unit of
    the machine, such as an engine or a memory. With UNIT, a name in the table's first column such
    as `matrix`, only bits of this unit are flipped. If UNIT is `all registers`, only bits of
    registers are flipped.
    """
    fields = {"model": model, "config": source, "set": ";".join(overrides)}
    fields |= {UNITS: ";".join(units)} if units else {}
    config = fault_config(source, fields["set"])
    if units:  # before the model is calibrated and the machine built
        check_names(units, machine_component(config))
        check_units(units, find_sites(accelerator_verilog(config)))
    problem = open_problem(model, config)  # refuses impossible problems, and builds the machine
    problem.infer(0)
    problem.machine.limit_to(units)
    problem.machine.close()
    outcomes = runner.run(KIND, run, count, seed=seed, fields=fields, chunk=CASES)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        raise RunError(f"{len(failed)} cases failed, {failed[0].case} with: {failed[0].message}")
    results = [outcome.result for outcome in outcomes]
    rows = table(results)
    causes = Counter(result["cause"] for result in results if result["class"] == "detected")
    result = {
        "model": model,
        "config": config.name,
        "protect": config.control.protect,
        "watchdog": config.control.watchdog,
        "seed": seed,
        "injected": len(results),
        **{name: rows[-1][name] for name in CLASSES},
        "bits": problem.machine.bits,
        "causes": dict(sorted(causes.items())),
        "units": rows,
        "simulated_cycles": sum(result["simulated"] for result in results),
    }
    report(f"Faults in {model} on {config.name}", rows, result)
