"""Expected tokens of a language model's texts, for comparison by firmware and testbenches."""

from collections.abc import Sequence

from celosia.generators.export.c_samples import Sample
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.tb.models.run_text import run_text
from celosia.tb.models.run_texts import run_texts


def text_samples(
    program: Host,
    tokenizer: TokenizerLike,
    prompts: Sequence[str],
    steps: int,
    machine: str | Machine,
    bits: int,
) -> list[Sample]:
    """Return one :class:`Sample` per prompt: the prompt's tokens and at most ``steps`` new tokens.

    The program runs on ``machine`` and always chooses the most likely token. ``machine`` is a
    simulator's name or a machine, as in :class:`celosia.tb.models.text_session.TextSession`.
    ``prompts`` has one prompt, or two if each run of the program processes two texts. For an
    encoder-decoder the prompt is the source text, and the new tokens are the answer. Nested
    weights, which can be read at several widths, are read with ``bits`` bits.

    Raises :class:`InputError` if a prompt cannot be encoded or is too long, if one of two prompts
    has no token, or if the simulator cannot run here.
    """
    if program.batch > 1:
        both = run_texts(program, tokenizer, prompts, steps, machine, bits=(bits,))["texts"]
        return [Sample(text["tokens"], text["prompt_tokens"]) for text in both]
    (prompt,) = prompts
    tokens = run_text(program, tokenizer, prompt, steps, machine, bits=(bits,))["tokens"]
    prompt_tokens = tokenizer.encode(prompt)
    return [
        Sample(
            [*prompt_tokens, *tokens[1 if program.lookups else len(prompt_tokens) :]],
            len(prompt_tokens),
        )
    ]
