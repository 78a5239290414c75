"""Timeout reversals in one batch of the engine, in memory, against the model."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import event as seen
from hypothesis import given

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.parsing import card_of, closings_of
from cardledger.ledger.engine.records import Card, ClosingPage, Decided, LockedAccount
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.projections import accounts
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import SCENE, Event, Story, late
from cardledger.schema.ids import Id
from tests.books import InMemoryLedger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNER = Owner(customer_id=new_id(), platform_id=new_id())
ACCOUNT = LockedAccount(
    Id.parse(SCENE.account_id),
    OWNER.customer_id,
    OWNER.platform_id,
    SCENE.currency,
    accounts.ACTIVE,
    0,
    0,
    0,
    0,
    version=0,
)


def message_of(event: Event) -> Message:
    """Return `event` as the inbox has it."""
    if event["type"] == timeout_reversals.TIMEOUT_REVERSAL:
        return timeout_reversals.reversal_of(message_of(event["authorization"]), at=NOON)
    return inbox.address(event, OWNER, lane=Lane.LIVE, reply_to=None, at=NOON)


def decide(story: Story) -> tuple[list[Decided], dict[str, Any]]:
    """Decide `story` in one batch; return the outcomes, and the account after it."""
    messages = [message_of(event) for event in story]
    account = replace(ACCOUNT)
    batch = Batch(
        snapshot(messages, account), now=NOON, rail=SandboxFundingRail(delay=timedelta(0))
    )
    decided = batch.decide(messages)
    books = InMemoryLedger()
    for context in batch.writes.card_transactions:
        token = context.roll_up.identity.issuer_transaction_token
        books.states[token] = context.roll_up.state
    figures = {token: books.figures(token) for token in books.states}
    return decided, {
        "balance": account.balance,
        "held": account.held,
        "owed": account.owed,
        "transactions": figures,
    }


def snapshot(messages: Sequence[Message], account: LockedAccount) -> BatchSnapshot:
    card_id = card_of({"cardId": SCENE.card_id})
    card = Card(
        card_id,
        OWNER.customer_id,
        OWNER.platform_id,
        "customer",
        account.id,
        SCENE.currency,
        CardState.ACTIVE,
        None,
    )
    return BatchSnapshot(
        cards={card_id: card},
        accounts={account.id: account},
        closing_pages={closing: ClosingPage([], None) for closing in closings_of(messages)},
        system_accounts={
            (OWNER.platform_id, SCENE.currency, str(kind)): new_id() for kind in ChartAccount
        },
        platform_customer_ids={OWNER.customer_id: "customer"},
    )


@given(late())
def test_a_batch_of_late_authorizations_ends_as_the_model_says(story: Story) -> None:
    model = Model()
    expected = [model.submit(event) for event in story]

    decided, account = decide(story)

    for event, word in zip(story, expected, strict=True):
        if event["type"] == timeout_reversals.TIMEOUT_REVERSAL:
            seen(f"{event['authorization']['type']} {word}")
    assert [str(one.outcome) for one in decided] == expected
    assert account == model.account()
