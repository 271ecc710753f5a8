"""Images for a board's flash: a compiled model, its inputs, and the text of their results."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.link import WORD_BYTES, Command, request
from arch.power_on import LABEL_BYTES, LABELS, Op, record, seal
from arch.registers import REGISTER_MAP
from generators.compiler import CompiledModel

_LONGEST_NAME = 40


class Script:
    """A machine that notes the requests which a machine behind the host link would get.

    ``payload`` is the longest payload of one (bytes). ``body`` are the records.
    """

    def __init__(self, payload: int):
        self.body = b""
        self._payload = payload
        self._tag = 0

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory."""
        for place in range(0, len(data), self._payload):
            part = data[place : place + self._payload]
            self._ask(Command.WRITE_MEMORY, len(part), addr + place, part)

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words."""
        step = self._payload // WORD_BYTES
        for place in range(0, len(words), step):
            data = b"".join(word.to_bytes(4, "little") for word in words[place : place + step])
            self._ask(Command.LOAD_PROGRAM, len(data), place, data)

    def set_register(self, number: int, value: int) -> None:
        """Set a register of the sequencer."""
        data = (value % (1 << 32)).to_bytes(4, "little")
        self._ask(Command.WRITE_REGISTERS, len(data), REGISTER_MAP[f"R{number}"].addr, data)

    def start(self) -> None:
        """Run the program from its first word to its end."""
        self._ask(Command.START, 0, 0)
        self.body += record(Op.WAIT)

    def compare(self, addr: int, count: int) -> None:
        """Find the largest of the INT16 numbers in so many bytes of external memory."""
        self._ask(Command.READ_MEMORY, count, addr)

    def say(self, text: str) -> None:
        """Send a text."""
        self.body += record(Op.TEXT, text.encode())

    def name(self, labels: Sequence[str]) -> None:
        """Send the label of the largest number."""
        names = [label.encode()[:LABEL_BYTES].ljust(LABEL_BYTES, b"\0") for label in labels]
        self.body += record(Op.LABEL, b"".join(names))

    def _ask(self, command: Command, length: int, addr: int, data: bytes = b"") -> None:
        self._tag = (self._tag + 1) % 256
        self.body += record(Op.REQUEST, request(command, self._tag, length, addr, data)[1:])


def power_on_image(
    compiled: CompiledModel,
    config: Config,
    inputs: Sequence[NDArray[np.floating]],
    labels: Sequence[str],
    payload: int,
) -> bytes:
    """Return the image that loads a model and runs it on inputs, of which there may be none.

    Its line of text is the model's name and the class of each input: that of ``labels`` where
    there are any, else its number. ``payload`` is the link's longest one (bytes).

    Raises :class:`InputError` where there are inputs and the model's output is not one row of
    INT16 scores.
    """
    script = Script(payload)
    script.write_memory(0, compiled.image.tobytes())
    script.load_program(compiled.words)
    model, output = compiled.quantized.description, compiled.quantized.output
    script.say(f"celosia: {model.name[:_LONGEST_NAME]}, image ok")
    scores = output.rows == 1 and output.wide and 1 < output.columns <= LABELS
    if inputs and not (scores and compiled.batch == 1):
        raise InputError(
            f"Model {model.name} has no row of at most {LABELS} INT16 scores, whose largest a "
            "board could tell; leave out the inputs, and a host can run it"
        )
    names = labels or [str(column) for column in range(output.columns)]
    for values in inputs:
        compiled.request(values).give(script)
        script.start()
        script.compare(compiled.output_addr, output.bytes)
        script.say(", class ")
        script.name(names)
    script.say("\r\n")
    return seal(config, script.body + record(Op.END))
