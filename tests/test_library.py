"""The library: its names, and the example of its page for an encoder and a decoder."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import celosia
import celosia as library
from celosia.generators.frontend.source import Source
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.models.run_inputs import cosine

ROOT = Path(__file__).parents[1]
NAMES = [
    *("Config", "InputError", "Model", "Program", "Run", "RunError", "build", "compile", "config"),
    *("golden", "hdl", "load", "open"),
]
PARTS = ["Accelerator", "AddNorm", "Requantize", "Rotary", "Softmax", "SystolicArray", "Table"]


@pytest.fixture(scope="module")
def digits() -> celosia.Program:
    return celosia.compile(celosia.load("digits"), celosia.config("small"))


@pytest.fixture(scope="module")
def tales() -> celosia.Program:
    model = celosia.load("tales")
    return celosia.compile(model, calibration=model.examples(4), context=64)


def test_the_names_are_these_and_documented() -> None:
    assert celosia.__all__ == dir(celosia) == NAMES
    assert celosia.hdl.__all__ == dir(celosia.hdl) == PARTS
    for module in (celosia, celosia.hdl, celosia.golden):
        stub = Path(module.__file__).with_suffix(".pyi")
        for name in module.__all__:
            assert getattr(module, name).__doc__, name
            assert not stub.exists() or f" as {name}\n" in stub.read_text(), name
    with pytest.raises(AttributeError, match="module 'celosia' has no attribute 'lode'"):
        _ = celosia.lode
    with pytest.raises(AttributeError, match=r"module 'celosia\.hdl' has no attribute 'Array'"):
        _ = celosia.hdl.Array


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, celosia; print(*(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert "celosia" in names
    assert not names & {"numpy", "amaranth", "click", "safetensors", "jinja2"}


def test_a_simulation_needs_no_extra_of_boards() -> None:
    code = "import sys; sys.modules['serial'] = None; import celosia; celosia.Program"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_an_encoder(digits: celosia.Program, tmp_path: Path) -> None:
    model = digits.model
    inputs = model.examples(2)
    run = digits.run(inputs, on="verilator")
    assert (run.mismatches, len(run.outputs)) == (0, 2)
    assert run.tensors > 50
    assert run.cycles > digits.cycles > 0 < digits.words < digits.bytes
    for output, exact in zip(run.outputs, model.floats(inputs), strict=True):
        assert output.shape == exact.shape == (1, 10)
        assert output.argmax() == exact.argmax()
        assert cosine(output, exact) > 0.99
    outputs = digits.run(inputs)
    assert (outputs.cycles, outputs.mismatches) == (None, 0)
    assert outputs.tensors > 30
    np.testing.assert_array_equal(outputs.outputs, run.outputs)

    opened = celosia.open(digits.save(tmp_path / "out"))
    assert (opened.cycles, opened.words, opened.bytes) == (
        digits.cycles,
        digits.words,
        digits.bytes,
    )
    rows = [model.source.rows(sample) for sample in model.prepared(inputs)]
    again = opened.run(rows, on="verilator")
    assert (again.cycles, again.mismatches, again.tensors) == (run.cycles, 0, run.tensors)
    np.testing.assert_array_equal(again.outputs, run.outputs)
    whole = celosia.open(tmp_path / "out", model=model).run(inputs)
    np.testing.assert_array_equal(whole.outputs, run.outputs)
    with pytest.raises(celosia.InputError, match="was opened from a folder, without its float mod"):
        opened.compare(rows)
    with pytest.raises(celosia.InputError, match="must be real numbers, not complex128"):
        opened.run([1j * rows[0]])


def test_inputs_of_other_packages(digits: celosia.Program) -> None:
    """As tensors of PyTorch, which are arrays but no sequences."""

    class Tensor:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.zeros((2, 16, 4))

    assert len(digits.model.floats(Tensor())) == 2
    with pytest.raises(celosia.InputError, match=r"takes a sequence of inputs, not \{") as some:
        digits.model.floats(set(range(99)))
    assert len(str(some.value)) < 150


def test_a_decoder(tales: celosia.Program, tmp_path: Path) -> None:
    texts = tales.model.examples(2)
    run = tales.run(texts, on="verilator")
    assert (run.mismatches, run.cycles > tales.cycles) == (0, True)
    assert run.tensors > 40
    for output, exact in zip(run.outputs, tales.model.floats(texts), strict=True):
        assert (output.shape, exact.shape) == ((30,), (8, 30))
        assert output.argmax() == exact[-1].argmax()
        assert cosine(output, exact[-1]) > 0.99
    pieces = list(tales.generate("one day", steps=6, on="verilator"))
    assert len("".join(pieces)) == 6
    opened = celosia.open(tales.save(tmp_path / "out"))
    assert list(opened.generate("one day", steps=6)) == pieces
    np.testing.assert_array_equal(opened.run(texts).outputs, run.outputs)
    assert opened.cycles == tales.cycles


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    encoder, decoder, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    vibration = ROOT / "examples" / "vibration"
    shutil.copy(vibration / "vibration.onnx", tmp_path / "my.onnx")
    shutil.copy(vibration / "calibration.npy", tmp_path / "samples.npy")
    monkeypatch.chdir(tmp_path)
    # The same circuit as in other tests.
    assert 'celosia.config("small", rows=4)' in encoder
    samples = np.load("samples.npy")
    own = celosia.config("small", rows=4)
    assert celosia.compile(celosia.load("my.onnx"), own, calibration=samples).config == own
    encoder = encoder.replace("rows=4", f"rows={celosia.config('small').array.rows}")
    exec(compile(encoder, "encoder", "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"mismatches +\| 0 ", printed)
    assert re.search(r"^\| layer +\| error +\| option", printed, re.MULTILINE)
    exec(compile(decoder, "decoder", "exec"), {"celosia": celosia})
    assert len(capsys.readouterr().out) == 8
    assert (tmp_path / "tales" / "celosia_accelerator_tb.v").is_file()


def test_a_layer_has_the_option_that_lowers_its_error(
    digits: celosia.Program, tales: celosia.Program
) -> None:
    for program in (digits, tales):
        lines = program.compare(program.model.examples(2)).lines()
        assert [line["layer"] for line in lines] == ["embedding", "layer 0", "layer 1", "output"]
        named = [line for line in lines if line["option"] is not None]
        assert named
        for line in named:
            assert line["error with it"] < line["error"] < 0.2
            assert re.fullmatch(r"\w+=\S+", line["option"])


def test_an_export_has_what_was_asked_for(digits: celosia.Program, tmp_path: Path) -> None:
    folder = digits.export(tmp_path, c=True, testbench=True)
    names = {path.name for path in folder.iterdir()}
    assert {"model.json", "celosia_accelerator.v", "celosia_accelerator_tb.v"} <= names
    assert {"digits_model.c", "digits_samples.c", "celosia.h"} <= names


def test_objects_are_tables(digits: celosia.Program) -> None:
    for shown in (digits, digits.model, digits.run(digits.model.examples(1))):
        lines = shown._repr_markdown_().split("\n")
        assert repr(shown).split("\n") == lines
        assert re.fullmatch(r"\| -+ \| -+ \|", lines[1])
        assert len({len(line) for line in lines}) == 1
    assert re.search(r"^\| words +\| [\d,]+ +\|$", repr(digits), re.MULTILINE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.run([[1, 2]]), "must have the shape"),
        (lambda p: p.run(5), "Model digits takes a sequence of inputs, not 5"),
        (lambda p: p.run(np.array(5)), r"digits takes a sequence of inputs, not array\(5\)"),
        (lambda p: p.run(np.full((1, 16, 4), 1j)), "must be real numbers, not complex128"),
        (
            lambda p: p.run(p.model.examples(1), on="verilatr"),
            "Unknown machine 'verilatr'; did you mean veril",
        ),
        (lambda p: next(p.generate("one")), "Program digits is an encoder, which generates no te"),
        (
            lambda p: celosia.compile(p.model, kv_bit=4),
            "Unknown option 'kv_bit'; did you mean kv_bits",
        ),
        (lambda p: p.run(np.full((1, 16, 4), np.nan)), "digits must be finite numbers, but one is"),
        (lambda p: p.model.floats([[[np.inf] * 4] * 16]), "but one is inf; replace it, as numpy"),
        (lambda p: p.run(np.ma.masked_less(np.eye(16, 4)[None], 1)), "digits has masked numbers"),
        (lambda p: p.model.floats([[[1, 2], [3]]]), "digits is no array: setting an array element"),
        (
            lambda p: celosia.load("tales").floats([np.ma.masked_less([1, 2], 2)]),
            "tales has masked",
        ),
        (lambda p: celosia.compile("digits"), "model must be one of celosia.load, not 'digits'"),
        (lambda p: celosia.compile(p.model, "small"), "must be one of celosia.config, not 'small'"),
        (lambda p: celosia.compile(p.model, group="a"), "group must be an integer, not 'a'"),
        (lambda p: celosia.compile(p.model, group=True), "group must be an integer, not True"),
        (lambda p: celosia.compile(p.model, balance="a"), "balance must be a number, not 'a'"),
        (lambda p: celosia.compile(p.model, sparse=1), "sparse must be true or false, not 1"),
        (lambda p: celosia.compile(p.model, loss="1"), "loss must be a number, not '1'"),
        (
            lambda p: celosia.compile(p.model, loss=np.nan),
            "Loss must be a number from 0 on, not nan",
        ),
        (
            lambda p: celosia.compile(p.model, loss=1, weights="int4"),
            "Option loss searches the format of each matrix, so weights must be int8, not int4",
        ),
        (
            lambda p: celosia.compile(p.model, group=8),
            "Option group=8 needs a format of fewer bits in weights, which is int8",
        ),
        (lambda p: celosia.compile(p.model, deferred=True), "deferred is for language models"),
        (lambda p: celosia.compile(p.model, kv_bits=4), "kv_bits is for language models, which"),
        (lambda p: celosia.compile(p.model, sinks=2), "sinks is for language models, which"),
        (lambda p: celosia.compile(celosia.load("tales"), search=3), "Option search must be"),
        (
            lambda p: celosia.compile(p.model, chosen={"layers.0.key": "int4"}),
            r"has no weight 'layers\.0\.key'; did you mean layers\.0\.key\.",
        ),
        (
            lambda p: celosia.compile(celosia.load("tales"), percentile=99),
            "percentile is for encoders, which model tales is not",
        ),
        (lambda p: celosia.config("small", row=4), "Unknown field 'row'"),
        (lambda p: celosia.load("digits", tokenizer="x"), "is an encoder; leave out tokenizer x"),
        (lambda p: celosia.load("tales", tokens=9), "leave out tokens, which is 9"),
        (lambda p: celosia.build(board="x", out="y"), "Unknown board 'x'"),
        (
            lambda p: celosia.build(board="ulx3s_85f", out="y", clock_mhz=np.nan),
            "clock must be above 0 and at most 1000 MHz, not nan",
        ),
        (
            lambda p: celosia.open("y", model=5),
            "Argument model must be one of celosia.load, not 5",
        ),
    ],
)
def test_wrong_input_is_named(digits: celosia.Program, call, message: str) -> None:
    with pytest.raises(celosia.InputError, match=message):
        call(digits)


WRONG: list[tuple[Callable[[celosia.Program, Any], object], str, list[Any]]] = [
    (lambda _, value: celosia.config(value), "source", [None, 5]),
    (lambda _, value: celosia.load(value), "model", [None, 5]),
    (lambda _, value: celosia.load("tales", tokenizer=value), "tokenizer", [5, True]),
    (lambda _, value: celosia.load("digits", tokens=value), "tokens", [-1, None, True, "9"]),
    (lambda _, value: celosia.open(value), "folder", [None, 5]),
    (lambda _, value: celosia.open("no", floats=value), "floats", [1, "a"]),
    (lambda _, value: celosia.compile(value), "model", [None, "tales"]),
    (lambda p, value: celosia.compile(p.model, bits=value), "bits", [None, 8.0]),
    (lambda p, value: celosia.compile(p.model, fixed=value), "fixed", [1]),
    (lambda p, value: celosia.compile(p.model, memory_bytes=value), "memory_bytes", [0, 1.5]),
    (lambda _, value: celosia.build(value, board="ulx3s_85f", out="y"), "config", [5, "tiny"]),
    (lambda _, value: celosia.build(board=value, out="y"), "board", [None, 5]),
    (lambda _, value: celosia.build(board="ulx3s_85f", out=value), "out", [None, 5]),
    (lambda _, value: celosia.build(board="ulx3s_85f", out="y", seeds=value), "seeds", [0, 1.5]),
    (lambda p, value: p.model.examples(value), "count", [0, -1, True, 1.5, None]),
    (lambda p, value: p.run([[1]], on=value), "on", [5, None]),
    (lambda p, value: p.run([[1]], timing=value), "timing", [5, None]),
    (lambda p, value: p.predicted(value), "timing", [40, None]),
    (lambda p, value: p.generate(value), "text", [5, None, ["one"]]),
    (lambda p, value: p.generate("one", steps=value), "steps", [0, -1, True, 1.5, None]),
    (lambda p, value: p.generate("one", seed=value), "seed", [-1, True, 1.5, None]),
    (lambda p, value: p.generate("one", temperature=value), "temperature", ["1", None, True]),
    (lambda p, value: p.generate("one", top_p=value), "top_p", ["1", None]),
    (lambda p, value: p.save(value), "folder", [None, 5]),
    (lambda p, value: p.export("y", steps=value), "steps", [0, 1.5]),
    (lambda p, value: p.export("y", c=value), "c", [1, "no"]),
    (lambda _, value: celosia.hdl.Accelerator(value), "config", [5, None]),
    (lambda _, value: celosia.hdl.Softmax(lanes=value, max_row=8), "lanes", ["2", None, 1.5]),
    (lambda _, value: celosia.hdl.Table(lanes=2, level=value), "level", [5]),
]


@pytest.mark.parametrize(("call", "name", "values"), WRONG)
def test_types_and_ranges_of_arguments_are_checked(
    tales: celosia.Program, call: Callable, name: str, values: list
) -> None:
    for value in values:
        with pytest.raises(celosia.InputError, match=f"^Argument {name} must be .*{value}"):
            call(tales, value)


def test_prompts_of_an_export_are_texts(tales: celosia.Program, tmp_path: Path) -> None:
    for wrong, message in ((5, "takes a sequence of inputs"), ([[1]], "must be a string")):
        with pytest.raises(celosia.InputError, match=message):
            tales.export(tmp_path, c=True, inputs=wrong)


def test_a_language_model_takes_no_rows(tales: celosia.Program) -> None:
    with pytest.raises(celosia.InputError, match=r"a language model, which reads tokens; use run$"):
        tales.infer([np.zeros((2, 3))], "golden", FAR)


def test_numbers_of_numpy_are_arguments(tales: celosia.Program) -> None:
    assert len(tales.model.examples(np.int64(2))) == 2
    assert list(tales.generate("one", steps=np.int32(2), temperature=np.float32(0)))


def test_more_examples_than_images_begin_anew(digits: celosia.Program) -> None:
    some = digits.model.examples(1000)
    assert len(some) == 1000
    assert any(np.array_equal(some[0], other) for other in some[1:])


def test_a_folder_is_opened_with_its_own_model_only(
    digits: celosia.Program, tales: celosia.Program, tmp_path: Path
) -> None:
    for program, other in ((digits, "digits-int4"), (tales, "tales-sparse")):
        folder = program.save(tmp_path / program.name)
        assert celosia.open(folder, model=program.model).model is program.model
        with pytest.raises(celosia.InputError, match=f"was compiled from model {program.name}, an"):
            celosia.open(folder, model=celosia.load(other))


@pytest.mark.parametrize("words", ["inspect", "evaluate", "evaluate --text README.md"])
def test_a_command_for_float_models_refuses_a_program(
    celosia, digits: library.Program, tales: library.Program, tmp_path: Path, words: str
) -> None:
    for program in (digits, tales):
        folder = program.save(tmp_path / program.name)
        code, output, errors = celosia(*words.split(), folder)
        assert (code, output) == (2, "")
        sentence = f"celosia: Folder {folder} holds a compiled program and no float model; run it"
        assert errors.startswith(sentence)


def test_a_driver_takes_as_many_prompts_as_a_run(tales: celosia.Program, tmp_path: Path) -> None:
    with pytest.raises(celosia.InputError, match="tales is compiled for 1 text, not 2"):
        tales.export(tmp_path, verilog=False, c=True, inputs=["one", "two"])


def test_random_inputs_to_calibrate_on_are_warned_about() -> None:
    model = celosia.load(ROOT / "examples" / "vibration" / "vibration.onnx")
    assert isinstance(model.source, Source)
    with pytest.warns(UserWarning, match="is calibrated on random inputs; give inputs like those"):
        program = celosia.compile(model, search=False)
    assert program.run(model.examples(1)).mismatches == 0


def test_parts_are_made_of_keywords() -> None:
    array = celosia.hdl.SystolicArray(rows=8, cols=4)
    assert (array.config.array.rows, array.config.array.cols, array.latency > 8) == (8, 4, True)
    assert celosia.hdl.Softmax(lanes=4, max_row=64).signature.members["i"]
    assert celosia.hdl.AddNorm(lanes=4, max_row=64).max_row == 64
    assert type(celosia.hdl.Accelerator(celosia.config("tiny"))).__name__ == "Accelerator"
    with pytest.raises(celosia.InputError, match="Unknown field 'sloths'"):
        celosia.hdl.SystolicArray(rows=8, cols=4, sloths=2)
    assert celosia.hdl.SystolicArray(rows=2, cols=2, acc_width=20).config.accumulators.width == 20
    scores = celosia.golden.softmax(np.array([256, 0, 0, 0]))
    assert scores.tolist() == [6710912, 3355456, 3355456, 3355456]


@pytest.mark.parametrize(
    ("part", "sizes", "message"),
    [
        ("Requantize", {"multiplier_width": 0}, "multiplier_width must be 16 or 32 bits, not 0"),
        ("Rotary", {"lanes": 2, "operand_width": 0}, "operand_width must be from 2 to 16 bits"),
        ("Rotary", {"lanes": 2, "operand_width": 17}, "operand_width must be from 2 to 16 bits"),
        ("Softmax", {"lanes": 2, "max_row": 8, "factors": -1}, "factors must be from 0 to 256"),
        ("SystolicArray", {"rows": 2, "cols": 2, "acc_width": 16}, "acc_width must be at least 17"),
    ],
)
def test_a_part_refuses_sizes_that_it_cannot_have(part: str, sizes: dict, message: str) -> None:
    with pytest.raises(celosia.InputError, match=message):
        getattr(celosia.hdl, part)(**sizes)
