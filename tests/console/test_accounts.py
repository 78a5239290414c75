"""Customers, accounts with their statements, and cards."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode
from uuid import UUID

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, new_tenant, ok
from tests.api.test_transfers import scene_of
from tests.console.person import Person, shown
from tests.console.test_api_calls import document_of
from tests.waiting import eventually

HOSTILE = "<script>alert(1)</script>\u202eAda"
GREATEST = 2**63 - 1


def main_of(page: str) -> str:
    return page.partition("<main")[2].partition('<section class="api"')[0]


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


@pytest.fixture(scope="module")
def card(api: Api) -> dict[str, object]:
    """A card with a tip of 15.00, of a customer with a hostile name."""
    customer = api.customer(fullName=HOSTILE, platformCustomerId="ada")
    account = api.account(customer["id"])
    api.fund(account["id"], 5_000)
    card = api.card(customer["id"], [account["id"]], platformCardId="card of ada")
    card = api.wait_for_state(card["id"], "ACTIVE")
    purchase = api.authorize(card["id"], 1_250, descriptor="BISTRO")["id"]
    api.clear(card["id"], purchase, 1_500)
    return card | {"purchase": purchase}


def account_of(card: dict[str, object]) -> str:
    return str(card["fundingSources"][0])  # type: ignore[index]


def named(kind: str, name: str) -> str:
    """Return the words of a row that say what its entry belongs to."""
    return f"{kind} …{name[-12:]} Copy {name}"


def booked_on(api: Api, account: str) -> list[str]:
    """Return the public ids of the deposits and transfers of an account."""
    found = ok(api.get("/transactions", accountIdentifier=account))["data"]
    return [each["id"] for each in found if each["type"] != "CARD"]


def test_the_statement_has_every_entry_with_the_balance_after_it(
    person: Person, api: Api, card: dict[str, object]
) -> None:
    [deposit] = booked_on(api, account_of(card))

    page = main_of(shown(person.get(f"/accounts/{account_of(card)}")))

    rows = [
        words_of(row)
        for row in page.partition("<table")[2].partition("</table>")[0].split("<tr>")[2:]
    ]
    rows = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", row) for row in rows]
    assert rows == [
        "3 pulled BISTRO card holds −2.50 35.00",  # noqa: RUF001 - a minus sign
        "2 pulled BISTRO card holds −12.50 37.50",  # noqa: RUF001
        f"1 deposited {named('deposit', deposit)} sandbox funding +50.00 50.00",
    ]
    assert f'href="/console/search?{urlencode({"q": deposit})}"' in page
    figures = words_of(page.partition('<dl class="figures"')[2].partition("</dl>")[0])
    assert "available 35.00 held for clearings 0.00 owed 0.00" in figures


def test_a_statement_leads_to_a_transfer_in_the_search(person: Person, api: Api) -> None:
    scene = scene_of(api)
    with scene.agent:
        scene.asks(400)

    def look() -> str | None:
        page = main_of(shown(person.get(f"/accounts/{scene.destination}")))
        return page if "transferred" in page else None

    page = eventually(look)
    [transfer] = booked_on(api, scene.destination)
    assert named("transfer", transfer) in words_of(page)
    link = re.search(r'href="(/console/search[^"]+)"', page)
    assert link is not None
    assert f"/transactions/{transfer}" in main_of(shown(person.http.get(link[1])))


def test_a_statement_is_read_page_by_page(person: Person, card: dict[str, object]) -> None:
    path = f"/accounts/{account_of(card)}"

    older = main_of(shown(person.get(path, before=2)))
    early = main_of(shown(person.get(path, until="2020-01-01")))

    assert ["sandbox funding" in older, "BISTRO" in older] == [True, False]
    assert "No entry in this time." in early
    assert "No entry in this time." in main_of(shown(person.get(path, since="2100-01-01")))
    assert "sandbox funding" in main_of(shown(person.get(path, until="2100-01-01")))
    for wrong in ({"before": 0}, {"before": 2**63}, {"before": "x"}, {"until": "soon"}):
        shown(person.get(path, **wrong), 400)


def test_a_statement_of_a_time_has_its_entries_and_no_others(
    person: Person, api: Api, database_url: DatabaseUrl
) -> None:
    card = api.active_card()
    api.authorize(card["id"], 1_250)
    path = f"/accounts/{account_of(card)}"
    with psycopg.connect(database_url) as owner:
        # A form of times has whole seconds, and both entries are of one.
        owner.execute("ALTER TABLE entries DISABLE TRIGGER USER")
        owner.execute(
            "UPDATE entries SET recorded_at = '2026-01-01' WHERE account_id = %s"
            " AND account_version = 1",
            [account_of(card).partition(":")[2]],
        )
        owner.execute("ALTER TABLE entries ENABLE TRIGGER USER")

    def entries(**query: object) -> list[int]:
        lines = document_of(shown(person.get(path, **query)))["statement"]
        return [line["entry"] for line in lines]

    assert entries() == [2, 1]
    assert entries(since="2026-01-01") == [2, 1]
    assert entries(since="2026-01-01T00:00:01") == [2]
    assert entries(since="2025-12-31", until="2026-01-01") == [1]
    assert entries(since="2026-01-02", until="2026-01-01") == []


def test_the_card_has_its_sources_and_purchases_and_no_number(
    person: Person, api: Api, card: dict[str, object]
) -> None:
    page = main_of(shown(person.get(f"/cards/{card['id']}")))

    assert f"Visa ···· ending in {card['last4']}" in words_of(page)
    assert account_of(card) in page
    assert "BISTRO" in page
    assert "12.50" not in words_of(page).partition("Latest card transactions")[0]
    assert not re.search(r"\d{13,}", words_of(page).replace("-", " "))
    listed = shown(person.get("/cards", platformCardId="card of ada", state="ACTIVE"))
    assert str(card["id"]) in main_of(listed)
    assert "platformCardId=card+of+ada&amp;state=ACTIVE" in listed
    closed = ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))
    assert "frozen" in main_of(shown(person.get(f"/cards/{closed['id']}")))
    ok(api.patch(f"/cards/{card['id']}", {"state": "ACTIVE"}))


def test_the_customer_has_its_accounts_cards_and_purchases(
    person: Person, card: dict[str, object]
) -> None:
    page = shown(person.get(f"/customers/{card['cardholderId']}"))

    main = main_of(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩Ada" in main
    assert "<script>alert" not in page
    assert "\u202e" not in page
    for expected in (account_of(card), str(card["id"]), "BISTRO", "35.00"):
        assert expected in main


@pytest.mark.parametrize("path", ["/customers", "/accounts", "/cards"])
def test_lists_are_read_page_by_page_and_refuse_an_edited_cursor(
    person: Person, api: Api, path: str
) -> None:
    for _ in range(3):
        api.active_card(balance=0)

    first = shown(person.get(path, limit=2))
    cursor = re.search(r'cursor=([^"&]+)', first)
    assert cursor is not None
    sent = cursor[1].replace("%3D", "=")
    second = shown(person.get(path, limit=2, cursor=sent))

    ids = [
        set(re.findall(rf"{path}/\w+:([0-9a-f-]{{36}})", main_of(page))) for page in (first, second)
    ]
    assert [len(each) for each in ids] == [2, 2]
    assert not ids[0] & ids[1]
    changed = ("B" if sent[0] == "A" else "A") + sent[1:]
    shown(person.get(path, limit=2, cursor=changed), 400)


@pytest.fixture(scope="module")
def stranger(root: str, config: ApiConfig) -> Iterator[Person]:
    with Person(root) as visitor:
        visitor.log_in(new_tenant(config.database_url, currencies=("JPY", "KWD")))
        yield visitor


def test_ids_of_another_platform_are_unknown_ids(stranger: Person, card: dict[str, object]) -> None:
    unknown = UUID(int=7)
    pages = [
        shown(stranger.get(path), 404)
        for path in (
            f"/customers/{card['cardholderId']}",
            f"/customers/Customer:{unknown}",
            f"/accounts/{account_of(card)}",
            f"/accounts/InternalAccount:{unknown}",
            f"/accounts/{account_of(card)}?before=2&until=2100-01-01",
            f"/cards/{card['id']}",
            f"/cards/Card:{unknown}",
            "/cards/nothing",
        )
    ]
    words = {words_of(main_of(page)) for page in pages}
    assert len(words) == 1

    for path in ("/cards", "/accounts"):
        query = {"customerId": card["cardholderId"]}
        assert str(card["id"]) not in main_of(shown(stranger.get(path, **query)))


def test_a_platform_without_anything_has_pages(stranger: Person) -> None:
    for path, words in {
        "/customers": "No customer yet.",
        "/accounts": "No account yet.",
        "/cards": "No card yet.",
    }.items():
        assert words in shown(stranger.get(path))


def test_amounts_are_written_by_their_currency_up_to_the_greatest(
    root: str, config: ApiConfig, database_url: str
) -> None:
    tenant = new_tenant(config.database_url, currencies=("JPY", "KWD"))
    with Api(root, tenant) as api, Person(root) as visitor:
        visitor.log_in(tenant)
        customer = api.customer()["id"]
        accounts = {code: api.account(customer, code)["id"] for code in ("JPY", "KWD")}
        for account in accounts.values():
            api.fund(account, 1_234_567)
        keys = [account.partition(":")[2] for account in accounts.values()]
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "UPDATE internal_accounts SET balance = %s, owed = %s WHERE id = ANY(%s)",
                [GREATEST, GREATEST, keys],
            )
            connection.execute(
                "INSERT INTO entries SELECT gen_random_uuid(), 0, 1, customer_id, debit_account_id,"
                " credit_account_id, %s, account_id, 2, %s, recorded_at FROM entries"
                " WHERE account_id = ANY(%s)",
                [GREATEST, GREATEST, keys],
            )

        pages = {code: shown(visitor.get(f"/accounts/{accounts[code]}")) for code in accounts}
        assert "9,223,372,036,854,775.807" in main_of(shown(visitor.get("/accounts")))

    for text in ("9,223,372,036,854,775,807", "+1,234,567"):
        assert text in main_of(pages["JPY"])
    for text in ("9,223,372,036,854,775.807", "+1,234.567"):
        assert text in main_of(pages["KWD"])
