"""A function on many items in two processes, where that is possible and safe."""

import os
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from arch.errors import RunError

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of a function, in the order of the items, at most 256 of them.

    A forked copy of this process takes part where there is a second processor and no second
    thread; items are begun in their order. The function may change its item in one of the two
    processes only; its results are pickled. What it raises is raised.
    """
    if processes(len(items)) < 2:
        return [function(item) for item in items]
    tickets = os.pipe()
    os.write(tickets[1], bytes(range(len(items))))
    os.close(tickets[1])
    answer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that libraries keep idle
        child = os.fork()
    if child == 0:
        _serve(function, items, tickets[0], answer)
    os.close(answer[1])
    try:
        found = _work(function, items, tickets[0])
    finally:
        os.close(tickets[0])
        with os.fdopen(answer[0], "rb") as stream:
            data = stream.read()
        os.waitpid(child, 0)
    if not data:
        raise RunError("A process that converts components ended without an answer")
    others = pickle.loads(data)
    if isinstance(others, BaseException):
        raise others
    found |= others
    return [found[index] for index in range(len(items))]


def processes(shares: int) -> int:
    """Return how many processes :func:`parallel_map` has for so many shares of work, 1 or 2."""
    return 2 if shares > 1 and _can_fork() else 1


def _can_fork() -> bool:
    return (
        hasattr(os, "fork")
        and hasattr(os, "sched_getaffinity")
        and len(os.sched_getaffinity(0)) > 1
        and threading.active_count() == 1
    )


def _work(
    function: Callable[[Item], Result], items: Sequence[Item], tickets: int
) -> dict[int, Result]:
    """Take tickets, one byte each, until there are none; return the results by index."""
    found = {}
    while ticket := os.read(tickets, 1):
        found[ticket[0]] = function(items[ticket[0]])
    return found


def _serve(
    function: Callable[[Item], Any],
    items: Sequence[Item],
    tickets: int,
    answer: tuple[int, int],
) -> None:
    """Work as the forked process, give the answer, and end without any cleaning up."""
    code = 1
    try:
        try:
            result: object = _work(function, items, tickets)
        except Exception as error:
            result = error
        with os.fdopen(answer[1], "wb") as stream:
            pickle.dump(result, stream)
        code = 0
    finally:
        os._exit(code)
