"""Logs: on standard error, for people or for machines; standard output belongs to the command."""

import logging
import re
import sys
from typing import Any, Final

import structlog
from structlog.dev import Column
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendered(form, process),
            ],
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
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


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

    In less time, for there is a line for every request.
    """
    return structlog.dev.ConsoleRenderer(
        columns=_PLAIN, exception_formatter=structlog.dev.plain_traceback
    )


def _pair(key: str, value: object) -> str:
    text = value if isinstance(value, str) and _SIMPLE.fullmatch(value) else repr(value)
    return f"{key}={text}"


_SIMPLE: Final = re.compile("[^ \t\r\n='\"]*")
_PLAIN: Final = [
    Column("", _pair),
    Column("timestamp", lambda _, value: str(value)),
    Column("level", lambda _, value: f"[{value:<9}]"),
    Column("event", lambda _, value: f"{value!s:<30}"),
    Column("logger", lambda _, value: f"[{value}]"),
    Column("logger_name", lambda _, value: f"[{value}]"),
]
