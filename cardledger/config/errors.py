"""Errors that the user of the command line can fix."""

from typing import Final

FAILURE: Final = 1
USAGE: Final = 2


class CommandError(Exception):
    """One clear line about what is wrong and what to do; ends the command with `code`."""

    def __init__(self, message: str, *, code: int = FAILURE) -> None:
        super().__init__(message)
        self.code: Final = code
