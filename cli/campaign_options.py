"""Options of commands that run campaigns, and how such a campaign is run and reported."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from celosia.cli.options import grouped
from celosia.cli.output import progress
from celosia.cli.paths import FILE
from celosia.generators.campaign.case import Campaign, Job, Outcome, sources
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers


@dataclass(frozen=True)
class Runner:
    """Workers of a campaign, and the file that keeps its outcomes."""

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
        """Return the outcomes of a campaign of ``count`` cases, with a bar of its progress."""
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


campaign_options = grouped(
    "runner",
    lambda jobs, cluster, results: Runner(Workers(jobs, cluster), results),
    click.option(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        show_default="one a core",
        help="Cases at the same time on this machine.",
    ),
    click.option(
        "--cluster",
        metavar="tls://HOST:PORT",
        help="Dask's scheduler whose workers run the cases, instead of processes here.",
    ),
    click.option(
        "--results",
        type=FILE,
        help="SQLite file of the outcomes: a campaign goes on where it stopped.",
    ),
)
"""Adds ``--jobs``, ``--cluster`` and ``--results``; the command gets a ``runner``."""
