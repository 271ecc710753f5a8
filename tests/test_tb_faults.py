"""Faults: the bits of a circuit, runs that are cut short, a campaign's table."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from celosia.generators.campaign.case import Case
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.control.recovery import Recovery
from celosia.hdl.memory.ram import Ram
from celosia.tb.verify.faults.campaign import CLASSES, classify, fault_config, interval, run, table
from celosia.tb.verify.faults.faulty_machine import REGISTERS, Flip
from celosia.tb.verify.faults.problems import Problem, open_problem
from celosia.tb.verify.faults.sites import Site, find_sites, noting

DIGITS = ("verify", "faults", "digits", "--config", "tiny")


@pytest.fixture(scope="module")
def problem() -> Problem:
    opened = open_problem("digits", fault_config("tiny", ""))
    opened.infer(3)
    return opened


def test_sites_are_registers_and_memories_that_are_written() -> None:
    recovery = find_sites(to_verilog(Recovery(64), "top"))
    assert sorted(site.bits for site in recovery) == [1, 3, 6]  # clear, state, scrub_addr
    ram = find_sites(to_verilog(Ram(12, 20), "top"))
    assert [(site.width, site.depth, site.ports) for site in ram] == [
        (12, 1, False),
        (12, 20, True),
    ]
    assert Site("scratchpad.bank_0.lane_1.memory", 8, 64, ports=True).unit == "scratchpad memories"
    assert Site("dispatch.level", 3, 1, ports=False).unit == "dispatch"


def test_ports_of_memories_are_kept() -> None:
    assert noting(to_verilog(Ram(12, 20), "top")).count("public_flat_rd") == 4
    assert "public" not in noting(to_verilog(Recovery(64), "top")).partition("output reg")[0]


def test_a_fault_ends_in_short_as_it_does_in_whole(problem: Problem) -> None:
    rng, machine = np.random.default_rng(7), problem.machine
    classes = set()
    for registers in (True, False):
        tried = 0
        while tried < 6:
            flip = machine.draw(rng)
            if (flip.site.depth == 1) != registers:
                continue
            ran = machine.inject(flip)
            short = classify(problem, ran)
            if not ran.cycles and rng.random() < 0.9:
                continue  # most words are not read again
            assert classify(problem, machine.inject(flip, whole=True)) == short, flip
            classes.add(short)
            tried += 1
    assert {"masked", "harmless"} <= classes


def protected_problem(problem: Problem, levels: dict[str, str]) -> Problem:
    """Return the problem on a machine with protected units, which takes the same cycles."""
    text = ",".join(f"{unit}={level}" for unit, level in levels.items())
    protected = open_problem("digits", fault_config("tiny", f"protect={text}"))
    protected.infer(3)
    assert protected.cycles == problem.cycles
    assert protected.expected == problem.expected
    return protected


LEVELS = {
    "scratchpad": "correct",
    "accumulators": "detect",
    "program": "correct",
    "parameters": "detect",
    "queues": "correct",
    "control": "correct",
}
WORDS = {
    "scratchpad": "scratchpad.bank_1.lane_2.ram.memory",
    "accumulators": "accumulators.bank_0.rows.ram.memory",
    "program": "sequencer.program_.ram.memory",
    "parameters": "vector.params.line_0.ram.memory",
    "queues": "load.ahead.fifo._0_",
    "control": "sequencer.registers.ram.memory",
    "commands": "dispatch.queue_matrix.command",
    "sums": "norm.addnorm.queue.beats.fifo.storage",
    "scores": "softmax.maximum.queue.beats.fifo.storage",
}
"""A memory of each protected unit and of its parts; the last three have parity at any level."""


def check_words(protected: Problem, levels: dict[str, str], words: dict[str, str], seed: int):
    """Assert that flips in memories are corrected or told, by the level of each one's unit."""
    machine, rng = protected.machine, np.random.default_rng(seed)
    for unit, path in words.items():
        (site,) = [site for site in machine.sites if site.path.endswith(path)]
        told = "corrected" if levels.get(unit) == "correct" else "detected"
        count = 0
        while count < 1:  # most words are not read again
            place = (int(rng.integers(site.depth)), int(rng.integers(site.width)))
            ran = machine.inject(Flip(site, *place, int(rng.integers(machine.cycles))))
            outcome = classify(protected, ran)
            assert outcome in (told, "masked"), (unit, ran)
            count += outcome == told


@pytest.mark.slow
def test_protected_memories_correct_or_tell_and_cost_no_cycle(problem: Problem) -> None:
    check_words(protected_problem(problem, LEVELS), LEVELS, WORDS, seed=9)


@pytest.mark.long  # three copies of the registers of single units are in test_hdl_copies.py
def test_registers_with_two_copies_more_outvote_a_flip(problem: Problem) -> None:
    protected = protected_problem(problem, LEVELS)
    machine, rng = protected.machine, np.random.default_rng(9)
    twice = [site for site in machine.sites if "_copy_" in site.path]
    assert {site.unit for site in twice} >= {"dispatch", "load", "matrix", "sequencer", "vector"}
    assert any(site.path.startswith("vector.epilogue.bounds.") for site in twice)
    for site in rng.permutation(len(twice))[:60]:
        bit, cycle = (int(rng.integers(end)) for end in (twice[site].width, machine.cycles))
        ran = machine.inject(Flip(twice[site], 0, bit, cycle))
        assert classify(protected, ran) == "masked", (twice[site], ran)


