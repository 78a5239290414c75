"""Whose data directory it is."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from cardledger.config.errors import CommandError
from cardledger.install import ready_file


def test_reading_the_ready_file_does_not_prevent_a_start(tmp_path: Path) -> None:
    os.close(ready_file.claim(tmp_path))
    looking = os.open(tmp_path / "up.lock", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)  # As `find` does, for a moment.
    threading.Timer(0.1, os.close, [looking]).start()

    lock = ready_file.claim(tmp_path)

    os.close(lock)


def test_a_claimed_directory_stays_claimed(tmp_path: Path) -> None:
    lock = ready_file.claim(tmp_path)

    with pytest.raises(CommandError, match="another cardledger runs"):
        ready_file.claim(tmp_path)

    os.close(lock)
    os.close(ready_file.claim(tmp_path))
