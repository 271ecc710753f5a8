"""Images for a board's flash from a model and its inputs, and the line that the board will send."""

from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import VERSION, Identity, fingerprint
from celosia.generators.export.flash_images import power_on_image, text_image
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import TokenizerLike
from celosia.generators.lower.encoder_compiler import CompiledModel, Options, compile_model
from celosia.generators.runtime.text_host import TextHost
from celosia.sim.linked_machine import LinkedMachine
from celosia.sim.power_on import power_on
from celosia.tb.models.run_inputs import Files, check_room, read_inputs
from celosia.tb.models.run_text import run_text


@dataclass(frozen=True)
class FlashImage:
    """An image, its line of text computed by the golden machine, and its model."""

    data: bytes
    text: str
    compiled: CompiledModel | None
    """The compiled model; None for a model of texts."""


def flash_image(
    model: str,
    config: Config,
    files: Files,
    *,
    memory_bytes: int,
    payload: int,
    count: int = 1,
    tokens: int = 0,
    options: Options | None = None,
) -> FlashImage:
    """Return the image of a model that runs on the first ``count`` inputs at power-on.

    The board has ``memory_bytes`` of external memory; its link accepts ``payload`` bytes at once.
    Without ``files`` the model is one of the digits, and runs on the first of their test split.
    With a ``count`` of 0 it is only loaded, for a host.

    Raises :class:`InputError` if the model, the inputs or the memory cannot be used.
    """
    config = config.replace(trace=False)
    source = load_source(model, tokens)
    inputs, samples, _ = read_inputs(model, source, files, count or None)
    compiled = compile_model(source.description, source.weights, samples, config, options)
    check_room(compiled, memory_bytes)
    chosen = [source.rows(each) for each in inputs[:count]]
    data = power_on_image(compiled, config, chosen, source.labels, payload)
    return FlashImage(data, _line(data, config, memory_bytes, payload), compiled)


def text_flash_image(
    program: TextHost,
    tokenizer: TokenizerLike,
    prompt: str,
    steps: int,
    *,
    memory_bytes: int,
    payload: int,
) -> FlashImage:
    """Return the image of a language model that continues a prompt at power-on.

    It adds ``steps`` tokens, fewer if the golden machine's text ends earlier.

    Raises :class:`InputError` if the prompt is too long, the tokens are unknown, or the model
    answers sources.
    """
    if program.lookups:
        raise InputError(
            f"Model {program.name} answers sources, which an image in the "
            "flash cannot hold; take one that continues a text"
        )
    result = run_text(program, tokenizer, prompt, steps, "golden")
    steps_taken = len(result["tokens"]) - len(tokenizer.encode(prompt))
    data = text_image(program, tokenizer, prompt, steps_taken, payload)
    return FlashImage(data, _line(data, program.config, memory_bytes, payload), None)


def _line(data: bytes, config: Config, memory_bytes: int, payload: int) -> str:
    """Return the line that a golden machine and a golden link send at power-on with an image."""
    identity = Identity(
        version=VERSION,
        configuration=fingerprint(config),
        clock=0,
        memory=memory_bytes,
        payload=payload,
    )
    machine = LinkedMachine(config, identity)
    link = power_on(data, 1 << 32, identity.configuration, machine.ask, lambda: 0)
    return link.text.decode(errors="replace")
