"""The command that a list shows returns what the page shows, or says where it cannot."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Final
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from cardledger.api.console.html import documents
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, ok
from tests.console.person import Person, command_of, shown, url_in
from tests.console.test_accounts import main_of

MANY: Final = 24
"""More than a page of the API has unless a limit is given."""


@pytest.fixture(scope="module")
def owner(api: Api, database_url: DatabaseUrl) -> Mapping[str, str]:
    """A customer with more rows of each list than a page of the API, and more customers."""
    for _ in range(MANY):
        api.customer()
    card = api.active_card(balance=0)
    customer, [account] = card["cardholderId"], card["fundingSources"]
    for number in range(MANY):
        api.card(customer, [account], platformCardId=f"card {number}")
        api.authorize(card["id"], 100)  # Declined.
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO webhook_endpoints (id, platform_id, url, event_types, mode, state,"
            " disabled_reason, is_default, created_at, updated_at) SELECT gen_random_uuid(), %s,"
            " 'https://example.com/' || n, '{}', 'PARALLEL', 'DISABLED', 'PLATFORM', false, now(),"
            " now()"
            " FROM generate_series(1, %s) AS n",
            [api.tenant.platform_id, MANY],
        )
    return {"customer": customer, "card": card["id"], "account": account}


def ids(page: str, resource: str) -> list[str]:
    """Return the ids that a page lists, each once, in its order."""
    return list(dict.fromkeys(re.findall(rf"/({resource}:[0-9a-f-]{{36}})\"", main_of(page))))


LISTS: Final = (
    ("/card-transactions?status=DECLINED", "CardTransaction"),
    ("/card-transactions?customerId={customer}", "CardTransaction"),
    ("/cards", "Card"),
    ("/cards?customerId={customer}", "Card"),
    ("/customers", "Customer"),
    ("/webhooks", "WebhookEndpoint"),
)


@pytest.mark.parametrize(("path", "resource"), LISTS)
def test_the_command_returns_the_page(
    person: Person, api: Api, owner: Mapping[str, str], path: str, resource: str
) -> None:
    page = shown(person.http.get(f"/console{path.format(**owner)}"))

    url = url_in(command_of(page))
    found = [each["id"] for each in ok(api.http.get(url))["data"]]
    assert len(found) > MANY - 1
    assert found == ids(page, resource)
    assert note_of(page) in {None, documents.MORE}


def note_of(page: str) -> str | None:
    part = page.partition('<section class="api"')[2].partition("<details>")[0]
    found = re.search(r'<p class="hint">(.*?)</p>', part)
    return None if found is None else unescape(found[1])


def test_the_command_has_the_limit_of_the_page(person: Person, owner: Mapping[str, str]) -> None:
    page = shown(person.get("/cards", customerId=owner["customer"], limit=3))

    assert parse_qs(urlsplit(url_in(command_of(page))).query)["limit"] == ["3"]


def test_the_command_lists_every_exception_of_the_page(person: Person, api: Api) -> None:
    for _ in range(MANY):
        card = api.active_card(balance=1_000)["id"]
        api.clear(card, str(api.authorize(card, 1_000)["id"]), 2_000)

    page = shown(person.get("/exceptions"))

    found = {each["id"] for each in ok(api.http.get(url_in(command_of(page))))["data"]}
    assert found == set(ids(page, "CardTransaction"))
    assert len(found) == MANY
    assert "by their creation" in str(note_of(page))


def test_the_command_of_accounts_has_every_one_in_another_order(person: Person, api: Api) -> None:
    page = shown(person.get("/accounts", currency="USD", limit=100))

    found = [each["id"] for each in ok(api.http.get(url_in(command_of(page))))["data"]]
    assert len(found) > MANY
    assert found[::-1] == ids(page, "InternalAccount")[-len(found) :]
    assert "the oldest first" in str(note_of(page))


@pytest.mark.parametrize("path", ["/cards?limit=2", "/exceptions?limit=2", "/webhooks?limit=2"])
def test_a_later_page_says_that_the_command_returns_the_first(
    person: Person,
    owner: Mapping[str, str],  # noqa: ARG001 - has what is listed
    path: str,
) -> None:
    first = shown(person.http.get(f"/console{path}"))
    link = re.search(r'rel="next" href="([^"]+)"', first)
    assert link is not None
    second = shown(person.http.get(unescape(link[1])))

    assert ["later page" in str(note_of(page)) for page in (first, second)] == [False, True]


@pytest.mark.parametrize(
    "path", ["/card-transactions?minAmount=1.00 USD", "/exceptions?currency=USD"]
)
def test_a_filter_that_the_api_lacks_is_noted(person: Person, path: str) -> None:
    notes = [
        str(note_of(shown(person.http.get(f"/console{each}"))))
        for each in (path, path.partition("?")[0])
    ]

    assert ["selects within one page" in note for note in notes] == [True, False]
