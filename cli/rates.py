"""How fast a machine is at its models: exact cycles of the simulation, at some clock."""

from typing import Any

from arch.config import Config
from tb.machines import make_machine
from tb.memory_timing import ONCHIP
from tb.run_model import run_hosted

MODEL = "digits"
"""The model whose inferences are counted."""

COUNT = 4
"""Inferences that are simulated."""

RATES = ("cycles_per_inference", "inferences_per_second")
"""What the report of a board's machine tells of its speed."""


def inference_rates(config: Config, memory_bytes: int, clock_mhz: float) -> dict[str, Any]:
    """Return ``cycles_per_inference`` and ``inferences_per_second`` of the digits' model.

    The circuit runs in Verilator, with ``memory_bytes`` of external memory that is as fast as the
    one on the chip. Where the model does not fit the machine both are None, and ``no_inference``
    says why.

    Raises :class:`RuntimeError` where an output is not the golden model's.
    """
    machine = make_machine(config, "verilator", memory_bytes, ONCHIP)
    try:
        found = run_hosted(MODEL, config, machine, memory_bytes, COUNT)
    except ValueError as error:
        return dict.fromkeys(RATES) | {"no_inference": str(error)}
    if found["mismatches"]:
        raise RuntimeError(
            f"{found['mismatches']} of {COUNT} outputs of {MODEL} on {config.name} are not the "
            "golden model's"
        )
    cycles = found["cycles_per_inference"]
    return dict(zip(RATES, (cycles, round(clock_mhz * 1e6 / cycles, 1)), strict=True))
