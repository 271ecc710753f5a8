"""The files of the units' timing diagrams: `python -m tools.timing_files [NAME ...]`."""

import sys

from tools.timing import simulate, text
from tools.timing_directive import TIMING
from tools.timing_scenarios import SCENARIOS

if __name__ == "__main__":
    TIMING.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENARIOS:
        found = text(simulate(SCENARIOS[name]()))
        (TIMING / f"{name}.json").write_text(found, encoding="utf-8")
