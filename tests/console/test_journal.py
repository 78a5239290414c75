"""The journal by time, and the trial balance that a worker has computed."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.queries import trial_balance
from cardledger.ledger.queries.console import journal
from cardledger.schema.roles import Role
from cardledger.schema.wire.common import CURRENCIES
from tests.api.support import Api, new_tenant, ok, server
from tests.command_process import run_command
from tests.console.fields import Fields
from tests.console.person import Person, command_of, shown
from tests.console.snapshots import in_snapshot
from tests.console.test_accounts import booked_on, main_of, named, words_of
from tests.console.test_api_calls import document_of
from tests.databases import as_role
from tests.system.support import environment
from tests.waiting import eventually

GREATEST = 2**63 - 1


@pytest.fixture(scope="module")
def card(api: Api) -> dict[str, Any]:
    """A card with a tip of 15.00, whose account has got 50.00."""
    card = api.active_card(balance=5_000)
    purchase = api.authorize(card["id"], 1_250, descriptor="<script>x</script>\u202ebistro")["id"]
    api.clear(card["id"], purchase, 1_500)
    return card | {"purchase": purchase}


def entries_in(page: str) -> list[str]:
    bodies = main_of(page).partition("</thead>")[2].split("<tbody>")[1:]
    found = [words_of(body.partition("</tbody>")[0]) for body in bodies]
    hidden = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |…\w+ Copy (?!Transaction)\S+ "
    return [re.sub(hidden, "", each) for each in found]


def test_an_entry_has_two_lines(person: Person, api: Api, card: dict[str, Any]) -> None:
    [deposit] = booked_on(api, card["fundingSources"][0])

    page = shown(person.get("/journal"))

    purchase = "&lt;script&gt;x&lt;/script&gt;⟨U+202E⟩bistro"
    assert entries_in(page)[:4] == [
        f"cleared card holds 15.00 USD {purchase} network settlement 15.00",
        f"pulled customer 2.50 USD {purchase} card holds 2.50",
        f"pulled customer 12.50 USD {purchase} card holds 12.50",
        f"deposited sandbox funding 50.00 USD {named('deposit', deposit)} customer 50.00",
    ]
    assert f"/console/card-transactions/{card['purchase']}" in page
    assert f"/console/accounts/{card['fundingSources'][0]}" in page
    assert f'href="/console/search?{urlencode({"q": deposit})}"' in page


def test_what_stands_in_suspense_has_the_ids_of_its_messages(root: str, config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as api, Person(root) as visitor:
        visitor.log_in(tenant)
        event = {
            "type": "CLEARING_REVERSAL",
            "source": "<b>visa</b>",
            "reference": "of-parked",
            "issuerTransactionToken": "suspense",
            "cardId": api.active_card(balance=0)["id"],
            "amount": 500,
            "currency": "USD",
        }
        wrong = {"type": "CLEARING", "reference": "of-rejected", "currency": "EUR"}
        for each in (event, event | wrong):
            api.http.post(f"{api.root}/network-events", json=[each])
        [parked] = ok(api.get("/parked-events"))["data"]
        [rejection] = ok(api.get("/rejections"))["data"]

        page = shown(visitor.get("/journal"))
        freed = event | {"type": "CLEARING", "reference": "of-clearing"}
        api.http.post(f"{api.root}/network-events", json=[freed])
        after = [each for each in entries_in(shown(visitor.get("/journal"))) if "suspen" in each]

    first, second = entries_in(page)
    assert "<b>visa" not in main_of(page)
    assert "rejection &lt;b&gt;visa&lt;/b&gt; of-rejected" in first
    assert "parked event &lt;b&gt;visa&lt;/b&gt; of-parked" in second
    assert f'data-copy="{rejection["id"]}"' in page
    assert f'data-copy="{parked["id"]}"' in page
    assert f'href="/console/search?{urlencode({"q": rejection["id"]})}"' in page
    assert urlencode({"q": parked["id"]}) not in page  # The search does not look for it.
    assert [each.split()[0] for each in after] == ["suspense", "suspended", "suspended"]
    assert "suspense item &lt;b&gt;visa&lt;/b&gt; of-parked" in after[0]
    assert document_of(page)["entries"][0]["subject"] == {
        "kind": "REJECTION",
        "id": rejection["id"],
        "source": "<b>visa</b>",
        "reference": "of-rejected",
    }


def test_pages_have_each_entry_once(person: Person, card: dict[str, Any]) -> None:  # noqa: ARG001
    whole = entries_in(shown(person.get("/journal", limit=100)))

    found: list[str] = []
    path: str | None = "/journal?limit=1"
    followed = ""
    while path is not None:
        followed = path
        page = shown(person.http.get(f"/console{path}"))
        found += entries_in(page)
        path = older(page)

    assert found == whole
    shown(person.http.get(f"/console{followed.replace('cursor=', 'cursor=A')}"), 400)


def slow(longer_than: str) -> str:
    """Return the statement of a span, which takes nine seconds for one that is longer."""
    statement = journal._SPAN.replace(
        "{conditions}", "AND EXISTS (SELECT FROM slow WHERE slept = '') {conditions}"
    )
    return f"""
        WITH slow AS MATERIALIZED (
            SELECT CASE WHEN CAST(:high AS timestamptz) - CAST(:low AS timestamptz)
                > interval '{longer_than}' THEN pg_sleep(9)::text ELSE '' END AS slept
        )
        {statement}
    """


def older(page: str) -> str | None:
    found = re.search(r'rel="next" href="/console([^"]+)"', page)
    return None if found is None else unescape(found[1])


def test_spans_that_take_too_long_are_read_in_more_pages(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since = datetime.now(UTC) - timedelta(minutes=10)
    path: str | None = f"/journal?since={since:%Y-%m-%dT%H:%M:%S}"
    whole = entries_in(shown(person.http.get(f"/console{path}")))
    monkeypatch.setattr(journal, "_SPAN", slow("100 s"))
    monkeypatch.setattr(journal, "_SPAN_LIMIT_MS", 200)
    pages = list[str]()

    while path is not None:
        pages.append(shown(person.http.get(f"/console{path}")))
        path = older(pages[-1])

    assert [entry for page in pages for entry in entries_in(page)] == whole
    assert not [page for page in pages if "took too long to read" in page]
    assert len(pages) > 1


def test_a_page_begins_with_the_span_that_the_one_before_it_has_reached(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since = datetime.now(UTC) - timedelta(seconds=30)
    path: str | None = f"/journal?since={since:%Y-%m-%dT%H:%M:%S}"
    monkeypatch.setattr(journal, "_SPAN", slow("1 s"))
    monkeypatch.setattr(journal, "_SPAN_LIMIT_MS", 200)
    read_in_time = journal._within_limit
    first_spans = list[bool]()  # Of each page, whether it was read.

    async def noted(connection: AsyncConnection, statement: Executable) -> Any:  # noqa: ANN401
        rows = await read_in_time(connection, statement)
        if len(first_spans) == pages:
            first_spans.append(rows is not None)
        return rows

    monkeypatch.setattr(journal, "_within_limit", noted)
    pages = 0
    while path is not None:
        path = older(shown(person.http.get(f"/console{path}")))
        pages += 1

    # Ten seconds are too long to begin with; that is found out once.
    assert first_spans == [False, *[True] * (pages - 1)]
    assert pages > 1


def test_a_time_that_cannot_be_read_is_said_and_gone_past(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "_SPAN", slow("0 s"))
    monkeypatch.setattr(journal, "_SPAN_LIMIT_MS", 200)

    first = shown(person.get("/journal"))
    monkeypatch.undo()
    path = older(first)
    assert path is not None
    second = shown(person.http.get(f"/console{path}"))

    assert "took too long to read and are left out" in words_of(first)
    assert "cleared" in main_of(second)


def test_older_entries_of_today_are_there_after_midnight(
    config: ApiConfig,
    api: Api,
    card: dict[str, Any],  # noqa: ARG001 - its entries
) -> None:
    now = datetime.now(UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    clock = [midnight - timedelta(seconds=0.25)]
    with server(config, clock=lambda: clock[0]) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)
        whole = entries_in(shown(visitor.get("/journal", limit=100)))
        pages = [shown(visitor.get("/journal", limit=1))]

        clock[0] = midnight + timedelta(minutes=1)
        while path := older(pages[-1]):
            pages.append(shown(visitor.http.get(f"/console{path}")))
        fresh = shown(visitor.get("/journal"))

    assert [entry for page in pages for entry in entries_in(page)] == whole
    assert len(whole) > 1
    assert "No entry today." in fresh


def test_the_command_has_currency_and_account_and_says_what_differs(
    person: Person,
    api: Api,
    card: dict[str, Any],  # noqa: ARG001 - its entries
    app_database_url: DatabaseUrl,
    tmp_path: Path,
) -> None:
    platform = api.tenant.platform_id
    query = {"since": "2020-01-01", "until": "2100-01-01"}

    def command(**filters: str) -> tuple[list[str], str]:
        page = shown(person.get("/journal", **query, **filters))
        return shlex.split(command_of(page)), page

    plain, page = command()
    of_network, _ = command(kind="NETWORK_SETTLEMENT", currency="USD")
    of_holds, of_any_currency = command(kind="CARD_HOLDS")
    of_customers, without_kind = command(kind="CUSTOMER")

    begin = f"cardledger report journal --platform {platform} --from 2020-01-01 --to 2100-01-01"
    assert plain == [*begin.split(), "--format", "json"]
    assert of_network == [
        *begin.split(),
        *["--currency", "USD", "--account", "NETWORK_SETTLEMENT", "--format", "json"],
    ]
    assert of_holds == [*begin.split(), "--account", "CARD_HOLDS", "--format", "json"]
    assert of_customers == plain
    assert "by posting day, whole days" in page
    assert "add --currency" in of_any_currency
    assert "every account" in without_kind
    env = environment(DATABASE_URL=as_role(app_database_url, Role.FINANCE))
    ran = run_command(*of_network[1:], cwd=tmp_path, env=env)
    assert [row["event"] for row in json.loads(ran.stdout)["rows"]] == ["CLEARED"]


def test_filters_are_by_account_of_the_chart_currency_and_time(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    of_network = entries_in(shown(person.get("/journal", kind="NETWORK_SETTLEMENT")))
    of_customers = entries_in(shown(person.get("/journal", kind="CUSTOMER", currency="USD")))

    assert all("network settlement" in each for each in of_network)
    assert len(of_network) == 1
    assert len(of_customers) == 3
    for query in (
        {"currency": "EUR"},
        {"kind": "SUSPENSE"},
        {"until": "2020-01-01"},
        {"since": f"{tomorrow:%Y-%m-%d}", "until": "2100-01-01"},
        {"since": "2100-01-01", "until": "2020-01-01"},
    ):
        assert "No entry matches." in shown(person.get("/journal", **query))
    shown(person.get("/journal", kind="CASH"), 400)
    shown(person.get("/journal", since="yesterday"), 400)


@pytest.mark.parametrize(
    ("since", "until"),
    [("1970-01-01", "4000-01-01"), ("1970-01-01", "9999-12-31"), ("2020-01-01", "9999-12-31")],
)
def test_a_range_of_any_length_has_the_entries_within(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
    since: str,
    until: str,
) -> None:
    page = shown(person.get("/journal", since=since, until=until))

    assert entries_in(page) == entries_in(shown(person.get("/journal")))
    assert entries_in(page)


def test_the_journal_of_one_account_is_its_statement(person: Person, card: dict[str, Any]) -> None:
    account = card["fundingSources"][0]

    times = {"since": "2020-01-01", "until": "2100-01-01"}
    response = person.get("/journal", accountId=account, **times)

    statement = f"/console/accounts/{account}?since=2020-01-01T00:00:00&until=2100-01-01T23:59:59"
    assert response.headers["location"] == statement
    assert "card holds" in shown(person.http.get(response.headers["location"]))


def test_a_filter_that_a_statement_does_not_have_is_not_dropped(
    person: Person, card: dict[str, Any]
) -> None:
    account = card["fundingSources"][0]
    filters = {"kind": "CUSTOMER", "currency": "USD"}

    for name, value in filters.items():
        page = shown(
            person.get("/journal", accountId=account, until="2100-01-01", **{name: value}), 400
        )
        fields = Fields.of_page(page)
        assert list(fields.wrong()) == [name]
        assert f"{fields.of[name].label} must be empty for one account" in fields.alert
    page = shown(person.get("/journal", accountId=account, **filters), 400)
    assert list(Fields.of_page(page).wrong()) == list(filters)
    blank = dict.fromkeys(filters, "")
    assert person.get("/journal", accountId=account, **blank).status_code == 303


def test_another_platform_has_no_entry(
    root: str,
    other_platform: Api,
    card: dict[str, Any],  # noqa: ARG001 - it has entries
) -> None:
    with Person(root) as visitor:
        visitor.log_in(other_platform.tenant)

        assert "No entry today." in shown(visitor.get("/journal"))
        assert "bistro" not in shown(visitor.get("/journal", since="2020-01-01"))


def test_the_trial_balance_is_that_of_the_entries(
    person: Person,
    card: dict[str, Any],  # noqa: ARG001 - its entries
) -> None:
    def look() -> str | None:
        page = shown(person.get("/trial-balance"))
        return page if "network settlement" in main_of(page) else None

    whole = eventually(look, timeout_s=60)

    page = main_of(whole)
    assert "Debits equal credits" in page
    rows = [words_of(row) for row in page.partition("<tbody>")[2].split("<tr>")]
    assert "card holds 15.00 15.00" in rows
    assert "customer 15.00 50.00 35.00" in rows
    assert "network settlement 0.00 15.00 15.00" in rows
    assert "sandbox funding 50.00 0.00 50.00" in rows
    assert "total 80.00 80.00 50.00 50.00" in rows
    assert re.search(r"\d+ (s|min) +old: as of \d{4}-", words_of(page))
    [hint] = re.findall(r'<p class="hint" id="of-today">([^<]*)</p>', page)
    assert "in the journal of today" in hint
    links = re.findall(r'<a href="/console/journal\?kind=[^>]*>', page)
    assert links
    assert all('aria-describedby="of-today"' in link for link in links)
    assert "The command computes it now; this page has what a worker computed at the time" in whole


def test_the_greatest_amounts_are_added_up(root: str, config: ApiConfig, database_url: str) -> None:
    tenant = new_tenant(config.database_url, currencies=("JPY", "KWD"))
    with psycopg.connect(database_url) as connection:
        for currency in ("JPY", "KWD"):
            connection.execute(
                "INSERT INTO trial_balances SELECT %s, %s, kind, %s, %s, 2, %s, %s, 2"
                " FROM unnest(%s::text[]) AS kind",
                [
                    str(tenant.platform_id),
                    currency,
                    *[GREATEST] * 4,
                    ["CUSTOMER", "SANDBOX_FUNDING"],
                ],
            )
    with Person(root) as visitor:
        visitor.log_in(tenant)

        page = words_of(main_of(shown(visitor.get("/trial-balance"))))

    assert "18,446,744,073,709,551,614" in page
    assert "18,446,744,073,709,551.614" in page


def test_a_platform_with_every_currency_has_all_its_accounts(
    config: ApiConfig, database_url: str
) -> None:
    platform = new_tenant(config.database_url).platform_id
    kinds, currencies = [kind.value for kind in ChartAccount], list(CURRENCIES)
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO system_accounts (id, platform_id, currency, kind)"
            " SELECT gen_random_uuid(), %s, currency, kind"
            " FROM unnest(%s::text[]) AS currency, unnest(%s::text[]) AS kind"
            " WHERE kind <> 'CUSTOMER' ON CONFLICT DO NOTHING",
            [platform, currencies, kinds],
        )
        owner.execute(
            "INSERT INTO trial_balances SELECT %s, currency, kind, 1, 1, 2, 0, 0, 2"
            " FROM unnest(%s::text[]) AS currency, unnest(%s::text[]) AS kind",
            [platform, currencies, kinds],
        )

    async def read(connection: AsyncConnection) -> tuple[int, int]:
        chart = await journal._chart(connection, platform)
        balances = await trial_balance.read(connection, platform_id=platform)
        return len(chart), sum(len(each.balances) for each in balances.currencies)

    accounts, balances = in_snapshot(config, platform, read)

    assert accounts == (len(kinds) - 1) * len(currencies)
    assert balances == len(kinds) * len(currencies)
