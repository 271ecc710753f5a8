"""Texts on machines: the model that comes along, with weights on the chip or from outside."""

import json
import re

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.tokenizer import CharacterTokenizer
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.generators.reference.sampling import Sampling, draw
from celosia.tb.models.run_text import run_text
from tests.support.decoders import CONFIGS
from tests.support.longer import longer
from tests.support.text_cases import TEXT

SOURCE = load_text("tales")
DECODER = SOURCE.quantize(Quantization(texts=4, length=96))
PROMPT = "one day a red fox"
STREAMED = CONFIGS["streamed"].replace(trace=True)
RESIDENT = PRESETS["small"].replace(
    name="resident",
    weight_depth=1024,
    scratchpad_bytes=1 << 17,
    program_depth=4096,
    param_depth=512,
    queue_depth=4,
    trace=True,
)


def run_case(config, simulator, steps=12, **options):
    program = compile_text(DECODER, config, context=128)
    result = run_text(program, SOURCE.tokenizer, PROMPT, steps, simulator, **options)
    assert result["mismatches"] == 0
    assert result["tensors"] >= (steps if simulator == "golden" else 30 * steps)
    count = len(SOURCE.tokenizer.encode(PROMPT))
    assert result["prompt_tokens"] == count
    assert result["last_position"] == count + steps - 2
    assert result["macs"] == program.macs(result["last_position"])
    return result


def test_text_is_that_of_the_integer_decoder():
    shown = []
    result = run_case(RESIDENT, "golden", 20, show=shown.append)
    tokens = SOURCE.tokenizer.encode(PROMPT)
    for _ in range(20):
        tokens.append(int(np.argmax(evaluate(DECODER, tokens)["logits"][-1])))
    assert result["tokens"] == tokens
    assert result["text"] == SOURCE.tokenizer.decode(tokens) == "".join(shown)
    assert result["text"].startswith(PROMPT)
    assert result["cycles_per_token"] is result["external_bytes"] is result["cycles"] is None
    assert run_case(STREAMED, "golden", 20)["tokens"] == tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [TEXT, *longer(STREAMED, RESIDENT)],
    ids=["streamed", "streamed-unfused", "resident"],
)
def test_the_circuit_decodes(config):
    report = run_case(config, "verilator")
    assert report["tokens"] == run_case(config, "golden")["tokens"]
    assert len(report["cycles"]) == 11
    assert report["cycles"][-1] == report["cycles_per_token"] > 0
    assert abs(report["predicted_cycles"] / report["cycles_per_token"] - 1) < 0.01
    assert sum(report["where"].values()) == sum(report["cycles"])
    if config is RESIDENT:
        # Without argmax the host reads all scores, and nothing else.
        assert report["external_bytes"] == 8 * -(-2 * DECODER.description.vocabulary // 8)
    else:
        weights = (
            sum(k * n for k, n in DECODER.description.projections.values())
            * DECODER.description.layers
        )
        assert report["external_bytes"] > weights


def test_sampled_texts_are_repeatable_and_vary():
    options = {"sampling": Sampling(temperature=1.5, top_p=0.95)}
    texts = [
        run_text(
            compile_text(DECODER, RESIDENT, context=64),
            SOURCE.tokenizer,
            "a",
            8,
            "golden",
            seed=seed,
            **options,
        )["text"]
        for seed in (1, 1, 2, 3)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_draws_follow_the_distribution():
    rng = np.random.default_rng(5)
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    drawn = [draw(logits, Sampling(1.0, 0.75), rng) for _ in range(4000)]
    shares = np.bincount(drawn, minlength=4) / 4000
    assert np.abs(shares - [0.625, 0.375, 0, 0]).max() < 0.03
    assert draw(logits, Sampling(), rng) == 0
    assert draw(logits, Sampling(1.0, 1e-9), rng) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(-1.0), "Temperature must not be negative, not -1.0"),
        (lambda: Sampling(1.0, 0.0), "Top-p must be more than 0 and at most 1, not 0.0"),
        (lambda: SOURCE.tokenizer.encode("a#"), "Character '#' has no token"),
        (
            lambda: run_text(
                compile_text(DECODER, RESIDENT, context=64), SOURCE.tokenizer, "a", 0, "golden"
            ),
            "Steps must be at least 1, not 0",
        ),
        (
            lambda: run_text(
                compile_text(DECODER, RESIDENT, context=64), SOURCE.tokenizer, "a", 256, "golden"
            ),
            "A prompt of 2 tokens and 256 steps need more than the 256 places of model tales",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_characters(tmp_path):
    path = tmp_path / "vocab.json"
    path.write_text('{"\\n": 0, "a": 2, "é": 1}', encoding="utf-8")
    tokenizer = CharacterTokenizer(path, 3)
    assert tokenizer.encode("aé") == [0, 2, 1]
    assert tokenizer.decode([0, 2, 1, 0]) == "aé"
    assert tokenizer.piece(1, 0) == "é".encode()
    assert (tokenizer.begin, tokenizer.ends) == (0, {0})
    for text, message in (
        ("[]", f"File {path} must hold a JSON object"),
        ('{"a": 0, "b": 1, "\\n": 3}', f"Characters {path} are not numbered from 0 to 2"),
        (
            '{"ab": 0, "b": 1, "\\n": 2}',
            f"Characters {path} are not single ones with the line's end",
        ),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            CharacterTokenizer(path, 3)
    with pytest.raises(ValueError, match=r"^Cannot read .*none.json: No such file"):
        CharacterTokenizer(tmp_path / "none.json", 3)


def test_the_command_prints_one_object_or_the_text(celosia):
    words = ("tales", "--prompt", "the fox", "--steps", "3", "--sim", "golden")
    code, output, _ = celosia("run", *words, "--json")
    report = json.loads(output)
    assert (code, output.count("\n"), report["mismatches"]) == (0, 1, 0)
    assert report["multipliers"] == PRESETS["story"].elements <= 156
    code, output, _ = celosia("run", *words)
    assert code == 0
    assert output.startswith(report["text"] + "\n")
    code, output, _ = celosia("run", *words, "--quantize", "kv=int4", "--json")
    narrow = json.loads(output)
    assert (code, narrow["mismatches"]) == (0, 0)
    assert (report["kv_bits"], narrow["kv_bits"]) == (8, 4)
    assert narrow["slots"] < report["slots"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("none.bin",), "Cannot read checkpoint none.bin: No such file or directory"),
        (("tales", "--temperature", "1:2"), "Top-p must be more than 0 and at most 1, not 2.0"),
        (("none.bin", "--sim", "none"), "Unknown simulator 'none'"),
        (
            ("tales", "--quantize", "kv=int5"),
            "must be int8 or int4 or int4-blocks or recompute, not",
        ),
        (("tales", "--context", "999"), "Context must be at most the 256 tokens"),
        (("tales", "--set", "weight_depth=99"), "weight slots of 13 x 12, but weight_depth is 99"),
    ],
)
def test_the_command_refuses_in_one_sentence(celosia, words, part):
    code, output, errors = celosia("run", *words)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert part in errors
