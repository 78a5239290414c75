"""System: what the installation runs on, and the last requests; and that no page has a secret."""

import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import conninfo

from cardledger.api.app import ApiConfig
from cardledger.api.health import examination
from cardledger.api.health.examination import Report
from cardledger.api.http.recent_requests import (
    LIMIT,
    RecentRequest,
    RecentRequests,
    code_in,
)
from cardledger.install.installation_report import examiner
from cardledger.ledger.sandbox import card_numbers
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import compatibility
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id
from tests.api.support import SECRET_KEY, Api, made, new_tenant, ok, server
from tests.console.crawling import pages_of
from tests.console.person import Person, shown
from tests.console.stories import play
from tests.console.test_api_calls import document_of
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s


def test_versions_schema_and_checks_are_shown(person: Person) -> None:
    page = eventually(lambda: _without_failures(person))

    assert compatibility.head() in page
    assert "PostgreSQL" in page
    assert 'href="/docs"' in page
    assert "those of the whole installation, of all platforms together" in page
    assert "inbox, live" in page


def test_the_findings_of_doctor_are_shown(person: Person) -> None:
    page = eventually(lambda: _part(shown(person.get("/system")), "findings-title"))

    found = re.findall(
        r'<tr><th scope="row">([^<]+)</th><td><b class="\w+">(ok|warn|fail|\?)</b></td>', page
    )
    names = [name for name, _ in found]
    assert {"fsync", "process roles", "role in use", "append-only", "inbox", "Redis"} <= set(names)
    assert dict(found)["append-only"] == "ok"
    assert "enforced on" in page
    assert "127.0.0.1" not in page


def test_workers_that_are_connected_are_shown(person: Person) -> None:
    def look() -> str | None:
        page = _part(shown(person.get("/system")), "workers-title")
        is_whole = "decides events of every queue" in page and "sends webhooks" in page
        return page if is_whole else None

    page = eventually(look, timeout_s=30)

    assert re.search(
        r'<th scope="row"><code>[0-9a-f]{12}</code></th><td>\d+</td><td class="time"><time', page
    )


def test_without_an_examination_the_page_says_so(config: ApiConfig, api: Api) -> None:
    with server(config) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)
        page = shown(visitor.get("/system"))

    assert "Nothing was examined yet." in page
    assert "Not known yet." in page


def test_old_findings_are_called_old_and_show_no_worker_as_connected(
    config: ApiConfig, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "_FRESH_S", 0.5)
    monkeypatch.setattr(examination, "_ANSWER_LIMIT_S", 0.01)
    is_silent, goes_on = threading.Event(), threading.Event()
    examine = examiner(config.database_url, config.redis_url, config.secret_key)

    def silent_later() -> Report:
        if is_silent.is_set():
            goes_on.wait(limit_s())
        return examine()

    with server(config, examine=silent_later) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)

        def page_with(words: str) -> str | None:
            page = shown(visitor.get("/system"))
            return page if words in page else None

        fresh = eventually(lambda: page_with("decides events of every queue"))
        is_silent.set()
        old = eventually(lambda: page_with("These findings are old"))
        goes_on.set()

    assert "These findings are old" not in fresh
    assert "Not known now." in old
    assert "decides events of every queue" not in old
    assert _part(old, "findings-title")


def _part(page: str, title: str) -> str:
    """Return the section with a title, once it has a table; else nothing."""
    part = page.partition(f'id="{title}"')[2].partition("</section>")[0]
    return part if "<table" in part else ""


def _request(number: int) -> RecentRequest:
    return RecentRequest(
        at=datetime(2026, 1, 31, tzinfo=UTC),
        platform_id=Id(bytes(16)),
        request_id=str(number),
        caller=None,
        method="GET",
        path="/",
        template="/",
        status=200,
        code=None,
        duration_ms=1.0,
    )


def _without_failures(person: Person) -> str | None:
    page = shown(person.get("/system"))
    return page if "Nothing is wrong" in page else None


def test_the_last_requests_are_shown_by_platform(
    person: Person, api: Api, other_platform: Api
) -> None:
    answer = api.get("/cards/Card:019542f5-b3e7-7d02-0000-00000000a1b4")
    assert answer.status_code == 404
    foreign = other_platform.get("/customers").headers["x-request-id"]

    page = shown(person.get("/system"))

    assert answer.headers["x-request-id"] in page
    assert answer.json()["code"] in page
    assert "GET /2025-10-13/cards/{card_id}" in page
    assert foreign not in page


def test_only_a_sandbox_keeps_requests(config: ApiConfig, api: Api) -> None:
    with server(replace(config, sandbox=False)) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)

        page = shown(visitor.get("/system"))

    assert "Last requests" not in page


def test_outside_a_sandbox_findings_have_names_and_results_only(
    config: ApiConfig, api: Api
) -> None:
    examine = examiner(config.database_url, config.redis_url, config.secret_key)
    closed = replace(config, sandbox=False)
    with server(closed, examine=examine) as root, Person(root) as visitor:
        visitor.log_in(api.tenant)

        def look() -> str | None:
            page = shown(visitor.get("/system"))
            return page if _part(page, "findings-title") else None

        page = eventually(look)

    findings = document_of(page)["examination"]["findings"]
    assert {"name": "append-only", "state": "ok"} in findings
    assert {frozenset(each) for each in findings} == {frozenset({"name", "state"})}
    part = _part(page, "findings-title")
    assert part.count("<td>") == len(findings)
    assert '<tr><th scope="row">append-only</th><td><b class="fine">ok</b></td></tr>' in part


def test_few_requests_are_kept() -> None:
    ring = RecentRequests()
    for number in range(LIMIT + 10):
        ring.note(_request(number))

    kept = ring.of(_request(0).platform_id)

    assert len(kept) == LIMIT
    assert [kept[0].request_id, kept[-1].request_id] == [str(LIMIT + 9), "10"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code": 7}', b"\xff"])
def test_a_body_without_a_code_has_none(body: bytes) -> None:
    assert code_in(body) is None


def test_no_page_of_a_played_day_has_a_secret(root: str, config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as api, Receiver() as receiver, Person(root) as visitor:
        endpoint = made(api.post("/webhooks/endpoints", {"url": receiver.url}))
        token = made(api.post("/tokens", {"name": "another", "permissions": ["VIEW"]}))
        card = api.active_card()["id"]
        number = _number_of(ok(api.get(f"/cards/{card}")))
        play(api)
        visitor.log_in(tenant)
        cookie = next(iter(visitor.http.cookies.jar)).value

        pages = "".join(page for _, page in pages_of(visitor))

    secrets = [tenant.client_secret, endpoint["secret"], token["clientSecret"], SECRET_KEY]
    password = conninfo.conninfo_to_dict(config.database_url).get("password")
    secrets += [str(cookie), number, f":{password}@"]
    assert len(pages) > 50_000
    assert [each for each in secrets if each in pages] == []
    assert "whsec_" not in pages
    assert "cvv" not in pages.lower()


def _number_of(card: dict[str, Any]) -> str:
    key = parse_id("Card", card["id"])
    return card_numbers.number_of(KeyRing(SECRET_KEY), key, card["last4"]).pan
