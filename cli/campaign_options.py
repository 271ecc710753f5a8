"""Options of commands that run campaigns, and a class that runs campaigns with a progress bar.

A campaign is a series of independent cases, such as random programs, run in several processes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from celosia.arch.errors import InputError
from celosia.cli.options import as_one_argument
from celosia.cli.output import progress
from celosia.cli.paths import FILE
from celosia.generators.campaign.case import Campaign, Job, Outcome, sources
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers


@dataclass(frozen=True)
class Runner:
    """Runs campaigns, each a series of independent cases, in the worker processes ``workers``.

    ``results`` is the SQLite file in which the outcomes are stored; None for no file.
    """

    workers: Workers
    results: Path | None

    def run(
        self,
        kind: str,
        job: Job,
        count: int,
        *,
        seed: int,
        fields: Mapping[str, str] | None = None,
        chunk: int = 1,
    ) -> list[Outcome]:
        """Run a campaign of ``count`` test cases, and return the outcome of each case.

        A progress bar is shown.

        - ``kind``: name of the kind of cases.
        - ``fields``: settings of all cases.
        - ``job``: function that runs a case.
        - ``chunk``: number of cases that a worker process gets at a time.

        A case is not run again if the file ``results`` already has its outcome.
        """
        campaign = Campaign(kind, seed, fields or {}, sources())
        with Store(self.results) as store, progress(f"Cases of {kind}") as tell:
            return list(
                run_campaign(
                    campaign,
                    job,
                    count,
                    store=store,
                    workers=self.workers,
                    tell=tell,
                    chunk=chunk,
                )
            )


def _runner(jobs: str | None, results: Path | None) -> Runner:
    if jobs is None:
        return Runner(Workers(), results)
    if "://" in jobs:
        return Runner(Workers(cluster=jobs), results)
    if not re.fullmatch(r"-?\d{1,9}", jobs):
        raise InputError(f"--jobs must be a number or tls://HOST:PORT, not {jobs!r}")
    return Runner(Workers(int(jobs)), results)


campaign_options = as_one_argument(
    "runner",
    _runner,
    click.option(
        "--jobs",
        metavar="NUMBER_OR_tls://HOST:PORT",
        help="Cases at the same time on this machine, without it one a core, or Dask's scheduler "
        "whose workers run the cases.",
    ),
    click.option(
        "--results",
        type=FILE,
        help="SQLite file of the outcomes: a campaign continues from it.",
    ),
)
"""Adds ``--jobs`` and ``--results``; the command gets a ``runner``."""
