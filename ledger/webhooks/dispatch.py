"""Webhooks from the outbox to deliveries: who is told, and in which words.

The body is rendered here, once: every attempt sends these bytes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
import structlog
from sqlalchemy import Connection

from cardledger.ledger.projections import accounts, card_transaction, history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.ordering import Queue, lock_queues, place
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.envelope import WebhookType, envelope

_log = structlog.get_logger()

DISPATCH_LOCK: Final = 0x77656268
"""Advisory lock of whoever dispatches, or takes an endpoint away: one at a time.

Whoever has something sent again shares it."""

_RENDER_AGAIN_AFTER: Final = timedelta(minutes=1)


class Dispatched(NamedTuple):
    """What a round of dispatching did, and whether it left something for the next one."""

    rows: int
    deliveries: int
    has_more: bool


class _Row(NamedTuple):
    """A row of the outbox."""

    id: Id
    customer_id: Id
    platform_id: Id
    type: str
    subject_id: Id
    sequence: int | None
    data: dict[str, Any] | None
    recorded_at: datetime


class _Endpoint(NamedTuple):
    """As much of an endpoint as decides what it is told."""

    id: Id
    platform_id: Id
    event_types: list[str]
    is_fifo: bool


class _Told(NamedTuple):
    """A row with its body, and an endpoint that wants it; None: there is no endpoint at all."""

    row: _Row
    body: str
    endpoint: _Endpoint | None


def dispatch(connection: Connection, *, limit: int, at: datetime) -> Dispatched:
    """Make deliveries of the oldest rows of the outbox, at most `limit`.

    One for each endpoint that wants to be told, of as many rows as make `limit` deliveries: a
    platform with many endpoints takes more turns, not a longer one. The body is rendered here,
    once: every attempt sends these bytes. A row that cannot be rendered stays in the outbox, is
    logged, and is tried again in a minute, when nothing new waits: it stops only itself, and is
    counted. The number of statements is the same for 1 row and for 500. One at a time: a second
    dispatcher would overtake the first with the next event of a resource.
    """
    driver = driver_of(connection)
    claimed = _claim_outbox(driver, limit, at)
    if not claimed:
        return Dispatched(0, 0, has_more=False)
    fanned_out = _fan_out(driver, claimed, limit)
    rendered = _render(driver, [row for row, _ in fanned_out])
    told = list(_told(fanned_out, rendered))
    done = [row for row, _ in fanned_out if row.id in rendered]
    off = [row for row, _ in fanned_out if row.id not in rendered]
    with driver.pipeline():
        if off:
            driver.execute(_PUT_OFF, {"until": at + _RENDER_AGAIN_AFTER, **_keys(off)})
        if told:
            _insert(driver, told, at)
        if done:
            driver.execute(_DELETE_OUTBOX, _keys(done))
    has_more = len(claimed) == limit or len(fanned_out) < len(claimed)
    return Dispatched(len(fanned_out), len(told), has_more=has_more)


def wants(event_types: Collection[str], kind: str) -> bool:
    """Return whether a filter lets `kind` pass: by name, by `<GROUP>.*`, or because it is empty."""
    return not event_types or kind in event_types or f"{kind.partition('.')[0]}.*" in event_types


def _claim_outbox(driver: psycopg.Connection[Any], limit: int, at: datetime) -> list[_Row]:
    with driver.pipeline(), driver.cursor(binary=True) as cursor:
        driver.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        cursor.execute(_CLAIM_OUTBOX, {"limit": limit, "at": at})
        return sorted(map(_Row._make, cursor.fetchall()))


def _fan_out(
    driver: psycopg.Connection[Any], rows: Sequence[_Row], limit: int
) -> list[tuple[_Row, list[_Endpoint | None]]]:
    """Return the first of `rows` with who wants to be told: one, and what `limit` has room for.

    Each delivery in order is also a lock, of which PostgreSQL has some thousands for everybody.
    """
    by_platform: dict[Id, list[_Endpoint]] = defaultdict(list)
    with driver.cursor(binary=True) as cursor:
        for found in cursor.execute(_ENDPOINTS, [list({row.platform_id for row in rows})]):
            endpoint = _Endpoint._make(found)
            by_platform[endpoint.platform_id].append(endpoint)
    fanned_out: list[tuple[_Row, list[_Endpoint | None]]] = []
    size = 0
    for row in rows:
        endpoints = by_platform[row.platform_id]
        wanting: list[_Endpoint | None] = [one for one in endpoints if _is_for(one, row)]
        if not endpoints:
            wanting = [None]  # It is kept, and not sent.
        size += len(wanting)
        if fanned_out and size > limit:
            break
        fanned_out.append((row, wanting))
    return fanned_out


def _told(
    fanned_out: Iterable[tuple[_Row, Sequence[_Endpoint | None]]], bodies: Mapping[Id, str]
) -> Iterator[_Told]:
    for row, endpoints in fanned_out:
        for endpoint in endpoints if row.id in bodies else ():
            yield _Told(row, bodies[row.id], endpoint)


def _is_for(endpoint: _Endpoint, row: _Row) -> bool:
    match row.type:
        case WebhookType.TEST:
            return endpoint.id == row.subject_id
        case WebhookType.WEBHOOK_ENDPOINT_DISABLED if endpoint.id == row.subject_id:
            return False  # It is the others that have to hear of it.
        case _:
            return wants(endpoint.event_types, row.type)


def _keys(rows: Sequence[_Row]) -> dict[str, pg_arrays.Array]:
    return {
        "ids": pg_arrays.uuids([row.id for row in rows]),
        "customers": pg_arrays.uuids([row.customer_id for row in rows]),
    }


def _render(driver: psycopg.Connection[Any], rows: Sequence[_Row]) -> dict[Id, str]:
    folded = _fold(driver, rows)
    bodies: dict[Id, str] = {}
    for row in rows:
        try:
            bodies[row.id] = _body(row, folded)
        except Exception:  # noqa: BLE001 - whatever is wrong with a row, it stops only itself
            _log.exception("webhook cannot be rendered", webhook=str(row.id), type=row.type)
    return bodies


def _fold(driver: psycopg.Connection[Any], rows: Iterable[_Row]) -> dict[history.Place, RollUp]:
    places = [
        (row.subject_id, row.sequence)
        for row in rows
        if row.data is None and row.sequence is not None
    ]
    if not places:
        return {}
    try:
        return _at(driver, places)
    except (ValueError, LookupError):
        # One of them has an event that this version does not know; find out which.
        return {place: found for one in places for place, found in _fold_one(driver, one)}


def _at(
    driver: psycopg.Connection[Any], places: Sequence[history.Place]
) -> dict[history.Place, RollUp]:
    """Return the roll-up at each of `places`: as it is now, where nothing has come after it.

    Most are told within moments, and their events need not be read again.
    """
    now = history.now(driver, {key for key, _ in places})
    current = {(key, found.state.sequence): found for key, found in now.items()}
    past = [place for place in places if place not in current]
    return current | (history.at(driver, past) if past else {})


def _fold_one(
    driver: psycopg.Connection[Any], place: history.Place
) -> Iterable[tuple[history.Place, RollUp]]:
    try:
        return _at(driver, [place]).items()
    except (ValueError, LookupError):
        return ()


def _body(row: _Row, folded: Mapping[history.Place, RollUp]) -> str:
    data = row.data
    if data is None:
        if row.sequence is None:
            raise ValueError("a webhook needs data, or the sequence of an event to fold up to")
        data = card_transaction.wire(folded[row.subject_id, row.sequence])
    elif row.type == WebhookType.INTERNAL_ACCOUNT_BALANCE_UPDATED:
        data = accounts.wire(
            data, key=row.subject_id, customer_id=row.customer_id, version=row.sequence
        )
    return envelope(row.id, row.type, row.recorded_at, data, sequence=row.sequence).decode()


def _insert(driver: psycopg.Connection[Any], told: Sequence[_Told], at: datetime) -> None:
    first = _first_of_queues(told)
    if first:
        lock_queues(driver, first)
    rows, endpoints = [row for row, _, _ in told], [endpoint for _, _, endpoint in told]
    pairs = list(zip(rows, endpoints, strict=True))
    firsts = [
        one is not None and first.get((one.id, row.subject_id)) == row.id for row, one in pairs
    ]
    places = [place(row.sequence, row.id) if one and one.is_fifo else None for row, one in pairs]
    driver.execute(
        _INSERT,
        {
            "at": at,
            "ids": pg_arrays.uuids([new_id() for _ in told]),
            "customers": pg_arrays.uuids([row.customer_id for row in rows]),
            "platforms": pg_arrays.uuids([row.platform_id for row in rows]),
            "types": pg_arrays.texts([row.type for row in rows]),
            "subjects": pg_arrays.uuids([row.subject_id for row in rows]),
            "sequences": pg_arrays.bigints([row.sequence for row in rows]),
            "bodies": pg_arrays.texts([body for _, body, _ in told]),
            "webhooks": pg_arrays.uuids([row.id for row in rows]),
            "endpoints": pg_arrays.uuids([one.id if one else None for one in endpoints]),
            "firsts": pg_arrays.booleans(firsts),
            "places": pg_arrays.times(places),
        },
    )


def _first_of_queues(told: Sequence[_Told]) -> dict[Queue, Id]:
    """Return which webhook comes first, where order is promised.

    By `place`, not by id: an id is from a clock, which may have been put back in between.
    """
    first: dict[Queue, tuple[datetime, Id]] = {}
    for row, _, endpoint in told:
        if endpoint is not None and endpoint.is_fifo:
            queue, its = (endpoint.id, row.subject_id), (place(row.sequence, row.id), row.id)
            first[queue] = min(first.get(queue, its), its)
    return {queue: webhook for queue, (_, webhook) in first.items()}


_ENDPOINTS: Final = """
    SELECT id, platform_id, event_types, mode = 'FIFO' FROM webhook_endpoints
    WHERE platform_id = ANY (%s::uuid[]) AND deleted_at IS NULL ORDER BY platform_id, id
