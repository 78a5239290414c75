"""Rotation of the keys of `X-Grid-Signature` without an interruption for receivers.

The header holds one signature, so a new key is published before it signs, and the previous key
stays published for as long afterwards. Everyone may read the published keys, so they are few, and
keys that have ended are deleted. Source: docs/decisions/0017-signing-key-rotation.md
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import Connection, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import caps
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import LATER_SIGNING_KEY
from cardledger.ledger.webhooks import signatures
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import SigningKey

PUBLISHED_LIMIT: Final = 10
"""The most keys of a platform that are published at a time."""

ROWS_LIMIT: Final = 100
"""The most keys of a platform after its first one: the published ones, and those that ended within
`KEPT`."""

KEPT: Final = timedelta(hours=1)
"""How long a key is kept after its end: a sender whose clock is behind still signs with it, not
with an older one."""

PAGE: Final = 1_000
"""Keys that one statement deletes at most."""

_KEYS: Final = tables.webhook_signing_keys

_Key = tuple[str, datetime, datetime]
"""Public key, signs from, previous key published until."""

# Each key that stays because it keeps the previous one published has one that is published.
_STAYING_LIMIT: Final = 2 * PUBLISHED_LIMIT

# A key has ended when the next one signs and no longer leaves it published. It is published itself,
# or keeps the previous one published, until `former_until`.
_DELETE_ENDED: Final = text(
    """
    DELETE FROM webhook_signing_keys WHERE id IN (
        SELECT k.id FROM webhook_signing_keys k
        WHERE k.former_until <= :before AND (
            SELECT s.former_until FROM webhook_signing_keys s
            WHERE s.platform_id = k.platform_id
                AND (s.signs_from, s.id) > (k.signs_from, k.id)
            ORDER BY s.signs_from, s.id LIMIT 1) <= :before
        ORDER BY k.id LIMIT :page)
    """
)

# Keys that stay, and those that ended after `before`. What ended earlier is due to be deleted.
_COUNTS: Final = text(
    """
    SELECT count(*) FILTER (WHERE ends > :at),
        count(*) FILTER (WHERE ends <= :at AND ends > :before)
    FROM (
        SELECT greatest(former_until, coalesce(
            lead(former_until) OVER (ORDER BY signs_from, id), 'infinity')) AS ends
        FROM webhook_signing_keys WHERE platform_id = :platform) keys
    """
)


_NEAREST: Final = text(
    """
    SELECT public_key, signs_from, former_until, due
    FROM (
        SELECT id, public_key, signs_from, former_until,
            lead(former_until) OVER (ORDER BY signs_from, id) AS successor_until,
            count(*) FILTER (WHERE signs_from <= :at) OVER () AS due
        FROM (
            (SELECT id, public_key, signs_from, former_until FROM webhook_signing_keys
             WHERE platform_id = :platform AND signs_from <= :at
             ORDER BY signs_from DESC, id DESC LIMIT :limit + 1)
            UNION ALL
            (SELECT id, public_key, signs_from, former_until FROM webhook_signing_keys
             WHERE platform_id = :platform AND signs_from > :at
             ORDER BY signs_from, id LIMIT :limit)
        ) nearest
    ) keys
    WHERE former_until > :at OR successor_until > :at OR successor_until IS NULL
    ORDER BY signs_from, id
    """
)


async def rotate(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    keys: KeyRing,
    overlap: timedelta,
    at: datetime,
) -> list[SigningKey]:
    """Create a key that signs after `overlap`; return the keys that receivers should accept.

    Without an overlap it takes the place of the current key, so that one that others know can be
    replaced however many are published.
    Raises: CapReachedError.
    """
    private_key, public_key = signatures.new_signing_key()
    key_id, signs_from = new_id(), at + overlap
    new = public_key, signs_from, signs_from + overlap
    await _check_caps(connection, platform_id, new, at)
    await caps.lock(connection, _KEYS, platform_id)
    # Again, after the lock: it sees what the previous holder has committed.
    await _check_caps(connection, platform_id, new, at)
    await connection.execute(
        _KEYS.insert().values(
            id=key_id,
            platform_id=platform_id,
            private_key=keys.encrypt(private_key, LATER_SIGNING_KEY.of(platform_id, key_id)),
            public_key=public_key,
            signs_from=signs_from,
            former_until=signs_from + overlap,
            created_at=at,
        )
    )
    published = await published_at(connection, platform_id, at)
    assert published is not None, "the platform exists"
    return published


async def _check_caps(
    connection: AsyncConnection, platform_id: Id, new: _Key, at: datetime
) -> None:
    """Check that the platform may have the key `new`, too.

    Raises: CapReachedError.
    """
    keys = await _keys(connection, platform_id, at)
    assert keys is not None, "the platform exists"
    parameters = {"platform": platform_id, "at": at, "before": at - KEPT}
    staying, ended = (await connection.execute(_COUNTS, parameters)).one()
    # More keys may stay from before there was a limit; they do not hinder a replacement.
    if min(staying, _STAYING_LIMIT) + ended >= ROWS_LIMIT:
        message = (
            f"The platform has {ROWS_LIMIT} signing keys that are published or ended within the"
            " last hour, the maximum; retry later."
        )
        raise caps.CapReachedError(message, limit=ROWS_LIMIT)
    # A later id: behind those that sign from the same time.
    earlier = sum(key[1] <= new[1] for key in keys)
    after = len(publish([*keys[:earlier], new, *keys[earlier:]], at))
    if after > max(PUBLISHED_LIMIT, len(publish(keys, at))):
        message = (
            f"The platform has {PUBLISHED_LIMIT} published signing keys, the maximum; wait until a"
            " former key ends, or replace the current key at once with overlapHours 0."
        )
        raise caps.CapReachedError(message, limit=PUBLISHED_LIMIT)


def delete_ended(connection: Connection, *, at: datetime, page: int = PAGE) -> int:
    """Delete keys that ended longer than `KEPT` before `at`, a `page` at most; return how many.

    The first key of a platform is part of it, and stays.
    """
    return connection.execute(_DELETE_ENDED, {"before": at - KEPT, "page": page}).rowcount


async def published_at(
    connection: AsyncConnection, platform_id: Id, at: datetime
) -> list[SigningKey] | None:
    """Return the keys that receivers of a platform should accept at `at`; None: no such platform.

    Shape: the current key first, then the next ones, then former ones.
    """
    keys = await _keys(connection, platform_id, at)
    return None if keys is None else publish(keys, at)


async def _keys(connection: AsyncConnection, platform_id: Id, at: datetime) -> list[_Key] | None:
    """Return the keys of a platform in the order in which they sign; None: no such platform.

    Those are left out that are not published, nor decide whether the one before them is.
    More than `ROWS_LIMIT` that sign by `at`, or later, are from before there was a limit: those
    that sign nearest to `at` are returned, among them the one that senders sign with.
    """
    platforms = tables.platforms.c
    first = (
        await connection.execute(
            select(platforms.public_key, platforms.created_at).where(platforms.id == platform_id)
        )
    ).one_or_none()
    if first is None:
        return None
    parameters = {"platform": platform_id, "at": at, "limit": ROWS_LIMIT}
    rows = (await connection.execute(_NEAREST, parameters)).all()
    later = [(row.public_key, row.signs_from, row.former_until) for row in rows]
    if rows and rows[0].due > ROWS_LIMIT:
        return later  # The first key has ended, and the second is not known.
    return [(first.public_key, first.created_at, first.created_at), *later]


def publish(keys: Sequence[_Key], at: datetime) -> list[SigningKey]:
    """Return the keys to publish at `at`.

    Shape: `keys` in the order in which they sign; the first signs from the beginning.
    """
    current = max(number for number, key in enumerate(keys) if number == 0 or key[1] <= at)
    published = []
    for number, (public_key, signs_from, _) in enumerate(keys):
        successor = keys[number + 1] if number + 1 < len(keys) else None
        if number < current and (successor is None or successor[2] <= at):
            continue
        published.append(
            SigningKey(
                public_key=public_key,
                status=_status(number, current),
                signs_from=signs_from,
                signs_until=None if successor is None else successor[1],
            )
        )
    rank = {"CURRENT": 0, "NEXT": 1, "FORMER": 2}
    return sorted(published, key=lambda key: rank[key.status])


def _status(number: int, current: int) -> Literal["NEXT", "CURRENT", "FORMER"]:
    if number == current:
        return "CURRENT"
    return "NEXT" if number > current else "FORMER"
