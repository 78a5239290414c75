"""Quotes that are made: who pays whom, at which rate, with which fees. Nothing is recorded here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments import rails
from cardledger.ledger.core.payments.conversion import (
    SAME,
    Conversion,
    ConversionRangeError,
    Fees,
    LockedSide,
    Rate,
    converted,
)
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import VALIDITY, Pair, Pricing
from cardledger.ledger.payments import parties
from cardledger.ledger.payments.parties import ExternalParty, InternalParty
from cardledger.ledger.platforms.registry import Platform
from cardledger.ledger.ports import Adapters
from cardledger.ledger.projections import accounts
from cardledger.ledger.quotes import corridors, receivers
from cardledger.ledger.quotes.funding import Instructions
from cardledger.ledger.quotes.receivers import Answer, Lookup
from cardledger.ledger.quotes.records import PENDING, PENDING_AUTHORIZATION, Quote
from cardledger.ledger.quotes.refusals import QuoteRefusedError, Refusal
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CRYPTO, CURRENCIES, TypedId, format_amount
from cardledger.schema.wire.exchange.rates import MAX_QUOTED

_SOURCE: Final = "source.accountId"
_DESTINATION: Final = "destination.accountId"
_UMA: Final = "destination.umaAddress"
_RAIL: Final = "destination.paymentRail"
_AMOUNT: Final = "lockedCurrencyAmount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Funding:
    """Money that is sent from outside: for a customer, or (None) for the platform itself.

    `instructions` were asked for the quote; None: nothing is connected that has some.
    """

    currency: str
    customer_id: Id | None = None
    network: str | None = None
    instructions: Instructions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UmaAddress:
    """A UMA address that is paid; in `currency`, None: the first that it takes."""

    address: str
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A payment to be quoted; `amount` in minor units of the currency of `side`.

    `source_customer_id` is whose account the source has to be, None: any of the platform. With an
    `agent_id`, the agent requests it. `fees` override those of the platform; `fee_currency` is
    what the caller takes their currency for.
    """

    source: TypedId | Funding
    destination: TypedId | UmaAddress
    side: LockedSide
    amount: int
    source_customer_id: Id | None = None
    agent_id: Id | None = None
    payment_rail: str | None = None
    lookup: Lookup | None = None
    fees: Fees | None = None
    fee_currency: str | None = None
    executes_at_once: bool = False
    description: str | None = None
    remittance_information: str | None = None
    purpose_of_payment: str | None = None
    sender_information: Mapping[str, str] | None = None
    answer: Answer | None = None  # Of the institution of a UMA address elsewhere, asked before.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Destination:
    """Who is paid, as the row of a quote has it."""

    currency: str
    account_id: Id | None = None
    external: ExternalParty | None = None
    uma_address: str | None = None
    peer_id: Id | None = None
    peer_platform_id: Id | None = None


async def draft(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    platform: Platform,
    wanted: Wanted,
    *,
    pricing: Pricing,
    adapters: Adapters,
    at: datetime,
) -> Quote:
    """Return the quote of what is `wanted`, which can be executed, not recorded.

    Raises: QuoteRefusedError; UmaFailedError.
    """
    if not is_in_range(wanted.amount):
        message = f"must be from 1 to {MAX_QUOTED}"
        raise QuoteRefusedError(Refusal.RANGE, message, field=_AMOUNT)
    source = await _source(connection, platform, wanted, at)
    destination = await _destination(connection, platform, wanted, source, adapters, at)
    pair = Pair(source.currency, destination.currency)
    rate = await _rate(connection, platform, pair, pricing, at)
    fees = _fees(platform, wanted, pair)
    made = _converted(platform, wanted, pair, rate, fees)
    rail, selection = _rail(destination, wanted, made.received)
    return Quote(
        id=_id_of(wanted.source),
        platform_id=platform.id,
        customer_id=source.owner_id,
        agent_id=wanted.agent_id,
        status=PENDING,
        transaction_id=new_id(),
        source_account_id=source.id,
        is_funded=isinstance(wanted.source, Funding),
        crypto_network=wanted.source.network if isinstance(wanted.source, Funding) else None,
        destination_account_id=destination.account_id,
        is_external=destination.external is not None,
        uma_address=destination.uma_address,
        peer_id=destination.peer_id,
        peer_platform_id=destination.peer_platform_id,
        payment_rail=rail,
        rail_selection=selection,
        sending_currency=pair.source,
        receiving_currency=pair.destination,
        locked_side=made.locked_side.value,
        sending_amount=made.sent,
        receiving_amount=made.received,
        fee_amount=made.fee,
        fee_fixed=fees.fixed,
        fee_bps=fees.bps,
        rate_numerator=rate.numerator,
        rate_denominator=rate.denominator,
        executes_at_once=wanted.executes_at_once,
        description=wanted.description,
        remittance_information=wanted.remittance_information,
        purpose_of_payment=wanted.purpose_of_payment,
        sender_information=wanted.sender_information,
        created_at=at,
        expires_at=at + VALIDITY,
        executed_at=None,
        updated_at=at,
    )


