"""Webhook endpoints: create, read, change, delete, disable and rotate the secret."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.types.json import Json
from sqlalchemy import Connection, Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging import outbox
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import LOST_WITHIN, KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import (
    ENDPOINT_SECRET,
    FORMER_ENDPOINT_SECRET,
    WEBHOOK_SECRET,
)
from cardledger.ledger.webhooks import dispatch_lock, signatures
from cardledger.ledger.webhooks.deliveries import delivery_id
from cardledger.ledger.webhooks.ordering import IS_REQUESTED_TEST
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import (
    GivenUpReason,
    WebhookEndpointDisabled,
    WebhookEndpointResource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType

ENDPOINT_LIMIT: Final = 100
"""The most endpoints a platform may have besides that of its settings: every webhook is matched
with each of them."""

FORMER_SECRET_LIFETIME: Final = timedelta(hours=24)
"""How long the previous secret still signs after a rotation."""

GIVES_UP_AFTER: Final = timedelta(days=5)
"""How long every attempt of an endpoint may fail before the endpoint is disabled."""

COLLECTS_FOR: Final = timedelta(hours=24)
"""How long webhooks wait for a disabled endpoint after a replay has named it."""

_DELETED_PAGE_SIZE: Final = 100  # Endpoints that one look for pending deliveries takes.

_ENDPOINTS: Final = tables.webhook_endpoints.c

_ENDPOINT: Final = select(
    _ENDPOINTS.id,
    _ENDPOINTS.url,
    _ENDPOINTS.description,
    _ENDPOINTS.event_types,
    _ENDPOINTS.mode,
    _ENDPOINTS.state,
    _ENDPOINTS.disabled_reason,
    _ENDPOINTS.is_default,
    _ENDPOINTS.former_secret_until,
    _ENDPOINTS.failing_since,
    _ENDPOINTS.created_at,
    _ENDPOINTS.updated_at,
)
"""Every column but the secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """The settings of an endpoint to be created."""

    url: str
    description: str | None
    event_types: Sequence[str]
    mode: str
    state: str


async def create(
    connection: AsyncConnection, *, platform_id: Id, new: NewEndpoint, keys: KeyRing, at: datetime
) -> WebhookEndpointResource:
    """Create an endpoint; the result has its secret, which no later response shows.

    Raises: CapReachedError.
    """
    await caps.check(
        connection,
        tables.webhook_endpoints,
        _exists(),
        ~_ENDPOINTS.is_default,
        platform_id=platform_id,
        limit=ENDPOINT_LIMIT,
        noun="webhook endpoints",
    )
    secret = signatures.new_webhook_secret()
    values = _row(platform_id, new, at)
    location = ENDPOINT_SECRET.of(platform_id, values["id"])
    rows = await connection.execute(
        tables.webhook_endpoints.insert()
        .values(**values, is_default=False, secret=keys.encrypt(secret.encode(), location))
        .returning(*_ENDPOINT.selected_columns)
    )
    row = rows.one()
    await _queue_test(connection, platform_id, row, at)
    return _render(row, secret)


async def get(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id
) -> WebhookEndpointResource | None:
    """Return the platform's endpoint `endpoint_id`, or None."""
    rows = await connection.execute(_ENDPOINT.where(*_is(platform_id, endpoint_id)))
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: Id, wanted: paging.Wanted
) -> paging.Page[WebhookEndpointResource]:
    """Return one page of the platform's endpoints."""
    return await paging.read(
        connection,
        _ENDPOINT,
        table=tables.webhook_endpoints,
        matching=[_ENDPOINTS.platform_id == platform_id, _exists()],
        wanted=wanted,
        item=_render,
    )


async def change(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id,
    changes: Mapping[str, Any],
    at: datetime,
) -> WebhookEndpointResource | None:
    """Change the platform's endpoint `endpoint_id` and return it, or None.

    Pending deliveries go to a new URL, which also receives a test, and which has not failed so far.
    """
    before = (
        await connection.execute(_ENDPOINT.where(*_is(platform_id, endpoint_id)).with_for_update())
    ).one_or_none()
    if before is None:
        return None
    values: dict[str, Any] = {**changes, "updated_at": at}
    if values.get("state") == "ENABLED":
        values |= {"disabled_reason": None, "failing_since": None, "collects_until": None}
    elif values.get("state") == "DISABLED" and before.state == "ENABLED":
        values["disabled_reason"] = "PLATFORM"
    if values.get("url", before.url) != before.url:
        values["failing_since"] = None
    row = await _update(connection, endpoint_id, values)
    if row.url != before.url:
        await _queue_test(connection, platform_id, row, at)
    return _render(row)


