"""DDR3 SDRAM connected through LiteDRAM's core: chip sizes, and the core's start-up sequence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from celosia.arch.tables import own_table

DELAYS = 8
"""Read delay settings of each byte lane."""
SLIPS = 4
"""Bit-slip settings of each byte lane: positions in a burst at which its data may begin."""
RESET_WAIT = 1 << 16
"""Time with the chip's reset before the first step (cycles): 200 us (JEDEC) up to 327 MHz."""
AWAKE_WAIT = 1 << 17
"""Time from the end of the reset to CKE (cycles): 500 us (JEDEC) up to 262 MHz."""

_SHORT = 32  # cycles: longer than a write or a read takes, and than tRCD, tWR and tRP
# Two bursts of four 32-bit words, each the other's complement. No shift and no exchange of beats
# or lanes maps a burst to itself.
_WORDS = (0x3A6C_51E2, 0xC517_0F9B, 0x6E82_B4D1, 0x1D49_E736)
_PATTERNS = (_WORDS, tuple(word ^ 0xFFFF_FFFF for word in _WORDS))

_HARDWARE = 0x01
_CKE, _RESET_N = 0x02, 0x08  # bits of the control register
_CS, _WE, _CAS, _RAS, _WRITES, _READS = (1 << bit for bit in range(6))


@dataclass(frozen=True, kw_only=True)
class Ddr3Chip:
    """The geometry of a DDR3 chip; ``name`` is LiteDRAM's name of the chip.

    A chip has ``2**bank_bits`` banks of ``2**row_bits`` rows of ``2**col_bits`` columns of
    ``data_width`` bits.
    """

    name: str
    row_bits: int
    bank_bits: int = 3
    col_bits: int = 10
    data_width: int = 16

    @property
    def size(self) -> int:
        """Size of the chip (bytes)."""
        return self.data_width // 8 << (self.bank_bits + self.row_bits + self.col_bits)

    @property
    def lanes(self) -> int:
        """Number of the chip's byte lanes."""
        return self.data_width // 8

    @property
    def block_bytes(self) -> int:
        """Size of one burst of eight columns, the only access size of LiteDRAM's core (bytes)."""
        return 8 * self.lanes


class Kind(Enum):
    """Kind of a DDR3 start-up step: a register write, or a read that tests the byte lanes."""

    WRITE = 0
    """Write the step's data."""
    SELECT = 1
    """Write a mask with one bit for each byte lane that is being calibrated."""
    CHECK = 2
    """Read and compare with the step's data; a byte that differs marks its lane as failed."""
    SEEN = 3
    """Read one bit for each byte lane; a 0 marks the lane as failed."""


@dataclass(frozen=True)
class Step:
    """A start-up step: one access to a register of LiteDRAM's core.

    ``addr`` is the register's byte address. ``kind`` states the operation, and ``data`` is the
    value that kind ``WRITE`` writes or kind ``CHECK`` expects. After the access, at least ``wait``
    cycles pass before the next step's access.
    """

    addr: int
    data: int = 0
    kind: Kind = Kind.WRITE
    wait: int = 1


@dataclass(frozen=True, kw_only=True)
class Ddr3Start:
    """Register accesses that start LiteDRAM's core and its DDR3 chip, grouped by purpose.

    The groups ``first``, ``later`` and ``slip`` set the read delay and the bit slip of only those
    byte lanes that are being calibrated. The first access of each group selects these lanes
    (:attr:`Kind.SELECT`).
    """

    chip: Ddr3Chip
    wake: tuple[Step, ...]
    """Start the chip."""
    first: tuple[Step, ...]
    """Set read delay and bit slip (bits by which received data are shifted) to their minimum."""
    later: tuple[Step, ...]
    """Increase the read delay by one."""
    slip: tuple[Step, ...]
    """Increase the bit slip by one, and set the smallest read delay."""
    test: tuple[Step, ...]
    """Write a burst of each test pattern and read it back."""
    begin: tuple[Step, ...]
    """Hand the chip to the memory controller."""


def start_up_steps(
    chip: Ddr3Chip,
    registers: Mapping[str, int],
    sequence: Sequence[tuple[int, int, int, bool, int]],
    phases: tuple[int, int],
) -> Ddr3Start:
    """Return the register accesses that start LiteDRAM's core and its DDR3 chip.

    - ``registers``: byte address of each register, by LiteDRAM's name.
    - ``sequence``: LiteDRAM's commands: (address pins, bank pins, command, True if the command is a
      value for the control register, cycles to wait).
    - ``phases``: DFI phases (command slots of a cycle) for reads and for writes.
    """

    def control(data: int, wait: int = 1) -> Step:
        return Step(registers["sdram_dfii_control"], data, wait=wait)

    def issue(phase: int, command: int, wait: int = _SHORT) -> Iterator[Step]:
        yield Step(registers[f"sdram_dfii_pi{phase}_command"], command)
        yield Step(registers[f"sdram_dfii_pi{phase}_command_issue"], 1, wait=max(wait, _SHORT))

    def place(phase: int, addr: int, bank: int) -> Iterator[Step]:
        yield Step(registers[f"sdram_dfii_pi{phase}_address"], addr)
        yield Step(registers[f"sdram_dfii_pi{phase}_baddress"], bank)

    def select(*moves: str) -> tuple[Step, ...]:
        lanes = registers["ddrphy_dly_sel"]
        return (
            Step(lanes, kind=Kind.SELECT),
            *(Step(registers[f"ddrphy_rdly_dq_{move}"], 1) for move in moves),
            # All lanes are halted once more, together, so that their clocks begin together.
            Step(lanes, 0),
            Step(lanes, (1 << chip.lanes) - 1),
            Step(lanes, 0, wait=_SHORT),
        )

    wake = [control(0, RESET_WAIT)]
    for addr, bank, command, controls, wait in sequence:
        if controls and command & (_CKE | _RESET_N) == _RESET_N:
            wait = max(wait, AWAKE_WAIT)
        wake += place(0, addr, bank)
        wake += [control(command, wait)] if controls else issue(0, command, wait)

    reads, writes = phases
    halves = [f"sdram_dfii_pi{phase}_{{}}" for phase in range(2)]

    def data(name: str, words: Sequence[int], kind: Kind) -> Iterator[Step]:
        for index, word in enumerate(words):
            yield Step(registers[halves[index // 2].format(name)] + 4 * (index % 2), word, kind)

    test = [step for phase in range(2) for step in place(phase, 0, 0)]
    test += issue(0, _RAS | _CS)
    for words in _PATTERNS:
        test += data("wrdata", words, Kind.WRITE)
        test += issue(writes, _CAS | _WE | _CS | _WRITES)
        test += [Step(registers["ddrphy_burstdet_clr"], 1)]
        test += issue(reads, _CAS | _CS | _READS)
        test += data("rddata", words, Kind.CHECK)
        test += [Step(registers["ddrphy_burstdet_seen"], kind=Kind.SEEN)]
    test += issue(0, _RAS | _WE | _CS)
    return Ddr3Start(
        chip=chip,
        wake=tuple(wake),
        first=select("bitslip_rst", "rst"),
        later=select("inc"),
        slip=select("bitslip", "rst"),
        test=tuple(test),
        begin=(control(_HARDWARE, _SHORT),),
    )


CHIPS = {name: Ddr3Chip(name=name, **values) for name, values in own_table("ddr3_chips").items()}
"""Every supported chip by name."""