def _id_of(source: TypedId | Funding) -> Id:
    """Return the id of the quote: the one that its instructions have the reference of."""
    if isinstance(source, Funding) and source.instructions is not None:
        return source.instructions.quote_id
    return new_id()


# --- who pays ----------------------------------------------------------------------------------


async def _source(
    connection: AsyncConnection,
    platform: Platform,
    wanted: Wanted,
    at: datetime,
) -> InternalParty:
    if isinstance(wanted.source, Funding):
        account_id = await _funded_account(connection, platform, wanted.source, at)
        field = "source.currency"
    else:
        if wanted.source.resource != "InternalAccount":
            message = (
                "Quotes are paid from internal accounts, or by realtime funding; collecting from an"
                " external account is not implemented. Use transfer-in first."
            )
            raise QuoteRefusedError(Refusal.NOT_SUPPORTED, message, field=_SOURCE)
        account_id, field = wanted.source.key, _SOURCE
    found = await parties.internal(connection, platform_id=platform.id, account_id=account_id)
    if found is None or wanted.source_customer_id not in {None, found.owner_id}:
        message = "is not an internal account of the platform or of the customer; check the id"
        raise QuoteRefusedError(Refusal.INPUT, message, field=field)
    _check_active(found, field)
    if not found.is_ready:
        message = (
            "The customer's identity is not approved; quotes need kycStatus or kybStatus APPROVED."
        )
        raise QuoteRefusedError(Refusal.NOT_READY, message, field=field)
    return found


async def _funded_account(
    connection: AsyncConnection,
    platform: Platform,
    funding: Funding,
    at: datetime,
) -> Id:
    """Return the account on which the money from outside arrives."""
    _check_known(funding.currency, "source.currency")
    if (funding.currency in CRYPTO) != (funding.network is not None):
        message = (
            "is required for a crypto currency"
            if funding.network is None
            else f"is for crypto currencies only, not for {funding.currency}; leave it out"
        )
        raise QuoteRefusedError(Refusal.INPUT, message, field="source.cryptoNetwork")
    # Without instructions nothing was asked: the customer is unknown, or no port is connected.
    if funding.instructions is not None and funding.instructions.ways is None:
        raise _not_connected(funding)
    owner = funding.customer_id
    if owner is None:
        await accounts.open_platform_accounts(
            connection, platform_id=platform.id, currencies=[funding.currency], at=at
        )
        owner = platform.id
    account = tables.internal_accounts.c
    key: Id | None = await connection.scalar(
        _accounts_of(platform.id, owner)
        .where(account.currency == funding.currency)
        .order_by(account.id)
        .limit(1)
    )
    if key is None:
        message = f"is not a currency in which the customer has an account: {funding.currency}"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field="source.currency")
    if funding.instructions is None:
        raise _not_connected(funding)
    return key


def is_in_range(amount: int) -> bool:
    """Return whether an amount can be quoted."""
    return 0 < amount <= MAX_QUOTED


async def can_be_funded(connection: AsyncConnection, *, platform_id: Id, customer_id: Id) -> bool:
    """Return whether there is such a customer, so that a bank may be asked how to fund it."""
    found = await connection.scalar(_accounts_of(platform_id, customer_id).limit(1))
    return found is not None


def _accounts_of(platform_id: Id, owner_id: Id) -> Select[Any]:
    account = tables.internal_accounts.c
    return select(account.id).where(
        account.customer_id == owner_id,
        account.platform_id == platform_id,
        account.status == accounts.ACTIVE,
    )


def _not_connected(funding: Funding) -> QuoteRefusedError:
    by = f" by {funding.network}" if funding.network else ""
    message = f"No instant rail is connected for {funding.currency}{by}; fund an account first."
    return QuoteRefusedError(Refusal.NOT_SUPPORTED, message, field="source.currency")


# --- who is paid -------------------------------------------------------------------------------


