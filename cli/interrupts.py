"""Handles SIGINT and SIGTERM: the command cleans up and ends; a second signal ends it at once."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_WORDS = {signal.SIGINT: b"celosia: interrupted\n", signal.SIGTERM: b"celosia: terminated\n"}
_GRACE = 5.0  # seconds to clean up in
_SAME = 0.3  # seconds: `timeout` and shells signal a process and its group, which is one request
_CHECK = 0.05  # seconds
_CLOSE = b"\0"  # on the pipe, in place of a signal's number
_AGAIN = signal.SIGALRM
_SHOW_CURSOR = b"\x1b[?25h"


class _Watch:
    """Raises KeyboardInterrupt in the main thread, and ends the process if that has no effect.

    Python discards an exception that is raised inside a finalizer or the callback of a weak
    reference, and libraries may discard others. So a thread reads the signals from a pipe: it
    prints a word, ends the programs that were started, repeats an exception that Python reports as
    discarded, and ends the process after a grace period.
    """

    def __init__(self, end: Callable[[], None], held: Callable[[], bool]):
        self.number = 0
        self._end, self._held, self._raised, self._lost = end, held, False, False
        self._main, self._ended = threading.get_ident(), threading.Event()
        self._hook = sys.unraisablehook
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        threading.Thread(target=self._watch, daemon=True).start()
        self._before = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        sys.unraisablehook = self._discarded
        signal.signal(_AGAIN, self._repeat)
        for number in _WORDS:
            signal.signal(number, self._interrupt)

    def close(self) -> None:
        """End the thread; from now on a signal ends the process at once."""
        if self.number:
            self._ended.wait(_GRACE)
        for number in _WORDS:
            signal.signal(number, _leave)
        signal.signal(_AGAIN, signal.SIG_DFL)
        sys.unraisablehook = self._hook
        signal.set_wakeup_fd(self._before)
        os.write(self._writes, _CLOSE)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self._raised and not self._held():
            self._raised = True
            raise KeyboardInterrupt

    def _repeat(self, _number: int, _frame: FrameType | None) -> None:
        if self._held():
            self._lost = True
        else:
            raise KeyboardInterrupt

    def _discarded(self, unraisable: Any) -> None:
        if self.number and issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._lost = True
        else:
            self._hook(unraisable)

    def _watch(self) -> None:
        first = deadline = None
        while True:
            ready, _, _ = select.select([self._reads], [], [], None if first is None else _CHECK)
            now = time.monotonic()
            for number in os.read(self._reads, select.PIPE_BUF) if ready else b"":
                if number == _CLOSE[0]:
                    os.close(self._reads)
                    os.close(self._writes)
                    return
                if number not in _WORDS:
                    continue
                if first is None:
                    first, deadline = now, now + _GRACE
                    self.number = self.number or number
                    _write(_WORDS[signal.Signals(number)])
                    self._end()
                    self._ended.set()
                else:
                    deadline = first + _SAME
            if deadline is not None and now >= deadline:
                _leave(self.number, None)
            if self._lost:
                self._lost = False
                signal.pthread_kill(self._main, _AGAIN)


def _leave(number: int, _frame: FrameType | None) -> None:
    """End the process at once."""
    if os.isatty(sys.__stderr__.fileno() if sys.__stderr__ else 2):
        _write(_SHOW_CURSOR)
    os._exit(128 + number)


def _write(words: bytes) -> None:
    # Not through sys.stderr, which the main thread may be writing to.
    with contextlib.suppress(OSError):
        os.write(2, words)


_watch: _Watch | None = None


def interrupted() -> bool:
    """Return whether the command has received SIGINT or SIGTERM.

    An exception after the signal may be an effect of the signal. Therefore the command does not
    print it as a defect of Celosia.
    """
    return _watch is not None and bool(_watch.number)


@contextlib.contextmanager
def handle_signals(end: Callable[[], None], held: Callable[[], bool]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM in a ``with`` block of the main thread.

    - At a signal, another thread calls ``end``, which kills subprocesses.
    - The block gets KeyboardInterrupt, unless ``held()`` is true at the signal. Then the block must
      itself raise KeyboardInterrupt later.
    - At the end of the block, at the latest five seconds after the signal, the process exits with
      code 130 (SIGINT) or 143 (SIGTERM).
    - In a block inside another such block, only the functions of the outer block are called.
    """
    # After the five seconds the process ends without cleanup; after a second signal in 0.3 seconds.
    global _watch
    if _watch is not None:
        yield
        return
    _watch = watch = _Watch(end, held)
    try:
        yield
    finally:
        watch.close()
        _watch = None
        if watch.number:
            sys.exit(128 + watch.number)
