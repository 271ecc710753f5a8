"""The pins and commands of SDR SDRAM."""

from amaranth.hdl import unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.sdram import SdramChip

PRECHARGE_ALL = 1 << 10
"""Mask of the address bit (A10) with which PRECHARGE closes the rows of all banks."""


class Command(enum.Enum, shape=unsigned(3)):
    """An SDRAM command: the bits ``ras_n``, ``cas_n`` and ``we_n``, from the highest bit down."""

    MODE = 0b000
    REFRESH = 0b001
    PRECHARGE = 0b010
    ACTIVATE = 0b011
    WRITE = 0b100
    READ = 0b101
    NOTHING = 0b111


class SdramPins(wiring.Signature):
    """The pins of SDR SDRAM, seen from the controller; all outputs are registers.

    ``ba`` is the bank, and ``a`` the row or column. A bit of ``dqm`` is 1 for a byte that is not
    written. ``dq_o`` is driven if ``dq_oe`` is 1. The chip's clock is not included.
    """

    def __init__(self, chip: SdramChip):
        self.chip = chip
        super().__init__(
            {
                "cke": Out(1),
                "cs_n": Out(1, init=1),
                "ras_n": Out(1, init=1),
                "cas_n": Out(1, init=1),
                "we_n": Out(1, init=1),
                "ba": Out(chip.bank_bits),
                "a": Out(chip.row_bits),
                "dqm": Out(chip.data_width // 8, init=(1 << chip.data_width // 8) - 1),
                "dq_o": Out(chip.data_width),
                "dq_oe": Out(1),
                "dq_i": In(chip.data_width),
            }
        )
