"""Balances of the finance schema at any day and time, against a replay of the entries in Python."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.databases import as_role
from tests.world import Cardholder, World, open_world

START: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAYS: Final = 40
STEPS: Final = 60
KINDS: Final = (
    *("deposit", "AUTHORIZATION", "AUTHORIZATION", "CLEARING", "CLEARING", "RETURN"),
    *("CLEARING_REVERSAL", "RETURN_REVERSAL", "AUTHORIZATION_REVERSAL"),
)
SETTLED: Final = {"CLEARING", "RETURN", "CLEARING_REVERSAL", "RETURN_REVERSAL"}
SIDE: Final = {"ASSET": "D", "EXPENSE": "D", "LIABILITY": "C", "INCOME": "C"}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, with the kinds and currency of its accounts."""

    subject: Id
    sequence: int
    line: int
    debit: Id
    credit: Id
    debit_kind: str
    credit_kind: str
    currency: str
    platform: Id
    amount: int
    posted_on: date
    recorded_at: datetime


def play(world: World, platform: Id, rng: random.Random) -> list[Cardholder]:
    """Let cardholders buy, return and fall into debt for some weeks; return them."""
    cardholders = [world.cardholder(platform) for _ in range(3)]
    now = START
    tokens: dict[str, Cardholder] = {}
    for step in range(STEPS):
        now += timedelta(seconds=rng.randint(1, 2 * DAYS * 86_400 // STEPS))
        engine = world.engine(clock=lambda at=now: at)  # type: ignore[misc]
        events: list[tuple[Cardholder | None, Mapping[str, Any]]] = []
        for cardholder in cardholders:
            token = f"T{step}-{cardholder.account_id}"
            past = [name for name, owner in tokens.items() if owner is cardholder] or [token]
            other = rng.choice(past)
            kind = rng.choice(KINDS)
            amount = rng.randint(1, 3_000)
            if kind == "deposit":
                event = world.deposit(cardholder, amount)
            elif kind == "AUTHORIZATION":
                tokens[token] = cardholder
                event = world.authorization(cardholder, token, amount)
            else:
                name = token if rng.random() < 0.2 else other
                tokens[name] = cardholder
                event = world.event(kind, cardholder, name, amount)
            days = timedelta(days=rng.randint(0, 4))
            event |= {"occurredAt": (now - days).isoformat()}
            if kind in SETTLED and rng.random() < 0.5:
                day = (now - timedelta(days=rng.randint(-2, 6))).date()
                event |= {"settlement": {"network": "VISA", "settlementDate": str(day)}}
            events.append((cardholder, event))
        world.process(engine, events)
    return cardholders


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    """Two platforms with the random lives of cardholders."""
    rng = random.Random(17)  # noqa: S311 - the same lives each time
    with open_world(database_url, app_database_url) as made:
        made.connection.execute("UPDATE books SET first_open_day = %s", [START.date()])
        for _ in range(2):
            holders = play(made, made.platform(), rng)
            other = made.another_account(holders[0])
            made.process(made.engine(), [(holders[0], made.transfer(holders[0], other, 1))])
        add_totals(made)
        assert made.verify().holds
        yield made


def add_totals(world: World) -> None:
    """Leave some entries without totals, of the pages and of each account."""
    world.add_totals(page_entries=40, account_entries=7)
    [(pages, last)] = world.rows(
        "SELECT count(DISTINCT recorded_until), max(recorded_until) FROM posting_totals"
    )
    [(without,)] = world.rows("SELECT count(*) FROM entries WHERE recorded_at > %s", last)
    [(of_accounts,)] = world.rows("SELECT count(DISTINCT account_id) FROM account_totals")
    assert (pages > 5, of_accounts > 3) == (True, True)
    assert 0 < without < 40


@pytest.fixture(scope="module")
def entries(world: World) -> Sequence[Entry]:
    found = [
        Entry(*row)
        for row in world.rows(
            "SELECT e.subject_id, e.sequence, e.line, e.debit_account_id, e.credit_account_id,"
            " coalesce(d.kind, 'CUSTOMER'), coalesce(c.kind, 'CUSTOMER'),"
            " coalesce(d.currency, c.currency), coalesce(d.platform_id, c.platform_id), e.amount,"
            " e.posted_on, e.recorded_at FROM entries e"
            " LEFT JOIN system_accounts d ON d.id = e.debit_account_id"
            " LEFT JOIN system_accounts c ON c.id = e.credit_account_id"
            " ORDER BY e.subject_id, e.sequence, e.line"
        )
    ]
    kinds = {kind for entry in found for kind in (entry.debit_kind, entry.credit_kind)}
    assert kinds >= {"CUSTOMER", "CARD_HOLDS", "NETWORK_SETTLEMENT", "RECEIVABLE", "SUSPENSE"}
    return found


@pytest.fixture(scope="module")
def finance(world: World) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(as_role(world.app_url, Role.FINANCE), autocommit=True) as connection:
        yield connection


MOMENTS: Final = st.tuples(
    st.dates(START.date() - timedelta(days=5), START.date() + timedelta(days=2 * DAYS + 5)),
    st.datetimes(
        START.replace(tzinfo=None) - timedelta(days=1),
        START.replace(tzinfo=None) + timedelta(days=2 * DAYS),
        timezones=st.just(UTC),
    ),
)


def counted(entries: Sequence[Entry], on: date, known: datetime) -> list[Entry]:
    return [entry for entry in entries if entry.posted_on <= on and entry.recorded_at <= known]


@settings(max_examples=40)
@given(MOMENTS)
def test_items_of_suspense_add_up_to_its_balance(
    finance: psycopg.Connection[Any], entries: Sequence[Entry], moment: tuple[date, datetime]
) -> None:
    on, known = moment
    sums: dict[tuple[Id, str], int] = defaultdict(int)
    for entry in counted(entries, on, known):
        sums[entry.platform, entry.currency] += entry.amount * (
            (entry.credit_kind == "SUSPENSE") - (entry.debit_kind == "SUSPENSE")
        )

    items: dict[tuple[Id, str], int] = defaultdict(int)
    for platform, currency, amount in finance.execute(
        "SELECT platform_id, currency, open_amount FROM finance.suspense(%s, %s)", [on, known]
    ):
        items[platform, currency] += amount

    assert {key: amount for key, amount in items.items() if amount} == {
        key: amount for key, amount in sums.items() if amount
    }


def net(entries: Sequence[Entry], account: Id) -> int:
    """Return debits less credits of `account`."""
    return sum(
        entry.amount * ((entry.debit == account) - (entry.credit == account)) for entry in entries
    )


@settings(max_examples=40)
@given(MOMENTS)
def test_the_trial_balance_is_that_of_a_replay(
    finance: psycopg.Connection[Any], entries: Sequence[Entry], moment: tuple[date, datetime]
) -> None:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    of_platform: dict[tuple[Id, str], list[int]] = defaultdict(lambda: [0, 0])
    for entry in counted(entries, *moment):
        for side, kind in enumerate((entry.debit_kind, entry.credit_kind)):
            sums[entry.currency, kind][side] += entry.amount
            of_platform[entry.platform, kind][side] += entry.amount

    rows = finance.execute("SELECT * FROM finance.trial_balance(%s, %s)", moment).fetchall()

    assert {(row[2], row[0]): [row[3], row[4]] for row in rows} == sums
    assert all(net == debits - credits_ for _, _, _, debits, credits_, net, _ in rows)
    assert sum(row[5] for row in rows) == 0
    for platform in {entry.platform for entry in entries}:
        own = finance.execute(
            "SELECT account, debits, credits, platform_id FROM finance.trial_balance(%s, %s, %s)",
            [*moment, platform],
        ).fetchall()
        assert {(platform, kind): [debits, credits_] for kind, debits, credits_, _ in own} == {
            key: value for key, value in of_platform.items() if key[0] == platform
        }
        assert {row[3] for row in own} <= {platform}


@settings(max_examples=20)
@given(MOMENTS)
def test_the_balance_of_every_account_is_that_of_a_replay(
    finance: psycopg.Connection[Any], entries: Sequence[Entry], moment: tuple[date, datetime]
) -> None:
    known = counted(entries, *moment)

    rows = finance.execute(
        "SELECT account_id, class, normal_side, finance.balance(account_id, %s, %s)"
        " FROM finance.accounts",
        moment,
    ).fetchall()

    assert len(rows) > 6
    for account, class_, normal_side, balance in rows:
        assert normal_side == SIDE[class_]
        assert balance == net(known, account) * (1 if normal_side == "D" else -1), account


@settings(max_examples=20)
@given(MOMENTS, st.integers(0, DAYS))
def test_a_statement_begins_with_the_balance_before_and_ends_with_the_one_after(
    finance: psycopg.Connection[Any],
    entries: Sequence[Entry],
    moment: tuple[date, datetime],
    days: int,
) -> None:
    to, known_at = moment
    begins = to - timedelta(days=days)
    known = counted(entries, to, known_at)
    accounts = finance.execute(
        "SELECT account_id, normal_side FROM finance.accounts"
        " WHERE kind IN ('CUSTOMER', 'RECEIVABLE')"
    ).fetchall()
    for account, normal_side in accounts:
        sign = 1 if normal_side == "D" else -1
        own = [entry for entry in known if account in {entry.debit, entry.credit}]

        opening, *lines = finance.execute(
            "SELECT posted_on, entry_id, side, amount, balance, event"
            " FROM finance.statement(%s, %s, %s, %s)",
            [account, begins, to, known_at],
        ).fetchall()

        before = [entry for entry in own if entry.posted_on < begins]
        assert opening == (begins, None, None, None, sign * net(before, account), "OPENING")
        assert [row[0] for row in lines] == sorted(row[0] for row in lines)
        assert {(row[1], row[2], row[3]) for row in lines} == {
            (
                f"{entry.subject}:{entry.sequence}:{entry.line}",
                "D" if entry.debit == account else "C",
                entry.amount,
            )
            for entry in own
            if entry.posted_on >= begins
        }
        balance = opening[4]
        for _, _, side, amount, after, event in lines:
            balance += amount if side == normal_side else -amount
            assert after == balance
            assert event != "BOOKED"
        assert balance == sign * net(own, account)


def by_subject(entries: Sequence[Entry], kind: str, *, raises: str) -> dict[Id, int]:
    """Return the sum for each card transaction of an account that `raises` (D or C) increases."""
    sums: dict[Id, int] = defaultdict(int)
    for entry in entries:
        if kind in {entry.debit_kind, entry.credit_kind}:
            is_debit = entry.debit_kind == kind
            sums[entry.subject] += entry.amount if is_debit == (raises == "D") else -entry.amount
    return {subject: amount for subject, amount in sums.items() if amount}


@settings(max_examples=40)
@given(MOMENTS)
def test_holds_and_receivables_of_any_moment_tie_to_their_control_accounts(
    finance: psycopg.Connection[Any], entries: Sequence[Entry], moment: tuple[date, datetime]
) -> None:
    known = counted(entries, *moment)

    holds = finance.execute(
        "SELECT card_transaction_id, held, age_days FROM finance.open_holds(%s, %s)", moment
    ).fetchall()
    owed = finance.execute(
        "SELECT card_transaction_id, owed, owed_since, age_days FROM finance.receivables(%s, %s)",
        moment,
    ).fetchall()
    ages = finance.execute("SELECT age_days FROM finance.suspense(%s, %s)", moment).fetchall()
    balances = "SELECT account, net FROM finance.trial_balance(%s, %s)"
    control = dict(finance.execute(balances, moment).fetchall())

    assert {row[0]: row[1] for row in holds} == by_subject(known, "CARD_HOLDS", raises="C")
    assert all(row[2] >= 0 for row in holds)
    assert all(age >= 0 for (age,) in ages)
    assert {row[0]: row[1] for row in owed} == by_subject(known, "RECEIVABLE", raises="D")
    assert sum(row[1] for row in holds) == -control.get("CARD_HOLDS", 0)
    assert sum(row[1] for row in owed) == control.get("RECEIVABLE", 0)
    for subject, amount, since, age in owed:
        if amount > 0:
            began, posted = debt_since(known, subject)
            assert since == began
            assert age == (moment[0] - min(since.date(), posted)).days >= 0


def debt_since(entries: Sequence[Entry], subject: Id) -> tuple[datetime, date]:
    """Return when the debt of `subject` last rose from nothing, and its earliest posting day."""
    owed, risen = 0, list[Entry]()
    for entry in entries:
        if entry.subject == subject and "RECEIVABLE" in {entry.debit_kind, entry.credit_kind}:
            owed += entry.amount if entry.debit_kind == "RECEIVABLE" else -entry.amount
            risen = [*risen, entry] if owed > 0 else []
    return risen[0].recorded_at, min(entry.posted_on for entry in risen)


def test_a_statement_says_of_an_entry_what_the_journal_says(
    finance: psycopg.Connection[Any],
) -> None:
    found = finance.execute(
        "SELECT j.event, s.event = j.event FROM finance.accounts a"
        " CROSS JOIN finance.statement(a.account_id, NULL, NULL) s"
        " JOIN finance.journal j ON j.entry_id = s.entry_id GROUP BY 1, 2"
    ).fetchall()

    events = {event for event, _ in found}
    assert events >= {"CLEARED", "DEPOSITED", "TRANSFERRED", "SUSPENDED", "SUSPENSE_RESOLVED"}
    assert all(is_same for _, is_same in found)


# --- now ------------------------------------------------------------------------------------------


def test_the_views_of_now_are_the_functions_without_a_limit(
    finance: psycopg.Connection[Any],
) -> None:
    def rows(source: str, columns: str) -> list[tuple[Any, ...]]:
        return finance.execute(
            f"SELECT {columns} FROM finance.{source} ORDER BY card_transaction_id".encode()
        ).fetchall()

    holds, owed = "card_transaction_id, held, age_days", "card_transaction_id, owed, owed_since"
    found = rows("open_holds", holds), rows("receivables", owed)

    assert found == (rows("open_holds(NULL, NULL)", holds), rows("receivables(NULL, NULL)", owed))
    assert all(found)


def test_every_control_account_ties_to_its_sub_ledger(
    world: World, finance: psycopg.Connection[Any]
) -> None:
    control = dict(
        finance.execute("SELECT account, net FROM finance.trial_balance(NULL, NULL)").fetchall()
    )

    [(holds,)] = finance.execute("SELECT sum(held) FROM finance.open_holds")
    [(owed,)] = finance.execute("SELECT sum(owed) FROM finance.receivables")
    [(unpaid,)] = finance.execute("SELECT sum(open) FROM finance.network_days")
    [(balance,)] = world.rows("SELECT sum(balance) FROM internal_accounts")

    assert (holds, owed) == (-control["CARD_HOLDS"], control["RECEIVABLE"])
    assert (unpaid, balance) == (-control["NETWORK_SETTLEMENT"], -control["CUSTOMER"])
    assert control.get("TRANSFERS", 0) == 0


def test_the_journal_is_the_entries_and_the_postings_are_its_sides(
    finance: psycopg.Connection[Any], entries: Sequence[Entry]
) -> None:
    journal = finance.execute(
        "SELECT subject_id, sequence, line, debit_account_id, credit_account_id, debit_kind,"
        " credit_kind, currency, platform_id, amount, posted_on, recorded_at FROM finance.journal"
        " ORDER BY subject_id, sequence, line"
    ).fetchall()
    postings = finance.execute(
        "SELECT entry_id, side, account_id, kind, amount FROM finance.postings"
    ).fetchall()

    assert [Entry(*row) for row in journal] == list(entries)
    sides = [
        (f"{e.subject}:{e.sequence}:{e.line}", *side, e.amount)
        for e in entries
        for side in (("D", e.debit, e.debit_kind), ("C", e.credit, e.credit_kind))
    ]
    assert sorted(postings, key=str) == sorted(sides, key=str)
