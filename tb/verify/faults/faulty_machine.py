"""A simulated machine that repeats a run with one bit flipped."""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib.wiring import Component

from celosia.arch.errors import InputError
from celosia.sim.report import Report
from celosia.tb.machine.fast_build import build_verilator
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.verify.faults.sites import MEMORIES, Site, unit_names

REGISTERS = "all registers"
"""Name of the registers of all units, to draw from."""


class End(IntEnum):
    """Reasons for which the simulation of a run with a fault stops."""

    AS_BEFORE = 0
    """The state is one from which the run continues as without the fault."""
    ENDED = 1
    """STATUS is not busy."""
    GOES_ON = 2
    """STATUS is still busy after more than twice the time that the run takes."""


@dataclass(frozen=True)
class Flip:
    """A fault: one bit of a register or memory (``site``) flips after ``cycle`` cycles of the run.

    ``word`` is the number of the word in the memory, 0 for a register. ``bit`` is the number of the
    bit in the word.
    """

    site: Site
    word: int
    bit: int
    cycle: int


@dataclass(frozen=True)
class Ran:
    """The outcome of a run with a fault.

    - ``end``: the reason for which the simulation stopped. AS_BEFORE stands for a state from which
      the run would continue as without the fault.
    - ``status``: final value of the register STATUS, 0 for AS_BEFORE.
    - ``corrected``: number of words with an error that the machine has corrected.
    """

    end: End
    cycles: int
    """Number of cycles that were simulated."""
    status: int
    corrected: int


def check_names(units: Collection[str], component: Component) -> None:
    """Raise :class:`InputError` if ``units`` contains a name that is no unit of a component.

    This check is fast: it elaborates only the top of the component.
    """
    names = (REGISTERS, *unit_names(component))
    for unit in units:
        if unit.removesuffix(MEMORIES) not in names:
            raise InputError(
                f"Unit must be one of {', '.join(names)}, or a unit's memories as in "
                f"'scratchpad{MEMORIES}', not {unit!r}"
            )


def check_units(units: Collection[str], sites: Iterable[Site]) -> None:
    """Raise :class:`InputError` if a unit in ``units`` contains none of the fault sites ``sites``.

    A fault site is a register or memory in which a fault can be injected. The name ``REGISTERS`` in
    ``units`` stands for the registers of all units, and is always accepted.
    """
    known = {site.unit for site in sites}
    for unit in units:
        if unit not in known and unit != REGISTERS:
            names = ", ".join((REGISTERS, *sorted(known)))
            raise InputError(f"Unit must be one of {names}, not {unit!r}")


class FaultMachine(VerilatorMachine):
    """A simulated machine that can repeat a run with one inverted bit (a fault).

    A burst to addresses that external memory does not have ends the run with the cause MEMORY.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.armed = False
        """True if the next call of :meth:`start` keeps snapshots of its run for :meth:`inject`."""
        self.cycles = 0
        """Cycles of the run without a fault."""
        listed = json.loads((self._folder / "sites.json").read_text(encoding="utf-8"))
        self.sites = [Site(**site) for site in listed]
        self._numbers = {site: number for number, site in enumerate(self.sites)}
        self.limit_to(())

    def _command(self, memory_bytes: int, timing: MemoryTiming) -> list[str | Path]:
        self._folder = build_verilator(self.config, faults=True)
        return [
            self._folder / "harness",
            str(memory_bytes),
            *map(str, timing.fields().values()),
        ]

    def start(self, pc: int = 0) -> Report:
        """Run the loaded program from the word address ``pc`` to HALT; return the run's report.

        If ``armed`` is true, snapshots (copies of the simulation's state) of the run are kept for
        :meth:`inject`, and ``armed`` is set to false.
        """
        if not self.armed:
            return super().start(pc)
        self.armed = False
        self.wait(self._limit)
        self.begin(pc)
        self.cycles = int(self._ask(f"G {self._limit:x}\n")[0])
        return self.report()

    def count_toggles(self) -> Counter[str]:
        """Run the program from word 0, and count the changes of register bits in each unit.

        The result is a dictionary from the unit's name to the number of changes in the whole run.
        The attribute ``cycles`` is set to the number of cycles of the run.
        """
        self.wait(self._limit)
        self.begin()
        (line,) = self._ask(f"T {self._limit:x}\n")
        *counts, self.cycles = map(int, line.split())
        toggles: Counter[str] = Counter()
        for site, count in zip(self.sites, counts, strict=True):
            toggles[site.unit] += count if site.depth == 1 else 0
        return toggles

    def limit_to(self, units: Collection[str]) -> None:
        """Let :meth:`draw` choose only from the registers and memories of ``units``.

        If ``units`` contains ``REGISTERS``, the registers of all units are allowed. If ``units`` is
        empty, all registers and memories are allowed. Raises :class:`InputError` if the circuit
        lacks a unit.
        """
        check_units(units, self.sites)
        self._drawn = [
            site
            for site in self.sites
            if not units or site.unit in units or (REGISTERS in units and site.depth == 1)
        ]
        self._ends = np.cumsum([site.bits for site in self._drawn])

    @property
    def bits(self) -> int:
        """Number of bits of the circuit from which :meth:`draw` chooses."""
        return int(self._ends[-1])

    def draw(self, rng: np.random.Generator) -> Flip:
        """Return a random fault: each allowed bit and each cycle of the run are equally likely.

        The allowed bits are those of the units given to :meth:`limit_to`.
        """
        number = int(rng.integers(self.bits))
        index = int(np.searchsorted(self._ends, number, side="right"))
        site = self._drawn[index]
        word, bit = divmod(number - int(self._ends[index] - site.bits), site.width)
        return Flip(site, word, bit, int(rng.integers(self.cycles)))

    def inject(self, flip: Flip, *, whole: bool = False) -> Ran:
        """Repeat the last recorded run with the fault ``flip``; return the outcome.

        A run is recorded if ``armed`` was true at its start. If ``whole`` is true, every cycle is
        simulated, and memory and registers have the results. Otherwise the simulation begins
        shortly before the fault, and stops when the fault can have no effect.
        """
        # Nothing is simulated if the word is overwritten before it is read. A run is as before when
        # all registers, and all words still to be read, are equal.
        numbers = (self._numbers[flip.site], flip.word, flip.bit, flip.cycle, int(whole))
        (line,) = self._ask(f"F {' '.join(f'{number:x}' for number in numbers)}\n")
        end, cycles, status, corrected = line.split()
        return Ran(End(int(end)), int(cycles), int(status, 16), int(corrected, 16))
