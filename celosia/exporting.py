"""Make the files with which a compiled model is opened again or used without Celosia."""

from collections.abc import Mapping, Sequence
from typing import Any

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.c_model import c_files
from celosia.generators.export.c_text import text_c_files
from celosia.generators.export.folder import Files, with_digests
from celosia.generators.export.package import package
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.runtime.host import Host
from celosia.generators.verilog.manifest import manifest
from celosia.generators.verilog.units import make_accelerator
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.memory_timing import FAR, MemoryTiming
from celosia.tb.models.model_testbench import golden_outputs, model_testbench
from celosia.tb.models.plain_testbench import TOP, Attachment
from celosia.tb.models.text_samples import text_samples
from celosia.tb.models.text_testbench import text_testbench

NATIVE = Attachment()
"""The accelerator's native ports, without a bus."""


def files(
    code: Host,
    source: Source | TextSource,
    made: Mapping[str, Any],
    inputs: Sequence[Any] = (),
    *,
    names: Sequence[str] = (),
    steps: int = 4,
    verilog: bool = False,
    c: bool = False,
    testbench: bool = False,
    attachment: Attachment = NATIVE,
    top: str = TOP,
    timing: MemoryTiming = FAR,
    bits: int = OPERAND_BITS,
    origin: Mapping[str, Any] | None = None,
) -> Files:
    """Return a dictionary from file names to contents: the files of an exported program.

    The files, and the arguments ``verilog``, ``c`` and ``testbench``, are those of
    :meth:`celosia.Program.export`.

    - ``made``: dictionary from name to value that describes the model's quantization.
    - ``inputs``: inputs of the driver and the test bench: matrices for an encoder, prompts for a
      language model.
    - ``steps``: number of tokens that continue each prompt.
    - ``names``: names of an encoder's output columns.
    - ``attachment``: bus protocols of the accelerator's ports.
    - ``top``: name of the accelerator's Verilog module.
    - ``timing``: timing of the external memory for which the manifest (``model.json``) predicts
      cycles.
    - ``bits``: for nested weights (readable at several widths), the number of upper bits of each
      weight that the accelerator reads.
    - ``origin``: the result of :meth:`celosia.Model.origin`, for the manifest; None if unknown.
    """
    memory = {"latency": timing.latency, "interval": timing.interval, "bits": bits}
    written: Files = package(code, source, made, names, origin=origin, **memory)
    if code.reads_tokens:
        assert isinstance(source, TextSource)
        prompts = list(inputs) or [""] * code.batch
        asked = code, source.tokenizer, prompts
        if testbench:
            written |= text_testbench(*asked, steps, attachment, top, bits=bits)
        if c:
            samples = text_samples(*asked, steps, "golden", bits)
            written |= text_c_files(code, source.tokenizer, samples, bits)
    else:
        runs = code.batches(inputs)
        if testbench:
            written |= model_testbench(code, runs, attachment, top, bits=bits)
        if c:
            written |= c_files(code, runs, golden_outputs(code, runs, bits), names, bits=bits)
    if verilog or testbench:
        ports = attachment.bus, attachment.addr_width, attachment.base, attachment.control
        component = make_accelerator(code.config, *ports)
        written[f"{top}.v"] = kept_verilog(component, top)
        written[f"{top}.json"] = manifest(component, top, code.config)
    return with_digests(written)
