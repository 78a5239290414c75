"""List rejections and retry them, each at most once.

A rejection does not use up the idempotency key of its event, so the kept body is accepted again
under the same source and reference. A retry that is rejected is a rejection of its own.

Only what has happened is retried. A rejected authorization of a purchase was refused at the
network: what the ledger approved afterwards the customer would pay, or have held, for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from json import loads
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import class_row
from pydantic import ValidationError

from cardledger.ledger.messaging import inbox, settlement_bookings
from cardledger.ledger.messaging.inbox import UNROUTED, CardRoute, Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.messaging.truncated_events import TRUNCATED
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.common import parse_id
from cardledger.schema.wire.errors import explain
from cardledger.schema.wire.network_events import DEBIT_AUTHORIZATIONS, NETWORK_EVENT, body_of
from cardledger.schema.wire.outcomes import Outcome, OutcomeType, RejectionReason

RETRY_LIMIT: Final = 500
"""Rejections that one call retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A rejected message, and the retry of it, if there was one."""

    id: Id
    customer_id: Id
    platform_id: Id
    source: str | None
    reference: str | None
    body: str
    reason: str
    detail: str | None
    recorded_at: datetime
    mac: bytes | None  # None: kept by a release before schema 0021.
    retried_as: Id | None
    retried_at: datetime | None


class NotRetriableError(Exception):
    """The kept body cannot be accepted as it is; the message says why."""


class AnsweredError(NotRetriableError):
    """The rejection was the answer to the event: by it the event has not happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rejections are meant; None: any."""

    platform_id: Id | None = None
    reason: str | None = None
    since: datetime | None = None
    before: Id | None = None  # Only older ones than this.
    after: Id | None = None  # Only newer ones than this, the oldest first.
    ids: Sequence[Id] | None = None
    not_retried: bool = False


_FIND: Final = """
    SELECT r.id, r.customer_id, r.platform_id, r.source, r.reference, r.body, r.reason, r.detail,
        r.recorded_at, r.mac, t.message_id AS retried_as, t.retried_at
    FROM rejections r LEFT JOIN rejection_retries t ON t.rejection_id = r.id
    WHERE (%(reason)s::text IS NULL OR r.reason = %(reason)s)
        AND (%(since)s::timestamptz IS NULL OR r.recorded_at >= %(since)s)
        {place}
        AND (%(ids)s::uuid[] IS NULL OR r.id = ANY(%(ids)s))
        AND NOT (%(not_retried)s AND t.rejection_id IS NOT NULL)
        {of_platform}
    ORDER BY r.id {order} LIMIT %(limit)s
"""
_OWN: Final = "AND r.platform_id = %(platform_id)s"
_BEFORE: Final = "AND (%(before)s::uuid IS NULL OR r.id < %(before)s)"
_AFTER: Final = "AND r.id > %(after)s"
# Several statements: a condition on either would not use the index of the platform's rejections.
_NEWEST_OWN: Final = _FIND.format(of_platform=_OWN, place=_BEFORE, order="DESC")
_NEWEST: Final = _FIND.format(of_platform="", place=_BEFORE, order="DESC")
_OLDEST_OWN: Final = _FIND.format(of_platform=_OWN, place=_AFTER, order="ASC")
_OLDEST: Final = _FIND.format(of_platform="", place=_AFTER, order="ASC")


async def find(connection: AsyncConnection[Any], which: Filter, *, limit: int) -> list[Rejection]:
    """Return at most `limit` rejections, the newest first; those after one, the oldest first."""
    async with connection.cursor(row_factory=class_row(Rejection)) as cursor:
        await cursor.execute(*query(which, limit=limit))
        return await cursor.fetchall()


# By the hash of the reference, which may be longer than an index can hold.
_BY_KEY: Final = """
    SELECT reason, detail FROM rejections
    WHERE platform_id = %s AND md5(reference) = md5(%s) AND reference = %s AND source = %s
    ORDER BY id DESC LIMIT 1
