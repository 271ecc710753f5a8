"""Functions of the compiler that run for encoders or for decoders alone: a list with reasons."""

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

from celosia.arch.presets import PRESETS
from celosia.generators.lower import rules
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.text_compiler import compile_text
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL
from tests.support.decoders import CONFIGS, DECODERS

ROOM = os.path.dirname(os.path.realpath(rules.__file__)) + os.sep
LISTED = tomllib.loads((Path(__file__).parent / "data/one_road.toml").read_text(encoding="utf-8"))


def functions(compile: Callable[[], object]) -> set[str]:
    """Return the functions of ``generators/lower`` that run, as module and qualified name."""
    codes = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        compile()
    finally:
        sys.setprofile(before)
    return {
        f"{os.path.realpath(code.co_filename).removeprefix(ROOM)[:-3]}: {code.co_qualname}"
        for code in codes
        if os.path.realpath(code.co_filename).startswith(ROOM) and "<" not in code.co_name
    }


def test_every_function_of_one_kind_of_model_alone_is_listed_with_a_reason() -> None:
    rng = np.random.default_rng(1)
    weights, inputs = random_weights(rng, MODEL), random_inputs(rng, MODEL)
    config = PRESETS["small"]
    ran = {
        "encoder": functions(lambda: compile_model(MODEL, weights, inputs, config)),
        "decoder": functions(
            lambda: compile_text(DECODERS["llama"], CONFIGS["streamed"], context=40)
        ),
    }
    both = ran["encoder"] & ran["decoder"]
    assert len(both) > 60
    for kind, names in ran.items():
        listed = {
            f"{module}: {name}"
            for module, entry in LISTED[kind].items()
            for name in entry["functions"]
        }
        new, gone = names - both - listed, listed - (names - both)
        assert not new, (
            f"functions run for one kind of model alone, without a reason: {sorted(new)}"
        )
        assert not gone, f"functions are listed, and do not run for one kind alone: {sorted(gone)}"
    assert all(entry["reason"] for kind in LISTED.values() for entry in kind.values())
