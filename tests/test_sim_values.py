"""Edge values of small golden models: tables, weights as they are stored, sparse codes, images."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.formats import FORMATS
from celosia.arch.instruction import pack
from celosia.arch.power_on import REFUSALS, Refusal, seal
from celosia.arch.presets import PRESETS
from celosia.sim import sparse
from celosia.sim.formats import pack as packed
from celosia.sim.formats import unpack
from celosia.sim.interpreter import Interpreter
from celosia.sim.power_on import power_on
from celosia.sim.table import lookup

SMALL = PRESETS["small"]


@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_a_table_has_an_entry_for_each_byte(kind) -> None:
    table, x = np.random.default_rng(1).permutation(256) - 128, np.arange(-128, 128, dtype=kind)
    found = lookup(table.astype(np.int8), x.reshape(2, 128))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.ravel(), table)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("group", [0, 8])
def test_stored_codes_are_operands_again(name: str, group: int) -> None:
    """The operands are the format's values, times their group's scale if there is one."""
    rng, form = np.random.default_rng(2), FORMATS[name]
    k, n = 21, 3
    codes = rng.integers(0, len(form.values), (k, n))
    values = np.array(form.values)[codes]
    scales = rng.integers(0, 256, (-(-k // 8), n)) if group else None
    stored = packed(codes, form, group, scales)
    operands = unpack(stored, k, form, group)
    assert operands.dtype == np.int64
    if scales is None:
        np.testing.assert_array_equal(operands, values)
    else:
        exact = np.floor(values * scales.repeat(8, axis=0)[:k] / 2**form.fraction + 0.5)
        np.testing.assert_array_equal(operands, (exact + 128) % 256 - 128)


def test_a_sparse_code_counts_the_zeros_that_it_skips() -> None:
    """A single lane skips all zeros after the first weight, and none before it or at the end."""
    rng = np.random.default_rng(3)
    for sparsity in (0.5, 0.95, 0.998):
        weight = rng.integers(1, 128, (300, 4)) * (rng.random((300, 4)) > sparsity)
        weight[17, 0] = weight[290, 3] = -5
        places = np.flatnonzero(weight.T.ravel())
        decoded = sparse.decode(sparse.encode(weight.astype(np.int8), 1, 4), 1, 4, 300)
        assert decoded.skipped == places[-1] - places[0] + 1 - len(places)
        np.testing.assert_array_equal(decoded.matrix(300, 4), weight)
    few = np.zeros((40, 2), np.int64)
    few[[0, 39], [0, 1]] = 3  # a lane for each, and spare ones that skip nothing
    assert sparse.decode(sparse.encode(few, 5, 2), 5, 2, 40).skipped == 0


def test_products_of_several_sparse_steps_are_counted() -> None:
    config = SMALL.replace(sparse_lanes=2)
    weight = np.zeros((16, 8), np.int64)
    weight[3, 2], weight[9, 7] = 6, -7
    machine, code = Interpreter(config), sparse.encode(weight, 2, config.array.cols)
    machine.sp[256 : 256 + code.size] = code
    machine.sp[:32] = np.arange(32, dtype=np.uint8)
    beats = code.size // 3 - 3
    step = f"SPARSE m={{}} k=16 n=8 a_stride=16 b_addr=256 beats={beats} acc_addr={{}}"
    text = f"{step.format(2, 0)}\n{step.format(1, 2)}\nMATMUL m=1 k=2 n=3 acc_addr=3\nHALT"
    machine.load_program(pack(assemble(text)))
    assert machine.start().counters["macs"] == 2 * 2 + 1 * 2 + 6
    assert machine.acc[:3, 2].tolist() == [18, 114, 18]
    assert machine.acc[:3, 7].tolist() == [-63, -175, -63]


def test_a_machine_begins_without_a_largest_element() -> None:
    machine = Interpreter(SMALL.replace(argmax=True))
    assert (machine.read_register("ARGMAX"), machine.read_register("ARGMAX_VALUE")) == (0, 0)
    assert machine.all_runs_ended_well()


def test_an_image_of_one_byte_is_begun() -> None:
    image = seal(SMALL, b"\0")
    fingerprint = int.from_bytes(image[4:8], "little")
    done = power_on(image, len(image), fingerprint, bytes, int)
    assert (done.text, done.refusal) == (REFUSALS[Refusal.STOPPED], Refusal.STOPPED)
