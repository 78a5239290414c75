"""Read the messages of a batch, which come out of the inbox as JSON.

Bodies are validated when they are submitted, but a row may have been inserted another way: a
malformed message is rejected with its reason, and does not stop the others.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from json import dumps
from typing import Any

from cardledger.ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError
from cardledger.ledger.engine.records import CardTransactionKey, Key, Parked, RejectionRecord
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import parse_time
from cardledger.schema.wire.outcomes import RejectionReason


class RejectedError(Exception):
    """A message that cannot be parsed or applied; it is kept with its reason."""

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def rejection_of(
    message: Message, reason: RejectionReason, detail: str, at: datetime
) -> RejectionRecord:
    """Return the row that keeps rejected `message`, whatever its body is."""
    body = dumps(message.body, ensure_ascii=False)
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

    Raises: KeyError, TypeError, ValueError or AttributeError for a malformed message.
    """
    body = message.body
    token = text_of(body["issuerTransactionToken"])
    return CardTransactionKey(message.customer_id, card_id_of(body["cardId"]), token)


def card_transaction_keys_of(messages: Iterable[Message]) -> set[CardTransactionKey]:
    """Return the card transactions that `messages` concern; malformed messages are left out."""
    keys = set()
    for message in messages:
        try:
            keys.add(card_transaction_key_of(message))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # It will be rejected when its turn comes.
    return keys


def closed_cards(messages: Iterable[Message]) -> set[tuple[Id, Id]]:
    """Return the cards whose closing `messages` report, each with its customer."""
    keys = set()
    for message in messages:
        if isinstance(message.body, dict) and message.body.get("type") == inbox.CARD_CLOSED:
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                keys.add((card_id_of(message.body["cardId"]), message.customer_id))
    return keys


def transfers_of(messages: Iterable[Message]) -> set[tuple[Id, Id]]:
    """Return the transfers that `messages` are to carry out, each with its customer."""
    keys = set()
    for message in messages:
        if isinstance(message.body, dict) and message.body.get("type") == inbox.TRANSFER:
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                keys.add((Id.parse(message.body["transferId"]), message.customer_id))
    return keys


def receivers_of(messages: Iterable[Message]) -> set[Id]:
    """Return the customers whose accounts `messages` credit with deposits."""
    return {
        message.customer_id
        for message in messages
        if isinstance(message.body, dict) and message.body.get("type") == inbox.DEPOSIT
    }


@lru_cache(maxsize=100_000)
def card_id_of(wire: str) -> Id:
    """Return the UUID in the `cardId` of a message."""
    return Id.parse(wire.removeprefix("Card:"))


def rejected_error(error: Exception) -> RejectedError:
    """Return the rejection of a message whose processing raised `error`."""
    if isinstance(error, RejectedError):
        return error
    if isinstance(error, AmountOutOfRangeError):
        return RejectedError(RejectionReason.AMOUNT_OUT_OF_RANGE, str(error))
    # Bodies are validated when they are submitted, so this row was inserted another way.
    if isinstance(error, KeyError):
        detail = f"Missing field: {error.args[0]}." if error.args else "Missing field."
    else:
        detail = f"Malformed event: {error}."
    return RejectedError(RejectionReason.MALFORMED, detail)


def text_of(value: object) -> str:
    """Return `value` if it is a text that PostgreSQL can keep.

    Raises: TypeError for another type, ValueError for U+0000 or half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError("a string must not contain U+0000")
    if not value.isascii():
        value.encode()
    return value


def merchant_of(body: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Return descriptor, category code and country of the merchant in `body`; None when absent.

    Raises: as `text_of`, and AttributeError.
    """
    merchant = body.get("merchant") or {}
    descriptor, mcc, country = [
        None if value is None else text_of(value)
        for value in (merchant.get("descriptor"), merchant.get("mcc"), merchant.get("country"))
    ]
    return descriptor, mcc, country


def flag_of(body: Mapping[str, Any], name: str) -> bool:
    """Return the boolean `name` in `body`.

    Raises: KeyError when it is missing, TypeError for another type, even a number.
    """
    value = body[name]
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false")
    return value


def occurred_at(message: "Message | Parked") -> datetime:
    """Return when `message` happened according to the network, else when it was received.

    Raises: TypeError or ValueError for an invalid timestamp.
    """
    return parse_time(message.body.get("occurredAt")) or message.received_at


def amount_of(body: Mapping[str, Any], *, least: int = 1) -> int:
    """Return the amount in `body`, in minor units.

    Raises: KeyError when it is missing, ValueError for another type or out of range.
    """
    amount = body["amount"]
    if type(amount) is not int or not least <= amount <= MAX_AMOUNT:
        raise ValueError(f"amount must be an integer from {least} to {MAX_AMOUNT}")
    return amount
