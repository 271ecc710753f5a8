"""Data has no reset: only bits that say whether it means something have one."""

import functools
import re

import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.verilog.units import make_unit
from celosia.tb.machine.circuit_sources import kept_verilog

_PART = re.compile(r"^module machine_?(\w*?)(?:_\d+)? \((.*?)^endmodule", re.M | re.S)
_RESET = re.compile(r"if \(rst\) begin\s+(\w+)_next = ", re.M)


@functools.cache
def resets() -> dict[str, set[str]]:
    """Return the registers with a reset of each kind of component of a registered machine."""
    machine = make_unit("accelerator", PRESETS["tiny"].replace(registered=True))
    registers: dict[str, set[str]] = {}
    for kind, text in _PART.findall(kept_verilog(machine, "machine")):
        registers.setdefault(kind, set()).update(_RESET.findall(text))
    return registers


@pytest.mark.parametrize(
    "kind",
    [
        *("Bank", "LookupTable", "Multiplier", "Normalizer", "OctaveExponential"),
        *("PiecewisePolynomial", "Requantizer", "RoundingShift"),
    ],
)
def test_components_that_only_compute_have_no_reset(kind: str) -> None:
    # A register behind a block RAM goes into it only without a reset.
    assert resets()[kind] == set()


def test_a_slice_resets_what_tells_of_its_payload() -> None:
    assert resets()["RegisterSlice"] == {"o__valid", "waiting"}


def test_a_queue_resets_no_command() -> None:
    names = resets()["StagedCommandQueue"]
    assert "partial" in names
    assert not [name for name in names if name.startswith(("command", "held"))]


def test_the_sequencer_resets_no_word() -> None:
    names = resets()["Sequencer"]
    assert "fresh" in names
    assert not names & {"word", "here"}