"""


async def find_by_key(
    connection: AsyncConnection[Any], *, platform_id: Id, source: str, reference: str
) -> Outcome | None:
    """Return the latest rejection of an event with this key as its outcome, None without one."""
    parameters = [platform_id, reference, reference, source]
    row = await (await connection.execute(_BY_KEY, parameters)).fetchone()
    if row is None:
        return None
    reason, detail = row
    return outcomes.outcome(reference, OutcomeType.REJECTED, reason=reason, detail=detail)


def query(which: Filter, *, limit: int) -> tuple[LiteralString, dict[str, Any]]:
    """Return the statement of `find` and its parameters."""
    newest = _NEWEST if which.platform_id is None else _NEWEST_OWN
    oldest = _OLDEST if which.platform_id is None else _OLDEST_OWN
    return newest if which.after is None else oldest, {
        "platform_id": which.platform_id,
        "reason": which.reason,
        "since": which.since,
        "before": which.before,
        "after": which.after,
        "ids": None if which.ids is None else list(which.ids),
        "not_retried": which.not_retried,
        "limit": limit,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """What became of a call: messages by rejection, and why others were not accepted again."""

    accepted: Mapping[Id, Id]
    refused: Mapping[Id, str]
    answered: AbstractSet[Id]  # Those of `refused` whose rejection was the answer to the event.


Returned = Callable[[Message, datetime], Message | None]
"""Makes of a payment that cannot arrive the message that tells its sender; None: it is unknown."""


# The first of two concurrent retries inserts the row; the second waits for its commit.
_TAKE: Final = """
    INSERT INTO rejection_retries (rejection_id, platform_id, message_id, retried_at)
    SELECT k.rejection_id, k.platform_id, k.message_id, %s
    FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[]) AS k (rejection_id, platform_id, message_id)
    ORDER BY k.rejection_id
    ON CONFLICT (rejection_id) DO NOTHING RETURNING rejection_id
