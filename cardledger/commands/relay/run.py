"""The loop of the relay: read, enqueue, delete; a step that fails is repeated.

Killed between the last two steps, it enqueues events again: their source and reference are known,
so they are duplicates.
Source: docs/decisions/0057-events-in-a-database-transaction.md
"""

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from typing import Final, Protocol

import psycopg
import structlog

from cardledger.commands.relay.ledger import LEDGER_ERRORS, Ledger
from cardledger.commands.relay.source import SOURCE_ERRORS, Source
from cardledger.config import configuration
from cardledger.config.errors import USAGE, CommandError
from cardledger.install import discovery
from cardledger.workers.process.end import ended_in_time
from cardledger.workers.process.stop_request import stop_on
from cardledger.workers.signals.outage_log import OutageLog

_ROWS: Final = 500
_POLL_S: Final = 0.2  # Between two looks at an empty outbox.
_LOCK_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4)  # PostgreSQL frees a lock after the disconnection.
_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # After failures; the last one repeats.

_log = structlog.get_logger()


class Stop(Protocol):
    """A request to stop."""

    def wait(self, timeout_s: float, /) -> bool:
        """Return True once the stop is requested, or False after `timeout_s` seconds."""
        ...


def run(  # noqa: PLR0913 - the options of the command
    source_url: str,
    *,
    table: str,
    create_table: bool,
    once: bool,
    lane: str,
    data_dir: Path | None,
) -> None:
    """Relay until SIGTERM, or with `once` until the outbox is empty.

    Raises: CommandError when a database cannot be used; with `once`, when an event was refused.
    """
    settings = configuration.load(data_dir=data_dir)
    source = Source(_read(source_url), table)
    ledger = Ledger(discovery.system(settings).database_url, source.name, lane)
    relay = Relay(source, ledger, create_table=create_table)
    with (
        stop_on(signal.SIGTERM, signal.SIGINT) as stop,
        ended_in_time(stop),
        closing(ledger),
    ):
        if once:
            relay.run_once()
        else:
            relay.run(stop)


def _read(url: str) -> str:
    """Return `url`, or the content of the file that it names: `@FILE`.

    Raises: CommandError.
    """
    if not url.startswith("@"):
        return url
    try:
        return Path(url[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--from: cannot read {url[1:]}: {error}", code=USAGE) from None


class Relay:
    """Moves rows of the outbox to the ledger."""

    def __init__(self, source: Source, ledger: Ledger, *, create_table: bool) -> None:
        self._source: Final = source
        self._ledger: Final = ledger
        self._creates_table = create_table
        self._source_outage: Final = OutageLog("source database", consequence="; retrying")
        self._ledger_outage: Final = OutageLog("ledger database", consequence="; retrying")
        self._refused = 0

    def run(self, stop: Stop) -> None:
        """Relay until `stop`; an outage of either database is waited for."""
        _log.info("relay started", source=self._source.name)
        is_waiting = False
        pauses = _pauses()
        while True:
            pause_s = 0.0
            try:
                if not self._ledger.connect():
                    if not is_waiting:
                        _log.warning("another relay of this source runs; waiting for its end")
                    is_waiting, pause_s = True, _POLL_S
                else:
                    is_waiting = False
                    pause_s = 0.0 if self._step() else _POLL_S
                    self._source_outage.succeeded()
                self._ledger_outage.succeeded()
                pauses = _pauses()
            except LEDGER_ERRORS as error:
                self._ledger.close()
                self._ledger_outage.failed(error)
                pause_s = next(pauses)
            except SOURCE_ERRORS as error:
                self._source_outage.failed(error)
                pause_s = next(pauses)
            if stop.wait(pause_s):
                _log.info("relay stopped", refused=self._refused)
                return

    def run_once(self) -> None:
        """Relay until the outbox is empty.

        Raises: CommandError when a database does not answer, another relay of the source runs, or
        events were refused.
        """
        try:
            self._connect_once()
            while self._step():
                pass
        except LEDGER_ERRORS as error:
            raise CommandError(f"the ledger's database failed: {_text(error)}") from None
        except SOURCE_ERRORS as error:
            raise CommandError(f"the source failed: {_text(error)}") from None
        if self._refused:
            raise CommandError(
                f"{self._refused} event(s) were refused; the column error of their rows says why"
            )

    def _connect_once(self) -> None:
        """Be connected, and wait a moment for the lock: its session may just have ended.

        Raises: LEDGER_ERRORS, CommandError.
        """
        for pause_s in _LOCK_PAUSES_S:
            if self._ledger.connect():
                return
            time.sleep(pause_s)
        if not self._ledger.connect():
            raise CommandError("another relay of this source runs")

    def _step(self) -> bool:
        """Relay the oldest rows; return whether there were any."""
        if self._creates_table:
            self._source.create_table()
            self._creates_table = False
        rows = self._source.oldest(_ROWS)
        if not rows:
            return False
        refused = {row.id: row.problem for row in rows if row.problem is not None}
        refused |= self._ledger.enqueue([row for row in rows if row.problem is None])
        self._source.finish([row.id for row in rows if row.id not in refused], refused)
        if refused:
            self._refused += len(refused)
            _log.error("events refused", count=len(refused), first=next(iter(refused.values())))
        return True


def _pauses() -> Iterator[float]:
    return chain(_PAUSES_S, repeat(_PAUSES_S[-1]))


def _text(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    primary = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    return primary or str(cause).strip().partition("\n")[0]
