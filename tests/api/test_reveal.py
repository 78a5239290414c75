"""A card's number: seen once, by who may, for a while; and nowhere else."""

import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.api.app import ApiConfig
from cardledger.api.http.middleware import shown
from cardledger.api.routes.card_embed import card_section
from cardledger.ledger.cards.reveals import PAGE_LIMIT, RevealedCard
from cardledger.ledger.core.card import CardState
from cardledger.ledger.ports import CardNumber
from cardledger.ledger.sandbox.card_numbers import number_of, passes_luhn
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema.ids import Id
from tests.api.support import (
    SECRET_KEY,
    WRONG_TOKENS,
    Api,
    at_once,
    new_tenant,
    ok,
    refused,
    server,
)

KEYS = KeyRing(SECRET_KEY)


def reveal(api: Api, card: dict[str, Any]) -> str:
    url = ok(api.http.post(f"/cards/{card['id']}/reveal"))["panEmbedUrl"]
    assert isinstance(url, str)
    return url


FRAME = {"sec-fetch-dest": "iframe", "sec-fetch-mode": "navigate"}


def framed(url: str, **headers: str) -> httpx2.Response:
    """Return what a browser shows in a frame."""
    return httpx2.get(url, headers=FRAME | headers)


def digits(page: httpx2.Response) -> str:
    """Return the number on a page, as a person would copy it."""
    [groups] = re.findall(r'<div class="pan"[^>]*>(.*?)</div>', page.text)
    return re.sub(r"<[^>]*>", "", groups)


def assert_guarded(page: httpx2.Response) -> None:
    """Assert that the page is not cached, leaks nothing and loads nothing."""
    headers = page.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]
    assert "x-frame-options" not in headers
    assert ("set-cookie" in headers) == ('class="pan"' in page.text) == ("refresh" in headers)
    [style] = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "https: http://localhost:* http://127.0.0.1:*",
    }
    for loaded in ("http:", "https:", "src=", "href=", "url(", "<script", "style="):
        assert loaded not in page.text


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What the server logs, which runs in this process."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    with capture_logs() as captured:
        yield captured
    structlog.configure(**configured)


def test_a_card_is_shown_to_one_browser(api: Api) -> None:
    card = api.active_card(balance=0)

    answer = api.http.post(f"/cards/{card['id']}/reveal")
    url = ok(answer)["panEmbedUrl"]
    page = framed(url)
    again = framed(url)

    assert answer.headers["cache-control"] == "no-store"
    assert set(answer.json()) == {"panEmbedUrl", "expiresAt"}
    assert re.fullmatch(re.escape(api.root) + r"/embed/cards/[0-9a-f]{32}_[A-Za-z0-9_-]{43}", url)
    assert page.status_code == 200
    assert_guarded(page)
    number = digits(page)
    assert re.fullmatch(r"400000\d{10}", number)
    assert number.endswith(card["last4"])
    assert passes_luhn(number)
    assert f"{card['expMonth']:02}/{card['expYear'] % 100}" in page.text
    assert re.search(r"CVV</dt><dd>\d{3}</dd>", page.text)
    assert again.status_code == 404
    assert_guarded(again)
    assert number[:12] not in again.text


def test_every_call_makes_a_page_and_all_show_the_same_number(api: Api) -> None:
    card = api.active_card(balance=0)
    first, second = reveal(api, card), reveal(api, card)

    pages = [framed(url) for url in (second, first)]

    assert first != second
    assert pages[0].status_code == pages[1].status_code == 200
    assert digits(pages[0]) == digits(pages[1])


def test_a_frozen_card_is_shown_and_says_so(api: Api) -> None:
    card = api.active_card(balance=0)
    ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))

    page = framed(reveal(api, card))

    assert page.status_code == 200
    assert "frozen" in page.text


def test_a_page_that_is_too_old_is_gone(api: Api, database_url: str) -> None:
    url = reveal(api, api.active_card(balance=0))
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT expires_at - created_at FROM card_reveals").fetchall()
        connection.execute(
            "UPDATE card_reveals SET expires_at = created_at WHERE opened_at IS NULL"
        )

    page = framed(url)

    assert {lifetime.total_seconds() for (lifetime,) in rows} == {60}
    assert page.status_code == 404
    assert_guarded(page)


