"""Images for a board's flash from a model and its inputs, and the line that the board will send."""

from dataclasses import dataclass

from arch.config import Config
from arch.errors import InputError
from arch.link import VERSION, Identity, fingerprint
from generators.compiler import CompiledModel, compile_model
from generators.power_on import power_on_image
from generators.sources import load_source
from sim.linked_machine import LinkedMachine
from sim.power_on import PoweredOn, power_on
from tb.run_inputs import Files, Inputs, read_inputs
from tb.run_model import compile_digits, digit_inputs


@dataclass(frozen=True)
class FlashImage:
    """An image, its line of text as the golden machine makes it, and what it is of."""

    data: bytes
    text: str
    compiled: CompiledModel


def flash_image(
    model: str,
    config: Config,
    files: Files,
    *,
    memory_bytes: int,
    payload: int,
    count: int = 1,
    tokens: int = 0,
) -> FlashImage:
    """Return the image of a model that runs on the first ``count`` inputs at power-on.

    The board has ``memory_bytes`` of external memory, and its link takes ``payload`` bytes at once.
    Without ``files`` the model is one of the digits, and runs on the first of their test split.
    With a ``count`` of 0 it is only loaded, for a host.

    Raises :class:`InputError` where the model, the inputs or the memory cannot be used.
    """
    config = config.replace(trace=False)
    chosen: Inputs = []
    labels: tuple[str, ...] = ()
    if files.given():
        source = load_source(model, tokens)
        chosen, samples = read_inputs(source, files, count or None)
        compiled = compile_model(source.description, source.weights, samples, config)
        chosen, labels = [source.rows(each) for each in chosen[:count]], source.labels
    else:
        compiled = compile_digits(model, config)
        chosen = list(digit_inputs(count)) if count else []
    if compiled.memory_bytes > memory_bytes:
        raise InputError(
            f"Model {model} needs {compiled.memory_bytes} bytes of external memory, but the board "
            f"has {memory_bytes}"
        )
    data = power_on_image(compiled, config, chosen, labels, payload)
    identity = Identity(
        version=VERSION,
        configuration=fingerprint(config),
        clock=0,
        memory=memory_bytes,
        payload=payload,
    )
    return FlashImage(data, golden_power_on(data, config, identity).text.decode(), compiled)


def golden_power_on(data: bytes, config: Config, identity: Identity) -> PoweredOn:
    """Return what a golden machine behind a golden link does with an image."""
    machine = LinkedMachine(config, identity)
    return power_on(data, 1 << 32, identity.configuration, machine.ask, lambda: 0)
