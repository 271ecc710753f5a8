"""The whole microcode of a configuration."""

from collections.abc import Callable

from arch.isa import DEFINITIONS, Engine, Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.control import control
from arch.micro.drain import drain, fronts, map_rows
from arch.micro.epilogue import epilogue
from arch.micro.fill import params, table
from arch.micro.inverse import inverse
from arch.micro.isa import Signal
from arch.micro.matmul import matmul
from arch.micro.move import load, store
from arch.micro.norm import norm, norm_parts
from arch.micro.softmax import softmax, softmax_parts

Handler = Callable[[Assembler, MicroConfig], None]

HANDLERS: dict[Opcode, Handler] = {
    Opcode.LOAD: load,
    Opcode.STORE: store,
    Opcode.MATMUL: matmul,
    Opcode.PARAMS: params,
    Opcode.TABLE: table,
    Opcode.DRAIN: drain,
    Opcode.MAP: map_rows,
    Opcode.SOFTMAX: softmax,
    Opcode.NORM: norm,
}
"""Function that appends an instruction's microcode: it begins with the operands in the registers of
``arch.micro.memory.OPERANDS`` and the flags in ``FLAGS``, and ends where it falls through."""

ROUTINES: tuple[Handler, ...] = (epilogue, fronts, inverse, softmax_parts, norm_parts)
"""Function that appends routines that several instructions call."""


def assemble(config: MicroConfig) -> Assembler:
    """Return the microcode of a configuration, with its labels."""
    a = Assembler()
    handlers = {
        opcode: handler
        for opcode, handler in HANDLERS.items()
        if (unit := DEFINITIONS[opcode].unit) is None or getattr(config, unit)
    }
    control(a, config, list(handlers))
    for opcode, handler in handlers.items():
        vector = DEFINITIONS[opcode].engine == Engine.VECTOR
        a.label(f"op {opcode.name}")
        if vector:
            a.signal(Signal.VECTOR)
        handler(a, config)
        a.jump("retire" if vector else "next")
    for routine in ROUTINES:
        routine(a, config)
    return a
