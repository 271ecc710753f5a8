"""How well models foresee texts: the measure, the command, and the figures of a real model."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_sources import TextSource, load_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.generators.studies.perplexity import measure, read_texts
from tests.support.decoders import random_text_weights
from tests.support.longer import longer

STORIES = Path(__file__).parents[1] / "examples" / "stories260k"
REAL = (
    *("evaluate", STORIES / "stories260K.bin"),
    *("--text", STORIES / "evaluation.txt", "--json"),
)


class Letters:
    """Letters from a to h, behind a mark."""

    begin, ends = 0, frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [0, *(1 + "abcdefgh".index(letter) for letter in text)]

    def piece(self, token: int, before: int) -> bytes:
        return self.decode([token]).encode()

    def decode(self, tokens: list[int]) -> str:
        return "".join("abcdefgh"[token - 1] for token in tokens if token)


def source() -> TextSource:
    model = TextDescription(
        name="toy", vocabulary=9, positions=80, dim=16, layers=1, heads=2, ffn=12
    )
    return TextSource(model, random_text_weights(model), Letters())


def test_the_measure_is_the_mean_over_all_tokens() -> None:
    toy = source()
    decoder = toy.quantize(Quantization(texts=2))
    texts = ["abcabcgh" * 12, "h"]
    told = []
    measured = measure(toy, decoder, texts, progress=lambda *done: told.append(done))
    losses, exact_losses, alike = [], [], []
    for text in texts:
        tokens = toy.tokenizer.encode(text)[:80]
        exact = forward(toy.description, toy.weights, [tokens])["logits"][0][:-1]
        logits = evaluate(decoder, tokens)["logits"][:-1] * decoder.output.scale
        for rows, into in ((logits, losses), (exact, exact_losses)):
            p = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
            into += [-math.log(row[token]) for row, token in zip(p, tokens[1:], strict=True)]
        alike += list(logits.argmax(axis=1) == exact.argmax(axis=1))
    assert measured.tokens == len(losses) == 80
    assert measured.nll == pytest.approx(np.mean(losses))
    assert measured.float_nll == pytest.approx(np.mean(exact_losses))
    assert measured.agreement == np.mean(alike)
    assert measured.perplexity == pytest.approx(math.exp(np.mean(losses)))
    assert told == [(64, 80), (79, 80), (80, 80)]
    exact = measure(toy, None, texts)
    assert (exact.nll, exact.agreement) == (exact.float_nll, 1.0)
    assert measure(toy, decoder, texts, slots=9, sinks=2).nll != measured.nll


def refused(message, call, *arguments, **fields) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(*arguments, **fields)


def test_texts_of_a_file(tmp_path) -> None:
    path = tmp_path / "texts.txt"
    refused(f"Cannot read text {path}: No such file or directory", read_texts, path)
    path.write_text(
        " a \N{EM DASH} b\n<|endoftext|>\n\n<|endoftext|>\N{LEFT DOUBLE QUOTATION MARK}"
    )
    assert read_texts(path) == ["a - b", '"']
    assert read_texts(path, verbatim=True) == ["a \N{EM DASH} b", "\N{LEFT DOUBLE QUOTATION MARK}"]
    path.write_text("\n<|endoftext|> ")
    refused(f"File {path} has no text", read_texts, path)
    path.write_bytes(b"\xff")
    refused(f"File {path} is not UTF-8 text", read_texts, path)
    refused("Texts have no token to foresee", measure, source(), None, [""])


def test_texts_beyond_the_last_position_are_counted() -> None:
    toy = source()
    most = toy.description.positions
    texts = ["a" * (most - 2), "a" * (3 * most)]
    assert measure(toy, None, texts).cut == 1


def test_the_command_on_one_real_story(celosia) -> None:
    code, output, errors = celosia(*REAL, "--count", "1", "--calibration", "1")
    assert (code, errors) == (0, "")
    report = json.loads(output)
    assert (report["tokens"], report["texts"], report["kv_bits"]) == (371, 1, 8)
    assert report["agreement"] > 0.9
    assert report["nll"] < report["float_nll"] + 0.05
    assert report["perplexity"] == pytest.approx(math.exp(report["nll"]))


def test_the_float_model_is_as_documented(celosia) -> None:
    source = load_text(str(STORIES / "stories260K.bin"), STORIES / "tok512.bin")
    found = measure(source, None, read_texts(STORIES / "evaluation.txt"))
    assert found.tokens == 1802
    assert found.nll == pytest.approx(1.2641, abs=5e-5)


INT4 = ("--quantize", "kv=int4")
BLOCKS = ("--quantize", "kv=int4-blocks", "--quantize", "kv-whole=5")
FIRST = ("--count", "1", "--calibration", "1")
"""The first story, whose loss is larger; the test above runs it with keys and values of 8 bits."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most"),
    [
        ((*INT4, *FIRST), 1.4),
        ((*BLOCKS, *FIRST), 1.38),
        *longer((("--quantize", "kv=int8"), 1.29), (INT4, 1.34), (BLOCKS, 1.3)),
    ],
)
def test_a_decoder_all_in_integers_loses_little(celosia, words, most) -> None:
    code, output, _ = celosia(*REAL, *words)
    assert code == 0
    assert json.loads(output)["nll"] <= most


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ("--quantize", "kv=int5"),
            "kv must be int8 or int4 or int4-blocks or recompute, not 'int5'",
        ),
        (("--count", "2"), "Count of texts must be from 1 to 1, not 2"),
        ((), "Cannot read checkpoint nothing: No such file or directory"),
    ],
)
def test_refusals(celosia, tmp_path, words, part) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("a text")
    code, output, errors = celosia("evaluate", "nothing", "--text", path, *words)
    assert (code, output) == (2, "")
    assert errors.startswith("celosia: ")
    assert errors.count("\n") == 1
    assert part in errors
