"""Idempotency keys: the response to the first request with a key, kept permanently.

A key belongs to a platform and identifies one request. Its row is written in the same database
transaction as the effect of the request. When the effect is an event, which the engine commits, the
row is written before the event is submitted and contains it, so that it can be submitted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import ANSWER
from cardledger.schema import tables
from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response: status and body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key and the request that it identifies."""

    platform_id: Id
    key: str
    request_hash: bytes

    @property
    def reference(self) -> str:
        """The reference of the only event that this request may submit."""
        return str(uuid5(UUID(bytes=self.platform_id), self.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The row of a key; without an answer, its event may or may not have been submitted."""

    request_hash: bytes
    event: Mapping[str, Any] | None
    answer: Answer | None


async def find(
    connection: AsyncConnection, *, platform_id: Id, key: str, keys: KeyRing
) -> Kept | None:
    """Return the row of the platform's `key`, or None when it was never used.

    Raises: SecretsError when the answer was encrypted with another server key.
    """
    columns = tables.idempotency_keys.c
    rows = await connection.execute(
        select(columns.request_hash, columns.event, columns.status, columns.answer).where(
            columns.platform_id == platform_id, columns.key == key
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    answer = None
    if row.status is not None:
        answer = Answer(row.status, keys.decrypt(row.answer, ANSWER.of(platform_id, key)))
    return Kept(
        request_hash=row.request_hash,
        event=row.event,
        answer=answer,
    )


async def is_used(connection: AsyncConnection, *, platform_id: Id, key: str) -> bool:
    """Return whether the platform's `key` was used before."""
    columns = tables.idempotency_keys.c
    used = select(columns.key).where(columns.platform_id == platform_id, columns.key == key)
    return (await connection.scalar(used)) is not None


async def use(
    connection: AsyncConnection,
    claim: Claim,
    *,
    at: datetime,
    event: Mapping[str, Any] | None = None,
) -> bool:
    """Insert the key of `claim`; return False when it was used before.

    Of two concurrent requests the second waits until the first commits or fails.
    """
    rows = await connection.execute(
        insert(tables.idempotency_keys)
        .values(**_row(claim, at), event=event)
        .on_conflict_do_nothing()
        .returning(tables.idempotency_keys.c.key)
    )
    return rows.one_or_none() is not None


async def keep(
    connection: AsyncConnection, claim: Claim, answer: Answer, *, keys: KeyRing, at: datetime
) -> bool:
    """Keep `answer` as the answer to `claim`; return False when it already has one.

    It is encrypted: answers contain secrets and personal data.
    """
    columns = tables.idempotency_keys.c
    sealed = keys.encrypt(answer.body, ANSWER.of(claim.platform_id, claim.key))
    values = {"status": answer.status, "answer": sealed}
    rows = await connection.execute(
        insert(tables.idempotency_keys)
        .values(**_row(claim, at), **values)
        .on_conflict_do_update(
            index_elements=[columns.platform_id, columns.key],
            set_=values,
            where=(columns.request_hash == claim.request_hash) & columns.status.is_(None),
        )
        .returning(columns.key)
    )
    return rows.one_or_none() is not None


def _row(claim: Claim, at: datetime) -> dict[str, Any]:
    return {
        "platform_id": claim.platform_id,
        "key": claim.key,
        "request_hash": claim.request_hash,
        "created_at": at,
    }
