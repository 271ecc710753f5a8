"""Formats of weights: codes and scales, the decoder, and the engine that has it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.formats import FORMATS, format_select_flags, index_of
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.banks import LATENCY
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.mixed import choose_formats, mixture
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.hdl.matrix.decoder import WeightDecoder
from celosia.sim.formats import pack, scaled, unpack
from celosia.sim.matmul import part
from celosia.tb.benches.simulate import simulate
from celosia.tb.models.text_session import TextSession
from tests.support.longer import longer
from tests.support.text_cases import LLAMA, PAIRED, RESIDENT, TEXT

REST = "int5,int7,pow2,fp8_e5m2,high2,mid2"
ALL = ",".join(name for name in FORMATS if name not in REST.split(","))
REST += ",ternary"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("k", "group"), [(1, 0), (13, 0), (70, 32), (64, 32), (5, 40)])
def test_what_is_packed_comes_out_again(name, k, group) -> None:
    form, rng = FORMATS[name], np.random.default_rng(k)
    codes = rng.integers(0, len(form.values), (k, 6))
    scales = rng.integers(0, 256, (-(-k // group), 6)) if group else None
    stored = pack(codes, form, group, scales)
    assert stored.shape == (form.stored_rows(k, group), 6)
    values = np.array(form.values)[codes]
    if scales is not None:
        values = scaled(values, np.repeat(scales, group, axis=0)[:k], form)
    assert np.array_equal(unpack(stored, k, form, group), values)


def test_formats_take_the_bits_that_they_say() -> None:
    sizes = {name: form.stored_rows(240, 0) for name, form in FORMATS.items()}
    assert sizes == {name: 240 * form.bits / 8 for name, form in FORMATS.items()}
    assert sizes["ternary"] == 48
    assert [index_of(format_select_flags(index)) for index in range(8)] == list(range(8))


def test_operands_have_as_few_parts_as_their_values_allow() -> None:
    parts = {width: [form.passes(width) for form in FORMATS.values()] for width in (1, 4, 8)}
    assert set(parts[8]) == {1}
    names = {name: counts for name, *counts in zip(FORMATS, parts[4], parts[1], strict=True)}
    assert {names[name][0] for name in ("int2", "int3", "int4", "ternary")} == {1}
    assert {names[name][0] for name in ("int5", "int7", "nf4", "pow2", "fp8_e4m3")} == {2}
    assert [names[name][1] for name in ("ternary", "int2", "int4", "nf4")] == [1, 2, 4, 8]
    # The parts of every operand together are the operand.
    weights = np.arange(-128, 128)
    for width in (1, 4):
        places = range(8 // width)
        total = sum(part(weights, place, place == places[-1], width) for place in places)
        np.testing.assert_array_equal(total, weights)


def test_codebooks_are_those_published() -> None:
    """Against the values of the papers: E4M3's largest is 448, E5M2's 57,344; steps of 127ths."""
    e4m3, e5m2 = (np.array(FORMATS[name].values) for name in ("fp8_e4m3", "fp8_e5m2"))
    assert e4m3[0x7E] == e5m2[0x7B] == 127
    assert e4m3[0x78] == round(127 * 256 / 448)
    assert e5m2[0x77] == round(127 * 28672 / 57344)
    assert e4m3[0x70] == round(127 * 128 / 448)
    assert np.array_equal(e4m3[128:], -e4m3[:128])
    assert FORMATS["nf4"].values[0] == -127
    assert FORMATS["nf4"].values[7] == 0


@pytest.mark.parametrize(
    ("simulator", "formats", "group", "seed"),
    [("verilator", ALL, 32, 1), ("icarus", REST, 40, 2), ("icarus", "int4", 0, 3)],
)
def test_decoder(simulator, formats, group, seed) -> None:
    changes = {"weight_formats": formats, "weight_group": group, "rows": 8, "cols": 6, "lanes": 1}
    simulate(
        WeightDecoder(PRESETS["small"].replace(**changes).part(MatrixConfig)),
        bench="celosia.tb.benches.bench_decoder",
        simulator=simulator,
        seed=seed,
        parameters={"config": changes, "matrices": 20, "stall": 0.2},
    )


def refused(message: str, **changes) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PRESETS["small"].replace(**changes)


def test_refusals() -> None:
    names = ", ".join(FORMATS)
    refused(
        f"Field weight_formats must name some of {names}, not 'int9'", weight_formats="int4,int9"
    )
    refused(
        "Field weight_formats must name at most 7 formats, each once, not 'int4,int4'",
        weight_formats="int4,int4",
    )
    refused(
        "Field weight_formats needs operands of 8 bits, but weight_formats is 'int4' and "
        "operand_width is 4",
        weight_formats="int4",
        operand_width=4,
    )
    refused(
        "Field weight_group must be a multiple of rows, but weight_group is 12 and rows 8",
        weight_formats="int4",
        weight_group=12,
    )


@pytest.mark.parametrize(
    ("weights", "group", "changes", "machine"),
    [
        ("int4", 16, {}, "golden"),
        ("int3", 0, {}, "golden"),
        ("ternary", 0, {}, "golden"),
        ("ternary", 0, RESIDENT, "golden"),
        ("int4", 16, PAIRED, "golden"),
        *longer(
            ("int4", 16, PAIRED, "verilator"),
            ("int4", 16, RESIDENT, "verilator"),
            ("ternary", 0, {}, "verilator"),
        ),
        ("int4", 0, PAIRED, "golden"),
        ("int3", 0, PAIRED | {"pass_width": 4}, "golden"),
    ],
)
def test_decoders_with_weights_of_fewer_bits(weights, group, changes, machine) -> None:
    options = Quantization(texts=2, length=24, weights=weights, group=group)
    decoder = untrained(LLAMA, options)
    program = compile_text(decoder, TEXT.replace(**changes), context=40)
    tokens = [1, 7, 30, 12, 5, 36, 2]
    session = TextSession(program, machine)
    session.take(tokens[:4])
    for token in tokens[4:]:
        turn = session.step(token)
        assert turn.mismatches == 0
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    plain = compile_text(
        untrained(LLAMA, Quantization(texts=2, length=24)), program.config, context=40
    )
    sizes = [sum(len(fill.image) for fill in host.setup) for host in (plain, program)]
    if program.config.packed_slots:
        assert plain.slots - program.slots > 0.4 * program.macs_resident / program.config.elements
        return
    assert sizes[0] - sizes[1] > 0.4 * program.macs_resident


@pytest.mark.parametrize(
    ("config", "quantize", "simulator"),
    [
        # The machine of test_low_rank.py and others.
        (TEXT, "weights=int4,group=16", "verilator"),
        # The command gives the preset the formats.
        (PRESETS["tiny"], "weights=int4,group=32", "golden"),
        *longer(
            (PRESETS["tiny"], "weights=int4,group=32", "verilator"),
            (PRESETS["tiny"], "weights=int6", "verilator"),
        ),
    ],
)
def test_encoder_with_weights_of_fewer_bits(celosia, tmp_path, config, quantize, simulator) -> None:
    """All tensors of images of the digits equal the golden machine's."""
    (tmp_path / "machine.toml").write_text(config.to_toml(), encoding="utf-8")
    words = ("--config", tmp_path / "machine.toml", "--sim", simulator)
    code, output, _ = celosia(
        *("run", "digits", "--count", "2", "--json", "--quantize", quantize, *words)
    )
    assert (code, json.loads(output)["mismatches"]) == (0, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quantize", "weights=int9"), "Weights must be in int8, int2, "),
        (
            ("--quantize", "weights=int4", "--quantize", "group=12"),
            "Field weight_group must be a multiple of rows",
        ),
        (
            ("--quantize", "weights=int4", "--set", "weight_formats=int2"),
            "Model digits has weights in int4, but weight_formats is 'int2'",
        ),
        (
            (
                "--quantize",
                "weights=int4",
                "--quantize",
                "group=32",
                "--set",
                "weight_formats=int4",
            ),
            "Model digits has weights in groups of 32, but weight_group is 0",
        ),
        (
            ("--quantize", "weights=int4", "--config", "micro"),
            "Field weight_formats of a microcoded machine is , not int4",
        ),
    ],
)
def test_command_refuses(celosia, words, message) -> None:
    code, output, errors = celosia("run", "digits", "--count", "1", "--sim", "golden", *words)
    assert (code, output) == (2, "")
    assert errors.count("\n") == 1
    assert message in errors


