"""Golden model of a machine connected through its host link."""

from collections.abc import Callable

from celosia.arch.config import Config
from celosia.arch.link import Identity
from celosia.arch.registers import CONTROL_START, REGISTER_MAP
from celosia.sim.interpreter import Interpreter
from celosia.sim.link import LinkModel

_NAMES = {register.addr: name for name, register in REGISTER_MAP.items()}


class LinkedMachine:
    """A golden machine that a host controls by requests, through the golden model of the host link.

    A START request performs the whole run: the run has ended when the answer is returned.
    """

    def __init__(self, config: Config, identity: Identity):
        self._machine = Interpreter(config)
        self._words = [0] * config.control.program_depth
        self._last = -1  # the largest program address written
        self._place = self._pc = 0
        self._link = LinkModel(identity, config.control.program_depth, lambda _addr: 0, self._write)

    def ask(self, frame: bytes) -> bytes:
        """Process the bytes of a request frame, and return the bytes of the answer frame."""
        receive: Callable[[int], bytes] = self._link.receive
        return b"".join(map(receive, frame)) or self._link.quiet()

    def _write(self, addr: int, value: int) -> None:
        name = _NAMES[addr]
        if name == "PROGRAM_ADDR":
            self._place = value
        elif name == "PROGRAM_DATA":
            self._words[self._place] = value
            self._last = max(self._last, self._place)
            self._place += 1
        elif name == "PC":
            self._pc = value
        elif name == "CONTROL" and value & CONTROL_START:
            self._run()
        elif name.startswith("R"):
            self._machine.set_register(int(name[1:]), value)

    def _run(self) -> None:
        """Run on the link's memory, which is also the machine's."""
        memory = self._link.memory
        self._machine.load_program(self._words[: self._last + 1])
        self._machine.write_memory(0, bytes(memory))
        self._machine.start(self._pc)
        memory[:] = self._machine.read_memory(0, len(memory))
