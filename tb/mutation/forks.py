"""Within a simulation, before its first cycle: a process of the same simulation for each mutant.

The Python of a bench takes longer to start than most benches run. So the simulation is started
once, and forks: each process chooses its mutation, runs the bench in a folder of its own, and
leaves cocotb's results there. The first process then runs the bench without a mutation. It is
imported by cocotb ahead of the bench; ``CELOSIA_MUTANTS`` names the folder, whose ``mutants.json``
tells the numbers and the seconds that each may run.
"""

import json
import os
import signal
import time
from pathlib import Path

from tb.mutation.netlist import write_number

_POLL = 0.02  # seconds


def _fork(folder: Path) -> None:
    job = json.loads((folder / "mutants.json").read_text(encoding="utf-8"))
    write_number(Path.cwd(), 0)
    for number in job["numbers"]:
        place = folder / str(number)
        place.mkdir()
        child = os.fork()
        if child:
            # Results are all that is wanted; a simulation may take its time to end.
            while not os.waitpid(child, os.WNOHANG)[0]:
                time.sleep(_POLL)
                if (place / "results.xml").exists():
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    break
            continue
        os.chdir(place)
        write_number(place, number)
        os.environ["COCOTB_RESULTS_FILE"] = str(place / "results.xml")
        os.environ["COCOTB_MAX_FAILURES"] = "1"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(job["seconds"])
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        return


if "CELOSIA_MUTANTS" in os.environ:
    _fork(Path(os.environ["CELOSIA_MUTANTS"]))
