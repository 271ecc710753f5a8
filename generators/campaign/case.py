"""Cases of a campaign, a series of similar tests or simulations whose results are stored.

A case is identified by its index and by its campaign's kind, seed and fields (settings). With these
values, a single case can be run again.
"""

import functools
import hashlib
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote

import numpy as np

from celosia.arch.errors import InputError, check_known
from celosia.arch.support.cache import PACKAGE

_FORM = "KIND:SEED:INDEX or KIND:SEED:INDEX:FIELD=VALUE,..."


_DIGITS = 18  # of a number, at most


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


@dataclass(frozen=True)
class Case:
    """One test case of a campaign: the data that a job (a function) needs to run the case."""

    kind: str
    """Kind of job, for example ``fault``."""
    seed: int
    """Random seed of the campaign."""
    index: int
    """Number of the case in the campaign, from 0 on."""
    fields: tuple[tuple[str, str], ...] = ()
    """Settings of the campaign: pairs (name, value), sorted by name."""

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        fields_text = ",".join(f"{name}={quote(value, safe='')}" for name, value in self.fields)
        return f"{self.kind}:{self.seed}:{self.index}" + (f":{fields_text}" if fields_text else "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the case that ``text`` describes.

        The text is KIND:SEED:INDEX or KIND:SEED:INDEX:FIELD=VALUE,..., as :meth:`__str__` returns
        it. Raises :class:`InputError` if the text is malformed.
        """
        kind, *rest = text.split(":", 3)
        fields = [field.partition("=") for field in (rest[2].split(",") if len(rest) > 2 else [])]
        numbers = rest[:2]
        if len(numbers) < 2 or not all(map(_is_number, numbers)):
            raise InputError(f"A case is {_FORM}, not {text!r}")
        if not all(name and sign for name, sign, _ in fields):
            raise InputError(f"A case is {_FORM}, not {text!r}")
        pairs = tuple(sorted((name, unquote(value)) for name, _, value in fields))
        return cls(kind, int(numbers[0]), int(numbers[1]), pairs)

    def __getitem__(self, field: str) -> str:
        """Return the value of a field; raise :class:`InputError` if the case lacks it."""
        for name, value in self.fields:
            if name == field:
                return value
        raise InputError(f"Case {self} lacks the field {field}")

    def choice(self, field: str, known: Collection[str]) -> str:
        """Return the value of the case's field ``field``, which must be one of ``known``.

        Raises :class:`InputError` if the case lacks the field or the value is not in ``known``.
        """
        value = self[field]
        check_known(field, value, known)
        return value

    def number(self, field: str) -> int:
        """Return the value of the case's field ``field`` as an integer.

        Raises :class:`InputError` if the case lacks the field or the value is no number.
        """
        value = self[field]
        if not _is_number(value):
            raise InputError(f"Field {field} of case {self} must be a number, not {value!r}")
        return int(value)

    def rng(self) -> np.random.Generator:
        """Return a random number generator, seeded with the case's kind, fields, seed and index."""
        identity = repr((self.kind, self.fields)).encode()
        return np.random.default_rng([self.seed, self.index, zlib.crc32(identity)])


@dataclass(frozen=True)
class Campaign:
    """A campaign: a series of cases of one kind, with the same seed and fields.

    ``fields`` is a dictionary from the names of settings to their values as text. ``sources`` is a
    digest of the source files on which the results depend. Stored results with another digest are
    not reused.
    """

    kind: str
    seed: int
    fields: Mapping[str, str]
    sources: str

    @property
    def key(self) -> str:
        """Text that identifies the campaign in a :class:`Store`, the database of outcomes."""
        return f"{self.case(0)}@{self.sources}"

    def case(self, index: int) -> Case:
        """Return the campaign's case number ``index``, counted from 0."""
        return Case(self.kind, self.seed, index, tuple(sorted(self.fields.items())))


Job = Callable[[Case], dict[str, Any]]
"""Function that runs a case and returns a JSON object; a nonempty ``mismatch`` in it is a failure.
It must be importable by other processes: a function of a module, or a ``functools.partial`` of
one."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test case after its job, the function that runs the case, has ended.

    If the job returned a JSON object, ``result`` is this object, and ``error`` is empty. If the job
    raised an exception, ``error`` is a sentence or a traceback, and ``result`` is empty.
    ``seconds`` is the time that the job took.
    """

    case: Case
    result: dict[str, Any]
    error: str
    seconds: float

    @property
    def failed(self) -> bool:
        """True if the job raised an exception, or ``result`` has a nonempty entry ``mismatch``."""
        return bool(self.error or self.result.get("mismatch"))

    @property
    def message(self) -> str:
        """The job's failure in one line; empty if the job did not fail."""
        text = self.error or str(self.result.get("mismatch", ""))
        lines = text.strip().splitlines() or [""]
        return lines[-1 if text.startswith("Traceback") else 0]


_PACKAGES = ("arch", "hdl", "sim", "generators", "tb", "fpga")


@functools.cache
def sources() -> str:
    """Return a digest of the source files of all packages of Celosia except ``cli``.

    Any edit of a file changes the digest, so that outcomes of earlier sources are not reused.
    """
    content = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((PACKAGE / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(str(path.relative_to(PACKAGE)).encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]
