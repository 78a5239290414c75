"""The search box: what it understands, by index, and what it asks to add."""

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, ok
from tests.console.person import Person, shown
from tests.console.stories import Stories, play


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    return play(api)


def test_it_opens_what_a_text_names(person: Person, api: Api, stories: Stories) -> None:
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    card = ok(api.get(f"/cards/{tip['cardId']}"))
    [event, *_] = ok(api.get(f"/transactions/{stories.tip}/events"))["data"]
    customer = api.customer(platformCustomerId="customer 42")["id"]
    page = f"/console/card-transactions/{stories.tip}"

    expected = {
        stories.tip: page,
        stories.tip.partition(":")[2].upper(): page,
        f"  {stories.tip} ": page,
        f"{event['source']} {event['reference']}": page,
        f"{tip['issuerTransactionToken']} {tip['cardId']}": page,
        f"{tip['issuerTransactionToken']} {tip['customerId']}": page,
        tip["cardId"]: f"/console/cards/{tip['cardId']}",
        card["platformCardId"]: f"/console/cards/{tip['cardId']}",
        f"{card['last4']} {tip['customerId']}": f"/console/cards/{tip['cardId']}",
        tip["customerId"]: f"/console/customers/{tip['customerId']}",
        "customer 42": f"/console/customers/{customer}",
        tip["accountId"]: f"/console/accounts/{tip['accountId']}",
    }
    found = {text: person.get("/search", q=text).headers.get("location") for text in expected}

    assert found == expected


def test_what_has_no_page_is_named_with_its_address_in_the_api(
    person: Person, api: Api, database_url: DatabaseUrl
) -> None:
    key = new_id()
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
            " VALUES (%s, %s, %s, '{}', 'INVALID', now())",
            [key, new_id(), api.tenant.platform_id],
        )

    page = shown(person.get("/search", q=f"Rejection:{key}"))

    assert "The console has no page for it" in page
    assert f"/rejections/Rejection:{key}</code>" in page


@pytest.mark.parametrize(
    "text", ["", "4242", "token", "Card:1", "x" * 300, "' OR 1=1 --", "%", "é"]
)
def test_it_says_what_to_add_to_what_it_cannot_find(person: Person, text: str) -> None:
    page = shown(person.get("/search", q=text))

    assert "Not found." in page
    assert "Nothing of this platform" in page or "source and reference" in page


def test_it_finds_nothing_of_others(person: Person, other_platform: Api) -> None:
    card = other_platform.active_card()
    purchase = other_platform.authorize(card["id"], 100)
    [event, *_] = ok(other_platform.get(f"/transactions/{purchase['id']}/events"))["data"]
    names = [
        card["id"],
        card["id"].partition(":")[2],
        card["platformCardId"],
        purchase["id"],
        f"{event['source']} {event['reference']}",
        f"{card['last4']} {card['cardholderId']}",
        f"{purchase['issuerTransactionToken']} {card['id']}",
    ]

    for name in names:
        assert "Not found." in shown(person.get("/search", q=name)), name


def test_what_is_too_long_is_an_error(person: Person) -> None:
    shown(person.get("/search", q="x" * 301), 400)