def test_a_card_has_so_many_pages_that_have_not_expired(api: Api, database_url: str) -> None:
    card, other = api.active_card(balance=0), api.active_card(balance=0)
    path = f"/cards/{card['id']}/reveal"

    answers = at_once(PAGE_LIMIT + 4, lambda: api.http.post(path))

    full = [answer for answer in answers if answer.status_code != 200]
    assert len(full) == 4
    for answer in full:
        assert refused(answer, 409, "CONFLICT")["details"] == {"limit": PAGE_LIMIT}
    reveal(api, other)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE card_reveals SET expires_at = created_at")
    reveal(api, card)


def test_a_card_closed_since_is_not_shown(api: Api) -> None:
    card = api.active_card(balance=0)
    url = reveal(api, card)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    assert framed(url).status_code == 404


@pytest.mark.parametrize("token", WRONG_TOKENS)
def test_a_page_that_does_not_exist_is_404(root: str, token: str) -> None:
    page = framed(f"{root}/embed/cards/{token}")

    assert page.status_code == 404
    assert_guarded(page)
    assert token not in page.text.split("<main>")[1]


def test_only_get_and_post_show_the_page_of_a_card(api: Api) -> None:
    url = reveal(api, api.active_card(balance=0))

    for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        assert httpx2.request(method, url).status_code == 405

    assert framed(url).status_code == 200  # None of them was the first view.


def test_a_page_shows_the_brand_of_its_card(api: Api, database_url: str) -> None:
    card = api.active_card(balance=0)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE cards SET brand = 'MASTERCARD' WHERE id = %s", [card["id"].partition(":")[2]]
        )

    page = framed(reveal(api, card))

    assert '<span class="brand">MASTERCARD</span>' in page.text
    assert "VISA" not in page.text


@pytest.mark.parametrize("state", [CardState.ACTIVE, CardState.FROZEN])
@pytest.mark.parametrize("is_test", [True, False])
def test_only_the_page_of_a_test_number_says_that_the_card_is_a_test_card(
    state: CardState, *, is_test: bool
) -> None:
    card = RevealedCard(
        card_id=new_id(),
        state=state,
        brand="VISA",
        last4="1881",
        exp_month=1,
        exp_year=2030,
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
        viewer="",
    )
    number = CardNumber(pan="4012888888881881", cvv="123", is_test=is_test)

    section = card_section(card, number)

    assert ("test card" in section) is is_test


def test_a_page_that_is_given_to_another_card_shows_none(
    api: Api, other_platform: Api, database_url: str
) -> None:
    mine = reveal(api, api.active_card(balance=0))
    theirs = other_platform.active_card(balance=0)
    digest = KEYS.hash_secret(mine.rpartition("/")[2], Purpose.CARD_PAGE)
    with psycopg.connect(database_url) as connection:
        moved = connection.execute(
            "UPDATE card_reveals SET card_id = %s WHERE token_hash = %s",
            [theirs["id"].removeprefix("Card:"), digest],
        )

    pages = [framed(mine), httpx2.get(mine), httpx2.post(mine)]

    assert moved.rowcount == 1
    assert [page.status_code for page in pages] == [404, 404, 404]
    assert not any('class="pan"' in page.text for page in pages)


def test_head_is_not_a_view(api: Api) -> None:
    url = reveal(api, api.active_card(balance=0))

    head = httpx2.head(url)
    page = framed(url)
    late = httpx2.head(url)

    assert (head.status_code, head.content, late.status_code) == (200, b"", 404)
    assert "set-cookie" not in head.headers
    assert page.status_code == 200


def test_a_link_preview_shows_nothing_and_uses_nothing_up(api: Api, database_url: str) -> None:
    card = api.active_card(balance=0)
    url = reveal(api, card)
    bots = [{}, {"user-agent": "Slackbot-LinkExpanding 1.0"}, {"sec-fetch-dest": "document"}]

    previews = [httpx2.get(url, headers=bot) for bot in bots for _ in range(2)]
    page = framed(url)
    late = httpx2.get(url)

    for preview in previews:
        assert preview.status_code == 200
        assert_guarded(preview)
        assert '<form method="post"><button>' in preview.text
        for secret in (digits(page), digits(page)[-4:], "CVV"):
            assert secret not in preview.text
    assert page.status_code == 200
    assert late.status_code == 404
    assert views(database_url, card) == [1]


