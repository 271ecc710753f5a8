"""Properties of weight formats: weights packed into bytes are decoded to the same weights."""

from types import ModuleType

from amaranth.hdl import Array, Assert, Assume, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from celosia.arch.formats import DIGITS, FORMATS, OPERAND_BITS, WeightFormat
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.hdl.stream.pipeline import delay
from celosia.tb.verify.formal.prover import Property

_CODES = 6
"""Codes that are packed; some of them extend over two bytes."""


class _RoundTrip(wiring.Component):
    """Packs ``codes``, which are constant from the first cycle on, and decodes one a cycle."""

    def __init__(self, module: ModuleType, form: WeightFormat):
        self._module = module
        self._form = form
        super().__init__({"codes": In(form.width * _CODES)})

    def elaborate(self, _platform):
        m = Module()
        form, width = self._form, self._form.width
        config = PRESETS["tiny"].replace(cols=1, rows=1, weight_formats=form.name)
        config = config.part(MatrixConfig)
        m.submodules.steps = steps = self._module.DecodeSteps(config.formats, 0, 1)
        m.submodules.decoder = decoder = self._module.WeightDecoder(config)
        begun, first = Signal(), Signal.like(self.codes)
        codes = Mux(begun, first, self.codes)
        m.d.sync += [begun.eq(1), first.eq(codes)]
        packed = _packed(codes, form)
        place, line = Signal(range(len(packed) + 1)), Signal(range(_CODES + 1))
        m.d.comb += [
            steps.format.eq(1),
            steps.advance.eq(line != _CODES),
            decoder.step.valid.eq(line != _CODES),
            decoder.step.payload.eq(steps.step),
            decoder.bytes[0].eq(Array(packed)[place]),
        ]
        with m.If(line != _CODES):
            m.d.sync += [line.eq(line + 1), place.eq(place + steps.reads)]
        values = Array([Const(value, signed(OPERAND_BITS)) for value in form.values])
        every = [codes[width * index :][:width] for index in range(_CODES)]
        wanted = delay(m, values[Array(every)[line]].as_signed(), 1)
        some = delay(m, line != _CODES, 1, reset=True)
        m.d.comb += [
            *(Assume(code < len(form.values)) for code in every),
            Assert(~some | (decoder.o[0] == wanted)),
            Assert((line != _CODES) | (place == len(packed))),
        ]
        return m


def _packed(codes, form: WeightFormat) -> list:
    """Return the bytes of codes: equation (11), or (12) of digits."""
    width, packed = form.width, []
    if form.digits:
        for first in range(0, _CODES, DIGITS):
            number = Const(0, OPERAND_BITS)
            for index in range(first, first + DIGITS):
                digit = codes[width * index :][:width] if index < _CODES else 0
                number = (3 * number + digit)[:OPERAND_BITS]
            packed.append(Array([-(-(256 * code) // 243) for code in range(243)])[number])
        return packed
    bits = Cat(reversed([codes[width * index :][:width] for index in range(_CODES)]))
    bits = Cat(Const(0, -len(bits) % 8), bits)
    return [bits[low : low + 8] for low in reversed(range(0, len(bits), 8))]


def _property(name: str, mutant: tuple[str, str]) -> Property:
    return Property(
        name=f"packed-{name}",
        statement="Weights that are packed into bytes in the format of the property's name are "
        f"decoded to the same: all of {_CODES} codes.",
        module="celosia.hdl.matrix.decoder",
        harness=lambda module: _RoundTrip(module, FORMATS[name]),
        mutant=mutant,
        steps=_CODES + 2,
        pipeline=True,
    )


PACKED = (
    _property("int5", ("Cat(Const(0, zeros), have[zeros:])", "Const(0, 3)")),
    _property("ternary", ("tripled[8:] - 1", "tripled[8:] - 2")),
    _property("nf4", ("bits[OPERAND_BITS - size : OPERAND_BITS]", "bits[:size]")),
)
