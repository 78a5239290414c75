"""Rows of payments that no process of this installation has requested move nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pytest
from psycopg.types.json import Jsonb
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import key_rotation, message_findings
from cardledger.install.findings import OK, WARN
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.payments import requests
from cardledger.ledger.payments.approvals import ApprovalAnswers
from cardledger.ledger.payments.messages import Decision
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.schema import connections, earlier_releases, migrate, tables
from cardledger.schema.compatibility import OLDEST_HEAD_LIMITED
from tests.due import enqueue_due
from tests.payments import DELAY, Desk
from tests.world import INBOX_KEY, SECRET_KEY, Cardholder, World, open_world, outcomes_of

NEXT = "the next server key of at least 32 characters"


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
def payer(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 10_000)


def insert(desk: Desk, payment: Transfer) -> None:
    """Insert a row as who has the login of the API's role, with the MAC that it has."""

    async def write(connection: AsyncConnection) -> None:
        await connection.execute(transfers.insert(payment))

    desk.written(payment.platform_id, write)


def signed(payment: Transfer, key: InboxKey = INBOX_KEY) -> Transfer:
    return replace(payment, mac=key.mac_of_terms(Signed.PAYMENT, payment.signed_terms))


def payout(desk: Desk, payer: Cardholder, amount: int = 1_000) -> Transfer:
    """Return a payout that was requested, without its MAC."""
    return desk.draft(payer, amount, new_id(), Kind.OUT, requested_at=desk.now)


@contextmanager
def beside_the_previous_release(world: World) -> Iterator[None]:
    """As between the migration and the end of a deployment."""
    world.connection.execute(
        "UPDATE schema_compatibility SET oldest_head = %s", [OLDEST_HEAD_LIMITED]
    )
    try:
        yield
    finally:
        world.connection.execute("DELETE FROM inbox")
        migrate.finish(world.url)


def refused(desk: Desk, payment: Transfer, **values: object) -> bool:
    """Return whether the database refuses that the API's role changes the row of `payment`."""

    async def write(connection: AsyncConnection) -> None:
        rows = tables.transfers.update().where(tables.transfers.c.id == payment.id)
        await connection.execute(rows.values(values))

    try:
        desk.written(payment.platform_id, write)
    except ProgrammingError as error:
        return "a transfer that is" in str(error)
    return False


def reason_of(world: World, payment: Transfer) -> list[tuple[str]]:
    return world.rows("SELECT reason FROM rejections WHERE reference = %s", str(payment.id))


def test_a_payment_without_a_mac_is_rejected_and_its_neighbours_are_decided(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    other = world.cardholder(payer.owner.platform_id, 0)
    forged = payout(desk, payer)
    insert(desk, forged)
    desk.begin(forged)
    desk.pay(payer, other, 300)

    decided = desk.drain()

    assert outcomes_of(decided)[0] == "REJECTED"
    assert reason_of(world, forged) == [("UNKNOWN_TRANSFER",)]
    assert (world.balance(payer), world.balance(other)) == (9_700, 300)
    assert desk.stored(forged.id).status == "PENDING"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("amount", 9_000),
        ("received_amount", 500_000_000),
        ("destination_account_id", None),
        ("fee_amount", 10),
        ("is_funded", True),
        ("counterparty_information", {"FULL_NAME": "Ada"}),
    ],
)
def test_a_payment_is_carried_out_with_the_terms_that_were_signed(
    world: World, desk: Desk, payer: Cardholder, column: str, value: object
) -> None:
    euros = {
        "received_amount": 900,
        "received_currency": "EUR",
        "rate_numerator": 9,
        "rate_denominator": 10,
        "locked_side": "SENDING",
    }
    honest = signed(desk.draft(payer, 1_000, new_id(), Kind.OUT, requested_at=desk.now, **euros))
    insert(desk, honest)
    changed = Jsonb(value) if isinstance(value, dict) else value
    world.connection.execute(
        f"UPDATE transfers SET {column} = %s WHERE id = %s".encode(), [changed, honest.id]
    )
    desk.begin(honest)

    decided = desk.drain()

    world.connection.execute(
        f"UPDATE transfers SET {column} = %s WHERE id = %s".encode(),
        [getattr(honest, column), honest.id],
    )
    assert outcomes_of(decided) == ["REJECTED"]
    assert world.balance(payer) == 10_000


