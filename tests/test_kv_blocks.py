"""Values that share exponents: golden model, quantization, programs, and the circuit."""

import itertools
import re

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.equipment import with_packed_cache
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder
from celosia.generators.quantize.steps import spread_range
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.sim import blocks
from celosia.sim.interpreter import Interpreter
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import random_text_weights

LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=2, ffn=44
)
GPT = TextDescription(
    **{"name": "gpt", "vocabulary": 30, "positions": 48, "dim": 32, "layers": 1, "heads": 2},
    **{"ffn": 40, "norm": "layernorm", "position": "learned", "gated": False},
    **{"activation": "gelu_tanh", "bias": True},
)
PLAIN = PRESETS["story"].replace(
    **{"name": "plain", "rows": 6, "cols": 4, "lanes": 4, "weight_depth": 1024},
    **{"scratchpad_bytes": 65536, "param_depth": 1024, "program_depth": 16384},
)


def narrow(model: TextDescription, block: int = 8, **options):
    places = 80 if model.position == "rotary" else 0
    asked = Quantization(
        **{"texts": 2, "length": 24, "places": places, "kv_bits": 4, "block": block}, **options
    )
    return untrained(model, asked)


def equipped(decoder) -> Config:
    """Return the machine that a decoder's commands would give it."""
    return with_packed_cache(PLAIN, decoder)


def test_every_value_is_within_half_a_step_of_its_exponent() -> None:
    values = np.arange(-128, 128)
    for width in (1, 2, 5):
        rows = (
            np.random.default_rng(width).choice(values, (300, width)) >> np.arange(300)[:, None] % 6
        )
        exponent = blocks.exponents(rows)
        # The least step of 2, 4, 8 or 16 of which sixteen reach from the least to the largest.
        steps = 2.0**exponent
        assert np.all((rows.min(axis=1) >= -8 * steps) & (rows.max(axis=1) < 8 * steps))
        tight = (rows.min(axis=1) < -4 * steps) | (rows.max(axis=1) >= 4 * steps)
        assert np.all(tight | (exponent == 1))
        rounded = blocks.rounded(rows, width)
        middles = (np.floor(rows / steps[:, None]) + 0.5) * steps[:, None]
        np.testing.assert_array_equal(rounded, middles)
        assert np.all(np.abs(rounded - rows) <= steps[:, None] / 2)
    assert set(blocks.exponents(values[:, None])) == {1, 2, 3, 4}


