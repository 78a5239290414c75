"""Card numbers in texts: they are never kept, so a file that has one is refused."""

import re
from typing import Final

# Alone, or in the groups in which they are embossed; digits of any script.
_CANDIDATE: Final = re.compile(
    r"(?<!\d)(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -])\d{6}\2\d{5})(?!\d)"
)
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def found_in(text: str) -> bool:
    """Return whether there are 13 to 19 digits in `text` that pass the check of Luhn."""
    return any(_passes(match[0]) for match in _CANDIDATE.finditer(text))


def _passes(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char.isdecimal()]
    return sum(digits[::2], sum(_DOUBLED[digit] for digit in digits[1::2])) % 10 == 0
