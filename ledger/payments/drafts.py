"""Transfers between accounts: looked up, checked, and made into a row that can be submitted.

What is refused here is refused to the caller and leaves no trace. The engine decides again, by the
state of its batch, and what it refuses is a transfer that has failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments import rails
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.payments import parties
from cardledger.ledger.payments.parties import ExternalParty, InternalParty
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import TypedId, format_amount

AUTO: Final = "AUTO"
MANUAL: Final = "MANUAL"


class Refusal(Enum):
    """Why a transfer is not requested."""

    UNKNOWN = auto()  # The owner has no such account.
    SAME_ACCOUNT = auto()
    ACCOUNT = auto()  # Its type, its owner or its status does not allow the transfer.
    UNVERIFIED = auto()  # An external account whose verification is not finished.
    NOT_READY = auto()  # A customer whose identity is not approved.
    CURRENCY = auto()
    RAIL = auto()  # Not a rail of the account.
    RANGE = auto()  # An amount that the rail does not take.
    FUNDS = auto()  # The source has less than the amount.


class RefusedError(Exception):
    """Nothing was written; `field` of the request is the cause, `reason` a code for programs."""

    def __init__(
        self, refusal: Refusal, message: str, *, field: str, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.refusal: Final = refusal
        self.field: Final = field
        self.reason: Final = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A transfer to be requested; `amount` in minor units of the currency of both accounts.

    With `customer_id`, only between accounts of this customer; `agent_id` is who requests it.
    """

    source: TypedId
    destination: TypedId
    amount: int
    payment_rail: str | None = None
    remittance_information: str | None = None
    purpose_of_payment: str | None = None
    customer_id: Id | None = None
    agent_id: Id | None = None


class Draft(Protocol):
    """Makes a transfer of what is wanted: `transfer_out` or `transfer_in`."""

    async def __call__(
        self, connection: AsyncConnection, *, platform_id: Id, wanted: Wanted, at: datetime
    ) -> Transfer: ...


async def transfer_out(
    connection: AsyncConnection, *, platform_id: Id, wanted: Wanted, at: datetime
) -> Transfer:
    """Return the transfer from an internal account to an internal or external one, not recorded.

    Raises: RefusedError.
    """
    source = await _internal(connection, platform_id, wanted, wanted.source, _SOURCE)
    if wanted.destination.resource == "InternalAccount":
        to = await _internal(connection, platform_id, wanted, wanted.destination, _DESTINATION)
        return _between(source, to, wanted, at)
    destination = await _external(connection, platform_id, wanted, wanted.destination, _DESTINATION)
    if destination.owner_id not in {source.owner_id, platform_id} and not source.is_of_platform:
        message = "belongs to another customer; register it for the owner of the source"
        raise RefusedError(Refusal.ACCOUNT, message, field=_DESTINATION)
    _check(source, destination, wanted)
    rail = _rail(destination.rails, source.currency, wanted)
    _check_funds(source, wanted)
    return _transfer(
        source,
        wanted,
        at,
        kind=Kind.OUT,
        payment_rail=rail,
        rail_selection=_selection(rail, wanted),
    )


async def transfer_in(
    connection: AsyncConnection, *, platform_id: Id, wanted: Wanted, at: datetime
) -> Transfer:
    """Return the collection from an external account to an internal one, not recorded.

    Raises: RefusedError.
    """
    source = await _external(connection, platform_id, wanted, wanted.source, _SOURCE)
    destination = await _internal(connection, platform_id, wanted, wanted.destination, _DESTINATION)
    if source.owner_id != destination.owner_id:
        message = "belongs to another owner than the destination; register it for the same one"
        raise RefusedError(Refusal.ACCOUNT, message, field=_SOURCE)
    pulling = [name for name in source.rails if rails.RAILS[name].can_pull]
    if not pulling:
        message = "cannot be collected from: no rail of the account pulls; name a USD_ACCOUNT"
        raise RefusedError(Refusal.ACCOUNT, message, field=_SOURCE, reason="NOT_PULLABLE")
    _check(destination, source, wanted, internal_field=_DESTINATION, external_field=_SOURCE)
    _check_range(pulling[0], source.currency, wanted.amount)
    return _transfer(
        destination,
        wanted,
        at,
        kind=Kind.IN,
        payment_rail=pulling[0],
        rail_selection=AUTO,
    )


# --- accounts ----------------------------------------------------------------------------------

_SOURCE: Final = "source.accountId"
_DESTINATION: Final = "destination.accountId"
_RAIL: Final = "destination.paymentRail"


async def _internal(
    connection: AsyncConnection, platform_id: Id, wanted: Wanted, account: TypedId, field: str
) -> InternalParty:
    if account.resource != "InternalAccount":
        message = "must be an internal account"
        raise RefusedError(Refusal.ACCOUNT, message, field=field)
    found = await parties.internal(connection, platform_id=platform_id, account_id=account.key)
    if found is None or wanted.customer_id not in {None, found.owner_id}:
        raise RefusedError(Refusal.UNKNOWN, "internal account", field=field)
    return found


async def _external(
    connection: AsyncConnection, platform_id: Id, wanted: Wanted, account: TypedId, field: str
) -> ExternalParty:
    if account.resource != "ExternalAccount":
        message = "must be an external account"
        raise RefusedError(Refusal.ACCOUNT, message, field=field)
    found = await parties.external(connection, platform_id=platform_id, account_id=account.key)
    if found is None or wanted.customer_id not in {None, found.owner_id}:
        raise RefusedError(Refusal.UNKNOWN, "external account", field=field)
    return found


