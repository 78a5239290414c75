"""The simulator: what its stories and new cardholders depend on, outcomes and currencies."""

import re
from dataclasses import replace
from html import unescape

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.simulator import stories
from tests.api.support import Api, new_tenant, ok, server
from tests.console.fields import Fields
from tests.console.person import Person, shown
from tests.console.test_accounts import main_of
from tests.console.test_simulator import (
    SIMULATOR,
    begun,
    card_of,
    confirmation,
    figure,
    followed,
    next_step,
    played,
    sent,
)

OPEN = re.compile(r'<details class="operation" open>\s*<summary>([^<]*)')

# --- outcomes of events ---------------------------------------------------------------------------


def test_a_duplicate_shows_the_outcomes_that_it_has_read(person: Person) -> None:
    page = begun(person, "duplicate")
    outcomes = [outcome_in(page)]
    while form := next_step(page):
        page = followed(person, person.post(*form))
        outcomes.append(outcome_in(page))

    assert outcomes == ["APPLIED.", "APPLIED.", "DUPLICATE of an event that was APPLIED."]


def outcome_in(page: str) -> str:
    [text] = re.findall(r"<p>Outcome of the event: (.*?)</p>", page)
    return re.sub("<[^>]*>", "", text)


def test_a_duplicate_that_is_begun_twice_goes_on_with_its_first_event(person: Person) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)))

    pages = [
        followed(person, person.post(f"{SIMULATOR}/stories/duplicate", fields)) for _ in range(2)
    ]

    assert len({person.hidden(page, "purchase") for page in pages}) == 1
    assert outcome_in(pages[1]) == "DUPLICATE of an event that was APPLIED."


def test_a_step_with_another_outcome_is_not_played(person: Person, api: Api) -> None:
    form = next_step(begun(person, "duplicate"))
    assert form is not None
    path, fields = form
    run = fields["idempotency_key"].rpartition(".")[0]
    event = {
        "type": "CLEARING",
        "source": stories.SOURCE,
        "reference": f"{run}-2",
        "issuerTransactionToken": run,
        "cardId": fields["card"],
        "amount": 1,
        "currency": "USD",
    }
    api.http.post(f"{api.root}/network-events", json=[event])

    page = shown(person.post(path, fields), 409)

    assert "The outcome of the event is not that of the story: REJECTED" in page


def test_a_step_that_is_not_decided_in_time_can_be_sent_again(
    person: Person, config: ApiConfig, api: Api
) -> None:
    form = next_step(begun(person, "duplicate"))
    assert form is not None
    path, fields = form
    with server(replace(config, reply_timeout_s=0.000_001)) as hasty, Person(hasty) as visitor:
        visitor.log_in(api.tenant)
        token = visitor.hidden(shown(visitor.get(SIMULATOR)), "form_token")

        page = shown(visitor.post(path, fields | {"form_token": token}), 503)

    assert "not decided yet" in page
    again = followed(person, person.post(path, fields))
    assert figure(again, "settledAmount") == "25.00"


def test_a_token_without_ingest_is_told_why_a_story_has_no_buttons(
    root: str, config: ApiConfig, api: Api
) -> None:
    permissions = ("VIEW", "TRANSACT", "MANAGE")
    tenant = new_tenant(config.database_url, permissions=permissions, of=api.tenant)
    with Person(root) as visitor:
        visitor.log_in(tenant)
        page = shown(visitor.get(SIMULATOR))

    offers = page.split('<li class="offer')
    lacking = [offer for offer in offers if "lacks the permission INGEST" in offer]
    assert len(lacking) == 1
    assert 'id="story-duplicate"' in lacking[0]
    assert "<button" not in lacking[0]


# --- fields of forms ------------------------------------------------------------------------------


def test_a_form_sends_category_and_country_of_the_merchant(person: Person, api: Api) -> None:
    card = card_of(person, amount="100.00 USD")
    page = shown(person.get(card))
    more = {"amount": "1 USD", "descriptor": "SHOP", "mcc": "5812", "country": "FR"}

    made = followed(person, person.post(f"{card}/authorization", sent(person, page, **more)))

    purchase = ok(api.get(f"/transactions/{person.hidden(made, 'purchase')}"))
    assert purchase["merchant"] == {"descriptor": "SHOP", "mcc": "5812", "country": "FR"}
    call = unescape(made.partition("The API call just made")[2])
    assert '"mcc": "5812", "country": "FR"' in call
    assert 'id="authorization-mcc"' in page
    wrong = sent(person, page, **more | {"mcc": "58"})
    refused = shown(person.post(f"{card}/authorization", wrong), 400)
    form = Fields.of_page(refused)
    assert list(form.wrong()) == ["authorization-mcc"]
    assert form.of["authorization-mcc"].value == "58"
    assert form.of["authorization-country"].value == "FR"
    assert "Not done Category (MCC) must " in form.alert
    assert refused.count('<details class="more" open>') == 1
    wrong = sent(person, page, **more | {"country": "France"})
    form = Fields.of_page(shown(person.post(f"{card}/authorization", wrong), 400))
    assert list(form.wrong()) == ["authorization-country"]
    assert "Not done Country must " in form.alert


