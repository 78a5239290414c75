"""Tests that a platform requests: a delivery like others, whose result the request waits for.

The delivery is written directly, not over the outbox, and has the id of its webhook. That, its type
and that no attempt was made yet tell the sender to send it at once, to disabled endpoints as well.
Source: docs/decisions/0043-webhook-tests.md
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.ids import beside
from cardledger.ledger.webhooks.ordering import IS_REQUESTED_TEST
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import WebhookTestResource
from cardledger.schema.wire.webhooks.envelope import WebhookType, envelope

TEST_LIMIT: Final = 2
"""The most tests of a platform that wait for their result or are under way at a time."""

_CUSTOMER: Final = Id(bytes(16))  # Tests are about no cardholder.


class TooManyTestsError(Exception):
    """`TEST_LIMIT` tests of the platform wait for their result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTest:
    """A test of an endpoint; its id is that of its webhook and of its delivery."""

    id: Id
    platform_id: Id
    endpoint_id: Id


_ENDPOINT: Final = text(
    """
    SELECT id FROM webhook_endpoints
    WHERE platform_id = :platform AND deleted_at IS NULL
        AND CASE WHEN CAST(:endpoint AS uuid) IS NULL THEN is_default ELSE id = :endpoint END
    """
)


async def find_endpoint(
    connection: AsyncConnection, *, platform_id: Id, endpoint_id: Id | None
) -> Id | None:
    """Return `endpoint_id`, or the default endpoint's id; None: the platform does not have it."""
    arguments = {"platform": platform_id, "endpoint": endpoint_id}
    found: Id | None = await connection.scalar(_ENDPOINT, arguments)
    return found


# The tests of a key have the time and the order of the first one in their ids (`beside`).
_REPETITIONS: Final = text(
    """
    SELECT id, state <> 'PENDING' AND last_status IS NULL FROM webhook_deliveries
    WHERE id >= :first AND id <= :last AND customer_id = :customer AND platform_id = :platform
        AND endpoint_id = :endpoint AND webhook_id = id
    """
)


async def repetition(connection: AsyncConnection, test: EndpointTest) -> EndpointTest:
    """Return the test that a request for `test` stands for: after one without response, the next.

    Its id follows from the one before it, so that concurrent repetitions request one test, and so
    that their order is known without their times, which are of different clocks.
    """
    near = {
        "first": Id(test.id[:8] + bytes(8)),
        "last": Id(test.id[:8] + b"\xff" * 8),
        "customer": _CUSTOMER,
        "platform": test.platform_id,
        "endpoint": test.endpoint_id,
    }
    rows = await connection.execute(_REPETITIONS, near)
    is_unanswered: dict[Id, bool] = {row[0]: row[1] for row in rows}
    key = test.id
    while is_unanswered.get(key):
        key = beside(test.id, key)
    return replace(test, id=key)


_LOCK_PLATFORM: Final = text("SELECT FROM platforms WHERE id = :platform FOR NO KEY UPDATE")

_EXISTS: Final = text(
    "SELECT EXISTS (SELECT FROM webhook_deliveries WHERE id = :id AND customer_id = :customer)"
)

# One index scan per endpoint, of which a platform has few, whatever the backlog of each. A deleted
# endpoint counts while a test of it is under way: deleting it does not free the sender's thread.
_WAITING: Final = text(
    f"""
    SELECT count(*) FROM webhook_endpoints e
    CROSS JOIN LATERAL (
        SELECT FROM webhook_deliveries w
        WHERE w.endpoint_id = e.id AND w.subject_id = e.id AND w.next_attempt_at IS NOT NULL
            AND {IS_REQUESTED_TEST}
        LIMIT :limit
    ) test
    WHERE e.platform_id = :platform AND (e.deleted_at IS NULL OR e.discarded_at IS NULL)
    """
)

# A deleted endpoint may be marked as discarded, so that nothing would end a pending delivery to it.
_INSERT: Final = text(
    """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        next_attempt_at, created_at, webhook_id, endpoint_id)
    SELECT :id, :customer, e.platform_id, :type, e.id, :body,
        CASE WHEN e.deleted_at IS NULL THEN 'PENDING' ELSE 'NO_ENDPOINT' END,
        CASE WHEN e.deleted_at IS NULL THEN CAST(:at AS timestamptz) END, :at, :id, e.id
    FROM webhook_endpoints e WHERE e.id = :endpoint AND e.platform_id = :platform
    FOR KEY SHARE
    """
)


async def request(connection: AsyncConnection, test: EndpointTest, *, at: datetime) -> None:
    """Store `test` to be sent, once; a repetition changes nothing.

    Raises: TooManyTestsError.
    """
    # One after the other, for each sees the tests before it only when they are committed.
    await connection.execute(_LOCK_PLATFORM, {"platform": test.platform_id})
    key = {"id": test.id, "customer": _CUSTOMER}
    if await connection.scalar(_EXISTS, key):
        return
    counted = {"platform": test.platform_id, "limit": TEST_LIMIT}
    waiting = await connection.scalar(_WAITING, counted)
    if (waiting or 0) >= TEST_LIMIT:
        raise TooManyTestsError
    row = {
        **key,
        "platform": test.platform_id,
        "type": WebhookType.TEST.value,
        "endpoint": test.endpoint_id,
        "body": envelope(test.id, WebhookType.TEST, at, {}).decode(),
        "at": at,
    }
    await connection.execute(_INSERT, row)


_RESULT: Final = text(
    """
    SELECT w.state, e.url, a.duration_ms, a.status, a.response_head, a.error
    FROM webhook_deliveries w JOIN webhook_endpoints e ON e.id = w.endpoint_id
    LEFT JOIN LATERAL (
        SELECT * FROM webhook_attempts t WHERE t.delivery_id = w.id ORDER BY t.number LIMIT 1
    ) a ON true
    WHERE w.id = :id AND w.customer_id = :customer AND (w.state <> 'PENDING' OR w.attempts > 0)
    """
)


async def result(connection: AsyncConnection, test: EndpointTest) -> WebhookTestResource | None:
    """Return the result of the first attempt of `test`; None: it has not ended."""
    rows = await connection.execute(_RESULT, {"id": test.id, "customer": _CUSTOMER})
    row = rows.one_or_none()
    if row is None:
        return None
    is_unsent = row.duration_ms is None
    return WebhookTestResource(
        delivery_id=test.id,
        webhook_id=test.id,
        endpoint_id=test.endpoint_id,
        url=row.url,
        delivered=row.state == "DELIVERED",
        duration_ms=row.duration_ms or 0,
        response_status=row.status,
        response_body=row.response_head,
        error="the endpoint was deleted before the test was sent" if is_unsent else row.error,
    )