def test_a_button_shows_the_card_without_a_script_and_the_browser_may_load_it_again(
    api: Api, database_url: str
) -> None:
    card = api.active_card(balance=0)
    url = reveal(api, card)

    with httpx2.Client() as browser, httpx2.Client() as other:
        browser.get(url)
        form = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
        }
        pressed = browser.post(url, content=b"", headers=form)
        again = browser.get(url)
        refusals = [other.post(url, content=b"", headers=form), other.get(url), framed(url)]

    assert pressed.status_code == again.status_code == 200
    assert digits(pressed) == digits(again)
    assert_guarded(pressed)
    assert "<script" not in pressed.text
    assert 1 <= int(pressed.headers["refresh"]) <= 61  # Then the number is gone from the screen.
    assert {page.status_code for page in refusals} == {404}
    assert views(database_url, card) == [2]


def views(database_url: str, card: dict[str, Any]) -> list[int]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT view_count FROM card_reveals WHERE card_id = %s ORDER BY view_count",
            [card["id"].removeprefix("Card:")],
        ).fetchall()
    return [count for (count,) in rows]


def test_the_first_browser_opens_the_page_again_and_no_other_does(
    api: Api, database_url: str
) -> None:
    card = api.active_card(balance=0)
    url, other_url = reveal(api, card), reveal(api, card)

    with httpx2.Client(headers=FRAME) as browser, httpx2.Client(headers=FRAME) as other:
        pages = [browser.get(url) for _ in range(3)]
        refusals = [other.get(url), framed(url)]
        assert other.get(other_url).status_code == 200
        [viewer] = [cookie.value for cookie in other.cookies.jar]
        refusals.append(framed(url, cookie=f"card_viewer={viewer}"))

    assert [page.status_code for page in pages] == [200, 200, 200]
    assert len({digits(page) for page in pages}) == 1
    assert {page.status_code for page in refusals} == {404}
    for page in (*pages, *refusals):
        assert_guarded(page)
    assert views(database_url, card) == [1, 3]


def test_the_first_browser_loses_the_page_after_one_minute(api: Api, database_url: str) -> None:
    url = reveal(api, api.active_card(balance=0))

    with httpx2.Client(headers=FRAME) as browser:
        assert browser.get(url).status_code == 200
        with psycopg.connect(database_url) as connection:
            connection.execute("UPDATE card_reveals SET expires_at = created_at")
        page = browser.get(url)

    assert page.status_code == 404
    assert_guarded(page)


def test_the_viewers_cookie_is_for_this_page_only(api: Api) -> None:
    url = reveal(api, api.active_card(balance=0))

    cookie = framed(url).headers["set-cookie"]

    name, *attributes = cookie.split("; ")
    assert re.fullmatch("card_viewer=[0-9a-f]{64}", name)
    path, age, *rules = attributes
    assert path == "Path=" + url.removeprefix(api.root)
    assert 0 < int(age.removeprefix("Max-Age=")) <= 60
    assert rules == ["HttpOnly", "SameSite=Lax"]


def test_the_url_and_its_cookie_are_of_the_public_url_and_not_of_the_header_host(
    api: Api, api_config: ApiConfig
) -> None:
    card = api.active_card(balance=0)
    public = "https://ledger.example.com/cards"
    with server(replace(api_config, public_url=public)) as root, Api(root, api.tenant) as behind:
        answer = behind.http.post(f"/cards/{card['id']}/reveal", headers={"host": "evil.example"})
        url = ok(answer)["panEmbedUrl"]
        cookie = framed(url.replace(public, root)).headers["set-cookie"]

    assert url.startswith(f"{public}/embed/cards/")
    _, path, _, *rules = cookie.split("; ")
    assert path == "Path=" + url.removeprefix("https://ledger.example.com")
    # It works in a frame of another site.
    assert rules == ["HttpOnly", "SameSite=None", "Secure", "Partitioned"]


def test_without_a_public_url_it_is_the_address_of_the_server(api: Api) -> None:
    card = api.active_card(balance=0)

    answer = api.http.post(f"/cards/{card['id']}/reveal", headers={"host": "evil.example"})

    assert ok(answer)["panEmbedUrl"].startswith(f"{api.root}/embed/cards/")


def test_one_of_many_concurrent_browsers_sees_the_card(api: Api) -> None:
    url = reveal(api, api.active_card(balance=0))

    with ThreadPoolExecutor(12) as pool:
        pages = list(pool.map(lambda _: framed(url), range(12)))

    assert sorted(page.status_code for page in pages) == [200] + [404] * 11


@pytest.mark.parametrize("state", ["PENDING_KYC", "PROCESSING", "CLOSED"])
def test_a_card_without_a_number_has_none_to_show(api: Api, database_url: str, state: str) -> None:
    card = api.active_card(balance=0)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE cards SET state = %s WHERE id = %s",
            [state, card["id"].removeprefix("Card:")],
        )

    answer = api.http.post(f"/cards/{card['id']}/reveal")

    assert state in refused(answer, 409, "CONFLICT")["message"]


