"""Golden model of the serial line: converts bytes to line levels, and line levels to bytes."""

import numpy as np
from numpy.typing import NDArray


def line_levels(data: bytes, divisor: int) -> NDArray[np.uint8]:
    """Return the serial line's level in each cycle of a transmission, [10 * divisor * bytes].

    A byte is sent as a start bit 0, eight data bits (least significant first), and a stop bit 1.
    Each bit takes ``divisor`` cycles.
    """
    bits = np.ones((len(data), 10), np.uint8)  # [bytes, bits]
    bits[:, 0] = 0
    bits[:, 1:9] = np.unpackbits(np.frombuffer(data, np.uint8)[:, None], axis=1, bitorder="little")
    return bits.ravel().repeat(divisor)


def line_bytes(levels: NDArray[np.uint8], divisor: int) -> list[tuple[int, bool]]:
    """Return the bytes received on a serial line without noise: pairs (byte, stop bit is wrong).

    ``levels`` has the line's level in each cycle; a bit takes ``divisor`` cycles and is sampled in
    its middle. After a wrong stop bit, the line must be 1 before the next byte.
    """
    decoded = []
    cycle = 0
    while cycle < len(levels):
        if levels[cycle]:
            cycle += 1
            continue
        middles = cycle + divisor // 2 + divisor * np.arange(1, 10)  # [data bits, stop bit]
        if middles[-1] >= len(levels):
            break
        bits = levels[middles]
        decoded.append((int(np.packbits(bits[:8], bitorder="little")[0]), not bits[8]))
        cycle = int(middles[-1])
        while cycle < len(levels) and not levels[cycle]:
            cycle += 1
    return decoded
