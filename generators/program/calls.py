"""Registers that the host writes before a program starts, and formulas for their values."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class RunNumber(enum.StrEnum):
    """Names of numbers that describe a run, such as the position of the run's first token.

    A run is one execution of a program, which processes some tokens. Before a run, a host writes
    registers whose values depend on these numbers. A :class:`RegisterFormula` is the formula for a
    register; the field ``index`` of the formula selects one of these numbers.
    """

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
    """Formula for the value of a register: ``number % modulo // divide * times``.

    ``number`` describes a run (one execution of a program), for example the position of the run's
    first token. ``index`` selects this number. If ``modulo`` is 0, the formula is
    ``number // divide * times``.

    If ``most`` is not 0, the formula first replaces ``number`` by
    ``min(max(number - first, 1), most)``. This is used for an instruction that processes at most
    ``most`` rows of a run, from row ``first`` on; ``number`` is then the number of rows of the run.
    For example, if the run has 10 rows, ``first`` is 8 and ``most`` is 4, the instruction processes
    2 rows.
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
        """Return the value that the host writes to a register before a run of a program.

        This object is the formula for the register's value. The formula has one variable, a number
        that describes the run. The field :attr:`index` selects this number:

        - If :attr:`index` is ``TOKEN``: the number is ``tokens[self.row]``, or 0 if ``tokens`` is
          too short. ``tokens`` lists the token numbers of the run.
        - Otherwise: the number is ``numbers[self.index]``. ``numbers`` is a dictionary from each
          :class:`RunNumber`, such as ``POSITION``, to a number.
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
    """Return the values of the registers for a run: a dictionary from register number to value.

    ``call`` has a formula (:class:`RegisterFormula`) for each register that the host writes before
    the run. ``numbers`` has the properties of the run that the formulas use, such as the position
    of its first token. ``tokens`` has the run's token numbers. If ``tokens`` is empty, the result
    omits the registers whose values depend on token numbers.
    """
    return {
        int(register): value.at(numbers, tokens)
        for register, value in call.items()
        if tokens or value.index != RunNumber.TOKEN
    }
