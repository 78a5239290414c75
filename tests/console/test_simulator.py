"""The simulator: cardholders, stories, and a form for every operation of the sandbox."""

import re
from html import unescape
from urllib.parse import urlsplit

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.api.console.simulator import stories
from tests.api.support import Api, new_tenant, ok
from tests.console.fields import Fields
from tests.console.person import Person, shown
from tests.console.test_accounts import main_of

SIMULATOR = "/simulator"
STEPS = re.compile(r'<form method="post" action="/console(/simulator/stories/[^"]+/steps/[0-9]+)"')
HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


def sent(person: Person, page: str, **more: str) -> dict[str, str]:
    """Return the fields of a form of `page`, with a new key."""
    return {
        "form_token": person.hidden(page, "form_token"),
        "idempotency_key": forms.new_key(),
        **more,
    }


def followed(person: Person, answer: httpx2.Response) -> str:
    """Return the page that the answer to a form leads to."""
    assert answer.status_code == 303, answer.text
    return shown(person.http.get(answer.headers["location"]))


def begun(person: Person, story: str) -> str:
    """Begin a story by its button; return the page of its first step."""
    page = shown(person.get(SIMULATOR))
    return followed(person, person.post(f"{SIMULATOR}/stories/{story}", sent(person, page)))


def next_step(page: str) -> tuple[str, dict[str, str]] | None:
    """Return the form of the next step of a story, None after the last."""
    found = STEPS.search(page)
    if found is None:
        return None
    form = page[found.start() : page.index("</form>", found.start())]
    return found[1], {name: unescape(value) for name, value in HIDDEN.findall(form)}


def played(person: Person, story: str) -> str:
    """Play a story to its end; return its last page."""
    page = begun(person, story)
    while form := next_step(page):
        page = followed(person, person.post(*form))
    return page


def figure(page: str, name: str) -> str:
    found = re.search(rf'data-figure="{re.escape(name)}"><dt>[^<]*</dt><dd>([^<]*)<', page)
    assert found is not None, page
    return found[1]


def card_of(person: Person, **fields: str) -> str:
    """Make a cardholder by the form; return the path of the page of its card."""
    page = shown(person.get(SIMULATOR))
    made = person.post(f"{SIMULATOR}/cardholders", sent(person, page, **fields))
    assert made.status_code == 303, made.text
    return urlsplit(made.headers["location"]).path.removeprefix(ROOT)


# --- stories --------------------------------------------------------------------------------------

ENDS = {
    "tip": ("settled", "15.00", "0.00"),
    "hotel": ("settled", "245.00", "0.00"),
    "fuel": ("settled", "48.00", "0.00"),
    "split-shipment": ("settled", "90.00", "0.00"),
    "refund": ("refunded", "100.00", "0.00"),
    "late-clearing": ("settled", "30.00", "0.00"),
    "duplicate": ("settled", "25.00", "0.00"),
    "expiry": ("voided", "0.00", "0.00"),
    "rescue": ("settled", "45.00", "0.00"),
}


def test_every_story_has_an_end_here() -> None:
    assert list(ENDS) == [story.name for story in stories.STORIES]


@pytest.mark.parametrize("story", ENDS)
def test_a_story_ends_as_its_sentence_says(person: Person, story: str) -> None:
    page = played(person, story)

    status, settled, owed = ENDS[story]
    assert f"The story has ended: {status}." in page
    assert (figure(page, "settledAmount"), figure(page, "owedAmount")) == (settled, owed)
    assert figure(page, "heldAmount") == "0.00"


def test_a_story_shows_the_request_of_each_step_without_a_secret(person: Person, api: Api) -> None:
    page = begun(person, "tip")

    call = unescape(page[page.index("The API call just made") :])
    assert f"curl -u &#39;{api.tenant.client_id}&#39;" in page
    assert "/simulate/authorization' -H 'Idempotency-Key: console-" in call
    assert ".1' -H 'Content-Type: application/json' -d '{" in call
    assert '"amount": 1250' in call
    assert api.tenant.client_secret not in page


def test_a_story_that_plays_keeps_its_page_when_a_step_fails(person: Person) -> None:
    page = shown(person.get(SIMULATOR))
    fields = sent(person, page, play="play")

    page = followed(person, person.post(f"{SIMULATOR}/stories/tip", fields))

    [form] = re.findall(r'<form [^>]*hx-trigger="load[^>]*>', page)
    assert 'hx-status:4xx="swap:none" hx-status:5xx="swap:none"' in form


