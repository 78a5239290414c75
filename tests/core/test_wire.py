"""Network events on the wire: accepted, rejected, stored and identified."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cardledger.ledger.cards import lifecycle
from cardledger.ledger.core import events
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.decisions import recovery
from cardledger.ledger.messaging import canaries, timeout_reversals
from cardledger.ledger.messaging.inbox import fingerprint, shard_of
from cardledger.ledger.payments import messages as payment_messages
from cardledger.ledger.projections.event_rows import KINDS, EventRow, from_row, to_row
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing.strategies import Story, arbitrary, tight
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id, public_id
from cardledger.schema.wire.errors import explain
from cardledger.schema.wire.network_events import (
    NETWORK_EVENT,
    RESERVED_SOURCES,
    Authorization,
    Clearing,
    body_of,
    parse_time,
)
from tests.books import lived_through
from tests.ids import IDS

CARD = "Card:019542f5-b3e7-7d02-8000-00000000a1b4"
AUTHORIZATION: dict[str, Any] = {
    "type": "AUTHORIZATION",
    "source": "visa",
    "reference": "a-1",
    "issuerTransactionToken": "t-1",
    "cardId": CARD,
    "amount": 1250,
    "currency": "USD",
    "merchant": {"descriptor": "BLUE BOTTLE", "mcc": "5814", "country": "US"},
    "occurredAt": "2026-01-01T12:00:00.000000Z",
    "decideBy": "2026-01-01T12:00:02.000000Z",
}
CLEARING: dict[str, Any] = {
    "type": "CLEARING",
    "source": "visa",
    "reference": "c-1",
    "issuerTransactionToken": "t-1",
    "cardId": CARD,
    "amount": 1500,
    "currency": "USD",
    "final": True,
}


def without(event: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != field}


def test_an_authorization_is_parsed() -> None:
    event = NETWORK_EVENT.validate_python(AUTHORIZATION)

    assert isinstance(event, Authorization)
    assert event.card_id == Id.parse(CARD.removeprefix("Card:"))
    assert event.decide_by == datetime(2026, 1, 1, 12, 0, 2, tzinfo=UTC)


def test_a_clearing_without_finality_is_parsed_without_it() -> None:
    event = NETWORK_EVENT.validate_python(without(CLEARING, "final"))

    assert isinstance(event, Clearing)
    assert event.final is None
    assert "final" not in body_of(event)


@pytest.mark.parametrize("event", [AUTHORIZATION, CLEARING])
def test_the_inbox_stores_the_fields_that_were_sent_and_no_others(event: dict[str, Any]) -> None:
    assert body_of(NETWORK_EVENT.validate_python(event)) == event
    assert body_of(NETWORK_EVENT.validate_json(json.dumps(event))) == event


@pytest.mark.parametrize(
    "amount",
    [0, -1, 2**63, -(2**63), 12.5, 12.0, "1250", "", None, True, [1], {"value": 1}, 1e30],
)
@pytest.mark.parametrize("event", [AUTHORIZATION, CLEARING])
def test_an_amount_is_an_integer_of_63_bits(event: dict[str, Any], amount: object) -> None:
    with pytest.raises(ValidationError) as refusal:
        NETWORK_EVENT.validate_python(event | {"amount": amount})

    assert refusal.value.errors()[0]["loc"][-1] == "amount"


@pytest.mark.parametrize("amount", ["12.0", "12.5", "1e3", '"12"', "9223372036854775808", "NaN"])
def test_an_amount_is_a_json_integer(amount: str) -> None:
    text = json.dumps(CLEARING).replace("1500", amount)

    with pytest.raises(ValidationError):
        NETWORK_EVENT.validate_json(text)


@pytest.mark.parametrize("amount", [1, MAX_AMOUNT])
def test_the_smallest_and_the_largest_amount_are_accepted(amount: int) -> None:
    assert body_of(NETWORK_EVENT.validate_python(CLEARING | {"amount": amount}))["amount"] == amount


@pytest.mark.parametrize("field", sorted(set(CLEARING) - {"final"}))
def test_the_required_fields_of_a_clearing(field: str) -> None:
    with pytest.raises(ValidationError):
        NETWORK_EVENT.validate_python(without(CLEARING, field))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "REFUND"},
        {"type": "authorization"},
        {"type": None},
        {"type": 7},
        {"source": ""},
        {"source": "s" * 101},
        {"reference": ""},
        {"reference": "r" * 256},
        {"reference": 7},
        {"reference": "a\x00b"},
        {"reference": "a\ud800b"},
        {"issuerTransactionToken": "\x00"},
        {"cardId": "019542f5-b3e7-7d02-8000-00000000a1b4"},
        {"cardId": "Customer:019542f5-b3e7-7d02-8000-00000000a1b4"},
        {"cardId": "Card:"},
        {"cardId": 7},
        {"currency": "usd"},
        {"currency": "US"},
        {"currency": {"code": "USD"}},
        {"merchant": "BLUE BOTTLE"},
        {"merchant": {}},
        {"merchant": {"descriptor": "X", "mcc": "581"}},
        {"merchant": {"descriptor": "X", "country": "USA"}},
        {"merchant": {"descriptor": "X", "city": "Roma"}},
        {"occurredAt": "yesterday"},
        {"occurredAt": "2026-01-01T12:00:00"},
        {"decideBy": "2026-01-01"},
        {"card_id": CARD},
        {"colour": "blue"},
    ],
)
def test_an_invalid_event_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NETWORK_EVENT.validate_python(AUTHORIZATION | change)


@pytest.mark.parametrize(
    "source",
    [
        payment_messages.SOURCE,
        payment_messages.RAIL,
        canaries.SOURCE,
        lifecycle.SOURCE,
        recovery.ENGINE,
        timeout_reversals.SOURCE,
        timers.SOURCE,
    ],
)
def test_no_sender_can_take_the_key_of_a_message_of_the_ledger(source: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        NETWORK_EVENT.validate_python(AUTHORIZATION | {"source": source})

    assert source in RESERVED_SOURCES
    assert "source must not be one that is reserved" in explain(refusal.value)


@pytest.mark.parametrize("final", ["true", 1, 0, "no", []])
def test_finality_is_a_boolean(final: object) -> None:
    with pytest.raises(ValidationError):
        NETWORK_EVENT.validate_python(CLEARING | {"final": final})


def test_the_deadline_is_for_authorizations_only() -> None:
    with pytest.raises(ValidationError):
        NETWORK_EVENT.validate_python(CLEARING | {"decideBy": "2026-01-01T12:00:02Z"})


def test_times_are_stored_in_utc() -> None:
    event = AUTHORIZATION | {"occurredAt": "2026-01-01T14:00:00.25+02:00"}

    kept = body_of(NETWORK_EVENT.validate_python(event))["occurredAt"]

    assert kept == "2026-01-01T12:00:00.250000Z"
    assert parse_time(kept) == datetime(
        2026, 1, 1, 14, microsecond=250_000, tzinfo=timezone(timedelta(hours=2))
    )


def test_two_spellings_of_one_event_are_the_same_event() -> None:
    spelled = dict(reversed(AUTHORIZATION.items())) | {
        "occurredAt": "2026-01-01T13:00:00+01:00",
        "cardId": CARD.replace(":", "%3A"),
    }

    first, second = (body_of(NETWORK_EVENT.validate_python(e)) for e in (AUTHORIZATION, spelled))

    assert fingerprint(first) == fingerprint(second)


@pytest.mark.parametrize(
    "change", [{"amount": 1501}, {"final": False}, {"currency": "EUR"}, {"reference": "c-2"}]
)
def test_another_body_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(CLEARING) != fingerprint(CLEARING | change)
    assert fingerprint(CLEARING) != fingerprint(without(CLEARING, next(iter(change))))


def test_the_deadline_of_a_repetition_does_not_make_it_another_event() -> None:
    later = AUTHORIZATION | {"decideBy": "2026-01-01T12:05:00.000000Z"}

    assert fingerprint(later) == fingerprint(AUTHORIZATION)
    assert fingerprint(without(AUTHORIZATION, "decideBy")) == fingerprint(AUTHORIZATION)


@given(IDS)
def test_a_public_id_is_parsed_to_its_key(key: Id) -> None:
    assert parse_id("Card", public_id("Card", key)) == key


@given(IDS)
def test_a_cardholder_has_one_shard(customer_id: Id) -> None:
    assert 0 <= shard_of(customer_id) < 16
    assert shard_of(customer_id) == shard_of(customer_id)


def test_new_ids_rise_in_order_of_creation_and_avoid_sandbox_suffixes() -> None:
    keys = [new_id() for _ in range(20_000)]

    assert keys == sorted(set(keys))
    assert not any(str(key).endswith(("001", "002", "003", "004", "005", "006")) for key in keys)


@given(arbitrary() | tight())
def test_an_event_survives_a_round_trip_through_its_row(story: Story) -> None:
    for history in lived_through(story).histories.values():
        for event in history:
            assert from_row(EventRow(*to_row(event))) == event


def test_of_an_earlier_release_no_reversal_of_what_has_moved_closed_anything() -> None:
    for kind in (events.ClearingReversed, events.RefundReversed):
        row = EventRow(KINDS[kind], 1, 0, None, None)

        assert from_row(row) == kind(amount=1, unfunded=0, final=False)


def test_every_kind_of_event_has_a_row() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert {to_row(event)[0] for event in _one_of_each()} == set(KINDS.values())


def test_an_unknown_kind_of_row_is_an_error() -> None:
    for row in (
        EventRow("STOLEN", 1, None, None, None),
        EventRow("CLEARED", 1, None, True, None),  # noqa: FBT003 - what a row says
        EventRow("CLEARED", 1, 0, None, None),
        EventRow("DECLINED", 1, None, None, None),
        EventRow("DECLINED", 1, None, None, "BAD_MOOD"),
        EventRow("PULL_RECOVERED", 1, None, None, None),
    ):
        with pytest.raises(ValueError, match=r"row|BAD_MOOD|unknown kind"):
            from_row(row)


def _one_of_each() -> list[Any]:
    return [
        events.Authorized(amount=1),
        events.Declined(amount=1, reason=events.DeclineReason.CARD_PAUSED),
        events.Pulled(amount=1),
        events.PullOpened(amount=1),
        events.PullResized(amount=1),
        events.PullRecovered(amount=1, unfunded=1),
        events.Released(amount=1),
        events.Cleared(amount=1, unfunded=0, final=True),
        events.AuthorizationAdjusted(amount=0, final=True),
        events.AuthorizationReversed(amount=1, final=True),
        events.AuthorizationExpired(amount=1),
        events.AuthorizationCancelled(amount=1),
        events.PullPending(amount=1),
        events.PullConfirmed(amount=1),
        events.PullFailed(amount=1, unfunded=0),
        events.ClearingReversed(amount=1, unfunded=0),
        events.ClearingReversed(amount=1, unfunded=0, final=True),
        events.Refunded(amount=1, final=False),
        events.CreditAuthorized(amount=1),
        events.CreditDeclined(amount=1, reason=events.DeclineReason.CARD_PAUSED),
        events.CreditAdjusted(amount=0, final=True),
        events.Credited(amount=1),
        events.Credited(amount=1, final=False),
        events.RefundReversed(amount=1, unfunded=0),
        events.RefundReversed(amount=1, unfunded=0, final=True),
        events.DebitRecovered(amount=1),
        events.WrittenOff(amount=1, unfunded=0),
        events.WriteOffReversed(amount=1),
        events.WriteOffRecovered(amount=1, unfunded=0),
    ]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_outside_the_calendar_in_utc_is_rejected_with_a_message(time: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        NETWORK_EVENT.validate_python(CLEARING | {"occurredAt": time})

    assert explain(refusal.value) == "occurredAt must be in the years 0001 to 9999 in UTC"


_OFFSETS = st.integers(-24 * 60 + 1, 24 * 60 - 1).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
_TIMES = st.datetimes(timezones=_OFFSETS) | st.builds(
    lambda edge, minutes, zone: (edge + timedelta(minutes=minutes)).replace(tzinfo=zone),
    st.just(datetime.min),  # noqa: DTZ901 - the zone comes with `replace`
    st.integers(0, 48 * 60),
    _OFFSETS,
)


@given(_TIMES | st.just(datetime.max.replace(tzinfo=UTC)))
def test_a_parsed_time_is_stored_in_utc_and_can_be_written(time: datetime) -> None:
    try:
        event = NETWORK_EVENT.validate_python(CLEARING | {"occurredAt": time.isoformat()})
    except ValidationError:
        return

    written = body_of(event)["occurredAt"]
    assert event.occurred_at is not None
    assert event.occurred_at.utcoffset() == timedelta(0)
    assert parse_time(written) == event.occurred_at == time
