"""Credits, whose accounts are paid, beside purchases: what tells them apart."""

import re

import pytest

from cardledger.api.console import ROOT
from tests.api.support import Api, ok
from tests.console.person import Person, shown
from tests.console.test_accounts import main_of, words_of

CREDIT = "THE CREDIT"
PURCHASE = "THE PURCHASE"


@pytest.fixture(scope="module")
def pair(api: Api) -> dict[str, str]:
    """A credit and a purchase of 50.00 of one card, both settled, by their merchants."""
    card = str(api.active_card()["id"])
    body = {"amount": 5_000, "currency": {"code": "USD"}, "merchant": {"descriptor": CREDIT}}
    credit = ok(api.simulate(card, "financial_credit_authorization", body))
    purchase = api.authorize(card, 5_000, descriptor=PURCHASE)
    final = {"cardTransactionId": purchase["id"], "amount": 5_000, "final": True}
    ok(api.simulate(card, "clearing", final))
    return {CREDIT: str(credit["id"]), PURCHASE: str(purchase["id"]), "card": card}


def row_of(page: str, name: str) -> str:
    """Return the words of the row of a list about `name`."""
    [row] = [each for each in re.findall(r"(?s)<tr>.*?</tr>", main_of(page)) if name in each]
    return words_of(row)


@pytest.mark.parametrize("path", ["/card-transactions", "/cards/{card}", "/simulator/cards/{card}"])
def test_the_row_of_a_credit_says_so_and_its_amount_has_a_sign(
    person: Person, pair: dict[str, str], path: str
) -> None:
    page = shown(person.get(path.format(card=pair["card"])))

    credit, purchase = row_of(page, CREDIT), row_of(page, PURCHASE)
    assert "settled credit" in credit
    assert "+50.00" in credit
    assert "settled" in purchase
    assert "credit" not in purchase
    assert "50.00" in purchase
    assert "+50.00" not in purchase


@pytest.mark.parametrize(
    "path", ["/card-transactions/{id}", "/simulator/cards/{card}?purchase={id}"]
)
def test_the_head_of_a_credit_says_so_and_its_figure_has_a_sign(
    person: Person, pair: dict[str, str], path: str
) -> None:
    credit, purchase = (
        shown(person.http.get(ROOT + path.format(card=pair["card"], id=pair[name])))
        for name in (CREDIT, PURCHASE)
    )

    assert [settled_of(page) for page in (credit, purchase)] == ["+50.00", "50.00"]
    badge = '<span class="badge credit">credit</span>'
    heads = [main_of(page).partition('<dl class="figures"')[0] for page in (credit, purchase)]
    assert [badge in head for head in heads] == [True, False]


def settled_of(page: str) -> str:
    [amount] = re.findall(r'data-figure="settledAmount"><dt>settled</dt><dd>([^<]+)</dd>', page)
    return str(amount)


def test_the_least_amount_finds_an_authorized_credit(person: Person, api: Api) -> None:
    card = str(api.active_card()["id"])
    body = {"amount": 7_000, "currency": {"code": "USD"}, "merchant": {"descriptor": "UNCLEARED"}}
    credit = ok(api.simulate(card, "credit_authorization", body))

    found, none = (
        shown(person.get("/card-transactions", cardId=card, minAmount=least))
        for least in ("70.00 USD", "70.01 USD")
    )

    assert credit["authorizedAmount"]["amount"] == 7_000
    assert [credit["id"] in main_of(page) for page in (found, none)] == [True, False]


def test_a_credit_whose_token_gets_a_purchase_is_one_before_that(person: Person, api: Api) -> None:
    card = str(api.active_card()["id"])
    for kind, amount in (("CREDIT_AUTHORIZATION", 2_000), ("AUTHORIZATION", 1_000)):
        event = {
            "type": kind,
            "source": "visa",
            "reference": f"credit-{kind}",
            "issuerTransactionToken": "credit-then-purchase",
            "cardId": card,
            "amount": amount,
            "currency": "USD",
            "merchant": {"descriptor": "SHOP"},
        }
        [outcome] = api.http.post(f"{api.root}/network-events", json=[event]).json()
        assert outcome["outcome"] == "APPLIED", outcome
    [found] = ok(api.get("/transactions", type="CARD", cardId=card))["data"]

    path = f"/card-transactions/{found['id']}"
    first, last = shown(person.get(path, asOf=1)), shown(person.get(path))
    more = shown(person.get("/card-transactions", cardId=card, minAmount="10.01 USD"))

    assert found["direction"] == "DEBIT"
    assert ["badge credit" in page for page in (first, last)] == [True, False]
    assert found["id"] not in main_of(more)  # Of which 10.00 is authorized.
