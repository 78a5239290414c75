"""The lives of card transactions in the tables: waiting, time, debts, and their webhooks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.card_transaction import CardTransaction
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.status import Status
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.records import PARKED_LIMIT, Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.testing.model import Model
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType, RejectionReason
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Event = dict[str, Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()  # Everything that was played here, from zero.
        assert report.holds, report.differences
        [(played,)] = made.rows("SELECT count(*) FROM card_transactions")
        assert report.card_transactions == played > 0


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def engine(world: World) -> Engine:
    return world.engine()


class Life:
    """One cardholder, whose events are processed one by one."""

    def __init__(self, world: World, platform: Id, start: int, *, now: datetime = NOON) -> None:
        self.world = world
        self.now = now
        self.delay = timedelta(seconds=30)
        self.cardholder: Cardholder = world.cardholder(platform)
        self.model = Model()
        if start:
            self.deposit(start)

    @property
    def engine(self) -> Engine:
        return self.world.engine(clock=lambda: self.now, rail=SandboxFundingRail(delay=self.delay))

    def submit(
        self,
        kind: str,
        amount: int | None = None,
        token: str = "T1",  # noqa: S107 - names a card transaction
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> Decided:
        return self.play(self.world.event(kind, self.cardholder, token, amount, **fields))

    def deposit(self, amount: int) -> Decided:
        return self.play(self.world.deposit(self.cardholder, amount))

    def close_card(self) -> Decided:
        return self.play(self.world.card_closed(self.cardholder))

    def play(self, event: Event, lane: Lane = Lane.LIVE) -> Decided:
        expected = self.model.submit(event)
        [decided] = self.world.process(self.engine, [(self.cardholder, event)], lane)
        assert decided.outcome == expected
        self.world.check_books(self.cardholder, self.model)
        return decided

    def run_timers(self, now: datetime) -> list[Decided]:
        self.now = now
        everybody = self.world.run_timers(self.engine, now)
        mine = self.cardholder.owner.customer_id
        decided = [one for one in everybody if one.message.customer_id == mine]
        for one in decided:
            assert one.outcome == self.model.submit(one.message.body)
        self.world.check_books(self.cardholder, self.model)
        return decided

    @property
    def balance(self) -> int:
        return int(self.world.account(self.cardholder)["balance"])

    @property
    def owed(self) -> int:
        return int(self.world.account(self.cardholder)["owed"])

    def column(self, name: str, token: str = "T1") -> Any:  # noqa: ANN401, S107 - JSON
        [(value,)] = self.world.rows(
            f"SELECT {name} FROM card_transactions WHERE account_id = %s"
            " AND issuer_transaction_token = %s",
            self.cardholder.account_id,
            token,
        )
        return value

    def webhooks(self, token: str = "T1") -> list[str]:  # noqa: S107 - no secret
        """Return the statuses that webhooks tell of a card transaction, in their order."""
        return [
            kind.removeprefix("CARD_TRANSACTION.")
            for (kind,) in self.world.rows(
                "SELECT o.type FROM outbox o JOIN card_transactions t ON t.id = o.subject_id"
                " WHERE t.account_id = %s AND t.issuer_transaction_token = %s ORDER BY o.id",
                self.cardholder.account_id,
                token,
            )
        ]


def parked(world: World, cardholder: Cardholder) -> int:
    [(number,)] = world.rows(
        "SELECT count(*) FROM parked WHERE customer_id = %s", cardholder.owner.customer_id
    )
    return int(number)


def state(decided: Decided) -> CardTransaction:
    assert decided.roll_up is not None
    return decided.roll_up.state


# --- flags --------------------------------------------------------------------------------------


def test_what_is_unusual_is_applied_and_flagged(world: World, platform: Id) -> None:
    life = Life(world, platform, 10_000)

    assert life.submit("CLEARING", 100).reason == OutcomeFlag.FORCE_POST
    assert life.submit("CLEARING", 50).reason == OutcomeFlag.LATE_CLEARING
    assert life.submit("RETURN", 150).reason is None
    assert life.submit("RETURN", 1).reason == OutcomeFlag.OVER_REFUND
    life.submit("AUTHORIZATION", 100, "T2")
    assert life.submit("AUTHORIZATION_REVERSAL", 101, "T2").reason == OutcomeFlag.OVER_REVERSAL
    life.submit("AUTHORIZATION", 100, "T3")
    assert life.submit("CLEARING", 60, "T3", final=False).reason is None
    advice = life.submit("AUTHORIZATION_ADVICE", 59, "T3")
    assert (advice.outcome, advice.reason) == (
        OutcomeType.APPLIED,
        OutcomeFlag.ADVICE_BELOW_SETTLED,
    )
    assert life.submit("RETURN", 10, "T4").reason == OutcomeFlag.OVER_REFUND
    life.submit("CLEARING", 10, "T5")
    assert life.submit("FINANCIAL_CREDIT_AUTHORIZATION", 10, "T5").reason is None
    assert life.submit("FINANCIAL_CREDIT_AUTHORIZATION", 1, "T5").reason == OutcomeFlag.OVER_REFUND
    assert life.submit("FINANCIAL_CREDIT_AUTHORIZATION", 10, "T6").reason is None
    assert life.submit("CLEARING", 10, "T4").reason == OutcomeFlag.FORCE_POST


def test_what_has_nothing_to_do_is_ignored_and_says_why(world: World, platform: Id) -> None:
    life = Life(world, platform, 10_000)
    life.submit("AUTHORIZATION", 100)
    life.submit("AUTHORIZATION_REVERSAL")

    again = life.submit("AUTHORIZATION_REVERSAL", 100)
    expired = life.submit("AUTHORIZATION_EXPIRY")

    assert (again.outcome, again.reason) == (OutcomeType.IGNORED, OutcomeFlag.NOTHING_TO_REVERSE)
    assert (expired.outcome, expired.reason) == (OutcomeType.IGNORED, OutcomeFlag.NOT_OPEN)
    assert state(again).status is Status.VOIDED
    assert life.webhooks() == ["AUTHORIZED", "VOIDED"]


def test_a_clearing_on_a_declined_authorization_is_a_force_post(world: World, platform: Id) -> None:
    life = Life(world, platform, 100)
    declined = life.submit("AUTHORIZATION", 101)

    posted = life.submit("CLEARING", 90)

    assert declined.outcome is OutcomeType.DECLINED
    assert (posted.outcome, posted.reason) == (OutcomeType.APPLIED, OutcomeFlag.FORCE_POST)
    assert state(posted).status is Status.SETTLED


def test_a_force_post_that_is_taken_back_is_void(world: World, platform: Id) -> None:
    life = Life(world, platform, 100)
    life.submit("CLEARING", 50, final=False)

    back = life.submit("CLEARING_REVERSAL", 50)
    void = life.column("status"), life.column("expires_at"), life.balance
    life.submit("AUTHORIZATION", 20)

    assert (state(back).status, state(back).status_reason) == (Status.VOIDED, "REVERSED")
    assert void == ("VOIDED", None, 100)
    assert life.webhooks() == ["PARTIALLY_SETTLED", "VOIDED", "AUTHORIZED"]


def test_a_reversed_authorization_may_be_taken_again(world: World, platform: Id) -> None:
    life = Life(world, platform, 100)
    for _ in range(3):
        assert life.submit("AUTHORIZATION", 100).outcome is OutcomeType.APPLIED
        assert life.submit("AUTHORIZATION_REVERSAL").outcome is OutcomeType.APPLIED

    assert (life.balance, life.column("pulled"), life.column("released")) == (100, 300, 300)
    assert life.webhooks() == ["AUTHORIZED", "VOIDED"] * 3


# --- what waits ---------------------------------------------------------------------------------


def test_a_reversal_waits_for_its_authorization(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)

    parked = life.submit("AUTHORIZATION_REVERSAL", 60)
    assert (parked.outcome, parked.reason, parked.roll_up) == (
        OutcomeType.PARKED,
        OutcomeFlag.WAITS,
        None,
    )
    approved = life.submit("AUTHORIZATION", 100)

    assert (state(approved).authorized, state(approved).held) == (40, 40)
    assert life.balance == 960


@pytest.mark.parametrize("together", [True, False])
def test_several_messages_wait_and_are_applied_in_their_order(
    world: World,
    platform: Id,
    engine: Engine,
    together: bool,  # noqa: FBT001 - what a message says
) -> None:
    cardholder, model = world.cardholder(platform, 1000), Model(money=1000)
    story = [
        world.event("RETURN_REVERSAL", cardholder, "T1", 30),
        world.event("CLEARING_REVERSAL", cardholder, "T1", 20),
        world.event("AUTHORIZATION_REVERSAL", cardholder, "T1", 10),
        world.event("AUTHORIZATION_ADVICE", cardholder, "T1", 70),
        world.event("AUTHORIZATION_REVERSAL", cardholder, "T1", 5),
        world.event("AUTHORIZATION", cardholder, "T1", 100),
        world.event("CLEARING", cardholder, "T1", 40, final=False),
        world.event("RETURN", cardholder, "T1", 30),
    ]
    story.insert(3, story[2])
    expected = [model.submit(event) for event in story]

    if together:
        decided = world.process(engine, [(cardholder, event) for event in story])
    else:
        decided = [world.process(engine, [(cardholder, event)])[0] for event in story]

    assert outcomes_of(decided) == expected
    assert expected.count("PARKED") == 5
    assert expected.count("DUPLICATE") == 1
    assert parked(world, cardholder) == 0
    world.check_books(cardholder, model)


def test_a_limited_number_of_events_waits_for_one_card_transaction(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1000)

    def reversals(count: int, purchase: str = "T1") -> list[Decided]:
        events = [world.event("CLEARING_REVERSAL", cardholder, purchase, 1) for _ in range(count)]
        return world.process(engine, [(cardholder, event) for event in events])

    decided = reversals(PARKED_LIMIT + 2)
    elsewhere = reversals(1, "T2")
    [further] = reversals(1)
    world.process(engine, [(cardholder, world.clearing(cardholder, "T1", PARKED_LIMIT))])
    [later] = reversals(1)

    assert outcomes_of(decided) == ["PARKED"] * PARKED_LIMIT + ["REJECTED"] * 2
    assert {decided[-1].reason, further.reason} == {RejectionReason.TOO_MANY_PARKED}
    assert outcomes_of([*elsewhere, later]) == ["PARKED"] * 2  # The clearing is taken back by then.
    assert parked(world, cardholder) == 2
    assert world.balance(cardholder) == 1000
    assert world.rows(
        "SELECT count(*), sum(amount) FROM suspense_items"
        " WHERE customer_id = %s AND resolved_at IS NULL AND reason = 'TOO_MANY_PARKED'",
        cardholder.owner.customer_id,
    ) == [(3, 3)]
    world.check_books(cardholder)


def test_an_event_parked_from_one_lane_is_found_by_the_other(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    waits = world.event("CLEARING_REVERSAL", life.cardholder, "T1", 40)
    life.play(waits, Lane.BULK)

    assert life.play(waits).first_outcome is OutcomeType.PARKED
    life.play(world.event("CLEARING", life.cardholder, "T1", 39, final=False))
    assert parked(world, life.cardholder) == 1
    life.play(world.event("CLEARING", life.cardholder, "T1", 1), Lane.BULK)

    assert parked(world, life.cardholder) == 0
    assert life.balance == 1000
    again = life.play(waits)
    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.PARKED)


def test_a_waiting_message_with_the_same_key_and_another_body_is_rejected(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 1000)
    waits = world.event("RETURN_REVERSAL", life.cardholder, "T1", 40)
    life.play(waits)

    assert life.play(waits | {"amount": 41}).reason == RejectionReason.KEY_REUSED


def test_a_refund_that_pays_its_own_open_pull_frees_what_waited(world: World, platform: Id) -> None:
    life = Life(world, platform, 10)
    life.submit("CLEARING", 100)
    life.submit("RETURN_REVERSAL", 95)

    refunded = life.submit("RETURN", 95)

    assert parked(world, life.cardholder) == 0
    assert state(refunded).pulled == 100
    assert (life.balance, life.owed) == (5, 95)


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mcc", "amount", "days"),
    [
        (None, 5000, 7),
        ("5812", 5000, 7),
        ("5542", 100, 1),
        ("5542", 101, 7),
        ("7011", 5000, 30),
        ("3700", 5000, 30),
        ("7512", 5000, 30),
        ("4411", 5000, 30),
    ],
)
def test_an_authorization_expires_when_its_category_says(
    world: World, platform: Id, mcc: str | None, amount: int, days: int
) -> None:
    life = Life(world, platform, 10_000)
    merchant = {"descriptor": "SHOP"} | ({"mcc": mcc} if mcc else {})
    life.submit("AUTHORIZATION", amount, merchant=merchant)
    end = NOON + timedelta(days=days)

    assert life.column("expires_at") == end
    assert life.run_timers(end - timedelta(microseconds=1)) == []
    [expired] = life.run_timers(end)

    assert (expired.outcome, expired.message.lane) == (OutcomeType.APPLIED, Lane.BULK)
    assert (state(expired).status, state(expired).status_reason) == (Status.VOIDED, "EXPIRED")
    assert life.column("expires_at") is None
    assert life.balance == 10_000
    assert life.run_timers(end + timedelta(days=1)) == []


def test_an_expiry_that_comes_twice_is_decided_once(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 100)
    end = NOON + timedelta(days=7)
    life.now = end

    for _ in range(2):  # Without a drain in between.
        with psycopg.connect(world.app_url) as connection:
            timers.Timers(INBOX_KEY).enqueue_due(connection, end)

    everybody = world.drain(life.engine, Lane.BULK)
    mine = life.cardholder.owner.customer_id
    decided = [one for one in everybody if one.message.customer_id == mine]
    assert outcomes_of(decided) == ["APPLIED"]
    assert life.balance == 1000


def test_everything_that_is_due_is_enqueued_at_once_however_much_it_is(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 10_000)
    many = [world.authorization(life.cardholder, f"T{n}", 1) for n in range(1100)]
    world.process(life.engine, [(life.cardholder, event) for event in many])
    later = NOON + timedelta(days=8)

    with psycopg.connect(world.app_url) as connection:
        enqueued = sum(timers.enqueue_all_due(connection, later, INBOX_KEY))
    life.now = later
    while world.drain(life.engine, Lane.BULK):
        pass

    assert enqueued >= 1100
    assert (life.balance, world.account(life.cardholder)["held"]) == (10_000, 0)


def test_every_approval_starts_the_time_again(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 100)
    life.now = NOON + timedelta(days=5)
    life.submit("AUTHORIZATION_INCREMENT", 100)

    assert life.run_timers(NOON + timedelta(days=11)) == []
    [expired] = life.run_timers(NOON + timedelta(days=12))
    assert state(expired).released == 200


def test_an_expiry_on_its_way_does_not_end_what_was_extended_meanwhile(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 100)
    life.now = NOON + timedelta(days=7)
    with psycopg.connect(world.app_url) as connection:
        timers.Timers(INBOX_KEY).enqueue_due(connection, life.now)
    life.submit("AUTHORIZATION_INCREMENT", 100)

    everybody = world.drain(life.engine, Lane.BULK)

    mine = [
        one for one in everybody if one.message.customer_id == life.cardholder.owner.customer_id
    ]
    assert [(one.outcome, one.reason) for one in mine] == [
        (OutcomeType.IGNORED, OutcomeFlag.EXTENDED)
    ]
    assert life.balance == 800


def test_a_refused_authorization_has_nothing_that_could_expire(world: World, platform: Id) -> None:
    life = Life(world, platform, 10)
    life.submit("AUTHORIZATION", 100)

    expired = life.submit("AUTHORIZATION_EXPIRY")
    forced = life.submit("CLEARING", 5)

    assert (expired.outcome, expired.reason) == (OutcomeType.IGNORED, OutcomeFlag.NOT_OPEN)
    assert forced.reason == OutcomeFlag.FORCE_POST


def test_what_has_partly_cleared_expires_to_settled_and_a_late_clearing_is_accepted(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 10_000)
    life.submit("AUTHORIZATION", 9000)
    life.submit("CLEARING", 4000)
    [expired] = life.run_timers(NOON + timedelta(days=7))

    assert state(expired).status is Status.SETTLED
    late = life.submit("CLEARING", 3000, final=False)

    assert late.reason == OutcomeFlag.LATE_CLEARING
    assert (state(late).settled, life.balance) == (7000, 3000)


def test_what_was_reversed_or_cleared_never_expires(world: World, platform: Id) -> None:
    life = Life(world, platform, 10_000)
    life.submit("AUTHORIZATION", 100)
    life.submit("AUTHORIZATION_REVERSAL")
    life.submit("AUTHORIZATION", 100, "T2")
    life.submit("CLEARING", 100, "T2")
    life.submit("AUTHORIZATION", 10_001, "T3")

    assert life.run_timers(NOON + timedelta(days=400)) == []


# --- pulls that are confirmed later -------------------------------------------------------------

SLOW = {"descriptor": "CAFE 005"}
FAILS = {"descriptor": "CAFE 006"}


def total_balance(life: Life) -> int:
    [(total,)] = life.world.rows(
        "SELECT balance + pending FROM internal_accounts WHERE id = %s", life.cardholder.account_id
    )
    return int(total)


def test_a_slow_pull_is_confirmed_after_the_delay(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    asked = life.submit("AUTHORIZATION", 100, merchant=SLOW)

    assert (state(asked).pending_count, state(asked).status) == (1, Status.AUTHORIZED)
    assert (life.balance, total_balance(life)) == (900, 1000)
    assert life.run_timers(NOON + timedelta(seconds=29)) == []
    [confirmed] = life.run_timers(NOON + timedelta(seconds=30))

    assert (state(confirmed).pending_count, state(confirmed).pulled) == (0, 100)
    assert (life.balance, total_balance(life)) == (900, 900)
    assert life.run_timers(NOON + timedelta(seconds=60)) == []


def test_without_a_delay_the_confirmation_is_due_at_once(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.delay = timedelta(0)
    life.submit("AUTHORIZATION", 100, merchant=SLOW)

    [confirmed] = life.run_timers(NOON)

    assert state(confirmed).pending_count == 0


def test_a_pull_that_fails_is_an_exception_until_other_money_comes(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 100, merchant=FAILS)

    [failed] = life.run_timers(NOON + timedelta(seconds=30))

    # Its own money came back, which does not pay it.
    assert (state(failed).status, state(failed).pulled) == (Status.EXCEPTION, 0)
    assert (life.balance, total_balance(life), life.owed) == (1000, 1000, 0)
    life.deposit(1)
    assert (life.balance, life.column("status")) == (901, "AUTHORIZED")
    assert life.webhooks() == ["AUTHORIZED", "EXCEPTION", "AUTHORIZED"]


def test_a_pull_that_fails_after_its_clearing_is_owed(world: World, platform: Id) -> None:
    life = Life(world, platform, 100)
    life.submit("AUTHORIZATION", 100, merchant=FAILS)
    life.submit("CLEARING", 100, merchant=FAILS)

    [failed] = life.run_timers(NOON + timedelta(seconds=30))

    assert (state(failed).status, state(failed).owed) == (Status.EXCEPTION, 100)
    assert life.balance == 100
    assert life.submit("AUTHORIZATION", 1, "T2").reason == "INSUFFICIENT_FUNDS"
    life.deposit(5)
    assert (life.balance, life.owed, life.column("status")) == (5, 0, "SETTLED")


def test_a_slow_pull_that_was_released_meanwhile_is_answered_all_the_same(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 100)
    life.submit("AUTHORIZATION", 100, merchant=FAILS)
    life.submit("AUTHORIZATION_REVERSAL")

    [failed] = life.run_timers(NOON + timedelta(seconds=30))

    assert (state(failed).pending_count, state(failed).status) == (0, Status.VOIDED)
    assert (life.balance, total_balance(life)) == (100, 100)


def test_outside_the_sandbox_a_descriptor_is_only_a_name(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    real = world.engine(rail=None)
    asked = [
        (
            cardholder,
            world.event("AUTHORIZATION", cardholder, f"T{end}", 10, merchant={"descriptor": end}),
        )
        for end in ("002", "003", "005", "006")
    ]

    decided = world.process(real, asked)

    assert outcomes_of(decided) == ["APPLIED"] * 4
    later = world.run_timers(real, datetime.now(UTC) + timedelta(days=1))
    assert not any(one.message.customer_id == cardholder.owner.customer_id for one in later)


# --- a card that is closed ----------------------------------------------------------------------


def test_closing_a_card_gives_back_what_is_held_on_it(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 100)
    life.submit("AUTHORIZATION", 200, "T2")
    life.submit("CLEARING", 50, "T2", final=False)
    life.submit("AUTHORIZATION", 5000, "T3")
    life.submit("CLEARING", 10, "T4", final=False)

    life.close_card()

    account = life.world.account(life.cardholder)
    assert (account["balance"], account["held"]) == (940, 0)
    statuses = {token: figures["status"] for token, figures in account["transactions"].items()}
    assert statuses == {
        "T1": "VOIDED",
        "T2": "SETTLED",
        "T3": "DECLINED",
        "T4": "SETTLED",
    }
    assert (life.column("closed_by"), life.webhooks()) == ("CARD_CLOSED", ["AUTHORIZED", "VOIDED"])
    late = life.submit("CLEARING", 100)
    assert (late.reason, state(late).status) == (OutcomeFlag.LATE_CLEARING, Status.SETTLED)


def test_closing_a_card_in_the_batch_of_its_purchases_is_the_same(
    world: World, platform: Id
) -> None:
    cardholders = [world.cardholder(platform, 150) for _ in range(2)]
    found = []
    for cardholder, size in zip(cardholders, (100, 1), strict=True):
        story = [
            world.event("AUTHORIZATION", cardholder, "T1", 100),
            world.event("STAND_IN_AUTHORIZATION", cardholder, "T2", 80),
            world.event("CLEARING", cardholder, "T3", 70),
            world.event("CLEARING", cardholder, "T4", 5, final=False),
            world.event("AUTHORIZATION", cardholder, "T5", 1000),
            world.card_closed(cardholder),
        ]
        world.process(world.engine(batch_size=size), [(cardholder, event) for event in story])
        world.check_books(cardholder)
        found.append(world.account(cardholder))

    assert found[0] == found[1]
    # The hold of the first paid the open pull of the second, which then went back too.
    assert found[0]["transactions"]["T3"]["status"] == "SETTLED"
    assert (found[0]["held"], found[0]["owed"], found[0]["balance"]) == (0, 0, 75)


def test_what_is_refunded_to_a_closed_account_pays_what_the_network_takes_back(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 5_000)
    life.submit("CLEARING", 5_000)
    close_account(life)

    life.submit("RETURN", 5_000)
    asked = life.submit("AUTHORIZATION", 100, "T2")
    assert asked.outcome is OutcomeType.DECLINED
    assert (life.balance, life.owed) == (5_000, 0)
    back = life.submit("RETURN_REVERSAL", 5_000)
    assert state(back).status is Status.SETTLED
    assert (life.balance, life.owed) == (0, 0)


def test_what_is_refunded_to_a_closed_account_pays_a_late_clearing(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 5_000)
    life.submit("CLEARING", 5_000)
    close_account(life)

    life.submit("RETURN", 5_000)
    life.submit("CLEARING", 3_000, "T2")
    assert (life.balance, life.owed) == (2_000, 0)
    life.submit("CLEARING", 3_000, "T3")
    assert (life.balance, life.owed) == (2_000, 3_000)
    life.submit("RETURN", 1_000, "T2")
    assert (life.balance, life.owed) == (0, 0)


def close_account(life: Life) -> None:
    """Close the card and its account, as the deletion of their customer requires and does."""
    life.close_card()
    life.model.card_state = "CLOSED"
    life.world.connection.execute(
        "UPDATE cards SET state = 'CLOSED' WHERE id = %s", [life.cardholder.card_id]
    )
    life.world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s",
        [life.cardholder.account_id],
    )


# --- debts --------------------------------------------------------------------------------------


def test_unpaid_refund_reversals_and_open_pulls_are_one_queue_oldest_first(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)
    life.submit("CLEARING", 40, "T0")
    life.submit("RETURN", 100)  # Pays the 40.
    life.submit("CLEARING", 50, "T2")
    life.submit("AUTHORIZATION", 5, "T3")
    assert life.balance == 5
    life.submit("RETURN_REVERSAL", 90)
    life.submit("CLEARING", 12, "T4")
    assert (life.owed, life.model.queue) == (102, ["T1", "T4"])

    life.deposit(84)
    assert (life.balance, life.model.queue) == (89, ["T1", "T4"])  # None is skipped.
    life.deposit(1)
    assert (life.balance, life.model.queue) == (0, ["T4"])
    life.deposit(12)
    assert (life.balance, life.owed) == (0, 0)
    assert life.webhooks() == ["REFUNDED", "EXCEPTION", "REFUNDED"]


@pytest.mark.parametrize(
    "credit", ["DEPOSIT", "RETURN", "AUTHORIZATION_REVERSAL", "EXPIRY", "CARD"]
)
def test_every_credit_pays_debts_and_sends_webhooks(
    world: World, platform: Id, credit: str
) -> None:
    life = Life(world, platform, 100)
    life.submit("AUTHORIZATION", 100, "T2")
    life.submit("CLEARING", 60)
    assert life.webhooks() == ["EXCEPTION"]

    match credit:
        case "DEPOSIT":
            life.deposit(60)
        case "RETURN":
            life.submit("RETURN", 60, "T3")
        case "AUTHORIZATION_REVERSAL":
            life.submit("AUTHORIZATION_REVERSAL", 60, "T2")
        case "EXPIRY":
            life.run_timers(NOON + timedelta(days=7))
        case _:
            life.close_card()

    assert life.webhooks() == ["EXCEPTION", "SETTLED"]
    assert life.owed == 0
    assert world.rows(
        "SELECT count(*), count(DISTINCT o.sequence) FROM outbox o JOIN card_transactions t"
        " ON t.id = o.subject_id WHERE t.account_id = %s AND t.issuer_transaction_token = 'T1'",
        life.cardholder.account_id,
    ) == [(2, 2)]


def test_the_answer_to_a_refund_shows_the_debt_that_it_paid(world: World, platform: Id) -> None:
    life = Life(world, platform, 0)
    life.submit("CLEARING", 60)

    refunded = life.submit("RETURN", 60)

    assert (state(refunded).status, state(refunded).pulled) == (Status.REFUNDED, 60)
    assert state(refunded).sequence == life.column("sequence")


def test_a_clearing_reversal_lowers_what_is_owed(world: World, platform: Id) -> None:
    life = Life(world, platform, 100)
    life.submit("AUTHORIZATION", 100)
    life.submit("CLEARING", 150)
    assert (life.owed, life.column("open_pull")) == (50, 50)

    life.submit("CLEARING_REVERSAL", 50)

    assert (life.owed, life.webhooks()) == (0, ["AUTHORIZED", "EXCEPTION", "SETTLED"])


def test_a_financial_authorization_uses_what_is_there(world: World, platform: Id) -> None:
    life = Life(world, platform, 150)
    life.submit("FINANCIAL_AUTHORIZATION", 100)

    second = life.submit("FINANCIAL_AUTHORIZATION", 50)
    third = life.submit("FINANCIAL_AUTHORIZATION", 1)

    assert (second.outcome, state(second).settled) == (OutcomeType.APPLIED, 150)
    assert (third.outcome, third.reason) == (OutcomeType.DECLINED, "INSUFFICIENT_FUNDS")
    assert (life.balance, life.owed) == (0, 0)


# --- the edge of the books ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ([("AUTHORIZATION", MAX_AMOUNT)], "AUTHORIZATION_INCREMENT"),
        ([("AUTHORIZATION", MAX_AMOUNT)], "STAND_IN_AUTHORIZATION"),
        ([("FINANCIAL_AUTHORIZATION", MAX_AMOUNT)], "FINANCIAL_AUTHORIZATION"),
        ([("CLEARING", MAX_AMOUNT)], "CLEARING"),
        ([("RETURN", 1)], "RETURN"),
    ],
)
def test_what_would_leave_63_bits_is_rejected_and_leaves_no_trace(
    world: World, platform: Id, before: list[tuple[str, int]], kind: str
) -> None:
    cardholder = world.cardholder(platform, MAX_AMOUNT if kind != "RETURN" else MAX_AMOUNT - 1)
    engine = world.engine()
    for name, amount in before:
        [decided] = world.process(
            engine, [(cardholder, world.event(name, cardholder, "T1", amount))]
        )
        assert decided.outcome is OutcomeType.APPLIED
    kept = world.account(cardholder)

    [decided] = world.process(engine, [(cardholder, world.event(kind, cardholder, "T1", 1))])

    expected = RejectionReason.AMOUNT_OUT_OF_RANGE
    if kind == "AUTHORIZATION_INCREMENT":  # Refused first, for it needs funds.
        assert decided.outcome is OutcomeType.DECLINED
    else:
        assert (decided.outcome, decided.reason) in {
            (OutcomeType.REJECTED, expected),
            (OutcomeType.DECLINED, "INSUFFICIENT_FUNDS"),
        }
    assert world.account(cardholder) == kept
    world.check_books(cardholder)


def test_the_largest_amount_goes_through_every_type(world: World, platform: Id) -> None:
    life = Life(world, platform, MAX_AMOUNT)
    big = MAX_AMOUNT
    for kind, token in (
        ("AUTHORIZATION", "T1"),
        ("AUTHORIZATION_REVERSAL", "T1"),
        ("STAND_IN_AUTHORIZATION", "T2"),
        ("AUTHORIZATION_ADVICE", "T2"),
        ("AUTHORIZATION_EXPIRY", "T2"),
        ("FINANCIAL_AUTHORIZATION", "T3"),
        ("CLEARING_REVERSAL", "T3"),
        ("CLEARING", "T4"),
        ("RETURN", "T4"),
        ("RETURN_REVERSAL", "T4"),
    ):
        amount = None if kind == "AUTHORIZATION_EXPIRY" else big
        assert life.submit(kind, amount, token).outcome is OutcomeType.APPLIED
    assert (life.balance, life.column("status", "T4")) == (0, "SETTLED")


def test_a_waiting_message_that_does_not_fit_goes_on_waiting(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 10)
    story = [
        world.event("CLEARING", cardholder, "T1", MAX_AMOUNT),  # Owed: nothing more may be.
        world.event("RETURN_REVERSAL", cardholder, "T2", 100),
        world.event("RETURN", cardholder, "T2", 100, merchant={"descriptor": "SHOP 002"}),
    ]

    decided = world.process(engine, [(cardholder, event) for event in story])

    assert outcomes_of(decided) == ["APPLIED", "PARKED", "APPLIED"]
    assert parked(world, cardholder) == 1
    world.check_books(cardholder)


# --- judgements ---------------------------------------------------------------------------------


def test_a_pull_that_fails_pays_older_debts_with_what_it_gives_back(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 10_000)
    life.submit("AUTHORIZATION", 5000, merchant={"descriptor": "SLOW-006"})
    life.submit("CLEARING", 7000, token="T0")
    assert life.balance == 5000

    life.run_timers(NOON + timedelta(seconds=30))

    standing = world.account(life.cardholder)["transactions"]
    assert standing["T0"]["status"] == "SETTLED"
    assert standing["T1"]["status"] == "EXCEPTION"
    assert life.balance == 3000


def test_an_open_pull_that_shrinks_to_what_is_there_is_paid(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.submit("STAND_IN_AUTHORIZATION", 5000)

    cleared = life.submit("CLEARING", 800, final=True)

    assert (state(cleared).status, life.balance) == (Status.SETTLED, 200)


def test_no_two_approvals_are_for_the_same_money_while_a_hold_is_due(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 0)
    life.submit("STAND_IN_AUTHORIZATION", 500)
    life.deposit(400)

    asked = [life.submit("AUTHORIZATION_INCREMENT", 300) for _ in range(3)]

    assert [one.outcome for one in asked] == [OutcomeType.DECLINED] * 3
    life.deposit(500)  # It pays the hold.
    asked = [life.submit("AUTHORIZATION_INCREMENT", 300) for _ in range(2)]
    assert [one.outcome for one in asked] == [OutcomeType.APPLIED, OutcomeType.DECLINED]
    assert (life.balance, life.column("open_pull"), life.column("pulled")) == (100, 0, 800)


@pytest.mark.parametrize(
    ("kind", "amount"), [("AUTHORIZATION_INCREMENT", 250), ("FINANCIAL_AUTHORIZATION", 150)]
)
def test_an_approval_pays_its_open_pull_before_older_ones(
    world: World, platform: Id, kind: str, amount: int
) -> None:
    life = Life(world, platform, 0)
    life.submit("STAND_IN_AUTHORIZATION", 1000)
    life.submit("CLEARING", 100, "T2", final=False)
    life.deposit(300)

    asked = [life.submit(kind, amount, "T2") for _ in range(2)]

    assert [one.outcome for one in asked] == [OutcomeType.APPLIED, OutcomeType.DECLINED]
    assert (life.balance, life.column("open_pull", "T2")) == (50, 0)
    assert life.column("open_pull", "T1") == 1000


def test_a_force_post_that_is_not_final_expires_after_seven_days(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 10_000)
    life.submit("CLEARING", 4000, final=False)

    [expired] = life.run_timers(NOON + timedelta(days=7))

    assert (expired.outcome, state(expired).status) == (OutcomeType.APPLIED, Status.SETTLED)


def test_a_merchant_that_the_first_event_left_out_is_named_by_the_authorization(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 10_000)
    life.submit("CLEARING", 1000, final=False)

    life.submit("AUTHORIZATION", 8300, merchant={"descriptor": "HOTEL", "mcc": "7011"})

    assert (life.column("descriptor"), life.column("mcc")) == ("HOTEL", "7011")
    assert life.column("expires_at") == NOON + timedelta(days=30)


def test_what_is_held_can_go_back_at_the_end_of_all_numbers(world: World, platform: Id) -> None:
    life = Life(world, platform, 1000)
    life.submit("AUTHORIZATION", 600)

    too_much = world.event("RETURN", life.cardholder, "T9", MAX_AMOUNT - 500)
    [refused] = world.process(life.engine, [(life.cardholder, too_much)])
    life.model.rejected.append(too_much)  # Its money stands in SUSPENSE.
    taken = life.submit("RETURN", MAX_AMOUNT - 1000, token="T8")
    [expired] = life.run_timers(NOON + timedelta(days=7))

    assert (refused.outcome, refused.reason) == (
        OutcomeType.REJECTED,
        RejectionReason.AMOUNT_OUT_OF_RANGE,
    )
    assert taken.outcome is OutcomeType.APPLIED
    assert (state(expired).status, life.balance) == (Status.VOIDED, MAX_AMOUNT)
