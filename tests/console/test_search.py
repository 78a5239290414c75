"""The search box: what it understands, by index, and what it asks to add."""

import re
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries.console import search
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire import common
from tests.api.support import Api, made, ok
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


def test_a_card_or_a_token_beside_its_owner_is_found_in_either_order(
    person: Person, api: Api
) -> None:
    owner = api.customer(platformCustomerId="owner 7 of many")["id"]
    account = api.account(owner)["id"]
    api.fund(account, 5_000)
    made_card = api.card(owner, [account], platformCardId="card 9 of 4")
    card = api.wait_for_state(made_card["id"], "ACTIVE")
    purchase = api.authorize(card["id"], 100)
    last4, token = card["last4"], purchase["issuerTransactionToken"]
    owners = ["owner 7 of many", owner, owner.partition(":")[2]]
    named = [*owners, card["id"].partition(":")[2], "card 9 of 4"]
    card_page = f"/console/cards/{card['id']}"
    page = f"/console/card-transactions/{purchase['id']}"

    expected = {
        **{f"{last4} {each}": card_page for each in owners},
        **{f"{each}  {last4}": card_page for each in owners},
        **{f"{token} {each}": page for each in named},
        **{f"{each} {token}": page for each in named},
    }
    found = {text: person.get("/search", q=text).headers.get("location") for text in expected}

    assert found == expected


@pytest.mark.parametrize("word", ["user:", "Customer:", "Quote:", ""])
def test_a_platforms_own_identifier_may_have_the_form_of_an_id(
    person: Person, api: Api, word: str
) -> None:
    of_customer, of_card = (f"{word}{uuid4()}" for _ in range(2))
    owner = api.customer(platformCustomerId=of_customer)["id"]
    card = api.card(owner, [api.account(owner)["id"]], platformCardId=of_card)["id"]

    found = [person.get("/search", q=each).headers["location"] for each in (of_customer, of_card)]

    assert found == [f"/console/customers/{owner}", f"/console/cards/{card}"]


def test_a_name_that_was_given_again_is_that_of_both_customers(person: Person, api: Api) -> None:
    found = {}
    for _ in range(2):
        owner = api.customer(platformCustomerId="twice")["id"]
        made_card = api.card(owner, [api.account(owner)["id"]])
        card = api.wait_for_state(made_card["id"], "ACTIVE")
        ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))
        assert api.delete(f"/customers/{owner}").is_success
        found[card["id"]] = card["last4"]

    pages = {card: person.get("/search", q=f"{last4} twice") for card, last4 in found.items()}

    for card, answer in pages.items():
        assert card in answer.headers.get("location", answer.text)


@pytest.mark.parametrize(
    ("source", "reference"),
    [("visa europe", ""), ("visa", "europe x "), ("a b c d e", "f g ")],
)
def test_a_source_and_a_reference_may_have_blanks(
    person: Person, api: Api, database_url: DatabaseUrl, source: str, reference: str
) -> None:
    key, reference = new_id(), f"{reference}{new_id()}"
    event = {
        "type": "AUTHORIZATION",
        "source": source,
        "reference": reference,
        "issuerTransactionToken": reference,
        "cardId": api.active_card()["id"],
        "amount": 100,
        "currency": "USD",
    }
    [outcome] = api.http.post(f"{api.root}/network-events", json=[event]).json()
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body,"
            " reason, recorded_at) VALUES (%s, %s, %s, %s, %s, '{}', 'MALFORMED', now())",
            [key, new_id(), api.tenant.platform_id, source, reference],
        )

    page = shown(person.get("/search", q=f"{source}  {reference}"))

    assert "2 found." in page
    assert f"Rejection:{key}" in page
    assert outcome["cardTransaction"]["id"] in page


