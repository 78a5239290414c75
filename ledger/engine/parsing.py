"""Read the messages of a batch, which come out of the inbox as JSON.

Bodies are validated when they are submitted, but a row may have been inserted another way: a
malformed message is rejected with its reason, and does not stop the others.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import lru_cache
from json import dumps
from typing import Any, Final, Protocol

from pydantic import ValidationError

from cardledger.ledger.books.suspense import money_in
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.engine.records import (
    CardTransactionKey,
    Closing,
    Key,
    OutcomeRow,
    Parked,
    RejectionRecord,
)
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Message
from cardledger.schema.ids import Id
from cardledger.schema.wire.conversion import CONVERSION, Conversion
from cardledger.schema.wire.errors import explain
from cardledger.schema.wire.network_events import AUTHORIZATIONS, SETTLED, EventType, parse_time
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from cardledger.schema.wire.settlement import SETTLEMENT, Settlement

_MCC_LENGTH: Final = 4
_FIRST_AND_LAST_YEAR: Final = (MINYEAR, MAXYEAR)


class Owned(Protocol):
    """A resource of a customer, and so of a platform."""

    @property
    def customer_id(self) -> Id: ...
    @property
    def platform_id(self) -> Id: ...


class RejectedError(Exception):
    """A message that cannot be parsed or applied; it is kept with its reason."""

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class UnknownTypeError(Exception):
    """A process of this installation has accepted a type that this release does not know."""


def rejection_of(
    message: Message, reason: RejectionReason, detail: str, at: datetime
) -> RejectionRecord:
    """Return the row that keeps rejected `message`, whatever its body is."""
    body = dumps(inbox.event_of(message.body), ensure_ascii=False)
    return RejectionRecord(
        id=message.id,
        customer_id=message.customer_id,
        platform_id=message.platform_id,
        source=message.source,
        reference=message.reference,
        # JSON may hold half of a surrogate pair, which UTF-8 cannot; this escapes it again.
        body=body.encode(errors="backslashreplace").decode(),
        reason=reason,
        detail=detail,
        recorded_at=at,
    )


def key_of(message: Message) -> Key:
    """Return the idempotency key of `message`."""
    return message.reference, message.source, message.platform_id, message.customer_id


def card_transaction_key_of(message: Message) -> CardTransactionKey:
    """Return which card transaction a network event concerns.

    Raises: RejectedError for a malformed message.
    """
    body = object_of(message)
    token = text_of(value_of(body, "issuerTransactionToken"))
    return message.customer_id, card_of(body), token


def card_transaction_keys_of(
    messages: Iterable[Message], *, left_out: list[Message] | None = None
) -> set[CardTransactionKey]:
    """Return the card transactions that `messages` concern; malformed messages are `left_out`."""
    keys = set()
    for message in messages:
        try:
            keys.add(card_transaction_key_of(message))
        except RejectedError:  # It concerns none, or will be rejected when its turn comes.
            if left_out is not None:
                left_out.append(message)
    return keys


def suspended(message: Message) -> Message:
    """Return the rejected event in `message`, of type SUSPENSE, with the id of its rejection.

    Its source and reference are empty where they could not be read.
    Raises: RejectedError for a malformed message.
    """
    body = value_of(object_of(message), "event")
    if not isinstance(body, dict):
        raise malformed("event must be an object")
    return replace(
        message,
        id=id_of(message.body, "rejectionId"),
        source=text_of(body.get("source", "")),
        reference=text_of(body.get("reference", "")),
        body=body,
    )


def suspended_events(messages: Iterable[Message]) -> list[Message]:
    """Return the rejected events in `messages`; without malformed messages."""
    events = []
    for message in _of_type(messages, inbox.SUSPENSE):
        with suppress(RejectedError):
            events.append(suspended(message))
    return events


def cards_of_money(messages: Iterable[Message]) -> set[Id]:
    """Return the cards whose money `messages` have moved, as far as it can be read."""
    cards = set()
    for message in messages:
        body: object = message.body
        if isinstance(body, dict) and body.get("type") == inbox.SUSPENSE:
            body = body.get("event")
        if money := money_in(body):
            cards.add(money.card_id)
    return cards


def closings_of(messages: Iterable[Message]) -> set[Closing]:
    """Return the cards whose closing `messages` report or continue."""
    closings = set()
    for message in _of_type(messages, inbox.CARD_CLOSED):
        with suppress(RejectedError):
            closings.add(closing_of(message))
    return closings


def owns(message: Message, resource: Owned) -> bool:
    """Return whether customer and platform of `message` are those of `resource`."""
    return (
        resource.customer_id == message.customer_id and resource.platform_id == message.platform_id
    )


def closing_of(message: Message) -> Closing:
    """Return which page of which closed card `message` is about.

    Raises: RejectedError for a malformed message.
    """
    body = message.body
    return Closing(card_of(body), message.customer_id, text_of(body.get("after", "")))


def timed_out(message: Message) -> Message:
    """Return the authorization that `message`, a timeout reversal, settles; with its own id.

    Raises: RejectedError for a malformed message.
    """
    body = value_of(object_of(message), "authorization")
    if not isinstance(body, dict):
        raise malformed("authorization must be an object")
    return replace(
        message,
        source=text_of(value_of(body, "source")),
        reference=text_of(value_of(body, "reference")),
        body=body,
    )


def late_authorizations(messages: Iterable[Message]) -> list[Message]:
    """Return the authorizations that `messages` settle; without malformed ones."""
    found = []
    for message in _of_type(messages, timeout_reversals.TIMEOUT_REVERSAL):
        with suppress(RejectedError):
            found.append(timed_out(message))
    return found


def reversals_in(messages: Iterable[Message]) -> set[Key]:
    """Return the keys of the timeout reversals among `messages`."""
    return {key_of(message) for message in _of_type(messages, timeout_reversals.TIMEOUT_REVERSAL)}


def authorizations_in(messages: Iterable[Message]) -> list[Message]:
    """Return the authorizations among `messages`."""
    return [*_of_types(messages, AUTHORIZATIONS)]


def repeated_approvals(
    messages: Iterable[Message], outcomes: Mapping[Key, OutcomeRow]
) -> list[Message]:
    """Return those `messages` that repeat an authorization whose approval is in `outcomes`."""
    if not outcomes:
        return []
    return authorizations_in(
        message
        for message in messages
        if (first := outcomes.get(key_of(message))) and first.outcome == OutcomeType.APPLIED
    )


def reversal_key_of(authorization: Message) -> Key:
    """Return the idempotency key of the timeout reversal of `authorization`."""
    return (
        timeout_reversals.reference_of(authorization),
        timeout_reversals.SOURCE,
        authorization.platform_id,
        authorization.customer_id,
    )


def transfers_of(messages: Iterable[Message]) -> set[tuple[Id, Id]]:
    """Return the transfers that `messages` are about, each with its owner."""
    keys = set()
    for message in _of_types(messages, inbox.OF_TRANSFERS):
        with suppress(RejectedError):
            keys.add((id_of(message.body, "transferId"), message.customer_id))
    return keys


def adjustments_of(messages: Iterable[Message]) -> dict[Id, Id]:
    """Return the adjustments that `messages` are to book, each with the customer of its message."""
    found = {}
    for message in _of_type(messages, inbox.ADJUSTMENT):
        with suppress(RejectedError):
            found[id_of(message.body, "adjustmentId")] = message.customer_id
    return found


def settlement_bookings_of(messages: Iterable[Message]) -> dict[Id, Id]:
    """Return the bookings that `messages` are to make, each with the customer of its message."""
    found = {}
    for message in _of_type(messages, inbox.SETTLEMENT_BOOKING):
        with suppress(RejectedError):
            found[id_of(message.body, "bookingId")] = message.customer_id
    return found


def receivers_of(messages: Iterable[Message]) -> set[Id]:
    """Return the owners for whom `messages` make a deposit or a payment that arrives."""
    return {message.customer_id for message in _of_types(messages, _RECEIVED)}


_RECEIVED: Final = frozenset({inbox.DEPOSIT}) | inbox.ARRIVALS


def _of_types(messages: Iterable[Message], kinds: Collection[str]) -> list[Message]:
    """Return the messages whose type is in `kinds`; a type may be any JSON."""
    return [
        message
        for message in messages
        if isinstance(message.body, dict)
        and isinstance(kind := message.body.get("type"), str)
        and kind in kinds
    ]


def _of_type(messages: Iterable[Message], kind: str) -> list[Message]:
    return [
        message
        for message in messages
        if isinstance(message.body, dict) and message.body.get("type") == kind
    ]


# --- the fields of a body ------------------------------------------------------------------------

# The only refusals of what a message says: code that reads a body elsewhere, or that fails in
# another way, has a defect, and a defect never rejects a message.


def object_of(message: Message) -> Mapping[str, Any]:
    """Return the body of `message`.

    Raises: RejectedError when it is not a JSON object.
    """
    body = message.body
    if not isinstance(body, dict):
        raise malformed("the body must be a JSON object")
    return body


def type_of(message: Message) -> str:
    """Return the type of `message`.

    Raises: RejectedError when it is missing or not a string.
    """
    return string_of(object_of(message), "type")


def string_of(body: Mapping[str, Any], name: str) -> str:
    """Return the string `name` in `body`, to compare or to parse; `text_of` is for a text to keep.

    Raises: RejectedError when it is missing or of another type.
    """
    value = value_of(body, name)
    if not isinstance(value, str):
        raise malformed(f"{name} must be a string")
    return value


def id_of(body: Mapping[str, Any], name: str) -> Id:
    """Return the UUID `name` in `body`.

    Raises: RejectedError when it is missing or not a UUID.
    """
    text = string_of(body, name)
    try:
        return Id.parse(text)
    except ValueError as error:
        raise malformed(f"{name} is not a UUID") from error


def card_of(body: Mapping[str, Any]) -> Id:
    """Return the card that `body` names.

    Raises: RejectedError when `cardId` is missing or not the id of a card.
    """
    public = string_of(body, "cardId")
    try:
        return card_id_of(public)
    except ValueError as error:
        raise malformed("cardId is not the id of a card") from error


@lru_cache(maxsize=100_000)
def card_id_of(public: str) -> Id:
    """Return the UUID in `public`, the `cardId` of a message.

    Raises: ValueError when there is none.
    """
    return Id.parse(public.removeprefix("Card:"))


def text_of(value: object) -> str:
    """Return `value` if it is a text that PostgreSQL can keep.

    Raises: RejectedError for another type, U+0000 or half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise malformed(f"expected a string, not {type(value).__name__}")
    if "\0" in value:
        raise malformed("a string must not contain U+0000")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise malformed("a string must not contain half of a surrogate pair") from error
    return value


