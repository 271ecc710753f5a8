"""celosia verify fuzz: random tests of the compiler, the circuits, and the reading of files."""

from typing import Any

import click

from celosia.arch.errors import InputError, check_known
from celosia.arch.presets import WITH_ENGINES
from celosia.cli import file_cases
from celosia.cli.campaign_options import Runner, campaign_options
from celosia.cli.options import seed_option
from celosia.cli.output import report, say
from celosia.cli.tree import Command
from celosia.generators.campaign.case import Job
from celosia.tb.verify.fuzz import graphs, lines, models, programs, schedules, traces
from celosia.tb.verify.fuzz.file_seeds import FORMATS

CASES: dict[str, tuple[Job, dict[str, tuple[str, ...]], int]] = {
    "model": (models.run, {}, 4),
    "schedule": (schedules.run, {}, 8),
    schedules.LARGE: (schedules.run, {}, 8),
    "onnx": (graphs.run, {}, 4),
    "program": (programs.run, {"config": ("tiny", "odd")}, 4),
    "trace": (traces.run, {"config": ("tiny", "odd")}, 4),
    "line": (lines.run, {"line": lines.LINES}, 1),
    "files": (file_cases.run, {"format": tuple(FORMATS)}, 8),
}
"""For each kind its job, the values that its field takes alternately, and cases handed over at
once."""

_SHOWN = 20  # failures
_MOST = 100_000_000


@click.command(cls=Command, example="program --count 20")
@click.argument("kinds", metavar="[KIND]...", nargs=-1)
@click.option(
    "--count", default=20, show_default=True, help="Cases of each kind, and of each part of it."
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME",
    help="Preset of the machines of programs and traces, instead of tiny and odd; repeatable.",
)
@seed_option
@campaign_options
def fuzz(
    kinds: tuple[str, ...],
    count: int,
    configs: tuple[str, ...],
    seed: int,
    runner: Runner,
) -> None:
    r"""Run random cases of all kinds, or only of the given KINDs, and report the cases that fail.

    A case passes if its check is met, or if its input is refused with an error message. A case that
    fails is reported by its name; `celosia verify replay` with this name runs the case again. The
    kinds and their checks are:

    \b
    model    a random model: golden machine (in 1 of 8 cases also circuit) must equal a reference
    schedule a random model, compiled into several programs that must compute the same integers
    blocks   as schedule, with models whose tensors are divided into blocks
    onnx     a random ONNX graph: it must be imported exactly, and then pass the check of `model`
    program  a random or damaged program: if it is valid, circuit must equal golden machine
    trace    a run is disturbed by a reset, abort or error; results of the next run must be right
    line     host link or bus bridge with random data and timing: it must transfer correct data
    files    a command must read or refuse a damaged file (of any format) within a time limit
    """
    for kind in kinds:
        check_known("kind of case", kind, CASES)
    for name in configs:
        if name not in WITH_ENGINES:
            raise InputError(
                f"--config must be a preset with engines, of {', '.join(WITH_ENGINES)}, "
                f"not {name!r}"
            )
    if not 1 <= count <= _MOST:
        raise InputError(f"--count must be from 1 to {_MOST:,}, not {count}")
    rows, failures = [], []
    for kind in kinds or CASES:
        job, fields, chunk = CASES[kind]
        chosen_fields = {
            name: configs or values for name, values in fields.items() if name == "config"
        }
        for name, value in _turns(fields | chosen_fields):
            outcomes = runner.run(
                kind, job, count, seed=seed, fields={name: value} if name else {}, chunk=chunk
            )
            failed = [outcome for outcome in outcomes if outcome.failed]
            failures += [
                {"case": str(outcome.case), "message": outcome.message} for outcome in failed
            ]
            rows.append(
                {
                    "kind": f"{kind} {value}".strip(),
                    "cases": len(outcomes),
                    "refused": sum(_refused(outcome.result) for outcome in outcomes),
                    "failed": len(failed),
                    "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
                }
            )
    result = {"kinds": rows, "failures": failures, "failed": len(failures), "seed": seed}
    report(f"Cases of seed {seed}", rows, result)
    for failure in failures[:_SHOWN]:
        say("celosia verify replay {case}  # {message}".format(**failure), err=True)


def _turns(fields: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in fields.items() for value in values] or [("", "")]


def _refused(result: dict[str, Any]) -> int:
    """Return the number of a case's objects that were refused."""
    return int(result.get("refused", bool(result.get("refusal"))))
