"""LiteDRAM's simulation model of an ECP5's DDR3 PHY and the chip, with read delays added.

A byte lane returns wrong bits unless its read delay and bit slip have values of :data:`LANES`; the
machine must find them first. A burst takes two cycles of the machine's clock.
"""

from litedram.phy.dfi import Interface
from litedram.phy.model import SDRAM_VERBOSE_OFF, SDRAM_VERBOSE_STD, SDRAMPHYModel
from litex.gen import ClockDomain, LiteXModule
from litex.soc.interconnect.csr import CSR, AutoCSR, CSRStatus, CSRStorage
from migen import If, Module, Mux, Signal

LANES = ((range(1, 5), 2), (range(0, 3), 1))
"""Pairs (read delays that pass, bit slip that passes), one for each byte lane."""

_WRONG = 0b00100100  # bits that a lane turns otherwise


class ModelClock(LiteXModule):
    """The clock domain of LiteDRAM's core in a simulation; the core's clock and reset are inputs.

    The inputs are ``clk`` and ``rst``. On a board, a PLL in the core makes the clock instead.
    """

    def __init__(self, platform, config):
        self.cd_sys = ClockDomain()
        self.stop, self.reset = Signal(), Signal()
        self.comb += [
            self.cd_sys.clk.eq(platform.request("clk")),
            self.cd_sys.rst.eq(platform.request("rst")),
            platform.request("pll_locked").eq(1),
        ]


class ModelPhy(Module, AutoCSR):
    """Simulation model of an ECP5's DDR3 PHY, together with the DDR3 chip at its pins.

    The model has the control registers, settings and memory controller interface of the PHY. The
    chip is LiteDRAM's ``SDRAMPHYModel``.
    """

    @classmethod
    def of(cls, real, config, watched):
        """Return a subclass of this class with the constructor arguments of the PHY class ``real``.

        ``config`` is the configuration of LiteDRAM's generator. If ``watched`` is true, the model
        prints violations of the chip's timing.
        """

        class Made(cls):
            def __init__(self, pads, sys_clk_freq, **options):
                settings = real(pads, sys_clk_freq=sys_clk_freq, **options).settings
                chip = config["sdram_module"](sys_clk_freq, rate="1:2")
                told = SDRAM_VERBOSE_STD if watched else SDRAM_VERBOSE_OFF
                super().__init__(
                    SDRAMPHYModel(chip, settings, clk_freq=sys_clk_freq, verbosity=told)
                )

        return Made

    def __init__(self, inner):
        lanes = inner.settings.databits // 8
        self.settings = inner.settings
        self.submodules.inner = inner
        self.init = Module()
        self.init.stop, self.init.reset = Signal(), Signal()
        self._dly_sel = CSRStorage(lanes)
        self._rdly_dq_rst = CSR()
        self._rdly_dq_inc = CSR()
        self._rdly_dq_bitslip_rst = CSR()
        self._rdly_dq_bitslip = CSR()
        self._burstdet_clr = CSR()
        self._burstdet_seen = CSRStatus(lanes)

        below = inner.dfi
        self.dfi = Interface(
            len(below.p0.address), len(below.p0.bank), 1, len(below.p0.wrdata), len(below.phases)
        )
        self.comb += self.dfi.connect(below, omit={"rddata", "rddata_valid"})
        # The model says of its first phase alone that there are data.
        self.comb += [mine.rddata_valid.eq(below.p0.rddata_valid) for mine in self.dfi.phases]
        for lane, (delays, place) in enumerate(LANES[:lanes]):
            delay, slip, right = Signal(3), Signal(2), Signal()
            selected = self._dly_sel.storage[lane]
            inside = (delay >= delays.start) & (delay < delays.stop)
            self.comb += right.eq(inside & (slip == place))
            self.sync += [
                If(selected & self._rdly_dq_inc.re, delay.eq(delay + 1)),
                If(selected & self._rdly_dq_rst.re, delay.eq(0)),
                If(selected & self._rdly_dq_bitslip.re, slip.eq(slip + 1)),
                If(selected & self._rdly_dq_bitslip_rst.re, slip.eq(0)),
                If(below.p0.rddata_valid & inside, self._burstdet_seen.status[lane].eq(1)),
                If(self._burstdet_clr.re, self._burstdet_seen.status[lane].eq(0)),
            ]
            for mine, its in zip(self.dfi.phases, below.phases, strict=True):
                for byte in range(lane, len(its.rddata) // 8, lanes):
                    bits = slice(8 * byte, 8 * byte + 8)
                    self.comb += mine.rddata[bits].eq(its.rddata[bits] ^ Mux(right, 0, _WRONG))