def test_a_mixture_keeps_its_bound_and_is_smaller_than_one_format() -> None:
    """On a language model of random weights: measured anew, and beside uniform INT4."""
    options = Quantization(texts=2, length=32)
    models = {}

    def make(form: str) -> Decoder:
        models[form] = untrained(LLAMA, replace(options, weights=form))
        return models[form]

    tokens = np.random.default_rng(3).integers(0, 37, 40)

    def measure(model) -> tuple[float, float]:
        logits = evaluate(model, tokens)["logits"] - evaluate(models["int8"], tokens)["logits"]
        error = float(np.mean((logits * model.output.scale) ** 2))
        return error, error

    make("int8")
    bound = measure(make("int4"))[0]
    told = []
    mixed = choose_formats(
        make, measure, lambda model: evaluate(model, tokens), bound, lambda *now: told.append(now)
    )
    assert mixed.loss <= bound
    assert mixed.uniform_loss == pytest.approx(bound)
    assert mixed.uniform_bytes == models["int4"].weight_bytes
    assert told == [(done, told[-1][1]) for done in range(1, told[-1][1] + 1)]
    assert mixed.weight_bytes < models["int4"].weight_bytes
    assert len(set(mixed.chosen.values())) > 1
    assert measure(mixture(models, mixed.chosen))[0] == pytest.approx(mixed.loss)
    # Quantized by its names, the model is the same.
    again = untrained(LLAMA, replace(options, chosen=mixed.chosen))
    assert again.weight_bytes == mixed.weight_bytes
    assert measure(again)[0] == pytest.approx(mixed.loss)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--quantize", "loss=1,weights=int4"),
            "Option loss searches the format of each matrix, so weights must be int8, not int4",
        ),
        (
            ("--quantize", "loss=-1"),
            "Loss must be a number from 0 on, not -1.0",
        ),
    ],
)
def test_searches_that_are_refused(celosia, words, message) -> None:
    code, output, errors = celosia("run", "digits", "--count", "1", "--sim", "golden", *words)
    assert (code, output) == (2, "")
    assert message in errors
    code, _, errors = celosia("run", "minilm", "--quantize", "loss=1")
    assert code == 2
    assert "Option loss measures accuracy on the digits, which minilm" in errors


