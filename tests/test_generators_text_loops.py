"""The words of decoders' programs: hazards, loops, refusals."""

import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.operations import Norm
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.sim.checker import check
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import (
    CONFIGS,
    DECODERS,
    LLAMA,
    PAIRS,
    machines,
    random_decoder,
    tokens_of,
)


@pytest.mark.parametrize(("name", "config"), machines(*CONFIGS)[: len(CONFIGS)] + machines()[:1])
def test_tokens_order_every_hazard(name, config):
    program = compile_text(DECODERS[name], config, context=40)
    assert all(check(fill.words, config) > 0 for fill in program.setup)
    for name, position, rows in (("step", 0, 1), ("step", 39, 1), ("chunk", 7, program.rows)):
        registers = [0] * 16
        for register, value in program.run(position, rows=rows).registers.items():
            registers[register] = value
        assert check(program.words, config, program.entries[name].pc, registers) > 20
    assert check(program.words, config, program.entries["words"].pc) > 0
    stores = check(program.words, config, program.entries["logits"].pc)
    assert stores == (config is not CONFIGS["passing"])


def opcodes(program, name):
    ends = [*sorted(entry.pc for entry in program.entries.values()), len(program.words)]
    first = program.entries[name].pc
    words = program.words[first : ends[ends.index(first) + 1]]
    return [instruction.opcode for instruction in unpack(words)]


def exact_words(program):
    """Return the words of a program whose scores behind 20 tokens are the integer reference's."""
    session, tokens = TextSession(program, "golden"), tokens_of(program.graph, 20)
    session.take(tokens[:-1])
    session.step(tokens[-1])
    assert np.array_equal(session.logits(), evaluate(program.graph, tokens)["logits"][-1])
    registers = [0] * 16
    for register, value in program.run(19).registers.items():
        registers[register] = value
    assert check(program.words, program.config, program.entries["step"].pc, registers) > 50
    return len(program.words)


@pytest.mark.parametrize("kv_bits", [8, 4])
def test_layers_are_iterations_of_a_loop(kv_bits):
    words_by_layers = []
    for layers in (2, 5):
        decoder = random_decoder(LLAMA.replace(layers=layers), kv_bits)
        config = (CONFIGS["fused"] if kv_bits == 8 else PAIRS).replace(table_slots=6)
        program = compile_text(decoder, config, context=40)
        for name in ("step", "chunk"):
            assert opcodes(program, name).count(Opcode.LOOP) == 1
        words_by_layers.append(exact_words(program))
    assert words_by_layers[0] == words_by_layers[1]


def test_layers_and_scores_from_outside_are_iterations_of_loops():
    words_by_size = []
    for layers, vocabulary in ((3, 450), (5, 450), (3, 898)):
        decoder = random_decoder(LLAMA.replace(layers=layers, vocabulary=vocabulary))
        config = CONFIGS["passing"]
        program = compile_text(decoder, config, context=40)
        for name in ("step", "chunk"):
            assert opcodes(program, name).count(Opcode.LOOP) == 2
        words_by_size.append(exact_words(program))
    assert len(set(words_by_size)) == 1


def test_layers_that_differ_in_more_than_steps_are_written_out():
    decoder = DECODERS["llama"]
    # A norm with one parameter for all columns has a flag that the other layers' have not.
    layers = [list(ops) for ops in decoder.layers]
    place = max(i for i, op in enumerate(layers[-1]) if isinstance(op, Norm))
    norm = layers[-1][place]
    layers[-1][place] = replace(norm, rescale=norm.rescale.columns(0, 1))
    mixed = replace(decoder, layers=tuple(map(tuple, layers)))
    program = compile_text(mixed, CONFIGS["fused"], context=40)
    assert Opcode.LOOP not in opcodes(program, "step")
    session, tokens = TextSession(program, "golden"), tokens_of(mixed, 9)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(mixed, tokens)["logits"][-1])


def test_norms_with_folded_gains_have_one_factor():
    decoder = untrained(LLAMA, Quantization(texts=2, length=24, folded=True))
    norms = [op for ops in decoder.layers for op in ops if isinstance(op, Norm)]
    assert all(op.rescale.per_tensor for op in norms)
    session = TextSession(compile_text(decoder, CONFIGS["fused"], context=40), "golden")
    tokens = tokens_of(decoder, 9)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


