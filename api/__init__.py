"""The HTTP facade: parse, call, render. Status codes and error bodies live here, money does not."""

from typing import Final

BASE_PATH: Final = "/2025-10-13"
"""Where every resource lives; its end is the version of the interface."""