# --- amounts --------------------------------------------------------------------------------------


def test_a_refused_amount_names_its_limit_as_it_is_typed(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="15.00 USD", descriptor="SHOP")
    page = followed(person, person.post(f"{card}/financial_authorization", fields))
    purchase = person.hidden(page, "purchase")
    fields = sent(person, page, purchase=purchase, amount="20.00 USD")

    page = shown(person.post(f"{card}/return", fields), 400)

    assert "at most the settled amount that has not been refunded, 15.00 USD" in page


def test_a_deposit_above_the_largest_names_that_with_its_currency(person: Person) -> None:
    card, amount = card_of(person, amount="100.00 USD"), "1,000,000,000.01 USD"
    fields = sent(person, shown(person.get(SIMULATOR)), amount=amount)

    pages = [
        shown(person.get(f"{card}/fund", amount=amount), 400),
        shown(person.post(f"{SIMULATOR}/cardholders", fields), 400),
    ]

    assert all("must be at most 1,000,000,000.00 USD" in page for page in pages)


@pytest.mark.parametrize("amount", ["", "0 USD", "1", "1 EUR", "1,50 USD", "1,000,000,000.01 USD"])
def test_a_deposit_that_is_refused_keeps_its_amount_and_the_purchase(
    person: Person, amount: str
) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="1 USD", descriptor="SHOP")
    page = followed(person, person.post(f"{card}/authorization", fields))
    purchase = person.hidden(page, "purchase")

    page = shown(person.get(f"{card}/fund", amount=amount, purchase=purchase), 400)

    form = Fields.of_page(page)
    assert form.of["fund-amount"].value == amount
    assert list(form.wrong()) == ["fund-amount"]
    assert form.alert.startswith("That cannot be shown Amount must ")
    assert OPEN.findall(page) == ["Fund"]
    assert person.hidden(page, "purchase") == purchase


def test_a_deposit_that_is_refused_once_it_is_confirmed_keeps_its_amount(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = confirmation(person, card, "7.25 USD")

    pages = [
        shown(person.post(f"{card}/fund", fields | each), 400)
        for each in ({"account": "InternalAccount:1"}, {"amount": "7,25 USD"})
    ]

    forms = [Fields.of_page(page) for page in pages]
    assert [form.of["fund-amount"].value for form in forms] == ["7.25 USD", "7,25 USD"]
    assert "Not done account must be the funding account of the card" in forms[0].alert
    assert forms[1].alert.startswith("Not done Amount must be an amount")
    assert [OPEN.findall(page) for page in pages] == [["Fund"]] * 2


# --- cardholders ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "status"), [("001", "pending"), ("002", "rejected"), ("003", "unverified")]
)
def test_a_customer_that_is_not_approved_is_shown_without_a_card(
    person: Person, ending: str, status: str
) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)), name=f"Ada Example {ending}")

    made = person.post(f"{SIMULATOR}/cardholders", fields)

    page = followed(person, made)
    assert f"{ROOT}/customers/Customer:" in made.headers["location"]
    assert status in main_of(page).lower()
    assert "100.00" not in main_of(page), "no money for who gets no card"


def test_a_cardholder_that_cannot_be_made_names_what_was_made(person: Person, api: Api) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)), amount="10.00 CHF")

    page = shown(person.post(f"{SIMULATOR}/cardholders", fields), 400)

    form = Fields.of_page(page)
    assert form.of["amount"].value == "10.00 CHF"
    assert list(form.wrong()) == ["amount"]
    found = re.search(r"not in CHF\. Made before that: (Customer:[0-9a-f-]+)\.", form.alert)
    assert found is not None, main_of(page)
    ok(api.get(f"/customers/{found[1]}"))


@pytest.mark.parametrize(
    ("code", "balance", "amounts"),
    [
        ("EUR", "100.00 EUR", ("12.50", "15.00", "2.50")),
        ("JPY", "100 JPY", ("1,250", "1,500", "250")),
        ("KWD", "100.000 KWD", ("1.250", "1.500", "0.250")),
    ],
)
def test_the_simulator_speaks_the_currency_of_the_platform(
    root: str, config: ApiConfig, code: str, balance: str, amounts: tuple[str, str, str]
) -> None:
    tenant = new_tenant(config.database_url, currencies=(code, "USDC"))
    authorized, cleared, tip = amounts
    with Person(root) as visitor:
        visitor.log_in(tenant)
        page = shown(visitor.get(SIMULATOR))
        card = shown(visitor.get(card_of(visitor, card_ending="005")))
        ended = played(visitor, "tip")

    assert f'value="{balance}"' in page
    assert f"Authorized for {authorized}, cleared for {cleared}:" in page
    assert balance in main_of(card)
    assert f"a tip: {tip} more than was held" in ended
    assert figure(ended, "settledAmount") == cleared
    assert "USD" not in main_of(page).replace("USDC", "") + main_of(ended)


def test_an_amount_that_is_left_out_is_no_balance(person: Person) -> None:
    page = shown(person.get(card_of(person, amount="")))

    assert "<b>0.00 USD</b>" in page
