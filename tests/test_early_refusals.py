"""Options that cannot be are refused before any calibration or build."""

import sys

import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_sources import TextSource
from celosia.hdl.machine import machine_component
from celosia.tb.machine.fast_build import accelerator_verilog
from celosia.tb.verify.faults.sites import MEMORIES, find_sites, unit_names
from tests.test_cli_doors import check_refusal

TEXT = ("run", "tales", "--sim", "golden", "--prompt", "the fox")
REPLAY = ("verify", "replay")
LONG = " ".join(["the"] * 400)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((*TEXT, "--steps", "0"), "Steps must be at least 1, not 0"),
        ((*TEXT, "--steps", "-1"), "Steps must be at least 1, not -1"),
        ((*TEXT, "--steps", "1000000000"), "steps need more than the"),
        ((*TEXT, "--context", "1000000000"), "that model tales was made for, not 1000000000"),
        ((*TEXT, "--context", "-1"), "Context must be 0 or more tokens, not -1"),
        ((*TEXT, "--context", "0:-1"), "Sinks must not be negative, not -1"),
        (("run", "tales", "--prompt", LONG), "steps need more than the"),
        ((*TEXT, "--temperature", "nan"), "Temperature must be finite, not nan"),
        ((*TEXT, "--temperature", "inf"), "Temperature must be finite, not inf"),
        ((*TEXT, "--temperature", "-1"), "Temperature must not be negative, not -1.0"),
        ((*TEXT, "--temperature", "1:nan"), "Top-p must be more than 0 and at most 1, not nan"),
        (
            (*TEXT, "--quantize", "loss=nan"),
            "Loss must be a number from 0 on, not nan",
        ),
        (
            (*TEXT, "--quantize", "loss=-1"),
            "Loss must be a number from 0 on, not -1",
        ),
        (
            (*TEXT, "--set", "activation=false", "--set", "norm=false"),
            "needs the units norm and activation, which configuration story leaves out; set "
            "norm=true and activation=true",
        ),
        (
            ("compile", "tales", "--set", "activation=false", "--out", "o"),
            "needs the unit activation, which configuration story leaves out; set activation=true",
        ),
        (
            ("compile", "tales", "--add", "c", "--steps", "100000", "--out", "o"),
            "steps need more than the",
        ),
        (
            ("run", "digits", "--quantize", "loss=nan"),
            "Loss must be a number from 0 on, not nan",
        ),
        (
            ("evaluate", "tales", "--text", "README.md", "--context", "9:-1"),
            "Sinks must be from 0 to 8, which is less than the context, not -1",
        ),
        ((*REPLAY, "model:1"), "A case is KIND:SEED:INDEX or"),
        ((*REPLAY, f"model:1:{'9' * 6000}"), "A case is KIND:SEED:INDEX or"),
        ((*REPLAY, "nothing:1:1"), "Unknown kind of case 'nothing'"),
        ((*REPLAY, "program:1:1:config=nope"), "Unknown config 'nope'; known are tiny"),
        (
            (*REPLAY, "program:1:1:config=micro"),
            "Unknown config 'micro'; known are tiny",
        ),
        ((*REPLAY, "trace:1:1:config=nope"), "Unknown config 'nope'; known are tiny"),
        (
            (*REPLAY, "line:1:1:line=nope"),
            "Unknown line 'nope'; known are link, axi4, wishbone",
        ),
        ((*REPLAY, "line:1:1"), "Case line:1:1 lacks the field line"),
        ((*REPLAY, "coverage:1:1:config=nope,units=x"), "Unknown configuration 'nope'"),
        ((*REPLAY, "coverage:1:1:config=tiny,units=x"), "Unknown unit 'x'"),
        (
            (*REPLAY, "coverage:1:1:config=tiny,units=softmax"),
            "has the units 0 to 0, not 1",
        ),
        ((*REPLAY, "functional:1:1:config=nope"), "Unknown configuration 'nope'"),
        (
            (*REPLAY, "mutant:1:1:config=tiny,set=,unit=nope,count=1,prove=0"),
            "Unknown unit 'nope'",
        ),
        (
            (*REPLAY, "mutant:1:1:config=tiny,set=,unit=softmax,count=x,prove=0"),
            "be a number",
        ),
        (
            (*REPLAY, "mutant:1:1:config=nope,set=,unit=softmax"),
            "Unknown configuration 'nope'",
        ),
        ((*REPLAY, "fault:1:1:config=tiny,set=,model=nope"), "'nope'"),
    ],
)
def test_words_are_refused_before_any_work(celosia, monkeypatch, words, part) -> None:
    def calibrate(*_given, **_named):
        raise AssertionError("calibrated")

    monkeypatch.setattr(TextSource, "calibrate", calibrate)
    check_refusal(celosia(*words), part)


def test_units_of_faults_are_looked_at_first(celosia, monkeypatch) -> None:
    celosia("verify", "faults", "--help")

    def open_problem(*_given):
        raise AssertionError("calibrated")

    monkeypatch.setattr(sys.modules["celosia.cli.faults"], "open_problem", open_problem)
    monkeypatch.setattr(
        sys.modules["celosia.cli.faults"], "accelerator_verilog", lambda _config: ""
    )
    monkeypatch.setattr(sys.modules["celosia.cli.faults"], "find_sites", lambda _verilog: [])
    outcome = celosia("verify", "faults", "tales", "guard memories", "--config", "tiny")
    check_refusal(outcome, "Unit must be one of all registers, ")


def test_a_unit_that_no_machine_has_needs_no_verilog(celosia, monkeypatch) -> None:
    celosia("verify", "faults", "--help")

    def accelerator_verilog(_config):
        raise AssertionError("generated")

    module = sys.modules["celosia.cli.faults"]
    monkeypatch.setattr(module, "accelerator_verilog", accelerator_verilog)
    outcome = celosia("verify", "faults", "tales", "nope", "--config", "tiny")
    check_refusal(
        outcome,
        "Unit must be one of all registers, account, accumulators, dispatch, guard, load, matrix, "
        "recovery, registers, scratchpad, sequencer, span, store, top, vector, watchdog, or a "
        "unit's memories as in 'scratchpad memories', not 'nope'",
    )


def test_names_of_units_are_those_of_the_verilog() -> None:
    config = PRESETS["tiny"]
    names = unit_names(machine_component(config))
    sites = {site.unit for site in find_sites(accelerator_verilog(config))}
    assert {name.removesuffix(MEMORIES) for name in sites} <= set(names)


def test_a_prompt_that_is_no_utf_8(celosia) -> None:
    """Python reads such an argument with substitutes for its bytes."""
    outcome = celosia("run", "tales", "--prompt", "a\udcff")
    check_refusal(outcome, "Option --prompt must be UTF-8 text, not 'a\\udcff'")
