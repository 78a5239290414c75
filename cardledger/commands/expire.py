"""`cardledger expire`: expire due authorizations now, or as of a given time."""

from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError

from cardledger.commands.daily import arguments
from cardledger.config import configuration
from cardledger.config.errors import CommandError
from cardledger.install import credentials, discovery
from cardledger.ledger.engine import timers
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import driver, message_of, sync_engine

_REPLY_LIMIT_S: Final = 75.0  # PostgreSQL itself ends a statement after a minute.


def run(*, at: str | None, data_dir: Path | None) -> None:
    """Put what is due at `at` into the inbox, where a worker finds it, and say how much it was."""
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    wanted = None if at is None else arguments.time_of(at, "--at")
    key = InboxKey(credentials.needed_key(settings))
    total = 0
    with discovery.database(settings) as url:
        engine = sync_engine(url, reply_limit_s=_REPLY_LIMIT_S)
        try:
            with engine.connect() as outer:
                connection = driver(outer)
                moment = wanted or database_clock.read(connection)
                pages = timers.enqueue_all_due(
                    connection, moment, key, rail_connected=settings.sandbox
                )
                for written in pages:
                    # psycopg's commit: SQLAlchemy has begun no database transaction.
                    connection.commit()
                    total += written
        except (DBAPIError, psycopg.Error) as error:
            raise CommandError(
                f"PostgreSQL failed after {total:,} were put into the inbox: {message_of(error)}"
            ) from None
        finally:
            engine.dispose()
    print(f"{total:,} due at {moment:%Y-%m-%d %H:%M:%S} UTC, put into the inbox")
