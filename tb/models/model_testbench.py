"""A testbench in plain Verilog that runs a compiled model on inputs and checks the outputs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.manifest import PROGRAM_HEX
from celosia.generators.lower.artefact import Artefact
from celosia.generators.runtime.golden import GoldenModel
from celosia.generators.runtime.runs import Runs
from celosia.tb.models.plain_testbench import LATENCY, Attachment, testbench_files
from celosia.tb.models.step_writer import SLACK, StepWriter

LONG = 100_000_000
"""Cycles after which a run without a prediction is given up."""


def golden_outputs(
    compiled: Artefact, inputs: Sequence[NDArray[np.floating]], bits: int = OPERAND_BITS
) -> list[bytes]:
    """Return the golden machine's output for each input, as its bytes in external memory.

    ``bits`` is the number of upper bits read of each weight: 8, or also 4 or 2 for weights that are
    stored as bit planes.
    """
    golden = GoldenModel(compiled)
    outputs = []
    for values in inputs:
        golden.run(values, bits)
        outputs.append(golden.machine.read_memory(compiled.output_addr, compiled.output_piece.size))
    return outputs


def model_testbench(
    compiled: Artefact,
    inputs: Sequence[NDArray[np.floating]],
    attachment: Attachment,
    top: str,
    bits: int = OPERAND_BITS,
) -> dict[str, str]:
    """Return the files of a compiled model's testbench, a dictionary from file name to text.

    In the simulation, the accelerator ``top`` runs on each input, reading the upper ``bits`` bits
    of each weight. The output is compared with the golden machine's. The last line of the
    simulation begins with PASS or FAIL.
    """
    config = compiled.config
    writer = StepWriter(config)
    runs = Runs(compiled, writer)
    for index, values in enumerate(inputs):
        writer.steps.say(f"input {index}")
        runs.run(values, bits)
    microcoded = config.micro is not None
    predicted = (
        LONG if microcoded else SLACK * compiled.expect(compiled.run(bits=bits), LATENCY).cycles
    )
    limit = predicted + SLACK * len(compiled.words)
    memory = writer.memory(compiled.memory_bytes)
    files = attachment, writer.words, memory, writer.steps, limit, top, PROGRAM_HEX
    return testbench_files(config, *files)