@pytest.mark.parametrize("machine", ["golden", *longer("verilator")])
def test_zeros_of_a_trained_decoder_take_neither_bytes_nor_cycles(machine) -> None:
    source = load_text("tales-sparse")
    decoder = source.quantize(Quantization(texts=2, length=24))
    config = TEXT.replace(weight_formats="", weight_group=0, sparse_lanes=4, weight_depth=2)
    tokens = source.tokenizer.encode("a red fox")
    spent = []
    for skipped in (True, False):
        program = compile_text(decoder, config, context=40, sparse=skipped)
        session = TextSession(program, machine if skipped else "golden")
        session.take(tokens[:-1])
        turn = session.step(tokens[-1])
        assert turn.mismatches == 0
        assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
        size = sum(len(fill.image) for fill in program.setup)
        spent.append((program.expect(program.run(len(tokens) - 1), LATENCY).cycles, size))
    assert spent[0][0] < 0.7 * spent[1][0]
    weights = sum(op.weight.size for op in decoder.ops if isinstance(op, Linear))
    assert spent[1][1] - spent[0][1] > 0.6 * weights


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse_lanes": 0}, "Skipping zero weights needs sparse_lanes, which small lacks"),
        (
            {"weight_depth": 1024},
            "Skipping zero weights needs weights that come from external memory, but weight_depth "
            "is 1024",
        ),
    ],
)
def test_zeros_of_a_decoder_are_refused(changes, message) -> None:
    config = TEXT.replace(weight_formats="", weight_group=0, **{"sparse_lanes": 4, **changes})
    decoder = untrained(LLAMA, Quantization(texts=2, length=24))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(decoder, config, context=40, sparse=True)
