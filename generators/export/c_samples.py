"""Sample texts as C code: prompts, and the continuations that the golden machine generated."""

from collections.abc import Sequence
from dataclasses import dataclass

from celosia.generators.export.c_source import Samples, array, initializer


@dataclass(frozen=True)
class Sample:
    """Tokens of a sample: the input (a source text or prompt), and the likeliest continuation."""

    tokens: Sequence[int]
    given: int
    """Number of tokens from the host: the source, or the beginning of the text."""


def one_sample(name: str, sample: Sample) -> Samples:
    """Return C code for one sample text: an array of its tokens, and macros with token counts.

    The declared identifiers begin with ``name`` (macros in upper case).
    """
    upper = name.upper()
    sizes = f"""\
#define {upper}_SAMPLE_TOKENS {len(sample.tokens)}
#define {upper}_SAMPLE_GIVEN {sample.given} /* of these: the source, or what the text begins with */
"""
    declared = f"""\
/* Tokens that are given, and the likeliest ones behind them. */
extern const uint32_t {name}_sample_tokens[];
"""
    defined = array(f"const uint32_t {name}_sample_tokens", map(str, sample.tokens))
    return Samples(sizes, declared, defined)


def several_samples(name: str, samples: Sequence[Sample]) -> Samples:
    """Return C code for several sample texts, which the model processes as a batch.

    The code has one array of tokens for each text, and arrays with the token counts of all texts.
    The declared identifiers begin with ``name``.
    """
    texts = f"{name.upper()}_TEXTS"
    declared = f"""\
/* Of each text: the tokens that are given, how many, and with the likeliest ones behind them. */
extern const uint32_t *const {name}_sample_tokens[{texts}];
extern const uint32_t {name}_sample_given[{texts}], {name}_sample_counts[{texts}];
"""
    own = [f"tokens_{text}" for text in range(len(samples))]
    lengths, counts = zip(*((sample.given, len(sample.tokens)) for sample in samples), strict=True)
    defined = [
        *(
            line
            for which, sample in zip(own, samples, strict=True)
            for line in array(f"static const uint32_t {which}", map(str, sample.tokens))
        ),
        f"const uint32_t *const {name}_sample_tokens[{texts}] = {initializer(own)};",
        f"const uint32_t {name}_sample_given[{texts}] = {initializer(lengths)};",
        f"const uint32_t {name}_sample_counts[{texts}] = {initializer(counts)};",
        "",
    ]
    return Samples(f"#define {texts} {len(samples)}\n", declared, defined)
