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

    A record is a command for the board. It contains requests of the host link (the protocol with
    which a host controls the accelerator), or makes the board send text or wait for the end of a
    program. Each method appends records to the attribute ``body`` (bytes). ``payload`` is the
    largest data size of a request (bytes).
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

        The scores are the outputs of a model in external memory: ``count`` bytes from byte address
        ``addr`` on. The records that :meth:`name` and :meth:`choose_register` append later use the
        index of the largest score, counted from 0.
        """
        self._ask(Command.READ_MEMORY, count, addr)

    def say(self, text: str) -> None:
        """Append a record with which the board sends ``text`` over the serial line."""
        self.body += record(Op.TEXT, text.encode())

    def name(self, labels: Sequence[bytes]) -> None:
        """Append a record with which the board sends one of ``labels`` over the serial line.

        An earlier record, appended by :meth:`compare`, makes the board find the largest of several
        scores. ``labels`` has one text for each score. The board sends the text with the index of
        the largest score. Texts are cut to ``ENTRY_BYTES`` bytes.
        """
        names = [label[:ENTRY_BYTES].ljust(ENTRY_BYTES, b"\0") for label in labels]
        self.body += record(Op.LABEL, b"".join(names))

    def choose_register(self, number: int, values: Sequence[int]) -> None:
        """Append a record with which the board writes one of several values to a register.

        An earlier record, appended by :meth:`compare`, makes the board find the largest of several
        scores. If score i is the largest, counted from 0, the board writes ``values[i]``.

        - ``number`` is the number of the register. It is one of the accelerator's registers that
          programs read.
        - ``values`` has one integer for each score. Each integer is reduced modulo 2**32.
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
    """Return the flash image that loads an encoder and runs it on each of ``inputs``.

    Each element of ``inputs`` has the rows of one input, as :meth:`Host.request` accepts them. At
    power-on the board sends a line over the serial line: the model's name, then the class of each
    input. The class is the index of the output's largest score. The board sends the class's label
    from ``labels`` or, if ``labels`` is empty, the index. ``payload`` is the largest data size of a
    host link request (bytes).

    If there are inputs, the output must be one row of 2 to ``ENTRIES`` INT16 scores, and the model
    must run one input at a time. Otherwise :class:`InputError` is raised.
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
    """Return the flash image with which a board continues a prompt by ``steps`` tokens.

    At power-on, the board sends one line of text over the serial line: the model's name, the prompt
    and its continuation. Each step appends the token with the largest score. ``payload`` is the
    largest data size of a host link request (bytes).

    The board chooses the tokens, so the image must provide for every token. For each step, the
    image has a table with the text of every token of the vocabulary. The board sends the text of
    the chosen token, without its zero bytes. For each step but the last, the image also has a table
    with a register write for every token. The board executes the register write of the chosen
    token, which makes that token the input of the next step.

    Raises :class:`InputError` if the vocabulary has more tokens than a table can hold, or if a
    token's text has too many bytes.
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
        script.set_register(Register.WORD, program.word(token))
        step(position)
    for place in range(steps):
        script.start(program.entries["logits"].pc)
        script.compare(program.output_addr, 2 * program.vocabulary)
        script.name(names if place else names_behind(tokens[-1]))
        if place < steps - 1:
            script.choose_register(Register.WORD, [program.word(each) for each in words])
            step(len(tokens) + place)
    script.say("\r\n")
    return seal(program.config, script.body + record(Op.END))
