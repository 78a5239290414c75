"""Exceptions: what is due, by which event, and the deposit that pays it."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.console.pages import exceptions
from tests.api.support import Api, new_tenant, ok, serving, url_of
from tests.connection_guard import GuardedApp
from tests.console.person import Person, command_of, shown, url_in
from tests.console.test_accounts import main_of
from tests.console.test_api_calls import document_of
from tests.waiting import eventually


@pytest.fixture(scope="module")
def owing(api: Api) -> tuple[str, str]:
    """Two purchases of one account, which owes 30.00 and then 5.00 and has 10.00."""
    card = api.active_card(balance=2_000)["id"]
    purchases = [
        str(api.authorize(card, 1_000, descriptor=name)["id"])
        for name in ("<script>alert(1)</script>\u202etools", "SECOND SHOP")
    ]
    api.clear(card, purchases[0], 4_000)
    api.clear(card, purchases[1], 1_500)
    return purchases[0], purchases[1]


def fields(person: Person, page: str) -> dict[str, str]:
    names = ("form_token", "idempotency_key", "account_id", "amount")
    page = page.partition("<main")[2]
    return {name: person.hidden(page, name) for name in names}


def test_the_oldest_is_first_with_what_pays_it(person: Person, owing: tuple[str, str]) -> None:
    page = shown(person.get("/exceptions"))

    main = page.partition("<main")[2]
    assert main.index(owing[0]) < main.index(owing[1])
    first, second = (re.sub(r"<[^>]*>", "", part) for part in main.split('<li class="entry">')[1:])
    assert "30.00 USD" in first
    assert "by the event cleared" in first
    assert "Position 1 in the recovery queue of the account" in first
    assert "A credit of 30.00 USD pays it" in first
    assert "5.00 USD" in second
    assert "Position 2 in the recovery queue of the account, behind 30.00 USD" in second
    assert "A credit of 35.00 USD pays it and what is before it" in second
    assert "<script>" not in main
    assert "\u202e" not in main
    assert "&lt;script&gt;" in main


def test_pages_follow_each_other_by_time(person: Person, owing: tuple[str, str]) -> None:
    first = shown(person.get("/exceptions", limit=1))
    cursor = re.search(r"cursor=([^&\"]+)", first)
    assert cursor is not None

    second = shown(person.get("/exceptions", limit=1, cursor=cursor[1].replace("%3D", "=")))

    assert [owing[0] in first, owing[1] in first] == [True, False]
    assert [owing[0] in second, owing[1] in second] == [False, True]
    shown(person.get("/exceptions", limit=1, cursor="A" + cursor[1][1:]), 400)


def test_filters_name_own_accounts_only(
    person: Person, api: Api, other_platform: Api, owing: tuple[str, str]
) -> None:
    account = ok(api.get(f"/transactions/{owing[0]}"))["accountId"]
    foreign = other_platform.account(other_platform.customer()["id"])["id"]

    assert owing[0] in shown(person.get("/exceptions", accountId=account))
    for query in ({"accountId": foreign}, {"currency": "EUR"}):
        assert "No open exception matches." in shown(person.get("/exceptions", **query))


def test_the_command_has_every_filter(person: Person, api: Api, owing: tuple[str, str]) -> None:
    found = ok(api.get(f"/transactions/{owing[0]}"))
    query = {"accountId": found["accountId"], "customerId": found["customerId"]}

    plain = command_of(shown(person.get("/exceptions", **query)))
    of_euros = command_of(shown(person.get("/exceptions", **query, currency="EUR")))

    assert {each["id"] for each in ok(api.http.get(url_in(plain)))["data"]} == set(owing)
    selected = """ | jq '.data |= map(select(.owedAmount.currency.code == "EUR"))'"""
    assert of_euros == plain + selected


def test_another_platform_has_no_exception(
    root: str, other_platform: Api, owing: tuple[str, str]
) -> None:
    with Person(root) as visitor:
        visitor.log_in(other_platform.tenant)

        assert "Nothing is due." in shown(visitor.get("/exceptions"))
        shown(visitor.get(f"/exceptions/{owing[0]}/fund"), 404)


def test_funding_is_for_tokens_that_may_transact(
    root: str, config: ApiConfig, api: Api, owing: tuple[str, str]
) -> None:
    tenant = new_tenant(config.database_url, permissions=("VIEW",), of=api.tenant)
    with Person(root) as viewer:
        viewer.log_in(tenant)

        assert "Fund what is missing" not in shown(viewer.get("/exceptions"))
        shown(viewer.get(f"/exceptions/{owing[0]}/fund"), 403)


@pytest.fixture(scope="module")
def production(config: ApiConfig) -> Iterator[str]:
    app = create_app(replace(config, sandbox=False))
    with serving(GuardedApp(app)) as served:
        yield url_of(served)


def test_without_a_sandbox_nothing_is_funded(
    production: str, api: Api, owing: tuple[str, str]
) -> None:
    with Person(production) as visitor:
        visitor.log_in(api.tenant)

        assert "Fund what is missing" not in shown(visitor.get("/exceptions"))
        shown(visitor.get(f"/exceptions/{owing[0]}/fund"), 404)


def test_a_confirmed_deposit_pays_once(person: Person, api: Api, owing: tuple[str, str]) -> None:
    page = shown(person.get(f"/exceptions/{owing[1]}/fund"))
    sent = fields(person, page)
    assert "Deposit 35.00 USD" in page
    foreign = api.account(api.customer()["id"])["id"]

    shown(person.post(f"/exceptions/{owing[1]}/fund", sent | {"account_id": foreign}), 400)
    shown(person.post(f"/exceptions/{owing[1]}/fund", sent | {"amount": "-1"}), 400)
    responses = [person.post(f"/exceptions/{owing[1]}/fund", sent) for _ in range(2)]

    assert [(each.status_code, each.headers["location"]) for each in responses] == [
        (303, f"/console/card-transactions/{owing[1]}")
    ] * 2
    account = ok(api.get(f"/internal-accounts/{sent['account_id']}"))
    assert (account["balance"]["amount"], account["owedAmount"]["amount"]) == (0, 0)
    assert "Nothing is due." in shown(person.get("/exceptions"))


def test_what_is_paid_by_now_leads_to_its_card_transaction(
    person: Person, root: str, api: Api, other_platform: Api
) -> None:
    _, purchase = in_debt(api)
    path = f"/exceptions/{purchase}/fund"
    assert person.post(path, fields(person, shown(person.get(path)))).status_code == 303

    again = person.get(path)
    with Person(root) as visitor:
        visitor.log_in(other_platform.tenant)
        foreign = visitor.get(path)

    assert again.status_code == 303
    assert again.headers["location"] == f"/console/card-transactions/{purchase}"
    shown(foreign, 404)


def in_debt(api: Api) -> tuple[str, str]:
    """Return a card, and a purchase of it that owes 30.00 to an account that has 10.00."""
    card = api.active_card(balance=2_000)["id"]
    purchase = str(api.authorize(card, 1_000)["id"])
    api.clear(card, purchase, 4_000)
    return card, purchase


def test_two_forms_of_a_debt_are_one_deposit(
    person: Person, root: str, config: ApiConfig, api: Api
) -> None:
    _, purchase = in_debt(api)
    path = f"/exceptions/{purchase}/fund"
    with Person(root) as another:
        another.log_in(new_tenant(config.database_url, of=api.tenant))
        sent = [fields(each, shown(each.get(path))) for each in (person, another)]

        answers = [
            each.post(path, form) for each, form in zip((person, another), sent, strict=True)
        ]

    assert [each.status_code for each in answers] == [303, 303]
    account = ok(api.get(f"/internal-accounts/{sent[0]['account_id']}"))
    assert (account["balance"]["amount"], account["owedAmount"]["amount"]) == (0, 0)


def test_a_later_debt_of_the_same_purchase_is_another_deposit(person: Person, api: Api) -> None:
    card, purchase = in_debt(api)
    path = f"/exceptions/{purchase}/fund"
    first = fields(person, shown(person.get(path)))
    assert person.post(path, first).status_code == 303
    api.clear(card, purchase, 2_000)

    second = fields(person, shown(person.get(path)))
    assert person.post(path, second).status_code == 303

    assert first["amount"] == second["amount"]
    account = ok(api.get(f"/internal-accounts/{second['account_id']}"))
    assert (account["balance"]["amount"], account["owedAmount"]["amount"]) == (0, 0)


def test_a_deposit_that_did_not_pay_is_followed_by_another_of_its_amount(
    person: Person, api: Api
) -> None:
    card = api.active_card(balance=2_500)["id"]
    purchase = str(api.authorize(card, 1_000)["id"])
    api.clear(card, purchase, 4_000)
    path = f"/exceptions/{purchase}/fund"
    first = fields(person, shown(person.get(path)))
    api.clear(card, purchase, int(first["amount"]))  # Before the first deposit is confirmed.
    assert person.post(path, first).status_code == 303

    second = fields(person, shown(person.get(path)))
    assert person.post(path, second).status_code == 303

    assert first["amount"] == second["amount"] == "1500"
    assert ok(api.get(f"/transactions/{purchase}"))["owedAmount"]["amount"] == 0


def test_the_largest_deposit_is_made_again_when_more_is_missing(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exceptions, "MAX_FUND", 800)
    _, purchase = in_debt(api)
    path = f"/exceptions/{purchase}/fund"
    amounts = list[str]()

    for _ in range(3):
        sent = fields(person, shown(person.get(path)))
        amounts.append(sent["amount"])
        assert person.post(path, sent).status_code == 303

    assert amounts == ["800", "800", "400"]
    assert ok(api.get(f"/transactions/{purchase}"))["owedAmount"]["amount"] == 0


def test_a_debt_that_the_balance_covers_is_collected_by_the_smallest_deposit(
    person: Person, api: Api
) -> None:
    card = api.active_card(balance=2_000)["id"]
    purchase = str(api.authorize(card, 1_000, descriptor="SHOP 006")["id"])

    def look() -> str | None:
        page = shown(person.get("/exceptions"))
        return page if purchase in page else None

    listed = eventually(look)
    entry = entry_of(listed, purchase)
    assert '<p class="owes">10.00 USD</p>' in entry
    assert "for a hold: none of it is cleared yet" in entry
    assert '<p class="owes">0.00 USD</p>' not in listed
    [found] = [each for each in document_of(listed)["data"] if each["id"] == purchase]
    assert (found["dueAmount"]["amount"], found["owedAmount"]["amount"]) == (1_000, 0)
    page = shown(person.get(f"/exceptions/{purchase}/fund"))
    assert "Fund what is missing" not in main_of(listed) + main_of(page)
    assert "Collect by a deposit" in main_of(listed)
    assert "Deposit 0.01 USD" in page

    answer = person.post(f"/exceptions/{purchase}/fund", fields(person, page))

    assert answer.status_code == 303, answer.text
    assert ok(api.get(f"/transactions/{purchase}"))["owedAmount"]["amount"] == 0


def test_a_debt_of_which_a_part_is_cleared_says_how_much(person: Person, api: Api) -> None:
    card = api.active_card(balance=1_000)["id"]
    purchase = str(api.authorize(card, 1_000, descriptor="SHOP 006")["id"])
    eventually(lambda: ok(api.get(f"/transactions/{purchase}"))["status"] == "EXCEPTION")
    partial = {"cardTransactionId": purchase, "amount": 400, "final": False}
    ok(api.post(f"/sandbox/cards/{card}/simulate/clearing", partial))

    entry = entry_of(shown(person.get("/exceptions")), purchase)

    assert '<p class="owes">10.00 USD</p>' in entry
    assert "the network has taken 4.00 USD of it, the rest is for a hold" in entry


def entry_of(page: str, purchase: str) -> str:
    """Return the part of the list about a purchase."""
    [entry] = [each for each in main_of(page).split('<li class="entry">') if purchase in each]
    return entry


def test_a_form_that_was_edited_deposits_nothing(person: Person, api: Api) -> None:
    (_, purchase), (_, other) = in_debt(api), in_debt(api)
    path = f"/exceptions/{purchase}/fund"
    sent = fields(person, shown(person.get(path)))
    of_other = fields(person, shown(person.get(f"/exceptions/{other}/fund")))
    another_key = {"idempotency_key": of_other["idempotency_key"]}

    for edited in ({"amount": "1"}, {"amount": "02000"}, another_key, {"idempotency_key": "x"}):
        assert "reload the page" in shown(person.post(path, sent | edited), 400)

    account = ok(api.get(f"/internal-accounts/{sent['account_id']}"))
    assert account["owedAmount"]["amount"] == 3_000