def test_showing_a_card_needs_the_permission_to_manage(
    api: Api, other_platform: Api, root: str, api_config: ApiConfig
) -> None:
    card = api.active_card(balance=0)
    path = f"/cards/{card['id']}/reveal"

    for permissions in (("VIEW",), ("TRANSACT",)):
        tenant = new_tenant(api_config.database_url, permissions=permissions, of=api.tenant)
        with Api(root, tenant) as other:
            refused(other.http.post(path), 403, "FORBIDDEN")
    refused(httpx2.post(root + "/2025-10-13" + path), 401, "UNAUTHORIZED")
    refused(other_platform.http.post(path), 404, "REFERENCE_NOT_FOUND")
    refused(api.http.post(f"/cards/Card:{uuid4()}/reveal"), 404, "REFERENCE_NOT_FOUND")


def test_each_view_of_a_card_is_recorded_without_secrets(
    api: Api, database_url: str, logs: list[Any]
) -> None:
    card = api.active_card(balance=0)
    url = reveal(api, card)
    token = url.rpartition("/")[2]
    page = framed(url)
    framed(url.replace("/embed/cards/", "/embed//Cards/"))
    framed(url + "/")
    number = number_of(KEYS, Id.parse(card["id"][5:]), card["last4"])
    assert digits(page) == number.pan

    with psycopg.connect(database_url) as connection:
        [[actor, opened]] = connection.execute(
            "SELECT t.client_id, r.opened_at FROM card_reveals r JOIN api_tokens t"
            " ON t.id = r.api_token_id WHERE r.card_id = %s",
            [card["id"][5:]],
        ).fetchall()
        [[actor_id]] = connection.execute(
            "SELECT id FROM api_tokens WHERE client_id = %s", [actor]
        ).fetchall()
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        ).fetchall()
        record = "".join(
            str(connection.execute(f'SELECT t::text FROM "{table}" t').fetchall())
            for (table,) in tables
        )

    assert actor == api.tenant.client_id
    assert opened is not None
    audited = [entry for entry in logs if entry.get("audit")]
    assert [(entry["event"], entry["actor"], entry["card"]) for entry in audited] == [
        ("card number requested", str(actor_id), card["id"]),
        ("card number shown", str(actor_id), card["id"]),
    ]
    paths = [entry["path"] for entry in logs if entry["event"] == "request"]
    assert "/embed/cards/…" in paths
    for secret in (token, number.pan, number.pan[:12]):
        assert secret not in record
        assert secret.encode().hex() not in record
        assert secret not in str(logs)


def test_uvicorns_access_log_has_no_token(caplog: pytest.LogCaptureFixture, api: Api) -> None:
    assert api.root  # The application is there.
    access = logging.getLogger("uvicorn.access")

    with caplog.at_level(logging.INFO, "uvicorn.access"):
        access.info('%s - "%s %s" %d', "127.0.0.1:5", "GET", "/embed/cards/s3cret?a=b", 200)
        access.info('%s - "%s %s" %d', "127.0.0.1:5", "GET", "/2025-10-13/cards/Card:1", 200)

    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        '127.0.0.1:5 - "GET /embed/cards/…" 200',
        '127.0.0.1:5 - "GET /2025-10-13/cards/Card:1" 200',
    ]


def test_only_what_is_secret_is_hidden() -> None:
    for path in ("/embed/cards/", "/embed", "/2025-10-13/cards/Card:1/reveal"):
        assert shown(path) == path
    for path in ("/embed/cards/x", "//embed//cards//x/y", "/EMBED/cards/x\ny", "/a/embed/cards/x"):
        assert shown(path).endswith("/…")


def test_numbers_belong_to_a_card_and_to_the_server_key() -> None:
    cards = [new_id() for _ in range(300)]
    numbers = [number_of(KEYS, card, "0042") for card in cards]

    assert all(passes_luhn(number.pan) and number.pan.endswith("0042") for number in numbers)
    assert {len(number.pan) for number in numbers} == {16}
    assert len({number.pan for number in numbers}) > 290
    assert numbers[0] == number_of(KEYS, cards[0], "0042")
    assert numbers[0] != number_of(
        KeyRing("another server key, also long enough"), cards[0], "0042"
    )
    assert numbers[0].pan not in repr(numbers[0])
    assert passes_luhn("4111111111111111")
    assert not passes_luhn("4111111111111112")
