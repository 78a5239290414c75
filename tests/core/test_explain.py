"""The sentences that explain a card transaction's events to finance."""

from collections.abc import Sequence
from typing import get_args

import pytest

from cardledger.ledger.core import events
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.projections.explain import amount_text, sentence, steps

AUTHORIZED = (events.Authorized(amount=1250), events.Pulled(amount=1250))
CLEARED_ABOVE = (*AUTHORIZED, events.Cleared(amount=1500, unfunded=250, final=True))
SHORT = (*CLEARED_ABOVE, events.PullOpened(amount=250))
REFUNDED = (
    events.Authorized(amount=1250),
    events.Pulled(amount=1250),
    events.Cleared(amount=1250, unfunded=0, final=True),
    events.Refunded(amount=1250, final=False),
)

CREDIT = (events.CreditAuthorized(amount=1250),)

SENTENCES: Sequence[tuple[Sequence[events.Event], events.Event, str]] = (
    ((), events.Authorized(amount=1250), "12.50 USD was authorized."),
    (AUTHORIZED, events.Authorized(amount=1000), "10.00 USD more was authorized."),
    (
        (),
        events.Declined(amount=1250, reason=DeclineReason.INSUFFICIENT_FUNDS),
        "An authorization of 12.50 USD was declined: INSUFFICIENT_FUNDS.",
    ),
    (
        AUTHORIZED,
        events.AuthorizationAdjusted(amount=1300, final=False),
        "The network adjusted the authorized total from 12.50 USD to 13.00 USD.",
    ),
    (
        AUTHORIZED,
        events.AuthorizationReversed(amount=250, final=False),
        "2.50 USD of the authorization was reversed; 10.00 USD remains authorized.",
    ),
    (
        AUTHORIZED,
        events.AuthorizationExpired(amount=1250),
        "The authorization expired; 12.50 USD had not cleared.",
    ),
    (
        AUTHORIZED,
        events.AuthorizationCancelled(amount=1250),
        "The card was closed; 12.50 USD of the authorization had not cleared.",
    ),
    (
        AUTHORIZED,
        events.Pulled(amount=250),
        "2.50 USD was pulled; 15.00 USD pulled in total.",
    ),
    (
        AUTHORIZED[:1],
        events.PullPending(amount=1250),
        "12.50 USD was pulled and awaits confirmation; 12.50 USD pulled in total.",
    ),
    (
        (AUTHORIZED[0], events.PullPending(amount=1250)),
        events.PullConfirmed(amount=1250),
        "The pull of 12.50 USD was confirmed.",
    ),
    (
        (AUTHORIZED[0], events.PullPending(amount=1250)),
        events.PullConfirmed(amount=0),
        "Confirmation received for a pull that had already been released.",
    ),
    (
        (AUTHORIZED[0], events.PullPending(amount=1250)),
        events.PullFailed(amount=0, unfunded=0),
        "Failure reported for a pull that had already been released.",
    ),
    (
        (AUTHORIZED[0], events.PullPending(amount=1250)),
        events.PullFailed(amount=1250, unfunded=0),
        (
            "The pull of 12.50 USD failed and was returned to the funding account;"
            " 12.50 USD remains due."
        ),
    ),
    (
        CLEARED_ABOVE,
        events.PullOpened(amount=250),
        "Insufficient funds: 2.50 USD remains due and is collected when the account is credited.",
    ),
    (
        SHORT,
        events.PullResized(amount=300),
        "The amount due changed from 2.50 USD to 3.00 USD.",
    ),
    (
        SHORT,
        events.PullRecovered(amount=250, unfunded=250),
        "The 2.50 USD due was pulled; 15.00 USD pulled in total.",
    ),
    (
        AUTHORIZED,
        events.Released(amount=1250),
        "12.50 USD was released to the funding account.",
    ),
    (
        AUTHORIZED,
        events.Cleared(amount=1000, unfunded=0, final=False),
        "A clearing of 10.00 USD was settled.",
    ),
    (
        AUTHORIZED,
        events.Cleared(amount=1500, unfunded=250, final=True),
        "A final clearing of 15.00 USD was settled; 2.50 USD exceeded the pulled amount.",
    ),
    (
        CLEARED_ABOVE,
        events.ClearingReversed(amount=1500, unfunded=250),
        "A clearing of 15.00 USD was reversed.",
    ),
    (
        REFUNDED[:3],
        events.Refunded(amount=1250, final=False),
        "12.50 USD was refunded to the funding account.",
    ),
    (
        (),
        events.Credited(amount=1250),
        "12.50 USD was credited to the funding account; it belongs to no purchase.",
    ),
    (
        (),
        events.CreditAuthorized(amount=1250),
        "A credit of 12.50 USD was authorized; it is credited when it clears.",
    ),
    (
        CREDIT,
        events.CreditAuthorized(amount=100),
        "A credit of 1.00 USD more was authorized; it is credited when it clears.",
    ),
    (
        (),
        events.CreditDeclined(amount=1250, reason=events.DeclineReason.CARD_PAUSED),
        "The authorization of a credit of 12.50 USD was declined: CARD_PAUSED.",
    ),
    (
        (),
        events.CreditAdjusted(amount=1250, final=False),
        "The network reported that a credit of 12.50 USD is authorized.",
    ),
    (
        CREDIT,
        events.CreditAdjusted(amount=1000, final=False),
        "The network adjusted the authorized credit from 12.50 USD to 10.00 USD.",
    ),
    (
        CREDIT,
        events.AuthorizationReversed(amount=250, final=False),
        "2.50 USD of the authorized credit was reversed; 10.00 USD remains authorized.",
    ),
    (
        CREDIT,
        events.AuthorizationExpired(amount=1250),
        "The authorization of the credit expired; 12.50 USD had not cleared.",
    ),
    (
        CREDIT,
        events.AuthorizationCancelled(amount=1250),
        "The card was closed; 12.50 USD of the authorized credit had not cleared.",
    ),
    (
        CREDIT,
        events.Credited(amount=250, final=False),
        "A clearing of 2.50 USD was credited to the funding account.",
    ),
    (
        CREDIT,
        events.Credited(amount=1250),
        "A final clearing of 12.50 USD was credited to the funding account.",
    ),
    (
        (*CREDIT, events.Credited(amount=1250)),
        events.RefundReversed(amount=1250, unfunded=0),
        "A credit of 12.50 USD was reversed.",
    ),
    (
        REFUNDED,
        events.RefundReversed(amount=1250, unfunded=0),
        "A refund of 12.50 USD was reversed.",
    ),
    (
        REFUNDED,
        events.RefundReversed(amount=1250, unfunded=1250),
        (
            "A refund of 12.50 USD was reversed; insufficient funds: 12.50 USD remains due and is"
            " collected when the account is credited."
        ),
    ),
    (
        (*REFUNDED, events.RefundReversed(amount=1250, unfunded=1250)),
        events.DebitRecovered(amount=1250),
        "The account was credited and 12.50 USD of reversed refunds was collected.",
    ),
    (
        SHORT,
        events.WrittenOff(amount=250, unfunded=250),
        "2.50 USD was written off as a loss and is not collected any more.",
    ),
    (
        SHORT,
        events.WrittenOff(amount=100, unfunded=100),
        ("1.00 USD was written off as a loss and is not collected any more; 1.50 USD remains due."),
    ),
    (
        (*SHORT, events.WrittenOff(amount=250, unfunded=250)),
        events.WriteOffReversed(amount=250),
        "2.50 USD of the reversed clearing had been written off and reduced the loss.",
    ),
    (
        (*SHORT, events.WrittenOff(amount=250, unfunded=250)),
        events.WriteOffRecovered(amount=250, unfunded=250),
        "2.50 USD had been written off and was collected from what was given back.",
    ),
)


@pytest.mark.parametrize(("history", "event", "expected"), SENTENCES)
def test_an_event_is_explained_in_plain_words(
    history: Sequence[events.Event], event: events.Event, expected: str
) -> None:
    *_, (before, last, after) = steps([*history, event])

    assert sentence(before, last, after, "USD") == expected


def test_every_kind_of_event_has_a_sentence_here() -> None:
    assert {type(event) for _, event, _ in SENTENCES} == set(get_args(events.Event))


@pytest.mark.parametrize(
    ("minor_units", "currency", "expected"),
    [
        (1250, "USD", "12.50 USD"),
        (5, "USD", "0.05 USD"),
        (123456789, "USD", "1,234,567.89 USD"),
        (1250, "JPY", "1,250 JPY"),
    ],
)
def test_an_amount_has_the_decimals_of_its_currency(
    minor_units: int, currency: str, expected: str
) -> None:
    assert amount_text(minor_units, currency) == expected
