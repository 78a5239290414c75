"""Rows of the hot path, as a batch reads and appends them, and the result of each message.

None is frozen: they are made for every message, and a frozen dataclass takes several times as long
where nothing is compiled. Only `LockedAccount` is changed, by the batch that holds its lock, and
`LateHistory`, while it is read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.late_approvals import LateApproval
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.schema.ids import Id
from cardledger.schema.wire.conversion import Conversion
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.schema.wire.settlement import Settlement


@dataclass(slots=True)
class Dates:
    """The dates of everything that one message causes."""

    occurred_at: datetime
    posted_on: date
    settlement: Settlement | None  # What the message says about it.
    late_from: date | None = None  # The day that was not open any more.
    conversion: Conversion | None = None  # Of the message's amount, where the network has done one.


@dataclass(slots=True)
class Decided:
    """The result of one message; `roll_up` is its card transaction after it."""

    message: Message
    outcome: OutcomeType
    reason: str | None = None
    detail: str | None = None
    first_outcome: OutcomeType | None = None
    roll_up: RollUp | None = None
    # In messages that were put into the same queue of the bulk lane, or into queues of `wakes`.
    continues: bool = False
    wakes: Sequence[int] = ()  # Shards of the live lane.
    is_forged: bool = False  # It was moved away undecided: that it could be says nothing of others.


class Claimed(NamedTuple):
    """Messages to be decided, queues that may have more, and forged messages that were refused.

    `left_out`: cardholders whose messages stay, because others have locked their rows.
    `has_locked`: some of them were found by this claim.
    """

    messages: list[Message]
    unfinished: Sequence[int]
    refused: list[Decided]
    left_out: Collection[Id]
    has_locked: bool = False


class Committed(NamedTuple):
    """What a batch decided, queues that may have more, and cardholders that it left out."""

    decided: list[Decided]
    unfinished: Sequence[int]
    left_out: Collection[Id]

    def has_reached(self, shard: int, customer_id: Id | None) -> bool:
        """Return whether messages of the cardholder were decided, or none waits in `shard`."""
        places: set[tuple[int, Id | None]] = {
            (one.message.shard, one.message.customer_id)
            for one in self.decided
            if not one.is_forged
        }
        if (shard, customer_id) in places:
            return True
        # Unfinished is also a queue that another worker drains.
        return shard not in self.unfinished and customer_id not in self.left_out


@dataclass(slots=True)
class Card:
    """What a decision reads of a card."""

    id: Id
    customer_id: Id
    platform_id: Id
    platform_customer_id: str
    account_id: Id
    currency: str
    state: CardState
    max_spend: int | None


@dataclass(slots=True)
class LockedAccount:
    """An internal account while a batch holds its lock."""

    id: Id
    customer_id: Id
    platform_id: Id
    currency: str
    status: str
    balance: int
    held: int
    owed: int
    pending: int
    version: int
    is_changed: bool = False  # Since it was loaded.
    has_moved: bool = False  # Its balance.


Key = tuple[
    str,  # reference
    str,  # source
    Id,  # platform_id
    Id,  # customer_id
]
"""The idempotency key of a message: two messages with the same key are one."""


CardTransactionKey = tuple[
    Id,  # customer_id
    Id,  # card_id
    str,  # token
]
"""What the events of one card transaction have in common.