def merchant_of(body: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Return descriptor, category code and country of the merchant in `body`; None when absent.

    Raises: RejectedError when one of them cannot be kept, or the category is not a number.
    """
    merchant = body.get("merchant")
    if not merchant:
        return None, None, None
    if not isinstance(merchant, dict):
        raise malformed("merchant must be an object")
    descriptor, mcc, country = [
        None if value is None else text_of(value)
        for value in (merchant.get("descriptor"), merchant.get("mcc"), merchant.get("country"))
    ]
    if mcc and not (mcc.isascii() and mcc.isdigit() and len(mcc) <= _MCC_LENGTH):
        raise malformed(f"mcc must have at most {_MCC_LENGTH} digits")
    return descriptor, mcc, country


def flag_of(body: Mapping[str, Any], name: str) -> bool:
    """Return the boolean `name` in `body`.

    Raises: RejectedError when it is missing or of another type, even a number.
    """
    value = value_of(body, name)
    if not isinstance(value, bool):
        raise malformed(f"{name} must be true or false")
    return value


def occurred_at(message: "Message | Parked") -> datetime:
    """Return when `message` happened according to the network, else when it was received.

    Raises: RejectedError for an invalid timestamp.
    """
    return time_of(message.body, "occurredAt") or message.received_at


def settlement_of(body: Mapping[str, Any]) -> Settlement | None:
    """Return the settlement details in `body`; None when there are none, or its type has none.

    Raises: RejectedError when they are not what the wire allows.
    """
    value = body.get("settlement")
    if value is None or body.get("type") not in SETTLED:
        return None
    try:
        return SETTLEMENT.validate_python(value)
    except ValidationError as error:
        raise malformed(f"settlement: {explain(error)}") from error


def conversion_of(body: Mapping[str, Any]) -> Conversion | None:
    """Return the conversion in `body`; None when there is none, or its type has none.

    Raises: RejectedError when it is not what the wire allows.
    """
    value = body.get("conversion")
    if value is None or body.get("type") == EventType.AUTHORIZATION_EXPIRY:
        return None
    try:
        return CONVERSION.validate_python(value)
    except ValidationError as error:
        raise malformed(f"conversion: {explain(error)}") from error


def time_of(body: Mapping[str, Any], name: str) -> datetime | None:
    """Return the time `name` in `body`; None when it is absent.

    Raises: RejectedError when it is not a time with a UTC offset in the years 1 to 9999 of UTC.
    """
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise malformed(f"{name} must be a string")
    try:
        moment = parse_time(value)
        if moment is not None and moment.year in _FIRST_AND_LAST_YEAR:
            moment.astimezone(UTC)  # Its year may be 0 or 10000 there, which Python cannot read.
    except (ValueError, OverflowError) as error:
        raise malformed(str(error)) from error
    return moment


def amount_of(body: Mapping[str, Any], *, least: int = 1) -> int:
    """Return the amount in `body`, in minor units.

    Raises: RejectedError when it is missing, of another type or out of range.
    """
    amount = value_of(body, "amount")
    if type(amount) is not int or not least <= amount <= MAX_AMOUNT:
        raise malformed(f"amount must be an integer from {least} to {MAX_AMOUNT}")
    return amount


def value_of(body: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value `name` in `body`, of any type.

    Raises: RejectedError when it is missing.
    """
    try:
        return body[name]
    except KeyError as error:
        raise RejectedError(RejectionReason.MALFORMED, f"Missing field: {name}.") from error


def malformed(what: str) -> RejectedError:
    """Return the rejection of a message in which `what` is wrong."""
    return RejectedError(RejectionReason.MALFORMED, f"Malformed event: {what}.")
