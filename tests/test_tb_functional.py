"""Functional points: they follow the instruction set, and programs reach those they go for."""

import numpy as np
import pytest

from celosia.arch.isa import DEFINITIONS, PAIR_FLAGS, Opcode
from celosia.generators.campaign.case import Case
from celosia.sim.interpreter import Interpreter
from celosia.tb.verify.coverage import goal_programs as programs
from celosia.tb.verify.coverage.covered import CONFIGURATIONS, covered_config
from celosia.tb.verify.coverage.directed import build, companions
from celosia.tb.verify.coverage.functional import STALLS, goals


class Twin(Interpreter):
    """The golden machine in the place of the circuit; ``wrong`` is added to its stored values."""

    wrong = 0

    def __init__(self, config, *, memory_bytes, limit, **timing):
        assert (timing["interval"], limit > 0) in [(1, True), (4, True)]
        super().__init__(config)
        assert memory_bytes <= len(self.dram)

    def read_memory(self, addr, count):
        return (
            bytes([(int(self.dram[addr]) + self.wrong) % 256])
            + super().read_memory(addr, count)[1:]
        )

    def close(self):
        pass


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_points_follow_the_instruction_set(name) -> None:
    config = covered_config(name)
    covered = goals(config)
    asked = {(goal.opcode, goal.flag) for goal in covered}
    wanted = {(opcode, "") for opcode, d in DEFINITIONS.items() if d.engine is not None}
    if config.row_factors:
        wanted -= {(Opcode.NORM, ""), (Opcode.SOFTMAX, "")}  # always with factors
        left = [(Opcode.NORM, "factors"), (Opcode.SOFTMAX, "factors")]
        assert asked >= {*left, (Opcode.DRAIN, "factors"), (Opcode.DRAIN, "by_tile")}
    absent = {opcode for opcode, flag in wanted - asked}
    assert all(
        (unit := DEFINITIONS[opcode].unit) is not None and not config.read(unit)
        for opcode in absent - {Opcode.PRELOAD}
    )
    assert (Opcode.PRELOAD in absent) == (config.array.weight_depth == 2)
    if name == "full":
        flags = {(opcode, flag) for opcode, d in DEFINITIONS.items() for flag in d.flags}
        # Slots with pairs exclude zero points, and so INT16; factors exclude other norms.
        assert {flag for _, flag in flags - asked} == {*PAIR_FLAGS, "factors", "by_tile"}
    rng = np.random.default_rng(1)
    for goal in covered[:: 7 if name == "tiny" else 41]:
        sizes = {goal.size: goal.value} if goal.size else {}
        flags = companions(goal.opcode, goal.flag, config)
        made = build(goal.opcode, flags, sizes, config, rng, least=True)
        assert made is not None, goal
        assert not goal.size or made.operand(goal.size).immediate == goal.value


def test_what_is_larger_than_the_largest_is_refused() -> None:
    config = covered_config("full")
    rng = np.random.default_rng(1)
    most = [goal for goal in goals(config) if goal.bound == "largest"]
    assert len(most) > 80
    for goal in most:
        step = 2 if (goal.flag, goal.size) == ("rotate", "n") else 1
        flags = companions(goal.opcode, goal.flag, config)
        sizes = {goal.size: goal.value + step}
        assert build(goal.opcode, flags, sizes, config, rng, least=True) is None, goal


@pytest.mark.parametrize("index", [1, 24, 98])
def test_programs_reach_their_goals_where_results_are_exact(monkeypatch, index) -> None:
    monkeypatch.setattr(programs, "VerilatorMachine", Twin)
    case = Case("functional", 1, index, (("config", "tiny"),))
    result = programs.run(case)
    part, stall = divmod(index, len(STALLS))
    wanted = goals(covered_config("tiny"))[part * programs.GOALS :][: programs.GOALS]
    assert result["mismatch"] == ""
    assert {f"{goal} {list(STALLS)[stall]}" for goal in wanted} <= set(result["reached"])
    assert set(result["reached"]) <= programs.points("tiny")
    monkeypatch.setattr(Twin, "wrong", 1)
    assert programs.run(case) == {"mismatch": "External memory differs", "reached": []}
