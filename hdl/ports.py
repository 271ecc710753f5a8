"""Amaranth signatures of the ports between engines, memories and the outside."""

from typing import Any

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.access import Access
from celosia.arch.formats import SCALE_BITS
from celosia.arch.isa import DEFINITIONS, IMMEDIATE_WIDTH, WORD_WIDTH, Engine
from celosia.arch.records import Accumulators, Memory
from celosia.arch.registers import ARRAY_CAUSES
from celosia.hdl.stream.fields import outputs


class ReadPort(wiring.Signature):
    """A read port of the scratchpad, seen from the reader.

    ``request`` carries a byte address, a multiple of ``scratchpad_align``. ``valid`` is 1
    ``sram_latency`` cycles later, or ``weight_latency`` cycles later for weights. ``data`` then has
    ``line_bytes`` bytes from this address on. Bytes past the end of a scratchpad bank are
    undefined.
    """

    def __init__(self, access: Access):
        super().__init__(
            {
                "request": Out(stream.Signature(unsigned(access.addr_width))),
                "valid": In(1),
                "data": In(data.ArrayLayout(8, access.line_bytes)),
            }
        )


def write_layout(access: Access) -> data.StructLayout:
    """Return the payload layout of a scratchpad write: fields ``addr``, ``count`` and ``data``.

    The write stores the first ``count`` bytes of ``data`` from byte address ``addr`` on.
    """
    return data.StructLayout(
        {
            "addr": unsigned(access.addr_width),
            "count": range(access.line_bytes + 1),
            "data": data.ArrayLayout(8, access.line_bytes),
        }
    )


class WritePort(wiring.Signature):
    """A write port of the scratchpad, seen from the writer.

    A read that is accepted at least one cycle after the write returns the written data.
    """

    def __init__(self, access: Access):
        super().__init__({"request": Out(stream.Signature(write_layout(access)))})


class MemoryReadPort(wiring.Signature):
    """The read half of the external memory port, seen from the accelerator.

    ``request`` asks for a burst of ``last + 1`` words from byte address ``addr`` on; ``addr`` must
    be a multiple of a word's size. ``data`` returns the words of each burst in order, and the
    bursts in the order of their requests.
    """

    def __init__(self, memory: Memory):
        super().__init__(
            {
                "request": Out(stream.Signature(burst_layout(memory))),
                "data": In(stream.Signature(unsigned(memory.width))),
            }
        )


class MemoryWritePort(wiring.Signature):
    """The write half of the external memory port, seen from the accelerator.

    ``request`` announces a burst of ``last + 1`` words from byte address ``addr`` on. ``data`` then
    carries the words; a byte is written if its bit of ``mask`` is 1. ``written`` is 1 for one cycle
    for each completed burst.
    """

    def __init__(self, memory: Memory):
        word = {"data": unsigned(memory.width), "mask": unsigned(memory.word_bytes)}
        super().__init__(
            {
                "request": Out(stream.Signature(burst_layout(memory))),
                "data": Out(stream.Signature(data.StructLayout(word))),
                "written": In(1),
            }
        )


def burst_layout(memory: Memory) -> data.StructLayout:
    """Return the payload layout of a request to external memory, for a burst of up to 256 words.

    ``addr`` is the byte address of the first word, and ``last`` the number of words minus 1.
    """
    return data.StructLayout({"addr": unsigned(memory.addr_width), "last": unsigned(8)})


def scale_members(cols: int, *, scaled: bool) -> dict[str, Any]:
    """Return the output ports that carry the scales of weights, as a dictionary from name to port.

    ``"scales"`` has one scale for each of ``cols`` columns. In a cycle with ``"scaled"`` at 1, the
    receiver multiplies each column's sum by its scale. The dictionary is empty if ``scaled`` is
    false.
    """
    scales = data.ArrayLayout(SCALE_BITS * scaled, cols)
    return outputs(scaled=scaled, scales=scales)


class AccumulatePort(wiring.Signature):
    """Sums from the array to the accumulators: one row per cycle, which cannot be refused.

    If ``valid`` is 1, the receiver adds ``data``, one sum per column, to the accumulator row
    ``addr``. If ``scaled`` is 1, the receiver first multiplies each sum by the scale of its column
    (:func:`scale_members`).
    """

    def __init__(self, accumulators: Accumulators, cols: int, *, scaled: bool):
        super().__init__(
            {
                "valid": Out(1),
                "addr": Out(accumulators.addr_width),
                "data": Out(data.ArrayLayout(signed(accumulators.width), cols)),
                **scale_members(cols, scaled=scaled),
            }
        )


class DrainPort(wiring.Signature):
    """The vector engine's access to accumulator rows: each request reads and clears one row.

    ``request`` carries the address of the row. ``acc_latency`` cycles after a request was accepted,
    ``valid`` is 1 and ``data`` is the row before it was cleared. The vector engine cannot refuse
    ``data``.
    """

    def __init__(self, accumulators: Accumulators, cols: int):
        super().__init__(
            {
                "request": Out(stream.Signature(unsigned(accumulators.addr_width))),
                "valid": In(1),
                "data": In(data.ArrayLayout(signed(accumulators.width), cols)),
            }
        )


