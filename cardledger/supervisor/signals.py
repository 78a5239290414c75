"""SIGINT, SIGTERM and SIGHUP of the process that starts the system."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cardledger.workers.process.stop_request import StopRequest, stop_on


class Signals:
    """Counts signals; during the start they interrupt it, later they are only noted.

    A second signal during the shutdown makes it urgent.
    """

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = True
        self._request: StopRequest | None = None

    def wait(self) -> None:
        """Return at the first signal; inside `caught`."""
        assert self._request is not None
        self._request.wait()

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
            if self._interrupts:
                self._interrupts = False
                raise KeyboardInterrupt

        with stop_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, handler=catch) as self._request:
            yield self
