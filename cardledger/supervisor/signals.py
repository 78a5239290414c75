"""SIGINT, SIGTERM and SIGHUP of the process that starts the system."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final


class Signals:
    """Counts signals; during the start they interrupt it, later they are only noted.

    A second signal during the shutdown makes it urgent.
    """

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = True
        self._received: Final = threading.Event()

    def wait(self) -> None:
        """Return at the first signal."""
        while not self._received.wait(1.0):
            pass

    def note_only(self) -> None:
        """From now on interrupt nothing."""
        self._interrupts = False

    @property
    def is_urgent(self) -> bool:
        """Whether there was more than one signal."""
        return self.count > 1

    @contextmanager
    def caught(self) -> Iterator["Signals"]:
        """Handle the signals for the length of a block."""

        def catch(_number: int, _frame: FrameType | None) -> None:
            self.count += 1
            self._received.set()
            if self._interrupts:
                self._interrupts = False
                raise KeyboardInterrupt

        before = {
            number: signal.signal(number, catch)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
