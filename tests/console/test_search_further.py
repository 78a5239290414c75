"""A status or an amount that is rare: each page looks at so many card transactions, and goes on."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.console.html.formats import clock
from cardledger.api.console.pages import card_transactions as card_transactions_page
from cardledger.api.console.pages import webhook_deliveries as webhook_deliveries_page
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.paging import Page, Wanted
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, ok
from tests.console.person import Person, command_of, shown, url_in
from tests.console.snapshots import in_snapshot
from tests.console.test_card_transaction import names
from tests.console.test_commands import note_of
from tests.integration.test_list_indexes import rows_of_plan
from tests.receiver import Receiver

ROWS: Final = 55_000
"""More than two pages look at."""

DISTANCE: Final = card_transactions_page._SEARCHED
FIRST: Final = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)

OTHERS: Final = 2_000
"""Cardholders of other platforms, each with one: PostgreSQL expects as few of any cardholder."""

# One a second; the oldest of the platform alone is declined, and of a large amount.
_FILL: Final = """
    INSERT INTO card_transactions (id, customer_id, platform_id, card_id, account_id,
        issuer_transaction_token, currency, status, sequence, authorizations, authorized, settled,
        settlement_count, refunded, refund_count, pulled, pull_count, pending, pending_count,
        open_pull, unpaid, released, release_count, declined, created_at, updated_at, written_off,
        debits_written_off)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
            || '70008000' || lpad(to_hex(i), 12, '0'))::uuid,
        CASE WHEN i < 0 THEN gen_random_uuid() ELSE %(customer)s END,
        CASE WHEN i < 0 THEN gen_random_uuid() ELSE %(platform)s END, %(card)s, %(account)s,
        'T' || i, 'USD', CASE i WHEN 0 THEN 'DECLINED' ELSE 'AUTHORIZED' END, 1, 1,
        CASE i WHEN 0 THEN 900000 ELSE 100 END, 0, 0, 0, 0, 100, 1, 0, 0, 0, 0, 0, 0, 0, at, at, 0,
        0
    FROM generate_series(-%(others)s, %(rows)s - 1) i,
        LATERAL (SELECT %(first)s::timestamptz + i * interval '1 second' AS at) t
