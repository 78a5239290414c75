"""Receivers: the owners of UMA addresses, here and elsewhere, and the ids of their look-ups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.exchange.rates import VALIDITY, window_start
from cardledger.ledger.ports import UmaNetwork
from cardledger.ledger.storage.ids import derived_id
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


async def find(
    connection: AsyncConnection, address: str, network: UmaNetwork | None
) -> Receiver | None:
    """Return the owner of `address`, a customer of this installation or elsewhere; None: no one.

    Raises: UmaFailedError.
    """
    rows = (await connection.execute(_OF_CUSTOMER, {"address": address})).all()
    if rows:
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
    found = None if network is None else network.find(address)
    if found is None:
        return None
    return Receiver(
        address=address,
        currencies=found.currencies,
        name=found.name,
        required_fields=found.required_fields,
    )


def lookup_id(platform_id: Id, subject: str, *, at: datetime) -> Id:
    """Return the id of a look-up of `subject` by a platform: the same for five minutes."""
    return derived_id(f"lookup {platform_id} {subject}", at=window_start(at))


def is_lookup(key: Id, platform_id: Id, subject: str, *, at: datetime) -> bool:
    """Return whether `key` is the id of a look-up of `subject`, ten minutes old at most."""
    times = (at, at - VALIDITY)
    return key in {lookup_id(platform_id, subject, at=each) for each in times}
