"""Random models compiled for random machines: the golden machine against the integer reference."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError, ProgramError
from arch.isa import REGISTERS
from generators.campaign.case import Case
from generators.compiler import CompiledModel, Options, compile_model
from generators.frontend.embedding import given
from generators.frontend.weights import Weights
from generators.golden import GoldenModel
from generators.nested import BITS, is_nested
from generators.quantize.options import INT8, MIXED
from generators.reference.integers import evaluate, taken_in
from sim.checker import check
from tb.configurations import random_config
from tb.random_models import random_inputs, random_model, random_weights
from tb.whole_model import in_use

_TRIES = 1000  # of pairs of a machine and a model; about one in six is refused


def random_machine(rng: np.random.Generator) -> Config:
    """Return a random configuration with room for the program and for small tensors."""
    config = random_config(rng)
    return config.replace(
        program_depth=1 << 16,
        scratchpad_bytes=config.scratchpad_bytes << int(rng.integers(1, 6)),
        param_depth=config.param_depth + int(rng.integers(40, 200)),
        acc_depth=config.acc_depth + int(rng.integers(0, 100)),
        mem_addr_width=int(rng.integers(18, 25)),
    )


def run(case: Case) -> dict[str, Any]:
    """Compile a random model for a random machine, and compare every tensor of an inference.

    Pairs that are refused by a sentence are counted, and others drawn in their place.
    """
    rng = case.rng()
    for refused in range(_TRIES):
        config, model = random_machine(rng), random_model(rng)
        weights, inputs = random_weights(rng, model), random_inputs(rng, model)
        mixed = config.wide_operands and rng.random() < 0.5
        options = Options(search=False, activations=MIXED if mixed else INT8)
        try:
            compiled = compile_model(model, weights, inputs, config, options)
        except InputError:
            continue
        return {
            "mismatch": differs(compiled, weights, inputs[:1]),
            "refused": refused,
            "words": len(compiled.words),
        }
    return {"mismatch": f"{_TRIES} pairs of a machine and a model were refused", "refused": _TRIES}


def differs(compiled: CompiledModel, weights: Weights, inputs: Sequence[NDArray[Any]]) -> str:
    """Return what is wrong of a compiled model; an empty text where nothing is.

    Its programs are checked for every order in which engines can run them. Every tensor and the
    output of an inference are compared with those of the graph's integer reference, which knows no
    tiles; where weights stay on the chip, those of a run that finds them too. Nested weights are
    read at all their bits.
    """
    config, model = compiled.config, compiled.quantized.description
    if len(compiled.words) > config.program_depth:
        return f"{len(compiled.words)} words are more than {config.program_depth}"
    for length in {model.sequence, 2} if model.variable else {model.sequence}:
        given_registers = compiled.registers(min(length, model.sequence))
        registers = [given_registers.get(number, 0) for number in range(REGISTERS)]
        try:
            for entry in compiled.entries.values():
                check(compiled.words, config, entry.pc, registers)
        except ProgramError as error:
            return f"The compiler's program is refused: {error}"
    golden = GoldenModel(compiled)
    samples = [*inputs, *(inputs[-1:] if compiled.keeps else [])]
    widths = BITS if is_nested(compiled.quantized) else BITS[:1]
    for sample, bits in itertools.product(samples, widths):
        values = given(model, weights, sample[None])[0]
        length = compiled.length(len(values))
        tensors = golden.tensors(values, bits)
        expected = evaluate(compiled.model_at(bits), values)
        inside = taken_in(compiled.quantized) if config.fused else set()
        extra = {name for name in tensors if name.endswith("_transposed")}
        if tensors.keys() - extra - inside != expected.keys() - inside:
            return f"The tensors are {sorted(tensors)} instead of {sorted(expected)}"
        for name in expected.keys() - inside:
            pair = [in_use(name, each[name], model, length) for each in (tensors, expected)]
            if not np.array_equal(*pair):
                return f"Tensor {name} differs from the integer reference"
        last = compiled.quantized.output
        output = expected.get(last.name)
        if output is None:
            output = list(expected.values())[-1][: last.rows]
        found = golden.machine.read_memory(compiled.output_addr, compiled.output_count)
        pair = [
            in_use(last.name, each, model, length)
            for each in (compiled.output_integers(found), output)
        ]
        if not np.array_equal(*pair):
            return "The output differs from the integer reference"
    return ""
