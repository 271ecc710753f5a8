"""Flash images from which a board runs a model at power-on, and the text that the board sends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import VERSION, Identity, fingerprint
from celosia.generators.export.flash_images import power_on_image, text_image
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.runtime.host import Host
from celosia.sim.linked_machine import LinkedMachine
from celosia.sim.power_on import power_on
from celosia.tb.models.run_inputs import check_room
from celosia.tb.models.run_text import run_text


@dataclass(frozen=True)
class FlashImage:
    """A flash image, and the text that the golden machine expects the board to send at power-on."""

    data: bytes
    text: str


def flash_image(
    code: Host,
    rows: Sequence[NDArray[np.floating]],
    labels: Sequence[str],
    *,
    memory_bytes: int,
    payload: int,
) -> FlashImage:
    """Return a flash image that loads an encoder at power-on and runs it on each input in ``rows``.

    The board sends the label of each input's class, or the class's number if ``labels`` is empty.
    ``payload`` is the largest payload of the link (bytes). Raises :class:`InputError` if an input
    is wrong, or external memory is too small.
    """
    check_room(code, memory_bytes)
    config = code.config.replace(trace=False)
    # Without inputs, the image only loads the encoder, and a host runs it.
    data = power_on_image(code, config, rows, labels, payload)
    return FlashImage(data, _line(data, config, memory_bytes, payload))


def text_flash_image(
    program: Host,
    tokenizer: TokenizerLike,
    prompt: str,
    steps: int,
    *,
    memory_bytes: int,
    payload: int,
) -> FlashImage:
    """Return a flash image with which a board's language model continues a prompt at power-on.

    The text ends after ``steps`` new tokens, or earlier. ``payload`` is the largest payload of the
    link (bytes). Raises :class:`InputError` if the prompt is unusable, external memory is too
    small, or the model is an encoder-decoder.
    """
    if program.lookups:
        raise InputError(
            f"Model {program.name} answers sources, which an image in the "
            "flash cannot hold; take one that continues a text"
        )
    check_room(program, memory_bytes)
    result = run_text(program, tokenizer, prompt, steps, "golden")
    steps_taken = len(result["tokens"]) - len(tokenizer.encode(prompt))
    data = text_image(program, tokenizer, prompt, steps_taken, payload)
    return FlashImage(data, _line(data, program.config, memory_bytes, payload))


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
