"""The first page, and what it says when something is away."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import Mock

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cardledger.api.app import ApiConfig
from cardledger.api.console import navigation, shared_results
from cardledger.api.console import routing as console_routing
from cardledger.api.console.access import forms
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.http import errors as http_errors
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries.console import platform_figures
from tests.api.support import Api, closed_port, made, new_tenant, server
from tests.console.person import Person, shown
from tests.console.stories import Stories, play
from tests.console.test_accounts import main_of
from tests.console.test_api_calls import document_of
from tests.proxy import proxy_to, through
from tests.waiting import eventually

EVERY_PART: Final = dict.fromkeys((*navigation.PARTS, *navigation.HOLDERS, *navigation.BOOKS))


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    return play(api)


def line(page: str, name: str) -> str:
    """Return the number beside a name."""
    found = re.search(rf"<dt>{name}</dt><dd class=\"number\">(?:at least )?([\d,]+)", page)
    assert found is not None, name
    return found[1]


def test_it_counts_decisions_and_what_is_owed(person: Person, stories: Stories) -> None:  # noqa: ARG001 - the scene
    page = eventually(lambda: re.search("(?s).*<dt>declined</dt>.*", shown(person.get(""))))[0]

    assert int(line(page, "applied")) >= 10
    assert line(page, "declined") == "1"
    assert re.search(r'<b class="owes">25.00 USD</b> <span class="hint">in 1</span>', page)


@pytest.mark.usefixtures("stories")
def test_where_workers_decide_there_is_no_alert_and_figures_have_their_time(
    person: Person,
) -> None:
    page = shown(person.get(""))

    assert '<div class="alert"' not in page
    assert re.search(r"As of <time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</time> UTC", page)


def test_the_last_verification_has_its_time_and_what_it_found(
    person: Person, database_url: DatabaseUrl
) -> None:
    found = [last_verification(person)]
    with psycopg.connect(database_url, autocommit=True) as owner:
        for hour, differences in ((6, 0), (7, 1), (9, 1_200), (8, 0), (10, 0)):
            at = datetime(2026, 1, 31, hour, tzinfo=UTC)
            owner.execute(
                "INSERT INTO book_verification_runs (began_at, ended_at, differences)"
                " VALUES (%s, %s, %s)",
                [at - timedelta(minutes=30), at, differences],
            )
            found.append(last_verification(person))

    assert found == [
        "none, by cardledger verify",
        "no difference, 2026-01-31 06:00:00",
        "1 difference, 2026-01-31 07:00:00",
        "1,200 differences, 2026-01-31 09:00:00",
        "1,200 differences, 2026-01-31 09:00:00",
        "no difference, 2026-01-31 10:00:00",
    ]


def last_verification(person: Person) -> str:
    """Return what the overview of `person` says of the last verification, without its marks."""
    _, _, text = shown(person.get("")).partition("Last verification of the books: ")
    return re.sub("<[^>]*>", "", text.partition("</p>")[0])


@pytest.mark.usefixtures("stories")
def test_more_exceptions_than_are_read_are_at_least_so_many(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = api.active_card(balance=3_000)["id"]
    api.clear(card, str(api.authorize(card, 2_000)["id"]), 4_500)
    monkeypatch.setattr(platform_figures, "ROW_LIMIT", 1)

    assert eventually(lambda: "in at least 2</span>" in shown(person.get("")), timeout_s=20)


def test_open_exceptions_are_in_the_bucket_of_their_days(
    root: str, config: ApiConfig, database_url: DatabaseUrl
) -> None:
    days = {0.5: 0, 1.9: 0, 2.1: 1, 3.9: 1, 4.1: 2, 7.9: 2, 8.1: 3, 14.9: 3, 15.1: 4}
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as client, Person(root) as visitor:
        visitor.log_in(tenant)
        card = client.active_card(balance=100 * len(days))["id"]
        purchases = [str(client.authorize(card, 100)["id"]) for _ in days]
        for purchase in purchases:
            client.clear(card, purchase, 300)
        with psycopg.connect(database_url) as owner:
            for purchase, age in zip(purchases, days, strict=True):
                owner.execute(
                    "UPDATE card_transactions SET debt_since = now() - %s WHERE id = %s",
                    [timedelta(days=age), purchase.partition(":")[2]],
                )
        [due] = document_of(shown(visitor.get("")))["openExceptions"]

    counts = [sum(bucket == place for bucket in days.values()) for place in range(5)]
    assert [each["count"] for each in due["byAge"]] == counts
    amounts = [each["dueAmount"]["amount"] for each in due["byAge"]]
    assert amounts == [200 * count for count in counts]


def test_what_is_due_for_a_hold_counts(root: str, config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as client, Person(root) as visitor:
        visitor.log_in(tenant)
        card = client.active_card()["id"]
        client.authorize(card, 1_000, descriptor="SHOP 006")  # Its pull fails.

        def due() -> list[dict[str, Any]]:
            exceptions: list[dict[str, Any]] = document_of(shown(visitor.get("")))["openExceptions"]
            return exceptions

        [found] = eventually(due)
        page = shown(visitor.get(""))

    assert (found["count"], found["dueAmount"]["amount"]) == (1, 1_000)
    assert '<th scope="col">Due</th>' in page
    assert re.search(r'<b class="owes">10.00 USD</b> <span class="hint">in 1</span>', page)


@pytest.mark.parametrize(
    ("set_to", "words"),
    [
        ("failing_since = now()", "failing"),
        ("state = 'DISABLED', disabled_reason = 'GONE'", "disabled gone"),
    ],
)
def test_the_state_of_an_endpoint_is_the_same_on_every_page(
    root: str, config: ApiConfig, database_url: DatabaseUrl, set_to: str, words: str
) -> None:
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as client, Person(root) as visitor:
        visitor.log_in(tenant)
        url = "http://127.0.0.1:9/refused"
        endpoint = made(client.post("/webhooks/endpoints", {"url": url}))["id"]
        with psycopg.connect(database_url) as owner:
            owner.execute(
                f"UPDATE webhook_endpoints SET {set_to} WHERE id = %s".encode(),
                [endpoint.partition(":")[2]],
            )
        paths = ("", "/webhooks", f"/webhooks/endpoints/{endpoint}")
        pages = {path: main_of(shown(visitor.get(path))) for path in paths}

    state, *reason = words.split()
    badge = f'<span class="badge status {state}">{state}</span>'
    whole = " ".join([badge, *(f'<span class="hint">{each}</span>' for each in reason)])
    assert {path: whole in page for path, page in pages.items()} == dict.fromkeys(paths, True)


def test_more_failing_endpoints_than_are_shown_are_said(
    root: str, config: ApiConfig, database_url: DatabaseUrl
) -> None:
    tenant = new_tenant(config.database_url)
    limit = platform_figures.ENDPOINT_LIMIT

    def fail(count: int) -> None:
        with psycopg.connect(database_url) as owner:
            owner.execute(
                "INSERT INTO webhook_endpoints (id, platform_id, url, event_types, mode, state,"
                " is_default, failing_since, created_at, updated_at) SELECT gen_random_uuid(), %s,"
                " 'https://example.com/' || n, '{}', 'PARALLEL', 'ENABLED', false, now(), now(),"
                " now() FROM generate_series(1, %s) AS n",
                [tenant.platform_id, count],
            )

    with Person(root) as visitor:
        visitor.log_in(tenant)
        fail(limit)
        exactly = shown(visitor.get(""))
        fail(1)
        more = shown(visitor.get(""))

    notice = f"The first {limit}; there are more."
    assert [notice in page for page in (exactly, more)] == [False, True]
    assert main_of(more).count("https://example.com/") == limit


def test_it_counts_nothing_of_others(person: Person, other_platform: Api, stories: Stories) -> None:  # noqa: ARG001 - the scene
    with Person(person.root) as other:
        other.log_in(other_platform.tenant)
        page = shown(other.get(""))

    assert "No decision." in page
    assert "Nothing is due." in page
    assert "No card transaction yet." in page


def test_the_part_that_is_refreshed_is_the_same_part(person: Person) -> None:
    part = shown(person.http.get("/console/live", headers={"HX-Request": "true"}))

    assert part.lstrip().startswith('<div id="live" data-refreshed')
    assert "<html" not in part


def test_viewers_of_a_platform_share_what_is_read(
    config: ApiConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_results, "KEPT_S", 600.0)
    read = list[str]()

    def note(*arguments: object) -> None:
        read.append(str(arguments[2]))

    tenants = [new_tenant(config.database_url) for _ in range(2)]
    headers = {"HX-Request": "true"}
    with server(config) as root, Person(root) as one, Person(root) as two, Person(root) as other:
        for visitor, tenant in ((one, tenants[0]), (two, tenants[0]), (other, tenants[1])):
            visitor.log_in(tenant)
        event.listen(Engine, "before_cursor_execute", note)
        with ThreadPoolExecutor(2) as pool:
            looks = [
                pool.submit(each.http.get, "/console/live", headers=headers) for each in (one, two)
            ]
            pages = [shown(look.result()) for look in looks]
        of_two = [statement for statement in read if "book_verification_runs" in statement]
        shown(other.http.get("/console/live", headers=headers))
        of_three = [statement for statement in read if "book_verification_runs" in statement]
        event.remove(Engine, "before_cursor_execute", note)

    assert (len(of_two), len(of_three)) == (1, 2)
    assert pages[0] == pages[1]


def test_a_session_that_has_ended_leads_the_whole_page_to_the_login(root: str) -> None:
    with Person(root) as stranger:
        page = f"{root}/console/card-transactions/CardTransaction:1?asOf=3"
        sent = {"HX-Request": "true", "HX-Current-URL": page}
        answer = stranger.http.get("/console/live", headers=sent)

    with Person(root) as stranger:
        sent = {"HX-Request": "true", "HX-Current-URL": "http://["}
        malformed = stranger.http.get("/console/live", headers=sent)
    assert malformed.headers["hx-redirect"] == "/console/login?next=%2Fconsole"
    login = "/console/login?next=%2Fconsole%2Fcard-transactions%2FCardTransaction%3A1%3FasOf%3D3"
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, login)


def test_without_postgresql_a_page_says_so(
    config: ApiConfig, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Instead of whether it is out: a reading of the clock may time out on a busy machine.
    of_api = Mock()
    monkeypatch.setattr(console_routing, "DATABASE", of_api)
    monkeypatch.setattr(http_errors, "database_failures", of_api)
    away = f"postgresql://away@127.0.0.1:{closed_port()}/away"
    console = ConsoleConfig(mode=ConsoleMode.ACT, database_url=away)
    with server(replace(config, console=console)) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)
        pages = [
            shown(visitor.get(path), 503) for path in ("", "/card-transactions", "/search?q=x")
        ]

    assert all("PostgreSQL does not answer" in page for page in pages)
    of_api.failed.assert_not_called()  # That of the API answers.
    of_api.note.assert_not_called()


def test_in_an_outage_of_the_only_database_every_page_says_so(
    root: str, config: ApiConfig, api: Api
) -> None:
    colleague = new_tenant(config.database_url, of=api.tenant)
    with (
        ExitStack() as until_the_outage,
        Person(root) as elsewhere,
        server(
            replace(
                config,
                database_url=through(
                    DatabaseUrl(config.database_url),
                    until_the_outage.enter_context(proxy_to(DatabaseUrl(config.database_url))),
                ),
            )
        ) as own,
        Person(own) as known,
        Person(own) as unknown,
    ):
        known.log_in(api.tenant)
        shown(known.get(""))
        elsewhere.log_in(colleague)
        [cookie] = elsewhere.http.cookies.values()
        [name] = known.http.cookies.keys()
        unknown.http.headers["Cookie"] = f"{name}={cookie}"

        until_the_outage.close()

        # The token of the first session is remembered for some seconds, the other was never read.
        pages = [
            shown(visitor.get(path), 503)
            for visitor in (known, unknown)
            for path in ("", "/card-transactions", "/search?q=x")
        ]
        forms = [shown(unknown.get("/login"), 503)]

    assert all("PostgreSQL does not answer" in page for page in (*pages, *forms))


def test_slow_pages_of_a_platform_leave_a_connection_to_others(
    person: Person, other_platform: Api, database_url: DatabaseUrl, stories: Stories
) -> None:
    with (
        Person(person.root) as other,
        psycopg.connect(database_url) as owner,
        psycopg.connect(database_url, autocommit=True) as observer,
        ThreadPoolExecutor(8) as pool,
    ):
        other.log_in(other_platform.tenant)
        owner.execute("LOCK TABLE conversion_details IN ACCESS EXCLUSIVE MODE")
        path = f"/card-transactions/{stories.tip}"
        reading = [pool.submit(person.get, path) for _ in range(8)]
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: observer.execute(waiting).fetchone())

        shown(other.get("/accounts"))
        pages = [shown(each.result(), 503) for each in reading]

    assert any("The console is busy; reload." in page for page in pages)


def test_without_redis_pages_work(config: ApiConfig, api: Api) -> None:
    away = replace(config, redis_url=f"redis://127.0.0.1:{closed_port()}/0")
    card = api.active_card()["id"]
    with server(away) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)

        pages = {part: shown(visitor.http.get(part.path)) for part in EVERY_PART}
        form = {
            "form_token": visitor.hidden(pages[navigation.SIMULATOR], "form_token"),
            "idempotency_key": forms.new_key(),
            "amount": "1.00 USD",
            "descriptor": "WITHOUT REDIS",
        }
        pressed = visitor.post(f"/simulator/cards/{card}/authorization", form)
        listed = shown(visitor.get("/card-transactions"))

    assert [part.title for part, page in pages.items() if part.title not in main_of(page)] == []
    assert pressed.status_code == 303, pressed.text
    assert "WITHOUT REDIS" in listed


@pytest.mark.parametrize(
    "case",
    [
        ("/card-transactions/{tip}", "conversion_details", "Reload the page in a moment."),
        ("/webhooks/deliveries", "webhook_deliveries", "Narrow the filter"),
    ],
)
def test_a_page_that_reads_for_too_long_says_what_to_do(
    person: Person, database_url: DatabaseUrl, stories: Stories, case: tuple[str, str, str]
) -> None:
    path, table, advice = case
    cancel = (
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with (
        psycopg.connect(database_url) as owner,
        psycopg.connect(database_url, autocommit=True) as observer,
    ):
        owner.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(person.get, path.format(tip=stories.tip))
            # As the time limit of the statement does.
            eventually(lambda: observer.execute(cancel).fetchone() == (1,) or reading.done())
            page = shown(reading.result(), 503)

    assert "took longer than 2 s" in page
    assert advice in page
    assert ("filter" in page) == ("filter" in advice)


def test_pages_read_with_two_seconds_a_statement_and_write_nothing(
    person: Person, database_url: DatabaseUrl
) -> None:
    shown(person.get(""))
    with psycopg.connect(database_url) as observer:
        statements = observer.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND query LIKE '%book_verification_runs%' AND pid <> pg_backend_pid()"
        ).fetchone()

    assert statements is not None
    assert statements[0] <= 2
