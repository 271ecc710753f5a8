"""Decoder of vector engine commands: one bit for each opcode and each flag."""

from collections.abc import Iterable

from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import DEFINITIONS, Definition, Engine
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout

_DEFINITIONS = [
    definition for definition in DEFINITIONS.values() if definition.engine == Engine.VECTOR
]


def _name(definition: Definition) -> str:
    return definition.opcode.name.lower()


def opcode_layout() -> data.StructLayout:
    """Return a layout with one bit for each vector engine opcode.

    The bit has the opcode's name in lower case.
    """
    return data.StructLayout({_name(definition): 1 for definition in _DEFINITIONS})


def flag_layout() -> data.StructLayout:
    """Return a layout with a bit for each flag of the vector engine, named like the flag."""
    return data.StructLayout({flag: 1 for definition in _DEFINITIONS for flag in definition.flags})


class VectorDecoder(Component):
    """Decodes a command's opcode and flags into one bit each; combinational.

    The bit of an opcode is always 0 if the configuration lacks it. The bit of a flag is always 0 if
    the configuration lacks all instructions with it.
    """

    command: data.View
    """The command to decode."""
    opcode: data.View
    """One bit for each opcode."""
    flag: data.View
    """One bit for each flag."""

    def __init__(self, instructions: Iterable[Definition]):
        self.instructions = [each for each in instructions if each.engine == Engine.VECTOR]
        super().__init__(
            {
                "command": In(command_layout(Engine.VECTOR)),
                "opcode": Out(opcode_layout()),
                "flag": Out(flag_layout()),
            }
        )

    def circuit(self, m):
        for definition in self.instructions:
            here = self.opcode[_name(definition)]
            m.d.comb += here.eq(self.command.opcode == definition.opcode)
            for flag in definition.flags:
                m.d.comb += self.flag[flag].eq(self.command.flags[definition.flag_bit(flag)])
