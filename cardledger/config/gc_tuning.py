"""Tuning of Python's garbage collector.

A full collection visits everything that was ever imported; imports and large batches trigger it
often. Without it the import of the API takes a quarter less processor time.
"""

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)


def relax() -> None:
    """Collect less often: for the start of a process, which imports much and frees nothing."""
    gc.set_threshold(*_THRESHOLDS)


def freeze() -> None:
    """Exempt all existing objects from garbage collection, and collect less often.

    For long-lived processes, once everything is imported. Objects of a message are still freed by
    reference counting; only cycles wait for the collector.
    """
    gc.collect()
    gc.freeze()
    relax()