def test_a_text_of_many_words_is_split_at_some_of_them_and_the_page_says_so(
    person: Person, api: Api
) -> None:
    words = " ".join("x" * search.SPLIT_LIMIT)
    customer = api.customer(platformCustomerId=f"{words} y")["id"]
    made_card = api.card(customer, [api.account(customer)["id"]])
    card = api.wait_for_state(made_card["id"], "ACTIVE")

    at_the_end = person.get("/search", q=f"{words} y {card['last4']}").headers.get("location")
    few = shown(person.get("/search", q=f"{words} 8123"))
    many = shown(person.get("/search", q=f"{words} x 8123"))

    assert at_the_end == f"/console/cards/{card['id']}"
    assert "is split at the first and last ones only" not in few
    assert "is split at the first and last ones only" in many


def test_a_bare_id_that_is_unknown_may_be_a_token(person: Person) -> None:
    page = shown(person.get("/search", q=str(new_id())))

    assert "needs the card or the customer: `token Card:…`" in page


def test_what_has_no_page_is_named_with_its_address_in_the_api(
    person: Person, api: Api, database_url: DatabaseUrl
) -> None:
    key = new_id()
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
            " VALUES (%s, %s, %s, '{}', 'MALFORMED', now())",
            [key, new_id(), api.tenant.platform_id],
        )

    page = shown(person.get("/search", q=f"Rejection:{key}"))

    assert "The console has no page for it" in page
    [address] = addresses_in(page)
    assert ok(api.http.get(address))["id"] == f"Rejection:{key}"


def addresses_in(page: str) -> list[str]:
    return re.findall(r"<code>(http[^<]*)</code>", page)


def test_a_deposit_is_found(person: Person, api: Api) -> None:
    customer = api.customer()["id"]
    api.fund(api.account(customer)["id"], 5_000)
    [deposit] = ok(api.get("/transactions", customerId=customer))["data"]

    pages = [
        shown(person.get("/search", q=text))
        for text in (deposit["id"], deposit["id"].partition(":")[2])
    ]

    for page in pages:
        [address] = addresses_in(page)
        assert ok(api.http.get(address))["id"] == deposit["id"]


def test_a_rejected_event_is_found_by_its_key(
    person: Person, api: Api, other_platform: Api, database_url: DatabaseUrl
) -> None:
    mine, foreign, other = new_id(), new_id(), new_id()
    with psycopg.connect(database_url) as owner:
        for key, platform, source in (
            (mine, api.tenant.platform_id, "visa"),
            (foreign, other_platform.tenant.platform_id, "visa"),
            (other, api.tenant.platform_id, "mastercard"),
        ):
            owner.execute(
                "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body,"
                " reason, recorded_at) VALUES (%s, %s, %s, %s, 'rejected 8123', '{}', 'MALFORMED',"
                " now())",
                [key, new_id(), platform, source],
            )

    page = shown(person.get("/search", q="visa rejected 8123"))

    [address] = addresses_in(page)
    assert ok(api.http.get(address))["id"] == f"Rejection:{mine}"
    assert f"Rejection:{foreign}" not in page
    assert f"Rejection:{other}" not in page


def test_an_event_that_was_parked_before_its_card_transaction_existed_is_found(
    person: Person, api: Api
) -> None:
    card, reference = api.active_card(), f"parked-{new_id()}"
    event = {
        "type": "AUTHORIZATION_REVERSAL",
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": reference,
        "cardId": card["id"],
        "amount": 100,
        "currency": "USD",
    }
    first = {"type": "AUTHORIZATION", "reference": f"{reference}-first"}

    [outcome] = api.http.post(f"{api.root}/network-events", json=[event]).json()
    [parked] = [
        each
        for each in ok(api.get("/parked-events", limit=100))["data"]
        if each["reference"] == reference
    ]
    waiting = shown(person.get("/search", q=f"visa {reference}"))
    [address] = addresses_in(waiting)
    found = ok(api.http.get(address))
    [authorized] = api.http.post(f"{api.root}/network-events", json=[event | first]).json()
    applied = shown(person.get("/search", q=f"visa {reference}"))

    assert (outcome["outcome"], authorized["outcome"]) == ("PARKED", "APPLIED")
    assert "by its event, which is parked" in waiting
    assert found["id"] == parked["id"]
    assert "Not found" not in waiting + applied
    assert parked["id"] not in applied
    assert f'href="/console/customers/{card["cardholderId"]}"' in applied
    assert "which was parked before its card transaction existed" in applied


