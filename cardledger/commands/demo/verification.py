"""Verifies a run: replays every event, adds the journal up, accounts for every webhook."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cardledger.commands import verify
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.verification import Report
from cardledger.ledger.core.entries import ChartAccount
from cardledger.schema import connections
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Arrival, Receiver

_POLL_S: Final = 0.05
_NO_PROGRESS_S: Final = 20.0

_DELIVERIES_BY_STATE: Final = """
    SELECT state, count(*) FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND created_at >= %(since)s GROUP BY state
"""
_DELIVERED_IDS: Final = """
    SELECT webhook_id FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND created_at >= %(since)s AND state = 'DELIVERED'
"""
_UNDISPATCHED: Final = "SELECT count(*) FROM outbox WHERE platform_id = %(platform)s"

# Of one platform: what moved to each kind of account, less what moved from it.
_TRIAL_BALANCE: Final = """
    SELECT coalesce(s.kind, 'CUSTOMER'), sum(m.change)::bigint
    FROM (
        SELECT credit_account_id AS id, amount AS change FROM entries
        UNION ALL SELECT debit_account_id, -amount FROM entries
    ) m
    LEFT JOIN system_accounts s ON s.id = m.id
    LEFT JOIN internal_accounts a ON a.id = m.id
    WHERE coalesce(s.platform_id, a.platform_id) = %(platform)s
    GROUP BY 1
"""
_BALANCES: Final = """
    SELECT coalesce(sum(balance), 0)::bigint, coalesce(sum(held), 0)::bigint,
        coalesce(sum(owed), 0)::bigint
    FROM internal_accounts WHERE platform_id = %(platform)s
"""
_STATUSES: Final = """
    SELECT status, count(*) FROM card_transactions WHERE platform_id = %(platform)s
    GROUP BY status ORDER BY count(*) DESC, status
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """What was sent in a run and what was received."""

    sent: int  # Deliveries created by the run.
    delivered: int  # With a successful response.
    pending: int
    verified: int  # Delivered with two valid signatures.
    requests: int  # May exceed `sent`: delivery is at least once.
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every webhook was delivered and verified."""
        return self.sent == self.delivered == self.verified and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of verifying a run."""

    report: Report
    trial_balance: dict[str, int]
    customers_hold: int  # Sum of the account balances.
    held: int
    owed: int
    statuses: dict[str, int]
    webhooks: Webhooks
    refold_seconds: float

    @property
    def sum_of_accounts(self) -> int:
        """Zero when debits equal credits."""
        return sum(self.trial_balance.values())

    @property
    def balances_hold(self) -> bool:
        """Whether the entries add up to the balances, held and owed."""
        books = self.trial_balance
        return (
            books.get(ChartAccount.CUSTOMER, 0) == self.customers_hold
            and books.get(ChartAccount.CARD_HOLDS, 0) == self.held
            and books.get(ChartAccount.RECEIVABLE, 0) == -self.owed
        )

    @property
    def holds(self) -> bool:
        """Whether the verification passed."""
        return (
            self.report.holds
            and not self.sum_of_accounts
            and self.balances_hold
            and self.webhooks.holds
        )


def wait_for_webhooks(
    database_url: DatabaseUrl,
    receiver: Receiver,
    *,
    platform_id: str,
    since: datetime,
    progress: Callable[[int, int], None],
) -> Webhooks:
    """Wait until everything is delivered, or there is no more progress; compare both ends."""
    arguments = {"platform": Id.parse(platform_id), "since": since}
    most_delivered, progress_at = -1, time.monotonic()
    with connections.connect(database_url, reply_limit_s=None, autocommit=True) as connection:
        while True:
            states: dict[str, int] = dict(
                connection.execute(_DELIVERIES_BY_STATE, arguments).fetchall()
            )
            row = connection.execute(_UNDISPATCHED, arguments).fetchone()
            assert row is not None, "count(*) has a row"
            delivered, pending = states.get("DELIVERED", 0), states.get("PENDING", 0) + row[0]
            progress(delivered, delivered + pending)
            if delivered > most_delivered:
                most_delivered, progress_at = delivered, time.monotonic()
            if not pending or time.monotonic() - progress_at > _NO_PROGRESS_S:
                break
            time.sleep(_POLL_S)
        ids = {f"Webhook:{key}" for (key,) in connection.execute(_DELIVERED_IDS, arguments)}
    return _compared(sum(states.values()) + row[0], pending, ids, receiver.received)


def collect(
    database_url: DatabaseUrl,
    *,
    platform_id: str,
    webhooks: Webhooks,
    progress: Callable[[int, int], None],
) -> Verification:
    """Replay every event and add up the journal of the platform."""
    began = time.monotonic()
    report = verify.books(database_url, progress)
    seconds = time.monotonic() - began
    arguments = {"platform": Id.parse(platform_id)}
    with connections.connect(database_url, reply_limit_s=None, autocommit=True) as connection:
        trial_balance: dict[str, int] = dict(
            connection.execute(_TRIAL_BALANCE, arguments).fetchall()
        )
        sums = connection.execute(_BALANCES, arguments).fetchone()
        statuses: dict[str, int] = dict(connection.execute(_STATUSES, arguments).fetchall())
    assert sums is not None, "sums have a row"
    return Verification(
        report=report,
        trial_balance={kind: trial_balance.get(kind, 0) for kind in _ordered(trial_balance)},
        customers_hold=sums[0],
        held=sums[1],
        owed=sums[2],
        statuses=statuses,
        webhooks=webhooks,
        refold_seconds=seconds,
    )


def _compared(
    sent: int, pending: int, delivered: Collection[str], arrivals: Sequence[Arrival]
) -> Webhooks:
    verified = {arrival.webhook_id for arrival in arrivals if arrival.problem is None}
    return Webhooks(
        sent=sent,
        delivered=len(delivered),
        pending=pending,
        verified=len(verified & set(delivered)),
        requests=len(arrivals),
        problems=tuple(sorted({arrival.problem for arrival in arrivals if arrival.problem})),
    )


def _ordered(kinds: Collection[str]) -> list[str]:
    chart = [account.value for account in ChartAccount]
    return sorted(kinds, key=lambda kind: chart.index(kind) if kind in chart else len(chart))
