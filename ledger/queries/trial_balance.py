"""The trial balance of a platform as a worker has last computed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.entries import ChartAccount
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CURRENCIES

_ROWS: Final = len(ChartAccount) * len(CURRENCIES)
"""All that a platform can have: of each kind, in each currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """An account of the chart: sums in minor units, which may have more than 64 bits."""

    kind: str
    debits: int
    credits: int

    @property
    def net(self) -> int:
        """What its debits exceed its credits by; negative: a credit balance."""
        return self.debits - self.credits


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBalance:
    """The accounts of one currency."""

    currency: str
    balances: Sequence[Balance]

    @property
    def debits(self) -> int:
        """The sum of all debits."""
        return sum(balance.debits for balance in self.balances)

    @property
    def credits(self) -> int:
        """The sum of all credits."""
        return sum(balance.credits for balance in self.balances)

    @property
    def debit_balances(self) -> int:
        """The sum of the balances on the debit side."""
        return sum(max(balance.net, 0) for balance in self.balances)

    @property
    def credit_balances(self) -> int:
        """The sum of the balances on the credit side."""
        return sum(max(-balance.net, 0) for balance in self.balances)

    @property
    def is_balanced(self) -> bool:
        """Whether debits equal credits."""
        return self.debits == self.credits


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBalances:
    """All currencies, as of a time; None: no worker has computed it yet."""

    as_of: datetime | None
    computed_at: datetime | None
    currencies: Sequence[TrialBalance]


async def read(connection: AsyncConnection, *, platform_id: Id) -> TrialBalances:
    """Return the trial balance of each currency of the platform."""
    progress = (await connection.execute(_PROGRESS)).one()
    columns = tables.trial_balances.c
    rows = await connection.execute(
        select(
            columns.currency,
            columns.kind,
            (columns.debits + columns.recent_debits).label("debits"),
            (columns.credits + columns.recent_credits).label("credits"),
        )
        .where(columns.platform_id == platform_id)
        .order_by(columns.currency, columns.kind)
        .limit(_ROWS)
    )
    by_currency: dict[str, list[Balance]] = {}
    for row in rows:
        balance = Balance(kind=row.kind, debits=int(row.debits), credits=int(row.credits))
        by_currency.setdefault(row.currency, []).append(balance)
    return TrialBalances(
        as_of=progress.as_of,
        computed_at=progress.computed_at,
        currencies=[
            TrialBalance(currency=currency, balances=balances)
            for currency, balances in by_currency.items()
        ],
    )


_PROGRESS: Final = select(
    tables.trial_balance_progress.c.as_of, tables.trial_balance_progress.c.computed_at
)
