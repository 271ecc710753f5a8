"""Serial ports, and what a user is told where one cannot be used."""

from typing import Any, Protocol

import serial

from arch.errors import InputError


class Port(Protocol):
    """Interface to pyserial's ports."""

    timeout: float | None

    def read(self, size: int = 1) -> bytes:
        """Return bytes, fewer than wanted where no more come in time."""

    def write(self, data: bytes, /) -> Any:
        """Send bytes."""

    def reset_input_buffer(self) -> None:
        """Forget what came in."""

    def close(self) -> None:
        """Give the port back."""


def open_serial(name: str, baud: int) -> Port:
    """Return a serial port for this program alone.

    Raises :class:`InputError` where there is none, or another program has it.
    """
    try:
        port: Port = serial.Serial(name, baud, exclusive=True)
    except (serial.SerialException, ValueError) as error:
        raise port_error(name, str(error)) from error
    return port


def port_error(name: str, reason: str) -> InputError:
    """Return what a user is told of a port that cannot be opened, for a reason, and what to do."""
    if "exclusively lock" in reason or "busy" in reason:
        return InputError(f"Serial port {name} is used by another program; end that one first")
    if "No such file" in reason or "could not find port" in reason:
        return InputError(
            f"There is no serial port {name}; connect the board, and name its port with --port"
        )
    if "Permission denied" in reason:
        return InputError(
            f"Serial port {name} may not be used by this user; join the group that owns it"
        )
    if "Inappropriate ioctl" in reason or "Is a directory" in reason:
        return InputError(f"{name} is no serial port; name the board's with --port")
    return InputError(f"Cannot open serial port {name}: {reason}")
