"""celosia bench toggles: bits of registers that change in a product, with and without sleep."""

import click

from cli.options import config_options, json_option, resolve, seed_option
from cli.output import progress, report
from tb.toggle_bench import bench_toggles


@click.command("toggles")
@config_options("small")
@click.option("--m", type=int, required=True, help="Rows of the result.")
@click.option("--k", type=int, required=True, help="Length of the sums.")
@click.option("--n", type=int, required=True, help="Columns of the result.")
@seed_option
@json_option
def toggles(
    source: str,
    overrides: tuple[str, ...],
    m: int,
    k: int,
    n: int,
    seed: int,
    as_json: bool,
) -> None:
    """Count the bits of registers that change in a linear layer, with and without sleep.

    Every register of the machine is looked at in every cycle of the run; its memories are not. A
    row is an engine or a memory's registers; `engines` are those that numbers of the product pass.
    """
    config = resolve(source, overrides)
    with progress(f"{m}x{k}x{n} on {config.name}, without and with sleep"):
        result = bench_toggles(config, m=m, k=k, n=n, seed=seed)
    report(f"Toggles of {m}x{k}x{n} on {config.name}", result["units"], as_json, result)
