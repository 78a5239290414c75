"""Network events as the API tier enqueues them: one JSON object per event.

`docs/network-events.md` and the JSON Schema are made of the descriptions here.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from cardledger.schema.wire.common import (
    Amount,
    CardId,
    Currency,
    Merchant,
    Name,
    NonNegativeAmount,
    Request,
    ShortName,
    Time,
)
from cardledger.schema.wire.conversion import Conversion
from cardledger.schema.wire.errors import explain_all
from cardledger.schema.wire.settlement import Settlement


class EventType(StrEnum):
    """Types of network events that the ledger understands."""

    AUTHORIZATION = "AUTHORIZATION"
    AUTHORIZATION_INCREMENT = "AUTHORIZATION_INCREMENT"
    AUTHORIZATION_ADVICE = "AUTHORIZATION_ADVICE"
    AUTHORIZATION_REVERSAL = "AUTHORIZATION_REVERSAL"
    AUTHORIZATION_EXPIRY = "AUTHORIZATION_EXPIRY"
    STAND_IN_AUTHORIZATION = "STAND_IN_AUTHORIZATION"
    FINANCIAL_AUTHORIZATION = "FINANCIAL_AUTHORIZATION"
    CLEARING = "CLEARING"
    CLEARING_REVERSAL = "CLEARING_REVERSAL"
    CREDIT_AUTHORIZATION = "CREDIT_AUTHORIZATION"
    CREDIT_AUTHORIZATION_ADVICE = "CREDIT_AUTHORIZATION_ADVICE"
    FINANCIAL_CREDIT_AUTHORIZATION = "FINANCIAL_CREDIT_AUTHORIZATION"
    RETURN = "RETURN"
    RETURN_REVERSAL = "RETURN_REVERSAL"


EVENT_MEANINGS: Final[Mapping[EventType, str]] = {
    EventType.AUTHORIZATION: (
        "The network asks whether `amount` may be spent. The first event of most purchases."
        " Approved (`APPLIED`): the amount is pulled from the funding account and held. `DECLINED`:"
        " nothing moves."
    ),
    EventType.AUTHORIZATION_INCREMENT: (
        "The network asks whether `amount` more may be spent, such as another night at a hotel."
        " Decided like an authorization; a declined increment leaves what was approved before."
    ),
    EventType.AUTHORIZATION_ADVICE: (
        "The network reports the authorized total: `amount` replaces it, whether higher or lower."
    ),
    EventType.AUTHORIZATION_REVERSAL: (
        "The network takes back `amount` of the authorization, or all that has not cleared when"
        " there is no `amount`. At most the uncleared amount is released."
    ),
    EventType.AUTHORIZATION_EXPIRY: (
        "The authorization is no longer valid: what has not cleared is released. The ledger expires"
        " authorizations itself; send this event only if the network reports an earlier expiry."
    ),
    EventType.STAND_IN_AUTHORIZATION: (
        "The network has approved `amount` on behalf of the issuer, which did not answer. It cannot"
        " be declined: if the funding account cannot pay, the amount is collected once it can."
    ),
    EventType.FINANCIAL_AUTHORIZATION: (
        "The network asks whether `amount` may be spent, and moves the money with the same message,"
        " as for a withdrawal of cash. Approved: authorized and finally cleared at once."
    ),
    EventType.CLEARING: (
        "The network has moved `amount` to the merchant: less, as much, or more than was"
        " authorized, as with a tip. It cannot be declined: what is not held is pulled from the"
        " funding account, or owed by it. With the token of a credit authorization and without a"
        " purchase it clears the credit: `amount` is credited."
    ),
    EventType.CLEARING_REVERSAL: (
        "The network has returned `amount` of the clearings, such as one that was sent twice; of a"
        " credit it takes `amount` back."
    ),
    EventType.CREDIT_AUTHORIZATION: (
        "The network asks whether `amount` may be credited, such as for goods that were given back."
        " Approved (`APPLIED`): nothing moves until it clears, by a `RETURN` or a `CLEARING` with"
        " the same token; what clears is the settled amount of a card transaction with direction"
        " `CREDIT`. `DECLINED`: the card or its account cannot be used."
    ),
    EventType.CREDIT_AUTHORIZATION_ADVICE: (
        "The network reports the authorized total of a credit, which it may have approved on behalf"
        " of the issuer: `amount` replaces the total, if there is one. Nothing moves until it"
        " clears."
    ),
    EventType.FINANCIAL_CREDIT_AUTHORIZATION: (
        "The network has credited `amount`: a cash deposit or a push payment, authorized and"
        " finally settled at once. It counts as a refund if a purchase has the same token."
    ),
    EventType.RETURN: (
        "The merchant has refunded `amount`, with or without a known purchase; with a credit"
        " authorization, its clearing."
    ),
    EventType.RETURN_REVERSAL: (
        "The merchant has taken back `amount` of the refunds, or of a credit."
    ),
}
"""What each type says, and what it does."""


SETTLED: Final = frozenset(
    {
        EventType.FINANCIAL_AUTHORIZATION,
        EventType.CLEARING,
        EventType.CLEARING_REVERSAL,
        EventType.RETURN,
        EventType.RETURN_REVERSAL,
    }
)
"""Types of events whose money the network settles: those that may have settlement details."""

DEBIT_AUTHORIZATIONS: Final = frozenset(
    {
        EventType.AUTHORIZATION,
        EventType.AUTHORIZATION_INCREMENT,
        EventType.FINANCIAL_AUTHORIZATION,
    }
)
"""The types of live authorizations that take from the funding account."""

AUTHORIZATIONS: Final = DEBIT_AUTHORIZATIONS | {EventType.CREDIT_AUTHORIZATION}
"""The types of live authorizations: only these can be declined."""


RESERVED_SOURCES: Final = frozenset(
    {
        "adjustments",
        "canary",
        "cards",
        "decision-timeout",
        "engine",
        "rail",
        "schedule",
        "settlements",
        "transfers",
    }
)
"""The sources of messages that the ledger sends to itself. A sender that used one of them could
take the idempotency key of such a message, which would then be rejected."""


def _not_reserved(source: str) -> str:
    if source in RESERVED_SOURCES:
        raise ValueError("must not be one that is reserved for messages of the ledger")
    return source


Source: TypeAlias = Annotated[ShortName, AfterValidator(_not_reserved)]


_Part = Annotated[
    Amount,
    Field(
        description="Amount of this event alone, not a total, in minor units of `currency`:"
        " 1250 is 12.50 USD."
    ),
]


class _NetworkEvent(Request):
    """The fields of every event; `source` and `reference` are its permanent idempotency key."""

    source: Annotated[
        Source,
        Field(
            description="The sender, such as the name of a processor. With `reference` it is the"
            " permanent idempotency key of the event.",
            json_schema_extra={"not": {"enum": sorted(RESERVED_SOURCES)}},
        ),
    ]
    reference: Annotated[
        Name,
        Field(
            description="Identifier of this event at its source. The same event is always sent with"
            " the same reference, another event never."
        ),
    ]
    issuer_transaction_token: Annotated[
        Name,
        Field(
            description="Identifier of the card transaction at the issuer, the same in all events"
            " of one purchase: events of one card with one token belong together."
        ),
    ]
    card_id: Annotated[CardId, Field(description="The card, as the HTTP API returns its `id`.")]
    currency: Annotated[
        Currency,
        Field(
            description="Currency of `amount` (ISO 4217, or the ticker of a crypto currency): the"
            " currency of the card. The ledger does not convert: see `conversion`."
        ),
    ]
    merchant: Annotated[
        Merchant | None,
        Field(
            description="The merchant. The card transaction keeps the first: of its first event, or"
            " else of its first approval."
        ),
    ] = None
    occurred_at: Annotated[
        Time | None,
        Field(
            description="Time at the network. The ledger records it, and posts the event on its"
            " business day; it changes neither the order nor the result. Absent: the time of"
            " acceptance."
        ),
    ] = None
    # Real network events must not use it: they have happened, whatever the sequence is, and a
    # rejected one would be in no books (docs/decisions/0067).
    expected_sequence: Annotated[
        Annotated[int, Field(strict=True, ge=0)] | None,
        Field(
            description="For simulators and other senders that accept a rejection: the event is"
            " rejected as `OUTDATED` unless its card transaction is at this `sequence` (0: has no"
            " events). A rejected event with it has not happened, unless the reason is"
            " `INTERNAL_ERROR`: nothing stands in suspense. Leave it out of events of a network,"
            " and send what has happened after all again without it."
        ),
    ] = None


class _OfAnAmount(_NetworkEvent):
    """An event with an amount, which the network may have converted."""

    conversion: Annotated[
        Conversion | None,
        Field(
            description="Of an amount that the network has converted: the merchant's amount and the"
            " rate. `amount` stays what is booked, in the currency of the card."
        ),
    ] = None


class _Question(_OfAnAmount):
    """A request to authorize `amount` (more); only these events can be declined."""

    amount: _Part
    decide_by: Annotated[
        Time | None,
        Field(
            description="Time, by the clock of PostgreSQL, after which the authorization is not"
            " approved and no approval is reported. Not part of the event: a repetition may have"
            " another one."
        ),
    ] = None


class Authorization(_Question):
    """A request to authorize `amount` (more) that moves no money at the network."""

    type: Literal[
        EventType.AUTHORIZATION,
        EventType.AUTHORIZATION_INCREMENT,
        EventType.CREDIT_AUTHORIZATION,
    ]


class _Settled(_OfAnAmount):
    """An event whose money the network settles."""

    settlement: Annotated[
        Settlement | None,
        Field(
            description="What the network says about how it settles this event. It decides on which"
            " day finance counts it, and changes neither the amount nor the result."
        ),
    ] = None


class FinancialAuthorization(_Question, _Settled):
    """A request to authorize `amount` that moves the money, too."""

    type: Literal[EventType.FINANCIAL_AUTHORIZATION]


class Movement(_OfAnAmount):
    """A movement of `amount` that has already happened at the network."""

    type: Literal[EventType.STAND_IN_AUTHORIZATION, EventType.FINANCIAL_CREDIT_AUTHORIZATION]
    amount: _Part


class SettledMovement(_Settled):
    """A movement of `amount` that the network settles."""

    type: Literal[EventType.CLEARING_REVERSAL, EventType.RETURN, EventType.RETURN_REVERSAL]
    amount: _Part


class Clearing(_Settled):
    """A clearing of `amount`; `final`: no further clearing follows."""

    type: Literal[EventType.CLEARING]
    amount: _Part
    final: Annotated[
        Annotated[bool, Field(strict=True)] | None,
        Field(
            description="Whether no further clearing follows: true releases what is still held."
            " Absent: final once the clearings reach the authorized total."
        ),
    ] = None


class Advice(_OfAnAmount):
    """A change of the authorized total to `amount`."""

    type: Literal[EventType.AUTHORIZATION_ADVICE, EventType.CREDIT_AUTHORIZATION_ADVICE]
    amount: Annotated[
        NonNegativeAmount,
        Field(
            description="The authorized total from now on, not a difference, in minor units of"
            " `currency`; 0 releases everything that has not cleared."
        ),
    ]


class Reversal(_OfAnAmount):
    """A reversal of `amount`; without `amount`, of all that has not cleared."""

    type: Literal[EventType.AUTHORIZATION_REVERSAL]
    amount: Annotated[
        Amount | None,
        Field(
            description="Amount that is reversed, in minor units of `currency`. Absent: all that"
            " has not cleared."
        ),
    ] = None


class Expiry(_NetworkEvent):
    """The authorization has expired."""

    type: Literal[EventType.AUTHORIZATION_EXPIRY]


NetworkEvent: TypeAlias = Annotated[
    Authorization
    | FinancialAuthorization
    | Movement
    | SettledMovement
    | Clearing
    | Advice
    | Reversal
    | Expiry,
    Field(discriminator="type"),
]

NETWORK_EVENT: TypeAdapter[NetworkEvent] = TypeAdapter(NetworkEvent)
"""Parses one event; `explain_event` explains its validation errors."""


def body_of(event: NetworkEvent) -> dict[str, Any]:
    """Return `event` as the inbox stores it: the fields that were sent."""
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


_MAX_EXPLAINED: Final = 1000  # Errors: Pydantic takes five microseconds to describe each.
_TOO_MANY: Final = (
    f"more than {_MAX_EXPLAINED:,} fields are not valid; send only fields of the event's type"
)
_NO_TYPE: Final = frozenset({"union_tag_not_found", "union_tag_invalid"})


def explain_event(event: object, error: ValidationError) -> str:
    """Return in one line all that is wrong with `event`, by the names of the wire.

    Without a valid type, the fields that every type has are checked all the same. More than a
    thousand errors are not named.
    """
    if error.error_count() > _MAX_EXPLAINED:
        return _TOO_MANY
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] in _NO_TYPE:
        try:
            _NetworkEvent.model_validate(event)
        except ValidationError as of_fields:
            if of_fields.error_count() > _MAX_EXPLAINED:
                return f"{explain_all(found)}; {_TOO_MANY}"
            more = of_fields.errors(include_url=False, include_input=False)
            # A field that some type has is not known here.
            found += [each for each in more if each["type"] != "extra_forbidden"]
    return explain_all(found)


def parse_time(value: str | None) -> datetime | None:
    """Return the time that `body_of` wrote.

    Raises: TypeError or ValueError when `value` is not a time with a UTC offset.
    """
    if value is None:
        return None
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time without a UTC offset")
    return moment
