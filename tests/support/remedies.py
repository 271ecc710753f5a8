"""Checks of a refusal whose remedy is followed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Check that the block is refused with the words of remedies."""
    with pytest.raises(ValueError, match=r".") as error:
        yield
    for part in words:
        assert part in str(error.value), error.value


def change(path: Path, **settings: Any) -> None:
    """Change settings in a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    content |= settings
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
