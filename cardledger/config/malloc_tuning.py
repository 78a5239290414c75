"""Tuning of the memory allocator of the C library.

After one large block is freed, that of GNU/Linux takes blocks of its size from arenas, which keep
what is freed: a process that has received some files of 10 MB keeps a hundred megabytes.
"""

import ctypes
from contextlib import suppress
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1024 * 1024  # Bytes.


def return_large_blocks() -> None:
    """Have each large block be memory of its own, which the system gets back when it is freed."""
    with suppress(OSError, AttributeError):  # Another C library, which has no such function.
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
