"""Speeds of rotary pairs and the factor of attention, against the papers' formulas by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from celosia.generators.frontend.rotary_speeds import rope_settings, rotary_speeds

DIM, BASE = 16, 10000.0
SPEEDS = BASE ** (-np.arange(0, DIM, 2) / DIM)


def speeds_of(rope: dict, places: int = 4096, head_dim: int = DIM):
    folder = SimpleNamespace(config={"max_position_embeddings": places}, config_path="config.json")
    shared = {"rope_theta": BASE, "partial_rotary_factor": 1.0}
    base, speeds, factor = rotary_speeds(folder, shared | rope, head_dim)
    assert base == BASE
    return speeds, factor


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(
    ("more", "factor"),
    [
        ({}, 0.1 * math.log(8) + 1),
        ({"attention_factor": 0.7}, 0.7),
        (
            {"mscale": 3.0, "mscale_all_dim": 0.5},
            (0.3 * math.log(8) + 1) / (0.05 * math.log(8) + 1),
        ),
        ({"mscale": 3.0}, 0.1 * math.log(8) + 1),
        ({"mscale_all_dim": 3.0}, 0.1 * math.log(8) + 1),
        ({"factor": 1.0}, 1.0),
        ({"factor": None}, 0.1 * math.log(8) + 1),  # 4,096 places of 512
    ],
)
def test_the_factor_of_yarn(more: dict, factor: float) -> None:
    assert speeds_of({**YARN, **more})[1] == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("fast", "slow"), [(None, None), (16.0, 2.0), (400.0, 1e-4)])
def test_yarn_stretches_the_pairs_that_turn_slowly(fast, slow, truncate: bool) -> None:
    rope = {**YARN, "truncate": truncate, "beta_fast": fast, "beta_slow": slow}
    speeds, _ = speeds_of({name: value for name, value in rope.items() if value is not None})
    places = [
        DIM * math.log(512 / (turns * 2 * math.pi)) / (2 * math.log(BASE))
        for turns in (fast or 32.0, slow or 1.0)
    ]
    low, high = (math.floor(places[0]), math.ceil(places[1])) if truncate else places
    low, high = max(low, 0), min(high, DIM - 1)
    for pair, speed in enumerate(SPEEDS):
        ramp = min(max((pair - low) / (high - low), 0.0), 1.0)
        assert speeds[pair] == pytest.approx(speed * (1 - ramp) + speed / 8 * ramp, rel=1e-12)


def test_yarn_is_truncated_if_nothing_else_is_said() -> None:
    speeds = [
        speeds_of({**YARN, **more})[0] for more in ({}, {"truncate": True}, {"truncate": False})
    ]
    assert np.array_equal(speeds[0], speeds[1])
    assert not np.array_equal(speeds[0], speeds[2])


@pytest.mark.parametrize(
    ("more", "places", "factor"),
    [
        ({}, 4096, math.sqrt(1 + math.log(8) / math.log(512))),
        ({"factor": 2.0}, 4096, math.sqrt(1 + math.log(2) / math.log(512))),
        ({}, 512, 1.0),
        ({"attention_factor": 1.25}, 4096, 1.25),
    ],
)
def test_the_short_factors_of_longrope(more: dict, places: int, factor: float) -> None:
    short = list(np.linspace(1.0, 3.0, DIM // 2))
    rope = {
        "rope_type": "longrope",
        "original_max_position_embeddings": 512,
        "short_factor": short,
        "long_factor": [9.0] * (DIM // 2),
        **more,
    }
    speeds, scale = speeds_of(rope, places)
    np.testing.assert_allclose(speeds, SPEEDS / np.array(short), rtol=1e-12)
    assert scale == pytest.approx(factor, rel=1e-12)


def test_pairs_between_slow_and_fast_are_stretched_by_share() -> None:
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    speeds, factor = speeds_of(rope)
    assert factor == 1.0
    for pair, speed in enumerate(SPEEDS):
        wavelength = 2 * math.pi / speed
        share = min(max((512 / wavelength - 1) / 3, 0.0), 1.0)
        assert speeds[pair] == pytest.approx((1 - share) * speed / 8 + share * speed, rel=1e-12)


def test_columns_that_are_not_rotated_stand_still() -> None:
    speeds, factor = speeds_of(
        {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5}, head_dim=2 * DIM
    )
    np.testing.assert_allclose(speeds[: DIM // 2], SPEEDS / 4, rtol=1e-12)
    assert speeds[DIM // 2 :].tolist() == [0.0] * (DIM // 2)
    assert factor == 1.0


def test_dynamic_positions_are_those_of_the_places_that_a_model_was_made_for() -> None:
    speeds, factor = speeds_of({"rope_type": "dynamic", "factor": 4.0})
    np.testing.assert_allclose(speeds, SPEEDS, rtol=1e-12)
    assert factor == 1.0
    with pytest.raises(ValueError, match=r"^Setting 'factor' in config.json must be a number"):
        speeds_of({"rope_type": "dynamic"})


@pytest.mark.parametrize("kind", ["llama3", "yarn", "longrope"])
@pytest.mark.parametrize(
    ("beside", "inside", "places"),
    [(100, 200, 100), (None, 200, 200), (None, None, 4096)],
)
def test_the_places_that_a_model_was_first_made_for(kind: str, beside, inside, places) -> None:
    config = {"max_position_embeddings": 4096, "rope_theta": BASE, "partial_rotary_factor": 1.0}
    if beside:
        config["original_max_position_embeddings"] = beside
    rope = {"rope_type": kind} | ({"original_max_position_embeddings": inside} if inside else {})
    folder = SimpleNamespace(
        config=config | {"rope_scaling": rope}, config_path="config.json", kind="llama"
    )
    assert rope_settings(folder, partial=True)["original_max_position_embeddings"] == places


@pytest.mark.parametrize("name", ["su", "yarn", "longrope"])
def test_older_names_of_phi3_are_longrope(name: str) -> None:
    config = {"max_position_embeddings": 4096, "rope_theta": BASE, "partial_rotary_factor": 1.0}
    for key in ("type", "rope_type"):
        folder = SimpleNamespace(
            config=config | {"rope_scaling": {key: name}}, config_path="config.json", kind="phi3"
        )
        assert rope_settings(folder, partial=True)["rope_type"] == "longrope"
