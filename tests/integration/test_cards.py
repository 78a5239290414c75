"""Cards in the database: requested, answered and published once."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select

from cardledger.ledger.cards import issuing
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import accounts
from cardledger.ledger.sandbox.identity_verifier import SandboxIdentityVerifier
from cardledger.ledger.sandbox.issuer import SandboxIssuer
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import async_engine, driver, sync_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from tests.due import is_due

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DELAY = timedelta(seconds=30)
ISSUER = SandboxIssuer(KeyRing("k" * 32), delay=DELAY)


@pytest.fixture
def database(app_database_url: str) -> Iterator[Engine]:
    engine = sync_engine(app_database_url)
    yield engine
    engine.dispose()


def request_cards(url: str, *platform_card_ids: str) -> list[Id]:
    """Request a card for each identifier, all at noon; returns their keys."""

    async def request() -> list[Id]:
        engine = async_engine(url)
        async with engine.begin() as connection:
            platform = await platforms.create(
                connection, name="Acme", keys=KeyRing("k" * 32), at=NOON
            )
            customer = await customers.create(
                connection,
                platform_id=platform.id,
                person=customers.Individual(),
                verifier=SandboxIdentityVerifier(),
                keys=KeyRing("k" * 32),
                at=NOON,
            )
            page = await accounts.page(
                connection,
                platform_id=platform.id,
                filters=accounts.AccountFilters(customer_id=customer.id),
                wanted=paging.Wanted(limit=1),
            )
            cards = [
                await issuing.create(
                    connection,
                    platform_id=platform.id,
                    application=issuing.CardApplication(
                        cardholder_id=customer.id,
                        platform_card_id=name,
                        funding_sources=[page.items[0].id],
                        max_spend_per_transaction=None,
                    ),
                    issuer=ISSUER,
                    at=NOON,
                )
                for name in platform_card_ids
            ]
        await engine.dispose()
        return [card.id for card in cards]

    return asyncio.run(request())


def activate(database: Engine, now: datetime) -> int:
    with database.begin() as connection:
        was_due = is_due(driver(connection), issuing.ANSWER_IS_DUE, now)
        answered = issuing.record_answers(connection, ISSUER, now=now)
        assert was_due or not answered
        return answered


def states(database: Engine, keys: list[Id]) -> list[str]:
    columns = tables.cards.c
    with database.connect() as connection:
        rows = connection.execute(select(columns.id, columns.state).where(columns.id.in_(keys)))
        state_by_id = {row.id: row.state for row in rows}
    return [state_by_id[key] for key in keys]


def webhooks(database: Engine, keys: list[Id]) -> list[dict[str, Any]]:
    columns = tables.outbox.c
    with database.connect() as connection:
        rows = connection.execute(
            select(columns.type, columns.data).where(columns.subject_id.in_(keys))
        )
        return [{"type": row.type, **row.data} for row in rows]


def test_the_sandbox_issuer_answers_by_suffix_and_when_due(
    database: Engine, app_database_url: str
) -> None:
    keys = request_cards(app_database_url, "plain", "never-001", "refused-002", "late-005")

    before = activate(database, NOON - timedelta(seconds=1))
    at_noon = activate(database, NOON)
    then = states(database, keys)
    later = activate(database, NOON + DELAY)

    assert (before, at_noon, later) == (0, 2, 1)
    assert then == ["ACTIVE", "PROCESSING", "CLOSED", "PROCESSING"]
    assert states(database, keys) == ["ACTIVE", "PROCESSING", "CLOSED", "ACTIVE"]


def test_the_webhook_of_an_answer_carries_the_card_as_answered(
    database: Engine, app_database_url: str
) -> None:
    keys = request_cards(app_database_url, "mine", "refused-002")

    activate(database, NOON)

    active, rejected = sorted(webhooks(database, keys), key=lambda card: str(card["state"]))
    assert active["type"] == rejected["type"] == "CARD.STATE_CHANGE"
    assert active["id"] == f"Card:{keys[0]}"
    assert (active["state"], active["stateReason"], active["brand"]) == ("ACTIVE", None, "VISA")
    assert (active["expMonth"], active["expYear"]) == (3, 2030)
    assert active["updatedAt"] == "2026-03-01T12:00:00.000000Z"
    assert (rejected["state"], rejected["stateReason"]) == ("CLOSED", "ISSUER_REJECTED")
    assert not {"brand", "last4", "expMonth", "expYear"} & set(rejected)


def test_concurrent_workers_record_every_answer_once(
    database: Engine, app_database_url: str
) -> None:
    keys = request_cards(app_database_url, *(f"card {number}" for number in range(40)))

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(lambda _: activate(database, NOON), range(8)))

    assert sum(answered) == len(keys)
    assert states(database, keys) == ["ACTIVE"] * len(keys)
    assert len(webhooks(database, keys)) == len(keys)


def test_an_answer_that_is_rolled_back_is_recorded_again(
    database: Engine, app_database_url: str
) -> None:
    keys = request_cards(app_database_url, "mine")

    with database.connect() as connection:
        issuing.record_answers(connection, ISSUER, now=NOON)
        connection.rollback()

    assert webhooks(database, keys) == []
    assert activate(database, NOON) == 1
