"""celosia replay: one case of a campaign, alone."""

import importlib

import click

from arch.errors import check_known
from cli.options import json_option
from cli.output import progress, report
from generators.campaign.case import Case

KINDS = {
    "model": "tb.fuzz.models",
    "onnx": "tb.fuzz.graphs",
    "program": "tb.fuzz.programs",
    "trace": "tb.fuzz.traces",
    "line": "tb.fuzz.lines",
    "files": "cli.file_cases",
    "mutant": "tb.mutation.campaign",
    "coverage": "tb.coverage.units",
    "functional": "tb.coverage.programs",
    "fault": "tb.faults.campaign",
}
"""The module of each kind of case; its function ``run`` is the job."""


@click.command()
@click.argument("text", metavar="CASE")
@json_option
def replay(text: str, as_json: bool) -> None:
    """Run one case of a campaign again, by the name that its failure was reported with."""
    case = Case.parse(text)
    check_known("kind of case", case.kind, KINDS)
    job = importlib.import_module(KINDS[case.kind]).run
    with progress(f"Case {case}"):
        result = job(case)
    row = {"case": str(case), **result}
    report(f"Case {case}", [row], as_json, row, wrong=bool(result.get("mismatch")))
