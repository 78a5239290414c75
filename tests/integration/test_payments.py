"""Payments in the record: out, in, between owners and currencies; failed, returned, cancelled."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import NoReturn

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.payments.conversion import LockedSide, Rate
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.decisions.payments import messages as engine_messages
from cardledger.ledger.engine.parsing import RejectedError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import rejections
from cardledger.ledger.messaging.inbox import UNROUTED, Lane
from cardledger.ledger.payments import retries
from cardledger.ledger.projections import unfinished_payments
from cardledger.ledger.projections.unfinished_payments import Unfinished
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import RejectionReason
from tests.payments import DELAY, Conversion, Desk
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

EUR = Conversion("EUR", Rate(92, 100))


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    """A world whose books are proved once everything has happened in it."""
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def desk(world: World) -> Desk:
    return Desk(world)


@pytest.fixture
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def payer(world: World, platform: Id) -> Cardholder:
    return world.cardholder(platform, 10_000)


# --- out -----------------------------------------------------------------------------------------


def test_a_payout_is_debited_handed_over_and_completed(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    payment = desk.out(payer, 4_000)

    decided = desk.drain()

    assert outcomes_of(decided) == ["APPLIED"]
    assert desk.steps(payment) == ["DEBITED", "SUBMITTED", "COMPLETED"]
    assert desk.entries(payment) == [
        (1, "CUSTOMER", "OUTBOUND_CLEARING", 4_000, "USD"),
        (3, "OUTBOUND_CLEARING", "SANDBOX_FUNDING", 4_000, "USD"),
    ]
    stored = desk.stored(payment)
    assert (stored.status, stored.settled_at) == ("COMPLETED", desk.now)
    assert world.balance(payer) == 6_000
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -6_000}
    assert desk.webhooks(payment) == [
        ("OUTGOING_PAYMENT.PENDING", "PENDING", None),
        ("OUTGOING_PAYMENT.PROCESSING", "PROCESSING", None),
        ("OUTGOING_PAYMENT.COMPLETED", "COMPLETED", None),
    ]


def test_finance_sees_what_happened_to_a_payment(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.out(payer, 4_000)
    desk.drain()

    journal = world.rows(
        "SELECT event, debit_kind, credit_kind, reference FROM finance.journal"
        " WHERE subject_id = %s ORDER BY sequence",
        payment,
    )
    statement = world.rows(
        "SELECT event, side, amount FROM finance.statement(%s, NULL, NULL)", payer.account_id
    )

    assert journal == [
        ("DEBITED", "CUSTOMER", "OUTBOUND_CLEARING", str(payment)),
        ("COMPLETED", "OUTBOUND_CLEARING", "SANDBOX_FUNDING", str(payment)),
    ]
    assert set(statement) == {
        ("OPENING", None, None),
        ("DEPOSITED", "C", 10_000),
        ("DEBITED", "D", 4_000),
    }


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("002", "INSUFFICIENT_FUNDS"), ("003", "ACCOUNT_INVALID"), ("004", "REJECTED_BY_BANK")],
)
def test_a_payout_that_fails_at_once_is_refunded(
    desk: Desk, payer: Cardholder, ending: str, reason: str
) -> None:
    world, platform = desk.world, payer.owner.platform_id
    payment = desk.out(payer, 4_000, f"1234567{ending}")

    desk.drain()

    stored = desk.stored(payment)
    assert (stored.status, stored.failure_reason) == ("FAILED", reason)
    assert (stored.refund_status, stored.refund_reason) == ("COMPLETED", "TRANSACTION_FAILED")
    assert world.balance(payer) == 10_000
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -10_000}
    assert desk.webhooks(payment) == [
        ("OUTGOING_PAYMENT.PENDING", "PENDING", None),
        ("OUTGOING_PAYMENT.FAILED", "FAILED", "PENDING"),
        ("OUTGOING_PAYMENT.REFUND_PENDING", "FAILED", "PENDING"),
        ("OUTGOING_PAYMENT.REFUND_COMPLETED", "FAILED", "COMPLETED"),
    ]


def test_a_payout_that_fails_later_is_pending_until_then(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.out(payer, 4_000, "1234567005")
    desk.drain()
    waiting = desk.stored(payment)
    during = world.balance(payer)

    desk.pass_time(DELAY - timedelta(seconds=1))
    before = desk.stored(payment).status
    decided = desk.pass_time(timedelta(seconds=1))

    assert (waiting.status, waiting.due_at) == ("PENDING", waiting.updated_at + DELAY)
    assert during == 6_000
    assert before == "PENDING"
    assert "APPLIED" in outcomes_of(decided)
    stored = desk.stored(payment)
    assert (stored.status, stored.refund_status) == ("FAILED", "COMPLETED")
    assert world.balance(payer) == 10_000


def test_a_step_that_is_due_is_enqueued_until_it_is_taken(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.out(payer, 4_000, "1234567005")
    desk.drain()
    schedule = timers.Timers(INBOX_KEY)
    desk.now += DELAY

    with psycopg.connect(world.worker_url) as connection:
        written = [schedule.enqueue_due(connection, desk.now) for _ in range(2)]
    decided = desk.drain()

    assert written == [1, 0]
    assert outcomes_of(decided) == ["APPLIED"]
    assert desk.stored(payment).status == "FAILED"


def test_a_step_that_is_due_without_a_rail_is_taken_once_one_is_connected(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    """It had used up its idempotency key, and the payment never ended."""
    payment = desk.out(payer, 4_000, "1234567005")
    desk.drain()
    connected, desk.engine = desk.engine, world.engine(rail=None, clock=lambda: desk.now)
    desk.now += DELAY
    with psycopg.connect(world.worker_url) as connection:
        sent = timers.Timers(INBOX_KEY).enqueue_due(connection, desk.now)
    # Of a worker with a rail, decided by one without.
    undecided = desk.drain()
    without = timers.Timers(INBOX_KEY, rail_connected=False)
    with psycopg.connect(world.worker_url) as connection:
        repeated = [without.enqueue_due(connection, desk.now) for _ in range(3)]

    desk.engine = connected
    with psycopg.connect(world.worker_url) as connection:
        timers.Timers(INBOX_KEY).enqueue_due(connection, desk.now)
    decided = desk.drain()

    assert (sent, repeated) == (1, [0, 0, 0])
    assert [(each.outcome, each.reason) for each in undecided] == [("IGNORED", "NOT_DUE")]
    assert outcomes_of(decided) == ["APPLIED"]
    assert desk.stored(payment).status == "FAILED"


def test_what_is_not_there_is_not_debited(world: World, desk: Desk, payer: Cardholder) -> None:
    payment = desk.out(payer, 10_001)

    [decided] = desk.drain()

    assert (decided.outcome, decided.reason) == ("DECLINED", "INSUFFICIENT_FUNDS")
    stored = desk.stored(payment)
    assert (stored.status, stored.refund_status, desk.steps(payment)) == ("FAILED", None, [])
    assert world.balance(payer) == 10_000


def test_a_pending_payout_can_be_cancelled_once(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.out(payer, 4_000, "1234567005")
    desk.drain()

    decided = [*desk.cancel(payment), *desk.cancel(payment)]
    desk.pass_time(DELAY)

    assert outcomes_of(decided) == ["APPLIED", "DUPLICATE"]
    stored = desk.stored(payment)
    assert (stored.failure_reason, stored.refund_reason) == ("CANCELLED", "USER_CANCELLATION")
    assert desk.steps(payment) == ["DEBITED", "FAILED", "REFUNDED"]
    assert world.balance(payer) == 10_000


def test_a_fee_for_which_the_platform_has_no_room_is_rejected_and_stops_no_queue(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    own, rich = desk.platform_account(platform), world.cardholder(platform, MAX_AMOUNT)
    desk.pay(rich, own, MAX_AMOUNT)
    desk.drain()
    desk.out(payer, 4_000, fee_amount=10)

    decided = desk.drain()

    assert outcomes_of(decided) == ["APPLIED", "REJECTED"]
    assert decided[-1].reason == "AMOUNT_OUT_OF_RANGE"
    assert world.balance(own) == MAX_AMOUNT
    assert desk.totals(platform)["TRANSFERS", "USD"] == 10


def unfinished_of(world: World, payment: Id) -> list[Unfinished]:
    found = unfinished_payments.find_sync(world.connection, limit=1_000)
    return [each for each in found if each.id == payment]


def refusals(desk: Desk, stopped: list[Unfinished]) -> dict[Id, str]:
    """Let the operator attempt it again; returns why not."""

    async def run() -> dict[Id, str]:
        url = str(desk.world.url)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await retries.retry(connection, stopped, INBOX_KEY, now=desk.now)

    return asyncio.run(run())


def try_again(desk: Desk, stopped: list[Unfinished]) -> list[Decided]:
    """Let the operator attempt it again; returns what was decided."""
    assert not refusals(desk, stopped)
    # A rejected message is retried in the lane of files.
    return [*desk.drain(), *desk.world.drain(desk.engine, Lane.BULK)]


def test_a_fee_that_was_rejected_is_listed_and_delivered_again(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    own, rich = desk.platform_account(platform), world.cardholder(platform, MAX_AMOUNT)
    desk.pay(rich, own, MAX_AMOUNT)
    desk.drain()
    payment = desk.out(payer, 4_000, fee_amount=10)
    desk.drain()

    [stopped] = unfinished_of(world, payment)
    report = world.verify()
    still_full = try_again(desk, [stopped])
    [again] = unfinished_of(world, payment)
    desk.out(own, 1_000)
    desk.drain()
    delivered = try_again(desk, [again])

    assert (stopped.problem, stopped.amount, stopped.account) == ("FEE_REJECTED", 10, "TRANSFERS")
    assert stopped.sentence() in report.unfinished
    assert report.holds  # Nothing differs: it is money that waits for the operator.
    assert outcomes_of(still_full) == ["REJECTED"]
    assert again.rejection_id != stopped.rejection_id
    assert outcomes_of(delivered) == ["APPLIED"]
    assert unfinished_of(world, payment) == []
    assert world.balance(own) == MAX_AMOUNT - 1_000 + 10
    assert ("TRANSFERS", "USD") not in desk.totals(platform)


def test_what_a_sender_has_made_up_is_no_payment_that_stopped(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    done = desk.out(payer, 4_000)
    desk.drain()
    waiting = desk.pay(payer, world.cardholder(platform, 0), 1_000)
    references = [
        "-" * 36 + "/fee",
        "0" * 36 + "/receipt",
        f"{done}/fee",
        f"{waiting}/receipt",
        f"{waiting}/arrival",
    ]

    for sender in (UNROUTED.platform_id, platform):
        for reference in references:
            world.connection.execute(
                "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body,"
                " reason, recorded_at) VALUES (%s, %s, %s, 'engine', %s, '{}', 'MALFORMED', now())",
                [new_id(), UNROUTED.customer_id, sender, reference],
            )

    assert [*unfinished_of(world, done), *unfinished_of(world, waiting)] == []
    assert world.verify().holds
    desk.drain()


def test_a_refund_that_failed_is_listed_and_attempted_again(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    payment = desk.out(payer, 4_000, "1234567007", quote_id=new_id())
    desk.drain()

    [stopped] = unfinished_of(world, payment)
    before = world.balance(payer)
    decided = try_again(desk, [stopped])
    twice = try_again(desk, [stopped])

    assert (stopped.problem, stopped.amount, stopped.account) == (
        "REFUND_FAILED",
        4_000,
        "OUTBOUND_CLEARING",
    )
    assert before == 6_000
    assert outcomes_of(decided) == ["APPLIED"]
    assert outcomes_of(twice) == ["DECLINED"]
    assert world.balance(payer) == 10_000
    assert unfinished_of(world, payment) == []
    assert desk.steps(payment)[-3:] == ["FAILED", "REFUND_FAILED", "REFUNDED"]
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -10_000}


def test_what_is_returned_to_a_closed_account_stands_in_suspense(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    payment = desk.out(payer, 10_000, "1234567005", quote_id=new_id())
    desk.drain()
    completed = desk.stored(payment).status
    world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s", [payer.account_id]
    )

    desk.pass_time(DELAY)

    stored = desk.stored(payment)
    assert completed == "COMPLETED"
    assert (stored.failure_reason, stored.refund_status) == ("PAYOUT_RETURNED", "FAILED")
    assert world.rows(
        "SELECT cause, type, currency, amount, open_amount FROM finance.suspense"
        " WHERE customer_id = %s",
        payer.owner.customer_id,
    ) == [("CLOSED", "PAYOUT_RETURN", "USD", 10_000, 10_000)]
    assert desk.totals(platform) == {
        ("SUSPENSE", "USD"): 10_000,
        ("SANDBOX_FUNDING", "USD"): -10_000,
    }
    assert world.balance(payer) == 0
    assert unfinished_of(world, payment) == []


def test_what_is_returned_to_a_full_account_waits_for_another_attempt(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    payment = desk.out(payer, 10_000, "1234567005", quote_id=new_id())
    desk.drain()
    world.process(desk.engine, [(payer, world.deposit(payer, MAX_AMOUNT))])

    desk.pass_time(DELAY)

    [stopped] = unfinished_of(world, payment)
    assert stopped.account == "OUTBOUND_CLEARING"
    assert outcomes_of(try_again(desk, [stopped])) == ["DECLINED"]
    assert desk.totals(platform)["OUTBOUND_CLEARING", "USD"] == 10_000
    assert unfinished_of(world, payment) == [stopped]


def test_a_payment_whose_arrival_is_rejected_is_refunded_to_its_sender(
    world: World, desk: Desk, payer: Cardholder, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = world.cardholder(platform, 0)

    def refuse(*_: object) -> NoReturn:
        raise RejectedError(RejectionReason.MALFORMED, "not readable")

    monkeypatch.setattr(engine_messages, "arriving", refuse)
    payment = desk.pay(payer, receiver, 4_000)
    decided = desk.drain()
    monkeypatch.undo()

    stored = desk.stored(payment)
    [[rejection_id]] = world.rows(
        "SELECT id FROM rejections WHERE reference = %s", f"{payment}/arrival"
    )
    assert outcomes_of(decided) == ["APPLIED", "REJECTED", "APPLIED"]
    assert (stored.status, stored.failure_reason) == ("FAILED", "INTERNAL_ERROR")
    assert stored.refund_status == "COMPLETED"
    assert (world.balance(payer), world.balance(receiver)) == (10_000, 0)

    async def retry() -> rejections.Retries:
        async with await psycopg.AsyncConnection.connect(str(world.url)) as connection:
            kept = await rejections.find(connection, rejections.Filter(ids=[rejection_id]), limit=1)
            return await rejections.retry(connection, kept, INBOX_KEY, now=desk.now)

    # Else its money would be there twice.
    refused = asyncio.run(retry()).refused
    assert "refunded" in refused[rejection_id]


def test_a_payment_whose_arrival_an_earlier_release_has_rejected_is_refunded_once(
    world: World, desk: Desk, payer: Cardholder, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise RejectedError(RejectionReason.MALFORMED, "not readable")

    receiver = world.cardholder(platform, 0)
    with monkeypatch.context() as earlier:
        earlier.setattr(engine_messages, "arriving", refuse)
        earlier.setattr(engine_messages, "returned", lambda *_: None)
        payment = desk.pay(payer, receiver, 4_000)
        desk.drain()

    [stopped] = unfinished_of(world, payment)
    standing = desk.totals(platform)[stopped.account, stopped.currency]
    decided = try_again(desk, [stopped])
    twice = refusals(desk, [stopped])

    assert (stopped.problem, stopped.amount, standing) == ("ARRIVAL_REJECTED", 4_000, 4_000)
    assert outcomes_of(decided) == ["APPLIED"]
    assert twice == {payment: "Already retried."}
    stored = desk.stored(payment)
    assert (stored.status, stored.refund_status) == ("FAILED", "COMPLETED")
    assert (world.balance(payer), world.balance(receiver)) == (10_000, 0)
    assert unfinished_of(world, payment) == []


def test_an_arrival_from_a_source_that_may_not_send_it_refunds_nothing(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    receiver = world.cardholder(platform, 0)
    payment = desk.pay(payer, receiver, 4_000)
    body = {
        "type": "TRANSFER_ARRIVAL",
        "source": "network",
        "reference": f"{payment}/arrival",
        "originId": str(payment),
        "senderId": str(payer.owner.customer_id),
        "senderPlatformId": str(platform),
    }

    [decided] = world.process(desk.engine, [(receiver, body)])

    assert (decided.outcome, decided.reason) == ("REJECTED", "SOURCE_NOT_ALLOWED")
    assert world.rows("SELECT id FROM inbox WHERE reference = %s", f"{payment}/receipt") == []
    desk.drain()
    assert desk.stored(payment).status == "COMPLETED"
    assert world.balance(receiver) == 4_000


def test_a_payout_that_was_not_begun_is_cancelled_without_a_refund(
    desk: Desk, payer: Cardholder
) -> None:
    """An engine of the previous release has rejected its message, or it comes later."""
    bank = desk.external_account(payer.owner, "1234567890")
    payment = desk.draft(payer, 4_000, bank, Kind.OUT, requested_at=desk.now)
    desk.record(payment)

    [cancelled] = desk.cancel(payment.id)
    desk.begin(payment)
    [late] = desk.drain()

    assert (cancelled.outcome, late.outcome) == ("APPLIED", "REJECTED")
    stored = desk.stored(payment.id)
    assert (stored.status, stored.failure_reason) == ("FAILED", "CANCELLED")
    assert (stored.refund_status, desk.steps(payment.id)) == (None, [])
    assert desk.world.balance(payer) == 10_000


def test_a_payout_that_was_handed_over_cannot_be_cancelled(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.out(payer, 4_000)
    desk.drain()

    [decided] = desk.cancel(payment)

    assert (decided.outcome, decided.reason) == ("DECLINED", "NOT_CANCELLABLE")
    assert world.balance(payer) == 6_000


def test_without_a_rail_a_payout_waits_and_can_be_cancelled(world: World, platform: Id) -> None:
    desk = Desk(world)
    payer = world.cardholder(platform, 10_000)
    desk.engine = world.engine(rail=None, clock=lambda: desk.now)
    payment = desk.out(payer, 4_000)

    desk.drain()
    waiting = desk.stored(payment)
    desk.cancel(payment)

    assert (waiting.status, waiting.due_at, waiting.sequence) == ("PENDING", None, 1)
    assert desk.stored(payment).status == "FAILED"
    assert world.balance(payer) == 10_000


# --- by quotes -----------------------------------------------------------------------------------


def test_a_slow_payout_of_a_quote_takes_twelve_delays(desk: Desk, payer: Cardholder) -> None:
    payment = desk.out(payer, 4_000, "1234567003", quote_id=payer.card_id)
    desk.drain()
    desk.pass_time(11 * DELAY)
    before = desk.stored(payment).status

    desk.pass_time(DELAY)

    assert before == "PROCESSING"
    assert desk.stored(payment).status == "COMPLETED"


def test_a_returned_payout_fails_and_is_refunded_without_the_fee(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    own = desk.platform_account(platform)
    payment = desk.out(payer, 4_000, "1234567005", quote_id=payer.card_id, fee_amount=50)
    desk.drain()
    completed = desk.stored(payment).status

    desk.pass_time(DELAY)

    stored = desk.stored(payment)
    assert completed == "COMPLETED"
    assert (stored.status, stored.failure_reason) == ("FAILED", "PAYOUT_RETURNED")
    assert (stored.refund_status, stored.settled_at) == ("COMPLETED", None)
    assert (world.balance(payer), world.balance(own)) == (9_950, 50)
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -10_000}


def test_a_refund_that_fails_leaves_the_money_in_clearing(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    payment = desk.out(payer, 4_000, "1234567007", quote_id=payer.card_id, fee_amount=50)

    desk.drain()

    stored = desk.stored(payment)
    assert (stored.status, stored.refund_status) == ("FAILED", "FAILED")
    assert world.balance(payer) == 6_000
    assert desk.totals(platform)["OUTBOUND_CLEARING", "USD"] == 4_000
    assert desk.webhooks(payment)[-1] == ("OUTGOING_PAYMENT.REFUND_FAILED", "FAILED", "FAILED")


def test_a_converted_payout_balances_in_both_currencies(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    own = desk.platform_account(platform)

    payment = desk.out(
        payer, 2_001, "DE89370400440532013000", conversion=EUR, fee_amount=1, quote_id=payer.card_id
    )
    desk.drain()

    assert desk.entries(payment) == [
        (1, "CUSTOMER", "FX", 2_000, "USD"),
        (1, "FX", "OUTBOUND_CLEARING", 1_840, "EUR"),
        (1, "CUSTOMER", "OUTBOUND_CLEARING", 1, "USD"),
        (3, "OUTBOUND_CLEARING", "SANDBOX_FUNDING", 1_840, "EUR"),
        (3, "OUTBOUND_CLEARING", "TRANSFERS", 1, "USD"),
    ]
    assert (world.balance(payer), world.balance(own)) == (7_999, 1)
    assert desk.totals(platform) == {
        ("FX", "USD"): 2_000,
        ("FX", "EUR"): -1_840,
        ("SANDBOX_FUNDING", "USD"): -10_000,
        ("SANDBOX_FUNDING", "EUR"): 1_840,
    }


def test_a_converted_payout_that_fails_is_reversed_exactly(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    desk.out(
        payer, 1_001, "DE89370400440532013004", conversion=EUR, fee_amount=7, quote_id=payer.card_id
    )

    desk.drain()

    assert world.balance(payer) == 10_000
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -10_000}


def test_an_exchange_moves_money_between_two_currencies_of_one_owner(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    euros = world.another_account(payer, currency="EUR")
    own = desk.platform_account(platform)
    locked = Conversion("EUR", Rate(92, 100), LockedSide.RECEIVING)

    payment = desk.exchange(payer, euros, 1_000, locked, fee_amount=5)
    decided = desk.drain()

    assert outcomes_of(decided) == ["APPLIED", "APPLIED"]  # And the fee of the platform.
    assert desk.entries(payment) == [
        (1, "CUSTOMER", "FX", 1_087, "USD"),
        (1, "FX", "CUSTOMER", 1_000, "EUR"),
        (1, "CUSTOMER", "TRANSFERS", 5, "USD"),
    ]
    assert desk.stored(payment).status == "COMPLETED"
    assert [world.balance(each) for each in (payer, euros, own)] == [8_908, 1_000, 5]


def test_money_from_outside_pays_at_once_and_is_refunded_to_the_account(
    world: World, desk: Desk, platform: Id
) -> None:
    payer = world.cardholder(platform)

    paid = desk.out(payer, 3_000, is_funded=True, quote_id=payer.card_id)
    failed = desk.out(payer, 2_000, "1234567002", is_funded=True, quote_id=payer.card_id)
    desk.drain()

    assert (desk.stored(paid).status, desk.stored(failed).status) == ("COMPLETED", "FAILED")
    assert world.balance(payer) == 2_000
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -2_000}


# --- in ------------------------------------------------------------------------------------------


def test_a_pull_is_credited_when_it_has_arrived(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.pull(payer, 2_500)

    desk.drain()

    assert desk.steps(payment) == ["SUBMITTED", "ARRIVED", "CREDITED"]
    assert desk.entries(payment) == [
        (2, "SANDBOX_FUNDING", "INBOUND_CLEARING", 2_500, "USD"),
        (3, "INBOUND_CLEARING", "CUSTOMER", 2_500, "USD"),
    ]
    assert world.balance(payer) == 12_500
    assert desk.webhooks(payment) == [("INCOMING_PAYMENT.COMPLETED", "COMPLETED", None)]


def test_a_pull_that_fails_moves_nothing(world: World, desk: Desk, payer: Cardholder) -> None:
    payment = desk.pull(payer, 2_500, "1234567002")

    desk.drain()

    stored = desk.stored(payment)
    assert (stored.status, stored.failure_reason) == ("FAILED", "INSUFFICIENT_FUNDS")
    assert (stored.refund_status, desk.entries(payment)) == (None, [])
    assert world.balance(payer) == 10_000


# --- between owners ------------------------------------------------------------------------------


def test_a_payment_to_another_customer_is_two_payments(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    receiver = world.cardholder(world.platform())

    payment = desk.pay(payer, receiver, 1_500)
    desk.drain()

    received = desk.arrived(payment)
    assert (desk.stored(payment).status, received.status) == ("COMPLETED", "COMPLETED")
    assert (world.balance(payer), world.balance(receiver)) == (8_500, 1_500)
    assert received.peer_id == payer.owner.customer_id
    assert desk.totals(platform) == {("SANDBOX_FUNDING", "USD"): -8_500}


def test_no_quota_of_transfers_stops_a_payment_that_has_begun(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    receiver = world.cardholder(platform)
    world.connection.execute("INSERT INTO row_quotas VALUES (%s, 'transfers', 1)", [platform])

    payment = desk.pay(payer, receiver, 1_500, fee_amount=100)
    desk.drain()

    assert desk.stored(payment).status == "COMPLETED"
    assert (world.balance(payer), world.balance(receiver)) == (8_500, 1_400)
    assert world.count("stalled_queues") == 0
    inserted = world.rows("SELECT kind FROM transfers WHERE origin_id = %s ORDER BY kind", payment)
    assert inserted == [("FEE",), ("RECEIVED",)]
    with pytest.raises(DBAPIError, match="quota of 1 rows"):
        desk.pay(payer, receiver, 1)


def test_a_payment_to_a_closed_account_comes_back(
    world: World, desk: Desk, payer: Cardholder, platform: Id
) -> None:
    receiver = world.another_account(world.cardholder(platform), status="CLOSED")

    payment = desk.pay(payer, receiver, 1_500)
    desk.drain()

    received = desk.arrived(payment)
    assert (received.status, received.failure_reason) == ("FAILED", "ACCOUNT_CANNOT_RECEIVE")
    stored = desk.stored(payment)
    assert (stored.status, stored.failure_reason) == ("FAILED", "ACCOUNT_CANNOT_RECEIVE")
    assert stored.refund_status == "COMPLETED"
    assert world.balance(payer) == 10_000


def test_a_platform_owns_money_and_pays_its_customers(
    world: World, desk: Desk, platform: Id
) -> None:
    own, customer = desk.platform_account(platform), world.cardholder(platform)
    world.process(desk.engine, [(own, world.deposit(own, 5_000))])

    desk.pay(own, customer, 1_000)
    desk.out(own, 2_000)
    desk.drain()

    assert (world.balance(own), world.balance(customer)) == (2_000, 1_000)
