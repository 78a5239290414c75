"""Tuning of Python's garbage collector.

A full collection visits everything that was ever imported; imports and large batches trigger it
often. Without it the import of the API takes a quarter less processor time.
"""

import gc
from typing import Final

_SELDOM: Final = (50_000, 20, 100)
_OFTEN: Final = (2_000, 10, 200)


def relax() -> None:
    """Collect less often: for the start of a process, which imports much and frees nothing."""
    gc.set_threshold(*_SELDOM)


def freeze(*, for_latency: bool = False) -> None:
    """Exempt all existing objects from garbage collection, and collect less often.

    For long-lived processes, once everything is imported. Objects of a message are still freed by
    reference counting; only cycles wait for the collector. A collection visits every object that
    was made since the last one, two microseconds each: `for_latency` it visits fewer at a time, and
    does so more often, so that a request waits some milliseconds for it, and seldom some tens.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*(_OFTEN if for_latency else _SELDOM))
