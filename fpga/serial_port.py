"""Serial ports, and the error for a port that cannot be opened."""

from typing import Any, Protocol

from celosia.arch.errors import InputError
from celosia.arch.packages import Deferred

serial: Any = Deferred("serial", "A serial port needs")


class Port(Protocol):
    """Interface of a serial port: the methods of pyserial's ports that the project uses."""

    timeout: float | None

    def read(self, size: int = 1) -> bytes:
        """Return ``size`` received bytes, or fewer if the port's timeout ends first."""

    def write(self, data: bytes, /) -> Any:
        """Send bytes."""

    def reset_input_buffer(self) -> None:
        """Drop the bytes that were received but not read."""

    def close(self) -> None:
        """Close the port."""


def open_serial(name: str, baud: int) -> Port:
    """Open a serial port for the exclusive use of this program, and return it.

    Raises :class:`InputError` if the port is unknown, or another program uses it.
    """
    try:
        port: Port = serial.Serial(name, baud, exclusive=True)
    except (serial.SerialException, ValueError) as error:
        raise port_error(name, str(error)) from error
    return port


def port_error(name: str, reason: str) -> InputError:
    """Return the exception for a port that cannot be opened.

    ``name`` is the port's name. ``reason`` is the operating system's or pyserial's message, or
    ``busy`` if another program uses the port. The message of the exception names a remedy, if one
    is known for this reason.
    """
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
