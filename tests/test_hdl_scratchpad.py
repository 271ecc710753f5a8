"""The scratchpad, under both simulators, and the logic that it leaves out."""

import pytest

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.engines import scratchpad
from celosia.hdl.memory.scratchpad import READERS, WRITERS, Scratchpad
from celosia.tb.benches.simulate import simulate
from tests.support.longer import longer

ONE_BANK = {"rows": 1, "cols": 1, "lanes": 1, "mem_width": 8, "scratchpad_banks": 1}
ODD = {"rows": 5, "cols": 3, "lanes": 2, "fused": False, "mem_width": 32}
REGISTERED = {"registered": True}
ALIGNED = {"rows": 12, "cols": 4, "lanes": 4, "mem_width": 32, "scratchpad_align": 4}
"""Lines of 16 bytes in four memories; rows that are no power of two."""
WORDS = {"scratchpad_align": 8, "scratchpad_banks": 1}
"""Lines of 16 bytes in two memories."""
CORRECT = {"protect": "scratchpad=correct"}
LINES = {"rows": 2, "cols": 2, "lanes": 2, "mem_width": 16, "scratchpad_align": 2}


@pytest.mark.parametrize(
    ("simulator", "seed", "readers", "writers", "config"),
    [
        ("icarus", 1, READERS, WRITERS, {"scratchpad_bytes": 1024}),
        ("icarus", 6, READERS, ("load", "o"), ONE_BANK | {"scratchpad_bytes": 64} | REGISTERED),
        ("icarus", 3, ("v",), ("o",), ODD | {"scratchpad_bytes": 512, "scratchpad_banks": 8}),
        ("icarus", 9, READERS, WRITERS, WORDS | {"scratchpad_bytes": 64} | REGISTERED),
        ("icarus", 10, READERS, WRITERS, LINES | {"scratchpad_bytes": 64}),
        ("verilator", 12, READERS, WRITERS, ALIGNED | {"scratchpad_bytes": 256} | CORRECT),
        ("icarus", 7, READERS, WRITERS, ODD | {"scratchpad_bytes": 128} | REGISTERED),
        *longer(
            ("verilator", 7, READERS, WRITERS, ODD | {"scratchpad_bytes": 128} | REGISTERED),
            ("icarus", 2, READERS, ("load", "o"), ONE_BANK | {"scratchpad_bytes": 64}),
            ("icarus", 5, READERS, WRITERS, {"scratchpad_bytes": 1024} | REGISTERED),
            ("icarus", 8, READERS, WRITERS, ALIGNED | {"scratchpad_bytes": 1024}),
            ("verilator", 11, READERS, WRITERS, ALIGNED | {"scratchpad_bytes": 256} | REGISTERED),
            ("verilator", 4, READERS, WRITERS, ODD | {"scratchpad_bytes": 128}),
        ),
    ],
)
def test_every_access_finds_its_bytes(simulator, seed, readers, writers, config):
    simulate(
        scratchpad(PRESETS["small"].replace(**config), readers, writers),
        bench="celosia.tb.benches.bench_scratchpad",
        simulator=simulator,
        seed=seed,
        parameters={"config": config, "readers": readers, "writers": writers, "cycles": 500},
    )


def test_ports_left_out_vanish():
    config = PRESETS["tiny"]
    text = to_verilog(scratchpad(config, ("a", "v"), ("o",)), "top")
    assert "read_a__data" in text
    for name in ("read_b", "read_store", "write_load", "write_s"):
        assert name not in text


def test_a_scratchpad_that_no_configuration_has_is_refused() -> None:
    """Addresses select a bank by their upper bits, and memories have three levels of protection."""
    access, banks = PRESETS["tiny"].access, {"banks": 3, "bank_bytes": 64}
    with pytest.raises(InputError, match="Scratchpad banks must be a power of two, not 3"):
        Scratchpad(access, {"load": 4}, **banks)
    with pytest.raises(InputError, match="must be none, detect, correct, not 'corect'"):
        Scratchpad(access, {"load": 4}, **banks | {"banks": 2}, level="corect")
