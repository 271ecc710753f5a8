"""Cases of a parametrized test that `make test-long` runs."""

from typing import Any

import pytest


def longer(*cases: Any) -> list[Any]:
    """Return the cases, each a tuple of values or a single value, with the marker ``long``."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for case in cases
    ]


def is_longer(request: pytest.FixtureRequest) -> bool:
    """Return whether the running case has the marker ``long``."""
    return request.node.get_closest_marker("long") is not None


def shorter(first: list[Any], second: list[tuple[Any, ...]]) -> list[Any]:
    """Return all pairs of two lists of cases, of which `make test` runs as many as it must.

    ``first`` are the results of ``pytest.param`` with names, ``second`` tuples of values. Each
    case of both is in a pair without the marker ``long``: one step in the shorter list is one in
    the other.
    """
    count = max(len(first), len(second))
    kept = {(place % len(first), place % len(second)) for place in range(count)}
    return [
        pytest.param(
            *(*case.values, *values),
            id=f"{case.id}-{number}",
            marks=[] if (place, number) in kept else pytest.mark.long,
        )
        for place, case in enumerate(first)
        for number, values in enumerate(second)
    ]
