"""Runs the cases of a campaign (a series of tests) that have no stored outcome yet."""

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)

from celosia.arch.errors import RunError
from celosia.generators.campaign.case import Campaign, Case, Job, Outcome
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers

_AHEAD = 2  # chunks handed over for each that can be run
_FRAMES = 12  # of a traceback, those nearest to the error


def run_campaign(
    campaign: Campaign,
    job: Job,
    count: int,
    *,
    store: Store,
    workers: Workers,
    tell: Callable[[int, int], None],
    chunk: int = 1,
) -> Iterator[Outcome]:
    """Run the first ``count`` cases of a campaign, and return the outcomes of these cases.

    A case with a stored outcome is not run again. If ``job(case)`` raises an exception, the outcome
    has the error. A worker takes ``chunk`` cases at a time; after each chunk, ``tell(done, count)``
    is called. If a worker dies, its cases are run once more.
    """
    there = store.done(campaign)
    left = [index for index in range(count) if index not in there]
    done = count - len(left)
    tell(done, count)
    chunks = deque(
        [campaign.case(index) for index in left[start : start + chunk]]
        for start in range(0, len(left), chunk)
    )
    for outcomes in _run_chunks(job, chunks, workers):
        store.keep(campaign, outcomes)
        done += len(outcomes)
        tell(done, count)
    return store.outcomes(campaign, count)


def run_case(job: Job, case: Case) -> Outcome:
    """Run the function ``job`` on a case, and return the case's outcome.

    If the job raises an exception, the outcome contains the error.
    """
    began = time.monotonic()
    try:
        result, error = job(case), ""
    except RunError as refusal:
        result, error = {}, str(refusal)
    except Exception:
        result, error = {}, traceback.format_exc(limit=-_FRAMES)
    return Outcome(case, result, error, round(time.monotonic() - began, 3))


def _run_chunk(job: Job, cases: Sequence[Case]) -> list[Outcome]:
    return [run_case(job, case) for case in cases]


def _run_chunks(job: Job, chunks: deque[list[Case]], workers: Workers) -> Iterator[list[Outcome]]:
    # Cases of a dead worker run alone, to identify the one that kills its worker.
    suspects: deque[list[Case]] = deque()
    while chunks or suspects:
        with workers.executor() as (executor, at_once):
            yield from _on_executor(job, chunks, suspects, executor, at_once)


def _on_executor(
    job: Job,
    chunks: deque[list[Case]],
    suspects: deque[list[Case]],
    executor: Executor,
    at_once: int,
) -> Iterator[list[Outcome]]:
    """Run chunks until all are done, or until the executor is broken."""
    running: dict[Future[list[Outcome]], list[Case]] = {}
    broken = trial = False
    while running or (not broken and (chunks or suspects)):
        while not broken and (chunks or suspects):
            if len(running) >= (1 if suspects or trial else _AHEAD * at_once):
                break
            trial = bool(suspects)
            source = suspects or chunks
            try:
                running[executor.submit(_run_chunk, job, source[0])] = source[0]
                source.popleft()
            except BrokenExecutor:
                broken, trial = True, False
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            cases = running.pop(future)
            try:
                yield future.result()
            except CancelledError as error:
                raise RunError(
                    "The scheduler that had the cases is gone; start it and give the same command "
                    "again, which with --results runs only the cases that are left"
                ) from error
            except Exception as error:
                broken = broken or isinstance(error, BrokenExecutor)
                if trial:
                    words = f"{type(error).__name__}: {error}"
                    yield [Outcome(cases[0], {}, words, 0.0)]
                else:
                    suspects += [[case] for case in cases]
