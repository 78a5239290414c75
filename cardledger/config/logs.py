"""Logs: on standard error, for people or for machines; standard output belongs to the command."""

import asyncio
import atexit
import logging
import re
import sys
import threading
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

# Only their warnings matter, unless debug logs are requested.
_CHATTY: Final = ("dramatiq", "uvicorn", "alembic", "sqlalchemy", "urllib3", "asyncio")


def configure(level: str, form: str, *, process: str | None = None) -> None:
    """Send the logs of everybody in this process to standard error.

    `form` is `console` or `json`; `process` names this one among those that `up` runs.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendered = _rendered(form, process)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "WARNING")
    # Its warnings say what could not be done to a connection that is lost, one by one; the loss
    # itself is raised, and logged once (`outage_log`).
    logging.getLogger("psycopg").setLevel("DEBUG" if level == "debug" else "ERROR")
    # Lines of this package do not pass through `logging`: there is one for every request.
    lines = Lines(sys.stderr)
    *before, renderer = rendered
    structlog.configure(
        processors=[*shared, *before, never_raising(renderer)],
        logger_factory=lambda *_: lines,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )


def never_raising(renderer: Processor) -> Processor:
    """Return `renderer`, which says so in place of a line that it cannot render.

    What logs an error has to go on, whatever the values are.
    """

    def rendered(logger: Any, method: str, event: EventDict) -> Any:  # noqa: ANN401 - of structlog
        try:
            return renderer(logger, method, event)
        except Exception as error:  # noqa: BLE001 - of any value
            return f"a line could not be rendered: {type(error).__name__}"

    return rendered


class Lines:
    """Writes lines to `stream`: those below a warning once a turn of the event loop.

    Requests end many at a time, and each write wakes the reader of the stream. A line that is
    written outside an event loop, and a warning with what was before it, is written at once. Lines
    that the stream does not take, as on a full disk, are lost: what logs has to go on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream: Final = stream
        self._lock: Final = threading.RLock()  # A handler of a signal may log amid a line.
        self._waiting: list[str] = []
        self._flushes_in: asyncio.AbstractEventLoop | None = None  # It will, unless it is closed.
        atexit.register(self.flush)

    def info(self, line: str) -> None:
        """Write `line` before the event loop of this thread waits again."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.warning(line)
            return
        with self._lock:
            self._waiting.append(line)
            if self._flushes_in is loop:
                return
            self._flushes_in = loop
        loop.call_soon(self.flush)

    debug = msg = info

    def warning(self, line: str) -> None:
        """Write `line` now."""
        with self._lock:
            self._waiting.append(line)
        self.flush()

    error = critical = exception = fatal = warn = failure = warning

    def flush(self) -> None:
        """Write the lines that wait."""
        with self._lock:
            self._flushes_in = None
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            # ValueError: it is closed; RuntimeError: it is being written to, by this thread.
            with suppress(OSError, ValueError, RuntimeError):
                self._stream.write("\n".join([*waiting, ""]))
                self._stream.flush()


def _rendered(form: str, process: str | None) -> list[Processor]:
    if form == "json":

        def name_process(_logger: Any, _method: str, event: EventDict) -> EventDict:  # noqa: ANN401
            return {"process": process, **event} if process else event

        # As one string: structlog's own structure would carry the values of local variables.
        return [
            name_process,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    if sys.stderr.isatty():
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [plain()]


def plain() -> Processor:
    """Return what renders lines as structlog does without colours.

    In less time, for there is a line for every request; one with a traceback is left to structlog.
    """
    with_traceback = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )

    def render(logger: Any, method: str, event: EventDict) -> str:  # noqa: ANN401 - of structlog
        if not _TRACEBACK.isdisjoint(event):
            return str(with_traceback(logger, method, event))
        parts = []
        if (timestamp := event.pop("timestamp", None)) is not None:
            parts.append(str(timestamp))
        if (level := event.pop("level", None)) is not None:
            parts.append(f"[{level:<9}]")
        parts.append(f"{event.pop('event', None)!s:<30}")
        parts += [f"[{event.pop(name)}]" for name in ("logger", "logger_name") if name in event]
        parts += [_pair(name, event[name]) for name in sorted(event)]
        return " ".join(parts)

    return render


def _pair(key: str, value: object) -> str:
    text = value if isinstance(value, str) and _SIMPLE.fullmatch(value) else repr(value)
    return f"{key}={text}"


_SIMPLE: Final = re.compile("[^ \t\r\n='\"]*")
_TRACEBACK: Final = frozenset({"exception", "exc_info", "stack"})