def test_an_address_that_another_person_has_made_plays_and_reports_nothing(
    person: Person, api: Api
) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)), play="play")
    address = person.post(f"{SIMULATOR}/stories/tip", fields).headers["location"]
    untagged = re.sub(r"tag=[^&]+", "tag=x", address)
    other_run = re.sub(r"run=[^&]+", f"run={forms.new_key()}", address)

    with Person(person.root) as colleague:
        colleague.log_in(api.tenant)
        pages = [shown(colleague.http.get(address))]
    pages += [
        shown(person.http.get(each)) for each in (untagged, other_run, f"{address}&outcome=APPLIED")
    ]

    own = shown(person.http.get(address))
    assert 'hx-trigger="load' in own
    assert "The API call just made" in own
    for page in pages:
        assert 'hx-trigger="load' not in page
        assert "just made" not in page
        assert "Outcome of the event" not in page
        assert "The API call of this step" in page
        assert "Next: clear 15.00" in page


def test_a_step_that_is_sent_twice_is_applied_once(person: Person) -> None:
    page = begun(person, "split-shipment")
    form = next_step(page)
    assert form is not None

    pages = [followed(person, person.post(*form)) for _ in range(3)]

    assert [figure(each, "settledAmount") for each in pages] == ["40.00"] * 3


def test_a_story_that_is_begun_twice_by_one_form_has_one_purchase(person: Person) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)))

    places = {person.post(f"{SIMULATOR}/stories/tip", fields).headers["location"] for _ in range(2)}

    assert len(places) == 1


def test_a_duplicate_of_the_network_moves_nothing(person: Person) -> None:
    page = begun(person, "duplicate")
    events = []
    while form := next_step(page):
        page = followed(person, person.post(*form))
        events.append(page.count('<tr role="row" id="event-'))

    assert events[0] == events[1]


def test_the_rescue_pays_what_is_owed(person: Person) -> None:
    page = begun(person, "rescue")
    form = next_step(page)
    assert form is not None
    page = followed(person, person.post(*form))
    assert figure(page, "owedAmount") == "25.00"

    form = next_step(page)
    assert form is not None
    button = main_of(page).partition("Next: ")[2].partition("</button>")[0]
    account = form[1]["account"]
    assert re.sub("<[^>]*>", "", button) == f"fund account …{account[-12:]} with 20.00 USD"
    assert f'title="{account}"' in button
    page = followed(person, person.post(*form))

    assert figure(page, "owedAmount") == "0.00"


def test_a_step_of_another_run_is_refused(person: Person) -> None:
    form = next_step(begun(person, "tip"))
    assert form is not None

    path, fields = form
    shown(person.post(path, fields | {"idempotency_key": forms.new_key()}), 400)
    shown(person.post(path, fields | {"card": "Card:x"}), 400)
    shown(person.post(path, fields | {"currency": "XXX1"}), 400)
    shown(person.post("/simulator/stories/tip/steps/9", fields), 404)
    shown(person.post("/simulator/stories/unknown", fields), 404)


# --- operations -----------------------------------------------------------------------------------


def test_a_cardholder_is_made_with_money_and_an_active_card(person: Person) -> None:
    page = shown(person.get(card_of(person, name="Grace", amount="250.00 USD")))

    assert "250.00 USD" in page
    assert '<span class="badge status active">' in page


def test_the_forms_play_a_purchase(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    page = shown(person.get(card))
    fields = sent(person, page, amount="12.50 USD", descriptor="<script>alert(1)</script>\u202e")
    page = followed(person, person.post(f"{card}/authorization", fields))
    assert "<script>alert" not in page
    assert figure(page, "heldAmount") == "12.50"
    purchase = person.hidden(page, "purchase")

    fields = sent(person, page, purchase=purchase, amount="15.00 USD")
    page = followed(person, person.post(f"{card}/clearing", fields))
    assert figure(page, "settledAmount") == "15.00"
    assert "/simulate/clearing" in page
    fields = sent(person, page, purchase=purchase, amount="5.00 USD")
    page = followed(person, person.post(f"{card}/return", fields))
    assert figure(page, "refundedAmount") == "5.00"
    page = followed(
        person, person.post(f"{card}/return_reversal", sent(person, page, purchase=purchase))
    )
    assert figure(page, "refundedAmount") == "0.00"


@pytest.mark.parametrize("name", ["authorization_reversal", "authorization_expiry"])
def test_a_hold_goes_back(person: Person, name: str) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="12.50 USD", descriptor="CAR RENTAL")
    page = followed(person, person.post(f"{card}/authorization", fields))
    purchase = person.hidden(page, "purchase")

    page = followed(person, person.post(f"{card}/{name}", sent(person, page, purchase=purchase)))

    assert figure(page, "heldAmount") == "0.00"