"""

# What could not be rendered comes last, or enough of it would hold up everything. One half ends
# before the other begins, so nothing is locked that is not taken.
_CLAIM_OUTBOX: Final = """
    SELECT * FROM (
        SELECT id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at
        FROM outbox WHERE retry_at IS NULL
        ORDER BY id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) fresh UNION ALL SELECT * FROM (
        SELECT id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at
        FROM outbox WHERE retry_at <= %(at)s
        ORDER BY retry_at, id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) put_off LIMIT %(limit)s
"""

# Where order is promised, what is not the first of its resource has its place, and no time.
_INSERT: Final = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, sequence, body,
        state, next_attempt_at, created_at, webhook_id, endpoint_id)
    SELECT id, customer_id, platform_id, type, subject, sequence, body,
        CASE WHEN endpoint IS NULL THEN 'NO_ENDPOINT' ELSE 'PENDING' END,
        CASE WHEN endpoint IS NULL THEN NULL
            WHEN place IS NULL THEN %(at)s
            WHEN is_first AND NOT EXISTS (
                SELECT FROM webhook_deliveries w
                WHERE w.endpoint_id = endpoint AND w.subject_id = subject
                    AND w.next_attempt_at IS NOT NULL) THEN %(at)s
            ELSE place END,
        %(at)s, webhook, endpoint
    FROM unnest(%(ids)s, %(customers)s, %(platforms)s, %(types)s, %(subjects)s, %(sequences)s,
        %(bodies)s, %(webhooks)s, %(endpoints)s, %(firsts)s, %(places)s)
        AS told (id, customer_id, platform_id, type, subject, sequence, body, webhook, endpoint,
            is_first, place)
"""

_PUT_OFF: Final = """
    UPDATE outbox o SET retry_at = %(until)s
    FROM unnest(%(ids)s, %(customers)s) AS off (id, customer_id)
    WHERE o.id = off.id AND o.customer_id = off.customer_id
"""

_DELETE_OUTBOX: Final = """
    DELETE FROM outbox o USING unnest(%(ids)s, %(customers)s) AS told (id, customer_id)
    WHERE o.id = told.id AND o.customer_id = told.customer_id
"""