@pytest.mark.long  # copies of the registers of single units are in test_hdl_copies.py
def test_registers_with_a_copy_tell_of_a_flip(problem: Problem) -> None:
    protected = protected_problem(problem, {"control": "detect", "program": "detect"})
    machine, rng = protected.machine, np.random.default_rng(10)
    twice = [site for site in machine.sites if "_copy_" in site.path]
    outcomes = Counter()
    for site in rng.permutation(len(twice))[:60]:
        bit, cycle = (int(rng.integers(end)) for end in (twice[site].width, machine.cycles - 50))
        ran = machine.inject(Flip(twice[site], 0, bit, cycle))
        outcomes[classify(protected, ran)] += 1
    assert outcomes["detected"] > 40
    assert set(outcomes) <= {"detected", "masked"}  # what is written at once, or ends with the run
    # A word may wait behind the program's memory for long, and its register has no copy.
    (word,) = [site for site in machine.sites if site.path == "sequencer.program_.ram._0_"]
    held = Counter()
    for _ in range(30):
        bit, cycle = (int(rng.integers(end)) for end in (word.width, machine.cycles - 50))
        held[classify(protected, machine.inject(Flip(word, 0, bit, cycle)))] += 1
    assert held["detected"] == 30, held


def test_flips_can_be_of_some_units_only(problem: Problem) -> None:
    machine, rng = problem.machine, np.random.default_rng(11)
    machine.limit_to(["load", "scratchpad memories"])
    units = {machine.draw(rng).site.unit for _ in range(2000)}
    machine.limit_to([REGISTERS])
    depths = {machine.draw(rng).site.depth for _ in range(2000)}
    machine.limit_to([])
    assert units == {"load", "scratchpad memories"}
    assert depths == {1}


def test_flips_are_as_likely_as_bits(problem: Problem) -> None:
    rng = np.random.default_rng(8)
    flips = [problem.machine.draw(rng) for _ in range(4000)]
    total = sum(site.bits for site in problem.machine.sites)
    wanted = sum(s.bits for s in problem.machine.sites if s.unit == "scratchpad memories") / total
    share = sum(flip.site.unit == "scratchpad memories" for flip in flips) / len(flips)
    assert abs(share - wanted) < 0.03
    assert all(flip.bit < flip.site.width and flip.word < flip.site.depth for flip in flips)
    assert max(flip.cycle for flip in flips) < problem.machine.cycles


def test_intervals_are_those_of_scipy() -> None:
    for count, total in ((0, 10), (1, 10), (3, 1000), (1000, 1000)):
        wanted = binomtest(count, total).proportion_ci(0.95, method="wilson")
        assert interval(count, total) == pytest.approx((wanted.low, wanted.high), abs=1e-7)
    assert interval(0, 0) == (0.0, 1.0)


def test_the_table_has_units_and_all() -> None:
    rows = table(
        {"unit": unit, "class": kind}
        for unit, kind in (("load", "masked"), ("load", "silent"), ("array", "hung"))
    )
    assert [(row["unit"], row["injected"], row["silent"]) for row in rows] == [
        ("array", 1, 0),
        ("load", 2, 1),
        ("all", 3, 1),
    ]


def test_a_campaign_is_told_and_each_of_its_cases_runs_alone(celosia) -> None:
    code, output, errors = celosia(*DIGITS, "--count", "20", "--seed", "5", "--jobs", "1", "--json")
    assert code == 0, errors
    result = json.loads(output)
    assert result["injected"] == 20 == sum(result[name] for name in CLASSES)
    assert result["units"][-1]["unit"] == "all"
    fields = (("config", "tiny"), ("model", "digits"), ("set", ""))
    alone = [run(Case("fault", 5, index, fields)) for index in reversed(range(20))]
    assert table(alone) == result["units"]


@pytest.mark.long
def test_a_step_of_a_language_model_ends_in_short_as_it_does_in_whole() -> None:
    opened = open_problem("tales", fault_config("small", "argmax=true"))
    opened.infer(2)
    rng, machine = np.random.default_rng(12), opened.machine
    machine.limit_to([REGISTERS])
    assert opened.chosen(opened.expected) < 100
    outcomes = Counter()
    for _ in range(60):
        flip = machine.draw(rng)
        short = classify(opened, machine.inject(flip))
        assert classify(opened, machine.inject(flip, whole=True)) == short, flip
        outcomes[short] += 1
    assert outcomes["masked"]
    assert set(outcomes) <= set(CLASSES)
    assert len(outcomes) > 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("verify", "faults", "digits", "--config", "micro"), "Faults need engines, which micro"),
        (("verify", "faults", "nothing"), "nothing"),
        (("verify", "faults", "tales", "--config", "tiny"), "need argmax, which tiny lacks"),
        (("verify", "faults", "numerals", "--config", "story"), "model numerals takes a source"),
        ((*DIGITS, "array"), "Unit must be one of all registers, account,"),
        ((*DIGITS, "--count", "0"), "--count"),
        ((*DIGITS, "--jobs", "0"), "--jobs must be from 1 to 256, not 0"),
    ],
)
def test_what_cannot_be_is_refused(celosia, words: tuple[str, ...], part: str) -> None:
    code, output, errors = celosia(*words)
    assert (code, output) == (2, ""), errors
    assert part in errors
    assert errors.count("\n") == 1
