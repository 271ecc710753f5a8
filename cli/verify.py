"""celosia verify: checks circuits and models by other methods than the circuits' benches."""

import click

from celosia.cli.tree import Tree


@click.group(
    cls=Tree,
    headings={
        "Checks": ("prove", "fuzz", "mutate", "faults", "coverage", "accuracy", "replay"),
    },
)
def verify() -> None:
    """Check circuits and models by proofs, random cases, mutants, faults, coverage and accuracy."""
