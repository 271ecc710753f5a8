"""The memory image: the content and the layout of external memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.generators.lower.fitting import FitError

Bytes = NDArray[np.uint8]
LONGEST_ROW = 1 << 14
"""Longest row of a load or store in the layout of the image (bytes)."""


@dataclass(frozen=True)
class Piece:
    """A piece of external memory: ``m`` consecutive rows of ``row_bytes`` bytes each."""

    addr: int
    m: int
    row_bytes: int

    @property
    def size(self) -> int:
        """Number of bytes of the piece, including padding."""
        return self.m * self.row_bytes


class ImageBuilder:
    """Builds a memory image from pieces that begin at word boundaries of external memory."""

    def __init__(self, config: Config):
        self._config = config
        self._parts: list[Bytes] = []
        self.size = 0

    def reserve(self, count: int) -> Piece:
        """Append at least ``count`` zero bytes to the image, and return their address and size.

        The size is rounded up to a multiple of the memory word. More than 16384 bytes are stored as
        several rows of equal size. Each row is then a multiple of the memory word.
        """
        return self.add(np.zeros(count, np.uint8))

    def add(self, data: Bytes) -> Piece:
        """Append the bytes ``data`` [count] to the image, and return their address and size.

        The size is rounded up as in :meth:`reserve`. The additional bytes are zeros.
        """
        piece = piece_of(self.size, len(data), self._config)
        padded = np.zeros(piece.size, np.uint8)
        padded[: len(data)] = data
        self._parts.append(padded)
        self.size += piece.size
        return piece

    def skip(self, count: int) -> None:
        """Increase the image's size by ``count`` bytes without storing content for these bytes.

        This is for callers that need only the size of the image.
        """
        self.size += count

    def check(self, model: str) -> None:
        """Raise :class:`FitError` if the image is larger than the external address space."""
        limit = 1 << self._config.memory.addr_width
        if self.size > limit:
            raise FitError(
                f"Model {model} needs {self.size} bytes of external memory, but mem_addr_width "
                f"is {self._config.memory.addr_width}, which reaches {limit}",
                {"mem_addr_width": (self.size - 1).bit_length()},
            )

    def finish(self, model: str) -> Bytes:
        """Return all bytes of the image as a uint8 array.

        This method must not be called after :meth:`skip`, because the image then has bytes without
        content. ``model`` is the model's name in error messages. Raises :class:`FitError` if the
        image is larger than the external address space.
        """
        self.check(model)
        return np.concatenate(self._parts)


def piece_of(addr: int, count: int, config: Config) -> Piece:
    """Return a piece of external memory that begins at ``addr`` and has at least ``count`` bytes.

    A piece consists of rows of equal length. A row is a whole number of memory words, and has at
    most :data:`LONGEST_ROW` bytes. The piece has the smallest number of rows that this limit
    permits.
    """
    m = -(-count // LONGEST_ROW)
    words = -(-count // (m * config.mem_bytes))
    return Piece(addr, m, words * config.mem_bytes)
