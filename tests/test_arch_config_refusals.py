"""Every refusal of a configuration, with its sentence."""

import pytest

from celosia.arch.errors import InputError, InputTypeError
from celosia.arch.presets import PRESETS, load
from celosia.arch.short_names import PATHS


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rows": 0}, ValueError, "Field rows must be from 1 to 64, not 0"),
        ({"rows": 2.5}, TypeError, "Field rows must be an integer, not 2.5"),
        ({"rows": True}, TypeError, "Field rows must be an integer, not True"),
        ({"norm": 1}, TypeError, "Field norm must be true or false, not 1"),
        ({"name": 3}, TypeError, "Field name must be a string, not 3"),
        ({"array": 1}, TypeError, "Field array must be a string, not 1"),
        ({"array": "mesh"}, ValueError, "Field array must be 'systolic' or 'tree', not 'mesh'"),
        ({"mem_width": 24}, ValueError, "Field mem_width must be a power of two, not 24"),
        (
            {"lanes": 9},
            ValueError,
            "Field lanes must be at most cols, but lanes is 9 and cols is 8",
        ),
        (
            {"rotary": True, "cols": 9},
            ValueError,
            "Field rotary needs even lanes and cols, but lanes is 8 and cols is 9",
        ),
        (
            {"wide_functions": True, "activation": False},
            ValueError,
            "Field wide_functions needs activation, but wide_functions is true and activation "
            "false",
        ),
        (
            {"fused": True, "softmax": False, "norm": False},
            ValueError,
            "Field fused needs softmax or norm, but fused is true and softmax and norm false",
        ),
        (
            {"fused": True, "lanes": 3},
            ValueError,
            "Field fused needs lanes to divide cols, but lanes is 3 and cols is 8",
        ),
        *(
            (
                {"row_factors": 2, **changes},
                ValueError,
                "Field row_factors needs norm or softmax, multiplier_width 16 and protect 'none', "
                f"but row_factors is 2, norm {rest}",
            )
            for changes, rest in (
                (
                    {"norm": False, "softmax": False, "fused": False, "multiplier_width": 16},
                    "false, softmax false, multiplier_width 16 and protect 'none'",
                ),
                ({}, "true, softmax true, multiplier_width 32 and protect 'none'"),
                (
                    {"multiplier_width": 16, "protect": "detect"},
                    "true, softmax true, multiplier_width 16 and protect 'detect'",
                ),
            )
        ),
        *(
            (
                {"softmax_lanes": wide, "lanes": 2},
                ValueError,
                "Field softmax_lanes must be a multiple of lanes that divides cols, but "
                f"softmax_lanes is {wide}, lanes 2 and cols 8",
            )
            for wide in (3, 6)
        ),
        *(
            (
                {unit: False, field: value},
                ValueError,
                f"Field {field} needs {unit}, but {field} is {str(value).lower()} and {unit} false",
            )
            for unit, field, value in (
                ("softmax", "softmax_lanes", 8),
                ("packed_cache", "low_rows", 1),
                ("packed_cache", "block_exponents", True),
                ("fused", "pre_depth", 1),
                ("activation", "table_slots", 3),
                ("micro", "requantizer", False),
            )
        ),
        (
            {"weight_group": 8},
            ValueError,
            "Field weight_group needs weight_formats, but weight_group is 8 and weight_formats ''",
        ),
        (
            {"scratchpad_bytes": 16},
            ValueError,
            "Field scratchpad_bytes must give each bank at least two lines of 16 bytes, but "
            "scratchpad_bytes is 16 and scratchpad_banks is 4",
        ),
        (
            {"scratchpad_align": 3},
            ValueError,
            "Field scratchpad_align must be a power of two, not 3",
        ),
        (
            {"scratchpad_align": 4, "rows": 13},
            ValueError,
            "Field scratchpad_align must divide rows, but scratchpad_align is 4 and rows 13",
        ),
        (
            {"scratchpad_align": 8, "mem_width": 32},
            ValueError,
            "Field scratchpad_align must divide the bytes of mem_width, but scratchpad_align is 8 "
            "and the bytes of mem_width 4",
        ),
        (
            {"scratchpad_align": 2, "sparse_lanes": 2},
            ValueError,
            "Field scratchpad_align must divide the bytes that sparse_lanes read at once, but "
            "scratchpad_align is 2 and the bytes that sparse_lanes read at once 3",
        ),
        (
            {"acc_width": 16},
            ValueError,
            "Field acc_width must be at least 28 so that a sum of max_k = 2048 products of 9-bit "
            "operands cannot overflow, but acc_width is 16",
        ),
        (
            {"packed_slots": True, "weight_formats": "int4", "array": "tree", "zero_points": False},
            ValueError,
            "Field packed_slots needs array 'tree', operands 'int8', gating 'none', "
            "pass_width 4 or 8, but array is 'tree', operands 'int8', gating 'operands', "
            "pass_width 8",
        ),
        (
            {
                "packed_slots": True,
                "weight_formats": "nf4,int5",
                "array": "tree",
                "zero_points": False,
                "operand_gating": False,
            },
            ValueError,
            "Field packed_slots needs integers of at most 4 bits or ternary among weight_formats, "
            "not 'nf4,int5'",
        ),
        (
            {
                "packed_slots": True,
                "weight_formats": "int4",
                "weight_group": 24,
                "array": "tree",
                "zero_points": False,
                "operand_gating": False,
            },
            ValueError,
            "Field weight_group must be a multiple of twice rows where packed_slots is true, but "
            "weight_group is 24 and rows 8",
        ),
        (
            {"wide_operands": True, "zero_points": False},
            ValueError,
            "No operands has operand_width 8 and zero_points false and wide_operands true; write "
            "operands as one of int2, int3, int4, int5, int6, int7, int8, affine2, affine3, "
            "affine4, affine5, affine6, affine7, affine8, affine16",
        ),
        (
            {"sleep": True, "gating": "none"},
            InputError,
            "Field gating 'none' has sleep false, but sleep is true; write only gating",
        ),
        (
            {"observe": "all", "control.trace": False},
            InputError,
            "Field observe 'all' has trace true, but trace is false; write only observe",
        ),
        (
            {"gating": ["none"], "sleep": True},
            InputTypeError,
            "Field gating must be a string, not ['none']",
        ),
        (
            {"operands": "affine16", "acc_width": 30},
            ValueError,
            "Field operands 'affine16' needs acc_width 32, but acc_width is 30",
        ),
        (
            {"operands": "int9"},
            ValueError,
            "Unknown operands 'int9'; did you mean int8? known are int2, int3, int4, int5, int6, "
            "int7, int8, affine2, affine3, affine4, affine5, affine6, affine7, affine8, affine16",
        ),
        (
            {"packed_cache": True, "operand_gating": False, "zero_points": False},
            ValueError,
            "Field packed_cache needs array 'tree', operands 'int8', gating 'none', "
            "pass_width 4 or 8 and b_transpose true, but array is 'systolic', operands 'int8', "
            "gating 'none', pass_width 8 and b_transpose true",
        ),
        ({"multiplier_width": 24}, ValueError, "Field multiplier_width must be 16 or 32, not 24"),
        (
            {"pre_depth": 300, "fused": True},
            ValueError,
            "Field pre_depth must be at most param_depth, but pre_depth is 300 and param_depth 256",
        ),
        (
            {
                "packed_cache": True,
                "low_rows": 5,
                "array": "tree",
                "zero_points": False,
                "operand_gating": False,
            },
            ValueError,
            "Field low_rows must be at most 4, the rows of 8 behind the first 4, not 5",
        ),
        (
            {
                "rows": 1,
                "packed_cache": True,
                "low_rows": 1,
                "array": "tree",
                "zero_points": False,
                "operand_gating": False,
            },
            ValueError,
            "Field low_rows must be at most 0, the rows of 1 behind the first 1, not 1",
        ),
        *(
            (
                {
                    **{"packed_cache": True, "array": "tree", "pass_width": 4, field: value},
                    **{"zero_points": False, "operand_gating": False},
                },
                ValueError,
                f"Field {field} needs pass_width 8, but {field} is {str(value).lower()} and "
                "pass_width 4",
            )
            for field, value in (("low_rows", 1), ("block_exponents", True))
        ),
        ({"pass_width": 3}, ValueError, "Field pass_width must be 1, 4 or 8, not 3"),
        (
            {"pass_width": 4, "operand_gating": False},
            ValueError,
            "Field pass_width below 8 needs operands 'int8' and gating 'none', but "
            "pass_width is 4, operands 'affine8' and gating 'none'",
        ),
        (
            {"pass_width": 1, "packed": True, "operand_gating": False, "zero_points": False},
            ValueError,
            "No multiplier has packed true and pass_width 1; write multiplier as one of single, "
            "shared, nibbles, shared_nibbles, adders",
        ),
    ],
)
def test_refusals(changes, error, message):
    with pytest.raises(error) as caught:
        PRESETS["small"].replace(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 2}, "Field lanes of a microcoded machine is 1, not 2"),
        ({"zero_points": True}, "Field zero_points of a microcoded machine is false, not true"),
        ({"array": "tree"}, "Field array of a microcoded machine is systolic, not tree"),
        (
            {"mem_width": 64},
            "Field mem_width of a microcoded machine must be at most 32, not 64",
        ),
        (
            {"max_row": 5000},
            "Field max_row of a microcoded machine must be at most 4096, not 5000",
        ),
        (
            {"program_depth": 8000},
            "Fields program_depth + max_row + 64 * table_slots of a microcoded machine must be at "
            "most 8000, not 8256",
        ),
    ],
)
def test_what_microcode_does_not_do_is_refused(changes, message):
    with pytest.raises(ValueError, match="of a microcoded machine") as caught:
        PRESETS["micro"].replace(**changes)
    assert str(caught.value) == message


def test_unknown_fields_are_named():
    known = ", ".join(sorted(PATHS))
    with pytest.raises(ValueError, match="Unknown field 'row'") as caught:
        load("small", ["row=7"])
    assert str(caught.value) == f"Unknown field 'row'; did you mean rows? known are {known}"


@pytest.mark.parametrize(
    ("source", "overrides", "message"),
    [
        (
            "huge",
            [],
            "Unknown configuration 'huge'; use a TOML file or one of micro, tiny, small, medium, "
            "wide, odd, story, story_85f",
        ),
        ("small", ["rows"], "An override must look like FIELD=VALUE, not 'rows'"),
        ("none.toml", [], "Cannot read configuration none.toml: No such file or directory"),
    ],
)
def test_unusable_sources(source, overrides, message):
    with pytest.raises(ValueError, match=r".") as caught:
        load(source, overrides)
    assert str(caught.value) == message
