"""Dispatch of the outbox: each webhook becomes one delivery per enabled endpoint that subscribes.

Disabled endpoints have no deliveries, except those that collect webhooks, and endpoints of a
platform with too many waiting deliveries may have none (`backlogs`). For all others that subscribe,
and for a platform without endpoints, the webhook is stored once, without an endpoint; a replay
copies it (`replays`). The body is rendered here, once: every attempt sends the same bytes.
Source: docs/decisions/0043-webhook-tests.md
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
import structlog
from sqlalchemy import Connection

from cardledger.ledger.projections import accounts, card_transaction, history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.ids import numbered_ids
from cardledger.ledger.webhooks import outbox_claims
from cardledger.ledger.webhooks.backlogs import Backlogs
from cardledger.ledger.webhooks.deliveries import delivery_id
from cardledger.ledger.webhooks.fan_out import Endpoint, FannedOut, fan_out
from cardledger.ledger.webhooks.folds import Folds
from cardledger.ledger.webhooks.ordering import Queue, lock_queues, queue_position
from cardledger.ledger.webhooks.outbox_claims import Row, Turns
from cardledger.schema.ids import Id
from cardledger.schema.tables.webhooks import APPROVALS_EARLIER_BY
from cardledger.schema.wire.webhooks.envelope import APPROVAL, WebhookType, envelope

_log = structlog.get_logger()

_RENDER_RETRY_DELAY: Final = timedelta(minutes=1)

_INSERT_SIZE: Final = 8 * 1024 * 1024  # Characters of bodies in one statement.


class Dispatched(NamedTuple):
    """What one dispatch did: outbox rows, deliveries, and whether more rows are waiting.

    `approvals` are the payments among them that wait for a response.
    """

    rows: int
    deliveries: int
    has_more: bool
    approvals: int = 0


class _Rendered(NamedTuple):
    """A row, its body and an endpoint that receives it; None: it is stored for replays."""

    id: Id
    row: Row
    body: str
    endpoint: Endpoint | None


_POSTPONE: Final = """
    UPDATE outbox o SET retry_at = %(until)s
    FROM unnest(%(ids)s, %(customers)s) AS k (id, customer_id)
    WHERE o.id = k.id AND o.customer_id = k.customer_id
"""

_DELETE_OUTBOX: Final = """
    DELETE FROM outbox o USING unnest(%(ids)s, %(customers)s) AS k (id, customer_id)
    WHERE o.id = k.id AND o.customer_id = k.customer_id
