"""Flash images, from which a board runs an encoder or continues a prompt at power-on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import WORD_BYTES, Command, request
from celosia.arch.power_on import ENTRIES, ENTRY_BYTES, Op, record, seal
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.lower.residence import Register
from celosia.generators.runtime.host import Host

_LONGEST_NAME = 40


class Script:
    """Builds a flash image of records, which a board executes one after another at power-on.

    Each method appends records to the bytes :attr:`body`. ``payload`` is the most data bytes of a
    request of the host link.
    """

    def __init__(self, payload: int):
        self.body = b""
        self._payload = payload
        self._tag = 0

    def write_memory(self, addr: int, data: bytes) -> None:
        """Append records that write bytes to external memory, from byte address ``addr`` on."""
        for place in range(0, len(data), self._payload):
            part = data[place : place + self._payload]
            self._ask(Command.WRITE_MEMORY, len(part), addr + place, part)

    def load_program(self, words: Sequence[int]) -> None:
        """Append records with which a board loads a program into program memory, from word 0 on.

        A record is a command in flash memory that the board executes at power-on. ``words`` are the
        program's 32-bit words.
        """
        step = self._payload // WORD_BYTES
        for place in range(0, len(words), step):
            data = b"".join(word.to_bytes(4, "little") for word in words[place : place + step])
            self._ask(Command.LOAD_PROGRAM, len(data), place, data)

    def set_register(self, number: int, value: int) -> None:
        """Append a record that writes ``value`` modulo 2**32 to sequencer register ``number``."""
        data = (value % (1 << 32)).to_bytes(4, "little")
        self._ask(Command.WRITE_REGISTERS, len(data), REGISTER_MAP[f"R{number}"].addr, data)

    def start(self, pc: int = 0) -> None:
        """Append records with which the board starts a program, and waits until it has ended.

        ``pc`` is the address of the program's first word in program memory.
        """
        self._ask(Command.START, 0, pc)
        self.body += record(Op.WAIT)

    def compare(self, addr: int, count: int) -> None:
        """Append a record with which the board finds the largest of several INT16 scores.

        The scores are ``count`` bytes of external memory from byte address ``addr`` on. Later
        records of :meth:`name` and :meth:`choose_register` use the index of the largest.
        """
        self._ask(Command.READ_MEMORY, count, addr)

    def say(self, text: str) -> None:
        """Append a record with which the board sends ``text`` over the serial line."""
        self.body += record(Op.TEXT, text.encode())

    def name(self, labels: Sequence[bytes]) -> None:
        """Append a record with which the board sends ``labels[i]`` over the serial line.

        The index i is the index of the largest score, which the record of :meth:`compare` finds.
        Labels are cut to ``ENTRY_BYTES`` bytes.
        """
        names = [label[:ENTRY_BYTES].ljust(ENTRY_BYTES, b"\0") for label in labels]
        self.body += record(Op.LABEL, b"".join(names))

    def choose_register(self, number: int, values: Sequence[int]) -> None:
        """Append a record with which the board writes ``values[i]`` to a register of the sequencer.

        The register has the number ``number``. The index i is the index of the largest score, which
        the record of :meth:`compare` finds. Values are reduced modulo 2**32.
        """
        self._tag = (self._tag + 1) % 256
        addr, entries = REGISTER_MAP[f"R{number}"].addr, b""
        for value in values:
            data = (value % (1 << 32)).to_bytes(4, "little")
            frame = request(Command.WRITE_REGISTERS, self._tag, len(data), addr, data)
            entries += frame.ljust(ENTRY_BYTES, b"\0")
        self.body += record(Op.CHOICE, entries)

    def _ask(self, command: Command, length: int, addr: int, data: bytes = b"") -> None:
        self._tag = (self._tag + 1) % 256
        self.body += record(Op.REQUEST, request(command, self._tag, length, addr, data)[1:])


def power_on_image(
    compiled: Host,
    config: Config,
    inputs: Sequence[NDArray[np.floating]],
    labels: Sequence[str],
    payload: int,
) -> bytes:
    """Return the flash image with which a board runs an encoder on ``inputs`` at power-on.

    For each input, the board sends the class over the serial line: its label or, without
    ``labels``, its index. ``payload`` is the most data bytes of a host link request. Raises
    :class:`InputError` if the output is not one row of INT16 scores.
    """
    script = Script(payload)
    script.write_memory(0, compiled.image.tobytes())
    script.load_program(compiled.words)
    output = compiled.output
    script.say(f"celosia: {compiled.name[:_LONGEST_NAME]}, image ok")
    scores = output.rows == 1 and output.wide and 1 < output.columns <= ENTRIES
    if inputs and not (scores and compiled.batch == 1):
        raise InputError(
            f"Model {compiled.name} has no row of at most {ENTRIES} INT16 scores, whose largest a "
            "board could tell; leave out the inputs, and a host can run it"
        )
    names = [name.encode() for name in labels or map(str, range(output.columns))]
    for values in inputs:
        compiled.request(values).give(script)
        script.start()
        script.compare(compiled.output_addr, output.bytes)
        script.say(", class ")
        script.name(names)
    script.say("\r\n")
    return seal(config, script.body + record(Op.END))


def text_image(
    program: Host, tokenizer: TokenizerLike, prompt: str, steps: int, payload: int
) -> bytes:
    """Return the flash image with which a board continues a prompt by ``steps`` tokens at power-on.

    The board sends the model's name, the prompt and the continuation over the serial line.
    ``payload`` is the most data bytes of a host link request. Raises :class:`InputError` if the
    vocabulary or the text of a token is too large.
    """
    script, words = Script(payload), range(program.vocabulary)
    tokens = tokenizer.encode(prompt)

    def names_behind(before: int | None) -> list[bytes]:
        """Return the bytes that each token adds after ``before``, or after any other token."""
        return [
            b""
            if each in tokenizer.ends
            else tokenizer.piece(each, each if before is None else before).replace(b"\0", b"")
            for each in words
        ]

    names = names_behind(None)
    if len(names) > ENTRIES or any(len(name) > ENTRY_BYTES for name in names):
        raise InputError(
            f"The tokens of model {program.name} must be at most {ENTRIES} of at most "
            f"{ENTRY_BYTES} bytes for a board to print them by itself"
        )
    for fill in program.setup:
        script.write_memory(0, fill.image)
        script.load_program(fill.words)
        script.start()
    script.load_program(program.words)
    script.say(f"celosia: {program.name[:_LONGEST_NAME]}, image ok: {prompt}")

    def step(position: int) -> None:
        run = program.run(position)
        for number, value in run.registers.items():
            script.set_register(number, value)
        script.start(program.entries[run.entry].pc)

    for position, token in enumerate(tokens):
        script.set_register(Register.WORD, program.embedding_offset(token))
        step(position)
    for place in range(steps):
        script.start(program.entries["logits"].pc)
        script.compare(program.output_addr, 2 * program.vocabulary)
        script.name(names if place else names_behind(tokens[-1]))
        if place < steps - 1:
            script.choose_register(
                Register.WORD, [program.embedding_offset(each) for each in words]
            )
            step(len(tokens) + place)
    script.say("\r\n")
    return seal(program.config, script.body + record(Op.END))
