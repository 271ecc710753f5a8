"""Streams inside the vector engine: a beat (one transfer) has bytes or 32-bit values."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring

from celosia.arch.access import Access
from celosia.arch.isa import COUNT_WIDTH
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.stream.pipeline import spread
from celosia.hdl.stream.slice import slices


def beat_layout(access: Access) -> data.StructLayout:
    """Return the layout of a beat: bytes, the number of elements in them, and three end flags.

    ``data`` has ``count`` elements from byte 0 on. ``row_last`` is 1 for the last beat of a row,
    ``tile_last`` for the last beat of a tile, and ``last`` for the last beat of the matrix.
    """
    return data.StructLayout(
        {
            "data": data.ArrayLayout(unsigned(8), access.line_bytes),
            "count": unsigned(COUNT_WIDTH),
            "row_last": 1,
            "tile_last": 1,
            "last": 1,
        }
    )


def value_layout(lanes: int) -> data.StructLayout:
    """Return the layout of a beat that has a 32-bit ``value`` and a bit of ``keep`` for each lane.

    If a lane's bit of ``keep`` is 0, the lane is masked: the output element that the engine writes
    for this lane is the zero point, whatever the value is.
    """
    return data.StructLayout(
        {"value": data.ArrayLayout(signed(32), lanes), "keep": unsigned(lanes)}
    )


def elements(beat, lanes: int, width: int) -> list[Value]:
    """Return the first ``lanes`` elements of a beat, signed numbers of ``width`` bytes each."""
    byte = beat.data
    return [
        Cat(byte[lane * width + part] for part in range(width)).as_signed() for lane in range(lanes)
    ]


def present(beat, lanes: int) -> Value:
    """Return a mask with one bit for each of ``lanes`` lanes: 1 if ``beat`` has an element there.

    A beat (:func:`beat_layout`) is one transfer of a stream; its elements are in the first lanes.
    """
    return Cat(beat.count > lane for lane in range(lanes))


def distribute(m: Module, source, sinks: Sequence[tuple[Value, object]]) -> None:
    """Connect a stream to the sink whose strobe is 1; if all strobes are 0, connect no sink.

    ``sinks`` are pairs (strobe, stream).
    """
    for strobe, sink in sinks:
        m.d.comb += [sink.p.eq(source.p), sink.valid.eq(source.valid & strobe)]
        with m.If(strobe):
            m.d.comb += source.ready.eq(sink.ready)


def collect(m: Module, config: VectorConfig, sources: Sequence[tuple[Value, object]], sink) -> None:
    """Connect the source whose strobe is 1 to ``sink``; if all strobes are 0, connect no source.

    ``sources`` are pairs (strobe, stream of :func:`value_layout`). With the options ``registered``
    and ``fused``, a strobe must be 1 from one cycle before its stream's first beat on.
    """
    lanes = len(sink.p.value)
    for strobe, source in sources:
        near = [strobe] * lanes
        for _ in range(config.lane_stages):
            near = [Signal(name=f"near_{lane}") for lane in range(lanes)]
            spread(m, strobe, near)
        m.d.comb += source.ready.eq(sink.ready & strobe)
        with m.If(strobe):
            m.d.comb += [sink.p.keep.eq(source.p.keep), sink.valid.eq(source.valid)]
        for lane, (value, element) in enumerate(zip(sink.p.value, source.p.value, strict=True)):
            with m.If(near[lane]):
                m.d.comb += value.eq(element)


def staged(
    m: Module, config: VectorConfig, source: wiring.PureInterface, *names: str
) -> wiring.PureInterface:
    """Return ``source`` after a chain of register slices, one for each name in ``names``.

    The slices are submodules of ``m``. Without the option ``registered`` there are none, and the
    result is ``source``. A slice stores one payload, or two with the option ``fused``.
    """
    return slices(m, source, *names, stages=config.stages, forward=not config.fused)
