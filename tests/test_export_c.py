"""The driver and the model in C, on the golden machine and on the circuit."""

import ctypes
import dataclasses
import importlib.util
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.export.c_model import c_files, identifier
from celosia.generators.frontend import digits
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.program.executable import AGAIN
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.model_testbench import golden_outputs
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.host_driver import (
    FLAGS,
    GoldenPort,
    HostDriver,
    SimulatedPort,
    check_languages,
)

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
    ),
]
OK, ABSENT, MEMORY, BUSY, ROWS, FAILED, TIMEOUT = range(7)
DIGITS_ROWS = 16


def export(folder: Path, compiled: Artefact, rows, labels=()) -> list[bytes]:
    """Write the driver and a model, and return the golden outputs."""
    outputs = golden_outputs(compiled, rows)
    for name, text in c_files(compiled, rows, outputs, labels).items():
        (folder / name).write_text(text)
    return [output[: compiled.output_count] for output in outputs]


@cache
def compiled_digits() -> Artefact:
    return compile_digits("digits", PRESETS["tiny"])


def digits_on_tiny(folder: Path):
    """Return the digits' model, three images and their golden outputs, exported to a folder."""
    compiled = compiled_digits()
    images = digits_rows(3)
    return compiled, images, export(folder, compiled, images, tuple("0123456789"))


def digits_rows(count: int):
    return list(digits.patches(digits.load()[1].images[:count]))


def classify(driver: HostDriver, compiled: Artefact, name: str, rows) -> bytes:
    """Return the output for one input, quantized, run and read by the driver."""
    library = driver.library
    model = ctypes.byref(driver.symbol(f"{name}_model"))
    machine = ctypes.byref(driver.accelerator(compiled.memory_bytes))
    source = quantized(driver, compiled, rows)
    output = ctypes.create_string_buffer(compiled.output_count)
    assert library.celosia_run(machine, model, source, len(rows), output) == OK
    return output.raw


def quantized(driver: HostDriver, compiled: Artefact, rows) -> bytes:
    """Return the driver's integers for real rows."""
    tensor = compiled.graph.input
    values = np.ascontiguousarray(rows, np.float32)
    to = ctypes.create_string_buffer(values.size * (2 if tensor.wide else 1))
    data = values.ctypes.data_as(ctypes.c_void_p)
    driver.library.celosia_quantize(
        ctypes.byref(c_tensor(tensor)), data, ctypes.c_size_t(values.size), to
    )
    return to.raw


