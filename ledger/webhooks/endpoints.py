"""Endpoints: where platforms want to be told, of what, and with which secret."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.types.json import Json
from sqlalchemy import Connection, Row, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging import outbox
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.ledger.webhooks import signatures
from cardledger.ledger.webhooks.dispatch import DISPATCH_LOCK
from cardledger.ledger.webhooks.signers import SIGNING_KEY, Signer, signer_of
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import (
    GivenUpReason,
    WebhookEndpointDisabled,
    WebhookEndpointResource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType

MOST: Final = 100
"""How many endpoints a platform may have: each costs every webhook a look."""

FORMER_SECRET_LASTS: Final = timedelta(hours=24)

GIVES_UP_AFTER: Final = timedelta(days=5)
"""How long an endpoint may do nothing but fail before it is disabled."""

_ENDPOINTS: Final = tables.webhook_endpoints.c

_SHOWN: Final = select(
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
"""Everything but the secrets."""


class TooManyError(Exception):
    """The platform has as many endpoints as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An endpoint that somebody wants."""

    url: str
    description: str | None
    event_types: Sequence[str]
    mode: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a test goes, and what proves it."""

    endpoint_id: Id
    url: str
    signer: Signer


async def create(
    connection: AsyncConnection, *, platform_id: Id, wanted: Wanted, keys: KeyRing, at: datetime
) -> WebhookEndpointResource:
    """Set up an endpoint; what is returned has its secret, which nobody can read again.

    Raises: TooManyError.
    """
    there = await connection.scalar(
        select(func.count()).where(_ENDPOINTS.platform_id == platform_id, _is_there())
    )
    if (there or 0) >= MOST:
        raise TooManyError
    secret = signatures.new_webhook_secret()
    rows = await connection.execute(
        tables.webhook_endpoints.insert()
        .values(
            **_row(platform_id, wanted, at),
            is_default=False,
            secret=keys.encrypt(secret.encode()),
        )
        .returning(*_SHOWN.selected_columns)
    )
    row = rows.one()
    await _try_out(connection, platform_id, row, at)
    return _render(row, secret)


async def get(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id
) -> WebhookEndpointResource | None:
    """Return the platform's endpoint `endpoint_id`, or None when it has no such endpoint."""
    rows = await connection.execute(_SHOWN.where(*_is(platform_id, endpoint_id)))
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: Id, wanted: paging.Wanted
) -> paging.Page[WebhookEndpointResource]:
    """Return one page of the platform's endpoints."""
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.webhook_endpoints,
        matching=[_ENDPOINTS.platform_id == platform_id, _is_there()],
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
    """Change the platform's endpoint `endpoint_id`; None when it has no such endpoint.

    What waits for it goes where it is now. A new URL is tried out with a test.
    """
    before = (
        await connection.execute(_SHOWN.where(*_is(platform_id, endpoint_id)).with_for_update())
    ).one_or_none()
    if before is None:
        return None
    values: dict[str, Any] = {**changes, "updated_at": at}
    if values.get("state") == "ENABLED":
        values |= {"disabled_reason": None, "failing_since": None}
    elif values.get("state") == "DISABLED" and before.state == "ENABLED":
        values["disabled_reason"] = "PLATFORM"
    row = await _update(connection, endpoint_id, values)
    if row.url != before.url:
        await _try_out(connection, platform_id, row, at)
    return _render(row)


async def delete(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id, at: datetime
) -> bool:
    """Take the platform's endpoint `endpoint_id` away; returns whether it was there.

    What waits for it is kept and not sent. Nothing is dispatched meanwhile, so nothing can come
    to wait for it afterwards.
    """
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": DISPATCH_LOCK})
    if await get(connection, platform_id=platform_id, endpoint_id=endpoint_id) is None:
        return False
    deliveries = tables.webhook_deliveries
    # Deliveries first, as whoever records an attempt does; or each could wait for the other.
    await connection.execute(
        deliveries.update()
        .where(
            deliveries.c.endpoint_id == endpoint_id,
            deliveries.c.next_attempt_at.is_not(None),
        )
        .values(state="NO_ENDPOINT", next_attempt_at=None)
    )
    gone = await connection.execute(
        tables.webhook_endpoints.update()
        .where(*_is(platform_id, endpoint_id))
        .values(deleted_at=at, updated_at=at)
    )
    return gone.rowcount == 1


async def rotate_secret(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id,
    keys: KeyRing,
    at: datetime,
) -> WebhookEndpointResource | None:
    """Give an endpoint a new secret; the one before signs beside it for a day.

    Returns it with the secret, which nobody can read again; None when there is no such endpoint.
    """
    platforms = tables.platforms.c
    former = await connection.scalar(
        select(func.coalesce(_ENDPOINTS.secret, platforms.webhook_secret))
        .join_from(tables.webhook_endpoints, tables.platforms)
        .where(*_is(platform_id, endpoint_id))
        .with_for_update(of=tables.webhook_endpoints)
    )
    if former is None:
        return None
    secret = signatures.new_webhook_secret()
    values = {
        "secret": keys.encrypt(secret.encode()),
        "former_secret": former,
        "former_secret_until": at + FORMER_SECRET_LASTS,
        "updated_at": at,
    }
    return _render(await _update(connection, endpoint_id, values), secret)


