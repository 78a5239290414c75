"""`cardledger verify`: the audit of the whole ledger, for people and for machines."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, CommandError
from cardledger.config.settings import HEALTH_DIR, Settings
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import databases, discovery
from cardledger.ledger.audit.verification import Progress, Report
from cardledger.ledger.audit.verification import verify as prove
from cardledger.ledger.storage.engines import sync_engine
from cardledger.schema import connections
from cardledger.workers.metrics import verified
from cardledger.workers.metrics.verified import Verified

_PROVEN: Final = (
    "roll-ups, entries and balances are what the events make them, and every accepted message is"
    " decided or waiting"
)


def run(*, as_json: bool, data_dir: Path | None) -> int:
    """Prove the books and print the report; returns the exit code."""
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    began = time.monotonic()
    with discovery.database(settings) as url:
        report = _with_progress(url)
        _note(settings, report)
        # First: who reads the output may stop this process, or not read it to its end.
        not_recorded = _record(url, report)
        if as_json:
            print(json.dumps(as_dict(report), indent=2), flush=True)
        else:
            _show(report, time.monotonic() - began)
    if not_recorded is not None:
        raise not_recorded
    return 0 if report.holds else FAILURE


def books(url: DatabaseUrl, progress: Progress | None = None) -> Report:
    """Compare everything in the database at `url` with a new fold of its events.

    Every accepted message must be decided or waiting.

    Raises: CommandError when it does not answer or has a schema that this release cannot use.
    """
    databases.check_schema(url)
    engine = sync_engine(url, reply_limit_s=None)
    try:
        return prove(engine, progress)
    except DBAPIError as error:
        raise CommandError(
            f"PostgreSQL failed during the verification: {error.orig}; nothing was recorded, run it"
            " again"
        ) from None
    finally:
        engine.dispose()


def as_dict(report: Report) -> dict[str, Any]:
    """Return `report` as machines read it."""
    return {
        "holds": report.holds,
        "events": report.events,
        "cardTransactions": report.card_transactions,
        "accounts": report.accounts,
        "entries": report.entries,
        "deposits": report.deposits,
        "transfers": report.transfers,
        "accepted": report.messages.accepted,
        "decided": report.messages.decided,
        "waiting": report.messages.waiting,
        "rejected": report.messages.rejected,
        "unfinishedPayments": report.unfinished,
        "differenceCount": report.difference_count,
        "differences": report.differences,
    }


def _note(settings: Settings, report: Report) -> None:
    """Keep the result for the metrics of the workers with this data directory."""
    found = Verified(at=time.time(), events=report.events, differences=report.difference_count)
    verified.note(settings.data_dir / HEALTH_DIR, found)


_RECORD_RUN: Final = "INSERT INTO book_verification_runs (began_at, differences) VALUES (%s, %s)"
_RECORD_DAYS: Final = "INSERT INTO book_verifications (days) VALUES (%s)"
_MAY_NOT_WRITE: Final = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
)


def _record(url: DatabaseUrl, report: Report) -> CommandError | None:
    """Record for `cardledger close` what was found, and which entries were verified if all hold.

    Who only reads, cannot. Returns why it was not recorded, to be raised after the report.
    """
    days = {str(day): entries for day, entries in sorted(report.open_days.items())}
    try:
        with connections.connect(url) as connection:
            connection.execute(_RECORD_RUN, [report.began_at, report.difference_count])
            if report.holds:
                connection.execute(_RECORD_DAYS, [Jsonb(days)])
    except _MAY_NOT_WRITE:
        print(
            f"note: {url.role} cannot record this verification here; before a period is closed,"
            " verify with the login of the operator, on the primary server",
            file=sys.stderr,
        )
    except psycopg.Error as error:
        return CommandError(
            f"the verification has ended but is not recorded ({error}): run it again before a"
            " period is closed"
        )
    return None


def _with_progress(url: DatabaseUrl) -> Report:
    with terminal.progress(terminal.console(sys.stderr), unit="events") as bar:
        task = bar.add_task("folding", total=None)
        return books(url, lambda done, total: bar.update(task, completed=done, total=total))


def _show(report: Report, seconds: float) -> None:
    out = terminal.console()
    out.print(
        f" {report.events:,} events of {report.card_transactions:,} card transactions folded"
        f" again, {report.entries:,} entries of {report.accounts:,} accounts added up,"
        f" in {seconds:.1f} s"
    )
    messages = report.messages
    out.print(
        f" {messages.accepted:,} messages accepted: {messages.decided:,} decided,"
        f" {messages.waiting:,} waiting, {messages.rejected:,} rejected"
    )
    for payment in report.unfinished:
        out.print(Text(f" stopped   {payment}", style="yellow"))
    for difference in report.differences:
        out.print(Text(f" differs   {difference}", style="red"))
    rest = report.difference_count - len(report.differences)
    if rest:
        out.print(Text(f" and {rest:,} more", style="red"))
    verdict = (
        (f"the proof holds: {_PROVEN}", "green")
        if report.holds
        else (f"the proof fails: {report.difference_count:,} differences", "bold red")
    )
    out.print(Text.assemble(" ", verdict))
