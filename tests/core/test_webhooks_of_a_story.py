"""`cardledger.ledger.testing.webhooks`: signed, repeated and mixed webhooks of a story.

That they are those of the engine: tests/integration/test_webhooks_of_stories.py.
"""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from cardledger.ledger.testing.strategies import SCENE, numbered
from cardledger.ledger.testing.webhooks import PUBLIC_KEY, SECRET, Webhook, webhooks
from cardledger.webhooks import verify

TIP = numbered(
    [
        SCENE.deposit(50_000),
        SCENE.event("AUTHORIZATION", "T1", amount=1250),
        SCENE.event("CLEARING", "T1", amount=1500, final=True),
    ]
)


def contents(sent: list[Webhook]) -> list[dict[str, Any]]:
    """Return the envelopes, which both keys verify."""
    return [verify(body, headers, secret=SECRET, public_key=PUBLIC_KEY) for body, headers in sent]


def test_a_tip_sends_what_a_consumer_of_card_transactions_needs() -> None:
    sent = contents(webhooks(TIP))

    assert [each["type"] for each in sent] == [
        "INCOMING_PAYMENT.COMPLETED",
        "INTERNAL_ACCOUNT.BALANCE_UPDATED",
        "CARD_TRANSACTION.AUTHORIZED",
        "INTERNAL_ACCOUNT.BALANCE_UPDATED",
        "CARD_TRANSACTION.SETTLED",
        "INTERNAL_ACCOUNT.BALANCE_UPDATED",
    ]
    assert sent[4]["data"]["settledAmount"]["amount"] == 1500
    assert sent[4]["data"]["pullSummary"]["count"] == 2
    assert sent[5]["data"]["balance"]["amount"] == 48_500
    assert sent[4]["data"]["cardId"] == SCENE.card_id


def test_headers_are_those_of_a_delivery() -> None:
    [(body, headers), *_] = webhooks(TIP)

    assert sorted(headers) == [
        "Content-Type",
        "User-Agent",
        "X-Grid-Signature",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    ]
    assert headers["webhook-id"] == json.loads(body)["id"]


def test_a_duplicate_has_the_same_body_and_id_and_is_signed_again() -> None:
    sent = webhooks(TIP, duplicates=2)
    again = [pair for pair in pairwise(sent) if pair[0].body == pair[1].body]

    assert (len(sent), len(again)) == (8, 2)
    for first, second in again:
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert len(contents(sent)) == 8


def test_a_seed_chooses_the_order() -> None:
    types = [
        [each["type"] for each in contents(webhooks(TIP, duplicates=1, shuffle=seed))]
        for seed in (1, 1, 2)
    ]

    assert types[0] == types[1]
    assert Counter(types[0]) != Counter()
    assert types[0] != types[2]


def test_a_rejected_event_sends_nothing() -> None:
    wrong = {**TIP[1], "currency": "EUR", "reference": "wrong"}

    assert len(webhooks([*TIP, wrong])) == len(webhooks(TIP))


@pytest.mark.parametrize("event", [{"type": "CLEARING"}, {"reference": "r1"}])
def test_what_is_not_an_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"type|CLEARING"):
        webhooks([event])
