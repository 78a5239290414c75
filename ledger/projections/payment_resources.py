"""Transfers, payments and deposits as resources of the API and of webhooks."""

from decimal import Decimal

from cardledger.ledger.core.payments.conversion import Rate
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.core.payments.rails import RAILS
from cardledger.ledger.projections.transfers import COMPLETED, Deposit, Transfer
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import (
    IncomingTransaction,
    OutgoingTransaction,
    PaymentResource,
)
from cardledger.schema.wire.common import money, public_id
from cardledger.schema.wire.payments.parts import (
    AccountDestination,
    AccountSource,
    Counterparty,
    RealtimeFundingSource,
    Refund,
    RequestedField,
    UmaDestination,
    UmaSource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType


def resource(transfer: Transfer) -> PaymentResource:
    """Return `transfer` as a resource: incoming when its money arrives, else outgoing."""
    return incoming_payment(transfer) if transfer.is_incoming else outgoing(transfer)


def webhook_type(transfer: Transfer) -> WebhookType:
    """Return the type of the webhook that announces the status of `transfer`."""
    # A rejected payment has no type of its own: it has failed.
    status = "FAILED" if transfer.status == "REJECTED" else transfer.status
    return WebhookType(f"{_direction(transfer)}_PAYMENT.{status}")


def refund_webhook_type(transfer: Transfer) -> WebhookType:
    """Return the type of the webhook that announces the refund of `transfer`."""
    return WebhookType(f"{_direction(transfer)}_PAYMENT.REFUND_{transfer.refund_status}")


def _direction(transfer: Transfer) -> str:
    return "INCOMING" if transfer.is_incoming else "OUTGOING"


def owner(customer_id: Id, platform_id: Id) -> str:
    """Return the public id of the owner of a payment: a customer, or the platform itself."""
    resource = "PlatformConfig" if customer_id == platform_id else "Customer"
    return public_id(resource, customer_id)


def outgoing(transfer: Transfer) -> OutgoingTransaction:
    """Return `transfer`, whose money leaves an account of its owner."""
    assert transfer.source_account_id is not None, "money leaves an account"
    return OutgoingTransaction(
        id=transfer.id,
        status=transfer.status,
        source=AccountSource(account_id=source_id(transfer)),
        destination=_destination(transfer),
        customer_id=owner(transfer.customer_id, transfer.platform_id),
        platform_customer_id=transfer.platform_customer_id,
        agent_id=transfer.agent_id,
        sent_amount=money(transfer.amount, transfer.currency),
        received_amount=money(transfer.received, transfer.arriving_currency),
        exchange_rate=_exchange_rate(transfer),
        fees=transfer.fee_amount if transfer.kind != Kind.INTERNAL else None,
        quote_id=transfer.quote_id,
        description=transfer.description,
        counterparty_information=_counterparty(transfer),
        payment_rail=transfer.payment_rail,
        rail_selection_mode=transfer.rail_selection,
        expected_settlement_at=transfer.expected_settlement_at,
        settlement_timeline_seconds=_timeline_s(transfer),
        remittance_information=transfer.remittance_information,
        purpose_of_payment=transfer.purpose_of_payment,
        failure_reason=transfer.failure_reason,
        refund=_refund(transfer),
        receipt_delivery_confirmed_at=transfer.receipt_confirmed_at,
        settled_at=transfer.settled_at,
        created_at=transfer.created_at,
        updated_at=transfer.updated_at,
    )


def _counterparty(transfer: Transfer) -> Counterparty | None:
    known = transfer.counterparty_information
    return None if known is None else Counterparty.model_validate(known)


def _timeline_s(transfer: Transfer) -> int | None:
    return None if transfer.payment_rail is None else RAILS[transfer.payment_rail].seconds


def _destination(transfer: Transfer) -> AccountDestination | UmaDestination:
    currency = transfer.arriving_currency
    if transfer.uma_address is not None:
        return UmaDestination(uma_address=transfer.uma_address, currency=currency)
    return AccountDestination(account_id=destination_id(transfer), currency=currency)


def source_id(transfer: Transfer) -> str:
    """Return the public id of the account that `transfer` comes from, which it has."""
    assert transfer.source_account_id is not None, "it comes from an account"
    kind = "ExternalAccount" if transfer.kind == Kind.IN else "InternalAccount"
    return public_id(kind, transfer.source_account_id)


def destination_id(transfer: Transfer) -> str:
    """Return the public id of the account that `transfer` goes to, which it has."""
    assert transfer.destination_account_id is not None, "it goes to an account or an address"
    is_internal = transfer.kind != Kind.OUT or transfer.peer_id is not None
    kind = "InternalAccount" if is_internal else "ExternalAccount"
    return public_id(kind, transfer.destination_account_id)


def incoming_payment(transfer: Transfer) -> IncomingTransaction:
    """Return `transfer`, whose money arrives on an account of its owner."""
    assert transfer.destination_account_id is not None, "money arrives on an account"
    return IncomingTransaction(
        id=transfer.id,
        status=transfer.status,
        source=_source(transfer),
        destination=AccountDestination(
            account_id=destination_id(transfer), currency=transfer.currency
        ),
        customer_id=owner(transfer.customer_id, transfer.platform_id),
        platform_customer_id=transfer.platform_customer_id,
        agent_id=transfer.agent_id,
        received_amount=money(transfer.amount, transfer.currency),
        description=transfer.description,
        remittance_information=transfer.remittance_information,
        purpose_of_payment=transfer.purpose_of_payment,
        requested_receiver_customer_info_fields=_requested(transfer),
        rejection_reason=transfer.rejection_reason,
        expected_settlement_at=transfer.expected_settlement_at,
        counterparty_information=_counterparty(transfer),
        failure_reason=transfer.failure_reason,
        refund=_refund(transfer),
        receipt_delivery_confirmed_at=transfer.receipt_confirmed_at,
        settled_at=transfer.settled_at,
        created_at=transfer.created_at,
        updated_at=transfer.updated_at,
    )


def _requested(transfer: Transfer) -> list[RequestedField] | None:
    if transfer.requested_fields is None:
        return None
    return [RequestedField(name=name, mandatory=True) for name in transfer.requested_fields]


def _source(transfer: Transfer) -> AccountSource | RealtimeFundingSource | UmaSource:
    if transfer.uma_address is not None:
        return UmaSource(uma_address=transfer.uma_address, currency=transfer.currency)
    # An account of another platform says nothing to the receiver, who sees addresses.
    if transfer.source_account_id is None or transfer.own_uma_address is not None:
        return RealtimeFundingSource(
            currency=transfer.currency, remittance_information=transfer.remittance_information
        )
    return AccountSource(account_id=source_id(transfer), currency=transfer.currency)


def _refund(transfer: Transfer) -> Refund | None:
    if transfer.refund_reference is None:
        return None
    assert transfer.refund_status is not None
    assert transfer.refund_initiated_at is not None
    return Refund(
        reference=transfer.refund_reference,
        status=transfer.refund_status,
        initiated_at=transfer.refund_initiated_at,
        settled_at=transfer.refund_settled_at,
        reason=transfer.refund_reason,
    )


def _exchange_rate(transfer: Transfer) -> Decimal | None:
    """Return the price: how many minor units are sent for one that is received."""
    if transfer.rate_numerator is None or transfer.rate_denominator is None:
        return None
    return Rate(transfer.rate_numerator, transfer.rate_denominator).price


def incoming(deposit: Deposit) -> IncomingTransaction:
    """Return `deposit`: it is always completed."""
    return IncomingTransaction(
        id=deposit.id,
        status=COMPLETED,
        source=RealtimeFundingSource(currency=deposit.currency),
        destination=AccountDestination(
            account_id=public_id("InternalAccount", deposit.account_id), currency=deposit.currency
        ),
        customer_id=owner(deposit.customer_id, deposit.platform_id),
        platform_customer_id=deposit.platform_customer_id,
        received_amount=money(deposit.amount, deposit.currency),
        settled_at=deposit.recorded_at,
        created_at=deposit.recorded_at,
        updated_at=deposit.recorded_at,
    )
