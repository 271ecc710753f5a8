"""celosia verify replay: repeats one case of a campaign (a series of random cases)."""

import importlib

import click

from celosia.arch.errors import check_known
from celosia.cli.output import progress, report
from celosia.cli.tree import Command
from celosia.generators.campaign.case import Case

KINDS = {
    "model": "celosia.tb.verify.fuzz.models",
    "schedule": "celosia.tb.verify.fuzz.schedules",
    "blocks": "celosia.tb.verify.fuzz.schedules",
    "onnx": "celosia.tb.verify.fuzz.graphs",
    "program": "celosia.tb.verify.fuzz.programs",
    "trace": "celosia.tb.verify.fuzz.traces",
    "line": "celosia.tb.verify.fuzz.lines",
    "files": "celosia.cli.file_cases",
    "mutant": "celosia.tb.verify.mutation.campaign",
    "coverage": "celosia.tb.verify.coverage.units",
    "functional": "celosia.tb.verify.coverage.goal_programs",
    "fault": "celosia.tb.verify.faults.campaign",
}
"""The module of each kind of case; its function ``run`` is the job."""


@click.command(cls=Command, example="program:1:0:config=tiny")
@click.argument("text", metavar="CASE")
def replay(text: str) -> None:
    """Repeat one case of a campaign, without the campaign's other cases.

    A campaign is a series of random cases. CASE is the name of the case, as the campaign's report
    shows it.
    """
    case = Case.parse(text)
    check_known("kind of case", case.kind, KINDS)
    job = importlib.import_module(KINDS[case.kind]).run
    with progress(f"Case {case}"):
        result = job(case)
    row = {"case": str(case), **result}
    report(f"Case {case}", [row], row, wrong=bool(result.get("mismatch")))
