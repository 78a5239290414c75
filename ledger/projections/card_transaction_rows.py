"""Conversion between roll-ups and rows of `card_transactions`."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from cardledger.ledger.core.card_transaction import CardTransaction
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.status import Closure, Status
from cardledger.ledger.projections.card_transaction import Conversion, Identity, RollUp
from cardledger.schema import tables

COLUMNS: Final[tuple[str, ...]] = tuple(column.name for column in tables.card_transactions.columns)
"""The columns of `to_row`; `from_row` reads them followed by `platform_customer_id`."""


WRITE_OFF_COLUMNS: Final = ("written_off", "debits_written_off")
"""Next to no card transaction has anything but 0 in them."""

CONVERSION_COLUMNS: Final = (
    "merchant_amount",
    "merchant_currency",
    "billing_amount",
    "conversion_rate",
)
"""Of purchases in another currency than the card's."""

RARE_COLUMNS: Final = (*WRITE_OFF_COLUMNS, "credit_authorized", *CONVERSION_COLUMNS)
"""The last of `COLUMNS`: written by statements of their own, where they have a value."""


_EARLIER_SETTLED: Final = "CREDITED"


def stored_statuses(status: str) -> Sequence[str]:
    """Return the values of the column for `status`.

    Releases before schema 0071 wrote CREDITED for a settled credit; nothing writes it any more.
    """
    return (status, _EARLIER_SETTLED) if status == Status.SETTLED else (status,)


def to_row(roll_up: RollUp) -> tuple[Any, ...]:
    """Return the row of `roll_up`, in the order of `COLUMNS`."""
    state = roll_up.state
    rare = state.written_off, state.debits_written_off, state.credit_authorized
    return (*common_row(roll_up), *rare, *conversion_row(roll_up))


def conversion_row(roll_up: RollUp) -> tuple[int | None, str | None, int | None, Decimal | None]:
    """Return the values of `CONVERSION_COLUMNS`."""
    last = roll_up.conversion
    if last is None:
        return None, None, None, None
    return last.merchant_amount, last.merchant_currency, last.billing_amount, last.rate


def common_row(roll_up: RollUp) -> tuple[Any, ...]:
    """Return the row of `roll_up` without `RARE_COLUMNS`, in the order of `COLUMNS`."""
    identity, state = roll_up.identity, roll_up.state
    return (
        identity.id,
        identity.customer_id,
        identity.platform_id,
        identity.card_id,
        identity.account_id,
        identity.issuer_transaction_token,
        identity.currency,
        identity.descriptor,
        identity.mcc,
        identity.country,
        state.status,
        state.sequence,
        state.authorizations,
        state.authorized,
        state.settled,
        state.settlement_count,
        state.refunded,
        state.refund_count,
        state.pulled,
        state.pull_count,
        state.pending,
        state.pending_count,
        state.open_pull,
        state.unpaid,
        roll_up.debt_since,
        roll_up.debt_id,
        state.released,
        state.release_count,
        state.closed_by,
        state.declined,
        state.decline_reason,
        roll_up.expires_at,
        identity.created_at,
        roll_up.last_event_at,
        roll_up.updated_at,
    )


def from_row(row: Sequence[Any]) -> RollUp:
    """Return the roll-up of a row: `COLUMNS`, then the customer's `platform_customer_id`."""
    (
        key,
        customer_id,
        platform_id,
        card_id,
        account_id,
        issuer_transaction_token,
        currency,
        descriptor,
        mcc,
        country,
        _status,  # Derived from the totals; stored for filters.
        sequence,
        authorizations,
        authorized,
        settled,
        settlement_count,
        refunded,
        refund_count,
        pulled,
        pull_count,
        pending,
        pending_count,
        open_pull,
        unpaid,
        debt_since,
        debt_id,
        released,
        release_count,
        closed_by,
        declined,
        decline_reason,
        expires_at,
        created_at,
        last_event_at,
        updated_at,
        written_off,
        debits_written_off,
        credit_authorized,
        merchant_amount,
        merchant_currency,
        billing_amount,
        conversion_rate,
        platform_customer_id,
    ) = row
    identity = Identity(
        key,
        customer_id,
        platform_id,
        platform_customer_id,
        card_id,
        account_id,
        issuer_transaction_token,
        currency,
        descriptor,
        mcc,
        country,
        created_at,
    )
    state = CardTransaction(
        sequence=sequence,
        authorizations=authorizations,
        authorized=authorized,
        settled=settled,
        settlement_count=settlement_count,
        refunded=refunded,
        refund_count=refund_count,
        pulled=pulled,
        pull_count=pull_count,
        pending=pending,
        pending_count=pending_count,
        open_pull=open_pull,
        unpaid=unpaid,
        released=released,
        release_count=release_count,
        closed_by=None if closed_by is None else Closure(closed_by),
        declined=declined,
        decline_reason=None if decline_reason is None else DeclineReason(decline_reason),
    )
    if written_off:
        state.written_off = written_off
        state.debits_written_off = debits_written_off
    if credit_authorized is not None:
        state.credit_authorized = credit_authorized
    conversion = None
    if merchant_amount is not None:
        conversion = Conversion(
            merchant_amount=merchant_amount,
            merchant_currency=merchant_currency,
            billing_amount=billing_amount,
            rate=conversion_rate,
        )
    return RollUp(
        identity, state, debt_since, debt_id, expires_at, last_event_at, updated_at, conversion
    )
