"""Workers that run cases: processes or threads of this machine, or a Dask cluster."""

import contextlib
import importlib
import ipaddress
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from types import FrameType
from urllib.parse import urlsplit

from celosia.arch.errors import InputError, RunError
from celosia.arch.support.process import end_processes

_LONGEST = 256  # processes
_PATIENCE = 10  # seconds, until a scheduler and a worker answer
_ROOM = 64  # threads of workers at least that a scheduler has work for


@dataclass(frozen=True)
class Workers:
    """Workers that run cases: processes or threads of this machine, or a Dask cluster.

    Raises :class:`InputError` if the number of jobs is out of range or the cluster's address is
    malformed. Also raises :class:`InputError` if the address names another machine without
    encryption.
    """

    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Number of processes or threads; without effect for a cluster."""
    cluster: str | None = None
    """Address of a Dask scheduler: ``tcp://127.0.0.1:PORT`` on this machine, else
    ``tls://HOST:PORT`` with certificates from Dask's settings. None: workers of this machine."""
    threads: bool = False
    """True for threads, which suffice for jobs that wait for other programs."""

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= _LONGEST:
            raise InputError(f"--jobs must be from 1 to {_LONGEST}, not {self.jobs}")
        if self.cluster is not None and not _is_address(self.cluster):
            raise InputError(f"--jobs must be tcp://HOST:PORT, not {self.cluster!r}")
        if self.cluster is not None and not _is_safe(self.cluster):
            raise InputError(
                f"--jobs {self.cluster} is another machine without encryption; anyone "
                "with access to the scheduler can run code on its workers and here. Use "
                "tls://HOST:PORT, or "
                "a tunnel of ssh to tcp://127.0.0.1:PORT"
            )

    @contextlib.contextmanager
    def executor(self) -> Iterator[tuple[Executor, int]]:
        """Open an executor; yield the executor and the number of cases to run at once.

        The ``with`` block's end stops processes and threads, but not a Dask cluster. Raises
        :class:`InputError` if Dask is not installed, and :class:`RunError` if no scheduler or
        worker answers.
        """
        if self.cluster is not None:
            with _dask(self.cluster) as opened:
                yield opened
            return
        if self.threads:
            with ThreadPoolExecutor(self.jobs) as pool:
                yield pool, self.jobs
            return
        before = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        # Cases use all cores; multithreaded matrix products in them would compete.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        executor = ProcessPoolExecutor(
            self.jobs, context, initializer=_begin, initargs=(context.Barrier(self.jobs),)
        )
        try:
            wait([executor.submit(os.getpid) for _ in range(self.jobs)])
            yield executor, self.jobs
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        finally:
            executor.shutdown(cancel_futures=True)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("tcp", "tls") and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False


def _is_safe(address: str) -> bool:
    """Return whether an address is encrypted, or of this machine."""
    parts = urlsplit(address)
    name = parts.hostname or ""
    try:
        here = ipaddress.ip_address(name).is_loopback
    except ValueError:
        here = name == "localhost"
    return parts.scheme == "tls" or here


def _begin(started: Barrier) -> None:
    """Make a worker and its subprocesses end with its parent; redirect its output to stderr.

    It waits for the other workers to start, because CPython's executor hangs if a process dies
    while another is being started.
    """
    sys.stdout = sys.stderr
    # As in the main process: units are also created just to ask for their latency.
    warnings.filterwarnings("ignore", message=".* created but never used")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_follow, daemon=True).start()
    started.wait()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _end(signal.SIGTERM, None)


def _end(_number: int, _frame: FrameType | None) -> None:
    end_processes()
    sys.stderr.flush()
    os._exit(128 + signal.SIGTERM)


@contextlib.contextmanager
def _dask(address: str) -> Iterator[tuple[Executor, int]]:
    try:
        distributed = importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        raise InputError(
            "--jobs needs the package distributed; install celosia[cluster]"
        ) from error
    security = distributed.Security()
    needed = (security.tls_ca_file, security.tls_client_cert)
    if urlsplit(address).scheme == "tls" and None in needed:
        raise InputError(
            f"--jobs {address} needs certificates in Dask's settings: set "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE and DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT"
        )
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except OSError as error:
        raise RunError(f"No scheduler answers at {address}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise RunError(f"The scheduler at {address} has no workers") from error
        # More workers may join later; keep work ready for them.
        yield client.get_executor(), max(_ROOM, sum(client.nthreads().values()))
