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