def test_every_message_about_such_a_payment_is_rejected(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    """Its first step would be one that cannot follow, and an error stops the queue."""
    arrived = replace(
        payout(desk, payer),
        kind=Kind.RECEIVED.value,
        source_account_id=None,
        destination_account_id=payer.account_id,
        needs_approval=True,
    )
    insert(desk, arrived)

    async def approve(connection: AsyncConnection) -> None:
        await requests.decide_incoming(
            connection,
            arrived,
            decision=Decision.APPROVE,
            reason=None,
            inbox_key=INBOX_KEY,
            reply_to=None,
            at=desk.now,
        )

    desk.written(arrived.platform_id, approve)

    assert outcomes_of(desk.drain()) == ["REJECTED"]
    assert world.balance(payer) == 10_000


def test_what_the_previous_release_requests_is_carried_out_until_its_end(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    with beside_the_previous_release(world):
        unsigned, forged = payout(desk, payer), payout(desk, payer)
        insert(desk, unsigned)
        insert(desk, replace(forged, mac=bytes(16)))
        found = message_findings.forged(world.connection)
        desk.begin(unsigned)
        with pytest.raises(earlier_releases.UndecidedError):
            migrate.finish(world.url)
        desk.begin(forged)
        decided = desk.drain()
    late = payout(desk, payer)
    insert(desk, late)
    desk.begin(late)
    refused = desk.drain()

    assert sorted(outcomes_of(decided)) == ["APPLIED", "REJECTED"]
    assert outcomes_of(refused) == ["REJECTED"]
    assert found.state == WARN
    assert "quotes and payments" in found.detail
    assert message_findings.forged(world.connection).state == OK


ANSWERED = """
    WITH endpoint AS (
        INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode, state,
            created_at, updated_at)
        VALUES (gen_random_uuid(), %(platform)s, true, '', '{}', 'FIFO', 'ENABLED', now(), now())
        RETURNING id
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
            attempts, created_at, webhook_id, endpoint_id)
        SELECT gen_random_uuid(), %(customer)s, %(platform)s, 'INCOMING_PAYMENT.PENDING',
            %(payment)s, '', 'DELIVERED', 1, now(), gen_random_uuid(), id
        FROM endpoint RETURNING id
    )
    INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at, duration_ms,
        status)
    SELECT id, 1, %(customer)s, now(), 1, 200 FROM delivery
"""


def test_the_response_to_a_webhook_decides_what_has_arrived_and_no_other_row(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    """Rows without an event could fill the page of those that have arrived."""
    forged = replace(
        payout(desk, payer),
        kind=Kind.RECEIVED.value,
        source_account_id=None,
        destination_account_id=payer.account_id,
        needs_approval=True,
    )
    insert(desk, forged)
    world.connection.execute(
        ANSWERED,
        {
            "platform": forged.platform_id,
            "customer": forged.customer_id,
            "payment": forged.id,
        },
    )
    answers = ApprovalAnswers(INBOX_KEY)

    def enqueued() -> int:
        with connections.connect(world.url) as connection:
            count = enqueue_due(connection, answers, desk.now)
            connection.rollback()
        return count

    assert enqueued() == 0
    world.connection.execute("UPDATE transfers SET sequence = 1 WHERE id = %s", [forged.id])
    assert enqueued() == 1
    world.connection.execute("DELETE FROM transfers WHERE id = %s", [forged.id])


def test_a_deployment_ends_when_no_collection_of_the_previous_release_waits(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    """The engine would reject what its bank says of it."""
    with beside_the_previous_release(world):
        collection = desk.draft(payer, 1_000, new_id(), Kind.IN, requested_at=desk.now)
        insert(desk, collection)
        with pytest.raises(earlier_releases.UndecidedError, match="collections"):
            migrate.finish(world.url)
        world.connection.execute("DELETE FROM transfers WHERE id = %s", [collection.id])


def test_a_payment_that_waits_keeps_the_former_key_needed(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    key = ServerKey(NEXT, former=(SECRET_KEY,))

    def counted() -> tuple[int, int]:
        [count] = [
            each
            for each in key_rotation.status(world.connection, key).terms
            if each.name == "transfers.mac"
        ]
        return count.current, count.outdated

    current, outdated = counted()
    draft = payout(desk, payer)
    for made in (
        signed(draft),
        signed(replace(draft, id=new_id()), InboxKey(NEXT)),
        replace(draft, id=new_id(), mac=bytes(16)),  # Of no key.
        replace(draft, id=new_id()),
    ):
        insert(desk, made)

    assert counted() == (current + 1, outdated + 1)


def test_a_payment_of_the_former_key_is_carried_out_while_the_key_rotates(
    desk: Desk, payer: Cardholder
) -> None:
    made = signed(payout(desk, payer))
    insert(desk, made)
    desk.begin(made)
    rotating = InboxKey(ServerKey(NEXT, former=(SECRET_KEY,)))

    stored = desk.stored(made.id)

    assert rotating.verifies_terms(Signed.PAYMENT, stored.mac, stored.signed_terms)
    assert not InboxKey(NEXT).verifies_terms(Signed.PAYMENT, stored.mac, stored.signed_terms)
    assert outcomes_of(desk.drain()) == ["APPLIED"]


# --- payments that the engine has begun -----------------------------------------------------------

ENDS: Final[list[dict[str, object]]] = [
    {"status": "FAILED", "failure_reason": "CANCELLED"},
    {"status": "REJECTED"},
    {"status": "EXPIRED"},
]


def test_the_api_does_not_end_a_payment_that_is_debited(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    payment = desk.stored(desk.out(payer, 4_000, "1234567005"))
    desk.drain()
    debited = world.balance(payer)

    assert all(refused(desk, payment, **end) for end in ENDS)
    assert not refused(desk, payment, updated_at=desk.now)

    desk.pass_time(DELAY)
    assert (debited, world.balance(payer)) == (6_000, 10_000)
    assert desk.stored(payment.id).refund_status == "COMPLETED"


def test_the_api_does_not_end_what_waits_for_the_engine_or_a_bank(
    world: World, desk: Desk, payer: Cardholder
) -> None:
    collection = desk.draft(payer, 1_000, new_id(), Kind.IN, requested_at=desk.now)
    desk.record(collection)

    assert all(refused(desk, collection, **end) for end in ENDS)
    assert all(refused(desk, collection, requested_at=at) for at in (None, desk.now + DELAY))
    world.connection.execute("DELETE FROM transfers WHERE id = %s", [collection.id])


def test_the_api_fails_a_payment_that_was_not_requested(desk: Desk, payer: Cardholder) -> None:
    draft = desk.draft(payer, 1_000, new_id(), Kind.OUT)
    desk.record(draft)

    assert not refused(desk, draft, **ENDS[0])