def test_what_the_search_does_not_look_for_is_named_with_its_address_in_the_api(
    person: Person, api: Api
) -> None:
    customer = api.customer()["id"]
    ids = [
        api.agent(customer)["agent"]["id"],
        made(api.post("/tokens", {"name": "another", "permissions": ["VIEW"]}))["id"],
        ok(api.get("/config"))["id"],
    ]

    for key in ids:
        page = shown(person.get("/search", q=key))

        assert f"no page for this kind of id: {key.partition(':')[0]}." in page
        [address] = addresses_in(page)
        assert ok(api.http.get(address))["id"] == key
    quote = shown(person.get("/search", q=ids[0].partition(":")[2]))
    assert "write the whole id" in quote


def test_every_kind_of_id_has_an_answer(person: Person, api: Api) -> None:
    names = set(re.findall(r'"([A-Z]\w+)"', "".join(ID_TYPES.findall(common_source()))))
    key = new_id()

    pages = {name: shown(person.get("/search", q=f"{name}:{key}")) for name in names}

    nowhere = {name for name, page in pages.items() if "Nothing of this platform" in page}
    assert nowhere == SEARCHED
    for name in names - nowhere:
        for address in addresses_in(pages[name]):
            answer = api.http.get(address)
            assert answer.json().get("message") != "Unknown path.", address
            assert answer.status_code == (200 if name == "PlatformConfig" else 404), address


def test_what_is_left_out_is_said(
    person: Person, api: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = api.active_card()
    customer, account = card["cardholderId"], card["fundingSources"][0]
    api.card(customer, [account])
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body, reason,"
            " recorded_at) SELECT gen_random_uuid(), %s, %s, 'visa', 'often', '{}', 'MALFORMED',"
            " now() FROM generate_series(1, 20)",
            [new_id(), api.tenant.platform_id],
        )
        owner.commit()
        exactly = shown(person.get("/search", q="visa often"))
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body, reason,"
            " recorded_at) VALUES (%s, %s, %s, 'visa', 'often', '{}', 'MALFORMED', now())",
            [new_id(), new_id(), api.tenant.platform_id],
        )
        owner.commit()
    more = shown(person.get("/search", q="visa often"))
    query = f"{card['last4']} {customer}"
    monkeypatch.setattr(search, "CARD_LIMIT", 1)
    of_few = shown(person.get("/search", q=query))

    assert "20 found." in exactly
    assert "The first 20; there are more." in more
    assert len(addresses_in(more)) == 20
    assert "Only the first 1 cards of this customer were looked at." in of_few


ID_TYPES = re.compile(r"_id_type\((.*)\)")
SEARCHED = {
    "Card",
    "CardTransaction",
    "Customer",
    "InternalAccount",
    "Transaction",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Rejection",
}


def common_source() -> str:
    return Path(common.__file__).read_text(encoding="utf-8")


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
        ok(other_platform.get("/transactions", customerId=card["cardholderId"]))["data"][-1]["id"],
        purchase["id"],
        f"{event['source']} {event['reference']}",
        f"{card['last4']} {card['cardholderId']}",
        f"{purchase['issuerTransactionToken']} {card['id']}",
    ]

    for name in names:
        assert "Not found." in shown(person.get("/search", q=name)), name


def test_what_is_too_long_is_an_error(person: Person) -> None:
    shown(person.get("/search", q="x" * 301), 400)