async def _destination(  # noqa: PLR0913, PLR0917 - what a destination is checked against
    connection: AsyncConnection,
    platform: Platform,
    wanted: Wanted,
    source: InternalParty,
    adapters: Adapters,
    at: datetime,
) -> _Destination:
    if isinstance(wanted.destination, UmaAddress):
        return await _uma(connection, platform, wanted, wanted.destination, source, adapters, at)
    if wanted.lookup is not None:
        subject = str(wanted.destination.key)
        _check_lookup(wanted.lookup, platform.id, subject, at)
    if wanted.destination.resource == "InternalAccount":
        return await _internal(connection, platform, wanted.destination.key, wanted, source)
    found = await parties.external(
        connection, platform_id=platform.id, account_id=wanted.destination.key
    )
    if found is None or (
        wanted.source_customer_id is not None and found.owner_id != wanted.source_customer_id
    ):
        message = "is not an external account of the platform or of the customer; check the id"
        raise QuoteRefusedError(Refusal.INPUT, message, field=_DESTINATION)
    if found.owner_id not in {source.owner_id, platform.id} and not source.is_of_platform:
        message = "belongs to another customer; register it for the owner of the source"
        raise QuoteRefusedError(Refusal.INPUT, message, field=_DESTINATION)
    if found.status in {"PENDING", "UNDER_REVIEW"}:
        message = f"is {found.status}: it can be paid once its verification has ended"
        raise QuoteRefusedError(
            Refusal.UNVERIFIED, message, field=_DESTINATION, reason="ACCOUNT_NOT_ACTIVE"
        )
    _check_active(found, _DESTINATION)
    _check_known(found.currency, _DESTINATION)
    return _Destination(currency=found.currency, account_id=found.id, external=found)


async def _internal(
    connection: AsyncConnection,
    platform: Platform,
    account_id: Id,
    wanted: Wanted,
    source: InternalParty,
) -> _Destination:
    found = await parties.internal(connection, platform_id=platform.id, account_id=account_id)
    # As by its transfers, an agent moves money between the accounts of its customer.
    if found is None or (wanted.agent_id is not None and found.owner_id != source.owner_id):
        owner = "agent's customer" if wanted.agent_id else "platform or of its customers"
        message = f"is not an internal account of the {owner}; check the id"
        raise QuoteRefusedError(Refusal.INPUT, message, field=_DESTINATION)
    if found.id == source.id:
        message = "Source and destination are the same account; name two different accounts."
        raise QuoteRefusedError(Refusal.SELF, message, field=_DESTINATION)
    _check_active(found, _DESTINATION)
    is_own = found.owner_id == source.owner_id
    if is_own and found.currency == source.currency:
        message = f"Both accounts are in {found.currency}, so there is nothing to quote."
        raise QuoteRefusedError(Refusal.CURRENCY, message, field=_DESTINATION)
    return _Destination(
        currency=found.currency,
        account_id=found.id,
        peer_id=None if is_own else found.owner_id,
        peer_platform_id=None if is_own else found.platform_id,
    )


async def _uma(  # noqa: PLR0913, PLR0917 - what an address is checked against
    connection: AsyncConnection,
    platform: Platform,
    wanted: Wanted,
    destination: UmaAddress,
    source: InternalParty,
    adapters: Adapters,
    at: datetime,
) -> _Destination:
    address = destination.address
    if wanted.lookup is None:
        message = f"is required for a UMA address; look it up with GET /receiver/uma/{address}"
        raise QuoteRefusedError(Refusal.INPUT, message, field="lookupId")
    _check_lookup(wanted.lookup, platform.id, address, at)
    check_allowed(adapters, address)
    found = await receivers.of_installation(connection, address) or receivers.elsewhere(
        wanted.answer
    )
    if found is None:
        raise QuoteRefusedError(Refusal.UNKNOWN_UMA, f"There is no UMA address {address}.")
    missing = [
        name
        for name, is_mandatory in found.required_fields.items()
        if is_mandatory and not (wanted.sender_information or {}).get(name)
    ]
    if missing:
        message = f"must have {', '.join(missing)}, which the receiver's institution asks for"
        raise QuoteRefusedError(Refusal.MISSING_INFO, message, field="senderCustomerInfo")
    if found.customer_id is None and wanted.answer is not None:
        wanted.answer.agreed()
    currency = destination.currency or found.currencies[0]
    if currency not in found.currencies:
        message = f"must be one of {', '.join(found.currencies)}, which the receiver takes"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field="destination.currency")
    if found.customer_id == source.owner_id:
        message = "The UMA address is the payer's own; name another one."
        raise QuoteRefusedError(Refusal.SELF, message, field=_UMA)
    return _Destination(
        currency=currency,
        account_id=found.accounts.get(currency),
        uma_address=address,
        peer_id=found.customer_id,
        peer_platform_id=found.platform_id,
    )


