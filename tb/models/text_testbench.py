"""Generator of a plain Verilog testbench that checks a compiled decoder's tokens."""

from collections.abc import Sequence

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.runtime.host import Host
from celosia.tb.models.plain_testbench import LATENCY, Attachment, testbench_files
from celosia.tb.models.step_writer import SLACK, StepWriter
from celosia.tb.models.text_samples import text_samples

FIRST = "first.hex"
"""The program that fills the chip first, as text."""


def text_testbench(
    program: Host,
    tokenizer: TokenizerLike,
    prompts: Sequence[str],
    count: int,
    attachment: Attachment,
    top: str,
    bits: int = OPERAND_BITS,
) -> dict[str, str]:
    """Return the files of a compiled decoder's testbench, a dictionary from file name to text.

    In the simulation, the accelerator ``top`` continues each prompt by at most ``count`` tokens,
    reading the upper ``bits`` bits of each weight. The tokens are compared with the golden
    machine's. The last line of the simulation begins with PASS or FAIL.
    """
    writer = StepWriter(program.config)
    text_samples(program, tokenizer, prompts, count, writer, bits)
    memory = writer.memory(program.memory_bytes)
    longest = max(len(program.words), *(len(fill.words) for fill in program.setup))
    limit = SLACK * (_cycles(program, bits) + longest + len(memory))
    files = attachment, writer.words, memory, writer.steps, limit, top, FIRST
    return testbench_files(program.config, *files)


def _cycles(program: Host, bits: int) -> int:
    """Return the expected cycles of a chunk or a step, whichever takes more."""
    position = min(program.cache.capacity, program.places) - program.rows
    return program.expect(program.run(position, rows=program.rows, bits=bits), LATENCY).cycles
