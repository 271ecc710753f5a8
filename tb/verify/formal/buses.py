"""Properties of the bus bridges: they obey the rules of AXI4, AXI4-Lite and Wishbone."""

from types import ModuleType
from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal, Value

from celosia.arch.presets import PRESETS
from celosia.hdl.bus.bus import BusAddress
from celosia.tb.verify.formal.harness import (
    Harness,
    ModelQueue,
    assert_held,
    assume_held,
    transfers,
)
from celosia.tb.verify.formal.prover import properties

_CONFIG = PRESETS["tiny"].replace(mem_addr_width=14, mem_width=32)
"""External memory of four pages of 4096 bytes, in words of 4 bytes."""

_ADDRESSES = BusAddress(_CONFIG.memory.addr_width, 32, 1 << 20)
_LONGEST = 2  # words of a Wishbone burst
_BURSTS = 4  # written bursts in flight
_WAIT = 6  # cycles


class _Channel:
    """An AXI channel as a stream: its signals but ``valid`` and ``ready`` are the payload."""

    def __init__(self, dut: Any, prefix: str, names: str):
        self.valid = getattr(dut, f"{prefix}valid")
        self.ready = getattr(dut, f"{prefix}ready")
        self.payload = Cat(getattr(dut, prefix + name) for name in names.split())


def _assume_request(m: Module, request: Any) -> None:
    """Assume the engines' rules for requests: whole words, and no burst across 4096 bytes."""
    assume_held(m, request)
    word = _CONFIG.mem_bytes
    low = request.p.addr[:12]
    m.d.comb += [
        Assume(request.p.addr % word == 0),
        Assume(low + (request.p.last + 1) * word <= 4096),
    ]


def _axi4(module: ModuleType) -> Harness:
    def state(m, dut, probes):
        for port in (dut.read, dut.write):
            _assume_request(m, port.request)
        assume_held(m, dut.write.data)
        address = "id addr len size burst lock cache prot qos"
        for channel in ("aw", "ar"):
            prefix = f"m_axi_{channel}"
            assert_held(m, _Channel(dut, prefix, address))
            addr, length = getattr(dut, f"{prefix}addr"), getattr(dut, f"{prefix}len")
            offered = getattr(dut, f"{prefix}valid")
            m.d.comb += [
                Assert(~offered | (addr % _CONFIG.mem_bytes == 0)),
                Assert(~offered | (addr[:12] + (length + 1) * _CONFIG.mem_bytes <= 4096)),
                Assert(~offered | (addr >> 14 == _ADDRESSES.base >> 14)),
                Assert(getattr(dut, f"{prefix}burst") == 1),
                Assert(1 << getattr(dut, f"{prefix}size") == _CONFIG.mem_bytes),
            ]
        # A slice offers its spare payload next.
        for name, request in (("aw", dut.write.request), ("ar", dut.read.request)):
            spare, waiting = getattr(probes, f"{name}_spare"), getattr(probes, f"{name}_waiting")
            addr, last = spare[: len(request.p.addr)], spare[len(request.p.addr) :]
            fits = addr[:12] + (last + 1) * _CONFIG.mem_bytes <= 4096
            m.d.comb += Assert(~waiting | (fits & (addr % _CONFIG.mem_bytes == 0)))
        w = _Channel(dut, "m_axi_w", "data strb last")
        assert_held(m, w)

    width = len(Value.cast(Signal(module.burst_layout(_CONFIG.memory))))
    probes = {"aw_spare": width, "aw_waiting": 1, "ar_spare": width, "ar_waiting": 1}
    return Harness(module.Axi4Bridge(_CONFIG.memory, _ADDRESSES), state, probes)


def _axi4_last(module: ModuleType) -> Harness:
    """Count the beats of every burst beside the requested lengths."""

    def state(m, dut, _probes):
        request = dut.write.request
        _assume_request(m, request)
        assume_held(m, dut.write.data)
        moved, last = dut.m_axi_wvalid & dut.m_axi_wready, dut.m_axi_wlast
        lengths = ModelQueue(
            m, _BURSTS, request.p.last, transfers(request), moved & last, "lengths"
        )
        beats = Signal(8)
        with m.If(moved):
            m.d.sync += beats.eq(Mux(last, 0, beats + 1))
        m.d.comb += [
            Assume(lengths.count < _BURSTS),
            Assume(request.p.last < 4),
            Assert(~dut.m_axi_wvalid | (lengths.count != 0)),
            Assert(~dut.m_axi_wvalid | (last == (beats == lengths.values[0]))),
        ]

    return Harness(module.Axi4Bridge(_CONFIG.memory, _ADDRESSES), state)


def _axi4_lite(module: ModuleType) -> Harness:
    def state(m, dut, _probes):
        for prefix, names in (("aw", "addr prot"), ("w", "data strb"), ("ar", "addr prot")):
            assume_held(m, _Channel(dut, f"s_axil_{prefix}", names))
        assert_held(m, _Channel(dut, "s_axil_b", "resp"))
        assert_held(m, _Channel(dut, "s_axil_r", "data resp"))
        # No response without its request: those taken and not yet answered, of each kind.
        for request, data, response in (("aw", "w", "b"), ("ar", "ar", "r")):
            channels = (
                _Channel(dut, f"s_axil_{request}", "addr"),
                _Channel(dut, f"s_axil_{data}", ""),
            )
            answer = _Channel(dut, f"s_axil_{response}", "")
            owed = Signal(2, name=f"owed_{response}")
            m.d.sync += owed.eq(owed + transfers(channels[0]) - transfers(answer))
            m.d.comb += [
                Assert(owed <= 1),
                Assert(~answer.valid | (owed == 1)),
                Assert(transfers(channels[0]) == transfers(channels[1])),
            ]
        # An access whose partner never waits is answered within a stated number of cycles.
        for names in (("aw", "w"), ("ar",)):
            offered = Cat(getattr(dut, f"s_axil_{name}valid") for name in names).all()
            ready = getattr(dut, f"s_axil_{names[0]}ready")
            waited = Signal(4, name=f"waited_{names[0]}")
            m.d.sync += waited.eq(Mux(offered & ~ready, waited + 1, 0))
            m.d.comb += Assert(waited <= 2 * _WAIT)
        m.d.comb += [
            Assume(dut.s_axil_bready & dut.s_axil_rready),
            Assert(~dut.host.write_en | dut.s_axil_wready),
        ]

    return Harness(module.Axi4LiteControl(), state)


