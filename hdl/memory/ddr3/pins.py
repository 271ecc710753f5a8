"""The two ports of LiteDRAM's core: its native port, and the bus to its registers."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from celosia.arch.ddr3 import Ddr3Chip


class CorePorts(wiring.Signature):
    """Both ports, seen from their user, with LiteDRAM's own names.

    Commands are taken by a handshake, in the order of which data move. ``wdata_ready`` says that
    ``wdata_data`` has been taken, which must be there whenever a written block has been asked for;
    ``rdata_valid`` that ``rdata_data`` is a block, which cannot be refused. The bus is a classic
    Wishbone with addresses of words.
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
