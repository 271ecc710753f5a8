"""A model of the registers of LiteDRAM's core and its ECP5 PHY, for the DDR3 start sequence."""

NAMES = ("command", "command_issue", "address", "baddress")
PHY = ("rst", "inc", "bitslip_rst", "bitslip")
REGISTERS = {f"sdram_dfii_pi{half}_{name}": 0x1004 + 32 * half + 4 * place
             for half in range(2) for place, name in enumerate(NAMES)}  # fmt: skip
REGISTERS |= {f"sdram_dfii_pi{half}_wrdata": 0x1014 + 32 * half for half in range(2)}
REGISTERS |= {f"sdram_dfii_pi{half}_rddata": 0x101C + 32 * half for half in range(2)}
REGISTERS |= {f"ddrphy_rdly_dq_{name}": 0x804 + 4 * place for place, name in enumerate(PHY)}
REGISTERS |= {"ddrphy_dly_sel": 0x800, "ddrphy_burstdet_clr": 0x814, "ddrphy_burstdet_seen": 0x818}
REGISTERS |= {"sdram_dfii_control": 0x1000}
SEQUENCE = [(0, 0, 0x0C, True, 500), (0x320, 2, 0x0F, False, 0), (0x400, 0, 0x03, False, 200)]


class Bus:
    """Model of two DDR3 byte lanes, and of the registers by which a circuit sets their read timing.

    ``windows[lane][slip]`` is the range of read delays that work at a bit slip. After the search
    for delays, the circuit tests both lanes once more. In this test, lanes in ``late`` work at any
    delay, lanes in ``wrong`` return a wrong bit, and lanes in ``silent`` send no strobe.
    """

    def __init__(
        self,
        windows: list[dict[int, range]],
        *,
        late: tuple[int, ...] = (),
        wrong: tuple[int, ...] = (),
        silent: tuple[int, ...] = (),
    ):
        self.windows = windows
        self.late, self.wrong, self.silent = late, wrong, silent
        self.seen = 0  # looks at the strobes of bursts
        self.read_words = 0
        self.written: dict[int, int] = {}
        self.log: list[tuple[int, int]] = []
        self.delays, self.places = [0, 0], [0, 0]

    @property
    def last(self) -> bool:
        """True if the search for bit slips and read delays is over, and the final test has begun.

        In the search, the circuit under test tests each of 8 read delays at each of 4 bit slips.
        Then it selects a bit slip and a delay for each byte lane, and tests the lanes with them
        once more.
        """
        return self.seen >= 2 * 8 * 4

    def passes(self, lane: int) -> bool:
        """Return whether a byte lane reads the right data with its current delay and bit slip."""
        if self.last and lane in self.late:
            return True
        if self.last and lane in self.wrong:
            return False
        return self.delays[lane] in self.windows[lane].get(self.places[lane], ())

    def write(self, addr: int, data: int) -> None:
        """Write a word to the register at a byte address."""
        self.written[addr] = data
        self.log.append((addr, data))
        for lane in range(2):
            if self.written.get(REGISTERS["ddrphy_dly_sel"], 0) >> lane & 1:
                if addr == REGISTERS["ddrphy_rdly_dq_rst"]:
                    self.delays[lane] = 0
                elif addr == REGISTERS["ddrphy_rdly_dq_inc"]:
                    self.delays[lane] = (self.delays[lane] + 1) % 8
                elif addr == REGISTERS["ddrphy_rdly_dq_bitslip_rst"]:
                    self.places[lane] = 0
                elif addr == REGISTERS["ddrphy_rdly_dq_bitslip"]:
                    self.places[lane] = (self.places[lane] + 1) % 4

    def read(self, addr: int) -> int:
        """Return the word of the register at a byte address."""
        if addr == REGISTERS["ddrphy_burstdet_seen"]:
            burst, word = self.seen % 2, 0
            for lane in range(2):
                point = self._point(lane)
                missing = (
                    lane in self.silent
                    if self.last
                    else not self.passes(lane) and point % 9 == 8 and point // 9 % 2 == burst
                )
                word |= (not missing) << lane
            self.seen += 1
            return word
        place, value = self.read_words % 8, self.written[addr - 8]  # which was written before
        self.read_words += 1
        for lane in range(2):
            point = self._point(lane)
            silent = point % 9 == 8 and not self.last
            if not self.passes(lane) and not silent and place == 3 * point % 8:
                value ^= 1 << 8 * lane + point % 8 + 16 * (point // 8 % 2)
        return value

    def _point(self, lane: int) -> int:
        return 8 * self.places[lane] + self.delays[lane]