async def set_default(
    connection: AsyncConnection, *, platform_id: Id, url: str | None, at: datetime
) -> None:
    """Make `url` the platform's default endpoint; None takes it away, and keeps what waits unsent.

    Its secret, its filter and its deliveries outlast its absence. Setting the URL of a disabled
    one enables it. Whoever calls holds the platform's row.
    """
    found = (
        await connection.execute(
            select(_ENDPOINTS.id, _ENDPOINTS.url, _ENDPOINTS.state, _ENDPOINTS.deleted_at).where(
                _ENDPOINTS.platform_id == platform_id, _ENDPOINTS.is_default
            )
        )
    ).one_or_none()
    if url is None:
        if found is not None:
            await delete(connection, platform_id=platform_id, endpoint_id=found.id, at=at)
        return
    if found is None:
        wanted = Wanted(url=url, description=None, event_types=(), mode="PARALLEL", state="ENABLED")
        rows = await connection.execute(
            tables.webhook_endpoints.insert()
            .values(**_row(platform_id, wanted, at), is_default=True)
            .returning(*_SHOWN.selected_columns)
        )
        await _try_out(connection, platform_id, rows.one(), at)
    elif found.deleted_at is not None or (found.url, found.state) != (url, "ENABLED"):
        values: dict[str, Any] = dict.fromkeys(("disabled_reason", "failing_since", "deleted_at"))
        values |= {"url": url, "state": "ENABLED", "updated_at": at}
        await _try_out(connection, platform_id, await _update(connection, found.id, values), at)


async def target(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id | None,
    keys: KeyRing,
    at: datetime,
) -> Target | None:
    """Return where to send a test, the default endpoint unless one is named; None: there is none.

    Raises: SecretsError when the server key is not the one that its keys are encrypted with.
    """
    arguments = {"platform": platform_id, "endpoint": endpoint_id, "at": at}
    row = (await connection.execute(_TARGET, arguments)).one_or_none()
    if row is None:
        return None
    signer = signer_of(row.signing_key, row.secret, row.former_secret, keys)
    return Target(endpoint_id=row.id, url=row.url, signer=signer)


def disable(
    connection: Connection,
    endpoint_id: Id,
    *,
    reason: GivenUpReason,
    at: datetime,
    failing_since_before: datetime | None = None,
) -> bool:
    """Stop sending to an endpoint and tell its platform's others; returns whether it was enabled.

    With `failing_since_before`, only if it has done nothing but fail since then. What it should be
    told waits until it is enabled again.
    """
    driver = driver_of(connection)
    arguments = {"id": endpoint_id, "reason": reason, "at": at, "before": failing_since_before}
    row = driver.execute(_DISABLE, arguments).fetchone()
    if row is None:
        return False
    platform_id, url, description = row
    told = WebhookEndpointDisabled(
        id=endpoint_id, url=url, description=description, disabled_reason=reason
    )
    driver.execute(
        _TELL_DISABLED,
        {
            "id": new_id(),
            "customer_id": Id(bytes(16)),
            "platform_id": platform_id,
            "type": WebhookType.WEBHOOK_ENDPOINT_DISABLED.value,
            "subject_id": endpoint_id,
            "data": Json(told.wire()),
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
        .returning(*_SHOWN.selected_columns)
    )
    return rows.one()


async def _try_out(
    connection: AsyncConnection, platform_id: Id, row: Row[*tuple[Any, ...]], at: datetime
) -> None:
    """Have an endpoint told once that it is one."""
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


def _row(platform_id: Id, wanted: Wanted, at: datetime) -> dict[str, Any]:
    return {
        "id": new_id(),
        "platform_id": platform_id,
        "url": wanted.url,
        "description": wanted.description,
        "event_types": list(wanted.event_types),
        "mode": wanted.mode,
        "state": wanted.state,
        "disabled_reason": None if wanted.state == "ENABLED" else "PLATFORM",
        "created_at": at,
        "updated_at": at,
    }


def _is_there() -> Any:  # noqa: ANN401 - a condition
    return _ENDPOINTS.deleted_at.is_(None)


def _is(platform_id: Id, endpoint_id: Id) -> list[Any]:
    return [_ENDPOINTS.id == endpoint_id, _ENDPOINTS.platform_id == platform_id, _is_there()]


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


_TARGET: Final = text(
    f"""
    SELECT e.id, e.url, {SIGNING_KEY.replace("%(at)s", ":at")} AS signing_key,
        coalesce(e.secret, p.webhook_secret) AS secret,
        CASE WHEN e.former_secret_until > :at THEN e.former_secret END AS former_secret
    FROM webhook_endpoints e JOIN platforms p ON p.id = e.platform_id
    WHERE e.platform_id = :platform AND e.deleted_at IS NULL
        AND CASE WHEN CAST(:endpoint AS uuid) IS NULL THEN e.is_default ELSE e.id = :endpoint END
    """
)

_DISABLE: Final = """
    UPDATE webhook_endpoints SET state = 'DISABLED', disabled_reason = %(reason)s,
        updated_at = %(at)s
    WHERE id = %(id)s AND state = 'ENABLED' AND deleted_at IS NULL
        AND (%(before)s::timestamptz IS NULL OR failing_since <= %(before)s)
    RETURNING platform_id, url, description
"""

_TELL_DISABLED: Final = """
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at)
    VALUES (%(id)s, %(customer_id)s, %(platform_id)s, %(type)s, %(subject_id)s, %(data)s,
        %(recorded_at)s)
"""
