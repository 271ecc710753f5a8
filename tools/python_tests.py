"""The tests that run each line of a package, and runs of tests with a changed module."""

import importlib.machinery
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType

import coverage
import pytest

from celosia.arch.errors import RunError
from tools.python_patch import Pairs, functions, pairs, patch

OPTIONS = ["-q", "-m", "not slow and not long", "-p", "no:cacheprovider", "-p", "no:xdist"]
"""Options of pytest for every run."""
FREE_SECONDS = 20
"""Processor time that a run may take in any case: imports and the collection of tests."""
WAITING = 20
"""The longest time of a run, by its processor time, on a busy computer."""


class _Recorder:
    """A plugin of pytest that keeps a test's processor time and the contexts of its lines.

    The contexts of a test are the test and its fixtures, as tests may share a fixture.
    """

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self._context = ""
        self.tests: dict[str, tuple[float, list[str]]] = {}

    def _switch(self, context: str) -> str:
        before, self._context = self._context, context
        self._measured.switch_context(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before, began = self._switch(item.nodeid), time.process_time()
        result = yield
        self._switch(before)
        fixtures = [f"fixture {name}" for name in getattr(item, "fixturenames", ())]
        seconds = time.process_time() - began
        self.tests.setdefault(item.nodeid, (seconds, [item.nodeid, *fixtures]))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        before = self._switch(f"fixture {fixturedef.argname}")
        result = yield
        self._switch(before)
        return result


def record(root: Path, folders: Sequence[str], file: str) -> dict[str, object]:
    """Run the tests of a file and return their seconds and contexts, and those of each line.

    Raises :class:`RunError` if a test fails.
    """
    include = [f"{root / folder}/*" for folder in folders]
    measured = coverage.Coverage(data_file=None, config_file=False, include=include)
    plugin = _Recorder(measured)
    measured.start()
    status = pytest.main([file, *OPTIONS], plugins=[plugin])
    measured.stop()
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RunError(f"The tests of {file} do not pass without a mutant")
    data = measured.get_data()
    lines = {
        str(Path(name).relative_to(root)): data.contexts_by_lineno(name)
        for name in data.measured_files()
    }
    return {"tests": plugin.tests, "lines": lines}


class Changed(importlib.machinery.SourceFileLoader):
    """A loader that takes a module's text from memory instead of its file and its cache."""

    text = ""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the changed module."""
        return compile(self.text, self.path, "exec")


class Finder(MetaPathFinder):
    """Changes the text of the module in a file, under each name by which it is imported."""

    def __init__(self, file: Path, text: str) -> None:
        self._file, self._text = file.resolve(), text

    def find_spec(
        self, name: str, path: Collection[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the changed module, and None for all others."""
        if name.rpartition(".")[2] != self._file.stem:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != self._file:
            return None
        spec.loader = Changed(name, spec.origin)
        spec.loader.text = self._text
        return spec


class _Chosen:
    """A plugin of pytest that keeps some tests, in the order given."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._order]
        items.sort(key=lambda item: self._order[item.nodeid])


def run_changed(file: Path, text: str, tests: list[str]) -> int:
    """Run tests with a module's text changed until one fails; return the status of pytest."""
    sys.meta_path.insert(0, Finder(file, text))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return pytest.main([*files, "-x", *OPTIONS], plugins=[_Chosen(tests)])


class _Campaign:
    """A plugin of pytest that calls a function of the session once all tests are collected."""

    def __init__(self, campaign: Callable[[pytest.Session], None]) -> None:
        self._campaign: Callable[[pytest.Session], None] | None = campaign

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        campaign, self._campaign = self._campaign, None
        if campaign:
            functions()
            campaign(session)
        return True if campaign else None


def collected(files: Sequence[str], campaign: Callable[[pytest.Session], None]) -> None:
    """Collect the tests of some files, and call a function with the session of pytest."""
    pytest.main([*files, "-x", "--capture=no", *OPTIONS], plugins=[_Campaign(campaign)])


def run_patched(session: pytest.Session, file: Path, text: str, tests: list[str]) -> int:
    """Do the same with tests that are collected and a module that may be loaded already.

    The text differs within functions alone (see :func:`within_functions`).
    """
    sys.meta_path.insert(0, Finder(file, text))
    patch(_pairs(file, text) or [])
    _Chosen(tests).pytest_collection_modifyitems(session.items)
    try:
        session.config.hook.pytest_runtestloop(session=session)
    except session.Failed:
        return 1
    return int(session.testsfailed > 0)


def within_functions(file: Path, text: str) -> bool:
    """Return whether a changed module can take effect without a new import."""
    return _pairs(file, text) is not None


def _pairs(file: Path, text: str) -> Pairs | None:
    old = compile(file.read_text(encoding="utf-8"), file, "exec")
    return pairs(old, compile(text, file, "exec"))


def forked(
    calls: Iterator[tuple[Callable[[], int], float]], jobs: int, log: Path
) -> Iterator[tuple[int, int]]:
    """Run each call in a separate process, ``jobs`` at once.

    A call may take its seconds of processor time, and ``FREE_SECONDS`` more.

    Yields the number of a call and its status as they end: a negative one for a call that was
    stopped. Output goes to a file for each call, in the folder ``log``.
    """
    running: dict[int, int] = {}
    numbered = enumerate(calls)
    while True:
        while len(running) < jobs and (following := next(numbered, None)):
            number, (call, seconds) = following
            sys.stdout.flush()
            if not (child := os.fork()):
                _call(call, seconds, log / f"{number}.log")
            running[child] = number
        if not running:
            return
        child, status = os.wait()
        if child in running:
            _end_group(child)
            yield running.pop(child), os.waitstatus_to_exitcode(status)


def _call(call: Callable[[], int], seconds: float, log: Path) -> None:
    """Run a call in this process, which then ends."""
    os.setsid()
    limit = FREE_SECONDS + round(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    signal.alarm(WAITING * limit)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = 70
    try:
        status = int(call())
    finally:
        sys.stdout.flush()
        os._exit(status)


def _end_group(child: int) -> None:
    """End the processes that an ended process has started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return


def write(path: Path, value: object) -> int:
    """Write a value as JSON, and return status 0."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return 0