Not a NamedTuple, whose constructor takes ten times as long: several are made for each message.
"""


@dataclass(slots=True)
class OutcomeRow:
    """A row of `outcomes`."""

    key: Key
    body_hash: bytes
    message_id: Id
    outcome: str
    reason: str | None
    subject_id: Id | None
    sequence: int | None


class EventAmount(NamedTuple):
    """An event of a card transaction."""

    sequence: int
    kind: str
    amount: int  # Minor units.


@dataclass(slots=True)
class LateHistory:
    """The late approvals of a card transaction, and what came after them.

    `approved_at` has those without a timeout reversal, by message: the sequence of the first event.
    `events` have none of timeout reversals. `clearings` are messages of final clearings
    that no timeout reversal has taken back: some of them, or all.
    """

    approved_at: dict[Id, int] = field(default_factory=dict)
    reversed: list[LateApproval] = field(default_factory=list)
    events: list[EventAmount] = field(default_factory=list)
    clearings: set[Id] = field(default_factory=set)


EventRecord = tuple[
    Id,  # card_transaction_id
    int,  # sequence
    Id,  # customer_id
    str,  # kind
    int,  # amount
    int | None,  # unfunded
    bool | None,  # final
    str | None,  # reason
    Id,  # message_id
    datetime,  # occurred_at
    datetime,  # recorded_at
]
"""A row of `card_transaction_events`."""


EntryRecord = tuple[
    Id,  # subject_id
    int,  # sequence
    int,  # line
    Id,  # customer_id
    Id,  # debit_account_id
    Id,  # credit_account_id
    int,  # amount
    Id | None,  # account_id
    int | None,  # account_version
    int | None,  # balance_after
    datetime,  # recorded_at
    datetime,  # occurred_at
    date,  # posted_on
    date | None,  # late_from
]
"""A row of `entries`; the last `Id | None` and its values: the customer account, if it has one."""


PaymentEventRecord = tuple[
    Id,  # transfer_id
    int,  # sequence
    Id,  # customer_id
    str,  # kind
    str | None,  # reason
    Id,  # message_id
    datetime,  # occurred_at
    datetime,  # recorded_at
]
"""A row of `transfer_events`."""


class DepositRecord(NamedTuple):
    """A row of `deposits`."""

    id: Id
    customer_id: Id
    account_id: Id
    amount: int
    message_id: Id
    recorded_at: datetime
    platform_id: Id
    occurred_at: datetime | None
    external_reference: str | None


SettlementRecord = tuple[
    Id,  # card_transaction_id
    int,  # sequence
    Id,  # customer_id
    Id,  # platform_id
    Id,  # message_id
    str,  # network
    str | None,  # institution_id
    date,  # settlement_date
    str | None,  # cycle
    str | None,  # acquirer_reference
    str | None,  # network_reference
    int | None,  # merchant_amount
    str | None,  # merchant_currency
    Decimal | None,  # interchange
    str | None,  # fee_program
    datetime,  # recorded_at
]
"""A row of `settlement_details`."""


ConversionRecord = tuple[
    Id,  # card_transaction_id
    int,  # sequence
    Id,  # customer_id
    Id,  # platform_id
    Id,  # message_id
    int,  # merchant_amount
    str,  # merchant_currency
    int,  # billing_amount
    Decimal,  # rate
    datetime,  # recorded_at
]
"""A row of `conversion_details`."""


PARKED_LIMIT: Final = 100
"""Messages that wait for one card transaction; a batch looks at all of them at each of its events.

Further ones are rejected, and what they have moved is an open item of SUSPENSE.
"""


class Parked(NamedTuple):
    """A row of `parked`."""

    id: Id
    customer_id: Id
    card_id: Id
    token: str
    body: Mapping[str, Any]
    received_at: datetime

    @property
    def key(self) -> CardTransactionKey:
        """The card transaction whose events it waits for."""
        return self.customer_id, self.card_id, self.token


@dataclass(slots=True)
class SuspenseItem:
    """A row of `suspense_items`; `resolved_at` and `resolved_by` are set once."""

    id: Id
    customer_id: Id
    platform_id: Id
    source: str | None
    reference: str | None
    card_id: Id | None
    type: str
    currency: str
    amount: int
    cause: str
    reason: str | None
    recorded_at: datetime
    posted_on: date
    resolved_at: datetime | None = None
    resolved_by: Id | None = None
    network: str | None = None
    settlement_date: date | None = None

    @property
    def key(self) -> Key | None:
        """The idempotency key of its message; None when that cannot be read."""
        if not self.source or not self.reference:
            return None
        return self.reference, self.source, self.platform_id, self.customer_id


class Closing(NamedTuple):
    """A closed card, and the token after which its card transactions have not been read yet."""

    card_id: Id
    customer_id: Id
    after: str


class ClosingPage(NamedTuple):
    """Card transactions of a closed card that expect clearings, and where the next page begins."""

    expecting: list[RollUp]
    next_after: str | None  # None: there are no more.


class DebtPage(NamedTuple):
    """The oldest debts of an account, and whether these are all."""

    roll_ups: list[RollUp]
    is_whole: bool


class PendingPull(NamedTuple):
    """A row of `pending_pulls`."""

    card_transaction_id: Id
    sequence: int
    customer_id: Id
    card_id: Id
    token: str
    amount: int
    succeeds: bool
    due_at: datetime


class RejectionRecord(NamedTuple):
    """A row of `rejections`."""

    id: Id
    customer_id: Id
    platform_id: Id
    source: str | None
    reference: str | None
    body: str
    reason: str
    detail: str | None
    recorded_at: datetime


OutboxRecord = tuple[
    Id,  # id
    Id,  # customer_id
    Id,  # platform_id
    str,  # type
    Id,  # subject_id
    int | None,  # sequence
    str | None,  # data: JSON
    datetime,  # recorded_at
]
"""A row of `outbox`."""
