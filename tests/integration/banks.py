"""A platform with a network, an account at the bank and people, for tests of bank statements."""

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from cardledger.install import acting, adjustments, bank_statements
from cardledger.install.bank_statements import Result
from cardledger.ledger.bank_statements import reader
from cardledger.ledger.bank_statements.statement import Statement
from cardledger.ledger.engine.approved_adjustments import ApprovedAdjustments
from cardledger.ledger.engine.due_settlements import DueSettlements
from cardledger.ledger.messaging.inbox import Lane
from tests.bank_statements import Line, statement_of
from tests.databases import OwnRoles
from tests.finance_world import Network
from tests.integration import office as offices
from tests.integration.office import FIRST, Office
from tests.world import INBOX_KEY, World

DAY: Final = FIRST + timedelta(days=9)
_accounts: Final = count(1)


def after(days: int) -> date:
    return DAY + timedelta(days=days)


def book(world: World) -> list[str]:
    """Enqueue what is due, and decide it; return the outcomes."""
    with psycopg.connect(world.worker_url) as connection:
        DueSettlements(INBOX_KEY).enqueue_due(connection, datetime.now(UTC))
    return [str(each.outcome) for each in world.drain(world.engine(), Lane.BULK)]


def book_moves(world: World) -> None:
    """Enqueue the moves that are approved, and book them."""
    with psycopg.connect(world.worker_url) as connection:
        ApprovedAdjustments(INBOX_KEY).enqueue_due(connection, datetime.now(UTC))
    world.drain(world.engine(), Lane.BULK)


@dataclass(slots=True)
class Bank:
    """A platform of its own with a network and an account at the bank."""

    office: Office
    network: Network
    account: str = field(default_factory=lambda: f"ACCOUNT-{next(_accounts)}")
    closing: int = 0

    @property
    def platform(self) -> Any:  # noqa: ANN401 - an id
        return self.network.cardholder.owner.platform_id

    def owes(self, day: date, amount: int, **changes: str) -> str:
        """Import a file by which `amount` is due to the network; return its file_id."""
        name = f"{self.network.name}-{day}-{next(_accounts)}"
        kind, fees = ("FEE", amount) if amount > 0 else ("FEE_REVERSAL", -amount)
        row = {"record": "D", "type": kind, "amount": str(fees), "currency": "USD"} | changes
        self.network.imported(day, [row], file_id=name)
        return name

    def take(self, data: bytes, *, keep: bool = True, statement_id: str | None = None) -> Result:
        file = io.BytesIO(data)

        def read() -> Statement:
            return reader.read(file, account=self.account, statement_id=statement_id)

        summary = reader.check(file, read())
        with acting.as_person(self.network.login, may="prepare", reply_limit_s=None) as session:
            return bank_statements.import_statement(
                session, self.platform, summary, read(), keep=keep
            )

    def says(self, *lines: Line, statement_id: str | None = None) -> Result:
        """Import a statement that follows the one before, and check its proof."""
        statement_id = statement_id or f"S-{next(_accounts)}"
        result = self.take(statement_of(*lines, opening=self.closing), statement_id=statement_id)
        self.closing = result.closing
        total = sum(int(each["amount"]) for each in lines)
        assert result.proof.file == total == result.closing - result.opening
        assert result.proof.ledger + result.proof.difference == total
        assert sum(each.difference for each in result.breaks) == result.proof.difference
        return result

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.office.world.rows(query, self.platform)

    def kinds(self) -> Counter[tuple[str, str, int]]:
        """Return kind, state and difference of each break of statements."""
        return Counter(
            self.rows(
                "SELECT kind, state, difference::bigint FROM finance.breaks"
                " WHERE platform_id = %s AND statement_id IS NOT NULL"
            )
        )

    def open_breaks(self) -> list[tuple[Any, ...]]:
        """Return kind, state and difference of the breaks of statements that are open."""
        return self.rows(
            "SELECT kind, state, difference::bigint FROM finance.breaks WHERE platform_id = %s"
            " AND statement_id IS NOT NULL AND state IN ('open', 'investigating') ORDER BY 1, 3"
        )

    def keys(self, kind: str) -> list[tuple[Any, ...]]:
        """Return id and difference of the breaks of `kind`."""
        return [
            row[1:]
            for row in self.rows(
                "SELECT kind, break_id, difference FROM finance.breaks WHERE platform_id = %s"
            )
            if row[0] == kind
        ]

    def move(
        self,
        break_id: Any,  # noqa: ANN401 - an id
        amount: int,
        *,
        is_in: bool = False,
        bank_account: str = "SETTLEMENT_BANK",
    ) -> Any:  # noqa: ANN401 - an id
        """Prepare a move between the bank and fees of the network."""
        accounts = [bank_account, "NETWORK_FEES"]
        debit, credit = accounts if is_in else accounts[::-1]
        with acting.as_person(self.office.anna, may="prepare") as session:
            return adjustments.prepare_move(
                session,
                self.platform,
                from_account=debit,
                to_account=credit,
                amount=amount,
                currency="USD",
                reason="charges",
                break_id=break_id,
            )

    def reverse(self, key: Any) -> Any:  # noqa: ANN401 - an id
        """Prepare to take back a move of the bank."""
        with acting.as_person(self.office.anna, may="prepare") as session:
            return adjustments.prepare_reversal(session, key, "a statement has it")

    def approve(self, key: Any) -> None:  # noqa: ANN401 - an id
        with acting.as_person(self.office.ben, may="approve") as session:
            assert adjustments.approve(session, key) == "APPROVED"

    def days(self) -> list[tuple[Any, ...]]:
        """Return day, net, paid and open of each day of the network."""
        return self.rows(
            "SELECT settlement_date, net::bigint, paid::bigint, open::bigint"
            " FROM finance.network_days WHERE platform_id = %s ORDER BY settlement_date"
        )

    def balances(self) -> dict[str, int]:
        """Return the net of each account, debits less credits."""
        return dict(
            self.office.world.rows(
                "SELECT account, net::bigint FROM finance.trial_balance(NULL, NULL, %s)"
                " WHERE net <> 0",
                self.platform,
            )
        )


@contextmanager
def proved(own_roles: OwnRoles, folder: Path) -> Iterator[Office]:
    """Yield an office whose books are verified at the end."""
    with offices.opened(own_roles, folder) as made:
        yield made
        book(made.world)
        report = made.world.verify()
        assert report.holds, report.differences


def opened(office: Office) -> Bank:
    """Return a bank of a new platform."""
    cardholder = office.world.cardholder(office.world.platform(), 1_000_000)
    network = Network(office.world, cardholder, office.anna)
    office.world.connection.execute(
        "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, holidays)"
        " VALUES (%s, '2019-01-01', 'UTC', '00:00', '{1,2,3,4,5,6,7}', '{}')",
        [network.name],
    )
    return Bank(office, network)
