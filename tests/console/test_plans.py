"""Every statement of a page reads growing tables by an index, never from beginning to end."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import psycopg
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access import forms
from cardledger.api.console.application import PAGES as PAGES_OF_ALL
from cardledger.api.console.application import SANDBOX_PAGES
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import ids, platform_views
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, ok, serving, url_of, worker
from tests.connection_guard import GuardedApp
from tests.console.crawling import pages_of
from tests.console.payments import Payments
from tests.console.person import Person, shown
from tests.console.plans import seem_large, unbounded
from tests.console.stories import play
from tests.receiver import Receiver

PAGES: Final = (
    "/exceptions",
    "/exceptions?accountId={account}",
    "/exceptions?customerId={customer}&currency=USD",
    "/exceptions/{purchase}/fund",
    "/customers",
    "/customers?platformCustomerId=x",
    "/customers?customerType=BUSINESS&since=2020-01-01&until=2030-01-01",
    "/customers/{customer}",
    "/accounts",
    "/accounts?customerId={customer}",
    "/accounts?currency=USD",
    "/accounts/{account}",
    "/accounts/{account}?before=2&until=2030-01-01",
    "/cards",
    "/cards?state=ACTIVE",
    "/cards?customerId={customer}&platformCardId=x",
    "/cards?accountId={account}",
    "/cards/{card}",
    "/journal",
    "/journal?kind=CARD_HOLDS&currency=USD&since=2020-01-01",
    "/trial-balance",
)
"""Addresses below the console."""

LISTS: Final = (
    "/card-transactions",
    "/exceptions",
    "/customers",
    "/accounts",
    "/cards",
    "/journal",
    "/webhooks/deliveries",
)
"""Lists, whose later pages are read behind a cursor."""

WITHOUT_PAGE: Final = {f"{navigation.SIMULATOR.path}/card"}
"""The routes that read nothing: they redirect."""

_BEGINS: Final = ("SELECT", "WITH")

Statement = tuple[str, Any]


@pytest.fixture(scope="module")
def statements() -> Iterator[list[Statement]]:
    """What is executed by SQLAlchemy in this process, with its values."""
    executed: list[Statement] = []

    def note(*arguments: Any) -> None:  # noqa: ANN401 - of SQLAlchemy
        _, _, statement, values, _, _ = arguments
        executed.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    yield executed
    event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def root(config: ApiConfig, statements: list[Statement]) -> Iterator[str]:
    assert statements == []
    with (
        worker(config.database_url, config.redis_url),
        serving(GuardedApp(create_app(config))) as served,
    ):
        yield url_of(served)


@pytest.fixture(scope="module")
def names(api: Api) -> Mapping[str, str]:
    """A purchase that owes money, and whose it is."""
    card = api.active_card(balance=1_000)["id"]
    purchase = str(api.authorize(card, 1_000)["id"])
    api.clear(card, purchase, 4_000)
    found = ok(api.get(f"/transactions/{purchase}"))
    return {
        "purchase": purchase,
        "card": str(card),
        "account": found["accountId"],
        "customer": found["customerId"],
    }


@pytest.fixture(scope="module")
def plans(config: ApiConfig, api: Api, database_url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    """A connection that plans as the console's do, where scanning a table is expensive.

    A scan that is left has no index that it could use.
    """
    seem_large(database_url)
    path = platform_views.search_path("cardledger")
    options = f"-c search_path={path} -c enable_seqscan=off"
    with psycopg.connect(config.database_url, options=options, autocommit=True) as connection:
        ids.register(connection.adapters)
        connection.execute(
            "SELECT set_config(%s, %s, false)",
            [platform_views.SETTING, str(api.tenant.platform_id)],
        )
        yield connection


@pytest.mark.parametrize("path", PAGES)
def test_no_page_reads_a_growing_table_from_its_beginning(
    person: Person,
    names: Mapping[str, str],
    statements: list[Statement],
    plans: psycopg.Connection,
    path: str,
) -> None:
    statements.clear()
    shown(person.http.get(f"/console{path.format(**names)}"))
    read = [each for each in statements if each[0].lstrip().startswith(_BEGINS)]

    scanned = {(name, each[0]) for each in read for name in scans(plans, *each)}

    assert read
    assert not scanned


def test_no_page_that_a_link_leads_to_reads_a_growing_table_from_its_beginning(
    person: Person, api: Api, statements: list[Statement], plans: psycopg.Connection
) -> None:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        made(api.post("/webhooks/endpoints", {"url": receiver.url}))
        stories = play(api)
        receiver.wait_for(lambda arrivals: len(arrivals) > 1)
    explained = set[str]()
    found = set[tuple[str, str, str]]()
    visited = list[str]()

    payments = Payments.of(api)  # And a paid one: of an empty table every scan is short.
    ok(api.post("/sandbox/send", {"quoteId": Payments.of(api).quote, "currencyCode": "USD"}))
    statements.clear()
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    key = tip["customerId"].partition(":")[2]
    searches = (stories.tip.partition(":")[2], "visa europe 8123", f"4242 {key}", f"{key} token")
    others = [
        "/live",
        begin_story(person).headers["location"].removeprefix(ROOT),
        f"/simulator/cards/{tip['cardId']}/fund?amount=1.00+USD",
        *payments.addresses,
        *(f"/search?{urlencode({'q': each})}" for each in searches),
    ]
    later = (f"{path}?limit=1" for path in LISTS)
    for path, _ in pages_of(person, *others, *later):
        visited.append(path.partition("?")[0])
        for statement, values in list(statements):
            if statement.lstrip().startswith(_BEGINS) and statement not in explained:
                explained.add(statement)
                found |= {(path, name, statement) for name in scans(plans, statement, values)}
        statements.clear()

    assert not found
    unvisited = {
        route.path
        for router in (*PAGES_OF_ALL, *SANDBOX_PAGES)
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
        if not any(route.path_regex.match(f"{ROOT}{path}") for path in visited)
    }
    assert unvisited == WITHOUT_PAGE


def begin_story(person: Person) -> httpx2.Response:
    path = navigation.SIMULATOR.path.removeprefix(ROOT)
    fields = {
        "form_token": person.hidden(shown(person.get(path)), "form_token"),
        "idempotency_key": forms.new_key(),
    }
    return person.post(f"{path}/stories/tip", fields)


def scans(plans: psycopg.Connection, statement: str, values: Any) -> set[str]:  # noqa: ANN401
    """Return the growing tables of which the statement reads all rows, or all of a platform."""
    cursor = psycopg.ClientCursor(plans)
    [(plan,)] = cursor.execute(
        f"EXPLAIN (FORMAT JSON) {statement}".encode(), values or None
    ).fetchall()
    return set(unbounded(plan[0]["Plan"]))
