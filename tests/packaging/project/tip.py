"""The tests of a project of its own: the restaurant tip through every door of the client.

`tests/packaging/test_project.py` copies this file into an empty project and runs it there, with the
installed distributions and the fixture `cardledger` of their pytest plugin.
"""

import asyncio
import importlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from cardledger_client import AsyncClient, Client, Error, Event, Outcome
from cardledger_client.sql import enqueue, enqueue_async
from cardledger_client.webhooks import verify
from pytest_cardledger import Cardholder, Platform

WAIT_S = 30.0


def tip(card: Cardholder) -> list[Event]:
    return [
        card.event("AUTHORIZATION", 1250, merchant={"descriptor": "BISTRO"}),
        card.event("CLEARING", 1500, final=True),
    ]


def until(condition: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the condition returns
    """Return the first true value of `condition`."""

    deadline = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def check_settled(ledger: Platform, card: Cardholder, events: list[Event]) -> None:
    """Wait for the outcome of the last event, and compare every figure of the tip."""
    cleared: Outcome = until(lambda: ledger.client.outcome("test", str(events[-1]["reference"])))
    [transaction] = ledger.client.card_transactions(cardId=card.card_id)

    assert cleared.outcome == "APPLIED"
    assert transaction["status"] == "SETTLED"
    assert transaction["pullSummary"]["count"] == 2
    assert transaction["settlementSummary"] == {"count": 1, "totalAmount": 1500}
    assert ledger.balance(card) == 48_500


def check_unknown(ledger: Platform, events: list[Event]) -> None:
    for event in events:
        assert ledger.client.outcome("test", str(event["reference"])) is None


@pytest.fixture
def place(cardledger: Platform) -> dict[str, Any]:
    """Where the project's own database is: here that of the ledger; without its search path."""
    place: dict[str, Any] = conninfo_to_dict(cardledger.database_url, options="")
    return place


@pytest.fixture
def engine(place: dict[str, Any]) -> Iterator[Engine]:
    engine = create_engine("postgresql+psycopg://", connect_args=place)
    yield engine
    engine.dispose()


def test_the_project_has_its_own_modules() -> None:
    for name in ("api", "ledger", "workers"):
        assert importlib.import_module(name).OWNER == "project"


def test_http(cardledger: Platform) -> None:
    card = cardledger.cardholder()
    events = tip(card)

    outcomes = cardledger.events(*events)

    assert [each.outcome for each in outcomes] == ["APPLIED", "APPLIED"]
    check_settled(cardledger, card, events)


def test_http_in_an_event_loop(cardledger: Platform) -> None:
    card = cardledger.cardholder()
    events = tip(card)

    async def send() -> list[Outcome]:
        async with AsyncClient(cardledger.base_url, cardledger.token) as ledger:
            return await ledger.events(events)

    assert [each.outcome for each in asyncio.run(send())] == ["APPLIED", "APPLIED"]
    check_settled(cardledger, card, events)


def test_webhooks_of_the_tip_are_verified(cardledger: Platform) -> None:
    cardledger.events(*tip(cardledger.cardholder()))

    sent = cardledger.webhooks(2, kind="CARD_TRANSACTION.")

    types = {
        verify(
            body,
            headers,
            secret=cardledger.webhook_secret,
            public_key=cardledger.webhook_public_key,
        )["type"]
        for body, headers in sent
    }
    assert types == {"CARD_TRANSACTION.AUTHORIZED", "CARD_TRANSACTION.SETTLED"}


def test_each_test_has_a_platform_of_its_own(cardledger: Platform) -> None:
    assert list(cardledger.client.cards()) == []


def test_a_session_of_sqlalchemy(cardledger: Platform, engine: Engine) -> None:
    card = cardledger.cardholder()
    dropped, events = tip(card), tip(card)

    with Session(engine) as session:
        enqueue(session, dropped)
        session.rollback()
    with Session(engine) as session, session.begin():
        assert enqueue(session, events) == 2
        check_unknown(cardledger, events)

    check_settled(cardledger, card, events)
    check_unknown(cardledger, dropped)


def test_a_connection_of_sqlalchemy(cardledger: Platform, engine: Engine) -> None:
    card = cardledger.cardholder()
    events = tip(card)

    with engine.begin() as connection:
        enqueue(connection, events, "BULK")

    check_settled(cardledger, card, events)


def test_an_async_session_of_sqlalchemy(cardledger: Platform, place: dict[str, Any]) -> None:
    card = cardledger.cardholder()
    dropped, events = tip(card), tip(card)

    async def send(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            await enqueue_async(session, dropped)
            await session.rollback()
        async with AsyncSession(engine) as session, session.begin():
            await enqueue_async(session, events)
        await engine.dispose()

    asyncio.run(send(create_async_engine("postgresql+psycopg://", connect_args=place)))

    check_settled(cardledger, card, events)
    check_unknown(cardledger, dropped)


def test_a_connection_of_psycopg(cardledger: Platform, place: dict[str, Any]) -> None:
    card = cardledger.cardholder()
    dropped, events = tip(card), tip(card)

    with psycopg.connect(**place) as connection:
        enqueue(connection, dropped)
        connection.rollback()
        enqueue(connection, events)

    check_settled(cardledger, card, events)
    check_unknown(cardledger, dropped)


def test_an_async_connection_of_psycopg(cardledger: Platform, place: dict[str, Any]) -> None:
    card = cardledger.cardholder()
    events = tip(card)

    async def send() -> None:
        async with await psycopg.AsyncConnection.connect(**place) as connection:
            await enqueue_async(connection, events)

    asyncio.run(send())

    check_settled(cardledger, card, events)


def test_plain_sql(cardledger: Platform, place: dict[str, Any]) -> None:
    card = cardledger.cardholder()
    events = tip(card)

    with psycopg.connect(**place, autocommit=True) as connection:
        connection.execute("SELECT cardledger.enqueue(%s::jsonb)", [json.dumps(events)])
    check_settled(cardledger, card, events)
    with psycopg.connect(**place) as connection:
        [(outcome,)] = connection.execute(
            "SELECT cardledger.outcome('test', %s)", [events[-1]["reference"]]
        ).fetchall()

    assert outcome["outcome"] == "APPLIED"
    assert outcome["cardTransaction"]["status"] == "SETTLED"


def test_django(cardledger: Platform, place: dict[str, Any]) -> None:
    django = pytest.importorskip("django")
    conf = importlib.import_module("django.conf")
    names = {
        "dbname": "NAME",
        "user": "USER",
        "password": "PASSWORD",
        "host": "HOST",
        "port": "PORT",
    }
    database = {names[name]: value for name, value in place.items() if name in names}
    conf.settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}}
    )
    django.setup()
    transaction = importlib.import_module("django.db.transaction")
    door = importlib.import_module("cardledger_client.django")
    card = cardledger.cardholder()
    dropped, events = tip(card), tip(card)

    with transaction.atomic():
        door.enqueue(dropped)
        transaction.set_rollback(True)
    with transaction.atomic():
        assert door.enqueue(events) == 2
        check_unknown(cardledger, events)

    check_settled(cardledger, card, events)
    check_unknown(cardledger, dropped)
    transaction.get_connection().close()


def test_an_event_that_cannot_be_enqueued_fails_the_transaction(
    cardledger: Platform, place: dict[str, Any]
) -> None:
    event = cardledger.cardholder().event("CLEARING", 1)
    nameless = {name: value for name, value in event.items() if name != "reference"}

    with psycopg.connect(**place) as connection, pytest.raises(psycopg.Error) as caught:
        enqueue(connection, [event, nameless])

    assert caught.value.sqlstate == "22023"
    check_unknown(cardledger, [event])


def test_a_token_that_is_unknown_is_an_error(cardledger: Platform) -> None:
    with Client(cardledger.base_url, "unknown:secret") as stranger, pytest.raises(Error) as caught:
        stranger.events([{"type": "CLEARING"}])

    assert caught.value.code == "UNAUTHORIZED"