def test_rows_of_a_slot_are_what_blocks_are() -> None:
    rng = np.random.default_rng(5)
    for cols, size, scale_bits in itertools.product((1, 2, 3, 13), (1, 3, 12), (0, 2)):
        size = min(size, cols)
        first, second = rng.integers(-128, 128, (2, 40, size)) >> rng.integers(0, 5, (40, 1))
        above = -(-2 // cols)
        words = blocks.pack_mantissas(first, second, cols, above, scale_bits)  # [40, cols]
        assert np.all(words[:, min(cols, 2) :] == (words[:, min(cols, 2) :] + 128) % 256 - 128)
        exponent = blocks.stored_exponents(words, above, scale_bits)
        wanted = blocks.rounded(np.concatenate([first, second], axis=1), 2 * size)
        data = (words + 128) % 256 - 128
        halves = (data << 60 >> 60, data >> 4)
        operands = np.concatenate([blocks.operands(h, exponent)[:, :size] for h in halves], axis=1)
        np.testing.assert_array_equal(operands, wanted)


def test_steps_are_in_proportion_to_deviations() -> None:
    values = np.random.default_rng(3).normal(size=(500, 3)) * (1, 5, 0) + (7, -2, 4)
    middle, steps = spread_range(values)
    np.testing.assert_allclose(middle, values.mean(axis=0))
    assert steps[1] / steps[0] == pytest.approx(values[:, 1].std() / values[:, 0].std())
    assert np.abs((values - middle) / steps).max() == pytest.approx(127)
    alike = spread_range(values, 3)[1]
    assert alike[0] == alike[1] == alike[2]


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
def test_integers_follow_the_float_model(model) -> None:
    weights = random_text_weights(model)
    tokens = np.random.default_rng(7).integers(0, model.vocabulary, 24)
    exact = forward(model, weights, tokens[None])["logits"][0]
    options = Quantization(texts=4, length=24, kv_bits=4, whole=model.head_dim, block=8)
    decoder = quantize_decoder(model, weights, 1, options)
    logits = evaluate(decoder, tokens)["logits"] * decoder.output.scale
    assert np.sqrt(np.mean((logits - exact) ** 2)) < 0.2 * exact.std()


def exact_session(decoder, config, machine, count):
    """Return a session in which each token's scores were the integer reference's."""
    session, cache = TextSession(compile_text(decoder, config, context=16), machine), KvCache()
    for token in np.random.default_rng(2).integers(0, decoder.description.vocabulary, count):
        session.step(int(token))
        wanted = evaluate(decoder, [int(token)], cache)["logits"][0]
        np.testing.assert_array_equal(session.logits(), wanted)
    return session


@pytest.mark.parametrize(
    ("model", "options"),
    [(LLAMA, {}), (LLAMA, {"whole": 4}), (LLAMA, {"whole": 0}), (GPT, {})],
    ids=["llama", "whole", "none", "gpt"],
)
def test_steps_and_chunks_are_the_references(model, options) -> None:
    decoder = narrow(model, **options)
    config = equipped(decoder)
    assert config.packed_cache is not None
    assert config.block_exponents
    program = exact_session(decoder, config, "golden", 14).program
    plain = compile_text(narrow(model, 0, **options), config, context=16)
    assert program.slots == plain.slots
    session = TextSession(program, "golden")
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    session.take(tokens)
    np.testing.assert_array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


def test_the_circuit_keeps_blocks() -> None:
    model = LLAMA.replace(vocabulary=19, positions=16, dim=16, layers=1, heads=4, ffn=12)
    decoder = narrow(model)
    session = exact_session(decoder, equipped(decoder).replace(trace=True), "verilator", 9)
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 70
    last = session.turns[-1]
    assert session.program.expect(session.program.run(8), 1).cycles == pytest.approx(
        last.cycles, rel=0.03
    )


@pytest.mark.parametrize(
    ("changes", "block", "message"),
    [
        (
            {"block_exponents": False},
            8,
            "Model llama keeps values in blocks of 8, which needs block_exponents and blocks of 8, "
            "twice the smaller of head_dim 4 and cols 4, but block_exponents is false",
        ),
        (
            {},
            4,
            "Model llama keeps values in blocks of 4, which needs block_exponents and blocks of 8, "
            "twice the smaller of head_dim 4 and cols 4, but block_exponents is true",
        ),
    ],
)
def test_blocks_that_slots_do_not_have(changes, block, message) -> None:
    decoder = narrow(LLAMA, block)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(decoder, equipped(decoder).replace(**changes), context=16)


def test_blocks_that_columns_do_not_fill() -> None:
    message = "Model llama has 8 columns of values, which no blocks of 16 share"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        narrow(LLAMA, 16)
    for block, bits in ((-1, 4), (8, 8)):
        message = (
            "Columns of values that share an exponent must not be negative and need kv_bits 4, "
            f"but they are {block} and kv_bits is {bits}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            Quantization(kv_bits=bits, block=block)


@pytest.mark.parametrize(
    ("flags", "changes", "message"),
    [
        ({"resident", "block"}, {}, " has block, which needs pair"),
        (
            {"resident", "pair", "block"},
            {"block_exponents": False},
            " needs the unit block_exponents, which the configuration leaves out",
        ),
        ({"resident", "pair", "block", "lower"}, {}, " has block, which excludes lower"),
        ({"append", "pair", "block", "b_transpose"}, {}, " has block, which excludes b_transpose"),
    ],
)
def test_commands_that_blocks_exclude(flags, changes, message) -> None:
    config = equipped(narrow(LLAMA)).replace(**changes)
    opcode = Opcode.PRELOAD if "append" in flags else Opcode.MATMUL
    fields = {"k": 4, "n": 4, "slot": 2, "b_stride": 8}
    fields |= {"m": 1, "acc_stride": 1} if opcode == Opcode.MATMUL else {}
    golden = Interpreter(config)
    golden.load_program(pack([Instruction(opcode, fields, frozenset(flags))]))
    with pytest.raises(ProgramError, match=re.escape(message)):
        golden.start()