"""


def dispatch(  # noqa: PLR0913 - what the process remembers, by name
    connection: Connection,
    *,
    limit: int,
    at: datetime,
    turns: Turns | None = None,
    backlogs: Backlogs | None = None,
    folds: Folds | None = None,
) -> Dispatched:
    """Turn the oldest rows of the outbox into deliveries, at most `limit` of each.

    A platform with many endpoints takes more dispatches, not longer ones, and shares them with the
    others. So does one with large webhooks: a delivery counts as one for each 16 KiB of its data. A
    single row is dispatched however many that is, by several statements if need be; apart from that
    their number is the same for 1 row and for 500, except where many events are folded: `folds`
    bounds these, and what they do not suffice for keeps its place in the outbox. `turns`,
    `backlogs` and `folds` are what the process remembers of its dispatches. A row that cannot be
    rendered stays in the outbox, is logged and counted, and is retried after a minute behind all
    new rows, so that it delays no other row. `DISPATCH_LOCK` lets one dispatcher run at a time: a
    second one could overtake the first with the next event of a resource.
    """
    driver = driver_of(connection)
    turns, backlogs = turns or Turns(), backlogs or Backlogs()
    claimed, is_cut = outbox_claims.claim(driver, limit, at, in_turns=turns.take())
    if not claimed:
        turns.note((), (), has_more=False)
        return Dispatched(0, 0, has_more=False)
    fanned_out = fan_out(driver, claimed, limit, at, turns=turns, backlogs=backlogs)
    fanned_out, folded = _fold(driver, fanned_out, folds or Folds())
    rendered = _render([row for row, _ in fanned_out], folded)
    deliveries = list(_deliveries(fanned_out, rendered, at))
    done = [row for row, _ in fanned_out if row.id in rendered]
    postponed = [row for row, _ in fanned_out if row.id not in rendered]
    if deliveries:
        _insert(driver, deliveries, at)
    with driver.pipeline():
        if postponed:
            until = at + _RENDER_RETRY_DELAY
            driver.execute(_POSTPONE, {"until": until, **_keys(postponed)})
        if done:
            driver.execute(_DELETE_OUTBOX, _keys(done))
    has_more = is_cut or len(fanned_out) < len(claimed)
    turns.note(claimed, [row for row, _ in fanned_out], has_more=has_more)
    approvals = sum(row.type == APPROVAL for row in done)
    return Dispatched(len(fanned_out), len(deliveries), has_more, approvals)


def _deliveries(
    fanned_out: Sequence[tuple[Row, Sequence[Endpoint | None]]],
    bodies: Mapping[Id, str],
    at: datetime,
) -> Iterator[_Rendered]:
    keys = numbered_ids(len(fanned_out), at=at)
    for key, (row, endpoints) in zip(keys, fanned_out, strict=True):
        for endpoint in endpoints if row.id in bodies else ():
            endpoint_id = None if endpoint is None else endpoint.id
            yield _Rendered(delivery_id(key, row.id, endpoint_id), row, bodies[row.id], endpoint)


def _keys(rows: Sequence[Row]) -> dict[str, pg_arrays.Array]:
    return {
        "ids": pg_arrays.uuids([row.id for row in rows]),
        "customers": pg_arrays.uuids([row.customer_id for row in rows]),
    }


def _fold(
    driver: psycopg.Connection[Any], fanned_out: FannedOut, folds: Folds
) -> tuple[FannedOut, Mapping[history.Version, RollUp]]:
    """Return what can be rendered now, and the roll-ups for it.

    What waits for more events to be folded keeps what is behind it of its resource waiting, too.
    """
    folded = folds.at(
        driver,
        [
            (row.subject_id, row.sequence)
            for row, _ in fanned_out
            if row.data is None and row.sequence is not None
        ],
    )
    if not folded.later:
        return fanned_out, folded.roll_ups
    waiting: set[Id] = set()
    ready: FannedOut = []
    for row, receivers in fanned_out:
        if row.subject_id in waiting or (row.subject_id, row.sequence) in folded.later:
            waiting.add(row.subject_id)
        else:
            ready.append((row, receivers))
    return ready, folded.roll_ups


def _render(rows: Sequence[Row], folded: Mapping[history.Version, RollUp]) -> dict[Id, str]:
    bodies: dict[Id, str] = {}
    for row in rows:
        try:
            bodies[row.id] = _body(row, folded)
        except Exception:  # noqa: BLE001 - a row that cannot be rendered must not stop the others
            _log.exception(
                "webhook cannot be rendered",
                webhook=str(row.id),
                type=row.type,
                resource=str(row.subject_id),
            )
    return bodies


def _body(row: Row, folded: Mapping[history.Version, RollUp]) -> str:
    data = row.data
    if data is None:
        if row.sequence is None:
            raise ValueError("the webhook has neither data nor a sequence to fold up to")
        data = card_transaction.wire(folded[row.subject_id, row.sequence])
    elif row.type == WebhookType.INTERNAL_ACCOUNT_BALANCE_UPDATED:
        data = accounts.wire(
            data,
            key=row.subject_id,
            customer_id=row.customer_id,
            platform_id=row.platform_id,
            version=row.sequence,
        )
    return envelope(row.id, row.type, row.recorded_at, data, sequence=row.sequence).decode()


# For an ordered endpoint, only the first delivery of a queue is due; the others have a position.
_INSERT: Final = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, sequence, body,
        state, next_attempt_at, created_at, webhook_id, endpoint_id)
    SELECT id, customer_id, platform_id, type, subject, sequence, body,
        CASE WHEN endpoint IS NULL THEN 'NO_ENDPOINT' ELSE 'PENDING' END,
        CASE WHEN endpoint IS NULL THEN NULL
            WHEN queue_position IS NULL THEN due
            WHEN is_first AND NOT EXISTS (
                SELECT FROM webhook_deliveries w
                WHERE w.endpoint_id = endpoint AND w.subject_id = subject
                    AND w.next_attempt_at IS NOT NULL) THEN due
            ELSE queue_position END,
        %(at)s, webhook, endpoint
    FROM unnest(%(ids)s, %(customers)s, %(platforms)s, %(types)s, %(subjects)s, %(sequences)s,
        %(bodies)s, %(webhooks)s, %(endpoints)s, %(firsts)s, %(positions)s, %(dues)s)
        AS delivery (id, customer_id, platform_id, type, subject, sequence, body, webhook, endpoint,
            is_first, queue_position, due)
"""