async def delete(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id, at: datetime
) -> bool:
    """Delete the platform's endpoint `endpoint_id`; return whether it existed.

    From then on nothing is sent to it. `discard_page` ends its pending deliveries.
    """
    deleted = await connection.execute(
        tables.webhook_endpoints.update()
        .where(*_is(platform_id, endpoint_id))
        .values(deleted_at=at, updated_at=at, discarded_at=None)
    )
    return deleted.rowcount == 1


# The endpoints stay deleted until the page is committed: a URL may be set again. A replay that has
# read one of them before its deletion holds its row, and is waited for by skipping the endpoint.
_LOCK_DELETED: Final = """
    SELECT id FROM webhook_endpoints WHERE deleted_at IS NOT NULL AND discarded_at IS NULL
    ORDER BY deleted_at LIMIT %s FOR UPDATE SKIP LOCKED
"""

# A requested test under way is left to its sender: it counts among its platform's tests until then.
# Subqueries with a limit read the first entries of an index, whatever the number of deliveries.
_PENDING: Final = f"""
    SELECT pending.* FROM unnest(%(endpoints)s::uuid[]) AS deleted (id)
    CROSS JOIN LATERAL (
        SELECT w.id, w.customer_id, w.webhook_id FROM webhook_deliveries w
        WHERE w.endpoint_id = deleted.id AND w.next_attempt_at IS NOT NULL
            AND NOT ({IS_REQUESTED_TEST} AND w.next_attempt_at > %(at)s)
        ORDER BY w.next_attempt_at, w.webhook_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) pending
    LIMIT %(limit)s
"""

# What is stored without an endpoint stands for all that have missed the webhook. A delivery that
# was not sent says nothing more, so endpoints that are deleted between replays leave no rows.
_DELETE_ALSO_MISSED: Final = """
    DELETE FROM webhook_deliveries w
    USING unnest(%(ids)s::uuid[], %(customers)s::uuid[], %(missed)s::uuid[])
        AS page (id, customer_id, missed)
    WHERE w.id = page.id AND w.customer_id = page.customer_id AND w.attempts = 0
        AND w.next_attempt_at IS DISTINCT FROM w.lease_ends_at -- Else it is being sent.
        AND EXISTS (
            SELECT FROM webhook_deliveries m
            WHERE m.id = page.missed AND m.customer_id = page.customer_id
                AND m.endpoint_id IS NULL
        )
"""

_END: Final = """
    UPDATE webhook_deliveries w SET state = 'NO_ENDPOINT', next_attempt_at = NULL
    FROM unnest(%(ids)s::uuid[], %(customers)s::uuid[]) AS page (id, customer_id)
    WHERE w.id = page.id AND w.customer_id = page.customer_id
"""

_MARK_DISCARDED: Final = """
    UPDATE webhook_endpoints e SET discarded_at = %(at)s
    WHERE e.id = ANY (%(endpoints)s::uuid[]) AND NOT EXISTS (
        SELECT FROM webhook_deliveries w
        WHERE w.endpoint_id = e.id AND w.next_attempt_at IS NOT NULL)
"""


def discard_page(connection: Connection, *, limit: int, at: datetime) -> int:
    """End up to `limit` pending deliveries of deleted endpoints; return how many.

    They are kept with the state NO_ENDPOINT; one of which nothing was sent, and whose webhook is
    also stored as missed, is deleted: that one can be replayed. Rows that another transaction has
    locked are left for the next call. An endpoint without pending deliveries is marked and not
    looked at again, unless a dispatch is under way, which may have read the endpoint before its
    deletion.
    """
    driver = driver_of(connection)
    endpoints = [key for (key,) in driver.execute(_LOCK_DELETED, [_DELETED_PAGE_SIZE])]
    if not endpoints:
        return 0
    arguments = {"endpoints": endpoints, "limit": limit, "at": at}
    pending = driver.execute(_PENDING, arguments).fetchall()
    ended = len(pending)
    if pending:
        page = {
            "ids": [key for key, _, _ in pending],
            "customers": [customer for _, customer, _ in pending],
            "missed": [delivery_id(key, webhook, None) for key, _, webhook in pending],
        }
        driver.execute(_DELETE_ALSO_MISSED, page)
        driver.execute(_END, page)
    # Last and only for a moment: a dispatch that begins now waits for the end of this transaction.
    if ended < limit and dispatch_lock.is_over(driver):
        driver.execute(_MARK_DISCARDED, arguments)
    return ended


