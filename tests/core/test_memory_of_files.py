"""A file of any size needs the memory of its reader, and no more."""

import subprocess
import sys
from typing import Final

import pytest

from tests import reading
from tests.system.support import environment
from tests.waiting import limit_s

FEW: Final = 10_000
MANY: Final = 100_000
KIB: Final = 4_096
"""One line more takes nothing: 90,000 of them, kept, are 10 MiB and more."""


def peak_of(name: str, count: int) -> int:
    """Return how many KiB a process has at most that reads `count` lines."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.reading", name, str(count)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=limit_s(),
    )
    return int(ended.stdout)


@pytest.mark.parametrize("name", reading.FILES)
def test_ten_times_as_many_lines_need_no_more_memory(name: str) -> None:
    assert peak_of(name, MANY) < peak_of(name, FEW) + KIB