def confirmation(person: Person, card: str, amount: str) -> dict[str, str]:
    """Return the form of the page that asks whether the account of a card is to be funded."""
    page = shown(person.get(f"{card}/fund", amount=amount)).partition("<main")[2]
    return {name: unescape(value) for name, value in HIDDEN.findall(page)}


def test_a_form_is_carried_out_once(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = confirmation(person, card, "1 USD")

    pages = [followed(person, person.post(f"{card}/fund", fields)) for _ in range(3)]

    assert "101.00 USD" in pages[-1]


def test_money_is_confirmed(person: Person, other_platform: Api) -> None:
    card = card_of(person, amount="100.00 USD")
    page = shown(person.get(card))
    [form] = re.findall(rf'<form method="(\w+)" action="{ROOT}{card}/fund"', page)
    foreign = str(other_platform.account(other_platform.customer()["id"])["id"])

    asked = shown(person.get(f"{card}/fund", amount="1500.5 USD"))
    fields = confirmation(person, card, "1500.5 USD")

    assert form == "get"
    assert "Deposit 1,500.50 USD" in asked
    assert asked.count(fields["account"]) > 1
    assert "100.00 USD" in shown(person.get(card)), "nothing has moved"
    shown(person.post(f"{card}/fund", fields | {"account": foreign}), 400)
    shown(person.post(f"{card}/fund", fields | {"account": ""}), 400)
    for amount in ("", "0 USD", "1", "1 EUR", "1,50 USD"):
        shown(person.get(f"{card}/fund", amount=amount), 400)
    assert "1,600.50 USD" in followed(person, person.post(f"{card}/fund", fields))


def test_a_closed_card_has_no_account_to_fund(person: Person, api: Api) -> None:
    card = api.active_card()["id"]
    ok(api.patch(f"/cards/{card}", {"state": "CLOSED"}))

    page = shown(person.get(f"/simulator/cards/{card}/fund", amount="1 USD"), 400)

    assert "has no account that could be funded" in page
    assert f'href="{ROOT}/simulator/cards/{card}">Back to the form</a>' in page


def test_a_purchase_that_is_no_id_is_refused_before_anything_moves(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), purchase="CardTransaction:1", descriptor="SHOP")

    page = shown(person.post(f"{card}/balance_inquiry", fields), 400)

    assert "must be the id of a card transaction" in page


def test_an_inquiry_answers_and_records_nothing(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), descriptor="SHOP")

    page = shown(person.post(f"{card}/balance_inquiry", fields))

    assert "Balance inquiry: approved. Available: 100.00 USD." in page
    assert "No purchase yet." in page


@pytest.mark.parametrize("value", ["002", "003"])
def test_a_sandbox_value_of_a_merchant_declines(person: Person, value: str) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="10 USD", descriptor=f"SHOP {value}")

    page = followed(person, person.post(f"{card}/authorization", fields))

    assert '<span class="badge status declined">' in page


def test_a_sandbox_value_of_a_card_has_it_rejected(person: Person) -> None:
    page = shown(person.get(card_of(person, amount="10.00 USD", card_ending="001")))

    assert '<span class="badge status processing">' in page


@pytest.mark.parametrize(
    "amount",
    ["", "12.50", "x USD", "1,50 USD", "12.505 USD", "-1 USD", "99999999999999999999 USD", "1 EUR"],
)
def test_an_amount_that_cannot_be_is_refused(person: Person, amount: str) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="10 USD", descriptor="SHOP")
    page = followed(person, person.post(f"{card}/authorization", fields))
    purchase = person.hidden(page, "purchase")

    fields = sent(person, page, purchase=purchase, amount=amount)
    page = shown(person.post(f"{card}/clearing", fields), 400)

    form = Fields.of_page(page)
    assert form.of["clearing-amount"].value == amount
    assert list(form.wrong()) == ["clearing-amount"]
    assert form.alert.startswith("Not done Amount must ")
    assert person.hidden(page, "purchase") == purchase


