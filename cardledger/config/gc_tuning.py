"""Tuning of Python's garbage collector for long-lived processes.

A full collection visits everything that was ever imported, and large batches trigger it often.
"""

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)


def freeze() -> None:
    """Exempt all existing objects from garbage collection, and collect less often.

    For long-lived processes, once everything is imported. Objects of a message are still freed by
    reference counting; only cycles wait for the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
