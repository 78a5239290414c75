"""The audit finds every manipulation of stored rows."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, LiteralString

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.verification import DIFFERENCE_LIMIT, Report, verify_in_transaction
from tests.world import World, open_world

GUARDED: Final[tuple[LiteralString, ...]] = (
    "card_transaction_events",
    "entries",
    "deposits",
    "outcomes",
    "settlement_details",
)

# What a superuser can change with the triggers disabled; each statement runs alone.
MANIPULATIONS: Final[dict[str, LiteralString]] = {
    "a balance": "UPDATE internal_accounts SET balance = balance + 1",
    "a hold": "UPDATE internal_accounts SET held = held + 1",
    "an account's currency": "UPDATE internal_accounts SET currency = 'JPY'",
    "an account's owner": "UPDATE internal_accounts SET customer_id = gen_random_uuid()",
    "a total": "UPDATE card_transactions SET settled = settled + 1",
    "a status": "UPDATE card_transactions SET status = 'VOIDED'",
    "a card transaction's card": "UPDATE card_transactions SET card_id = gen_random_uuid()",
    "a card transaction's customer": "UPDATE card_transactions SET customer_id = gen_random_uuid()",
    "when a card transaction was created": (
        "UPDATE card_transactions SET created_at = created_at - interval '1 hour'"
    ),
    "an event's amount": "UPDATE card_transaction_events SET amount = amount + 1",
    "an event's customer": "UPDATE card_transaction_events SET customer_id = gen_random_uuid()",
    "an event's message": "UPDATE card_transaction_events SET message_id = gen_random_uuid()",
    "whether a clearing was final": (
        "UPDATE card_transaction_events SET final = NOT final WHERE kind = 'CLEARED'"
    ),
    "a missing event": "DELETE FROM card_transaction_events WHERE sequence = 1",
    "a missing entry": "DELETE FROM entries WHERE sequence = 2",
    "an entry's amount": "UPDATE entries SET amount = amount + 1 WHERE account_id IS NULL",
    "an entry's accounts": (
        "UPDATE entries SET credit_account_id = debit_account_id,"
        " debit_account_id = credit_account_id WHERE account_id IS NULL"
    ),
    "an entry's customer": "UPDATE entries SET customer_id = gen_random_uuid() WHERE sequence > 0",
    "a deposit's customer": "UPDATE deposits SET customer_id = gen_random_uuid()",
    "a deposit's message": "UPDATE deposits SET message_id = gen_random_uuid()",
    "a missing deposit": "DELETE FROM deposits",
    "a missing outcome": "DELETE FROM outcomes",
    "an outcome's sequence": "UPDATE outcomes SET sequence = 99 WHERE sequence IS NOT NULL",
    "a missing card": "DELETE FROM cards",
    "a deposit's platform": "UPDATE deposits SET platform_id = gen_random_uuid()",
    "a transfer's amount": "UPDATE transfers SET amount = amount + 1 WHERE status = 'COMPLETED'",
    "a transfer's direction": (
        "UPDATE transfers SET source_account_id = destination_account_id,"
        " destination_account_id = source_account_id WHERE status = 'COMPLETED'"
    ),
    "a transfer's customer": "UPDATE transfers SET customer_id = gen_random_uuid()",
    "a transfer's platform": "UPDATE transfers SET platform_id = gen_random_uuid()",
    "a transfer's currency": "UPDATE transfers SET currency = 'EUR'",
    "that a transfer moved money": (
        "UPDATE transfers SET status = 'FAILED', failure_reason = 'INSUFFICIENT_FUNDS',"
        " settled_at = NULL WHERE status = 'COMPLETED'"
    ),
    "that a transfer failed": (
        "UPDATE transfers SET status = 'COMPLETED', failure_reason = NULL, settled_at = now()"
        " WHERE failure_reason = 'INSUFFICIENT_FUNDS'"
    ),
    "that a transfer was decided": (
        "UPDATE transfers SET status = 'PROCESSING', failure_reason = NULL WHERE status = 'FAILED'"
        " AND failure_reason = 'INSUFFICIENT_FUNDS'"
    ),
    "why a transfer failed": (
        "UPDATE transfers SET failure_reason = 'ACCOUNT_INVALID' WHERE status = 'FAILED'"
        " AND failure_reason = 'INSUFFICIENT_FUNDS'"
    ),
    "that the platform rejected a transfer": (
        "UPDATE transfers SET failure_reason = 'REJECTED_BY_PLATFORM' WHERE status = 'FAILED'"
        " AND failure_reason = 'INSUFFICIENT_FUNDS'"
    ),
    "what a transfer's outcome was": (
        "UPDATE outcomes SET outcome = 'DECLINED', reason = 'INSUFFICIENT_FUNDS'"
        " WHERE source = 'transfers' AND outcome = 'APPLIED'"
    ),
    "a missing transfer": "DELETE FROM transfers WHERE status = 'COMPLETED'",
    "half of a transfer": (
        "DELETE FROM entries USING transfers t WHERE t.id = subject_id AND line = 1"
    ),
    "the day an entry is posted on": "UPDATE entries SET posted_on = posted_on + 1",
    "that an entry is posted before": (
        "UPDATE entries SET posted_on = posted_on - 400 WHERE sequence = 0"
    ),
    "when an entry occurred": (
        "UPDATE entries SET occurred_at = occurred_at - interval '1 day' WHERE sequence > 0"
    ),
    "when a deposit occurred": "UPDATE deposits SET occurred_at = '2020-01-01T00:00:00Z'",
    "when the network settles": "UPDATE settlement_details SET settlement_date = '2020-01-01'",
    "missing settlement details": ("UPDATE settlement_details SET message_id = gen_random_uuid()"),
    "the event of settlement details": "UPDATE settlement_details SET sequence = sequence + 1",
    "the platform of settlement details": (
        "UPDATE settlement_details SET platform_id = gen_random_uuid()"
    ),
    "an agent's transfer without its action": "DELETE FROM agent_actions",
    "which agent requested a transfer": (
        "UPDATE transfers SET agent_id = gen_random_uuid() WHERE agent_id IS NOT NULL"
    ),
}

# What even the application role can do: it may insert rows.
FORGERIES: Final[dict[str, LiteralString]] = {
    "money between system accounts": (
        "INSERT INTO entries SELECT d.id, 0, 7, d.customer_id, a.id, b.id, 1000000, NULL, NULL,"
        " NULL, now() FROM deposits d, system_accounts a, system_accounts b"
        " WHERE a.kind = 'NETWORK_SETTLEMENT' AND b.kind = 'OPERATOR_LOSS' LIMIT 1"
    ),
    "money between accounts that do not exist": (
        "INSERT INTO entries SELECT id, 0, 8, customer_id, gen_random_uuid(), gen_random_uuid(),"
        " 1, NULL, NULL, NULL, now() FROM deposits LIMIT 1"
    ),
    "a deposit without an entry": (
        "INSERT INTO deposits SELECT gen_random_uuid(), customer_id, account_id, 5, message_id,"
        " now(), platform_id FROM deposits LIMIT 1"
    ),
    "a transfer without entries": (
        "INSERT INTO transfers SELECT gen_random_uuid(), customer_id, platform_id,"
        " source_account_id, destination_account_id, amount, currency, status, failure_reason,"
        " NULL, NULL, NULL, now(), settled_at, now() FROM transfers WHERE status = 'COMPLETED'"
    ),
    "an entry of a transfer that failed": (
        "INSERT INTO entries SELECT t.id, 0, 0, t.customer_id, a.id, b.id, 5, NULL, NULL, NULL,"
        " now() FROM transfers t, system_accounts a, system_accounts b"
        " WHERE t.status = 'FAILED' AND a.kind = 'CARD_HOLDS' AND b.kind = 'RECEIVABLE' LIMIT 1"
    ),
    "a third entry of a transfer": (
        "INSERT INTO entries SELECT t.id, 0, 2, t.customer_id, a.id, b.id, t.amount, NULL, NULL,"
        " NULL, now() FROM transfers t, system_accounts a, system_accounts b"
        " WHERE t.status = 'COMPLETED' AND a.kind = 'TRANSFERS' AND b.kind = 'OPERATOR_LOSS'"
    ),
}


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        engine, cardholder = made.engine(), made.cardholder(made.platform(), 50000)
        settlement = {"network": "VISA", "settlementDate": f"{datetime.now(UTC):%Y-%m-%d}"}
        clearing = made.clearing(cardholder, "T1", 1500, settlement=settlement)
        events = [made.authorization(cardholder, "T1", 1250), clearing]
        savings = made.another_account(cardholder)
        events += [
            made.transfer(cardholder, savings, 100),
            made.transfer(savings, cardholder, 5000),
        ]
        made.process(engine, [(cardholder, event) for event in events])
        made.connection.execute(
            "WITH asked AS (INSERT INTO transfers SELECT gen_random_uuid(), customer_id,"
            " platform_id, source_account_id, destination_account_id, amount, currency, 'PENDING',"
            " NULL, %s, NULL, NULL, now(), NULL, now() FROM transfers WHERE status = 'COMPLETED'"
            " RETURNING *) INSERT INTO agent_actions SELECT id, agent_id, customer_id, platform_id,"
            " 'TRANSFER_OUT', NULL, now() FROM asked",
            [made.agent(cardholder)],
        )
        yield made


def verified_after(url: str, statements: Sequence[LiteralString]) -> Report:
    """Return the report after `statements`, which are rolled back."""
    with psycopg.connect(url) as connection:
        changed = [connection.execute(statement).rowcount for statement in statements]
        assert changed[-1] > 0, "no row was changed"
        report = verify_in_transaction(connection, lambda _done, _total: None)
        connection.rollback()
    return report


def test_an_unchanged_ledger_passes_the_audit(world: World) -> None:
    report = world.verify()

    assert report.holds, report.differences
    assert (report.events, report.card_transactions, report.deposits) == (4, 1, 1)
    assert report.transfers == 3


@pytest.mark.parametrize("change", MANIPULATIONS)
def test_a_manipulation_is_found(world: World, change: str) -> None:
    # A superuser can disable the triggers and the foreign keys.
    disable_guards: list[LiteralString] = ["SET session_replication_role = replica"]
    disable_guards += [f"ALTER TABLE {table} DISABLE TRIGGER append_only" for table in GUARDED]
    disable_guards.append("ALTER TABLE transfers DISABLE TRIGGER only_forward")

    report = verified_after(world.url, [*disable_guards, MANIPULATIONS[change]])

    assert not report.holds


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_row_forged_by_the_application_role_is_found(world: World, forgery: str) -> None:
    report = verified_after(world.app_url, [FORGERIES[forgery]])

    assert not report.holds


def test_a_finding_names_the_row_the_stored_value_and_the_expected_value(world: World) -> None:
    [[key]] = world.rows("SELECT id FROM card_transactions")

    report = verified_after(world.url, ["UPDATE card_transactions SET status = 'VOIDED'"])

    assert report.differences == [
        f"CardTransaction:{key}: stored status is VOIDED; its events give SETTLED"
    ]


def test_a_report_describes_at_most_the_limit_and_counts_the_rest() -> None:
    report = Report(began_at=datetime.now(UTC))

    for number in range(DIFFERENCE_LIMIT + 5):
        report.add_difference(f"difference {number}")

    assert (report.difference_count, len(report.differences)) == (105, 100)
