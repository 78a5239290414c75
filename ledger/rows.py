"""Rows of the hot path, as a batch reads and appends them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ledger.core.card import CardState


class Card(NamedTuple):
    """What a decision reads of a card."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    platform_customer_id: str
    account_id: UUID
    currency: str
    state: CardState
    max_spend: int | None


@dataclass(slots=True)
class Account:
    """An internal account while a batch holds its lock."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    currency: str
    type: str
    status: str
    balance: int
    held: int
    owed: int
    pending: int
    version: int
    created_at: datetime
    updated_at: datetime
    is_changed: bool = False  # Since it was loaded.
    has_moved: bool = False  # Its balance.


class Key(NamedTuple):
    """What makes two messages the same message."""

    reference: str
    source: str
    platform_id: UUID
    customer_id: UUID


class Purchase(NamedTuple):
    """What ties the events of one card transaction together."""

    customer_id: UUID
    card_id: UUID
    token: str


class OutcomeRow(NamedTuple):
    """A row of `outcomes`."""

    key: Key
    body_hash: bytes
    message_id: UUID
    outcome: str
    reason: str | None
    subject_id: UUID | None
    sequence: int | None


EventRecord = tuple[
    UUID,  # card_transaction_id
    int,  # sequence
    UUID,  # customer_id
    str,  # kind
    int,  # amount
    int | None,  # unfunded
    bool | None,  # final
    str | None,  # reason
    UUID,  # message_id
    datetime,  # occurred_at
    datetime,  # recorded_at
]
"""A row of `card_transaction_events`."""


EntryRecord = tuple[
    UUID,  # subject_id
    int,  # sequence
    int,  # line
    UUID,  # customer_id
    UUID,  # debit_account_id
    UUID,  # credit_account_id
    int,  # amount
    UUID | None,  # account_id
    int | None,  # account_version
    int | None,  # balance_after
    datetime,  # recorded_at
]
"""A row of `entries`; without an account where no customer's account moves."""


class DepositRecord(NamedTuple):
    """A row of `deposits`."""

    id: UUID
    customer_id: UUID
    account_id: UUID
    amount: int
    message_id: UUID
    recorded_at: datetime
    platform_id: UUID


class Parked(NamedTuple):
    """A row of `parked`."""

    id: UUID
    customer_id: UUID
    card_id: UUID
    token: str
    body: Mapping[str, Any]
    received_at: datetime

    @property
    def purchase(self) -> Purchase:
        """What it waits for."""
        return Purchase(self.customer_id, self.card_id, self.token)


class PendingPull(NamedTuple):
    """A row of `pending_pulls`."""

    card_transaction_id: UUID
    sequence: int
    customer_id: UUID
    card_id: UUID
    token: str
    amount: int
    succeeds: bool
    due_at: datetime


class RejectionRecord(NamedTuple):
    """A row of `rejections`."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    source: str | None
    reference: str | None
    body: str
    reason: str
    detail: str | None
    recorded_at: datetime


OutboxRecord = tuple[
    UUID,  # id
    UUID,  # customer_id
    UUID,  # platform_id
    str,  # type
    UUID,  # subject_id
    int | None,  # sequence
    str | None,  # data: JSON
    datetime,  # recorded_at
]
"""A row of `outbox`."""