def _insert(driver: psycopg.Connection[Any], deliveries: Sequence[_Rendered], at: datetime) -> None:
    """Store `deliveries` by statements of some megabytes, each with a time limit of its own.

    In a pipeline all of them together would have that of one.
    """
    first = _first_of_queues(deliveries)
    if first:
        lock_queues(driver, first)
    deciding = _deciding(deliveries)
    # The first of a queue is due unless something is stored in its queue by then, so it must not
    # be in a later statement than those behind it.
    in_order = sorted(deliveries, key=lambda delivery: not _is_first(delivery, first))
    for part in _parts(in_order):
        _insert_part(driver, part, at, first=first, deciding=deciding)


def _parts(deliveries: Sequence[_Rendered]) -> Iterator[list[_Rendered]]:
    """Yield `deliveries` in parts whose bodies have `_INSERT_SIZE` at most, or that are single."""
    part: list[_Rendered] = []
    size = 0
    for delivery in deliveries:
        size += len(delivery.body)
        if part and size > _INSERT_SIZE:
            yield part
            part, size = [], len(delivery.body)
        part.append(delivery)
    yield part


def _is_first(delivery: _Rendered, first: Mapping[Queue, Id]) -> bool:
    """Return whether `delivery` is the first of its queue, as `_first_of_queues` says."""
    _, row, _, endpoint = delivery
    return endpoint is not None and first.get((endpoint.id, row.subject_id)) == row.id


def _insert_part(
    driver: psycopg.Connection[Any],
    deliveries: Sequence[_Rendered],
    at: datetime,
    *,
    first: Mapping[Queue, Id],
    deciding: Mapping[Id, Id],
) -> None:
    rows = [delivery.row for delivery in deliveries]
    endpoints = [delivery.endpoint for delivery in deliveries]
    pairs = list(zip(rows, endpoints, strict=True))
    firsts = [_is_first(delivery, first) for delivery in deliveries]
    positions = [
        queue_position(row.sequence, row.id) if endpoint and endpoint.is_fifo else None
        for row, endpoint in pairs
    ]
    driver.execute(
        _INSERT,
        {
            "at": at,
            "ids": pg_arrays.uuids([delivery.id for delivery in deliveries]),
            "customers": pg_arrays.uuids([row.customer_id for row in rows]),
            "platforms": pg_arrays.uuids([row.platform_id for row in rows]),
            "types": pg_arrays.texts([row.type for row in rows]),
            "subjects": pg_arrays.uuids([row.subject_id for row in rows]),
            "sequences": pg_arrays.bigints([row.sequence for row in rows]),
            "bodies": pg_arrays.texts([delivery.body for delivery in deliveries]),
            "webhooks": pg_arrays.uuids([row.id for row in rows]),
            "endpoints": pg_arrays.uuids(
                [endpoint.id if endpoint else None for endpoint in endpoints]
            ),
            "firsts": pg_arrays.booleans(firsts),
            "positions": pg_arrays.times(positions),
            "dues": pg_arrays.times(
                [
                    at - APPROVALS_EARLIER_BY
                    if endpoint and deciding.get(row.id) == endpoint.id
                    else at
                    for row, endpoint in pairs
                ]
            ),
        },
    )


def _deciding(deliveries: Sequence[_Rendered]) -> dict[Id, Id]:
    """Return the endpoint whose response decides, of each webhook that asks for an approval.

    The default one, or the oldest, as `ledger.payments.approvals` reads them.
    """
    deciding: dict[Id, tuple[bool, Id]] = {}
    for _, row, _, endpoint in deliveries:
        if endpoint is not None and row.type == APPROVAL:
            candidate = (not endpoint.is_default, endpoint.id)
            deciding[row.id] = min(deciding.get(row.id, candidate), candidate)
    return {webhook: endpoint for webhook, (_, endpoint) in deciding.items()}


def _first_of_queues(deliveries: Sequence[_Rendered]) -> dict[Queue, Id]:
    """Return the first webhook of each queue of ordered endpoints.

    Ordered by `queue_position`, not by id: ids come from a clock, which may have been set back.
    """
    first: dict[Queue, tuple[datetime, Id]] = {}
    for _, row, _, endpoint in deliveries:
        if endpoint is not None and endpoint.is_fifo:
            queue = (endpoint.id, row.subject_id)
            candidate = (queue_position(row.sequence, row.id), row.id)
            first[queue] = min(first.get(queue, candidate), candidate)
    return {queue: webhook for queue, (_, webhook) in first.items()}
