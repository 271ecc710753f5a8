"""An assembler of micro-instructions: each method appends one."""

from arch.errors import ProgramError
from arch.micro.isa import IMMEDIATE_WIDTH, OPERATIONS, Form, Signal, encode

Target = int | str


class Assembler:
    """Collects micro-instructions, labels and constants, and makes the microcode's words of them.

    A target or an immediate may be a label, whose address it becomes. Registers are numbers.
    Methods are named as the operations of ``arch.micro.isa``, in the order of their written form.
    """

    def __init__(self) -> None:
        self._code: list[tuple[str, int, int, int, Target]] = []
        self._labels: dict[str, int] = {}
        self._tables: dict[str, list[int | str]] = {}
        self._constants: dict[int, str] = {}

    @property
    def length(self) -> int:
        """Micro-instructions so far."""
        return len(self._code)

    def label(self, name: str) -> None:
        """Name the next micro-instruction.

        Raises :class:`ProgramError` where the name is taken.
        """
        if name in self._labels or name in self._tables:
            raise ProgramError(f"Label {name} stands twice")
        self._labels[name] = len(self._code)

    def table(self, name: str, words: "list[int | str]") -> None:
        """Name words that are placed behind the code: 32-bit values, or addresses of labels."""
        if name in self._labels or name in self._tables:
            raise ProgramError(f"Label {name} stands twice")
        self._tables[name] = words

    def emit(self, name: str, rd: int = 0, ra: int = 0, rb: int = 0, value: Target = 0) -> None:
        """Append a micro-instruction."""
        self._code.append((name, rd, ra, rb, value))

    def alu(self, name: str, rd: int, ra: int, b: int) -> None:
        """Append an operation on two registers, such as ``SUB``; with ``I``, b is an immediate."""
        if OPERATIONS[name].form == Form.IMMEDIATE:
            self.emit(name, rd, ra, value=b)
        else:
            self.emit(name, rd, ra, b)

    def load(self, name: str, rd: int, ra: int, value: Target = 0) -> None:
        """Append LB, LBU, LH, LHU, LD, one of their twins with P, or LC."""
        self.emit(name, rd, ra, value=value)

    def store(self, name: str, ra: int, rb: int, value: Target = 0) -> None:
        """Append SB, SH, ST or one of their twins with P: rb goes to where ra points."""
        self.emit(name, ra=ra, rb=rb, value=value)

    def branch(self, name: str, ra: int, rb: int, target: Target) -> None:
        """Append BEQ, BNE, BLT, BGE, BLTU or BGEU."""
        self.emit(name, ra=ra, rb=rb, value=target)

    def loop(self, ra: int, target: Target) -> None:
        """Count a register down, and go on at a target until it is 0."""
        self.emit("LOOP", ra=ra, value=target)

    def jump(self, target: Target) -> None:
        """Go on at a target."""
        self.emit("JUMP", value=target)

    def call(self, target: Target, link: int) -> None:
        """Go on at a target and keep the next address in a register."""
        self.emit("JUMP", rd=link, value=target)

    def back(self, link: int) -> None:
        """Return to the address in a register."""
        self.emit("JUMP", ra=link)

    def move(self, rd: int, ra: int) -> None:
        """Copy a register."""
        self.emit("ADDI", rd, ra)

    def constant(self, rd: int, value: int) -> None:
        """Set a register to any 32-bit value, signed or not, in one cycle or three."""
        value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        half = 1 << (IMMEDIATE_WIDTH - 1)
        if -half <= value < half:
            self.emit("ADDI", rd, value=value)
        else:
            name = self._constants.setdefault(value, f"constant {value}")
            self.emit("LC", rd, value=name)

    def multiply(self, ra: int, rb: int) -> None:
        """Begin a product. :meth:`low` and :meth:`middle` take parts."""
        self.emit("MUL", ra=ra, rb=rb)

    def low(self, rd: int) -> None:
        """Take the low half of the last product."""
        self.emit("LOW", rd)

    def middle(self, rd: int) -> None:
        """Take bits 31 to 62 of the last product: a Q0.31 product."""
        self.emit("MIDDLE", rd)

    def signal(self, which: Signal) -> None:
        """Tell the outside something."""
        self.emit("SIGNAL", value=which)

    def if_flag(
        self, flags: int, bit: int, target: Target, spare: int, *, clear: bool = False
    ) -> None:
        """Go on at a target if a bit (0 to 12) of a register is 1, or with ``clear`` if it is 0."""
        self.emit("ANDI", spare, flags, value=1 << bit)
        self.branch("BEQ" if clear else "BNE", spare, 0, target)

    def words(self) -> list[int]:
        """Return the microcode: code, then tables, then constants.

        Raises :class:`ProgramError` where a label is missing or an immediate has no room.
        """
        addresses = self.labels()
        tables: list[int | str] = [word for words in self._tables.values() for word in words]
        tables += self._constants
        placed = [
            encode(name, rd=rd, ra=ra, rb=rb, value=_resolve(value, addresses))
            for name, rd, ra, rb, value in self._code
        ]
        return placed + [_resolve(word, addresses) % (1 << 32) for word in tables]

    def labels(self) -> dict[str, int]:
        """Return the address of every label, table and constant."""
        addresses = dict(self._labels)
        place = len(self._code)
        for name, words in self._tables.items():
            addresses[name] = place
            place += len(words)
        for name in self._constants.values():
            addresses[name] = place
            place += 1
        return addresses


def _resolve(value: Target, addresses: dict[str, int]) -> int:
    if isinstance(value, int):
        return value
    if value not in addresses:
        raise ProgramError(f"There is no label {value}")
    return addresses[value]
