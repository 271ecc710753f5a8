"""Each compiled program is checked: a wrong one is refused before it is used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import celosia
from celosia import compiling
from celosia.arch.instruction import unpack
from celosia.arch.isa import DEFINITIONS, POP_SHIFT
from celosia.generators.frontend.text_shapes import random_weights
from celosia.generators.runtime.host import Host
from tests.support.decoders import GPT


@pytest.fixture(scope="module")
def digits() -> celosia.Program:
    return celosia.compile(celosia.load("digits"), celosia.config("small"))


@pytest.fixture(scope="module")
def tales() -> celosia.Program:
    model = celosia.load("tales")
    return celosia.compile(model, calibration=model.examples(4), context=64)


def damaged(code: Host) -> Host:
    """Return a program with zeros in place of all weights in external memory."""
    return replace(code, setup=[replace(fill, image=bytes(len(fill.image))) for fill in code.setup])


@pytest.mark.parametrize("name", ["digits", "tales"])
def test_a_program_that_computes_other_integers_is_refused(name, request) -> None:
    program = request.getfixturevalue(name)
    program.check()
    with pytest.raises(celosia.RunError, match=f"program of model {name} is wrong.* integer ref"):
        replace(program, code=damaged(program.code)).check()


def test_engines_that_race_are_refused(digits) -> None:
    words = [*digits.code.words]
    steps = [*unpack(words)]
    waiting = next(at for at, step in enumerate(steps) if step.pop)
    place = sum(DEFINITIONS[step.opcode].words for step in steps[:waiting])
    words[place] &= ~(0xF << POP_SHIFT)  # the token is not waited for
    with pytest.raises(celosia.RunError, match="The compiler's program is refused"):
        replace(digits, code=replace(digits.code, words=words)).check()


def test_compile_checks_a_short_program(monkeypatch) -> None:
    model, config = celosia.load("digits"), celosia.config("small")
    compiled = compiling.compile_model

    def wrong(*arguments: Any) -> Any:
        return damaged(compiled(*arguments))

    monkeypatch.setattr(compiling, "compile_model", wrong)
    with pytest.raises(celosia.RunError, match="which is a fault of Celosia"):
        celosia.compile(model, config)
    monkeypatch.setattr("celosia.programs.MOST_CYCLES", 1000)
    assert not celosia.compile(model, config).is_short


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # random weights are quantized badly
@pytest.mark.parametrize("positions", [1, 2, 3])
def test_language_models_of_few_positions_are_checked(tmp_path: Path, positions) -> None:
    model = GPT.replace(positions=positions)
    (tmp_path / "decoder.toml").write_text(model.to_toml(), encoding="utf-8")
    weights = {name: each.astype(np.float32) for name, each in random_weights(model).items()}
    save_file(weights, tmp_path / "weights.safetensors")
    program = celosia.compile(celosia.load(tmp_path), celosia.config("story"))
    assert program.is_short