"""


async def retry(
    connection: AsyncConnection[Any],
    found: Sequence[Rejection],
    key: InboxKey,
    *,
    now: datetime,
    returned: Returned | None = None,
) -> Retries:
    """Accept the bodies of `found` again, in the order of their arrival, signed with `key`.

    In the place of a payment that was to arrive at another owner, what `returned` makes of it tells
    the sender that it did not; without it, such a payment is refused. They are accepted, and the
    retries recorded, once the caller has committed.
    """
    ordered = sorted(found, key=lambda rejection: rejection.id)
    routes = await inbox.routes_of(connection, filter(None, map(_card_of, ordered)))
    due = await settlement_bookings.platforms_of_due(
        connection, list(filter(None, map(_booking_of, ordered)))
    )
    messages: dict[Id, Message] = {}
    refused: dict[Id, str] = {}
    answered: set[Id] = set()
    for rejection in ordered:
        try:
            message = _message(rejection, routes, due, key, now)
            messages[rejection.id] = _in_place_of(message, returned, now)
        except NotRetriableError as error:
            refused[rejection.id] = str(error)
            if isinstance(error, AnsweredError):
                answered.add(rejection.id)
    cursor = await connection.execute(
        _TAKE,
        [
            now,
            list(messages),
            [message.platform_id for message in messages.values()],
            [message.id for message in messages.values()],
        ],
    )
    taken = {each for (each,) in await cursor.fetchall()}
    refused |= dict.fromkeys(messages.keys() - taken, "Already retried.")
    accepted = {each: message for each, message in messages.items() if each in taken}
    await inbox.accept_async(connection, list(accepted.values()), key)
    return Retries(
        accepted={each: message.id for each, message in accepted.items()},
        refused=refused,
        answered=answered,
    )


def _message(
    rejection: Rejection,
    routes: Mapping[Id, CardRoute],
    due: Mapping[Id, Id],
    key: InboxKey,
    now: datetime,
) -> Message:
    """Return the message that retries `rejection`, which a process with `key` has kept.

    `due` are the platforms of settlement bookings that are not booked yet.
    Raises: NotRetriableError.
    """
    if rejection.retried_at is not None:
        raise NotRetriableError("Already retried.")
    if not _is_verified(rejection, key):
        raise NotRetriableError(
            "The rejection has no valid MAC of this installation; submit the event again."
        )
    body = _object(rejection)
    if body is None:
        raise NotRetriableError("The event is not a JSON object; submit a corrected one.")
    _check_has_happened(body, rejection.reason)
    if rejection.reason == RejectionReason.MALFORMED and TRUNCATED in body:
        raise NotRetriableError("The event was too large to be kept whole; submit a corrected one.")
    if rejection.customer_id == UNROUTED.customer_id and (booking := _booking_of(rejection)):
        # It names a row that the ledger has made, and nothing else: who has sent it is all one.
        if due.get(booking) != rejection.platform_id:
            raise NotRetriableError(
                "No settlement booking of this platform that is due has this id."
            )
        owner = Owner(UNROUTED.customer_id, rejection.platform_id)
    elif rejection.customer_id == UNROUTED.customer_id:
        # Whatever was submitted is kept here, also what claims to be a message of the ledger.
        body, owner = _validated(body), _owner(rejection, routes)
    else:
        owner = Owner(rejection.customer_id, rejection.platform_id)
    if (body.get("source"), body.get("reference")) != (rejection.source, rejection.reference):
        raise NotRetriableError("The event has no source and reference; submit a corrected one.")
    try:
        return inbox.address(body, owner, lane=Lane.BULK, reply_to=None, at=now)
    except ValueError as error:  # Half of a surrogate pair, for example.
        raise NotRetriableError(f"The event cannot be stored: {error}") from error


def _check_has_happened(body: Mapping[str, Any], reason: str) -> None:
    """Return, unless the event `body` has not happened because it was rejected for `reason`.

    An error of the ledger is no answer to a sender that accepts a rejection, as in
    `books.suspense`; to a network that asks it is, as any other. The authorization of a credit is
    retried: it moves nothing, and says of what clears that it is a credit.
    Raises: AnsweredError.
    """
    kind = body.get("type")
    if isinstance(kind, str) and kind in DEBIT_AUTHORIZATIONS:
        raise AnsweredError(
            "The network was refused this authorization by the rejection; it has to ask again."
        )
    if body.get("expectedSequence") is not None and reason != RejectionReason.INTERNAL_ERROR:
        raise AnsweredError(
            "An event with expectedSequence has not happened when it is rejected; submit it again."
        )


def _in_place_of(message: Message, returned: Returned | None, now: datetime) -> Message:
    """Return `message`, or of a payment that was to arrive what tells its sender.

    Raises: NotRetriableError.
    """
    if message.body.get("type") != inbox.TRANSFER_ARRIVAL or "originId" not in message.body:
        return message
    if returned is None:
        raise NotRetriableError(
            "The payment was refunded to its sender, or is by `cardledger payments retry`; let it"
            " be paid again."
        )
    back = returned(message, now)
    if back is None:
        raise NotRetriableError("The sender of the payment cannot be read.")
    return back


def _is_verified(rejection: Rejection, key: InboxKey) -> bool:
    columns = (
        rejection.id,
        rejection.customer_id,
        rejection.platform_id,
        rejection.source,
        rejection.reference,
        rejection.body,
        rejection.reason,
        rejection.detail,
        rejection.recorded_at,
    )
    return rejection.mac is not None and key.verifies_rejection(rejection.mac, columns)


def _object(rejection: Rejection) -> dict[str, Any] | None:
    try:
        body = loads(rejection.body)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _validated(body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return body_of(NETWORK_EVENT.validate_python(body))
    except ValidationError as error:
        raise NotRetriableError(f"Malformed event: {explain(error)}") from error


def _owner(rejection: Rejection, routes: Mapping[Id, CardRoute]) -> Owner:
    card_id = _card_of(rejection)
    route = routes.get(card_id) if card_id else None
    if route and rejection.platform_id in {UNROUTED.platform_id, route.owner.platform_id}:
        return route.owner
    raise NotRetriableError("Unknown card: cardId does not match a card of this platform.")


def _booking_of(rejection: Rejection) -> Id | None:
    """Return the settlement booking whose message was rejected, if it was one."""
    return settlement_bookings.named_in(_object(rejection))


def _card_of(rejection: Rejection) -> Id | None:
    """Return the card that a rejected event names, if any."""
    body = _object(rejection)
    public = body.get("cardId") if body else None
    try:
        return parse_id("Card", public) if isinstance(public, str) else None
    except ValueError:
        return None
