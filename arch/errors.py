"""Errors that are reported in one sentence; any other exception is a defect of this project."""


class InputError(ValueError):
    """A value that a caller gave is wrong: the sentence names the field and its value."""


class InputTypeError(InputError, TypeError):
    """A value that a caller gave has the wrong type."""


class ProgramError(ValueError):
    """A machine's program is wrong: the sentence names the instruction and its word.

    Whoever writes programs corrects them; from the compiler it is a defect of the compiler.
    """


class RunError(RuntimeError):
    """A simulation, a tool or a board failed; the sentence ends with the end of its log."""
