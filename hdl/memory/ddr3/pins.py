"""The ports of LiteDRAM's core: the native port, and the Wishbone bus to the core's registers."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from celosia.arch.ddr3 import Ddr3Chip


class CorePorts(wiring.Signature):
    """The native port and the register bus of LiteDRAM's core, seen from the accelerator.

    Signals have LiteDRAM's names. ``wdata_data`` must be available if a write is requested.
    ``rdata_data`` cannot be refused. The ports ``ctrl_NAME`` are a classic Wishbone bus with word
    addresses.
    """

    def __init__(self, chip: Ddr3Chip):
        width = 8 * chip.block_bytes
        blocks = exact_log2(chip.size // chip.block_bytes)
        super().__init__(
            {
                "cmd_valid": Out(1),
                "cmd_ready": In(1),
                "cmd_we": Out(1),
                "cmd_addr": Out(blocks),
                "wdata_valid": Out(1),
                "wdata_ready": In(1),
                "wdata_we": Out(chip.block_bytes),
                "wdata_data": Out(width),
                "rdata_valid": In(1),
                "rdata_ready": Out(1, init=1),
                "rdata_data": In(width),
                "ctrl_cyc": Out(1),
                "ctrl_stb": Out(1),
                "ctrl_we": Out(1),
                "ctrl_adr": Out(30),
                "ctrl_dat_w": Out(32),
                "ctrl_dat_r": In(32),
                "ctrl_ack": In(1),
            }
        )
