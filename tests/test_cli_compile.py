"""celosia compile: the files of a model, used as others would use them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS, load
from celosia.cli.compile import slow_testbench
from celosia.generators.frontend import digits
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.hdl.machine import machine_component
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.model_testbench import golden_outputs, model_testbench
from celosia.tb.models.plain_testbench import TOP, Attachment
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.small_model import MODEL, model_folder

needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
ON_DISK = {"program.hex", "program.bin", "image.bin", "config.toml", "model.json"}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return model_folder(tmp_path)


def classify(folder: Path, rows: np.ndarray) -> np.ndarray:
    """Return a model's output by the files alone, on the golden machine."""
    described = json.loads((folder / "model.json").read_text())
    machine = Interpreter(load(str(folder / "config.toml")))
    (setup,) = described["setup"]
    machine.write_memory(0, (folder / setup["image"]).read_bytes())
    words = np.fromfile(folder / "program.bin", "<u4").tolist()
    assert [int(line, 16) for line in (folder / "program.hex").read_text().split()] == words
    machine.load_program(words)
    (request,) = (
        candidate for candidate in described["requests"] if candidate["rows"] == len(rows)
    )
    source, output = described["input"], described["output"]
    real = np.zeros((source["rows"], source["columns"]))
    real[: len(rows)] = rows
    levels = np.rint(real / source["scale"]) + source["zero_point"]
    data = np.clip(levels, -128, 127).astype(source["type"]).tobytes()
    machine.write_memory(source["addr"], data)
    for write in request["writes"]:
        machine.write_memory(write["addr"], bytes.fromhex(write["hex"]))
    for name, value in request["registers"].items():
        machine.set_register(int(name.removeprefix("R")), value)
    machine.start(described["program"]["entries"][described["start"]])
    kind = np.dtype(output["type"]).newbyteorder("<")
    count = output["rows"] * output["columns"] * kind.itemsize
    integers = np.frombuffer(machine.read_memory(output["addr"], count), kind)
    shape = (output["rows"], output["columns"])
    return output["scale"] * (integers.reshape(shape) - float(output["zero_point"]))


