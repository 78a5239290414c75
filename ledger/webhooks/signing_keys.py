"""Rotation of the keys of `X-Grid-Signature` without an interruption for receivers.

The header holds one signature, so a new key is published before it signs, and the previous key
stays published for as long afterwards. Source: docs/decisions/0017-signing-key-rotation.md
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import LATER_SIGNING_KEY
from cardledger.ledger.webhooks import signatures
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import SigningKey

_KEYS: Final = tables.webhook_signing_keys


async def rotate(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    keys: KeyRing,
    overlap: timedelta,
    at: datetime,
) -> list[SigningKey]:
    """Create a key that signs after `overlap`; return the keys that receivers should accept."""
    private_key, public_key = signatures.new_signing_key()
    key_id, signs_from = new_id(), at + overlap
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


async def published_at(
    connection: AsyncConnection, platform_id: Id, at: datetime
) -> list[SigningKey] | None:
    """Return the keys that receivers of a platform should accept at `at`; None: no such platform.

    Shape: the current key first, then the next ones, then former ones.
    """
    platforms = tables.platforms.c
    first = (
        await connection.execute(
            select(platforms.public_key, platforms.created_at).where(platforms.id == platform_id)
        )
    ).one_or_none()
    if first is None:
        return None
    later = await connection.execute(
        select(_KEYS.c.public_key, _KEYS.c.signs_from, _KEYS.c.former_until)
        .where(_KEYS.c.platform_id == platform_id)
        .order_by(_KEYS.c.signs_from, _KEYS.c.id)
    )
    keys = [(first.public_key, first.created_at, first.created_at)]
    keys += [(key.public_key, key.signs_from, key.former_until) for key in later]
    return publish(keys, at)


def publish(keys: Sequence[tuple[str, datetime, datetime]], at: datetime) -> list[SigningKey]:
    """Return the keys to publish at `at`.

    Shape: `keys` are (public key, signs from, previous key published until), in the order in which
    they sign; the first signs from the beginning.
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
