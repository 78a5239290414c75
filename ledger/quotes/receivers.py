"""Receivers: the owners of UMA addresses, here and elsewhere, and the ids of their look-ups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.exchange.rates import VALIDITY, window_start
from cardledger.ledger.ports import UmaFailedError, UmaNetwork, UmaReceiver
from cardledger.ledger.storage.ids import derived_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, PresentedSecret, Purpose
from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The owner of a UMA address.

    `accounts` has its internal accounts by currency where it is a customer of this installation,
    whose id and platform are then known; `required_fields` what its institution asks about the
    sender, each with whether it is mandatory.
    """

    address: str
    currencies: Sequence[str]
    accounts: Mapping[str, Id] = field(default_factory=dict)
    customer_id: Id | None = None
    platform_id: Id | None = None
    name: str | None = None
    required_fields: Mapping[str, bool] = field(default_factory=dict)


_OF_CUSTOMER: Final = text(
    "SELECT customer_id, platform_id, account_id, currency FROM uma_receiver(:address)"
)


async def of_installation(connection: AsyncConnection, address: str) -> Receiver | None:
    """Return the customer of this installation who has `address`; None: there is none."""
    rows = (await connection.execute(_OF_CUSTOMER, {"address": address})).all()
    if not rows:
        return None
    accounts: dict[str, Id] = {}
    for row in rows:  # The oldest account of a currency is the one that receives.
        accounts.setdefault(row.currency, row.account_id)
    return Receiver(
        address=address,
        currencies=tuple(accounts),
        accounts=accounts,
        customer_id=rows[0].customer_id,
        platform_id=rows[0].platform_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the institution of an address elsewhere has answered, or why it has not.

    `refusal` is why it does not agree to a payment, where it was asked to.
    """

    receiver: UmaReceiver | None = None
    failure: UmaFailedError | None = None
    refusal: UmaFailedError | None = None

    def found(self) -> UmaReceiver | None:
        """Return the owner of the address; None: there is none.

        Raises: UmaFailedError.
        """
        if self.failure is not None:
            raise self.failure
        return self.receiver

    def agreed(self) -> None:
        """Raise UmaFailedError when the institution does not agree to a payment."""
        if self.refusal is not None:
            raise self.refusal


def ask(network: UmaNetwork, address: str, *, to_pay: bool = False) -> Answer:
    """Ask the institution of `address`, and with `to_pay` whether it agrees to a payment.

    It may take long: never while a database connection is held.
    """
    try:
        found = network.find(address)
    except UmaFailedError as error:
        return Answer(failure=error)
    if found is None or not to_pay:
        return Answer(receiver=found)
    try:
        network.accept(address)
    except UmaFailedError as error:
        return Answer(receiver=found, refusal=error)
    return Answer(receiver=found)


def elsewhere(answer: Answer | None) -> Receiver | None:
    """Return the owner of an address elsewhere; None: there is none, or it was not asked for.

    Raises: UmaFailedError.
    """
    found = None if answer is None else answer.found()
    if found is None:
        return None
    return Receiver(
        address=found.address,
        currencies=found.currencies,
        name=found.name,
        required_fields=found.required_fields,
    )


@dataclass(frozen=True, slots=True)
class Lookup:
    """The look-up of a receiver that a caller names, by the id `key`, which is any."""

    key: Id
    keys: KeyRing = field(repr=False)

    def is_of(self, platform_id: Id, subject: str, *, at: datetime) -> bool:
        """Return whether a platform has looked `subject` up, ten minutes ago at most."""
        presented = _presented(self.keys, platform_id, subject)
        times = (at, at - VALIDITY)
        return self.key in {_id(digest, each) for digest in presented.candidates for each in times}


def lookup_id(keys: KeyRing, platform_id: Id, subject: str, *, at: datetime) -> Id:
    """Return the id of a look-up of `subject` by a platform: the same for five minutes.

    Every process of the installation knows it, and no one else can compute it.
    """
    return _id(_presented(keys, platform_id, subject).digest, at)


def _presented(keys: KeyRing, platform_id: Id, subject: str) -> PresentedSecret:
    return keys.presented(f"lookup {platform_id} {subject}", Purpose.LOOK_UP)


def _id(digest: bytes, at: datetime) -> Id:
    return derived_id(f"lookup {digest.hex()}", at=window_start(at))
