"""Seconds of compiling models of random weights."""

import dataclasses
import json
import sys

import pytest

from tests.support.compiled_cases import MODEL
from tests.support.decoders import LLAMA
from tests.test_cli_doors import check_refusal


def test_each_step_of_compiling_is_timed(celosia, monkeypatch: pytest.MonkeyPatch) -> None:
    celosia("bench", "compiler", "--help")
    models = MODEL, dataclasses.replace(LLAMA, positions=256)
    monkeypatch.setattr(sys.modules["celosia.cli.bench_compiler"], "MODELS", models)
    code, out, err = celosia("--json", "bench", "compiler")
    assert code == 0, err
    encoder, decoder = json.loads(out)["models"]
    assert (encoder["model"], decoder["model"]) == ("toy", "llama")
    for row in (encoder, decoder):
        steps = [row[f"{step}_seconds"] for step in ("random", "quantize", "compile")]
        assert all(seconds > 0 for seconds in steps)
        assert row["words"] > 100
        assert row["cycles"] > row["words"]
        assert row["peak_bytes"] > 1 << 20
    code, out, _ = celosia("--json", "bench", "compiler", "llama")
    assert [row["model"] for row in json.loads(out)["models"]] == ["llama"]


def test_an_unknown_model_is_refused(celosia) -> None:
    message = (
        "Unknown model 'bert'; did you mean bert-base? known are bert-base, vit-base, llama-42M"
    )
    check_refusal(celosia("bench", "compiler", "bert"), message)
