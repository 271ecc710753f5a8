"""Campaigns: every case has one outcome, from any worker, even if workers die."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from celosia.arch.errors import InputError, RunError
from celosia.generators.campaign.case import Campaign, Case, sources
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers
from celosia.tb.verify.fuzz import models

JOBS = '''
"""Jobs that other processes import."""

import os
import signal
import time
from pathlib import Path


def draw(case):
    if case.index == 7:
        raise ArithmeticError("no seven")
    wrong = "thirteen" if case.index == 13 else ""
    return {"value": int(case.rng().integers(1 << 40)), "mismatch": wrong}


def die(case):
    """Case 5 kills its process, case 3 only the first time, and before case 5 does."""
    mark = Path(case["folder"]) / f"died_{case.index}"
    while case.index == 5 and not mark.with_name("died_3").exists():
        time.sleep(0.01)
    if case.index == 5 or (case.index == 3 and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": case.index}


def wait(case):
    (Path(case["folder"]) / f"{case.index}.{os.getpid()}").touch()
    time.sleep(float(case["seconds"]))
    return {"value": case.index**2}
'''


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a module of jobs, which new processes find too."""
    (tmp_path / "campaign_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.delitem(sys.modules, "campaign_jobs", raising=False)
    import campaign_jobs

    return campaign_jobs


def run_all(job, count, *, path=None, workers=None, told=None, **fields):
    campaign = Campaign("test", 3, fields, "now")
    with Store(path) as store:
        return list(
            run_campaign(
                campaign,
                job,
                count,
                store=store,
                workers=workers or Workers(2),
                tell=lambda done, total: told.append((done, total)) if told is not None else None,
                chunk=4,
            )
        )


def table(outcomes):
    return [(outcome.case.index, outcome.result, outcome.message) for outcome in outcomes]


def test_a_case_has_a_name_and_numbers_of_its_own() -> None:
    case = Campaign("model", 3, {"b": "x,y=1:2", "a": "%"}, "now").case(17)
    assert str(case) == "model:3:17:a=%25,b=x%2Cy%3D1%3A2"
    assert Case.parse(str(case)) == case
    assert case["b"] == "x,y=1:2"
    first = [int(drawn.rng().integers(1 << 60)) for drawn in (case, case, Case("model", 3, 17))]
    assert first[0] == first[1] != first[2]
    with pytest.raises(InputError, match="Case model:3:17 lacks the field b"):
        Case("model", 3, 17)["b"]


@pytest.mark.parametrize("text", ["", "model", "model:1", "model:1:x", "model:-1:2", "a:1:2:b"])
def test_no_case(text, celosia) -> None:
    code, out, err = celosia("verify", "replay", text)
    form = "KIND:SEED:INDEX or KIND:SEED:INDEX:FIELD=VALUE,..."
    assert (code, out) == (2, "")
    assert err == f"celosia: A case is {form}, not {text!r}\n"


def test_unknown_kinds_are_refused(celosia) -> None:
    code, _, err = celosia("verify", "replay", "nothing:1:2")
    assert code == 2
    assert err.startswith("celosia: Unknown kind of case 'nothing'; known are ")


def test_a_campaign_goes_on_where_it_stopped(jobs, tmp_path) -> None:
    path, told = tmp_path / "results" / "kept.sqlite", []
    first = run_all(jobs.draw, 10, path=path)
    assert len(first) == 10
    whole = run_all(jobs.draw, 30, path=path, told=told)
    assert told[0] == (10, 30)
    assert told[-1] == (30, 30)
    assert table(whole) == table(run_all(jobs.draw, 30, workers=Workers(1)))
    assert [outcome.case.index for outcome in whole if outcome.failed] == [7, 13]
    assert whole[7].message == "ArithmeticError: no seven"
    assert whole[13].message == "thirteen"
    # Results of other sources are not those of this campaign.
    with Store(path) as store:
        assert store.done(Campaign("test", 3, {}, "before")) == set()
    assert re.fullmatch(r"[0-9a-f]{16}", sources())


def test_a_case_that_kills_its_process_is_an_outcome(jobs, tmp_path) -> None:
    outcomes = run_all(jobs.die, 12, folder=str(tmp_path))
    assert [outcome.case.index for outcome in outcomes] == list(range(12))
    assert [outcome.case.index for outcome in outcomes if outcome.failed] == [5]
    assert outcomes[5].message.startswith("BrokenProcessPool: ")
    assert outcomes[3].result == {"value": 3}


SCRIPT = """
import sys
from pathlib import Path

import campaign_jobs
from celosia.generators.campaign.case import Campaign
from celosia.generators.campaign.run import run_campaign
from celosia.generators.campaign.store import Store
from celosia.generators.campaign.workers import Workers

if __name__ == "__main__":
    path, folder = sys.argv[1:]
    campaign = Campaign("test", 3, {"folder": folder, "seconds": "0.2"}, "now")
    with Store(Path(path)) as store:
        arguments = {"store": store, "workers": Workers(2), "tell": lambda done, total: None}
        list(run_campaign(campaign, campaign_jobs.wait, 400, **arguments))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_a_kill_leaves_is_whole(number, jobs, tmp_path) -> None:
    folder, path = tmp_path / "ran", tmp_path / "kept.sqlite"
    folder.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", path, folder]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(list(folder.iterdir())) < 8:
        assert process.poll() is None
        time.sleep(0.05)
    for _ in range(6):  # Python discards what is raised in a finalizer
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    assert process.poll() is not None
    # No worker goes on without its parent.
    deadline = time.monotonic() + 20
    owners = {int(mark.suffix[1:]) for mark in folder.iterdir()}
    while any(map(lives, owners)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    there = len(list(folder.iterdir()))
    fields = {"folder": str(folder), "seconds": "0.2"}
    with Store(path) as store:
        done = store.done(Campaign("test", 3, fields, "now"))
    # At most what ran, and what was done and not yet written.
    assert 0 < len(done) <= there <= len(done) + 4


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0]


def test_files_that_cannot_keep_results(tmp_path) -> None:
    path = tmp_path / "text.sqlite"
    path.write_text("no database, but words, and more of them than a header has bytes " * 20)
    with pytest.raises(InputError, match=f"Cannot keep results in {path}: file is not a database"):
        Store(path)
    with pytest.raises(InputError, match="Cannot keep results in /proc/kept: "):
        Store(Path("/proc/kept"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jobs": 0}, "--jobs must be from 1 to 256, not 0"),
        ({"cluster": "somewhere"}, "--jobs must be tcp://HOST:PORT, not 'somewhere'"),
        ({"cluster": "tcp://here:x"}, "--jobs must be tcp://HOST:PORT, not 'tcp://here:x'"),
    ],
)
def test_workers_that_cannot_be(settings, message) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Workers(**settings)


class Cluster:
    """A scheduler and two workers, each a separate process on the loopback."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.processes = []
        base = (sys.executable, "-m", "distributed.cli.dask_scheduler")
        place = folder / "scheduler.json"
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self._start(*base, *options, "--scheduler-file", str(place))
        while not place.exists() or not place.read_text():
            time.sleep(0.1)
        self.address = json.loads(place.read_text())["address"]
        self.workers = [self.worker() for _ in range(2)]

    def _start(self, *command: str) -> subprocess.Popen:
        with (self._folder / f"dask_{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def worker(self) -> subprocess.Popen:
        base = (sys.executable, "-m", "distributed.cli.dask_worker", self.address)
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0")
        return self._start(*base, *options, "--local-directory", str(self._folder))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(jobs, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    made = Cluster(tmp_path)
    with distributed.Client(made.address, set_as_default=False) as client:
        client.wait_for_workers(2, 60)
    yield made
    made.close()


def test_a_cluster_gives_the_table_of_processes_and_loses_nothing(cluster, jobs, tmp_path) -> None:
    workers = Workers(cluster=cluster.address)
    assert table(run_all(jobs.draw, 30, workers=workers)) == table(run_all(jobs.draw, 30))
    folder = tmp_path / "ran"
    folder.mkdir()
    fields = {"folder": str(folder), "seconds": "0.1"}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_all, jobs.wait, 40, workers=workers, **fields)
        while len(list(folder.iterdir())) < 10:
            time.sleep(0.02)
        cluster.workers[0].kill()
        outcomes = running.result(60)
    assert table(outcomes) == [(n, {"value": n * n}, "") for n in range(40)]
    owners = [mark.name.split(".") for mark in folder.iterdir()]
    # Some case was begun by the one that died, and again by the other.
    assert len(owners) > len({number for number, _ in owners}) == 40
    assert len({process for _, process in owners}) == 2


def test_a_scheduler_without_workers(cluster, monkeypatch) -> None:
    for worker in cluster.workers:
        worker.kill()
    time.sleep(1)
    monkeypatch.setattr("celosia.generators.campaign.workers._PATIENCE", 1)
    with (
        pytest.raises(RunError, match=f"^The scheduler at {cluster.address} has no workers$"),
        Workers(cluster=cluster.address).executor(),
    ):
        pass


def test_schedulers_that_are_not_there(monkeypatch) -> None:
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.setattr("celosia.generators.campaign.workers._PATIENCE", 1)
    with (
        pytest.raises(RunError, match=r"^No scheduler answers at tcp://127\.0\.0\.1:9$"),
        Workers(cluster="tcp://127.0.0.1:9").executor(),
    ):
        pass


def test_random_models_on_random_machines(celosia) -> None:
    outcomes = run_all(models.run, 4)
    assert [(str(outcome.case), outcome.message) for outcome in outcomes if outcome.failed] == []
    assert sum(outcome.result["words"] for outcome in outcomes) > 250
    code, out, _ = celosia("verify", "replay", "model:1:2", "--json")
    assert code == 0
    assert json.loads(out) == {"case": "model:1:2", **models.run(Case("model", 1, 2))}


def test_what_a_replayed_case_prints_is_no_result(celosia, monkeypatch) -> None:
    def run(case: Case) -> dict[str, str]:
        print("celosia.tb.benches.common verilator seed 1")
        return {"mismatch": ""}

    monkeypatch.setattr("celosia.tb.verify.fuzz.models.run", run)
    code, out, err = celosia("verify", "replay", "model:1:2", "--json")
    assert (code, json.loads(out)) == (0, {"case": "model:1:2", "mismatch": ""})
    assert "seed 1" in err


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.org", "[::]"])
def test_schedulers_of_other_machines_need_encryption(host) -> None:
    with pytest.raises(InputError, match="is another machine without encryption; anyone"):
        Workers(cluster=f"tcp://{host}:8786")
    assert Workers(cluster=f"tls://{host}:8786").cluster
    for here in ("127.0.0.1", "localhost", "[::1]"):
        assert Workers(cluster=f"tcp://{here}:8786").cluster


def test_encryption_needs_certificates() -> None:
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    with (
        pytest.raises(InputError, match="needs certificates in Dask's settings: set DASK_DISTR"),
        Workers(cluster="tls://127.0.0.1:9").executor(),
    ):
        pass


def test_a_scheduler_that_is_killed_ends_in_a_sentence(cluster, jobs, tmp_path) -> None:
    folder = tmp_path / "ran"
    folder.mkdir()
    fields = {"folder": str(folder), "seconds": "0.1"}
    with ThreadPoolExecutor(1) as pool:
        workers = Workers(cluster=cluster.address)
        running = pool.submit(run_all, jobs.wait, 400, workers=workers, **fields)
        while len(list(folder.iterdir())) < 4:
            time.sleep(0.02)
        cluster.processes[0].kill()
        with pytest.raises(RunError, match=r"scheduler .* is gone; start it and give the same"):
            running.result(60)
