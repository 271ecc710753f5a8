"""Random machine configurations with enough memory for models, and simulations of the machines."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.formats import NESTED, PLANES
from celosia.arch.isa import RING_SLOTS
from celosia.tb.machine.fast_build import accelerator_verilog, build_verilator
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.verify.configurations import random_config

_SLOTS = 2, 64, 256, 1024  # of weights, for those of a decoder that stay on the chip
_HOTTEST = 3  # cycles; a hot machine moves data in one of them
_BIASES = 26  # bits that decoders need, most often
_NEEDED = ("b_transpose", "activation", "softmax", "norm")
_WHOLE = {"multiplier_width": 32, "bias_width": 32, "pre_depth": 0, "row_factors": 0}


def random_machine(rng: np.random.Generator) -> Config:
    """Return a random configuration whose memories are large enough for most small encoders."""
    # Only decoders whose weights stay on the chip can have other parameters.
    return _roomy(rng).replace(**_WHOLE)


def random_text_machine(rng: np.random.Generator) -> Config:
    """Return a random configuration whose memories are large enough for most small decoders.

    Three of four of these configurations have at least 64 weight slots (each stores one tile of
    weights), so that a decoder's weights can stay on the chip.
    """
    config = _roomy(rng)
    slots = int(rng.choice(_SLOTS))
    return config.replace(
        weight_depth=slots,
        param_depth=config.vector.words + 200,
        acc_depth=config.accumulators.depth + 100,
        **(
            {"bias_width": max(_BIASES, config.vector.bias_width)} if slots > RING_SLOTS else _WHOLE
        ),
    )


def random_format(rng: np.random.Generator, config: Config) -> dict[str, Any]:
    """Return random quantization options: one of the configuration's weight formats, or none.

    The result is a dictionary of ``weights`` (the format's name), ``group`` (rows per scale; 0 for
    one scale per column) and ``low_rank`` (rank of a correction; 0 for none). For INT8 weights, the
    dictionary is empty.
    """
    (others,) = rng.spawn(1)
    names = [form.name for form in config.formats]
    if not names or rng.random() < 0.2:
        return {}
    group = config.weight_group if rng.random() < 0.7 else 0
    if set(PLANES.values()) <= set(names) and others.random() < 0.5:
        return {"weights": NESTED}
    rank = int(others.integers(1, 4)) * int(others.random() < 0.2)
    return {"weights": str(rng.choice(names)), "group": group, "low_rank": rank}


def _roomy(rng: np.random.Generator) -> Config:
    """Return a machine with room for small tensors; three of four have every unit."""
    config, (others,) = random_config(rng), rng.spawn(1)
    if config.formats and others.random() < 0.3:
        config = config.replace(weight_formats=",".join(PLANES.values()))
    if rng.random() < 0.75:
        rotary = not (config.vector.lanes % 2 or config.array.cols % 2)
        config = config.replace(**dict.fromkeys(_NEEDED, True), rotary=rotary)
    return config.replace(
        program_depth=1 << 16,
        scratchpad_bytes=min(1 << 24, config.scratchpad.bytes << int(rng.integers(1, 6))),
        param_depth=config.vector.words + int(rng.integers(40, 200)),
        acc_depth=config.accumulators.depth + int(rng.integers(0, 100)),
        max_row=config.vector.longest_row + int(rng.integers(0, 100)),
        mem_addr_width=int(rng.integers(18, 25)),
    )


def simulated(config: Config) -> Config:
    """Return ``config`` with its field ``throttle`` limited to 3, which shortens simulations.

    With a ``throttle`` of n, a machine above its temperature limit moves data in one of n cycles.
    """
    cycles = config.throttle.cycles if config.throttle else 0
    return config.replace(throttle=min(cycles, _HOTTEST))


@contextlib.contextmanager
def circuit(
    rng: np.random.Generator, config: Config, memory_bytes: int
) -> Iterator[tuple[VerilatorMachine, MemoryTiming]]:
    """Yield the circuit of ``config``, simulated by Verilator, and its memory's random timing.

    External memory has at least ``memory_bytes`` bytes. Registers and memories begin with random
    contents, or with zeros if the field ``protect`` adds check bits. The compiled simulation is
    deleted at the end.
    """
    timing = MemoryTiming(latency=int(rng.integers(60)), interval=int(rng.choice([1, 1, 2])))
    size = 1 << (max(memory_bytes, config.mem_bytes) - 1).bit_length()
    contents = 0 if config.protects else int(rng.integers(1, 1 << 30))
    verilog = accelerator_verilog(config)
    machine = VerilatorMachine(
        config, memory_bytes=size, verilog=verilog, contents=contents, **timing.fields()
    )
    try:
        yield machine, timing
    finally:
        machine.close()
        build = build_verilator(config, verilog, random_start=True)
        shutil.rmtree(build, ignore_errors=True)
