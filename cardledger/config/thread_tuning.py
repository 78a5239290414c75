"""Tuning of how the threads of a process take turns at Python's interpreter lock.

A thread that has waited for PostgreSQL needs the lock to go on. Another one that computes keeps it
for 5 ms, unless the interpreter is told otherwise, and a batch waits for PostgreSQL some ten times:
beside a batch of a file, an authorization would be decided some tens of milliseconds later.
"""

import sys
from typing import Final

_INTERVAL_S: Final = 0.000_5


def take_short_turns() -> None:
    """Have a thread that computes give way to one that waits after half a millisecond."""
    sys.setswitchinterval(_INTERVAL_S)
