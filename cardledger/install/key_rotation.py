"""Rotation of the server key: what former keys have sealed is sealed again with the current one.

Page by page, each in a database transaction of its own, while the system runs: a page waits for no
lock and is done or not. So an interrupted rotation is continued by running it again.
Source: docs/decisions/0044-secrets-are-bound.md
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from cardledger.config.errors import CommandError
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.projections import transfers
from cardledger.ledger.quotes import records as quotes
from cardledger.ledger.storage.secrets import server_keys
from cardledger.ledger.storage.secrets.key_ring import (
    HEADER_BYTES,
    KeyRing,
    Location,
    SecretsError,
    ServerKey,
)
from cardledger.ledger.storage.secrets.sealed_columns import ALL, SealedColumn

PAGE_LIMIT: Final = 200
"""Rows that a database transaction reads and seals again at most."""

_PASS_LIMIT: Final = 5  # A row that is locked in one pass is sealed in the next one.
_PAUSE_S: Final = 0.2  # Between passes; those who lock a row need milliseconds.

Connection = psycopg.Connection[Any]
Progress = Callable[[SealedColumn, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Stored values of a column: of the current key, and of former keys or releases."""

    name: str
    current: int
    outdated: int
    unreadable: int = 0  # Of the outdated ones: no known key opens them, or they were moved.


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a rotation is. Only presented secrets are hashed again, so hashes may remain.

    `messages` are those that wait in the inbox, by the key of their MAC; `terms` those of quotes
    and payments that may still be carried out, by theirs.
    """

    sealed: Sequence[Count]
    hashes: Sequence[Count]
    messages: Count
    terms: Sequence[Count]
    keeps_card_key: bool

    @property
    def is_sealed(self) -> bool:
        """Whether the current key opens everything."""
        return self.keeps_card_key and not any(count.outdated for count in self.sealed)

    @property
    def needs_former_keys(self) -> bool:
        """Whether something would be lost without the former keys."""
        remaining = (*self.hashes, self.messages, *self.terms)
        return not self.is_sealed or any(count.outdated for count in remaining)


def rotate(
    connection: Connection, key: ServerKey, progress: Progress = lambda _, __: None
) -> Status:
    """Seal what a former key or an earlier release has sealed; return what remains.

    `connection` commits by itself. `progress` gets each column and how many rows were sealed.
    """
    keys = KeyRing(key)
    found: list[Count] = []
    for number in range(_PASS_LIMIT):
        if number:
            time.sleep(_PAUSE_S)
        for column in ALL:
            sealed = _seal_column(connection, keys, column)
            if sealed:
                progress(column, sealed)
        found = [_examine(connection, keys, column) for column in ALL]
        if all(count.outdated == count.unreadable for count in found):
            break
    # With a key missing, the wrong card key would be kept, and kept permanently.
    if not any(count.outdated for count in found):
        _keep_card_key(connection, keys)
    return _status(connection, key, found)


_COUNT_CARD_KEYS: Final = "SELECT count(*) FILTER (WHERE header = %s), count(*) FROM server_keys"


def status(connection: Connection, key: ServerKey) -> Status:
    """Return how far the rotation to the current key is."""
    keys = KeyRing(key)
    return _status(connection, key, [_examine(connection, keys, column) for column in ALL])


def _status(connection: Connection, key: ServerKey, sealed: Sequence[Count]) -> Status:
    keys = KeyRing(key)
    hashes = [_count_hashes(connection, keys, *part) for part in _HASHES]
    row = connection.execute(_COUNT_CARD_KEYS, [keys.header]).fetchone()
    assert row is not None
    # Before the first rotation the server key itself is what card numbers are derived from.
    keeps_card_key = row[0] > 0 or (row[1] == 0 and not keys.is_rotating)
    inbox_key = InboxKey(key)
    return Status(
        sealed=sealed,
        hashes=hashes,
        messages=_count_messages(connection, inbox_key),
        terms=[_count_terms(connection, inbox_key, part) for part in _TERMS],
        keeps_card_key=keeps_card_key,
    )


# --- sealed values ---------------------------------------------------------------------------

_PAGE: Final = """
    SELECT {tenant}, {key}, {column} IS NULL,
        CASE WHEN substring({column} FROM 1 FOR {header_bytes}) <> %(header)s THEN {column} END
    FROM {table} {after} ORDER BY {order} LIMIT %(limit)s