def test_a_refused_operation_keeps_what_was_typed_in_its_form_alone(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    typed = {"amount": "12,50 USD", "descriptor": "<i>Caf\N{LATIN SMALL LETTER E WITH ACUTE}</i>"}

    page = shown(
        person.post(f"{card}/balance_inquiry", sent(person, shown(person.get(card)), **typed)), 200
    )
    refused = shown(
        person.post(f"{card}/financial_authorization", sent(person, page, **typed)), 400
    )

    fields = Fields.of_page(refused)
    assert fields.of["financial_authorization-amount"].value == typed["amount"]
    assert fields.of["financial_authorization-descriptor"].value == typed["descriptor"]
    assert fields.of["authorization-descriptor"].value == "BISTRO AU COIN"
    assert list(fields.wrong()) == ["financial_authorization-amount"]
    assert re.findall(r'<details class="operation" open>\s*<summary>([^<]*)', refused) == [
        "Financial authorization"
    ]
    assert "The API call just made" not in refused


def test_a_field_that_the_api_refuses_is_that_of_the_form(person: Person) -> None:
    card = card_of(person, amount="100.00 USD")
    fields = sent(person, shown(person.get(card)), amount="1 USD", descriptor="x" * 300)

    page = shown(person.post(f"{card}/authorization", fields), 400)

    form = Fields.of_page(page)
    assert list(form.wrong()) == ["authorization-descriptor"]
    assert form.of["authorization-amount"].value == "1 USD"
    assert "Merchant must have at most" in form.alert


@pytest.mark.parametrize("amount", ["12,50 USD", "10 JPY", "9,999,999,999,999 USD"])
def test_a_cardholder_whose_balance_is_refused_keeps_its_name(person: Person, amount: str) -> None:
    fields = sent(person, shown(person.get(SIMULATOR)), name="Grace", amount=amount)

    form = Fields.of_page(shown(person.post(f"{SIMULATOR}/cardholders", fields), 400))

    assert (form.of["name"].value, form.of["amount"].value) == ("Grace", amount)
    assert list(form.wrong()) == ["amount"]
    assert "Not done Balance must be" in form.alert


def test_a_card_that_is_no_id_stays_in_its_form(person: Person) -> None:
    form = Fields.of_page(shown(person.get(f"{SIMULATOR}/card", card="4242"), 400))

    assert form.of["card"].value == "4242"
    assert "Card must be of the form Card:" in form.alert


# --- scope and permissions ------------------------------------------------------------------------


def test_ids_of_other_platforms_are_unknown(person: Person, other_platform: Api) -> None:
    foreign = other_platform.active_card()["id"]
    purchase = other_platform.authorize(foreign, 100)["id"]
    own = card_of(person, amount="100.00 USD")
    unknown = "Card:019542f5-b3e7-7d02-0000-00000000a1b4"
    run = f"run={forms.new_key()}&account=InternalAccount:{unknown[5:]}&step=1"
    foreign_run = f"card={foreign}&purchase={purchase}"

    pages = [
        shown(person.get(f"/simulator/cards/{unknown}"), 404),
        shown(person.get(f"/simulator/cards/{foreign}"), 404),
        shown(person.get(f"/simulator/cards/{foreign}/fund", amount="1 USD"), 404),
        shown(person.get(own, purchase=purchase), 404),
        shown(person.http.get(f"{ROOT}/simulator/stories/tip?{run}&{foreign_run}"), 404),
    ]
    form = sent(person, shown(person.get(own)), amount="1 USD", descriptor="X")
    pages.append(shown(person.post(f"/simulator/cards/{foreign}/authorization", form), 404))

    words = {re.sub(r'value="[^"]*"', "", page) for page in pages}
    assert len(words) == 1


def test_a_token_that_only_views_has_no_buttons(
    root: str, config: ApiConfig, api: Api, person: Person
) -> None:
    card = card_of(person, amount="100.00 USD")
    tenant = new_tenant(config.database_url, permissions=("VIEW",), of=api.tenant)
    with Person(root) as viewer:
        viewer.log_in(tenant)
        pages = [shown(viewer.get(path)) for path in (SIMULATOR, card)]
        form = sent(viewer, pages[0], amount="1 USD", descriptor="X")
        shown(viewer.get(f"{card}/fund", amount="1 USD"), 403)
        shown(viewer.post(f"{card}/authorization", form), 403)
        shown(viewer.post(f"{SIMULATOR}/stories/tip", form), 403)

    assert all("lacks the permission TRANSACT" in page for page in pages)
    assert not any(re.search("<button[^>]*>(Play|Authorization|Fund)", page) for page in pages)


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_no_other_site_can_play(person: Person, origin: str) -> None:
    form = sent(person, shown(person.get(SIMULATOR)))

    for path in (f"{SIMULATOR}/stories/tip", f"{SIMULATOR}/cardholders"):
        shown(person.post(path, form, Origin=origin), 403)


def test_a_form_of_a_session_that_has_ended_plays_nothing(person: Person) -> None:
    form = sent(person, shown(person.get(SIMULATOR)))
    person.post("/logout", {"form_token": form["form_token"]})

    assert "session has ended" in shown(person.post(f"{SIMULATOR}/stories/tip", form), 403)
