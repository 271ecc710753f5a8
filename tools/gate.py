"""Compare circuits, programs and integers with those recorded: `python -m tools.gate`.

Without options every entry of ``tools/gate.json`` is made again. The differences are printed as a
table, and the exit status is 1 if the rule refuses one.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from celosia.generators.campaign.workers import Workers
from tools.gate_entries import CIRCUIT, PAIR, Entry, entries, measure

RECORD = Path(__file__).with_name("gate.json")
"""The recorded entries, one a line."""
RULES = {"house": {}, "compiler": {"cycles": 1.005, "words": 1.02}}
"""Largest ratio of a figure to the recorded one; a figure that is not named must be equal."""

Entries = dict[str, Entry]


@dataclass(frozen=True)
class Difference:
    """A figure that is not the recorded one; None stands for no such figure."""

    entry: str
    figure: str
    recorded: int | str | None
    measured: int | str | None

    @property
    def ratio(self) -> float | None:
        """The measured figure by the recorded one."""
        if isinstance(self.recorded, int) and isinstance(self.measured, int) and self.recorded:
            return self.measured / self.recorded
        return None

    def refused(self, rule: str) -> bool:
        """Return whether a rule refuses the difference."""
        ratio = self.ratio
        return ratio is None or ratio > RULES[rule].get(self.figure, -math.inf)

    def row(self, rule: str) -> tuple[str, ...]:
        """Return the cells of the table."""
        change = "" if self.ratio is None else f"{100 * (self.ratio - 1):+.2f} %"
        verdict = "refused" if self.refused(rule) else "allowed"
        return self.entry, self.figure, str(self.recorded), str(self.measured), change, verdict


def differences(recorded: Mapping[str, Entry], measured: Mapping[str, Entry]) -> list[Difference]:
    """Return all figures in which entries differ, those of missing and of new entries as well."""
    changed = []
    for name in sorted(recorded.keys() | measured.keys()):
        old, new = recorded.get(name, {}), measured.get(name, {})
        changed += [
            Difference(name, figure, old.get(figure), new.get(figure))
            for figure in dict.fromkeys((*old, *new))
            if old.get(figure) != new.get(figure)
        ]
    return changed


def mean_cycles(recorded: Mapping[str, Entry], measured: Mapping[str, Entry]) -> float:
    """Return the geometric mean of the cycles' ratios over all pairs that have both."""
    ratios = [
        entry["cycles"] / recorded[name]["cycles"]
        for name, entry in measured.items()
        if entry.get("cycles") and recorded.get(name, {}).get("cycles")
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def passes(recorded: Mapping[str, Entry], measured: Mapping[str, Entry], rule: str) -> bool:
    """Return whether a rule allows all differences and the mean of the cycles."""
    if any(difference.refused(rule) for difference in differences(recorded, measured)):
        return False
    return mean_cycles(recorded, measured) <= 1 + 1e-9


def read_record() -> Entries:
    """Return the recorded entries by name; none if there is no record."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def write_record(recorded: Mapping[str, Entry]) -> None:
    """Write the record, sorted, an entry a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(recorded[name])}" for name in sorted(recorded)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _measured(names: list[str], jobs: int) -> Iterator[tuple[str, Entry]]:
    """Yield entries as they are done, and print the progress and the seconds so far."""
    began = time.monotonic()
    with Workers(jobs).executor() as (executor, _):
        futures = {executor.submit(measure, name): name for name in names}
        for count, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            seconds = time.monotonic() - began
            print(f"{count}/{len(names)} {seconds:.0f} s {name}", file=sys.stderr, flush=True)
            yield name, future.result()


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.gate", description=__doc__)
    parser.add_argument("--record", action="store_true", help="Write the record.")
    parser.add_argument("--missing", action="store_true", help="Entries without a record alone.")
    parser.add_argument("--rule", choices=RULES, default="house", help="Rule for differences.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="Entries by name or pattern.")
    parser.add_argument("--jobs", type=int, default=2, help="Processes.")
    return parser.parse_args()


def main() -> int:
    """Compare or record the entries, and return the exit status."""
    arguments, recorded, known = _arguments(), read_record(), list(entries())
    asked = arguments.only or ["*"]
    for pattern in asked:
        if not any(fnmatchcase(name, pattern) for name in (*known, *recorded)):
            print(f"No entry has the name {pattern}; names begin with {PAIR}/ or {CIRCUIT}/")
            return 2

    def chosen(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in asked)

    names = [
        name for name in known if chosen(name) and not (arguments.missing and name in recorded)
    ]
    measured: Entries = {}
    for name, entry in _measured(names, arguments.jobs):
        measured[name] = entry
        if arguments.record and "failed" not in entry:
            write_record(recorded := recorded | {name: entry})
    failed = {name: entry["failed"] for name, entry in measured.items() if "failed" in entry}
    if arguments.record:
        write_record({name: entry for name, entry in recorded.items() if name in known})
        if failed:
            _table([("entry", "failed"), *failed.items()])
        return int(bool(failed))
    before = {name: entry for name, entry in recorded.items() if chosen(name)}
    if arguments.missing:
        before = {}
    changed = differences(before, measured)
    if changed:
        header = ("entry", "figure", "recorded", "measured", "change", f"rule {arguments.rule}")
        _table([header, *(difference.row(arguments.rule) for difference in changed)])
    pairs = sum(name.startswith(PAIR) for name in measured)
    print(f"{pairs} pairs and {len(measured) - pairs} circuits; {len(changed)} figures differ")
    print(f"geometric mean of cycles: {mean_cycles(before, measured):.6f} of those recorded")
    return int(not passes(before, measured, arguments.rule))


if __name__ == "__main__":
    sys.exit(main())
