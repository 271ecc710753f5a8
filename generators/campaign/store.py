"""Storage of test cases' results in an SQLite file, which stays intact if the process is killed."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from celosia.arch.errors import InputError
from celosia.generators.campaign.case import Campaign, Outcome

_TABLE = """\
CREATE TABLE IF NOT EXISTS outcomes (
    campaign TEXT, number INTEGER, result TEXT, error TEXT, seconds REAL,
    PRIMARY KEY (campaign, number)
) WITHOUT ROWID
"""
_WAIT = 60.0  # seconds, for another campaign's transaction on the same file


class Store:
    """A database of the outcomes of campaigns (series of test cases), by campaign and case index.

    ``path`` is its SQLite file, or None for a database in memory. Raises :class:`InputError` if the
    file cannot be written or is no SQLite file.
    """

    def __init__(self, path: Path | None):
        self._path = path
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(":memory:" if path is None else path, timeout=_WAIT)
            self._database.execute(_TABLE)
            self._database.execute("SELECT campaign, number, result, error, seconds FROM outcomes")
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"Cannot keep results in {path}: {error}") from error

    def __enter__(self) -> Self:
        """Return the store; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._database.close()

    def keep(self, campaign: Campaign, outcomes: Iterable[Outcome]) -> None:
        """Store outcomes of a campaign; they replace stored outcomes of the same cases.

        If the file cannot be written, none of the outcomes are stored, and :class:`InputError` is
        raised.
        """
        rows = [
            (
                campaign.key,
                outcome.case.index,
                json.dumps(outcome.result),
                outcome.error,
                outcome.seconds,
            )
            for outcome in outcomes
        ]
        try:
            with self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?)", rows
                )
        except sqlite3.Error as error:
            raise InputError(f"Cannot keep results in {self._path}: {error}") from error

    def done(self, campaign: Campaign) -> set[int]:
        """Return the indices of a campaign's cases that have a stored outcome."""
        query = "SELECT number FROM outcomes WHERE campaign = ?"
        return {number for (number,) in self._database.execute(query, (campaign.key,))}

    def outcomes(self, campaign: Campaign, count: int) -> Iterator[Outcome]:
        """Yield the stored outcomes of a campaign's cases 0 to ``count`` - 1, in index order.

        Cases without a stored outcome are omitted.
        """
        query = (
            "SELECT number, result, error, seconds FROM outcomes "
            "WHERE campaign = ? AND number < ? ORDER BY number"
        )
        for number, result, error, seconds in self._database.execute(query, (campaign.key, count)):
            yield Outcome(campaign.case(number), json.loads(result), error, seconds)
