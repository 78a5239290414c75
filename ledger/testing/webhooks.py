"""The webhooks that a story causes, exactly as they are sent, without a database or a network.

    from cardledger.ledger.testing.webhooks import PUBLIC_KEY, SECRET, webhooks

    for body, headers in webhooks(story, duplicates=3, shuffle=7):
        assert consumer.receive(body, headers) == 200

The events are decided by the batches of the engine itself, each in one of its own, and rendered and
signed by the code that sends webhooks. Messages that only the ledger sends, such as the
confirmation of a pending pull, are sent when the story contains them.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.engine.change_set import BatchSnapshot, PendingWrites
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.parsing import card_of, closings_of
from cardledger.ledger.engine.records import (
    Card,
    CardTransactionKey,
    Closing,
    ClosingPage,
    DebtPage,
    Key,
    LockedAccount,
    OutboxRecord,
    OutcomeRow,
    Parked,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import CARD_CLOSED, Message, Owner
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.projections import accounts, card_transaction, history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import signatures
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.network_events import NETWORK_EVENT, EventType, body_of
from cardledger.schema.wire.webhooks.envelope import WebhookType, envelope

_SEED: Final = sha256(b"the test keys of cardledger").digest()
_PRIVATE_KEY: Final = ec.derive_private_key(int.from_bytes(_SEED[:31]), ec.SECP256R1())

SECRET: Final = signatures.SECRET_PREFIX + base64.b64encode(_SEED).decode()
"""The secret that `webhooks` signs with."""

PUBLIC_KEY: Final = (
    _PRIVATE_KEY.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
"""The public key, as PEM, of the key that `webhooks` signs with."""

PLATFORM_CUSTOMER_ID: Final = "customer-of-the-story"
"""`platformCustomerId` of the cardholder."""

_BETWEEN_EVENTS: Final = timedelta(milliseconds=1)
_BEFORE_A_RETRY: Final = timedelta(seconds=5)
_NETWORK_TYPES: Final = frozenset(EventType)
_RAIL: Final = SandboxFundingRail(delay=timedelta(0))

Event = Mapping[str, Any]


class Webhook(NamedTuple):
    """A webhook as it is sent: the exact bytes, and the headers that belong to it."""

    body: bytes
    headers: dict[str, str]


class _Unsigned(NamedTuple):
    """A webhook and when it was recorded."""

    id: Id
    body: bytes
    recorded_at: datetime


def webhooks(
    story: Sequence[Event],
    *,
    duplicates: int = 0,
    shuffle: int | None = None,
    now: datetime | None = None,
) -> list[Webhook]:
    """Return the webhooks of `story`, whose cardholder has one account, without money at first.

    Shape: in the order in which they are sent first. `duplicates` of them, at random, are delivered
    twice, right after one another; `shuffle`, the seed of a random order, mixes all of them.
    The story begins `now`, so that the age of the signatures is accepted.
    Raises: ValueError for an event that is not a network event, a deposit or another message of a
    ledger.
    """
    random = Random(shuffle or 0)  # noqa: S311 - no secret
    sent = list(_recorded(story, now or datetime.now(UTC)))
    twice = set(random.sample(range(len(sent)), min(duplicates, len(sent))))
    attempts: list[Webhook] = []
    for place, webhook in enumerate(sent):
        attempts.append(_signed(webhook, webhook.recorded_at))
        if place in twice:
            attempts.append(_signed(webhook, webhook.recorded_at + _BEFORE_A_RETRY))
    if shuffle is not None:
        random.shuffle(attempts)
    return attempts


def _signed(webhook: _Unsigned, at: datetime) -> Webhook:
    signature = signatures.sign(
        webhook.body,
        webhook_id=public_id("Webhook", webhook.id),
        at=at,
        private_key=_PRIVATE_KEY,
        secret=SECRET,
    )
    return Webhook(webhook.body, signatures.HEADERS | signature)


def _recorded(story: Sequence[Event], begins: datetime) -> Iterator[_Unsigned]:
    cardholder = _Cardholder(story, begins)
    times = (begins + number * _BETWEEN_EVENTS for number in count())
    for event, at in zip(story, times, strict=False):
        yield from cardholder.submit(event, at)


class _Cardholder:
    """A cardholder and what the database would hold about them between two batches."""

    def __init__(self, story: Sequence[Event], opened_at: datetime) -> None:
        self._owner: Final = Owner(customer_id=new_id(), platform_id=new_id())
        self._opened_at: Final = opened_at
        self._account = LockedAccount(
            id=_account_in(story),
            customer_id=self._owner.customer_id,
            platform_id=self._owner.platform_id,
            currency=_first(story, "currency") or "USD",
            status=accounts.ACTIVE,
            balance=0,
            held=0,
            owed=0,
            pending=0,
            version=0,
        )
        self._system_accounts: Final = {
            (self._owner.platform_id, self._account.currency, str(kind)): new_id()
            for kind in ChartAccount
        }
        self._cards: Final[dict[Id, Card]] = {}
        self._outcomes: Final[dict[Key, OutcomeRow]] = {}
        self._roll_ups: Final[dict[Id, RollUp]] = {}
        self._events: Final[dict[Id, list[Sequence[Any]]]] = defaultdict(list)
        self._parked: Final[dict[CardTransactionKey, list[Parked]]] = defaultdict(list)

    def submit(self, event: Event, at: datetime) -> Iterator[_Unsigned]:
        """Decide `event` at `at`, and what the ledger sends to itself after it."""
        body = _body_of(event)
        self._note_card(body)
        messages = [inbox.address(body, self._owner, lane=inbox.Lane.LIVE, reply_to=None, at=at)]
        while messages:
            batch = Batch(self._snapshot(messages[0]), now=at, rail=_RAIL)
            batch.decide(messages[:1])
            messages = [*messages[1:], *batch.writes.follow_ups]
            yield from self._commit(batch.writes, at)

    def _note_card(self, body: Event) -> None:
        if "cardId" not in body:
            return
        key = card_of(body)
        card = self._cards.setdefault(
            key,
            Card(
                id=key,
                customer_id=self._owner.customer_id,
                platform_id=self._owner.platform_id,
                platform_customer_id=PLATFORM_CUSTOMER_ID,
                account_id=self._account.id,
                currency=self._account.currency,
                state=CardState.ACTIVE,
                max_spend=None,
            ),
        )
        if body["type"] == CARD_CLOSED:
            card.state = CardState.CLOSED

    def _snapshot(self, message: Message) -> BatchSnapshot:
        """Return what a batch reads for `message`: of this cardholder, everything."""
        self._account = replace(self._account, is_changed=False, has_moved=False)
        return BatchSnapshot(
            outcomes=self._outcomes,
            cards=self._cards,
            accounts={self._account.id: self._account},
            roll_ups=self._roll_ups.values(),
            closing_pages={each: self._closing_page(each) for each in closings_of([message])},
            debts={self._account.id: self._debts()},
            parked=self._parked,
            system_accounts=self._system_accounts,
            platform_customer_ids={self._owner.customer_id: PLATFORM_CUSTOMER_ID},
        )

    def _debts(self) -> DebtPage:
        owing = [each for each in self._roll_ups.values() if each.debt_since]
        return DebtPage(owing, is_whole=True)

    def _closing_page(self, closing: Closing) -> ClosingPage:
        expecting = [
            roll_up
            for roll_up in self._roll_ups.values()
            if roll_up.identity.card_id == closing.card_id and roll_up.state.stands
        ]
        return ClosingPage(expecting, None)

    def _commit(self, writes: PendingWrites, at: datetime) -> Iterator[_Unsigned]:
        """Keep `writes`; yield their webhooks in the order of their ids."""
        self._outcomes.update((row.key, row) for row in writes.outcomes)
        for context in writes.card_transactions:
            self._roll_ups[context.roll_up.identity.id] = context.roll_up
        for (
            key,
            _,
            _,
            kind,
            amount,
            unfunded,
            final,
            reason,
            message_id,
            _,
            recorded_at,
        ) in writes.events:
            self._events[key].append(
                (message_id, recorded_at, kind, amount, unfunded, final, reason)
            )
        for parked in writes.parked:
            self._parked[parked.key].append(parked)
        for group, parked_id in writes.unparked:
            self._parked[group] = [each for each in self._parked[group] if each.id != parked_id]
        for record in writes.outbox:
            yield _Unsigned(record[0], self._body(record), at)
        if self._account.has_moved:
            yield self._balance_updated(at)

    def _body(self, record: OutboxRecord) -> bytes:
        key, _, _, kind, subject_id, sequence, data, at = record
        content = json.loads(data) if data is not None else self._as_of(subject_id, sequence)
        return envelope(key, kind, at, content, sequence=sequence)

    def _as_of(self, card_transaction_id: Id, sequence: int | None) -> dict[str, Any]:
        """Return the card transaction as it was at `sequence`."""
        stored, rows = self._roll_ups[card_transaction_id], self._events[card_transaction_id]
        for roll_up in history.refold(stored, rows):
            if roll_up.state.sequence == sequence:
                return card_transaction.wire(roll_up)
        raise AssertionError(f"no event {sequence} of {card_transaction_id}")

    def _balance_updated(self, at: datetime) -> _Unsigned:
        account, key = self._account, new_id()
        snapshot = {
            "type": "INTERNAL_FIAT",
            "status": account.status,
            "currency": account.currency,
            "balance": account.balance,
            "held": account.held,
            "owed": account.owed,
            "pending": account.pending,
            "created_at": self._opened_at,
            "updated_at": at,
        }
        data = accounts.wire(
            snapshot,
            key=account.id,
            customer_id=account.customer_id,
            platform_id=account.platform_id,
            version=account.version,
        )
        kind = WebhookType.INTERNAL_ACCOUNT_BALANCE_UPDATED
        return _Unsigned(key, envelope(key, kind, at, data, sequence=account.version), at)


def _body_of(event: Event) -> Event:
    """Return `event` as the inbox keeps it.

    Raises: ValueError.
    """
    if event.get("type") in _NETWORK_TYPES and event.get("source") != "schedule":
        return body_of(NETWORK_EVENT.validate_python(event))
    if "type" not in event:
        raise ValueError("an event has a type")
    if event["type"] == TIMEOUT_REVERSAL:
        raise ValueError("a timeout reversal needs what came since its authorization; use `model`")
    return dict(event)


def _account_in(story: Sequence[Event]) -> Id:
    named = _first(story, "accountId")
    return new_id() if named is None else Id.parse(named)


def _first(story: Sequence[Event], name: str) -> str | None:
    """Return the first value of `name` in `story`, all of which are the same."""
    return next((event[name] for event in story if name in event), None)
