"""Bench of the host port behind a bus: random accesses by masters that are not ours.

Parameters: ``control``, the bus; ``accesses``, how many.
"""

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from cocotbext.wishbone.driver import WBOp, WishboneMaster

from celosia.tb.benches.common import parameters, rng, start_clock

WISHBONE_SIGNALS = {
    "cyc": "cyc_i",
    "stb": "stb_i",
    "we": "we_i",
    "adr": "adr_i",
    "datwr": "dat_i",
    "datrd": "dat_o",
    "ack": "ack_o",
    "sel": "sel_i",
    "err": "err_o",
}
"""The names that cocotbext-wishbone has for the signals."""


class _Registers:
    """A register bus on which every register keeps the value written to it."""

    def __init__(self, dut: Any):
        self.values = [addr * 0x01020304 % (1 << 32) for addr in range(256)]
        self.writes: list[tuple[int, int]] = []
        self._dut = dut
        cocotb.start_soon(self._serve())

    async def _serve(self) -> None:
        dut = self._dut
        while True:
            await FallingEdge(dut.clk)
            addr = int(dut.host__addr.value)
            if int(dut.host__write_en.value):
                self.values[addr] = int(dut.host__write_data.value)
                self.writes.append((addr, self.values[addr]))
            await RisingEdge(dut.clk)
            dut.host__read_data.value = self.values[addr]


@cocotb.test()
async def axi4_lite_reaches_the_registers(dut: Any) -> None:
    """Reads and writes, at once and with pauses on every channel; parts of a word are refused."""
    settings, random = parameters(), rng()
    # The package drives its inputs from the beginning on, so the clock comes after it.
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
    await start_clock(dut)
    registers = _Registers(dut)
    for channel in (
        *(master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel),
        *(master.read_if.ar_channel, master.read_if.r_channel),
    ):
        channel.set_pause_generator(bool(random.random() < 0.3) for _ in iter(int, 1))
    wanted = list(registers.values)
    writes = []
    for _ in range(settings["accesses"]):
        addr = int(random.integers(256))
        data = random.bytes(4)
        kind = random.integers(4)
        if kind == 0:
            part = await master.write(4 * addr + 1, data[:2])
            assert part.resp == AxiResp.SLVERR
        elif kind == 1:
            answer = await master.read(4 * addr, 4)
            assert answer.resp == AxiResp.OKAY
            assert int.from_bytes(answer.data, "little") == wanted[addr]
        else:
            other = (addr + 1 + int(random.integers(255))) % 256
            write = cocotb.start_soon(master.write(4 * addr, data))
            read = cocotb.start_soon(master.read(4 * other, 4))
            assert (await write).resp == AxiResp.OKAY
            assert int.from_bytes((await read).data, "little") == wanted[other]
            wanted[addr] = int.from_bytes(data, "little")
            writes.append((addr, wanted[addr]))
    assert registers.writes == writes


@cocotb.test()
async def wishbone_reaches_the_registers(dut: Any) -> None:
    """Reads and writes of whole words, several in one cycle of the bus."""
    settings, random = parameters(), rng()
    await start_clock(dut)
    registers = _Registers(dut)
    master = WishboneMaster(
        dut, "wbs", dut.clk, width=32, timeout=20, signals_dict=WISHBONE_SIGNALS
    )
    wanted = list(registers.values)
    writes = []
    for _ in range(settings["accesses"] // 4):
        operations, answers = [], []
        for _ in range(int(random.integers(1, 8))):
            addr, idle = int(random.integers(256)), int(random.integers(3))
            if random.random() < 0.5:
                value = int(random.integers(1 << 32))
                operations.append(WBOp(adr=4 * addr, dat=value, idle=idle, sel=15))
                wanted[addr] = value
                writes.append((addr, value))
                answers.append(None)
            else:
                operations.append(WBOp(adr=4 * addr, idle=idle, sel=15))
                answers.append(wanted[addr])
        results = await master.send_cycle(operations)
        for answer, result in zip(answers, results, strict=True):
            assert answer is None or int(result.datrd) == answer
    assert registers.writes == writes
    # A part of a word.
    await RisingEdge(dut.clk)
    for name, value in (("cyc", 1), ("stb", 1), ("we", 1), ("sel", 7), ("adr", 8)):
        getattr(dut, f"wbs_{name}_i").value = value
    ends = []
    for _ in range(2):
        await FallingEdge(dut.clk)
        ends.append((int(dut.wbs_ack_o.value), int(dut.wbs_err_o.value)))
        await RisingEdge(dut.clk)
    assert ends == [(0, 0), (0, 1)]
    dut.wbs_cyc_i.value = 0
    assert registers.writes == writes