"""

_LOCK: Final = """
    SELECT {tenant}, {key}, {column} FROM {table}
    WHERE ({tenant}, {key}) IN (SELECT * FROM unnest(%(tenants)s::uuid[], %(keys)s{key_type}))
        AND substring({column} FROM 1 FOR {header_bytes}) <> %(header)s
    FOR NO KEY UPDATE SKIP LOCKED
"""

_UPDATE: Final = "UPDATE {table} SET {column} = %s WHERE {tenant} = %s AND {key} = %s"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row: its platform, its key, and its value if that is not of the current key."""

    tenant: bytes
    key: bytes | str
    is_null: bool
    outdated: bytes | None


def _seal_column(connection: Connection, keys: KeyRing, column: SealedColumn) -> int:
    """Seal the outdated values of a column that can be opened; return how many there were."""
    sealed = 0
    for page in _pages(connection, keys, column):
        outdated = [row for row in page if row.outdated is not None]
        if outdated:
            with connection.transaction():
                sealed += _seal_rows(connection, keys, column, outdated)
    return sealed


def _seal_rows(
    connection: Connection, keys: KeyRing, column: SealedColumn, rows: Sequence[_Row]
) -> int:
    arguments = {
        "tenants": [row.tenant for row in rows],
        "keys": [row.key for row in rows],
        "header": keys.header,
    }
    # Read again under the lock: a value may have been replaced since.
    locked = connection.execute(_statement(_LOCK, column), arguments).fetchall()
    sealed = []
    for tenant, key, value in locked:
        location = column.of(tenant, key)
        try:
            sealed.append((keys.encrypt(keys.decrypt(value, location), location), tenant, key))
        except SecretsError:
            continue  # Counted by `_examine`.
    with connection.cursor() as cursor:
        cursor.executemany(_statement(_UPDATE, column), sealed)
    return len(sealed)


def _examine(connection: Connection, keys: KeyRing, column: SealedColumn) -> Count:
    current = outdated = unreadable = 0
    for page in _pages(connection, keys, column):
        for row in page:
            if row.outdated is not None:
                outdated += 1
                unreadable += not _opens(keys, row.outdated, column.of(row.tenant, row.key))
            elif not row.is_null:
                current += 1
    name = f"{column.table}.{column.column}"
    return Count(name=name, current=current, outdated=outdated, unreadable=unreadable)


def _opens(keys: KeyRing, value: bytes, location: Location) -> bool:
    try:
        keys.decrypt(value, location)
    except SecretsError:
        return False
    return True


def _pages(connection: Connection, keys: KeyRing, column: SealedColumn) -> Iterator[Sequence[_Row]]:
    """Yield all rows of a column's table, in the order of its primary key."""
    last: dict[str, object] = {}
    while True:
        arguments = {**last, "header": keys.header, "limit": PAGE_LIMIT}
        found = connection.execute(
            _statement(_PAGE, column, is_first=not last), arguments
        ).fetchall()
        if not found:
            return
        yield [_Row(*row) for row in found]
        tenant, key, *_ = found[-1]
        last = {column.tenant: tenant, column.key: key}


def _statement(text: str, column: SealedColumn, *, is_first: bool = True) -> sql.Composed:
    order = sql.SQL(", ").join(map(sql.Identifier, column.primary_key))
    places = sql.SQL(", ").join(map(sql.Placeholder, column.primary_key))
    after = sql.SQL("") if is_first else sql.SQL("WHERE ({}) > ({})").format(order, places)
    return sql.SQL(text).format(
        table=sql.Identifier(column.table),
        column=sql.Identifier(column.column),
        tenant=sql.Identifier(column.tenant),
        key=sql.Identifier(column.key),
        key_type=sql.SQL("::uuid[]" if column.key == "id" else "::text[]"),
        header_bytes=sql.Literal(HEADER_BYTES),
        after=after,
        order=order,
    )


# --- hashes, messages and the card key -------------------------------------------------------

_HASHES: Final = (
    ("api_tokens", "secret_hash", "true"),
    ("api_tokens", "former_secret_hash", "former_secret_until > now()"),
    ("agents", "access_token_hash", "true"),
    (
        "agent_device_codes",
        "code_hash",
        "expires_at > now() AND num_nulls(redeemed_at, replaced_at) = 2",
    ),
    ("card_reveals", "token_hash", "expires_at > now()"),
    ("kyc_links", "token_hash", "expires_at > now() AND used_at IS NULL"),
)
"""Columns of hashes of secrets, and which of their rows count."""

