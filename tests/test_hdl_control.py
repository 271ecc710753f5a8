"""The host port behind AXI4-Lite and Wishbone, against packages that are not ours."""

import re

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.verilog.units import make_accelerator
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.bus.axi4_lite import PORT_MEANINGS as AXI4_LITE_MEANINGS
from celosia.hdl.bus.axi4_lite import Axi4LiteControl
from celosia.hdl.bus.control import ControlledAccelerator
from celosia.hdl.bus.wishbone_control import PORT_MEANINGS as WISHBONE_MEANINGS
from celosia.hdl.bus.wishbone_control import WishboneControl
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.models.model_testbench import golden_outputs
from celosia.tb.verify.random_models import random_inputs, random_weights

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    ("unit", "case"),
    [
        (Axi4LiteControl, "axi4_lite_reaches_the_registers"),
        (WishboneControl, "wishbone_reaches_the_registers"),
    ],
)
def test_accesses(unit, case):
    simulate(
        unit(),
        bench="tests.support.bench_control",
        testcase=case,
        simulator="icarus",
        seed=4,
        parameters={"accesses": 150},
    )


@pytest.mark.parametrize(
    ("control", "bus", "model"),
    [("axi4-lite", "axi4", "axi4"), ("wishbone", "wishbone", "wishbone_package")],
)
def test_whole_inferences_are_exact_on_buses_of_others(control, bus, model):
    """A host and a memory on buses, pauses on both, and a memory that fails meanwhile."""
    rng = np.random.default_rng(1)
    fields = {"tokens": 2, "features": 3, "dim": 4, "layers": 1, "heads": 1, "ffn": 4, "classes": 3}
    description = ModelDescription(name="toy", **fields)
    inputs = random_inputs(rng, description, 4)
    weights = random_weights(rng, description)
    compiled = compile_model(description, weights, inputs, TINY, Options(search=False))
    runs = []
    for values, output in zip(inputs[:2], golden_outputs(compiled, list(inputs[:2])), strict=True):
        request = compiled.request(values)
        runs.append(
            {
                "pc": compiled.entries[compiled.run().entry].pc,
                "registers": {f"R{number}": value for number, value in request.registers.items()},
                "writes": [(addr, data.hex()) for addr, data in request.writes],
                "addr": compiled.output_addr,
                "output": output[: compiled.output_count].hex(),
            }
        )
    simulate(
        make_accelerator(TINY, bus, 32, 0, control),
        bench="tests.support.bench_inference",
        simulator="icarus",
        seed=2,
        parameters={
            "config": TINY.fields(),
            "control": control,
            "model": model,
            "stall": 0.2,
            "words": [int(word) for word in compiled.words],
            "image": compiled.image.tobytes().hex(),
            "runs": runs,
        },
    )


@pytest.mark.parametrize(
    ("unit", "meanings"),
    [(Axi4LiteControl, AXI4_LITE_MEANINGS), (WishboneControl, WISHBONE_MEANINGS)],
)
def test_every_signal_has_a_meaning(unit, meanings):
    assert {name for name in unit().signature.members if name != "host"} == set(meanings)


@pytest.mark.parametrize("control", ["axi4-lite", "wishbone"])
@pytest.mark.parametrize("bus", ["native", "axi4", "wishbone"])
def test_everything_but_the_host_port_is_outside(control, bus):
    inner = make_accelerator(TINY, bus, 32, 0)
    unit = make_accelerator(TINY, bus, 32, 0, "axi4-lite")
    assert isinstance(unit, ControlledAccelerator)
    others = set(inner.signature.members) - {"host"}
    assert others < set(unit.signature.members)
    assert "host" not in unit.signature.members


def test_the_comment_of_a_port_is_kept():
    text = kept_verilog(make_accelerator(TINY, "axi4", 32, 0, "axi4-lite"), "top")
    header = text.partition("module top (")[2].partition(");")[0]
    for meaning in ("write address: four times the register's", "a read address is offered"):
        assert meaning in header


def test_an_unknown_control_is_refused():
    message = "Unknown control 'apb'; known are axi4-lite, wishbone"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ControlledAccelerator(Accelerator(TINY), "apb")
    message = "Unknown control 'apb'; known are native, axi4-lite, wishbone"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_accelerator(TINY, "native", 32, 0, "apb")
