"""Resets, aborts, refusals and failing memories at random cycles: the next run is exact."""

from collections import Counter

import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.registers import CAUSE_MEANINGS, Cause, cause_of
from celosia.arch.support.cache import ROOT
from celosia.hdl.control.recovery import FLUSH
from celosia.tb.machine.fast_build import uninitialized
from celosia.tb.machine.recovery import KINDS, WATCHDOG, Campaign
from celosia.tb.machine.simulated import VerilatorMachine

TREE = PRESETS["odd"].replace(
    name="tree", rows=6, cols=6, array="tree", weight_depth=12, registered=True, queue_depth=3
)
"""Another array, registers between the units, sizes that are no powers of two."""


@pytest.fixture(scope="module", params=[False, True])
def campaign(request: pytest.FixtureRequest) -> Campaign:
    """Without and with registers between far units, and with counters of their work."""
    changes = {"registered": request.param, "counters": not request.param}
    return Campaign(PRESETS["tiny"].replace(**changes), seed=1)


def check_trials(campaign: Campaign, count: int) -> None:
    assert campaign.cold == ["", "", "", ""]
    trials = [campaign.trial(KINDS[number % len(KINDS)]) for number in range(count)]
    assert [trial for trial in trials if trial.mismatch] == []
    # Few runs are over before anything befalls them.
    causes = Counter((trial.kind, trial.cause) for trial in trials)
    for kind, cause in (
        ("abort", Cause.ABORTED),
        ("refusal", Cause.INSTRUCTION),
        ("silence", Cause.SILENCE),
        ("error", Cause.MEMORY),
    ):
        assert causes[kind, cause] > count / len(KINDS) / 2, kind


@pytest.mark.slow
def test_the_first_run_is_exact_whatever_memories_hold() -> None:
    """Each simulation begins with other contents."""
    for seed in range(10, 13):
        assert Campaign(PRESETS["tiny"], seed, programs=1).cold == [""]


@pytest.mark.slow
def test_the_next_run_is_exact(campaign: Campaign) -> None:
    check_trials(campaign, 48)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("config", [PRESETS["tiny"], PRESETS["small"], TREE, PRESETS["micro"]])
def test_many_next_runs_are_exact(config: Config) -> None:
    check_trials(Campaign(config, seed=2), 400 if config.micro is None else 100)


def stopped(machine: VerilatorMachine, words: list[int], pc: int = 0) -> Cause:
    """Run a program that is to be stopped, then one that is not, and return the cause."""
    machine.write_register("PROGRAM_ADDR", pc % machine.config.control.program_depth)
    for word in words:
        machine.write_register("PROGRAM_DATA", word)
    machine.write_register("INTERRUPT", 3)
    machine.write_register("INTERRUPT_ENABLE", 2)
    with pytest.raises(RuntimeError) as refusal:
        machine.start(pc)
    cause = cause_of(machine.read_register("STATUS"))
    assert str(refusal.value) == f"The run stopped: {CAUSE_MEANINGS[cause]}"
    assert machine.read_register("INTERRUPT") == 2
    assert machine.interrupted()
    machine.write_register("INTERRUPT", 2)
    assert not machine.interrupted()
    machine.load_program(pack([Instruction(Opcode.LOAD, LINE), Instruction(Opcode.HALT)]))
    machine.write_register("INTERRUPT_ENABLE", 1)
    loaded = LINE["row_bytes"] // machine.config.mem_bytes * machine.config.control.counters
    assert machine.start().counters["loaded"] == loaded
    assert machine.read_register("STATUS") == 0
    assert machine.interrupted()
    return cause


LINE = {"m": 1, "row_bytes": 8}


def load(**tokens: frozenset[Engine]) -> Instruction:
    return Instruction(Opcode.LOAD, LINE, **tokens)


@pytest.mark.slow
def test_every_cause_is_told(campaign: Campaign) -> None:
    machine, depth = campaign.machine, campaign.machine.config.control.program_depth
    vector, halt = frozenset({Engine.VECTOR}), Instruction(Opcode.HALT)
    loop, end = Instruction(Opcode.LOOP, {"count": 1}), Instruction(Opcode.ENDLOOP)
    assert stopped(machine, [31]) == Cause.INSTRUCTION
    assert stopped(machine, pack([end, halt])) == Cause.LOOP
    assert stopped(machine, pack([loop] * 5 + [end] * 5 + [halt])) == Cause.LOOP
    assert stopped(machine, pack([Instruction(Opcode.SET, {"register": 0})])) == Cause.REGISTER
    assert stopped(machine, pack([halt]), depth) == Cause.PROGRAM
    # The first word behind the program memory would be its first one, a HALT.
    machine.load_program(pack([halt]))
    words = pack([load()])
    assert len(words) == DEFINITIONS[Opcode.LOAD].words
    assert stopped(machine, words, depth - len(words)) == Cause.PROGRAM
    machine.load_program(pack([halt]))
    assert stopped(machine, words[:-2], depth - len(words) + 2) == Cause.PROGRAM
    many = [Instruction(Opcode.LOOP, {"count": 256}), load(push=vector), end, halt]
    assert stopped(machine, pack(many)) == Cause.TOKENS
    assert stopped(machine, pack([load(pop=vector), halt])) == Cause.DEADLOCK
    machine.load_program(pack([load(pop=vector), halt]))
    machine.write_register("CONTROL", 1)
    assert WATCHDOG <= machine.wait(10 * WATCHDOG) < 2 * WATCHDOG + 2000


def test_the_page_lists_every_cause() -> None:
    page = (ROOT / "docs" / "reset.md").read_text(encoding="utf-8")
    for cause, meaning in CAUSE_MEANINGS.items():
        assert cause == Cause.NONE or f"| {cause.value} | {cause.name} | {meaning} |" in page
    assert f"reset for {FLUSH} cycles" in page


def test_initial_values_go_but_not_those_of_tables() -> None:
    text = """\
  initial o = 4'h0;
  reg [3:0] kept = 4'h0;
  output reg  [3:0] o;
  initial for (_entry = 0; _entry <= 63; _entry = _entry + 1) memory[_entry] = 0;
  initial begin
    coefficients[0] = 50'h171c005a00008;
  end
"""
    assert (
        uninitialized(text)
        == """\
  reg [3:0] kept;
  output reg  [3:0] o;
  initial begin
    coefficients[0] = 50'h171c005a00008;
  end
"""
    )
