"""Encoder-decoders' programs: against the integer reference, on Verilator, and by command."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.tokenizer import NumberTokenizer
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.run_answers import run_answers
from celosia.tb.models.text_session import TextSession
from tests.support.sentence_folders import cross_encoder

PAIR = TextDescription(
    name="pair",
    vocabulary=23,
    positions=12,
    dim=24,
    layers=3,
    heads=6,
    kv_heads=3,
    ffn=30,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="gelu",
    bias=True,
    source_layers=2,
    source_positions=17,
    start=2,
)
STREAMED = PRESETS["small"].replace(
    name="streamed",
    scratchpad_bytes=1 << 17,
    program_depth=8192,
    param_depth=1024,
    table_slots=8,
    queue_depth=4,
    trace=True,
)
RESIDENT = STREAMED.replace(name="resident", weight_depth=2048, fused=False, argmax=True)
CONFIGS = {
    "streamed": STREAMED.replace(rotary=True),
    "resident": RESIDENT,
    "odd": RESIDENT.replace(rows=5, cols=6, lanes=2, fused=True, rotary=True, weight_depth=4096),
}
MIXED = {"wide_operands": True, "zero_points": True, "acc_width": 32}
CONFIGS |= {f"{name} mixed": CONFIGS[name].replace(**MIXED) for name in ("streamed", "odd")}
MODELS = {
    "layernorm": PAIR,
    "gated": PAIR.replace(norm="rmsnorm", gated=True, kv_heads=6, head_dim=4, tied=False),
}
OPTIONS = Quantization(texts=4, length=8)
ANSWERS = "generators/models/numerals/answers.tsv"


@pytest.fixture(scope="module")
def decoders():
    models = {name: untrained(model, OPTIONS) for name, model in MODELS.items()}
    return models | {"mixed": untrained(PAIR, replace(OPTIONS, activations="mixed"))}


@pytest.mark.parametrize(
    ("name", "config"),
    [("layernorm", "streamed"), ("layernorm", "resident"), ("layernorm", "odd"), ("gated", "odd"),
     ("gated", "streamed"), ("mixed", "streamed mixed"), ("mixed", "odd mixed")],
)  # fmt: skip
def test_sources_and_steps_are_the_references(decoders, name, config):
    decoder, rng = decoders[name], np.random.default_rng(3)
    program = compile_text(decoder, CONFIGS[config], context=12)
    assert program.resident == (CONFIGS[config].array.weight_depth > 2)
    assert set(program.entries) == {"step", "logits", "lookup", "encode"}
    session = TextSession(program, "golden")
    # A longer source first, so that a shorter one finds its rows behind its own.
    for count in (17, 1, 14, 13, 2):
        source = rng.integers(0, 23, count).tolist()
        turn, cache = session.encode(source), KvCache()
        assert turn.counters["macs"] == program.source_macs(count)
        evaluate(decoder.source, source, cache)
        for position, token in enumerate((2, 19, 4)):
            turn = session.step(token)
            assert turn.counters["macs"] == program.macs(position, count)
            wanted = evaluate(decoder, [token], cache)["logits"][0]
            assert np.array_equal(session.logits(), wanted)
    assert (
        program.cycles(program.source_runs([0] * 17), 20)
        > program.cycles(program.source_runs([0] * 2), 20)
        > 0
    )


def test_a_decoder_alone_has_no_source(decoders):
    alone = PAIR.replace(source_layers=0, source_positions=0, start=0)
    program = compile_text(untrained(alone, OPTIONS), CONFIGS["resident"], context=12)
    assert program.lookups == 0
    assert not {"lookup", "encode"} & set(program.entries)
    report = run_answers(program, NumberTokenizer(23), [("1 2", "3 4")], "golden")
    assert (report["answers"], report["predicted_source_cycles"]) == (1, None)


def test_longer_programs_have_no_more_words(decoders):
    """Layers, and the keys and values of each, are the iterations of loops."""
    longer = untrained(PAIR.replace(layers=5, source_layers=4), OPTIONS)
    words = [
        len(compile_text(decoder, RESIDENT.replace(fused=True, table_slots=9), context=12).words)
        for decoder in (decoders["layernorm"], longer)
    ]
    assert words[1] <= words[0] + 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"max_row": 16},
            "Model pair needs max_row of at least 24, but configuration resident has 16",
        ),
        ({"acc_depth": 64}, "Model pair needs 85 accumulator rows or more, but acc_depth is 64"),
    ],
)
def test_what_does_not_fit(decoders, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(decoders["layernorm"], RESIDENT.replace(**changes), context=12)


@pytest.mark.slow
def test_numerals_are_read_on_verilator(celosia):
    """The answers of a trained model, on the preset that its weights have room on."""
    words = ("evaluate", "numerals", "--answers", ANSWERS, "--count", "3", "--json")
    code, output, _ = celosia(*words)
    report = json.loads(output)
    assert (code, report["answers"], report["right"], report["mismatches"]) == (0, 3, 3, 0)
    assert report["tensors"] > 3 * 200
    for name in ("source", "answer"):
        assert abs(report[f"predicted_{name}_cycles"] / report[f"{name}_cycles"] - 1) < 0.03


def test_the_command_answers(celosia, tmp_path):
    words = ("run", "numerals", "--sim", "golden")
    code, output, _ = celosia(*words, "--prompt", "MCMXCIV", "--json")
    report = json.loads(output)
    assert (code, report["text"], report["mismatches"]) == (0, "1994", 0)
    assert (report["source_tokens"], report["source_cycles"]) == (8, None)
    path = tmp_path / "answers.tsv"
    path.write_text("III\t4\nMCMXCIV\t1994\nV\t5\n", encoding="utf-8")
    command = ("evaluate", *words[1:], "--answers", path, "--count", "2", "--json")
    code, output, _ = celosia(*command)
    report = json.loads(output)
    assert (code, report["answers"], report["right"], report["accuracy"]) == (0, 2, 1, 0.5)
    assert (report["wrong"], report["float_accuracy"]) == ([["III", "3", "4"]], 0.5)


def test_the_command_scores_a_decoder(celosia, tmp_path):
    """The sorter of six digits has no token that ends a text."""
    inputs = np.load("tests/data/sorter/inputs.npy")[:6]
    lines = [
        (" ".join(map(str, numbers)), " ".join(map(str, sorted(numbers))))
        for numbers in inputs.tolist()
    ]
    lines[1] = (lines[1][0], lines[0][0])
    path = tmp_path / "answers.tsv"
    path.write_text("".join(f"{question}\t{answer}\n" for question, answer in lines))
    options = ("--config", "story", "--sim", "golden", "--json")
    calibration = ("--calibration", "tests/data/sorter/rows.npy")
    words = ("evaluate", "tests/data/sorter", *calibration, "--answers", path, *options)
    code, output, errors = celosia(*words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["answers"], report["right"], report["mismatches"]) == (6, 5, 0)
    assert report["accuracy"] == report["float_accuracy"] == 5 / 6
    assert [line[0] for line in report["wrong"]] == [lines[1][0]]


def test_the_command_scores_a_classifier(celosia, tmp_path):
    cross_encoder(tmp_path / "pairs", 3, 20)
    lines = ["hello\tworld", "the fox\tjumps"]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    options = ("--config", "tiny", "--sim", "golden", "--json")
    texts = ("--calibration", tmp_path / "texts.txt")
    run = ("run", tmp_path / "pairs", "--inputs", tmp_path / "texts.txt", *texts)
    code, output, errors = celosia(*run, *options)
    assert code == 0, errors
    first, second = json.loads(output)["predictions"]
    answers = tmp_path / "answers.txt"
    answers.write_text(f"{lines[0]}\t{'ABC'[first]}\n{lines[1]}\t{(second + 1) % 3}\n")
    code, output, errors = celosia(
        "evaluate", tmp_path / "pairs", "--answers", answers, *texts, *options
    )
    assert code == 0, errors
    report = json.loads(output)
    assert (report["accuracy"], report["float_accuracy"]) == (0.5, 0.5)
    answers.write_text("hello\n")
    code, output, errors = celosia("evaluate", tmp_path / "pairs", "--answers", answers, *options)
    assert (code, errors) == (
        2,
        f"celosia: Answers {answers} must have a tab before the class, not 'hello'\n",
    )


def test_integers_read_numerals_as_floats_do():
    source = load_text("numerals")
    assert len(source.sources) == 64
    _, apart = source.calibrate(None)
    assert (apart.warning, apart.agreement) == ("", 1.0)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("numerals", "--prompt", "M" * 16), "takes sources of 1 to 16 tokens, not 17"),
        (("numerals", "--prompt", "MCZ"), "Character 'Z' has no token"),
        (("numerals", "--quantize", "kv=int4"), "must be 8 where source_layers is not 0, not 4"),
        (
            ("numerals", "--quantize", "loss=1"),
            "A search for formats is for decoders alone",
        ),
    ],
)
def test_the_command_refuses_in_one_sentence(celosia, words, part):
    code, output, errors = celosia("run", *words, "--sim", "golden")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert part in errors


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ("numerals", "--answers", ANSWERS, "--temperature", "1"),
            "No such option '--temperature'",
        ),
        (("tales", "--answers", ANSWERS), "Character 'M' has no token"),
        (("numerals", "--answers", "README.md"), "Answers README.md must have one tab in each"),
        (
            ("tales", "--inputs", ANSWERS, "--answers", ANSWERS),
            "Option --inputs is not for tales, which is a language",
        ),
        (("tales", "--answers", ANSWERS, "--text", "x"), "--text and --answers exclude each other"),
        (("tales", "--text", "x", "--quantize", "kv=recompute"), "kv=recompute is not for --text"),
    ],
)
def test_evaluate_refuses_in_one_sentence(celosia, words, part):
    code, output, errors = celosia("evaluate", *words, "--sim", "golden")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert part in errors