class Tensor(ctypes.Structure):
    """The driver's ``celosia_tensor_t``."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("addr", "rows", "columns", "bits")),
        ("zero", ctypes.c_int32),
        ("scale", ctypes.c_double),
    )


def c_tensor(tensor) -> Tensor:
    return Tensor(0, tensor.rows, tensor.columns, tensor.width, tensor.zero, tensor.scale)


def test_the_golden_machine_classifies_through_the_driver(tmp_path: Path) -> None:
    compiled, images, expected = digits_on_tiny(tmp_path)
    port = GoldenPort(Interpreter(compiled.config))
    driver = HostDriver(tmp_path, port)
    library, model = driver.library, ctypes.byref(driver.symbol("digits_model"))
    small = ctypes.byref(driver.accelerator(compiled.memory_bytes - 1))
    machine = ctypes.byref(driver.accelerator(compiled.memory_bytes, polls=2))
    assert library.celosia_load(small, model) == MEMORY
    assert library.celosia_load(machine, model) == OK
    outputs = [classify(driver, compiled, "digits", image) for image in images]
    assert outputs == expected
    # One poll less than a run takes, and what is refused while one goes on.
    source = quantized(driver, compiled, images[0])
    output = ctypes.create_string_buffer(compiled.output_count)
    assert library.celosia_run(machine, model, source, DIGITS_ROWS, output) == TIMEOUT
    assert port.aborted == 1
    assert library.celosia_begin(machine, model, source, DIGITS_ROWS - 1) == ROWS
    assert library.celosia_begin(machine, model, source, DIGITS_ROWS) == OK
    assert library.celosia_begin(machine, model, source, DIGITS_ROWS) == BUSY
    assert library.celosia_end(machine, model, output) == BUSY
    while library.celosia_busy(machine):
        pass
    port.status = 2
    assert library.celosia_end(machine, model, output) == FAILED
    assert output.raw == bytes(compiled.output_count)
    port.status = 0
    assert library.celosia_end(machine, model, output) == OK
    assert output.raw == expected[0]


def test_what_is_no_accelerator_is_not_written_to(tmp_path: Path) -> None:
    compiled, _, _ = digits_on_tiny(tmp_path)
    port = GoldenPort(Interpreter(compiled.config))
    port.read = lambda name: 0 if name != "ID" else 0x1234
    port.write = lambda name, value: pytest.fail(f"{name} was written")
    driver = HostDriver(tmp_path, port)
    machine = ctypes.byref(driver.accelerator(compiled.memory_bytes))
    assert (
        driver.library.celosia_load(machine, ctypes.byref(driver.symbol("digits_model"))) == ABSENT
    )


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_the_circuit_classifies_through_the_driver(tmp_path: Path) -> None:
    compiled, images, expected = digits_on_tiny(tmp_path)
    with_machine = VerilatorMachine(compiled.config, memory_bytes=1 << 16)
    driver = HostDriver(tmp_path, SimulatedPort(with_machine))
    machine = ctypes.byref(driver.accelerator(compiled.memory_bytes))
    model = ctypes.byref(driver.symbol("digits_model"))
    assert driver.library.celosia_load(machine, model) == OK
    assert [classify(driver, compiled, "digits", image) for image in images] == expected
    driver.library.celosia_cycles.restype = ctypes.c_uint64
    cycles = driver.library.celosia_cycles(machine)
    assert cycles == with_machine.read_register("CYCLES_LOW") > 10_000
    # A run that is aborted leaves the model loaded.
    hurried = ctypes.byref(driver.accelerator(compiled.memory_bytes, polls=100))
    source = quantized(driver, compiled, images[1])
    output = ctypes.create_string_buffer(compiled.output_count)
    assert driver.library.celosia_run(hurried, model, source, DIGITS_ROWS, output) == TIMEOUT
    assert classify(driver, compiled, "digits", images[2]) == expected[2]


def variable_model() -> Artefact:
    """Return a model of inputs of 1 to 6 rows, whose mean is over the rows that there are."""
    rng = np.random.default_rng(2)
    model = ModelDescription(
        name="of 1 to 6 rows",
        tokens=6,
        features=3,
        dim=8,
        layers=1,
        heads=2,
        ffn=12,
        classes=5,
        variable=True,
    )
    samples = random_inputs(rng, model, 8)
    return compile_model(model, random_weights(rng, model), samples, PRESETS["tiny"])


def test_inputs_may_have_fewer_rows(tmp_path: Path) -> None:
    compiled = variable_model()
    rng = np.random.default_rng(3)
    inputs = [rng.normal(0, 1, (rows, 3)).astype(np.float32) for rows in (6, 1, 4)]
    expected = export(tmp_path, compiled, inputs)
    port = GoldenPort(Interpreter(compiled.config))
    driver = HostDriver(tmp_path, port)
    machine = ctypes.byref(driver.accelerator(compiled.memory_bytes))
    model = ctypes.byref(driver.symbol("of_1_to_6_rows_model"))
    assert driver.library.celosia_load(machine, model) == OK
    outputs = [classify(driver, compiled, "of_1_to_6_rows", rows) for rows in inputs]
    assert outputs == expected
    # Weights stay on the chip, until something is aborted.
    again = compiled.entries[AGAIN].pc
    assert port.starts == [0, again, again]
    driver.library.celosia_abort(machine)
    assert [classify(driver, compiled, "of_1_to_6_rows", inputs[0]) for _ in range(2)] == [
        expected[0]
    ] * 2
    assert port.starts[3:] == [0, again]
    # The samples are the inputs, filled with zeros, and the same outputs.
    samples = (ctypes.c_float * (3 * 18)).in_dll(driver.library, "of_1_to_6_rows_sample_inputs")
    np.testing.assert_array_equal(samples[18:21], inputs[1].ravel())
    assert list(samples[21:36]) == [0.0] * 15
    kept = (ctypes.c_int16 * (3 * 5)).in_dll(driver.library, "of_1_to_6_rows_sample_outputs")
    assert np.array(kept, "<i2").tobytes() == b"".join(expected)


@pytest.mark.parametrize(("width", "zero"), [(8, -128), (8, 3), (16, 0), (4, 0)])
def test_quantizing_in_c_is_quantizing_in_python(driver_alone, width: int, zero: int) -> None:
    compiled, library = driver_alone
    tensor = dataclasses.replace(compiled.graph.input, width=width, zero=zero, scale=0.0625)
    model = dataclasses.replace(compiled.graph, input=tensor)
    rng = np.random.default_rng(4)
    ties = (np.arange(-300, 300) + 0.5) * tensor.scale
    beyond = [3e38, -3e38, np.inf, -np.inf, 0.0, -0.0, 1e-40, 131072 * tensor.scale]
    values = np.concatenate([rng.normal(0, 3000, 2000), rng.normal(0, 9, 2000), ties, beyond])
    values = values.astype(np.float32)
    expected = model.quantize_input(values)
    to = np.zeros_like(expected)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (values, to)]
    count = ctypes.c_size_t(values.size)
    library.celosia_quantize(ctypes.byref(c_tensor(tensor)), pointers[0], count, pointers[1])
    np.testing.assert_array_equal(to, expected)
    assert len(np.unique(expected)) > 15


def test_dequantizing_in_c_is_dequantizing_in_python(driver_alone) -> None:
    compiled, library = driver_alone
    output = compiled.graph.output
    values = np.arange(-32768, 32768, 7).astype("<i2")
    to = np.zeros(values.size, np.float32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (values, to)]
    count = ctypes.c_size_t(values.size)
    library.celosia_dequantize(ctypes.byref(c_tensor(output)), pointers[0], count, pointers[1])
    expected = compiled.graph.dequantize_output(values).astype(np.float32)
    np.testing.assert_array_equal(to, expected)
    row = np.array([3, -5, 90, 90, -100, 7, 0, 0, 0, 89], "<i2")
    place = row.ctypes.data_as(ctypes.c_void_p)
    assert library.celosia_largest(ctypes.byref(c_tensor(output)), place) == 2


@pytest.fixture(scope="module")
def driver_alone(tmp_path_factory) -> tuple[Artefact, ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("driver")
    compiled = variable_model()
    export(folder, compiled, [np.zeros((1, 3), np.float32)])
    return compiled, HostDriver(folder, GoldenPort(Interpreter(compiled.config))).library


def test_the_files_stand_alone_in_strict_c(tmp_path: Path) -> None:
    digits_on_tiny(tmp_path)
    command = ["gcc", *FLAGS, "-ffreestanding", "-c", *map(str, sorted(tmp_path.glob("*.c")))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    check_languages(tmp_path, "digits")


def test_names_become_identifiers() -> None:
    assert [identifier(name) for name in ("digits", "my-model 2", "2b", "a/b.onnx")] == [
        "digits",
        "my_model_2",
        "_2b",
        "a_b_onnx",
    ]