def test_the_files_are_all_that_a_host_needs(celosia, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, output, errors = celosia("compile", "digits", "--config", "small", "--out", out, "--json")
    assert (code, errors) == (0, "")
    result = json.loads(output)
    assert {path.name for path in out.iterdir()} == ON_DISK == set(result["files"])
    described = json.loads((out / "model.json").read_text())
    assert described["labels"] == list("0123456789")
    assert described["cycles"] == result["predicted_cycles"]
    assert described["registers"]["STATUS"] == 8
    compiled = compile_digits("digits", PRESETS["small"])
    for image in digits.patches(digits.load()[1].images[:3]):
        data = golden_outputs(compiled, [image])[0][: compiled.output_count]
        np.testing.assert_array_equal(classify(out, image), compiled.read_output(data))


def test_a_folder_has_the_files_of_one_model_and_the_users(celosia, mine: Path) -> None:
    out = mine / "out"
    words = ("--config", "tiny", "--out", out)
    options = ("--inputs", mine / "inputs.npy", "--count", "1", "--add", "c")
    assert celosia("compile", mine, *options, *words)[0] == 0
    first = {path.name for path in out.iterdir()}
    (own,) = out.glob("*_samples.c")
    own.write_text("/* changed by the user */")
    (out / "notes.txt").write_text("mine")
    # A file that a manifest names is removed from no other folder.
    manifest = json.loads((out / "model.json").read_text())
    outside = hashlib.sha256((mine / "names.txt").read_bytes()).hexdigest()
    manifest["files"]["../names.txt"] = outside
    (out / "model.json").write_text(json.dumps(manifest))
    assert celosia("compile", "digits", *words)[0] == 0
    assert {path.name for path in out.iterdir()} == ON_DISK | {own.name, "notes.txt"}
    assert len(first) > len(ON_DISK) + 5
    assert (mine / "names.txt").is_file()


def test_a_batch_is_one_run(celosia, tmp_path: Path) -> None:
    words = ("--batch", "2", "--add", "c", "--count", "3", "--out", tmp_path)
    code, _, errors = celosia("compile", "digits", "--config", "small", *words)
    assert (code, errors) == (0, "")
    described = json.loads((tmp_path / "model.json").read_text())
    assert (described["batch"], described["input"]["rows"], described["output"]["rows"]) == (
        2,
        32,
        2,
    )
    alone = compile_digits("digits", PRESETS["small"])
    images = digits.patches(digits.load()[1].images[:2])
    outputs = golden_outputs(alone, images)
    expected = np.vstack([alone.read_output(data[: alone.output_count]) for data in outputs])
    np.testing.assert_array_equal(classify(tmp_path, np.concatenate(images)), expected)
    header = (tmp_path / "digits_model.h").read_text()
    # The second run has the third image twice.
    assert "DIGITS_SAMPLES 2\n" in header
    assert "DIGITS_OUTPUTS 20\n" in header


def test_an_input_of_fewer_rows_needs_registers_and_memory(celosia, mine: Path) -> None:
    words = ("compile", mine, "--config", "tiny", "--inputs", mine / "inputs.npy")
    code, _, errors = celosia(*words, "--names", mine / "names.txt", "--out", mine / "out")
    assert (code, errors) == (0, "")
    described = json.loads((mine / "out" / "model.json").read_text())
    assert described["labels"] == ["one", "two", "three"]
    assert [request["rows"] for request in described["requests"]] == [1, 2, 3, 4, 5]
    assert all(request["registers"] and request["writes"] for request in described["requests"])
    inputs = np.load(mine / "inputs.npy")
    long, short = (classify(mine / "out", inputs[0, :rows]) for rows in (5, 2))
    assert not np.array_equal(long, short)


@needs_icarus
def test_the_testbench_runs_the_model_on_its_inputs(celosia, plain_simulation, mine: Path) -> None:
    words = ("compile", mine, "--config", "tiny", "--inputs", mine / "inputs.npy", "--count", "2")
    out = mine / "out"
    code, _, errors = celosia(
        *words, "--add", "testbench", "--control", "wishbone", "--top", "mine", "--out", out
    )
    assert (code, errors) == (0, "")
    lines = plain_simulation(out, "mine").splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("PASS: 2 runs, ")


@pytest.mark.parametrize(
    ("config", "cycles", "offered"),
    [
        ("small", 12_000, None),
        ("small", 70_000, "about 5 minutes under Icarus"),
        ("medium", 67_969, "about 19 minutes under Icarus"),
        ("micro", None, None),
    ],
)
def test_a_testbench_that_takes_minutes_offers_verilator(
    config: str, cycles: int | None, offered: str | None
) -> None:
    offer = slow_testbench(PRESETS[config], cycles, "mine")
    if offered is None:
        assert offer is None
    else:
        assert offer is not None
        assert offered in offer
        assert offer.endswith("verilator --binary --x-initial unique mine_tb.v mine.v")


@needs_icarus
def test_the_testbench_sets_what_shorter_inputs_need(plain_simulation, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    samples = random_inputs(rng, MODEL, 8)
    compiled = compile_model(MODEL, random_weights(rng, MODEL), samples, PRESETS["tiny"])
    inputs = [rng.normal(0, 1, (rows, 3)) for rows in (5, 2)]
    files = model_testbench(compiled, inputs, Attachment(), TOP)
    (tmp_path / "celosia_accelerator.v").write_text(
        kept_verilog(machine_component(compiled.config), "celosia_accelerator")
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert plain_simulation(tmp_path).splitlines()[-1].startswith("PASS: 2 runs, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (),
            "Model {mine} needs inputs to calibrate on; give them with --inputs or --calibration, ",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--count", "9", "--add", "c"),
            "Count of inputs must be from 1 to 8, not 9",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--names", "{mine}/model.toml"),
            "Names {mine}/model.toml must have 3 lines, not {lines}",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--names", "{mine}/no.txt"),
            "Cannot read names {mine}/no.txt: No such file or directory",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--names", "{mine}/inputs.npy"),
            "File {mine}/inputs.npy is not UTF-8 text",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--bus", "axi4"),
            "Options --bus and --control need --add verilog or testbench",
        ),
        (
            ("--inputs", "{mine}/inputs.npy", "--set", "program_depth=16"),
            "needs a program of at least",
        ),
        (("--inputs", "{mine}/no.npy"), "Cannot read inputs {mine}/no.npy"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    celosia, mine: Path, words: tuple[str, ...], message: str
) -> None:
    out = mine / "out"
    out.mkdir()
    (out / "program.hex").write_text("kept")
    lines = len((mine / "model.toml").read_text().splitlines())
    options = [word.format(mine=mine) for word in words]
    result = celosia("compile", mine, "--config", "tiny", *options, "--out", out)
    assert result[0] == 2
    assert result[1] == ""
    assert result[2].startswith("celosia: ")
    assert result[2].count("\n") == 1
    assert message.format(mine=mine, lines=lines) in result[2]
    assert [path.name for path in out.iterdir()] == ["program.hex"]
    assert (out / "program.hex").read_text() == "kept"


def test_a_folder_in_the_place_of_a_file_loses_nothing(celosia, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "image.bin").mkdir(parents=True)
    code, _, errors = celosia("compile", "digits", "--config", "tiny", "--out", out)
    assert (code, errors) == (2, f"celosia: Cannot write {out / 'image.bin'}: it is a folder\n")
    assert [path.name for path in out.iterdir()] == ["image.bin"]


def test_a_language_model_is_for_another_command(celosia) -> None:
    file = Path(__file__).parents[1] / "examples" / "stories260k" / "stories260K.bin"
    code, _, errors = celosia("trace", file)
    assert (code, errors) == (
        2,
        f"celosia: Model {file} is a language model; run it with: celosia run {file}\n",
    )
    code, _, errors = celosia("trace", "tales")
    assert (code, errors) == (
        2,
        "celosia: Model tales is a language model; run it with: celosia run tales\n",
    )
