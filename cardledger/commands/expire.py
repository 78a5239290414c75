"""`cardledger expire`: what time has brought about, now, or as of another moment."""

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from cardledger.config import configuration
from cardledger.config.errors import CommandError
from cardledger.install import discovery
from cardledger.ledger.engine import timers
from cardledger.ledger.storage.engines import driver, sync_engine


def run(*, at: str | None, data_dir: Path | None) -> None:
    """Put what is due at `at` into the inbox, where a worker finds it, and say how much it was."""
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    moment = _moment(at)
    total = 0
    with discovery.database(settings) as url:
        engine = sync_engine(url)
        try:
            with engine.begin() as connection:
                total = timers.enqueue_all_due(driver(connection), moment)
        except DBAPIError as error:
            raise CommandError(f"PostgreSQL gave up: {error.orig}") from None
        finally:
            engine.dispose()
    print(f"{total:,} due at {moment:%Y-%m-%d %H:%M:%S} UTC, put into the inbox")


def _moment(at: str | None) -> datetime:
    if at is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise CommandError(f"{at} is no time; write it like 2026-03-01T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