def _between(
    source: InternalParty, destination: InternalParty, wanted: Wanted, at: datetime
) -> Transfer:
    """Return the transfer between two internal accounts, of one owner or of two."""
    if source.id == destination.id:
        message = "Source and destination are the same account; name two different accounts."
        raise RefusedError(Refusal.SAME_ACCOUNT, message, field=_DESTINATION)
    if wanted.payment_rail is not None:
        message = "applies to external accounts only; leave it out"
        raise RefusedError(Refusal.RAIL, message, field=_RAIL)
    _check_currencies(source.currency, destination.currency)
    if wanted.agent_id is None:  # An agent's transfer fails instead, as a result of its action.
        _check_active(source, _SOURCE)
        _check_active(destination, _DESTINATION)
        _check_funds(source, wanted)
    if source.owner_id == destination.owner_id:
        return _transfer(source, wanted, at, kind=Kind.INTERNAL)
    return _transfer(
        source,
        wanted,
        at,
        kind=Kind.OUT,
        peer_id=destination.owner_id,
        peer_platform_id=destination.platform_id,
    )


def _check(
    internal: InternalParty,
    external: ExternalParty,
    wanted: Wanted,  # noqa: ARG001 - as the other checks
    *,
    internal_field: str = _SOURCE,
    external_field: str = _DESTINATION,
) -> None:
    """Raise RefusedError unless money may move between `internal` and the outside."""
    _check_currencies(internal.currency, external.currency)
    _check_active(internal, internal_field)
    if external.status in {"PENDING", "UNDER_REVIEW"}:
        message = f"is {external.status}: it can be used once its verification has ended"
        raise RefusedError(
            Refusal.UNVERIFIED, message, field=external_field, reason="ACCOUNT_NOT_ACTIVE"
        )
    _check_active(external, external_field)
    if not (internal.is_ready and external.is_ready):
        message = (
            "The customer's identity is not approved; payments to and from the outside need"
            " kycStatus or kybStatus APPROVED."
        )
        raise RefusedError(Refusal.NOT_READY, message, field=internal_field)


def _check_active(account: InternalParty | ExternalParty, field: str) -> None:
    if not account.is_active:
        message = f"is {account.status}; name an account that is ACTIVE"
        raise RefusedError(Refusal.ACCOUNT, message, field=field, reason="ACCOUNT_NOT_ACTIVE")


def _check_currencies(source: str, destination: str) -> None:
    if source != destination:
        message = (
            f"The source is in {source}, the destination in {destination};"
            " name two accounts of the same currency, or create a quote."
        )
        raise RefusedError(Refusal.CURRENCY, message, field=_DESTINATION)


def _check_funds(source: InternalParty, wanted: Wanted) -> None:
    if wanted.agent_id is None and wanted.amount > source.spendable:
        available = format_amount(source.spendable, source.currency)
        message = f"is above what the source can spend, {available}; lower it or add funds"
        raise RefusedError(Refusal.FUNDS, message, field="amount", reason="INSUFFICIENT_FUNDS")


# --- rails -------------------------------------------------------------------------------------


def _rail(of_account: Sequence[str], currency: str, wanted: Wanted) -> str | None:
    """Return the rail of a payment to an account: the requested one, or the fastest that fits.

    None for a wallet, which is paid by its network.
    """
    if wanted.payment_rail is not None:
        if wanted.payment_rail not in of_account:
            allowed = f"must be one of {', '.join(of_account)}" if of_account else "is for banks"
            message = f"{allowed}: the account has no {wanted.payment_rail}"
            raise RefusedError(Refusal.RAIL, message, field=_RAIL)
        _check_range(wanted.payment_rail, currency, wanted.amount)
        return wanted.payment_rail
    if not of_account:
        return None
    fitting = [name for name in of_account if rails.takes(name, currency, wanted.amount)]
    if not fitting:
        _check_range(of_account[0], currency, wanted.amount)
    return min(fitting, key=lambda name: rails.RAILS[name].seconds)


def _check_range(rail: str, currency: str, amount: int) -> None:
    if rails.takes(rail, currency, amount):
        return
    limit = rails.RAILS[rail].limit_in(currency)
    message = f"is above what {rail} takes, {format_amount(limit, currency)}; lower it"
    raise RefusedError(Refusal.RANGE, message, field="amount", reason="RAIL_LIMIT")


def _selection(rail: str | None, wanted: Wanted) -> str | None:
    if rail is None:
        return None
    return AUTO if wanted.payment_rail is None else MANUAL


# --- the row -----------------------------------------------------------------------------------


def _transfer(
    owner: InternalParty,
    wanted: Wanted,
    at: datetime,
    *,
    kind: Kind,
    **columns: Any,  # noqa: ANN401 - of the row
) -> Transfer:
    """Return the row of a payment of the owner of the internal account `owner`."""
    rail = columns.get("payment_rail")
    if isinstance(rail, str):
        columns["expected_settlement_at"] = at + timedelta(seconds=rails.RAILS[rail].seconds)
    return Transfer(
        id=new_id(),
        kind=kind.value,
        customer_id=owner.owner_id,
        platform_id=owner.platform_id,
        source_account_id=wanted.source.key,
        destination_account_id=wanted.destination.key,
        amount=wanted.amount,
        currency=owner.currency,
        status=transfers.PENDING,
        failure_reason=None,
        agent_id=wanted.agent_id,
        remittance_information=wanted.remittance_information,
        purpose_of_payment=wanted.purpose_of_payment,
        created_at=at,
        settled_at=None,
        updated_at=at,
        platform_customer_id=owner.platform_customer_id,
        **columns,
    )
