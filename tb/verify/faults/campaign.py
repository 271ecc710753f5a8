"""Cases of fault injection in inferences of trained models, and the table of outcomes."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import load
from celosia.arch.registers import STATUS_ERROR, cause_of
from celosia.generators.campaign.case import Case
from celosia.tb.verify.faults.faulty_machine import End, Ran
from celosia.tb.verify.faults.problems import Problem, open_problem

UNITS = "units"
"""The field of a campaign whose faults are in some units only."""

KIND = "fault"
"""The kind of the campaign's cases."""

CASES = 250
"""Number of consecutive cases on the same inference."""

CLASSES = ("masked", "corrected", "detected", "harmless", "silent", "hung")
"""Outcomes of a fault: nothing differs; nothing differs, and the machine has corrected a word;
STATUS reports an error; outputs differ, with the same class or token; another class or token; no
end."""

WATCHDOG = 1024
"""Longest time without progress in a campaign's machines (cycles); short, since hangs cost time."""

_Z = 1.959964  # of a two-sided interval of 95 %


def fault_config(source: str, overrides: str) -> Config:
    """Return a configuration for fault injection: with a short watchdog, without trace ports.

    ``overrides`` are changed fields (``field=value``), separated by semicolons. Raises
    :class:`InputError` if the configuration is not admissible, or has no engines.
    """
    config = load(source, [text for text in overrides.split(";") if text])
    if config.micro is not None:
        raise InputError(f"Faults need engines, which {config.name}, microcoded, lacks")
    return config.replace(watchdog=min(config.control.watchdog or WATCHDOG, WATCHDOG), trace=False)


def units_of(text: str) -> list[str]:
    """Return the list of the unit names in ``text``, in which semicolons separate the names."""
    return text.split(";") if text else []


@functools.lru_cache(maxsize=1)
def _problem(model: str, config: str, overrides: str) -> Problem:
    return open_problem(model, fault_config(config, overrides))


def run(case: Case) -> dict[str, Any]:
    """Flip a random bit of the circuit during an inference; return a dictionary about the fault.

    Some keys of the result:

    - ``site``: the flipped bit, as ``path[word][bit]`` of a register or memory.
    - ``class``: the effect of the fault, one of ``CLASSES``.
    - ``cause``: the error cause in STATUS after the run, or ``NONE``.
    """
    problem = _problem(case["model"], case["config"], case["set"])
    problem.infer(case.index // CASES)
    problem.machine.limit_to(units_of(dict(case.fields).get(UNITS, "")))
    flip = problem.machine.draw(case.rng())
    ran = problem.machine.inject(flip)
    return {
        "unit": flip.site.unit,
        "site": f"{flip.site.path}[{flip.word}][{flip.bit}]",
        "cycle": flip.cycle,
        "class": classify(problem, ran),
        "cause": cause_of(ran.status).name if ran.end == End.ENDED else "NONE",
        "simulated": ran.cycles,
    }


def classify(problem: Problem, ran: Ran) -> str:
    """Return the outcome of the fault in the last run of ``problem``: a name in ``CLASSES``."""
    if ran.end == End.GOES_ON:
        return "hung"
    if ran.end == End.ENDED:
        if ran.status & STATUS_ERROR:
            return "detected"
        outputs = problem.outputs()
        if outputs != problem.expected:
            return "harmless" if problem.chosen(outputs) == problem.choice else "silent"
    return "corrected" if ran.corrected else "masked"


def interval(count: int, total: int) -> tuple[float, float]:
    """Return the lower and the upper bound of Wilson's 95 % confidence interval of a proportion.

    The measured proportion is ``count / total``. If ``total`` is 0, the bounds are 0 and 1.
    """
    if not total:
        return 0.0, 1.0
    share, square = count / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half = _Z * spread / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a list of dictionaries: the numbers of injected faults in each unit, and in all units.

    ``results`` are the results of :func:`run`. The keys of a dictionary:

    - ``injected``: number of all faults.
    - each name in ``CLASSES``: number of faults with this effect.
    - ``silent_low``, ``silent_high``: bounds (0 to 1) of the 95 % confidence interval of the share
      of silent faults.
    """
    units: dict[str, Counter[str]] = {}
    for result in results:
        for unit in (result["unit"], "all"):
            units.setdefault(unit, Counter())[result["class"]] += 1
    rows = []
    for unit in sorted(units, key=lambda name: (name == "all", name)):
        counts = units[unit]
        low, high = interval(counts["silent"], counts.total())
        row = {"unit": unit, "injected": counts.total()}
        row |= {name: counts[name] for name in CLASSES}
        rows.append(row | {"silent_low": round(low, 6), "silent_high": round(high, 6)})
    return rows