def command_layout(engine: Engine) -> data.StructLayout:
    """Return the payload layout of an engine's commands: header fields and operands, by name."""
    names: dict[str, Shape] = {}
    for definition in DEFINITIONS.values():
        if definition.engine == engine:
            names |= dict.fromkeys(definition.operands, signed(IMMEDIATE_WIDTH))
    header = {"opcode": unsigned(5), "push": unsigned(len(Engine)), "flags": unsigned(16)}
    return data.StructLayout(header | names)


WORD = data.StructLayout({"engine": Engine, "first": 1, "last": 1, "word": unsigned(WORD_WIDTH)})
"""A word from the sequencer to an engine's queue: an unchanged header, or a resolved operand."""


class EngineStatus(wiring.Signature):
    """The status of an engine: its completed commands, and whether it works or waits.

    ``done`` is 1 for one cycle when a command completes; the engines in the mask ``push`` then
    receive a dependency token. ``busy`` is 1 while the engine has a command. ``stall`` is 1 while a
    memory port lets it wait.
    """

    def __init__(self) -> None:
        super().__init__(
            {"done": Out(1), "push": Out(len(Engine)), "busy": Out(1), "stall": Out(1)}
        )


class HostPort(wiring.Signature):
    """The register bus, seen from the host; ``celosia.arch.registers`` lists the registers.

    ``addr`` is a register's number. ``write_en`` is 1 if that register is written; ``write_data``
    is its new value. ``read_data`` is the value of the register that ``addr`` selected in the
    previous cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {"addr": Out(8), "write_en": Out(1), "write_data": Out(32), "read_data": In(32)}
        )


class TracePort(wiring.Signature):
    """Reports the vector engine's scratchpad writes: results (``o``) and a NORM's sums (``s``).

    The instruction NORM adds its input and its residual, normalizes the sums, and also writes these
    sums. ``retire`` is 1 for one cycle when a vector command has completed, after its last write.
    """

    def __init__(self, access: Access):
        members = {"retire": Out(1)}
        for name in ("o", "s"):
            members[f"{name}_valid"] = Out(1)
            members[f"{name}_write"] = Out(write_layout(access))
        super().__init__(members)


ENGINE_EVENT = data.StructLayout(
    {"offered": 1, "taken": 1, "done": 1, "lacking": unsigned(len(Engine))}
)
"""The events of an engine in a cycle. ``offered``: the next command is offered to the engine.
``taken``: the engine accepts it. ``done``: a command completes. ``lacking``: mask of the engines
whose tokens the next command waits for."""


class EventPort(wiring.Signature):
    """Reports, in each cycle, the events of commands and the activity of the multiplier array.

    If ``word_valid`` is 1, ``word`` enters a command queue. ``engines`` has the events of each
    engine (:data:`ENGINE_EVENT`). ``array`` has a bit for each activity in ``ARRAY_CAUSES``, which
    is 1 if the array had this activity in the previous cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word_valid": Out(1),
                "word": Out(WORD),
                "engines": Out(data.ArrayLayout(ENGINE_EVENT, len(Engine))),
                "array": Out(len(ARRAY_CAUSES)),
            }
        )


class ThermalPort(wiring.Signature):
    """The temperature of a machine whose configuration has the option ``throttle``.

    The machine is hot, and works more slowly, from ``temperature`` above ``hot`` until
    ``temperature`` below ``cool``. The unit is arbitrary.
    """

    def __init__(self) -> None:
        super().__init__({"temperature": Out(8), "hot": Out(8), "cool": Out(8)})


class MachinePorts(wiring.Signature):
    """The external ports of an accelerator.

    ``host`` is the register bus, and ``irq`` its interrupt. ``mem_read`` and ``mem_write`` access
    external memory. ``mem_error`` reports a failed access. ``mem_reset`` must be 1 while memory is
    reset. ``mem_forget`` is 1 for one cycle when the host writes FORGET: outstanding answers of
    memory no longer count.
    """

    def __init__(self, memory: Memory, access: Access, *, thermal: bool, trace: bool):
        members = {
            "host": In(HostPort()),
            "mem_read": Out(MemoryReadPort(memory)),
            "mem_write": Out(MemoryWritePort(memory)),
            "mem_error": In(1),
            # Also 1 together with ``rst`` at power-up; memory answers no earlier request.
            "mem_reset": In(1),
            "mem_forget": Out(1),
            "irq": Out(1),
        }
        if thermal:
            members["thermal"] = In(ThermalPort())
        if trace:
            members |= {"trace": Out(TracePort(access)), "events": Out(EventPort())}
        super().__init__(members)
