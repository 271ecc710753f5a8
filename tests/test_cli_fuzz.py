"""Random cases of every kind: a sample of each, and failures that are told and found again."""

import json

import numpy as np
import pytest

from celosia.cli.campaign_options import Runner
from celosia.generators.campaign.case import Case, Outcome
from celosia.tb.models import whole_model
from celosia.tb.verify import random_programs
from celosia.tb.verify.fuzz import graphs, lines, models, programs, traces
from tests.support.longer import longer


def fuzz(celosia, *words):
    code, out, err = celosia("verify", "fuzz", "--json", "--jobs", "2", *words)
    return code, json.loads(out), err


def test_models_and_graphs(celosia, tmp_path) -> None:
    path = tmp_path / "results.sqlite"
    for _ in range(2):
        kinds = ("model", "onnx")
        code, report, err = fuzz(celosia, *kinds, "--count", "4", "--results", path)
        assert (code, report["failures"], report["failed"], err) == (0, [], 0, "")
        assert [(row["kind"], row["cases"]) for row in report["kinds"]] == [
            ("model", 4),
            ("onnx", 4),
        ]
    # Some graphs are understood and run, and some are not.
    assert [bool(graphs.run(Case("onnx", 1, n))["refusal"]) for n in (3, 4)] == [False, True]


def test_machines_of_programs_and_traces_can_be_chosen(celosia, monkeypatch) -> None:
    asked = []

    def run(_runner, kind, _job, _count, *, fields, **_given) -> list[Outcome]:
        asked.append((kind, fields))
        return []

    monkeypatch.setattr(Runner, "run", run)
    words = ("--config", "small", "--config", "tiny", "--count", "1", "--jobs", "1")
    assert celosia("verify", "fuzz", *words, "trace", "line")[0] == 0
    assert celosia("verify", "fuzz", "--count", "1", "--jobs", "1", "program")[0] == 0
    assert asked == [
        *(("trace", {"config": name}) for name in ("small", "tiny")),
        *(("line", {"line": name}) for name in ("link", "axi4", "wishbone")),
        *(("program", {"config": name}) for name in ("tiny", "odd")),
    ]


@pytest.mark.long  # the next test has cycles of such a machine, and its tensors
def test_a_random_machine_is_built_and_simulated(monkeypatch) -> None:
    """Its circuit gives the golden machine's tensors."""
    case, built = Case("model", 1, 11), []
    circuit = models.circuit

    def counted(rng, config, memory_bytes):
        built.append(config)
        return circuit(rng, config, memory_bytes)

    monkeypatch.setattr(models, "circuit", counted)
    assert models.run(case)["mismatch"] == ""
    assert len(built) == 1


@pytest.mark.slow
@pytest.mark.parametrize("index", [59, *longer(11, 63, 91)])
def test_cycles_of_random_machines_are_predicted(index: int) -> None:
    """Encoders on circuits of the sampler's machines, which may not be hot."""
    result = models.run(Case("model", 3, index))
    assert result["mismatch"] == ""
    assert abs(result["predicted"] / result["cycles"] - 1) <= 0.05


@pytest.mark.slow
def test_programs_and_traces(celosia) -> None:
    code, report, _ = fuzz(celosia, "program", "trace", "--count", "2", "--config", "odd")
    assert (code, report["failures"]) == (0, [])
    assert [(row["kind"], row["cases"]) for row in report["kinds"]] == [
        (f"{kind} odd", 2) for kind in ("program", "trace")
    ]


@pytest.mark.slow
def test_lines() -> None:
    """One line here, for the others see the benches' own tests."""
    result = lines.run(Case("line", 1, 0, (("line", "wishbone"),)))
    assert result["mismatch"] == ""
    assert result["model"] == "wishbone"


def test_a_failure_is_told_and_found_again(celosia, monkeypatch) -> None:
    """A reference that is wrong in one integer."""
    right = whole_model.evaluate

    def wrong(*arguments):
        tensors = right(*arguments)
        return tensors | {"output": tensors["output"] + 1} if "output" in tensors else tensors

    monkeypatch.setattr(whole_model, "evaluate", wrong)
    mismatch = models.run(Case("model", 1, 0))["mismatch"]
    assert mismatch == "Tensor output differs from the integer reference"
    code, out, _ = celosia("verify", "replay", "model:1:0", "--json")
    assert code == 1
    assert json.loads(out)["mismatch"] == mismatch


@pytest.mark.slow
def test_what_is_wrong_of_a_circuit_is_seen(monkeypatch) -> None:
    """The golden machine's scratchpad has a wrong byte; every bridge has too few error lines."""
    case = Case("program", 1, 0, (("config", "odd"),))
    assert programs.run(case)["mismatch"] == ""
    write = programs.Interpreter.write_memory
    monkeypatch.setattr(
        programs.Interpreter,
        "write_memory",
        lambda self, addr, data: write(self, addr, bytes(byte ^ 1 for byte in data)),
    )
    assert programs.run(case)["mismatch"] == "Signatures differ"
    trace = Case("trace", 1, 0, (("config", "odd"),))
    monkeypatch.setattr(traces.Campaign, "_differs", lambda *_given, **_named: "other results")
    assert traces.run(trace)["mismatch"] == "other results; other results"


def test_programs_are_broken_in_many_ways() -> None:
    """Most are refused, for many reasons, and none loops for long."""
    config = programs.PRESETS["tiny"]
    rng = np.random.default_rng(0)
    program = random_programs.random_program(config, rng, 4, alone=True)
    assert programs._golden(program, program.words, config)[0] == ""
    broken = [programs._broken(program.words, rng) for _ in range(30)]
    reasons = {programs._golden(program, words, config)[0].partition(" ")[0] for words in broken}
    assert len(reasons - {""}) > 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("x",),
            "Unknown kind of case 'x'; known are model, schedule, blocks, onnx, program, trace, "
            "line, files",
        ),
        (
            ("--config", "micro"),
            "--config must be a preset with engines, of tiny, small, medium, wide, odd, story, "
            "story_85f, not 'micro'",
        ),
        (("--count", "0"), "--count must be from 1 to 100,000,000, not 0"),
        (("--jobs", "0"), "--jobs must be from 1 to 256, not 0"),
        (("--jobs", "here"), "--jobs must be a number or tls://HOST:PORT, not 'here'"),
    ],
)
def test_wrong_words_are_refused(celosia, words, message) -> None:
    assert celosia("verify", "fuzz", *words) == (2, "", f"celosia: {message}\n")


def test_a_line_that_is_unknown_or_missing() -> None:
    with pytest.raises(ValueError, match="lacks the field line"):
        lines.run(Case("line", 1, 0))
