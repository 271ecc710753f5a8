"""Two prompts that are continued in the same runs, and the command that takes them."""

import json

import pytest

from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.sampling import Sampling
from celosia.tb.models.run_text import run_text
from celosia.tb.models.run_texts import run_texts
from tests.support.text_cases import RESIDENT, TEXT

LARGE = TEXT.replace(**RESIDENT, scratchpad_bytes=1 << 17)


class Ending:
    """A tokenizer with one more token that ends a text."""

    def __init__(self, tokenizer, end):
        self.own, self.ends = tokenizer, tokenizer.ends | {end}

    def __getattr__(self, name):
        return getattr(self.own, name)


@pytest.mark.parametrize("sampling", [None, Sampling(1.0, 0.9)])
def test_each_text_is_as_alone_until_it_is_over(sampling):
    source, prompts = load_text("tales"), ["one day a red", "the small"]
    decoder = source.quantize(Quantization(texts=2))
    # A letter that one of the texts comes to before the other does.
    tokenizer = Ending(source.tokenizer, source.tokenizer.encode("o")[-1])
    both, alone = (
        compile_text(decoder, LARGE, context=24, sinks=2, texts=texts) for texts in (2, 1)
    )
    report = run_texts(both, tokenizer, prompts, 12, "golden", sampling=sampling, seed=4)
    assert report["mismatches"] == 0
    assert report["cycles_per_run"] is report["cycles_per_token"] is None
    for number, (prompt, text) in enumerate(zip(prompts, report["texts"], strict=True)):
        wanted = run_text(
            alone, tokenizer, prompt, 12, "golden", sampling=sampling, seed=4 + number
        )
        names = "text", "tokens", "prompt_tokens"
        assert [text[name] for name in names] == [wanted[name] for name in names]
    counts = [len(entry["tokens"]) for entry in report["texts"]]
    assert counts[0] != counts[1]
    assert report["last_positions"] == [min(counts) - 1] * 2


def test_the_command_goes_on_with_two_prompts(celosia):
    words = "run", "tales", "--steps", "9", "--sim", "golden"
    both = "--prompt", "one day a red fox", "--prompt", "the"
    code, output, _ = celosia(*words, *both, "--json")
    report = json.loads(output)
    assert (code, output.count("\n"), report["mismatches"]) == (0, 1, 0)
    for prompt, text in zip(both[1::2], report["texts"], strict=True):
        assert text["text"].startswith(prompt)
        assert len(text["tokens"]) == text["prompt_tokens"] + 9
    code, output, _ = celosia(*words, *both)
    assert code == 0
    assert output.startswith("".join(f"{entry['text']}\n" for entry in report["texts"]))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("tales", *["--prompt", "a"] * 3), "Option --prompt may be given 2 times, not 3"),
        (("tales", *["--prompt", "a"] * 2, "--set", "weight_depth=99"), "weight_depth is 99"),
        (("tales", *["--prompt", "a"] * 2, "--steps", "256"), "256 steps need more than the 256"),
    ],
)
def test_the_command_refuses_in_one_sentence(celosia, words, part):
    code, output, errors = celosia("run", *words, "--sim", "golden")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert part in errors


@pytest.mark.parametrize(
    ("words", "count", "message"),
    [
        (("compile", "tales", "--out", "x"), 3, "2 times, not 3"),
        (("flash", "--board", "icebreaker"), 3, "once to celosia flash, not 3 times"),
        (("host", "run", "tales"), 3, "2 times, not 3"),
    ],
)
def test_more_prompts_than_a_command_takes_are_refused(celosia, words, count, message):
    code, output, errors = celosia(*words, *["--prompt", "a"] * count)
    assert (code, output) == (2, "")
    assert errors == f"celosia: Option --prompt may be given {message}\n"


def test_answers_take_no_prompt(celosia, tmp_path):
    file = tmp_path / "answers.txt"
    file.write_text("a\tb\n")
    code, output, errors = celosia("evaluate", "tales", *["--prompt", "a"] * 2, "--answers", file)
    assert (code, output) == (2, "")
    assert errors == "celosia: No such option '--prompt'.\n"
