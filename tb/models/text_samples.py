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

    Each new token is the most likely one. ``machine`` is a machine or a simulator's name. ``bits``
    is the number of upper bits read of each weight. Raises :class:`InputError` for an unusable
    prompt or simulator.
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