def _wishbone(module: ModuleType) -> Harness:
    def state(m, dut, _probes):
        for port in (dut.read, dut.write):
            _assume_request(m, port.request)
        assume_held(m, dut.write.data)
        answered = dut.wbm_ack_i | dut.wbm_err_i
        m.d.comb += [
            Assume(~(dut.wbm_ack_i & dut.wbm_err_i)),
            Assume(~answered | dut.wbm_stb_o),
            Assert(~dut.wbm_stb_o | dut.wbm_cyc_o),
            Assert(dut.wbm_adr_o[:2] == 0),
        ]
        bus = (dut.wbm_we_o, dut.wbm_adr_o, dut.wbm_dat_o, dut.wbm_sel_o, dut.wbm_cti_o)
        signals = Cat(*(Value.cast(signal) for signal in bus))
        before, waited, moved, cti = Signal(len(signals)), Signal(), Signal(), Signal(3)
        addr, writes = Signal(len(dut.wbm_adr_o)), Signal()
        m.d.sync += [
            before.eq(signals),
            waited.eq(dut.wbm_stb_o & ~answered),
            moved.eq(dut.wbm_stb_o & dut.wbm_ack_i),
            cti.eq(Value.cast(dut.wbm_cti_o)),
            addr.eq(dut.wbm_adr_o),
            writes.eq(dut.wbm_we_o),
        ]
        m.d.comb += [
            # A word waits unchanged for its answer.
            Assert(~waited | (dut.wbm_stb_o & (signals == before))),
            # Behind a word that says so another follows at the next address, in the same direction.
            Assert(
                ~(moved & (cti == 0b010))
                | (dut.wbm_stb_o & (dut.wbm_adr_o == addr + 4) & (dut.wbm_we_o == writes))
            ),
            # Behind the last word the bus is free for a cycle.
            Assert(~(moved & (cti == 0b111)) | ~dut.wbm_cyc_o),
            Assert(~dut.wbm_stb_o | (Value.cast(dut.wbm_cti_o) != 0)),
        ]

    return Harness(module.WishboneBridge(_CONFIG.memory, _ADDRESSES, _LONGEST), state)


def _wishbone_control(module: ModuleType) -> Harness:
    def state(m, dut, probes):
        asked = dut.wbs_cyc_i & dut.wbs_stb_i
        answered = dut.wbs_ack_o | dut.wbs_err_o
        signals = Cat(dut.wbs_we_i, dut.wbs_adr_i, dut.wbs_dat_i, dut.wbs_sel_i)
        waited, before = Signal(), Signal(len(signals))
        m.d.sync += [waited.eq(asked & ~answered), before.eq(signals)]
        m.d.comb += [
            Assume(~waited | (asked & (signals == before))),
            Assert(~(dut.wbs_ack_o & dut.wbs_err_o)),
            Assert(~answered | asked),
        ]
        cycles = Signal(3)
        m.d.sync += cycles.eq(Mux(asked & ~answered, cycles + 1, 0))
        m.d.comb += Assert(cycles <= 2)
        # A register is written once, before the acknowledge, and only by whole words.
        wrote = Signal(2)
        m.d.sync += wrote.eq(Mux(answered, 0, wrote + dut.host.write_en))
        m.d.comb += [
            Assert(wrote <= 1),
            Assert(~(dut.wbs_ack_o & dut.wbs_we_i) | (wrote == 1)),
            Assert(~dut.wbs_err_o | (wrote == 0)),
            Assert(~dut.host.write_en | (dut.wbs_we_i & dut.wbs_sel_i.all())),
            # The states that the machine can be in, of IDLE, COMING and REST.
            Assert(probes.fsm == cycles + (answered & dut.wbs_we_i)),
            Assert(~dut.wbs_ack_o | ~dut.wbs_we_i | dut.wbs_sel_i.all()),
            Assert(wrote == (dut.wbs_ack_o & dut.wbs_we_i)),
            Assert(~dut.wbs_err_o | dut.wbs_we_i),
            Assert((probes.fsm != 1) | ~dut.wbs_we_i),
        ]

    return Harness(module.WishboneControl(), state, {"fsm": 2})


BUSES = properties(
    {
        "axi4-channels": _axi4,
        "axi4-last": _axi4_last,
        "axi4-lite": _axi4_lite,
        "wishbone-bursts": _wishbone,
        "wishbone-control": _wishbone_control,
    },
    probes={
        "axi4-channels": {
            f"{channel}_{name}": f"dut.{channel}.{name}"
            for channel in ("aw", "ar")
            for name in ("spare", "waiting")
        },
        "wishbone-control": {"fsm": "dut.fsm_state"},
    },
    wait=2 * _WAIT,
)
