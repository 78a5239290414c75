"""The files of the tests, in memory where there is enough of it.

Each module of tests creates and drops a database, and many tests a PostgreSQL of their own, which
are thousands of small files. The machine does not fail in tests, and what processes wrote that are
killed is found in memory too.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import psutil

_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - tests make directories of their own there
_ROOM: Final = 6 * 1024**3  # Bytes; whole runs have used less than a third of it.


def use() -> None:
    """Let this process and its children have their temporary files in memory.

    Unless TMPDIR names a directory, or there is less room than the tests may need.
    """
    if "TMPDIR" in os.environ or not _has_room():
        return
    os.environ["TMPDIR"] = str(_IN_MEMORY)
    tempfile.tempdir = None  # It may have been asked for before.


def _has_room() -> bool:
    if not os.access(_IN_MEMORY, os.W_OK):
        return False
    if os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC:  # Tests install programs.
        return False
    free = min(shutil.disk_usage(_IN_MEMORY).free, psutil.virtual_memory().available)
    return free >= _ROOM