"""


@pytest.fixture(scope="module")
def oldest(api: Api, database_url: DatabaseUrl) -> str:
    """The public id of the card transaction that alone is declined."""
    card = api.active_card()
    key = {name: card[name].partition(":")[2] for name in ("id", "cardholderId")}
    values = {
        "platform": api.tenant.platform_id,
        "card": key["id"],
        "customer": key["cardholderId"],
        "account": card["fundingSources"][0].partition(":")[2],
        "rows": ROWS,
        "others": OTHERS,
        "first": FIRST,
    }
    with psycopg.connect(
        database_url, cursor_factory=psycopg.ClientCursor, autocommit=True
    ) as connection:
        connection.execute(_FILL, values)
        connection.execute("VACUUM (ANALYZE) card_transactions")
        [(key_of_oldest,)] = connection.execute(
            "SELECT id FROM card_transactions WHERE status = 'DECLINED'"
        ).fetchall()
    return public_id("CardTransaction", key_of_oldest)


def further(page: str) -> str | None:
    """Return the address that *Search further* leads to; None: the page has no such link."""
    found = re.search(r'rel="next" href="([^"]+)">Search further<', page)
    return None if found is None else unescape(found[1])


@pytest.mark.parametrize("query", [{"status": "DECLINED"}, {"minAmount": "9,000.00 USD"}])
def test_a_rare_card_transaction_is_found_by_searching_further(
    person: Person, oldest: str, query: Mapping[str, str]
) -> None:
    pages = [shown(person.get("/card-transactions", **query))]

    while (link := further(pages[-1])) is not None:
        pages.append(shown(person.http.get(link)))

    assert [names(page) for page in pages] == [[], [], [oldest]]
    for number, page in enumerate(pages[:2], start=1):
        reached = FIRST + timedelta(seconds=ROWS - number * DISTANCE)
        assert f"Nothing matches among those since {clock(reached)}" in page
        assert "No card transaction found yet." in page
    assert 'rel="next"' not in pages[-1]
    assert "Newest" in pages[-1]


def test_a_page_that_is_not_full_says_how_far_it_looked(
    person: Person, api: Api, oldest: str
) -> None:
    declined = str(api.authorize(api.active_card(balance=0)["id"], 100)["id"])

    page = shown(person.get("/card-transactions", status="DECLINED"))

    assert names(page) == [declined]
    assert "Searched back to" in page
    assert further(page) is not None
    assert "ends where its search did" in str(note_of(page))
    # The list of the API has no page that is not full.
    whole = ok(api.http.get(url_in(command_of(page))))
    assert [each["id"] for each in whole["data"]] == [declined, oldest]
    assert whole["hasMore"] is False


def test_a_common_status_is_found_without_searching_further(
    person: Person,
    oldest: str,  # noqa: ARG001 - stands among many
) -> None:
    page = shown(person.get("/card-transactions", status="AUTHORIZED", limit=10))

    assert len(names(page)) == 10
    assert "Searched back" not in page
    assert ">Older<" in page


def test_an_exception_is_found_behind_any_number_of_others(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = api.active_card(balance=1_000)["id"]
    owing = str(api.authorize(card, 1_000)["id"])
    api.clear(card, owing, 4_000)
    for _ in range(2):
        api.authorize(api.active_card()["id"], 100)
    monkeypatch.setattr(card_transactions_page, "_SEARCHED", 1)

    page = shown(person.get("/card-transactions", status="EXCEPTION"))

    assert names(page) == [owing]
    assert further(page) is None


def test_a_rare_delivery_is_found_by_searching_further(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        endpoint = made(api.post("/webhooks/endpoints", {"url": receiver.url}))["id"]
        api.authorize(api.active_card()["id"], 100)
        receiver.wait_for(lambda arrivals: len(arrivals) > 1)
    monkeypatch.setattr(webhook_deliveries_page, "_SEARCHED", 1)
    pages = [shown(person.get("/webhooks/deliveries", type="TEST", endpointId=endpoint))]

    while (link := further(pages[-1])) is not None:
        pages.append(shown(person.http.get(link)))

    found = [page.count(">TEST</a>") for page in pages]
    assert sum(found) == 1
    assert found[0] == 0
    assert "No delivery found yet." in pages[0]
    assert "Nothing matches among those since" in pages[0]
    assert "Newest" in pages[-1]


def test_a_search_that_ends_with_the_list_is_the_last_page(
    person: Person, oldest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = f"{FIRST:%Y-%m-%dT%H:%M:%S}"  # An hour may lie between an id and the time.
    monkeypatch.setattr(card_transactions_page, "_SEARCHED", 3_601)

    page = shown(person.get("/card-transactions", status="DECLINED", until=until))

    assert names(page) == [oldest]
    assert 'rel="next"' not in page


@pytest.mark.parametrize(
    "filters",
    [
        CardTransactionFilters(status="VOIDED"),
        CardTransactionFilters(currency="USD", min_amount=900_000),
    ],
)
@pytest.mark.parametrize("is_of_cardholder", [False, True])
def test_no_statement_reads_more_than_a_page_looks_at(
    config: ApiConfig,
    api: Api,
    oldest: str,
    filters: CardTransactionFilters,
    *,
    is_of_cardholder: bool,
) -> None:
    if is_of_cardholder:
        card_id = ok(api.get(f"/transactions/{oldest}"))["cardId"]
        filters = CardTransactionFilters(
            status=filters.status,
            currency=filters.currency,
            min_amount=filters.min_amount,
            card_id=Id.parse(card_id.partition(":")[2]),
        )

    found, rows = in_snapshot(
        config,
        api.tenant.platform_id,
        lambda connection: _read(connection, api.tenant.platform_id, filters),
    )

    assert found.items == []
    assert found.reached is not None
    assert DISTANCE <= max(rows) <= DISTANCE + 1 + 5  # With the cardholder.
    assert len(rows) == 2 + is_of_cardholder  # And none for the rows of an empty page.


async def _read(
    connection: AsyncConnection, platform_id: Id, filters: CardTransactionFilters
) -> tuple[Page[Any], list[int]]:
    """Return a page, and how many rows each of its statements has read."""
    statements: list[tuple[str, Any]] = []

    def note(*call: Any) -> None:  # noqa: ANN401 - SQLAlchemy's arguments
        statements.append((call[2], call[3]))

    engine = connection.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    found = await card_transactions.page(
        connection,
        platform_id=platform_id,
        filters=filters,
        wanted=Wanted(limit=50, newest_first=True),
        count_limit=0,
        distance=DISTANCE,
    )
    event.remove(engine, "before_cursor_execute", note)
    driver = await driver_async(connection)
    rows = []
    for statement, values in statements:
        explained = await driver.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), values
        )
        row = await explained.fetchone()
        assert row is not None
        rows.append(rows_of_plan(row[0][0]["Plan"]))
    return found, rows
