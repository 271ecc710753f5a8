"""The configuration: presets, files, overrides, and names of fields."""

import re

import pytest

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS, load
from celosia.arch.records import Softmax
from celosia.arch.short_names import PATHS, RECORDS
from celosia.hdl.accelerator import Accelerator


def test_presets_are_what_their_names_say():
    shapes = {name: (preset.array.rows, preset.array.cols) for name, preset in PRESETS.items()}
    assert shapes["tiny"] == (4, 4)
    assert shapes["small"] == (8, 8)
    assert shapes["medium"] == (16, 16)
    assert shapes["wide"] == (8, 16)
    assert shapes["odd"] == (5, 3)
    assert shapes["story"] == (13, 12)
    assert shapes["story_85f"] == (16, 8)
    assert all(preset.name == name for name, preset in PRESETS.items())


def test_overrides_change_only_what_they_name():
    config = load("small", ["rows=7", "norm=false"])
    assert config == PRESETS["small"].replace(rows=7, norm=False)


def test_toml_round_trip(tmp_path):
    path = tmp_path / "mine.toml"
    config = PRESETS["odd"].replace(name="mine", lanes=3)
    path.write_text(config.to_toml(), encoding="utf-8")
    assert load(str(path)) == config


def test_toml_starts_from_its_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "odd"\nrows = 2\n', encoding="utf-8")
    assert load(str(path)) == PRESETS["odd"].replace(name="mine", rows=2)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("absent", ["softmax", "activation", "fused"])
def test_every_record_is_in_a_file_or_left_out_of_it(tmp_path, capsys, name, absent):
    path = tmp_path / "mine.toml"
    config = PRESETS[name].replace(name="mine", **{absent: False})
    path.write_text(config.to_toml(), encoding="utf-8")
    assert load(str(path)) == config
    assert f"[{absent}]" not in path.read_text(encoding="utf-8")
    assert Config.of(**config.fields()) == config
    assert capsys.readouterr() == ("", "")


def test_fields_have_paths_and_short_names():
    config = PRESETS["small"].replace(rows=12, lanes=2, softmax_lanes=4, throttle=3)
    overrides = ["array.rows=12", "vector.lanes=2", "softmax.lanes=4", "throttle.cycles=3"]
    assert load("small", overrides) == config
    assert (
        PRESETS["small"].replace(
            array={"rows": 12},
            vector={"lanes": 2},
            softmax=Softmax(lanes=4),
            throttle={"cycles": 3},
        )
        == config
    )
    assert config.replace(throttle=None, softmax=None) == config.replace(throttle=0, softmax=False)
    assert (config.read("array.rows"), config.read("rows")) == (12, 12)
    assert (config.read("sparse.lanes"), config.read("sparse_lanes")) == (None, 0)
    assert len(set(PATHS.values())) == len(PATHS)


def test_a_unit_that_is_left_out_loses_its_fields():
    config = PRESETS["small"].replace(weight_formats="int4", weight_group=16)
    assert config.replace(weight_formats="").weights is None
    assert PRESETS["story_85f"].replace(fused=False).pre_depth == 0


def test_files_with_fields_outside_of_tables_are_read_with_advice(tmp_path, capsys):
    path = tmp_path / "old.toml"
    path.write_text(
        'preset = "tiny"\nrows = 5\narray = "tree"\nsoftmax = false\nclock_mhz = 90\n'
        "sparse_lanes = 2\n",
        encoding="utf-8",
    )
    expected = PRESETS["tiny"].replace(
        name="old", rows=5, array="tree", softmax=False, sparse_lanes=2
    )
    assert load(str(path)) == expected
    assert capsys.readouterr().err == (
        f"{path}: write array.rows for rows, array.kind for array, sparse.lanes for sparse_lanes, "
        "nothing for clock_mhz, which has no effect\n"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory.rows": 2}, "Unknown field of memory 'rows'; known are width, addr_width"),
        ({"memory": {"row": 2}}, "Unknown field of memory 'row'; known are width, addr_width"),
        ({"engine.rows": 2}, f"Unknown record 'engine'; known are {', '.join(RECORDS)}"),
        ({"engine": {"rows": 2}}, f"Unknown field 'engine'; known are {', '.join(sorted(PATHS))}"),
        (
            {"sparse": True},
            "Unknown field 'sparse'; did you mean sparse_lanes? known are acc_depth",
        ),
    ],
)
def test_unknown_records_and_fields_of_records_are_named(changes, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        PRESETS["small"].replace(**changes)


def test_a_line_holds_every_kind_of_access():
    config = Config.of(rows=5, cols=3, lanes=3, mem_width=16)
    assert config.line_bytes == 8
    assert config.lane_groups == 1
    assert config.param_lines == 4


def test_the_sum_width_is_tight():
    config = Config.of(rows=1, cols=1, lanes=1, max_k=3, zero_points=False, operand_width=8)
    worst = 3 * 128 * 128
    assert worst < 1 << (config.sum_width - 1)
    assert worst >= 1 << (config.sum_width - 2)


def test_a_single_element_is_a_machine():
    config = Config.of(rows=1, cols=1, lanes=1, mem_width=8, scratchpad_bytes=16)
    assert config.line_bytes == 2


def test_a_microcoded_machine_has_fields_of_its_own(tmp_path):
    config = PRESETS["micro"].replace(name="mine", rows=5, cols=3, lanes=1)
    assert config.micro is not None
    assert Config.of(**config.fields()) == config
    path = tmp_path / "mine.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert load(str(path)) == config
    with pytest.raises(InputError, match=r"^Unknown field 'engines'; known are acc_"):
        config.replace(engines=4)
    with pytest.raises(InputError, match=r"^An accelerator has engines, which mine, m"):
        Accelerator(config)
