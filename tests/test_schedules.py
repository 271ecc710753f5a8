"""Programs of one model by different schedules: all have the integers of the reference."""

import pytest

from celosia.generators.campaign.case import Case
from celosia.generators.campaign.run import run_case
from celosia.generators.lower import blocks, spill
from celosia.generators.program import allocate, tokens
from celosia.tb.verify.fuzz import schedules
from tests.support.longer import longer

CASES, PARTS, SHORT = 200, 20, 4


@pytest.mark.parametrize("part", [*range(SHORT), *longer(*range(SHORT, PARTS))])
def test_schedules_give_the_same_integers(part: int) -> None:
    outcomes = [
        run_case(schedules.run, Case("schedule", 1, index)) for index in range(part, CASES, PARTS)
    ]
    assert [(str(outcome.case), outcome.message) for outcome in outcomes if outcome.failed] == []
    assert sum(outcome.result["programs"] for outcome in outcomes) > len(outcomes)


@pytest.mark.parametrize("index", [14, *longer(15, 16, 17)])
def test_schedules_of_tensors_in_blocks_give_the_same_integers(index: int) -> None:
    assert run_case(schedules.run, Case(schedules.LARGE, 1, index)).message == ""


def test_a_block_that_was_never_stored_is_not_loaded() -> None:
    """Its first part is written in the last layer, directly before the second one."""
    assert run_case(schedules.run, Case("schedule", 3, 848)).message == ""


def overlap(monkeypatch) -> None:
    """Only the first lifetimes of two buffers are compared."""
    right = allocate.Use.overlaps

    def overlaps(self, other) -> bool:
        first, others = (allocate.Use(use.intervals[:1]) for use in (self, other))
        return right(first, others)

    monkeypatch.setattr(allocate.Use, "overlaps", overlaps)


def token(monkeypatch) -> None:
    """A command that only reads what another engine wrote does not wait."""
    right = tokens._needs

    def needs(engine, clock, cells):
        written = [(writing, each) for writing, each in cells if writing]
        return right(engine, clock, written or cells)

    monkeypatch.setattr(tokens, "_needs", needs)


def spilled(monkeypatch) -> None:
    """A block comes back from the row after its first one."""
    right = spill.load
    monkeypatch.setattr(
        spill,
        "load",
        lambda place, outside, m, row_bytes, *others: right(
            place, outside + row_bytes, m, row_bytes, *others
        ),
    )


def cut(monkeypatch) -> None:
    """The last of several parts lacks a column."""
    right = blocks.parts

    def parts(total: int, size: int) -> list[blocks.Part]:
        *before, (first, count) = right(total, size)
        return [*before, (first, count - 1 if before and count > 1 else count)]

    monkeypatch.setattr(blocks, "parts", parts)


# Blocks are moved in few programs: the search for one begins near the first.
@pytest.mark.parametrize(("fault", "first"), [(overlap, 0), (token, 0), (spilled, 90), (cut, 0)])
def test_a_wrong_compiler_is_noticed(monkeypatch, fault, first) -> None:
    fault(monkeypatch)
    cases = (Case("schedule", 1, index) for index in range(first, CASES))
    assert any(run_case(schedules.run, case).failed for case in cases)
