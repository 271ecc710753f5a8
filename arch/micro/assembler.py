"""An assembler of micro-instructions.

A line is ``NAME operand, operand, ...``, a label and a colon, a directive with a dot, or a
shorthand. A semicolon starts a comment. Operands are register names, numbers and labels, in the
order of ``operands`` in ``celosia.arch.micro.isa``.
"""

# Directives and shorthands:
# - .registers FIRST NAME ...: names consecutive registers from number FIRST on
# - .words LABEL WORD ...: adds a table of words (numbers or labels) after the code
# - MOVE rd, ra: copies a register
# - SET rd, value: sets a register to 32 bits; one cycle for an immediate, otherwise three
# - GOTO target: jumps
# - CALL link, target: jumps, with the next micro-instruction's address in register link
# - BACK link: jumps to the address in register link
# - IF flags, bit, target, spare: jumps if bit 0 to 12 of register flags is 1; overwrites spare
# - UNLESS flags, bit, target, spare: jumps if the bit is 0; overwrites spare

from collections.abc import Mapping
from types import MappingProxyType

from celosia.arch.errors import ProgramError
from celosia.arch.micro.isa import IMMEDIATE_WIDTH, OPERATIONS, REGISTERS, encode

_HALF = 1 << (IMMEDIATE_WIDTH - 1)


class Microcode:
    """Micro-instructions, labels and constants assembled from a text.

    ``registers`` maps names to register numbers; ``r0`` to ``r63`` and names of the text are added.
    Raises :class:`ProgramError` for an unknown instruction or register, or a label that is defined
    twice.
    """

    def __init__(self, text: str, registers: Mapping[str, int] = MappingProxyType({})):
        self.registers = {f"r{number}": number for number in range(REGISTERS)} | dict(registers)
        self.labels: dict[str, int] = {}
        """Address of every label, table and constant."""
        self._code: list[tuple[str, dict[str, int | str]]] = []
        self._tables: dict[str, list[str]] = {}
        self._constants: dict[int, str] = {}
        for line in text.splitlines():
            self._line(line.partition(";")[0].strip())
        self.length = len(self._code)
        """Number of micro-instructions."""
        place = self.length
        for name, words in self._tables.items():
            self.labels[name] = place
            place += len(words)
        for name in self._constants.values():
            self.labels[name] = place
            place += 1

    def words(self) -> list[int]:
        """Return the microcode words: code, then tables, then constants."""
        tables = [self._value(word) for words in self._tables.values() for word in words]
        placed = [
            encode(name, **{field: self._value(value) for field, value in fields.items()})
            for name, fields in self._code
        ]
        return placed + [word % (1 << 32) for word in (*tables, *self._constants)]

    def _line(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == ".registers":
            first, *names = rest.split()
            self.registers |= {register: int(first) + place for place, register in enumerate(names)}
        elif name == ".words":
            name, *words = rest.split()
            self._label(name)
            self._tables[name] = words
        elif line.endswith(":"):
            self._label(line[:-1])
        elif line:
            self._add(name, [operand.strip() for operand in rest.split(",")] if rest else [])

    def _label(self, name: str) -> None:
        if name in self.labels:
            raise ProgramError(f"Label {name} stands twice")
        self.labels[name] = len(self._code)

    def _add(self, name: str, operands: list[str]) -> None:
        """Append a micro-instruction, or those that a shorthand such as ``MOVE`` stands for."""
        match name, operands:
            case "MOVE", [rd, ra]:
                self._add("ADDI", [rd, ra, "0"])
            case "SET", [rd, text]:
                value = (int(text) + (1 << 31)) % (1 << 32) - (1 << 31)
                short = -_HALF <= value < _HALF
                place = str(value) if short else self._constants.setdefault(value, f"={value}")
                self._add("ADDI" if short else "LC", [rd, "r0", place])
            case "GOTO", [target]:
                self._add("JUMP", ["r0", "r0", target])
            case "CALL", [link, target]:
                self._add("JUMP", [link, "r0", target])
            case "BACK", [link]:
                self._add("JUMP", ["r0", link, "0"])
            case (("IF" | "UNLESS"), [flags, bit, target, spare]):
                self._add("ANDI", [spare, flags, str(1 << int(bit))])
                self._add("BNE" if name == "IF" else "BEQ", [spare, "r0", target])
            case _:
                fields = OPERATIONS[name].operands if name in OPERATIONS else ()
                if name not in OPERATIONS or len(fields) != len(operands):
                    raise ProgramError(
                        f"There is no micro-instruction {name} {', '.join(operands)}"
                    )
                pairs = zip(fields, operands, strict=True)
                encoded = {field: self._operand(field, operand) for field, operand in pairs}
                self._code.append((name, encoded))

    def _operand(self, field: str, text: str) -> int | str:
        if field == "value":
            return text
        if text not in self.registers:
            raise ProgramError(f"There is no register {text}")
        return self.registers[text]

    def _value(self, value: int | str) -> int:
        if isinstance(value, int):
            return value
        if value.lstrip("-").isdecimal():
            return int(value)
        if value not in self.labels:
            raise ProgramError(f"There is no label {value}")
        return self.labels[value]
