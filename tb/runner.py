"""One cocotb build or run, as a process of its own: ``python -m tb.runner JOB.json``.

The job's ``action`` is ``build`` or ``test``; ``arguments`` go to the cocotb runner.
"""

import json
import sys
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner


def main(path: Path) -> int:
    """Do a job and return the process's exit code: 0 where it went well."""
    job = json.loads(path.read_text(encoding="utf-8"))
    runner = get_runner(job["simulator"])
    if job["action"] == "build":
        runner.build(**job["arguments"])
        return 0
    count, failed = get_results(runner.test(**job["arguments"]))
    if not count:
        print(f"{job['arguments']['test_module']} has no test of that name")
    return 0 if count and not failed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
