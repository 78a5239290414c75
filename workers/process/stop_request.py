"""The request to stop a process, which a signal or a thread makes and the main thread waits for."""

import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final


def _note(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by nothing else than the request."""


class StopRequest:
    """Like `threading.Event`, but a signal can set it; made by `stop_on`.

    The kernel may deliver a signal to any thread of the process, for one after the process was
    frozen. Python runs the handler in the main thread alone, once that thread runs: while it waits
    for a lock, as `Event.wait` does, it would never run again. A handler that calls `Event.set`
    can also interrupt the main thread inside the same event, and wait for itself. So the
    interpreter writes each signal to a socket, in the thread that receives it, and the main thread
    waits for that socket.
    """

    def __init__(self, reader: socket.socket, writer: socket.socket) -> None:
        """Wait on `reader` for the first byte of the non-blocking `writer`."""
        self._reader: Final = reader
        self._writer: Final = writer

    def set(self) -> None:
        """Request the stop; of any thread."""
        with suppress(OSError):  # Full or closed: the stop was requested before.
            self._writer.send(b"\0")

    def when_requested(self, run: Callable[[], None]) -> None:
        """Call `run` in a thread of its own once the stop is requested, whatever the others do."""
        reader = self._reader.dup()

        def watch() -> None:
            with reader, suppress(BlockingIOError):
                poll = select.poll()
                poll.register(reader, select.POLLIN)
                poll.poll()
                if not reader.recv(1, socket.MSG_PEEK):
                    return  # Not requested: the block of `stop_on` has ended.
            run()

        threading.Thread(target=watch, name="stop request", daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once the stop is requested, or False after `timeout_s`; main thread only."""
        self._reader.settimeout(timeout_s)
        try:
            return bool(self._reader.recv(1, socket.MSG_PEEK))  # It stays: a request lasts.
        except (TimeoutError, BlockingIOError):
            return False


@contextmanager
def stop_on(
    *numbers: signal.Signals, handler: Callable[[int, FrameType | None], object] = _note
) -> Iterator[StopRequest]:
    """For the length of a block, make every signal of `numbers` request the stop.

    `handler` is called too, in the main thread, once it runs Python code.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.settimeout(0)
        wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, handler) for number in numbers}
        try:
            yield StopRequest(reader, writer)
        finally:
            for number, handler_before in before.items():
                signal.signal(number, handler_before)
            signal.set_wakeup_fd(wakeup_before)