def replaces_last_secret(former_secret_until: datetime | None, *, at: datetime) -> bool:
    """Return whether a rotation takes the secret of the last one for lost, and replaces it."""
    rotated = rotated_at(former_secret_until)
    return rotated is not None and at - rotated < LOST_WITHIN


def rotated_at(former_secret_until: datetime | None) -> datetime | None:
    """Return when the secret was last rotated; None when no former secret is known."""
    return None if former_secret_until is None else former_secret_until - FORMER_SECRET_LIFETIME


async def rotate_secret(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id,
    keys: KeyRing,
    at: datetime,
) -> WebhookEndpointResource | None:
    """Create a new secret for an endpoint; the previous one also signs for a day.

    A rotation within ten minutes of the last one replaces the secret of that one, which is taken
    for lost: the secret before it goes on signing.
    Returns the endpoint with the secret, which no later response shows, or None.
    """
    platforms = tables.platforms.c
    rows = await connection.execute(
        select(
            _ENDPOINTS.secret,
            platforms.webhook_secret,
            _ENDPOINTS.former_secret,
            _ENDPOINTS.former_secret_until,
        )
        .join_from(tables.webhook_endpoints, tables.platforms)
        .where(*_is(platform_id, endpoint_id))
        .with_for_update(of=tables.webhook_endpoints)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    is_lost = replaces_last_secret(row.former_secret_until, at=at)
    secret = signatures.new_webhook_secret()
    own = ENDPOINT_SECRET.of(platform_id, endpoint_id)
    formerly = FORMER_ENDPOINT_SECRET.of(platform_id, endpoint_id)
    # A sealed value opens in its own column only.
    if is_lost:
        present = keys.decrypt(row.former_secret, formerly)
    elif row.secret is not None:
        present = keys.decrypt(row.secret, own)
    else:
        present = keys.decrypt(row.webhook_secret, WEBHOOK_SECRET.of(platform_id, platform_id))
    values = {
        "secret": keys.encrypt(secret.encode(), own),
        "former_secret": keys.encrypt(present, formerly),
        "former_secret_until": at + FORMER_SECRET_LIFETIME,
        "updated_at": at,
    }
    return _render(await _update(connection, endpoint_id, values), secret)


async def set_default(
    connection: AsyncConnection, *, platform_id: Id, url: str | None, at: datetime
) -> None:
    """Make `url` the platform's default endpoint; None deletes it and keeps its deliveries unsent.

    Its secret, filter and deliveries are there again when a URL is set later. Setting the URL
    enables a disabled endpoint. The caller has locked the platform's row.
    """
    stored = (
        await connection.execute(
            select(_ENDPOINTS.id, _ENDPOINTS.url, _ENDPOINTS.state, _ENDPOINTS.deleted_at).where(
                _ENDPOINTS.platform_id == platform_id, _ENDPOINTS.is_default
            )
        )
    ).one_or_none()
    if url is None:
        if stored is not None:
            await delete(connection, platform_id=platform_id, endpoint_id=stored.id, at=at)
        return
    if stored is None:
        new = NewEndpoint(
            url=url, description=None, event_types=(), mode="PARALLEL", state="ENABLED"
        )
        rows = await connection.execute(
            tables.webhook_endpoints.insert()
            .values(**_row(platform_id, new, at), is_default=True)
            .returning(*_ENDPOINT.selected_columns)
        )
        await _queue_test(connection, platform_id, rows.one(), at)
    elif stored.deleted_at is not None or (stored.url, stored.state) != (url, "ENABLED"):
        values: dict[str, Any] = dict.fromkeys(
            ("disabled_reason", "failing_since", "deleted_at", "discarded_at", "collects_until")
        )
        values |= {"url": url, "state": "ENABLED", "updated_at": at}
        await _queue_test(connection, platform_id, await _update(connection, stored.id, values), at)


_DISABLE: Final = """
    UPDATE webhook_endpoints SET state = 'DISABLED', disabled_reason = %(reason)s,
        updated_at = %(at)s
    WHERE id = %(id)s AND url = %(url)s AND state = 'ENABLED' AND deleted_at IS NULL
        AND (%(before)s::timestamptz IS NULL OR failing_since <= %(before)s)
    RETURNING platform_id, url, description
"""

_INSERT_DISABLED: Final = f"""
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at)
    VALUES ({outbox.NEW_ID}, %(customer_id)s, %(platform_id)s, %(type)s, %(subject_id)s, %(data)s,
        %(recorded_at)s)
"""


async def collect(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id, at: datetime
) -> None:
    """Let webhooks wait for the endpoint `endpoint_id`, if it is disabled, until it is enabled.

    For `COLLECTS_FOR` at most: an endpoint that is not enabled then misses them again.
    """
    await connection.execute(
        tables.webhook_endpoints.update()
        .where(*_is(platform_id, endpoint_id), _ENDPOINTS.state == "DISABLED")
        .values(collects_until=at + COLLECTS_FOR)
    )


def disable(  # noqa: PLR0913 - why, when and of which endpoint, by name
    connection: Connection,
    endpoint_id: Id,
    *,
    url: str,
    reason: GivenUpReason,
    at: datetime,
    failing_since_before: datetime | None = None,
) -> bool:
    """Disable an endpoint and notify the platform's other endpoints; return whether it was enabled.

    Not an endpoint that has another `url` by now: that is for what this one did. With
    `failing_since_before`, only an endpoint that has failed since then. Its deliveries wait until
    it is enabled again.
    """
    driver = driver_of(connection)
    arguments = {
        "id": endpoint_id,
        "url": url,
        "reason": reason,
        "at": at,
        "before": failing_since_before,
    }
    row = driver.execute(_DISABLE, arguments).fetchone()
    if row is None:
        return False
    platform_id, url, description = row
    notification = WebhookEndpointDisabled(
        id=endpoint_id, url=url, description=description, disabled_reason=reason
    )
    driver.execute(
        _INSERT_DISABLED,
        {
            "customer_id": Id(bytes(16)),
            "platform_id": platform_id,
            "type": WebhookType.WEBHOOK_ENDPOINT_DISABLED.value,
            "subject_id": endpoint_id,
            "data": Json(notification.wire()),
            "recorded_at": at,
        },
    )
    return True


async def _update(
    connection: AsyncConnection, endpoint_id: Id, values: Mapping[str, Any]
) -> Row[*tuple[Any, ...]]:
    rows = await connection.execute(
        tables.webhook_endpoints.update()
        .where(_ENDPOINTS.id == endpoint_id)
        .values(**values)
        .returning(*_ENDPOINT.selected_columns)
    )
    return rows.one()


async def _queue_test(
    connection: AsyncConnection, platform_id: Id, row: Row[*tuple[Any, ...]], at: datetime
) -> None:
    """Record a test for an enabled endpoint."""
    if row.state != "ENABLED":
        return
    await connection.execute(
        outbox.insert(
            type=WebhookType.TEST,
            subject_id=row.id,
            customer_id=Id(bytes(16)),
            platform_id=platform_id,
            data={},
            at=at,
        )
    )


def _row(platform_id: Id, new: NewEndpoint, at: datetime) -> dict[str, Any]:
    return {
        "id": new_id(),
        "platform_id": platform_id,
        "url": new.url,
        "description": new.description,
        "event_types": list(new.event_types),
        "mode": new.mode,
        "state": new.state,
        "disabled_reason": None if new.state == "ENABLED" else "PLATFORM",
        "created_at": at,
        "updated_at": at,
    }


def _exists() -> Any:  # noqa: ANN401 - a condition
    return _ENDPOINTS.deleted_at.is_(None)


def _is(platform_id: Id, endpoint_id: Id) -> list[Any]:
    return [_ENDPOINTS.id == endpoint_id, _ENDPOINTS.platform_id == platform_id, _exists()]


def _render(row: Row[*tuple[Any, ...]], secret: str | None = None) -> WebhookEndpointResource:
    return WebhookEndpointResource(
        id=row.id,
        url=row.url,
        description=row.description,
        event_types=list(row.event_types),
        mode=row.mode,
        state=row.state,
        disabled_reason=row.disabled_reason,
        is_default=row.is_default,
        secret=secret,
        former_secret_until=row.former_secret_until,
        failing_since=row.failing_since,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
