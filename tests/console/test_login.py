"""Who may see the console: log-in, sessions, tickets, log-out."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.access import sessions
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import credentials
from cardledger.ledger.platforms import console_tickets
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema.roles import Role
from tests.api.support import SECRET_KEY, Api, made, new_tenant, ok, refused, server
from tests.console.person import Person, shown
from tests.databases import as_role
from tests.waiting import eventually

KEYS = KeyRing(SECRET_KEY)
LOGIN = f"{ROOT}/login"


def ticket_of(config: ApiConfig, client_id: str) -> str:
    ticket = credentials.console_ticket(as_role(config.database_url, Role.APP), KEYS, client_id)
    assert ticket is not None
    return ticket


def is_asked_to_log_in(person: Person) -> bool:
    response = person.get("")
    return response.status_code == 303 and response.headers["location"].startswith(LOGIN)


# --- log in ---------------------------------------------------------------------------------------


def test_browsers_are_led_from_the_root_to_the_console(root: str) -> None:
    with Person(root) as stranger:
        answer = stranger.http.get("/")
        program = stranger.http.get("/", headers={"Accept": "application/json"})

    assert (answer.status_code, answer.headers["location"]) == (303, ROOT)
    refused(program, 404, "REFERENCE_NOT_FOUND")


def test_a_stranger_is_asked_to_log_in_and_comes_back_to_the_page(root: str, api: Api) -> None:
    with Person(root) as stranger:
        asked = stranger.get("/card-transactions", status="SETTLED")
        form = shown(stranger.http.get(asked.headers["location"]))
        fields = {
            "client_id": api.tenant.client_id,
            "client_secret": api.tenant.client_secret,
            "next": stranger.hidden(form, "next"),
        }
        begun = stranger.post("/login", fields)

    assert begun.headers["location"] == f"{ROOT}/card-transactions?status=SETTLED"


@pytest.mark.parametrize(
    "after",
    ["//evil.example", "https://evil.example", "/console/../x", "/consoles", "/console/\\evil"],
)
def test_a_login_leads_to_no_other_site(root: str, api: Api, after: str) -> None:
    with Person(root) as stranger:
        fields = {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}

        begun = stranger.post("/login", fields | {"next": after})
        again = stranger.get("/login", next=after)

    assert begun.headers["location"] == again.headers["location"] == ROOT


def test_who_has_logged_in_is_led_on_to_the_page(person: Person, root: str) -> None:
    path = f"{ROOT}/card-transactions?status=SETTLED"

    led = person.get("/login", next=path)
    again = person.http.get(f"{LOGIN}?ticket={GUESS}&next=/console/cards")
    with Person(root) as stranger:
        form = shown(stranger.get("/login", next=path))

    assert (led.status_code, led.headers["location"]) == (303, path)
    assert (again.status_code, again.headers["location"]) == (303, f"{ROOT}/cards")
    assert stranger.hidden(form, "next") == path


# --- links of other sites -------------------------------------------------------------------------

LINKED = {
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}
"""What a browser says of a link in a chat or a tracker; it sends no cookie then."""


def address_in(page: str) -> str:
    """Return where a page leads by itself."""
    [address] = re.findall(r'<meta http-equiv="refresh" content="0; url=([^"]*)">', page)
    assert f'<a href="{address}">' in page
    return unescape(address)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/card-transactions?status=SETTLED&customerId=",
        "/cards/Card:019542f5-b3e7-7d02-0000-00000000a1b4",
        "/search?q=%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E",
        "/no%20page/%C3%A9%22%3E",
        "/login?next=%2Fconsole%2Fcards",
    ],
)
def test_a_link_of_another_site_leads_to_its_page_from_a_page_of_our_own(
    root: str, path: str
) -> None:
    with Person(root) as visitor:
        first = shown(visitor.http.get(f"{ROOT}{path}", headers=LINKED))
        own = {**LINKED, "Sec-Fetch-Site": "same-origin"}
        second = visitor.http.get(address_in(first), headers=own)

    assert address_in(first) == f"{ROOT}{path}"
    assert "<script" not in first
    assert second.status_code == 303 or "Log in" in second.text  # It has no session: no loop.


@pytest.mark.parametrize(
    "sent",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Dest": "iframe"},
        {"HX-Request": "true"},
    ],
)
def test_only_a_link_of_another_site_is_answered_like_that(root: str, sent: dict[str, str]) -> None:
    with Person(root) as stranger:
        answer = stranger.http.get(ROOT, headers=LINKED | sent)

    assert answer.status_code == (401 if "HX-Request" in sent else 303)


def test_a_ticket_in_a_link_of_another_site_opens_its_page(
    root: str, api: Api, config: ApiConfig
) -> None:
    ticket = ticket_of(config, api.tenant.client_id)

    with Person(root) as visitor:
        asked = visitor.http.get(f"{ROOT}/cards?ticket={ticket}", headers=LINKED)
        begun = visitor.http.get(asked.headers["location"], headers=LINKED)
        visitor.http.cookies, kept = {}, visitor.http.cookies
        first = shown(visitor.http.get(begun.headers["location"], headers=LINKED))
        visitor.http.cookies = kept
        page = shown(visitor.http.get(address_in(first)))

    assert address_in(first) == f"{ROOT}/cards"
    assert "Log out" in page


def test_wrong_credentials_begin_no_session_and_say_nothing_of_which_is_wrong(
    root: str, api: Api
) -> None:
    with Person(root) as stranger:
        wrong = {"client_id": api.tenant.client_id, "client_secret": "clsk_wrong"}
        unknown = {"client_id": "clid_unknown", "client_secret": "clsk_wrong"}
        pages = [shown(stranger.post("/login", fields), 401) for fields in (wrong, unknown)]

        assert is_asked_to_log_in(stranger)
    assert all("Unknown client id or wrong secret." in page for page in pages)
    assert all("clsk_wrong" not in page for page in pages)


def test_guesses_are_bounded(config: ApiConfig, api: Api) -> None:
    with (
        server(replace(config, failure_limit="3/hour")) as strict,
        Person(strict) as stranger,
    ):
        wrong = {"client_id": api.tenant.client_id, "client_secret": "clsk_wrong"}
        statuses = [stranger.post("/login", wrong).status_code for _ in range(5)]

    assert statuses == [401, 401, 401, 429, 429]


def test_a_token_that_may_not_view_begins_no_session(root: str, config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url, permissions=("INGEST",))
    with Person(root) as stranger:
        fields = {"client_id": tenant.client_id, "client_secret": tenant.client_secret}

        page = shown(stranger.post("/login", fields), 403)

    assert "lacks the permission VIEW" in page


@pytest.mark.parametrize(
    ("public_url", "port"),
    [("https://ledger.example.com", 443), ("http://ledger.example.com:8080/x", 8080)],
)
def test_processes_behind_one_proxy_share_a_session(
    config: ApiConfig, api: Api, public_url: str, port: int
) -> None:
    behind = replace(config, public_url=public_url)
    with (
        server(behind) as first,
        server(behind) as second,
        Person(first) as one,
        Person(second) as other,
    ):
        fields = {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}
        cookie = one.post("/login", fields).headers["set-cookie"].partition(";")[0]

        pages = [shown(each.http.get(ROOT, headers={"Cookie": cookie})) for each in (one, other)]

    assert cookie.startswith(f"cardledger_console_{port}=")
    assert all("Log out" in page for page in pages)


def test_the_cookie_is_for_this_console_alone(root: str, api: Api) -> None:
    with Person(root) as stranger:
        fields = {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}
        cookie = stranger.post("/login", fields).headers["set-cookie"]

    assert {"HttpOnly", "SameSite=Strict", f"Path={ROOT}", "Max-Age=43200"} <= set(
        cookie.split("; ")
    )
    assert "Secure" not in cookie  # Loopback has no TLS.
    assert api.tenant.client_secret not in cookie


def test_off_loopback_the_cookie_is_for_tls_only(config: ApiConfig, api: Api) -> None:
    public = replace(config, public_url="https://ledger.example.com")
    with server(public) as behind_proxy, Person(behind_proxy) as stranger:
        fields = {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}
        origin = {"Origin": "https://ledger.example.com"}

        cookie = stranger.post("/login", fields, **origin).headers["set-cookie"]

    assert cookie.endswith("; SameSite=Strict; Secure")


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_ends_after_twelve_hours() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    cookie = sessions.cookie_of(sessions.begin("clid_1", b"stamp", at=now), KEYS)

    last = sessions.session_in(cookie, KEYS, at=now + timedelta(hours=12, seconds=-1))
    ended = sessions.session_in(cookie, KEYS, at=now + timedelta(hours=12))

    assert last is not None
    assert (last.client_id, last.stamp) == ("clid_1", b"stamp")
    assert ended is None


def test_no_changed_cookie_is_a_session() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    cookie = sessions.cookie_of(sessions.begin("clid_1", b"stamp", at=now), KEYS)
    other = KeyRing("another server key, also of 32 characters")

    changed = [
        cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]
        for place in range(len(cookie) - 1)  # The last character has unused bits.
    ]

    assert sessions.session_in(cookie, other, at=now) is None
    assert not [each for each in changed if sessions.session_in(each, KEYS, at=now)]
    assert not [
        each for each in ("", ".", "é", "a" * 5_000) if sessions.session_in(each, KEYS, at=now)
    ]


def test_a_session_dies_with_its_token(root: str, api: Api) -> None:
    issued = made(api.post("/tokens", {"name": "short", "permissions": ["VIEW"]}))
    tenant = replace(api.tenant, client_id=issued["clientId"], client_secret=issued["clientSecret"])
    with Person(root) as visitor:
        visitor.log_in(tenant)
        shown(visitor.get(""))

        api.delete(f"/tokens/{issued['id']}")

        eventually(lambda: is_asked_to_log_in(visitor))


def test_a_session_dies_with_the_secret_that_it_began_with(root: str, api: Api) -> None:
    issued = made(api.post("/tokens", {"name": "rotated", "permissions": ["VIEW"]}))
    tenant = replace(api.tenant, client_id=issued["clientId"], client_secret=issued["clientSecret"])
    with Person(root) as visitor:
        visitor.log_in(tenant)

        ok(api.post(f"/tokens/{issued['id']}/rotate-secret", {"overlapHours": 0}))

        eventually(lambda: is_asked_to_log_in(visitor))


def test_a_session_of_a_former_secret_ends_with_its_overlap(
    root: str, api: Api, database_url: str
) -> None:
    issued = made(api.post("/tokens", {"name": "overlapping", "permissions": ["VIEW"]}))
    tenant = replace(api.tenant, client_id=issued["clientId"], client_secret=issued["clientSecret"])
    ok(api.post(f"/tokens/{issued['id']}/rotate-secret", {"overlapHours": 1}))
    with Person(root) as visitor:
        visitor.log_in(tenant)
        shown(visitor.get(""))

        with psycopg.connect(database_url) as connection:
            connection.execute(
                "UPDATE api_tokens SET former_secret_until = now() WHERE client_id = %s",
                (issued["clientId"],),
            )

        eventually(lambda: is_asked_to_log_in(visitor))


def test_a_log_out_ends_the_session_in_this_browser(person: Person) -> None:
    page = shown(person.get(""))

    out = person.post("/logout", {"form_token": person.hidden(page, "form_token")})

    assert (out.status_code, out.headers["location"]) == (303, LOGIN)
    assert is_asked_to_log_in(person)


def test_no_other_site_can_log_a_person_in_or_out(person: Person, api: Api) -> None:
    fields = {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}
    form = {"form_token": person.hidden(shown(person.get("")), "form_token")}

    for origin in ("https://evil.example", "null", ""):
        shown(person.post("/login", fields, Origin=origin), 403)
        shown(person.post("/logout", form, Origin=origin), 403)
    shown(person.post("/logout", {"form_token": "wrong"}), 403)
    shown(person.get(""))


# --- tickets --------------------------------------------------------------------------------------


def test_a_ticket_opens_any_page_once(root: str, api: Api, config: ApiConfig) -> None:
    ticket = ticket_of(config, api.tenant.client_id)

    with Person(root) as visitor, Person(root) as second:
        asked = visitor.get("/card-transactions", status="SETTLED", ticket=ticket)
        begun = visitor.http.get(asked.headers["location"])
        page = shown(visitor.http.get(begun.headers["location"]))
        again = second.http.get(asked.headers["location"])

    assert begun.headers["location"] == f"{ROOT}/card-transactions?status=SETTLED"
    assert "Card transactions" in page
    assert "This link was used" in shown(again, 401)


def test_a_preview_of_a_link_does_not_use_the_ticket_up(
    root: str, api: Api, config: ApiConfig
) -> None:
    ticket = ticket_of(config, api.tenant.client_id)

    with Person(root) as visitor:
        visitor.http.head(f"{LOGIN}?ticket={ticket}")
        visitor.http.get(f"{LOGIN}?ticket={ticket}", headers={"Sec-Purpose": "prefetch"})
        begun = visitor.http.get(f"{LOGIN}?ticket={ticket}")

    assert begun.status_code == 303


def test_a_ticket_lives_for_a_minute_and_is_stored_as_a_hash(
    app_database_url: DatabaseUrl, config: ApiConfig, api: Api
) -> None:
    ticket = ticket_of(config, api.tenant.client_id)
    with psycopg.connect(app_database_url) as connection:
        rows = connection.execute("SELECT ticket_hash FROM console_tickets").fetchall()

    async def redeem(at: datetime) -> str | None:
        engine = async_engine(app_database_url)
        try:
            async with engine.begin() as connection:
                return await console_tickets.redeem(connection, ticket=ticket, keys=KEYS, at=at)
        finally:
            await engine.dispose()

    assert asyncio.run(redeem(datetime.now(UTC) + timedelta(seconds=61))) is None
    assert all(ticket.encode() not in bytes(row[0]) for row in rows)


def test_a_ticket_that_was_moved_to_another_token_opens_nothing(
    root: str, api: Api, config: ApiConfig, database_url: DatabaseUrl
) -> None:
    ticket = ticket_of(config, api.tenant.client_id)
    other = new_tenant(config.database_url)
    with psycopg.connect(database_url) as owner:
        moved = owner.execute(
            "UPDATE console_tickets SET api_token_id ="
            " (SELECT id FROM api_tokens WHERE client_id = %s) WHERE ticket_hash = %s",
            [other.client_id, KEYS.hash_secret(ticket, Purpose.CONSOLE_TICKET)],
        )

    assert moved.rowcount == 1
    with Person(root) as visitor:
        shown(visitor.http.get(f"{LOGIN}?ticket={ticket}"), 401)


GUESS = f"{'0' * 32}_{'x' * 43}"
"""What looks like a ticket."""


@pytest.mark.parametrize("ticket", ["x", "é", "x" * 99, "%00", GUESS, GUESS + "%00"])
def test_an_unknown_ticket_opens_nothing(root: str, ticket: str) -> None:
    with Person(root) as stranger:
        shown(stranger.http.get(f"{LOGIN}?ticket={ticket}"), 401)


def test_guessed_tickets_are_bounded_and_take_few_connections(
    config: ApiConfig, database_url: DatabaseUrl
) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE 'DELETE FROM console_tickets%'"
    )
    counts: list[int] = []

    def guess(_: int = 0) -> int:
        with Person(strict) as stranger:
            return stranger.http.get(f"{LOGIN}?ticket={GUESS}").status_code

    with (
        server(replace(config, failure_limit="3/hour")) as strict,
        psycopg.connect(database_url) as owner,
        psycopg.connect(database_url, autocommit=True) as observer,
        ThreadPoolExecutor(10) as pool,
    ):
        statuses = [guess() for _ in range(5)]
        owner.execute("LOCK TABLE console_tickets IN ACCESS EXCLUSIVE MODE")
        guesses = [pool.submit(guess, number) for number in range(10)]

        def have_waited() -> bool:
            counts.extend(observer.execute(waiting).fetchone() or ())
            return any(each.done() for each in guesses)  # The first has waited for its limit.

        eventually(have_waited)
        owner.rollback()

    assert statuses == [401, 401, 401, 429, 429]
    assert 1 <= max(counts) <= 4


# --- what the setting allows ----------------------------------------------------------------------


def test_without_a_console_its_paths_do_not_exist(config: ApiConfig) -> None:
    with server(replace(config, console=ConsoleConfig())) as without, Person(without) as visitor:
        visitor.http.event_hooks = {}
        for path in ("/", ROOT, LOGIN, f"{ROOT}/static/console.css"):
            refused(visitor.http.get(path), 404, "REFERENCE_NOT_FOUND")


def test_a_console_that_only_shows_logs_in(config: ApiConfig, api: Api) -> None:
    reading = replace(config, console=ConsoleConfig(mode=ConsoleMode.READ))
    with server(reading) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)

        assert "Overview" in shown(visitor.get(""))
