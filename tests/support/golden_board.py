"""A board that is a golden machine behind the golden link, and its port."""

import dataclasses
from collections.abc import Callable

import numpy as np

from celosia.arch.config import Config
from celosia.arch.link import VERSION, Identity, fingerprint
from celosia.arch.presets import PRESETS
from celosia.arch.registers import IDENTITY, REGISTER_MAP
from celosia.fpga.device import Device
from celosia.sim.interpreter import Interpreter
from celosia.sim.link import LinkModel

TINY = PRESETS["tiny"]
MEMORY = 1 << 15
ME = Identity(
    version=VERSION, configuration=fingerprint(TINY), clock=10**6, memory=MEMORY, payload=256
)


class GoldenBoard:
    """The golden machine behind the golden link: a board without any fault."""

    def __init__(self, config: Config, identity: Identity):
        self.machine = Interpreter(config)
        self.values = {"ID": IDENTITY, "STATUS": 0, "PC": 0, "CYCLES_LOW": 0}
        self.polls = 0
        self.runs = 0
        self._program = [0] * config.control.program_depth
        self._place = 0
        self._names = {register.addr: name for name, register in REGISTER_MAP.items()}
        self.link = LinkModel(identity, config.control.program_depth, self._read, self._write)

    def _read(self, addr: int) -> int:
        return self.values.get(self._names.get(addr, ""), 0)

    def _write(self, addr: int, value: int) -> None:
        name = self._names[addr]
        if name == "PROGRAM_ADDR":
            self._place = value
        elif name == "PROGRAM_DATA":
            self._program[self._place] = value
            self._place += 1
        elif name.startswith("R"):
            self.machine.set_register(int(name[1:]), value)
        elif name == "CONTROL":
            self.runs += 1
            self.machine.load_program(self._program)
            self.machine.write_memory(0, bytes(self.link.memory))
            report = self.machine.start(self.values["PC"])
            if report is not None:
                self.values["MACS_LOW"] = report.counters["macs"]
            self.link.memory[:] = self.machine.read_memory(0, MEMORY)
            self.values["CYCLES_LOW"] = 7
        else:
            self.values[name] = value


class FakePort:
    """A serial port with a board behind it, and faults between."""

    def __init__(self, board: GoldenBoard):
        self.board = board
        self.timeout: float | None = None
        self.to_board: Callable[[bytes], bytes] = lambda data: data
        self.to_host: Callable[[bytes], bytes] = lambda data: data
        self.closed = False
        self._waiting = b""

    def write(self, data: bytes) -> None:
        answers = b""
        for byte in self.to_board(data):
            answers += self.board.link.receive(byte)
        self._waiting += self.to_host(answers + self.board.link.quiet())

    def read(self, size: int = 1) -> bytes:
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        return data

    def reset_input_buffer(self) -> None:
        self._waiting = b""

    def close(self) -> None:
        self.closed = True


def connected(config: Config = TINY, **changes: int) -> tuple[Device, FakePort]:
    port = FakePort(GoldenBoard(config, dataclasses.replace(ME, **changes)))
    return Device(port, "PORT", run_seconds=0.2), port


def noise(rng: np.random.Generator, chance: float) -> Callable[[bytes], bytes]:
    """Return a function that damages bytes: one changes, is lost or added, or the rest is cut."""

    def damage(data: bytes) -> bytes:
        if not data or rng.random() > chance:
            return data
        at = int(rng.integers(len(data)))
        kind = rng.integers(4)
        if kind == 0:
            return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
        if kind == 1:
            return data[:at] + data[at + 1 :]
        if kind == 2:
            return data[:at] + rng.bytes(1) + data[at:]
        return data[:at]

    return damage
