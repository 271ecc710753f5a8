"""The token of padding in inputs of encoders that give the tokens behind it other positions."""

from pathlib import Path

import numpy as np
import pytest

from arch.errors import InputError
from generators.frontend.source import Source
from generators.sources import load_source
from tests.test_reference_edits import BASES
from tools import folder_edits as edits

PADDING = 3


def encoder(folder: Path, name: str) -> Source:
    base = BASES[name]
    tensors = edits.tensors_of(base["shapes"])
    edits.write(folder, {**base["config"], "pad_token_id": PADDING}, tensors)
    return load_source(str(folder))


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "CamembertForQuestionAnswering"])
def test_padding_is_refused_where_positions_depend_on_it(tmp_path: Path, name: str) -> None:
    source = encoder(tmp_path / "model", name)
    for inputs in (np.array([5, PADDING, 6]), np.array([[5, 0], [PADDING, 0]])):
        with pytest.raises(InputError) as caught:
            source.prepare(inputs)
        assert str(caught.value) == (
            f"Inputs of model model must be without its padding, token {PADDING}, behind which it "
            "gives tokens other positions; leave it out"
        )
    source.prepare(np.array([5, 6]))


def test_random_inputs_have_every_token_but_padding(tmp_path: Path) -> None:
    source, rng = encoder(tmp_path / "model", "RobertaForMaskedLM"), np.random.default_rng(0)
    drawn = np.concatenate([source.random(rng) for _ in range(20)])
    assert {*drawn.tolist()} == {*range(source.description.vocabulary)} - {PADDING}


def test_padding_is_a_token_as_any_other_in_bert(tmp_path: Path) -> None:
    source = encoder(tmp_path / "model", "BertForMaskedLM")
    assert source.prepare(np.array([5, PADDING, 6])).tolist() == [5, PADDING, 6]
