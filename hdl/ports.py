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

    ``request`` carries a byte address, a multiple of ``scratchpad_align``. A fixed number of cycles
    after a request was accepted, ``valid`` is 1 and ``data`` holds the ``line_bytes`` bytes from
    that address on. The number is ``weight_latency`` at the port for the array's weights, and
    ``sram_latency`` at other ports. The scratchpad is divided into banks: bytes past the end of the
    address's bank are undefined. The reader cannot refuse an answer.
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

    ``request`` announces a burst of ``last + 1`` words, written from byte address ``addr`` on.
    After each request, ``data`` carries the words of its burst. The ``mask`` of a word has one bit
    per byte, which is 1 if the byte is written. ``written`` is 1 for one cycle for each burst that
    has been written, in the order of the requests.
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
    """Return the payload layout of a request to external memory, for a burst of up to 256 words."""
    return data.StructLayout({"addr": unsigned(memory.addr_width), "last": unsigned(8)})


def scale_members(cols: int, *, scaled: bool) -> dict[str, Any]:
    """Return the output ports that carry the scales of weights, as a dictionary from name to port.

    The dictionary is empty if ``scaled`` is false: the machine's weights then have no scales.
    Otherwise the dictionary has these ports:

    - ``"scales"``: one scale for each of the ``cols`` columns of the array.
    - ``"scaled"``: one bit. If the bit is 1 in a cycle, the receiver multiplies each column's sum
      by the column's scale.
    """
    scales = data.ArrayLayout(SCALE_BITS * scaled, cols)
    return outputs(scaled=scaled, scales=scales)


class AccumulatePort(wiring.Signature):
    """Sums from the array to the accumulators: one row per cycle, which cannot be refused.

    If ``valid`` is 1, the receiver adds ``data``, one sum per column, to the accumulator row
    ``addr``. If the constructor's argument ``scaled`` is true, the port also has the members
    ``scaled`` and ``scales`` (:func:`scale_members`). In a cycle with the member ``scaled`` at 1,
    the receiver first multiplies each sum by the scale of its column; the sums in ``data`` then fit
    in 18 bits (signed).
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
    """The vector engine's access to an accumulator row, which reads and clears it.

    ``acc_latency`` cycles after a request was accepted, ``valid`` is 1 and ``data`` is the row
    before it was cleared. Answers cannot be refused.
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
    """The status of an engine: its completed commands, their tokens, and whether it works or waits.

    ``done`` is 1 for one cycle when a command completes; the engines in the mask ``push`` then
    receive a dependency token. ``busy`` is 1 while the engine has a command. ``stall`` is 1 while
    the engine has a command and cannot proceed because a memory port does not accept or answer a
    request.
    """

    def __init__(self) -> None:
        super().__init__(
            {"done": Out(1), "push": Out(len(Engine)), "busy": Out(1), "stall": Out(1)}
        )


class HostPort(wiring.Signature):
    """The register bus, seen from the host; ``celosia.arch.registers`` lists the registers.

    ``addr`` is a register's number. ``write_en`` is 1 in a cycle in which that register is written;
    ``write_data`` is its new value. ``read_data`` is the value of the register that ``addr``
    selected in the previous cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {"addr": Out(8), "write_en": Out(1), "write_data": Out(32), "read_data": In(32)}
        )


class TracePort(wiring.Signature):
    """Reports the vector engine's scratchpad writes: results (``o``) and a NORM's sums (``s``).

    A NORM normalizes the sums of its input and residual, and also writes these sums. ``retire`` is
    1 for one cycle when a vector command has completed, after its last write.
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

    - ``word_valid`` and ``word``: if ``word_valid`` is 1, ``word`` enters a command queue. The
      words are the headers and operands of the commands, in program order.
    - ``engines``: one field for each engine (:data:`ENGINE_EVENT`). ``offered`` reports that the
      next command is offered to the engine, ``taken`` that the engine accepts it, and ``done`` that
      a command completes. ``lacking`` is a mask of the other engines that must complete a command
      before the next command can begin.
    - ``array``: the activity of the multiplier array in the previous cycle. Each bit is one kind of
      activity, such as multiplying or waiting. During a run exactly one bit is 1; outside a run all
      bits are 0. Bit i belongs to the i-th register with a name that begins with ``ARRAY_``
      (``celosia.arch.registers``). The register counts the cycles in which its bit is 1.
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
    """Inputs for the temperature of a machine whose configuration has the option ``throttle``.

    ``temperature``, ``hot`` and ``cool`` are numbers in the same, arbitrary unit. The machine
    becomes hot, and works more slowly, when ``temperature`` exceeds ``hot``. It is hot until
    ``temperature`` is below ``cool``.
    """

    def __init__(self) -> None:
        super().__init__({"temperature": Out(8), "hot": Out(8), "cool": Out(8)})


class MachinePorts(wiring.Signature):
    """The external ports of an accelerator, either a machine with engines or a microcoded one.

    ``host`` is the register bus (``celosia.arch.registers``) for loading and starting programs;
    ``irq`` is 1 if a bit of the register INTERRUPT and the same bit of INTERRUPT_ENABLE are 1.
    ``mem_read`` and ``mem_write`` are the external memory port; a cycle with ``mem_error`` at 1
    reports a failed access, and ends the run. ``mem_reset`` must be 1 while external memory is
    reset, and together with ``rst`` at power-up. It informs the machine that memory will not answer
    the requests sent before. ``mem_forget`` is 1 for one cycle when the host writes FORGET to the
    register CONTROL: the machine then no longer waits for answers to earlier requests.

    If the configuration has the option ``trace``, the port ``trace`` reports the vector engine's
    writes, and ``events`` the activity of every engine.
    """

    def __init__(self, memory: Memory, access: Access, *, thermal: bool, trace: bool):
        members = {
            "host": In(HostPort()),
            "mem_read": Out(MemoryReadPort(memory)),
            "mem_write": Out(MemoryWritePort(memory)),
            "mem_error": In(1),
            "mem_reset": In(1),
            "mem_forget": Out(1),
            "irq": Out(1),
        }
        if thermal:
            members["thermal"] = In(ThermalPort())
        if trace:
            members |= {"trace": Out(TracePort(access)), "events": Out(EventPort())}
        super().__init__(members)
