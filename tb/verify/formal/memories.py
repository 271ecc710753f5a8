"""Properties of memories (reads return the value written last) and the scratchpad's arbiters."""

from types import ModuleType

from amaranth.hdl import Assert, Assume, Cat, Mux, Signal

from celosia.arch.presets import PRESETS
from celosia.hdl.engines import written_bytes
from celosia.hdl.stream.pipeline import delay
from celosia.tb.verify.formal.harness import Harness
from celosia.tb.verify.formal.prover import properties

_LINE = 4  # bytes
_SIZE = 16  # bytes
_CONFIG = PRESETS["tiny"].replace(scratchpad_bytes=256, scratchpad_banks=2)


def _bank(module: ModuleType) -> Harness:
    """Follow one byte, any: its address is an input that never changes."""

    def state(m, dut, probes):
        chosen, first = Signal(range(_SIZE)), Signal(init=1)
        m.d.sync += [chosen.eq(probes.followed), first.eq(0)]
        m.d.comb += Assume(first | (probes.followed == chosen))
        held = Signal(8)
        # Byte i of a line goes to memory i, in the row in which the access has it.
        lane = probes.followed % _LINE
        offset = dut.write_addr % _LINE
        row = dut.write_addr // _LINE + (offset > lane)
        lands = (dut.write_mask.bit_select(lane, 1) == 1) & (row[:2] == probes.followed // _LINE)
        with m.If(lands):
            m.d.sync += held.eq(dut.write_data[lane])
        place = (probes.followed - dut.read_addr)[:4]
        wanted = dut.read_en & (place < _LINE)
        # A read and a write of the same cycle have no order.
        sound = delay(m, wanted & ~lands, 2, reset=True)
        word = dut.read_data[delay(m, place, 2)]
        m.d.comb += [
            Assume(dut.read_en),
            Assert(~sound | (word == delay(m, held, 2))),
        ]

    return Harness(module.Bank(_LINE, _SIZE), state, {"followed": range(_SIZE)})


def _scratchpad(module: ModuleType) -> Harness:
    def state(m, dut, _probes):
        bank = (_CONFIG.bank_bytes - 1).bit_length()
        for kind, names in (("read", dut.readers), ("write", dut.writers)):
            ports = [getattr(dut, f"{kind}_{name}") for name in names]
            asked = []
            for port in ports:
                payload = port.request.p
                addr = payload if kind == "read" else payload.addr
                before = Cat(valid & (other == addr[bank:]) for valid, other in asked)
                asked.append((port.request.valid, addr[bank:]))
                m.d.comb += Assert(port.request.ready == ~before.any())
        for name in dut.readers:
            port = getattr(dut, f"read_{name}")
            granted = port.request.valid & port.request.ready
            answered = delay(m, granted, _CONFIG.sram_latency, reset=True)
            m.d.comb += Assert(port.valid == answered)

    unit = module.Scratchpad(
        _CONFIG.access,
        {name: written_bytes(_CONFIG, name) for name in module.WRITERS},
        banks=_CONFIG.scratchpad.banks,
        bank_bytes=_CONFIG.bank_bytes,
    )
    return Harness(unit, state)


def _ram(module: ModuleType) -> Harness:
    def state(m, dut, probes):
        chosen, first = Signal(2), Signal(init=1)
        m.d.sync += [chosen.eq(probes.followed), first.eq(0)]
        m.d.comb += Assume(first | (probes.followed == chosen))
        held = Signal(2)
        lands = dut.write_en.any() & (dut.write_addr == probes.followed)
        with m.If(lands):
            m.d.sync += held.eq(dut.write_data)
        shown, sound = Signal(2), Signal()
        with m.If(dut.read_en):
            m.d.sync += [
                sound.eq(dut.read_addr == probes.followed),
                shown.eq(Mux(lands, dut.write_data, held)),
            ]
        m.d.comb += Assert(~sound | (dut.read_data == shown))

    return Harness(module.Ram(2, 4, transparent=True), state, {"followed": 2})


MEMORIES = properties(
    {"ram-transparent": _ram, "bank-bytes": _bank, "scratchpad-grants": _scratchpad}
)
