"""Registers that the host writes before a program starts, and formulas for their values."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class RunNumber(enum.StrEnum):
    """Numbers that describe a run of a program, from which a host computes register values."""

    TOKEN = "token"
    """Token number in row :attr:`RegisterFormula.row` of the run; 0 if the run has fewer rows."""
    POSITION = "position"
    """Position of the run's first token."""
    PLACE = "place"
    """Cache slot of the run's first token."""
    COUNT = "count"
    """Number of cache slots that the run's last token attends to."""
    LIMIT = "limit"
    """Number of cache slots that the run's first token attends to."""
    ROWS = "rows"
    """Number of tokens of the run."""
    LAST = "last"
    """Number of tokens of the run, minus one."""
    SOURCE = "source"
    """Number of tokens of the source."""
    FIRST = "first"
    """Position in the source of a lookup's first token."""


@dataclass(frozen=True)
class RegisterFormula:
    """Formula for a register's value before a run: ``number % modulo // divide * times``.

    ``index`` selects the number, for example the position of the run's first token. If ``modulo``
    is 0, no modulo is taken. If ``most`` is not 0, ``number`` is first replaced by ``min(max(number
    - first, 1), most)``.
    """

    index: RunNumber
    times: int = 1
    divide: int = 1
    modulo: int = 0
    row: int = 0
    """Row of the token."""
    first: int = 0
    most: int = 0

    def at(self, numbers: Mapping[RunNumber, int], tokens: Sequence[int] = ()) -> int:
        """Return the value of the formula, which the host writes to the register before a run.

        ``numbers`` has the value of each :class:`RunNumber` in the run. If :attr:`index` is
        ``TOKEN``, the formula uses ``tokens[self.row]``, or 0 if ``tokens`` has no such element.
        """
        if self.index == RunNumber.TOKEN:
            number = tokens[self.row] if self.row < len(tokens) else 0
        else:
            number = numbers[self.index]
        if self.most:
            number = min(max(number - self.first, 1), self.most)
        return (number % self.modulo if self.modulo else number) // self.divide * self.times


Call = Mapping[int, RegisterFormula]
"""Values of the registers that the host writes before a program starts, by register number."""


def registers(
    call: Call, numbers: Mapping[RunNumber, int], tokens: Sequence[int] = ()
) -> dict[int, int]:
    """Return the values that the host writes before a run, by register number.

    ``call`` has the formula of each register, ``numbers`` the numbers in the formulas. Without
    ``tokens``, the result omits registers that depend on token numbers.
    """
    return {
        int(register): value.at(numbers, tokens)
        for register, value in call.items()
        if tokens or value.index != RunNumber.TOKEN
    }
