"""Headers of the answers below the console that no page of it gives."""

from dataclasses import replace

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.api.console.html.headers import HEADERS
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, refused, server
from tests.console.person import Person, shown


def has_all_headers(response: httpx2.Response) -> bool:
    return {name: response.headers.get(name) for name in HEADERS} == HEADERS


def test_a_form_that_a_browser_says_is_of_another_site(person: Person) -> None:
    answer = person.post("/login", {}, **{"Sec-Fetch-Site": "cross-site"})

    refused(answer, 403, "FORBIDDEN")
    assert has_all_headers(answer)


@pytest.mark.parametrize("path", ["", "/cards", "/logout", "/static/console.css"])
def test_a_method_that_is_not_allowed(person: Person, path: str) -> None:
    answer = person.http.delete(f"{ROOT}{path}")

    refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert has_all_headers(answer)


def test_a_head_that_is_too_large(person: Person) -> None:
    answers = [
        person.http.get(ROOT, headers=[(f"X-{number}", "x") for number in range(120)]),
        person.http.get(f"{ROOT}?{'&' * 60}"),
        person.http.get(f"{ROOT}/static/none.css"),
    ]

    assert [answer.status_code for answer in answers] == [431, 400, 404]
    assert all(map(has_all_headers, answers))


def test_what_is_not_answered_in_time_is_a_page(
    config: ApiConfig, api: Api, database_url: DatabaseUrl
) -> None:
    form_path = f"/simulator/cards/{api.active_card()['id']}"
    with (
        server(replace(config, reply_timeout_s=0.5)) as root,
        Person(root) as visitor,
        psycopg.connect(database_url) as owner,
    ):
        visitor.log_in(api.tenant)
        form = {
            "form_token": visitor.hidden(shown(visitor.get(form_path)), "form_token"),
            "idempotency_key": forms.new_key(),
            "amount": "1.00 USD",
            "descriptor": "SLOW SHOP",
        }
        owner.execute("LOCK TABLE card_transactions, cards IN ACCESS EXCLUSIVE MODE")
        read = visitor.get("/card-transactions")
        sent = visitor.post(f"{form_path}/authorization", form)
        program = visitor.http.get(f"{BASE_PATH}/cards", auth=credentials_of(api))
        owner.rollback()

    assert "The database does not answer in time. Reload the page" in shown(read, 503)
    assert "send the same form again: it is applied once" in shown(sent, 503)
    assert read.headers["x-request-id"] in read.text
    assert "SLOW SHOP" in sent.text
    assert all(map(has_all_headers, (read, sent)))
    refused(program, 503, "SERVICE_UNAVAILABLE")


def credentials_of(api: Api) -> tuple[str, str]:
    return api.tenant.client_id, api.tenant.client_secret


def test_the_rest_of_the_api_has_headers_of_its_own(root: str) -> None:
    with httpx2.Client(base_url=root) as client:
        answers = [client.get("/consoles"), client.get("/healthz"), client.delete("/docs")]

    assert not any("Content-Security-Policy" in answer.headers for answer in answers[:2])
    assert all("X-Robots-Tag" not in answer.headers for answer in answers)
