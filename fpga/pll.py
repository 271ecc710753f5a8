"""Finds the setting of a device's PLL for the fastest clock up to a given frequency."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.fpga.templates import template

# The loop filter, which nextpnr-ecp5 leaves at zero where no attribute says it; the values are
# those of Project Trellis's ecppll.
_ECP5 = template("pll_ecp5")

_ICE40 = template("pll_ice40")

_GOWIN = template("pll_gowin")


_MOST_MHZ = 1000


def checked_clock(mhz: float) -> float:
    """Return the clock frequency ``mhz`` (MHz) unchanged, after a check of its range.

    Raises :class:`InputError` if the frequency is 0 or less, or above 1000 MHz.
    """
    if not 0 < mhz <= _MOST_MHZ:
        raise InputError(f"The clock must be above 0 and at most {_MOST_MHZ} MHz, not {mhz:g}")
    return mhz


@dataclass(frozen=True)
class Pll:
    """A PLL's setting: its output frequency, the frequency of its VCO (MHz), and its Verilog.

    The Verilog has the input ``clk`` and the output ``locked``. On iCE40 and Gowin, the output
    ``fast`` is the machine's clock. On ECP5, the top module makes ``fast`` of the output
    ``steady``, and ``loop`` is the PLL's feedback.
    """

    mhz: float
    oscillator_mhz: float
    verilog: str


@dataclass(frozen=True)
class Ranges:
    """Limits of the frequencies of a PLL's phase detector, VCO and output.

    Each field is a pair (lowest, highest) in MHz. ``oscillator`` is the VCO.
    """

    detector: tuple[float, float]
    oscillator: tuple[float, float]
    output: tuple[float, float]


RANGES = {
    # Lattice FPGA-DS-02012, table of the sysCLOCK PLL; so has LiteX's ECP5PLL.
    "ecp5": Ranges((10, 400), (400, 800), (3.125, 400)),
    # Lattice FPGA-DS-02008, table of the sysCLOCK PLL; so has IceStorm's icepll.
    "iCE40UP5K": Ranges((10, 133), (533, 1066), (16, 275)),
    # Gowin DS117 and DS102, tables of the PLL; so has Apicula's gowin_pack.
    "GW1NR-9C": Ranges((3, 400), (400, 1200), (3.125, 600)),
    "GW2A-18C": Ranges((3, 500), (500, 1250), (3.90625, 625)),
}
"""Dictionary from a family or a device to the frequency limits of its PLL."""


def _within(range_mhz: tuple[float, float], mhz: float) -> bool:
    return range_mhz[0] <= mhz <= range_mhz[1]


def _ecp5(clock: float, _device: str) -> Iterator[tuple[float, float, dict[str, float]]]:
    ranges = RANGES["ecp5"]
    for input_divider in range(1, 129):
        detector = clock / input_divider
        if not _within(ranges.detector, detector):
            continue
        for feedback in range(1, 81):
            if not _within(ranges.detector, detector * feedback):
                continue
            for primary in range(1, 129):
                oscillator = detector * feedback * primary
                if not _within(ranges.oscillator, oscillator):
                    continue
                for secondary in range(1, 129):
                    if not _within(ranges.output, oscillator / secondary):
                        continue
                    values = {
                        "input_divider": input_divider,
                        "feedback": feedback,
                        "primary": primary,
                        "primary_phase": primary - 1,
                        "secondary": secondary,
                        "secondary_phase": secondary - 1,
                    }
                    yield oscillator / secondary, oscillator, values


def _ice40(clock: float, _device: str) -> Iterator[tuple[float, float, dict[str, float]]]:
    ranges = RANGES["iCE40UP5K"]
    for reference in range(16):
        detector = clock / (reference + 1)
        if not _within(ranges.detector, detector):
            continue
        # The filter's range goes by the phase detector's frequency.
        limits = (17, 26, 44, 66, 101)
        chosen = 1 + sum(detector >= limit for limit in limits)
        for feedback in range(128):
            oscillator = detector * (feedback + 1)
            for output in range(1, 7):
                mhz = oscillator / (1 << output)
                if _within(ranges.oscillator, oscillator) and _within(ranges.output, mhz):
                    values = {
                        "reference": reference,
                        "feedback": feedback,
                        "output": output,
                        "filter": chosen,
                    }
                    yield mhz, oscillator, values


_GOWIN_DIVIDERS = (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)


def _gowin(clock: float, device: str) -> Iterator[tuple[float, float, dict[str, float]]]:
    ranges = RANGES[device]
    for input_divider in range(64):
        detector = clock / (input_divider + 1)
        if not _within(ranges.detector, detector):
            continue
        for feedback in range(64):
            out = detector * (feedback + 1)
            for output in _GOWIN_DIVIDERS:
                if _within(ranges.oscillator, out * output) and _within(ranges.output, out):
                    values = {
                        "input_mhz": clock,
                        "input_divider": input_divider,
                        "feedback": feedback,
                        "output": output,
                    }
                    yield out, out * output, values


_Settings = Callable[[float, str], Iterator[tuple[float, float, dict[str, float]]]]
_FAMILIES: dict[str, tuple[_Settings, str]] = {
    "ecp5": (_ecp5, _ECP5),
    "ice40": (_ice40, _ICE40),
    "gowin": (_gowin, _GOWIN),
}


def find_pll(family: str, device: str, clock_mhz: float, wanted_mhz: float) -> Pll:
    """Return the PLL setting with the highest output frequency that is at most ``wanted_mhz``.

    ``clock_mhz`` is the input frequency. If several settings reach the same frequency, the one with
    the fastest VCO is returned. Raises :class:`InputError` if all output frequencies are above
    ``wanted_mhz``.
    """
    settings, text = _FAMILIES[family]
    best: tuple[float, float, dict[str, float]] | None = None
    for setting in settings(clock_mhz, device):
        if setting[0] <= wanted_mhz * (1 + 1e-9) and (best is None or setting[:2] > best[:2]):
            best = setting
    if best is None:
        raise InputError(
            f"The clock generator of {device} cannot make {wanted_mhz:g} MHz or less "
            f"of {clock_mhz:g} MHz"
        )
    mhz, oscillator, values = best
    return Pll(mhz, oscillator, text.format(**values, device=device))
