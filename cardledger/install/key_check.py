"""Whether the server key is the one with which the platforms of a database were created.

Two systems with different keys on one database refuse each other's messages, and cannot read each
other's secrets.
"""

from typing import Any, Final

from psycopg import Connection

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import databases
from cardledger.ledger.storage.secrets.key_ring import KeyRing, SecretsError
from cardledger.ledger.storage.secrets.sealed_columns import WEBHOOK_SECRET
from cardledger.schema import connections

_LIMIT: Final = 1_000

_NEWEST: Final = "SELECT id, webhook_secret FROM platforms ORDER BY id DESC LIMIT %s"


def opened_and_closed(connection: Connection[Any], keys: KeyRing) -> tuple[int, int]:
    """Return of how many platforms `keys` open the secrets, and of how many they do not.

    The newest 1,000 are looked at.
    """
    rows = connection.execute(_NEWEST, [_LIMIT]).fetchall()
    opened = sum(_opens(keys, *row) for row in rows)
    return opened, len(rows) - opened


def check(url: DatabaseUrl, keys: KeyRing) -> None:
    """Check that the database belongs to an installation with `keys`, if there is one in it.

    Raises: CommandError.
    """
    if databases.current(url) is None:
        return
    with connections.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('platforms')").fetchall() == [(None,)]:
            return  # A release that keeps its tables elsewhere; `migrate` moves them.
        opened, closed = opened_and_closed(connection, keys)
    if closed and not opened:
        raise CommandError(
            "the platforms in this database were created with another secret key: set"
            " CARDLEDGER_SECRET_KEY to that key, or DATABASE_URL to another database. Processes"
            " with different keys refuse each other's messages"
        )


def _opens(keys: KeyRing, platform_id: bytes, sealed: bytes) -> bool:
    try:
        keys.decrypt(sealed, WEBHOOK_SECRET.of(platform_id, platform_id))
    except SecretsError:
        return False
    return True
