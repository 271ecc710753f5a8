"""Edited folders of every family: transformers' outputs, or a refusal in one sentence."""

import functools
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.reference.outside import folder_reference
from tools import folder_edits as edits

BASES, OUTPUTS = (
    json.loads((edits.DATA / f"{part}.json").read_text(encoding="utf-8"))
    for part in ("bases", "outputs")
)
NEAR = 1e-4
"""Admissible difference from transformers, of the largest output."""
MOST_REFUSED = 0.1
"""Admissible share of the edits that transformers accepts and this project refuses."""
LEAST_EDITS = 20

needs_zoo = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "transformers"))),
    reason="torch and transformers are not installed",
)


def compared(folder: Path, inputs: list[np.ndarray], expected: np.ndarray) -> float | None:
    """Return the difference of a folder's output from its last rows, None where it is refused."""
    try:
        output = np.atleast_2d(edits.imported(folder, inputs))
    except InputError:
        return None
    rows = output[-len(expected) :]
    return float(np.abs(rows - expected).max() / np.abs(expected).max())


@functools.cache
def recorded(name: str) -> dict[str, float | None]:
    """Return the differences of a base's edits that transformers accepts, None where refused."""
    base, differences = BASES[name], {}
    inputs = edits.inputs_of(base["config"])
    with tempfile.TemporaryDirectory() as folder:
        for edit, config, tensors in edits.edits(base["config"], base["shapes"]):
            expected = OUTPUTS[name][edit]
            edits.write(Path(folder), config, tensors)
            difference = compared(Path(folder), inputs, np.array([expected or 1.0], ndmin=2))
            if expected is not None:
                differences[edit] = difference
    return differences


@pytest.mark.parametrize("name", BASES)
def test_edits_are_what_transformers_recorded_or_refused(name: str) -> None:
    differences = recorded(name)
    assert len(OUTPUTS[name]) >= LEAST_EDITS
    assert differences["as it is"] is not None
    assert {
        edit: difference
        for edit, difference in differences.items()
        if difference is not None and not difference <= NEAR
    } == {}


@pytest.mark.parametrize("value", [None, False])
def test_attention_that_is_not_bidirectional_is_causal(tmp_path: Path, value: object) -> None:
    base = BASES["GemmaForCausalLM"]
    for edit, config, tensors in edits.edits(base["config"], base["shapes"]):
        if edit == "as it is":
            edits.write(tmp_path, config | {"use_bidirectional_attention": value}, tensors)
    inputs = edits.inputs_of(base["config"])
    assert compared(tmp_path, inputs, np.array([OUTPUTS["GemmaForCausalLM"]["as it is"]])) < NEAR


def test_few_edits_that_transformers_accepts_are_refused() -> None:
    differences = [difference for name in BASES for difference in recorded(name).values()]
    assert sum(difference is None for difference in differences) <= MOST_REFUSED * len(differences)


@pytest.mark.long
@needs_zoo
@pytest.mark.parametrize("name", BASES)
def test_edits_are_what_transformers_computes_or_refused(name: str, tmp_path: Path) -> None:
    base, wrong = BASES[name], {}
    inputs = edits.inputs_of(base["config"])
    for place, (edit, config, tensors) in enumerate(edits.edits(base["config"], base["shapes"])):
        folder = tmp_path / str(place)
        edits.write(folder, config, tensors)
        try:
            expected = folder_reference(folder)(*inputs)
        except InputError:
            expected = None
        assert (expected is None) == (OUTPUTS[name][edit] is None), edit
        print(f"{name}: edit {place + 1} of {len(OUTPUTS[name])}, {edit}", file=sys.stderr)
        difference = None if expected is None else compared(folder, inputs, expected)
        if difference is not None and not difference <= NEAR:
            wrong[edit] = difference
    assert wrong == {}
