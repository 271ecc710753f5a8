"""A compiled model in a testbench of plain Verilog: real inputs and the golden integers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arch.formats import OPERAND_BITS
from arch.micro.config import MicroConfig
from arch.registers import REGISTER_MAP
from generators.compiler import CompiledModel
from generators.export.package import PROGRAM_HEX
from generators.golden import GoldenModel
from tb.plain_testbench import LATENCY, Action, Attachment, Steps, testbench_files

SLACK = 4
"""Times as many cycles as predicted after which a run is given up."""

LONG = 100_000_000
"""Cycles after which a run without a prediction is given up."""


def golden_outputs(
    compiled: CompiledModel, inputs: Sequence[NDArray[np.floating]], bits: int = OPERAND_BITS
) -> list[bytes]:
    """Return the golden machine's output for each input, as whole words of external memory.

    Nested weights are read at so many ``bits``.
    """
    golden = GoldenModel(compiled)
    found = []
    for values in inputs:
        golden.run(values, bits)
        found.append(golden.machine.read_memory(compiled.output_addr, compiled.output_piece.size))
    return found


def model_testbench(
    compiled: CompiledModel,
    inputs: Sequence[NDArray[np.floating]],
    outputs: Sequence[bytes],
    attachment: Attachment,
    top: str,
    bits: int = OPERAND_BITS,
) -> dict[str, str]:
    """Return the files of a module's testbench by name: the Verilog, program, memory and steps.

    For each input, rows as :meth:`CompiledModel.request` takes them, it writes what an inference
    needs, runs the program, and compares the output with the bytes of ``outputs``, for which
    nested weights are read at so many ``bits``. The simulation ends with a line that begins with
    PASS or FAIL.
    """
    config = compiled.config
    memory = compiled.image.tobytes()
    memory += bytes(compiled.memory_bytes - len(memory))
    memory += bytes(-len(memory) % config.mem_bytes)
    steps = Steps(config)
    start = compiled.entries[compiled.entry(again=False, bits=bits)].pc
    for index, (values, output) in enumerate(zip(inputs, outputs, strict=True)):
        steps.say(f"input {index}")
        request = compiled.request(values)
        for addr, data in request.writes:
            steps.add_words(Action.SET_WORD, addr, data)
        for number, value in request.registers.items():
            steps.add(Action.SET_REGISTER, REGISTER_MAP[f"R{number}"].addr, value)
        steps.add(Action.RUN, value=start)
        steps.add_words(Action.WORD_IS, compiled.output_addr, output)
    microcoded = isinstance(config, MicroConfig)
    predicted = LONG if microcoded else SLACK * compiled.predict(LATENCY, bits=bits).cycles
    limit = predicted + SLACK * len(compiled.words)
    return testbench_files(
        config, attachment, compiled.words, memory, steps, limit, top, PROGRAM_HEX
    )
