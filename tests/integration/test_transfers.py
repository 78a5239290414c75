"""Transfers in the record: moved once, or not at all; and who wins when several ask at once."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from threading import Barrier
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import NullPool

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.agents import action_queries, usage
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import (
    ActionRefusal,
    ActionRefusedError,
    Decision,
    RecordedAction,
)
from cardledger.ledger.agents.policy import RefusalReason, Usage
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.exchange.rates import Pricing
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.payments.drafts import Wanted
from cardledger.ledger.projections import transfers
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema import migrate
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import TypedId
from tests.databases import fresh_database
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

Made = TypeVar("Made")

APPROVE = Decision(approve=True)
REJECT = Decision(approve=False, reason="not this one")


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    """A world whose books are proved once everything has happened in it."""
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def two_accounts(world: World, platform: Id, balance: int = 1_000) -> tuple[Cardholder, Cardholder]:
    """Return a cardholder with `balance`, and the same with an empty account beside it."""
    source = world.cardholder(platform, balance)
    return source, world.another_account(source)


def status(world: World, body: dict[str, Any]) -> tuple[str, str | None]:
    [row] = world.rows(
        "SELECT status, failure_reason FROM transfers WHERE id = %s", body["transferId"]
    )
    return row


def entries(world: World, body: dict[str, Any]) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT sequence, line, debit, credit, amount, account_id, balance_after, event"
        " FROM journal WHERE subject_id = %s ORDER BY line",
        body["transferId"],
    )


# --- one transfer ------------------------------------------------------------------------------


def test_a_transfer_is_two_entries_and_two_balances(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    body = world.transfer(source, destination, 400)

    decided = world.process(world.engine(), [(source, body)])

    assert outcomes_of(decided) == ["APPLIED"]
    assert status(world, body) == ("COMPLETED", None)
    assert (world.balance(source), world.balance(destination)) == (600, 400)
    assert entries(world, body) == [
        (0, 0, "CUSTOMER", "TRANSFERS", 400, source.account_id, 600, "TRANSFERRED"),
        (0, 1, "TRANSFERS", "CUSTOMER", 400, destination.account_id, 400, "TRANSFERRED"),
    ]


def test_the_webhooks_of_a_transfer_and_both_balances_are_in_its_commit(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform)
    body = world.transfer(source, destination, 400)

    world.process(world.engine(), [(source, body)])

    [[stamp]] = world.rows("SELECT xmin::text FROM transfers WHERE id = %s", body["transferId"])
    webhooks = world.rows(
        "SELECT type, data ->> 'status' FROM outbox WHERE customer_id = %s AND xmin::text = %s"
        " ORDER BY type",
        source.owner.customer_id,
        stamp,
    )
    assert webhooks == [
        ("INTERNAL_ACCOUNT.BALANCE_UPDATED", "ACTIVE"),
        ("INTERNAL_ACCOUNT.BALANCE_UPDATED", "ACTIVE"),
        ("OUTGOING_PAYMENT.COMPLETED", "COMPLETED"),
    ]


def test_a_transfer_that_is_sent_twice_moves_money_once(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    body = world.transfer(source, destination, 400)

    at_once = world.process(world.engine(), [(source, body), (source, body)])
    later = world.process(world.engine(), [(source, body)])

    assert outcomes_of([*at_once, *later]) == ["APPLIED", "DUPLICATE", "DUPLICATE"]
    assert world.balance(destination) == 400


def test_a_transfer_is_not_executed_again_under_another_reference(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform)
    body = world.transfer(source, destination, 400)
    again = body | {"reference": "elsewhere"}

    at_once = world.process(world.engine(), [(source, body), (source, again)])
    later = world.process(world.engine(), [(source, again | {"reference": "another"})])

    assert [one.reason for one in [*at_once, *later]] == [
        None,
        "UNKNOWN_TRANSFER",
        "UNKNOWN_TRANSFER",
    ]
    assert world.balance(destination) == 400


@pytest.mark.parametrize(
    ("amount", "states", "reason"),
    [
        (1_001, ("ACTIVE", "ACTIVE"), FailureReason.INSUFFICIENT_FUNDS),
        (1, ("FROZEN", "ACTIVE"), FailureReason.ACCOUNT_INVALID),
        (1, ("ACTIVE", "CLOSED"), FailureReason.ACCOUNT_CANNOT_RECEIVE),
        (2**63 - 1, ("ACTIVE", "ACTIVE"), FailureReason.INSUFFICIENT_FUNDS),
    ],
)
def test_a_refused_transfer_fails_and_moves_nothing(
    world: World,
    platform: Id,
    amount: int,
    states: tuple[str, str],
    reason: FailureReason,
) -> None:
    source, destination = two_accounts(world, platform)
    for cardholder, state in zip((source, destination), states, strict=True):
        world.connection.execute(
            "UPDATE internal_accounts SET status = %s WHERE id = %s", [state, cardholder.account_id]
        )
    body = world.transfer(source, destination, amount)

    decided = world.process(world.engine(), [(source, body), (source, body)])

    assert outcomes_of(decided) == ["DECLINED", "DUPLICATE"]
    assert {one.reason for one in decided} == {reason}
    assert status(world, body) == ("FAILED", reason)
    assert (world.balance(source), world.balance(destination)) == (1_000, 0)
    assert entries(world, body) == []


def test_transfers_of_one_batch_see_what_the_ones_before_have_left(
    world: World, platform: Id
) -> None:
    one, other = two_accounts(world, platform)
    there = [world.transfer(one, other, 600), world.transfer(one, other, 600)]
    back = world.transfer(other, one, 500)

    decided = world.process(world.engine(), [(one, body) for body in [*there, back]])

    assert outcomes_of(decided) == ["APPLIED", "DECLINED", "APPLIED"]
    assert (world.balance(one), world.balance(other)) == (900, 100)


def test_the_owed_amount_cannot_be_transferred(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform, 1_000)
    # The network took more than there was: 500 are owed and 1,000 are still there.
    world.process(world.engine(), [(source, world.clearing(source, "T1", 1_500))])
    all_of_it = world.transfer(source, destination, 501)
    what_is_free = world.transfer(source, destination, 1)

    decided = world.process(world.engine(), [(source, all_of_it), (source, what_is_free)])

    assert [one.reason for one in decided] == ["INSUFFICIENT_FUNDS"] * 2


def test_a_received_transfer_pays_the_debts_of_its_account(world: World, platform: Id) -> None:
    card, savings = two_accounts(world, platform, 100)
    world.process(world.engine(), [(savings, world.deposit(savings, 5_000))])
    world.process(world.engine(), [(card, world.clearing(card, "T1", 1_500))])
    assert world.account(card)["transactions"]["T1"]["status"] == "EXCEPTION"

    world.process(world.engine(), [(card, world.transfer(savings, card, 1_400))])

    assert world.account(card)["transactions"]["T1"]["status"] == "SETTLED"
    assert (world.balance(card), world.balance(savings)) == (0, 3_600)


def test_a_message_cannot_execute_a_transfer_of_another_customer(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform)
    other_platform = world.cardholder(platform)
    body = world.transfer(source, destination, 400)

    [decided] = world.process(world.engine(), [(other_platform, body)])

    assert decided.reason == "UNKNOWN_TRANSFER"
    assert status(world, body) == ("PROCESSING", None)
    assert world.balance(source) == 1_000


@pytest.mark.parametrize("sent_body", [{}, {"transferId": "mine"}, {"transferId": None}])
def test_a_message_without_a_transfer_is_rejected(
    world: World, platform: Id, sent_body: dict[str, Any]
) -> None:
    cardholder = world.cardholder(platform)
    body = {"type": "TRANSFER", "source": "transfers", "reference": f"odd {sent_body}", **sent_body}

    [decided] = world.process(world.engine(), [(cardholder, body)])

    assert (decided.outcome, decided.reason) == ("REJECTED", "MALFORMED")


@pytest.mark.parametrize("state", ["CLOSED", "FROZEN"])
def test_no_money_is_put_on_an_account_that_is_not_active(
    world: World, platform: Id, state: str
) -> None:
    cardholder = world.cardholder(platform)
    world.connection.execute(
        "UPDATE internal_accounts SET status = %s WHERE id = %s", [state, cardholder.account_id]
    )

    [decided] = world.process(world.engine(), [(cardholder, world.deposit(cardholder, 400))])

    assert (decided.outcome, decided.reason) == ("REJECTED", "ACCOUNT_NOT_ACTIVE")
    assert world.balance(cardholder) == 0


# --- what the ledger gets wrong ------------------------------------------------------------------


def ended(world: World, body: dict[str, Any]) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT data ->> 'status', data ->> 'failureReason' FROM outbox WHERE subject_id = %s",
        body["transferId"],
    )


def quarantine(world: World, source: Cardholder, body: dict[str, Any]) -> None:
    """Insert `body` with a reference that is too long for the index of its outcome."""
    world.insert_unchecked(source, json.dumps(body), reference=token_hex(20_000))


def test_a_quarantined_transfer_has_failed(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    cursed = world.transfer(source, destination, 400)
    quarantine(world, source, cursed)
    world.accept([(source, world.transfer(source, destination, 100))])

    decided = world.drain(world.engine())

    assert outcomes_of(decided) == ["REJECTED", "APPLIED"]
    assert status(world, cursed) == ("FAILED", FailureReason.INTERNAL_ERROR)
    assert ended(world, cursed) == [("FAILED", "INTERNAL_ERROR")]
    assert (world.balance(source), world.balance(destination)) == (900, 100)


def test_a_quarantined_transfer_is_not_executed_later(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    body = world.transfer(source, destination, 400)
    quarantine(world, source, body)
    world.process(world.engine(), [(source, world.transfer(source, destination, 100))])

    [again] = world.process(world.engine(), [(source, body)])

    assert again.reason == "UNKNOWN_TRANSFER"
    assert world.balance(destination) == 100


def test_a_transfer_that_cannot_even_fail_does_not_stop_the_queue(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform)
    cursed = world.transfer(source, destination, 400)
    quarantine(world, source, cursed)
    world.accept([(source, world.transfer(source, destination, 100))])
    world.connection.execute(
        sql.SQL("ALTER TABLE outbox ADD CONSTRAINT curse CHECK (subject_id <> {})").format(
            cursed["transferId"]
        )
    )
    try:
        decided = world.drain(world.engine())
    finally:
        world.connection.execute("ALTER TABLE outbox DROP CONSTRAINT curse")

    assert outcomes_of(decided) == ["REJECTED", "APPLIED"]
    assert status(world, cursed) == ("PROCESSING", None)


def test_a_transfer_waits_for_the_books_of_its_platform(world: World) -> None:
    incomplete = world.platform()
    source, destination = two_accounts(world, incomplete)
    body = world.transfer(source, destination, 400)
    # A part of its books is not there: only an operator can do that.
    [lost] = world.rows(
        "DELETE FROM system_accounts WHERE platform_id = %s AND kind = 'TRANSFERS' RETURNING *",
        incomplete,
    )

    before = world.process(world.engine(), [(source, body), (source, world.deposit(source, 7))])
    world.connection.execute(
        sql.SQL("INSERT INTO system_accounts VALUES ({})").format(sql.SQL(", ").join(lost))
    )
    after = world.drain(world.engine())

    assert before == []
    assert outcomes_of(after) == ["APPLIED", "APPLIED"]
    assert status(world, body) == ("COMPLETED", None)
    assert (world.balance(source), world.balance(destination)) == (607, 400)


# --- the record guards itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("COMPLETED", "PROCESSING"),
        ("COMPLETED", "FAILED"),
        ("FAILED", "COMPLETED"),
        ("FAILED", "PENDING"),
        ("PROCESSING", "PENDING"),
        ("PENDING", "COMPLETED"),
        ("COMPLETED", "COMPLETED"),
    ],
)
def test_a_transfer_never_returns_to_an_earlier_status(
    world: World, platform: Id, before: str, after: str
) -> None:
    cardholder, other = two_accounts(world, platform)
    [[key]] = world.rows(
        "INSERT INTO transfers (id, customer_id, platform_id, source_account_id,"
        " destination_account_id, amount, currency, status, failure_reason, settled_at, created_at,"
        " updated_at) SELECT gen_random_uuid(), %s, %s, %s, %s, 1, 'USD', s,"
        " CASE s WHEN 'FAILED' THEN 'LIMIT_EXCEEDED' END,"
        " CASE s WHEN 'COMPLETED' THEN now() END, now(), now() FROM (SELECT %s AS s) s"
        " RETURNING id",
        cardholder.owner.customer_id,
        cardholder.owner.platform_id,
        cardholder.account_id,
        other.account_id,
        before,
    )
    statement = (
        "UPDATE transfers SET status = %s, failure_reason = CASE %s WHEN 'FAILED' THEN"
        " 'LIMIT_EXCEEDED' END, settled_at = CASE %s WHEN 'COMPLETED' THEN now() END WHERE id = %s"
    )

    for url in (world.url, world.app_url):
        with (
            psycopg.connect(url) as connection,
            pytest.raises(errors.InsufficientPrivilege, match="does not become"),
        ):
            connection.execute(statement, [after, after, after, key])

    world.connection.execute("DELETE FROM transfers WHERE id = %s", [key])


@pytest.mark.parametrize(
    "deed",
    [
        "UPDATE transfers SET amount = amount + 1",
        "UPDATE transfers SET destination_account_id = source_account_id",
        "UPDATE transfers SET agent_id = NULL",
        "DELETE FROM transfers",
        "UPDATE agent_actions SET agent_id = gen_random_uuid()",
        "DELETE FROM agent_actions",
    ],
)
def test_the_application_role_cannot_change_a_requested_transfer(world: World, deed: str) -> None:
    with (
        psycopg.connect(world.app_url) as connection,
        pytest.raises(errors.InsufficientPrivilege, match="permission denied"),
    ):
        connection.execute(deed.encode())


# --- agents ------------------------------------------------------------------------------------


def asking(world: World, act: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - what `act` returns
    """Run `act` in a database transaction of its own, in an event loop of its own."""

    async def run() -> Any:  # noqa: ANN401 - as above
        engine = async_engine(world.app_url, poolclass=NullPool)
        async with engine.begin() as connection:
            return await act(connection)

    return asyncio.run(run())


def ask(
    world: World, agent_id: Id, source: Cardholder, destination: Cardholder, amount: int
) -> RecordedAction:
    wanted = Wanted(
        source=TypedId("InternalAccount", source.account_id),
        destination=TypedId("InternalAccount", destination.account_id),
        amount=amount,
    )
    made: RecordedAction = asking(
        world,
        lambda connection: agent_actions.request(
            connection,
            platform_id=source.owner.platform_id,
            agent_id=agent_id,
            kind="TRANSFER_OUT",
            wanted=wanted,
            pricing=Pricing(reference=None, spread_bps=0, with_own=True),
            reply_to=None,
            inbox_key=INBOX_KEY,
            at=datetime.now(UTC),
        ),
    )
    return made


def decide(world: World, written: RecordedAction, decision: Decision) -> RecordedAction | None:
    decided: RecordedAction | None = asking(
        world,
        lambda connection: agent_actions.resolve(
            connection,
            platform_id=written.action.transfer.platform_id,
            transaction_id=written.action.transfer.id,
            decision=decision,
            pricing=Pricing(reference=None, spread_bps=0, with_own=True),
            reply_to=None,
            inbox_key=INBOX_KEY,
            at=datetime.now(UTC),
        ),
    )
    return decided


def used(world: World, agent_id: Id, at: datetime | None = None) -> Usage:
    found: Usage = asking(
        world, lambda connection: usage.of_agent(connection, agent_id, at or datetime.now(UTC))
    )
    return found


def at_once(acts: list[Callable[[], Made]]) -> list[Made | Exception]:
    """Return what came of `acts`, all started together, each in a thread of its own."""
    start = Barrier(len(acts))

    def run(act: Callable[[], Made]) -> Made | Exception:
        start.wait()
        try:
            return act()
        except (ActionRefusedError, agent_actions.NotPendingError) as error:
            return error

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_requests_at_once_cannot_together_break_a_limit(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform, 10_000)
    limits = {"currency": "USD", "perTransactionLimit": 100, "dailyLimit": 350}
    agent_id = world.agent(source, spendingLimits=limits)

    made = at_once([lambda: ask(world, agent_id, source, destination, 100)] * 8)
    world.drain(world.engine())

    refused = [one for one in made if isinstance(one, ActionRefusedError)]
    assert len(refused) == 5
    assert {one.reason for one in refused} == {RefusalReason.DAILY_LIMIT}
    assert world.balance(destination) == 300
    assert used(world, agent_id) == Usage(daily_count=3, daily_spend=300, monthly_spend=300)


def test_pending_transfers_count_towards_limits_and_rejected_ones_do_not(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform, 100)
    limits = {"currency": "USD", "perTransactionLimit": 500, "dailyTransactionLimit": 2}
    agent_id = world.agent(source, spendingLimits=limits, defaultExecutionMode="APPROVAL_REQUIRED")
    first = ask(world, agent_id, source, destination, 400)
    second = ask(world, agent_id, source, destination, 50)

    with pytest.raises(ActionRefusedError) as refused:
        ask(world, agent_id, source, destination, 1)
    decide(world, first, APPROVE)
    decide(world, second, REJECT)
    world.drain(world.engine())  # The first fails: there are only 100.

    assert refused.value.reason is RefusalReason.DAILY_TRANSACTION_LIMIT
    assert used(world, agent_id) == Usage()
    assert ask(world, agent_id, source, destination, 1).action.transfer.status == "PENDING"


def test_usage_is_of_the_day_and_the_month_of_utc(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    agent_id = world.agent(source)
    ask(world, agent_id, source, destination, 100)
    [[made_at]] = world.rows("SELECT created_at FROM transfers WHERE agent_id = %s", agent_id)
    midnight = made_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    assert used(world, agent_id, midnight) == Usage(
        daily_count=1, daily_spend=100, monthly_spend=100
    )
    assert used(world, agent_id, midnight + timedelta(days=1)).daily_count == 0
    assert used(world, agent_id, midnight - timedelta(microseconds=1)).daily_spend == 0
    assert used(world, agent_id, midnight + timedelta(days=40)) == Usage()


@pytest.mark.parametrize("_attempt", range(5))
def test_of_an_approval_and_a_rejection_at_once_exactly_one_wins(
    world: World, platform: Id, _attempt: int
) -> None:
    source, destination = two_accounts(world, platform)
    agent_id = world.agent(source, defaultExecutionMode="APPROVAL_REQUIRED")
    waiting = ask(world, agent_id, source, destination, 400)

    made = at_once(
        [
            lambda: decide(world, waiting, APPROVE),
            lambda: decide(world, waiting, REJECT),
            lambda: decide(world, waiting, APPROVE),
            lambda: decide(world, waiting, REJECT),
        ]
    )
    world.drain(world.engine())

    [winner] = [one for one in made if isinstance(one, RecordedAction)]
    assert sum(isinstance(one, agent_actions.NotPendingError) for one in made) == 3
    is_approved = winner.action.transfer.status == transfers.PROCESSING
    assert world.balance(destination) == (400 if is_approved else 0)


def test_an_approval_is_judged_by_the_policy_of_its_moment(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    agent_id = world.agent(source, defaultExecutionMode="APPROVAL_REQUIRED")
    changes = {
        "LIMIT_EXCEEDED": "policy = jsonb_set(policy, '{spendingLimits,perTransactionLimit}', '9')",
        "AGENT_NOT_ALLOWED": "is_paused = true",
    }

    for reason, change in changes.items():
        waiting = ask(world, agent_id, source, destination, 10)
        world.connection.execute(f"UPDATE agents SET {change} WHERE id = %s".encode(), [agent_id])
        decided = decide(world, waiting, APPROVE)
        world.connection.execute(
            "UPDATE agents SET is_paused = false, policy ="
            " jsonb_set(policy, '{spendingLimits,perTransactionLimit}', '1000') WHERE id = %s",
            [agent_id],
        )

        assert decided is not None
        assert decided.message is None
        assert action_queries.status_of(decided.action.transfer) == "FAILED"
        assert decided.action.transfer.failure_reason == reason
    assert world.balance(source) == 1_000


def test_a_pending_transfer_fails_with_its_deleted_agent(world: World, platform: Id) -> None:
    source, destination = two_accounts(world, platform)
    agent_id = world.agent(source, defaultExecutionMode="APPROVAL_REQUIRED")
    waiting = ask(world, agent_id, source, destination, 10)
    world.connection.execute("UPDATE agents SET deleted_at = now() WHERE id = %s", [agent_id])

    decided = decide(world, waiting, APPROVE)

    assert decided is not None
    assert decided.action.transfer.failure_reason == FailureReason.AGENT_NOT_ALLOWED


def test_an_agent_moves_nothing_to_an_account_that_it_may_not_use(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform)
    only = {"allowedAccountIds": [f"InternalAccount:{source.account_id}"]}
    agent_id = world.agent(source, accountRestrictions=only)

    with pytest.raises(ActionRefusedError) as refused:
        ask(world, agent_id, source, destination, 10)

    assert refused.value.refusal is ActionRefusal.POLICY
    assert refused.value.reason is RefusalReason.ACCOUNT_NOT_ALLOWED


def test_a_transfer_and_authorizations_at_once_never_spend_the_same_money(
    world: World, platform: Id
) -> None:
    source, destination = two_accounts(world, platform, 1_000)
    asked = [(source, world.authorization(source, f"A{number}", 100)) for number in range(10)]
    moved = [(source, world.transfer(source, destination, 100)) for _ in range(10)]
    world.accept(asked, Lane.BULK)
    world.accept(moved, Lane.LIVE)
    ended: dict[Lane, list[str]] = {}

    def drain(lane: Lane) -> None:
        decided: list[Any] = []
        world.engine(batch_size=1).drain(lane, [source.shard], decided.extend)
        ended[lane] = outcomes_of(decided)

    at_once([lambda: drain(Lane.BULK), lambda: drain(Lane.LIVE)])

    assert ended[Lane.BULK].count("APPLIED") + ended[Lane.LIVE].count("APPLIED") == 10
    assert world.balance(source) == 0
    assert world.balance(destination) == 100 * ended[Lane.LIVE].count("APPLIED")


# --- the migration -------------------------------------------------------------------------------


def test_platforms_and_deposits_of_before_are_brought_along(postgres_url: DatabaseUrl) -> None:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        migrate.downgrade(url, "0004")
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO platforms (id, name, supported_currencies, signing_key, public_key,"
                " webhook_secret, created_at, updated_at)"
                " VALUES (gen_random_uuid(), 'Old', '{USD,EUR}', '', '', '', now(), now());"
                " INSERT INTO system_accounts SELECT gen_random_uuid(), id, c, 'CARD_HOLDS'"
                " FROM platforms, unnest(supported_currencies) c;"
                " INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type,"
                " status, created_at, updated_at) SELECT gen_random_uuid(), gen_random_uuid(), id,"
                " 'USD', 'INTERNAL_FIAT', 'ACTIVE', now(), now() FROM platforms;"
                " INSERT INTO deposits SELECT gen_random_uuid(), customer_id, id, 5,"
                " gen_random_uuid(), now() FROM internal_accounts"
            )

        migrate.upgrade(url)

        with psycopg.connect(url) as connection:
            kinds = connection.execute(
                "SELECT currency FROM system_accounts WHERE kind = 'TRANSFERS' ORDER BY currency"
            ).fetchall()
            owned = connection.execute(
                "SELECT count(*) FROM deposits JOIN platforms ON platforms.id = platform_id"
            ).fetchone()
            with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
                connection.execute("UPDATE deposits SET amount = 6")
        migrate.downgrade(url, "base")
    assert (kinds, owned) == ([("EUR",), ("USD",)], (1,))
