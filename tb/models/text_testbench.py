"""A compiled decoder in a testbench of plain Verilog: texts, and the golden machine's choices."""

from collections.abc import Sequence

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.text_sources import TokenizerLike
from celosia.generators.runtime.text_host import TextHost
from celosia.tb.models.plain_testbench import LATENCY, Attachment, testbench_files
from celosia.tb.models.step_writer import SLACK, StepWriter
from celosia.tb.models.text_samples import text_samples

FIRST = "first.hex"
"""The program that fills the chip first, as text."""


def text_testbench(
    program: TextHost,
    tokenizer: TokenizerLike,
    prompts: Sequence[str],
    count: int,
    attachment: Attachment,
    top: str,
    bits: int = OPERAND_BITS,
) -> dict[str, str]:
    """Return the files of a module's testbench by name: the Verilog, memory and steps.

    It fills the chip, continues the prompt of each of the program's texts by at most ``count``
    tokens, and compares each choice with the golden machine's. Nested weights are read with
    ``bits`` bits. The simulation ends with a line that begins with PASS or FAIL.
    """
    writer = StepWriter(program.config)
    text_samples(program, tokenizer, prompts, count, writer, bits)
    memory = writer.memory(program.memory_bytes)
    longest = max(len(program.words), *(len(fill.words) for fill in program.setup))
    limit = SLACK * (_cycles(program, bits) + longest + len(memory))
    files = attachment, writer.words, memory, writer.steps, limit, top, FIRST
    return testbench_files(program.config, *files)


def _cycles(program: TextHost, bits: int) -> int:
    """Return the expected cycles of a chunk or a step, whichever takes more."""
    position = min(program.cache.capacity, program.places) - program.rows
    return program.predict(position, LATENCY, rows=program.rows, bits=bits).cycles