def test_incremental_decoding_saves_products():
    decoder = DECODERS["llama"]
    program = compile_text(decoder, CONFIGS["fused"], context=40)
    session = TextSession(program, "golden")
    tokens = tokens_of(decoder, 12)
    session.take(tokens[:-1])
    step = session.step(tokens[-1]).counters["macs"]
    session.begin()
    whole = session.take(tokens).counters["macs"]
    assert step == program.macs(11)
    model = decoder.description
    layers = program.macs(11) - model.vocabulary * model.dim
    assert whole > 10 * layers


def test_the_cache_keeps_sinks_and_the_last():
    cache = Cache(capacity=7, sinks=2)
    assert [cache.place(p) for p in range(14)] == [0, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 2, 3]
    assert [cache.count(p) for p in (0, 5, 6, 7, 100)] == [1, 6, 7, 7, 7]


def refuses(message, decoder="llama", config=CONFIGS["fused"], **options):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(DECODERS[decoder], config, **{"context": 40, **options})


def test_a_tensor_larger_than_the_scratchpad_is_refused_with_its_whole_size():
    """The hidden rows of a chunk are 8 of 3,000 bytes."""
    decoder = random_decoder(LLAMA.replace(ffn=3000))
    config = CONFIGS["resident"].replace(
        scratchpad_bytes=1024, weight_depth=1 << 13, max_k=3000, acc_depth=1 << 14
    )
    with pytest.raises(InputError, match=r"and 24000 of them in one bank"):
        compile_text(decoder, config, context=40, rows=8)


def test_refusals():
    small = CONFIGS["fused"]
    refuses("Context must be at least 1 token, not 0", context=0)
    refuses("Sinks must be from 0 to 3, which is less than the context, not 4", context=4, sinks=4)
    refuses("Tokens of a chunk must be from 1 to 14, not 0", rows=0)
    refuses(
        "Context must be at most the 80 tokens that model llama was made for, not 81", context=81
    )
    refuses(
        "Model llama needs max_row of at least 40, but configuration resident has 39",
        config=small.replace(max_row=39),
    )
    refuses(
        "Model llama needs max_k of at least 44, but configuration resident has 43",
        config=small.replace(max_k=43),
    )
    refuses(
        "Model llama needs the unit rotary, which configuration resident leaves out",
        config=small.replace(rotary=False),
    )
    refuses(
        "Model llama has operands of 8 bits, but operand_width is 7",
        config=small.replace(operand_width=7, max_k=10),
    )
    refuses(
        "Model llama needs 245 weight slots of 8 x 8, but weight_depth is 100",
        config=small.replace(weight_depth=100),
    )
    refuses(
        "Model llama needs 89 parameter words at once, but param_depth is 60",
        config=small.replace(param_depth=60),
    )
    refuses(
        "Model llama needs 12 parameter words at once, but param_depth is 11",
        config=CONFIGS["passing"].replace(param_depth=11, cols=4, lanes=2),
    )
    refuses(
        "Model llama needs more activation tables than table_slots = 1",
        config=small.replace(table_slots=1),
    )
    refuses(
        "Model llama needs 44 accumulator rows or more, but acc_depth is 26",
        config=small.replace(acc_depth=26),
    )
    refuses(
        "Model llama needs a program of at least 548 words, but program_depth is 540",
        config=small.replace(program_depth=540),
    )
    refuses(
        "Model llama needs 7864 scratchpad bytes and 1504 of them in one bank, but "
        "scratchpad_bytes is 4096 in banks of 1024",
        config=small.replace(scratchpad_bytes=4096),
    )
    refuses(
        "Model llama comes to the chip in pieces of 256 bytes, but external memory has 255",
        memory_bytes=255,
    )
    needed = compile_text(DECODERS["llama"], CONFIGS["streamed"], context=40).memory_bytes
    # With less than that, rows stay in the scratchpad.
    roomy = compile_text(
        DECODERS["llama"], CONFIGS["streamed"], context=40, memory_bytes=needed - 1
    )
    needed = roomy.memory_bytes
    refuses(
        f"Model llama needs {needed} bytes of external memory, but it has {needed - 1}",
        config=CONFIGS["streamed"],
        memory_bytes=needed - 1,
    )
