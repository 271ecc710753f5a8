"""The base address of the accelerator's external memory on a bus."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Value

from celosia.arch.config import Config
from celosia.arch.errors import InputError

MAX_WIDTH = 64
"""Widest address of a bus (bits)."""


@dataclass(frozen=True)
class BusAddress:
    """Maps the ``2**memory_width`` bytes of external memory to adjacent bus addresses.

    Raises :class:`InputError` if ``width`` is not from ``memory_width`` to 64. ``base`` must be
    below ``2**width`` and a multiple of the memory's size; otherwise, the same error is raised.
    """

    memory_width: int
    """Width of a byte address of external memory (bits)."""
    width: int = 32
    """Width of a byte address of the bus (bits)."""
    base: int = 0
    """Bus address of byte 0 of external memory."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.memory_width <= self.width <= MAX_WIDTH:
            raise InputError(
                f"Width of a bus address must be from mem_addr_width = {self.memory_width} to "
                f"{MAX_WIDTH}, not {self.width}"
            )
        if not 0 <= self.base < 1 << self.width or self.base % (1 << self.memory_width):
            raise InputError(
                f"Base of external memory must be a multiple of 2**{self.memory_width} below "
                f"2**{self.width}, not {self.base:#x}"
            )

    @classmethod
    def for_config(cls, config: Config, width: int = 32, base: int = 0) -> "BusAddress":
        """Return the map from external memory addresses to bus addresses for a configuration."""
        return cls(config.memory.addr_width, width, base)

    def of(self, addr: Value) -> Value:
        """Return the bus address (``width`` bits) of the external memory byte ``addr``."""
        upper = self.width - self.memory_width
        return Cat(addr, Const(self.base >> self.memory_width, upper))