_COUNT_HASHES: Final = """
    SELECT count(*) FILTER (WHERE is_current), count(*) FILTER (WHERE NOT is_current)
    FROM (SELECT substring({column} FROM 1 FOR {header_bytes}) = %s AS is_current FROM {table}
          WHERE {column} IS NOT NULL AND {condition}) hashes
"""


def _count_hashes(
    connection: Connection, keys: KeyRing, table: str, column: str, condition: str
) -> Count:
    query = sql.SQL(_COUNT_HASHES).format(
        table=sql.Identifier(table),
        column=sql.Identifier(column),
        header_bytes=sql.Literal(HEADER_BYTES),
        condition=sql.SQL(condition),
    )
    row = connection.execute(query, [keys.header]).fetchone()
    assert row is not None
    return Count(name=f"{table}.{column}", current=row[0], outdated=row[1])


_MESSAGES: Final = """
    SELECT lane, shard, id, customer_id, platform_id, source, reference, body::text, body_hash,
        reply_to, received_at, mac
    FROM inbox
"""


def _count_messages(connection: Connection, key: InboxKey) -> Count:
    """Verify every message that waits; page by page, because there may be many."""
    current = outdated = 0
    with connection.transaction(), connection.cursor(name="messages") as cursor:
        cursor.itersize = PAGE_LIMIT
        for row in cursor.execute(_MESSAGES):
            mac = row[-1]
            if mac is not None and key.is_of_current_key(mac, row[:-1]):
                current += 1
            else:
                outdated += 1
    return Count(name="inbox.mac", current=current, outdated=outdated)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SignedTable:
    """A table whose rows carry a MAC of their terms, and which of its rows count."""

    signed: Signed
    name: str
    terms: Sequence[str]
    condition: str


_TERMS: Final = (
    _SignedTable(
        signed=Signed.QUOTE,
        name="quotes",
        terms=quotes.SIGNED,
        condition="status IN ('PENDING', 'PENDING_AUTHORIZATION') AND expires_at > now()",
    ),
    _SignedTable(
        signed=Signed.PAYMENT,
        name="transfers",
        terms=transfers.SIGNED,
        condition="status IN ('PENDING', 'PROCESSING') AND sequence = 0 AND due_at IS NULL",
    ),
)

_SIGNED: Final = "SELECT mac, {columns} FROM {table} WHERE mac IS NOT NULL AND {condition}"


def _count_terms(connection: Connection, key: InboxKey, table: _SignedTable) -> Count:
    """Verify the terms that may still be carried out; what no key has signed needs none."""
    query = sql.SQL(_SIGNED).format(
        columns=sql.SQL(", ").join(map(sql.Identifier, table.terms)),
        table=sql.Identifier(table.name),
        condition=sql.SQL(table.condition),
    )
    current = outdated = 0
    with connection.transaction(), connection.cursor(name="terms") as cursor:
        cursor.itersize = PAGE_LIMIT
        for mac, *values in cursor.execute(query):
            terms = dict(zip(table.terms, values, strict=True))
            if key.are_of_current_key(table.signed, mac, terms):
                current += 1
            else:
                outdated += key.verifies_terms(table.signed, mac, terms)
    return Count(name=f"{table.name}.mac", current=current, outdated=outdated)


def _keep_card_key(connection: Connection, keys: KeyRing) -> None:
    """Store the key of card numbers, sealed with the current server key.

    Raises: CommandError when it is stored for server keys that are unknown here.
    """
    rows = connection.execute("SELECT header, card_key FROM server_keys").fetchall()
    if rows and not {header for header, _ in rows} & set(keys.headers):
        raise CommandError(
            "card numbers were kept through a rotation to a server key that is unknown here; add"
            " that key to CARDLEDGER_FORMER_SECRET_KEYS"
        )
    server_keys.adopt_card_key(keys, rows)
    connection.execute(
        "INSERT INTO server_keys (header, card_key, created_at) VALUES (%s, %s, now())"
        " ON CONFLICT DO NOTHING",
        [keys.header, server_keys.sealed_card_key(keys)],
    )