def check_allowed(adapters: Adapters, address: str) -> None:
    """Raise QuoteRefusedError when payments to the institution of `address` are not allowed."""
    domain = address.rpartition("@")[2]
    providers = () if adapters.directory is None else adapters.directory.uma_providers()
    if any(one.domain == domain and not one.is_allowed for one in providers):
        message = f"Payments to {domain} are not allowed; see GET /uma-providers."
        raise QuoteRefusedError(Refusal.NOT_ALLOWED, message, field=_UMA)


def _check_lookup(lookup: Lookup, platform_id: Id, subject: str, at: datetime) -> None:
    if not lookup.is_of(platform_id, subject, at=at):
        message = "is not a look-up of this receiver, or older than five minutes; look it up again"
        raise QuoteRefusedError(Refusal.UNKNOWN_LOOKUP, message, field="lookupId")


def _check_active(account: InternalParty | ExternalParty, field: str) -> None:
    if not account.is_active:
        message = f"is {account.status}; name an account that is ACTIVE"
        raise QuoteRefusedError(Refusal.INPUT, message, field=field, reason="ACCOUNT_NOT_ACTIVE")


def _check_known(currency: str, field: str) -> None:
    if currency not in CURRENCIES:
        message = f"is in {currency}, which is not a currency of this installation"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field=field)


# --- what it costs -----------------------------------------------------------------------------


async def _rate(
    connection: AsyncConnection,
    platform: Platform,
    pair: Pair,
    pricing: Pricing,
    at: datetime,
) -> Rate:
    if pair.source == pair.destination:
        return SAME
    known = await rates.read(connection, [pair], platform_id=platform.id, pricing=pricing, at=at)
    rate = known.rate(*pair)
    if rate is None:
        message = f"There is no rate from {pair.source} to {pair.destination} now; retry later."
        raise QuoteRefusedError(Refusal.RATE, message, reason="QUOTE_RATE_UNAVAILABLE")
    return rate


def _fees(platform: Platform, wanted: Wanted, pair: Pair) -> Fees:
    if wanted.fees is None:
        return corridors.fees_of(platform, pair.source)
    if wanted.fee_currency != pair.source:
        message = f"must be {pair.source}, the currency that is sent"
        field = "platformFeeOverride.platformFixedFee.currency.code"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field=field)
    return wanted.fees


def _converted(
    platform: Platform, wanted: Wanted, pair: Pair, rate: Rate, fees: Fees
) -> Conversion:
    try:
        made = converted(wanted.side, wanted.amount, rate, fees)
    except ConversionRangeError as error:
        raise QuoteRefusedError(Refusal.RANGE, str(error), field=_AMOUNT) from None
    limits = corridors.limits_of(platform, pair.source, rate, fees)
    if not limits.allow(made.sent):
        least = format_amount(limits.least, pair.source)
        largest = format_amount(limits.largest, pair.source)
        message = (
            f"would send {format_amount(made.sent, pair.source)}; from {least} to {largest} can be"
            " sent"
        )
        raise QuoteRefusedError(Refusal.RANGE, message, field=_AMOUNT)
    return made


def _rail(
    destination: _Destination, wanted: Wanted, received: int
) -> tuple[str | None, str | None]:
    """Return the rail of a payout and how it was selected: the requested one, or the fastest."""
    of_account = destination.external.rails if destination.external else ()
    if wanted.payment_rail is not None and wanted.payment_rail not in of_account:
        has = f"it has {', '.join(of_account)}" if of_account else "it has none"
        message = f"is not a rail of the destination: {has}"
        raise QuoteRefusedError(Refusal.INPUT, message, field=_RAIL)
    if not of_account:
        return None, None
    names = [wanted.payment_rail] if wanted.payment_rail else list(of_account)
    fitting = [name for name in names if rails.takes(name, destination.currency, received)]
    if not fitting:
        limit = max(rails.RAILS[name].limit_in(destination.currency) for name in names)
        most = format_amount(limit, destination.currency)
        message = f"is above what {', '.join(names)} takes, {most}; lower it"
        raise QuoteRefusedError(Refusal.RANGE, message, field=_AMOUNT, reason="RAIL_LIMIT")
    fastest = min(fitting, key=lambda name: rails.RAILS[name].seconds)
    return fastest, "AUTO" if wanted.payment_rail is None else "MANUAL"


def authorized_first(quote: Quote) -> Quote:
    """Return `quote` as one that its customer has to authorize first."""
    return replace(quote, status=PENDING_AUTHORIZATION)
