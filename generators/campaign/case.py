"""Cases: each is a seed and an index, so that any of them can be run again alone."""

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
    """One case of a campaign: its kind, the campaign's seed and fields, and its number in it."""

    kind: str
    seed: int
    index: int
    fields: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        fields_text = ",".join(f"{name}={quote(value, safe='')}" for name, value in self.fields)
        return f"{self.kind}:{self.seed}:{self.index}" + (f":{fields_text}" if fields_text else "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the case of a text; raise :class:`InputError` where it names none."""
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
        """Return a field; raise :class:`InputError` where the case lacks it."""
        for name, value in self.fields:
            if name == field:
                return value
        raise InputError(f"Case {self} lacks the field {field}")

    def choice(self, field: str, known: Collection[str]) -> str:
        """Return a field; raise :class:`InputError` where it is none of those that are known."""
        value = self[field]
        check_known(field, value, known)
        return value

    def number(self, field: str) -> int:
        """Return a field; raise :class:`InputError` where it is no number."""
        value = self[field]
        if not _is_number(value):
            raise InputError(f"Field {field} of case {self} must be a number, not {value!r}")
        return int(value)

    def rng(self) -> np.random.Generator:
        """Return the case's own random numbers: the same in any order and on any machine."""
        identity = repr((self.kind, self.fields)).encode()
        return np.random.default_rng([self.seed, self.index, zlib.crc32(identity)])


@dataclass(frozen=True)
class Campaign:
    """Cases of one kind, seed and fields.

    ``sources`` is a digest of what the results depend on besides: results of others are not taken
    for those of this campaign.
    """

    kind: str
    seed: int
    fields: Mapping[str, str]
    sources: str

    @property
    def key(self) -> str:
        """The text under which results are kept."""
        return f"{self.case(0)}@{self.sources}"

    def case(self, index: int) -> Case:
        """Return a case by its number."""
        return Case(self.kind, self.seed, index, tuple(sorted(self.fields.items())))


Job = Callable[[Case], dict[str, Any]]
"""Runs a case and returns what JSON carries; a ``mismatch`` that is not empty is a failure.

It stands in a module, or is a ``functools.partial`` of one that does: other processes import it.
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a job, or its error as a sentence or a traceback; and its time (s)."""

    case: Case
    result: dict[str, Any]
    error: str
    seconds: float

    @property
    def failed(self) -> bool:
        """The job raised, or found a mismatch."""
        return bool(self.error or self.result.get("mismatch"))

    @property
    def message(self) -> str:
        """Description of the failure in one line; empty without one."""
        text = self.error or str(self.result.get("mismatch", ""))
        lines = text.strip().splitlines() or [""]
        return lines[-1 if text.startswith("Traceback") else 0]


_PACKAGES = ("arch", "hdl", "sim", "generators", "tb", "fpga")


@functools.cache
def sources() -> str:
    """Return a digest of everything but the command line: another one after any change."""
    content = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((PACKAGE / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(str(path.relative_to(PACKAGE)).encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]
