"""celosia verify: checks of the circuits beyond their benches."""

import click

from celosia.cli.tree import Tree


@click.group(
    cls=Tree,
    headings={
        "Checks": ("prove", "fuzz", "mutate", "faults", "coverage", "accuracy", "replay"),
    },
)
def verify() -> None:
    """Check circuits and models: proofs, random cases, mutants, faults, coverage, accuracy."""
