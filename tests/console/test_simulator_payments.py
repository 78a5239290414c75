"""Payments from outside, by the simulator."""

from html import unescape
from pathlib import Path

import pytest

from cardledger.api.console import ROOT, application
from cardledger.api.console.simulator import operations
from tests.api.documents import document
from tests.api.support import Api, made, ok
from tests.console.payments import Payments
from tests.console.person import Person, shown
from tests.console.test_simulator import HIDDEN, sent
from tests.waiting import eventually

PAYMENTS = "/simulator/payments"
FORMS = {
    "/sandbox/send",
    "/sandbox/uma/receive",
    "/sandbox/exchange-rates",
    "/sandbox/internal-accounts/{internalAccountId}/fund",
    "/sandbox/webhooks/test",
    *(f"/sandbox/cards/{{cardId}}/simulate/{name}" for name in operations.BY_NAME),
}
BY_ENDPOINT = {"/sandbox/webhooks/test": "/webhooks/test"}
"""A `TEST` is sent from the page of its endpoint, by the operation that names one."""


def form_of(page: str) -> dict[str, str]:
    """Return the hidden fields of the form of a page that confirms."""
    main = page.partition("<main")[2]
    return {name: unescape(value) for name, value in HIDDEN.findall(main)}


def test_every_operation_of_the_sandbox_has_a_form() -> None:
    console = Path(application.__file__).parent
    sources = "".join(path.read_text(encoding="utf-8") for path in console.rglob("*.py"))

    assert {path for path in document()["paths"] if path.startswith("/sandbox/")} == FORMS
    forms = {BY_ENDPOINT.get(path, path).partition("{")[0] for path in FORMS}
    assert not [path for path in forms if f'"{path}' not in sources]


def test_a_quote_is_paid_after_it_is_confirmed(person: Person, api: Api) -> None:
    payments = Payments.of(api)
    address, _ = payments.addresses

    asked = shown(person.get(PAYMENTS))
    confirmed = shown(person.http.get(f"{ROOT}{address}"))
    before = ok(api.get(f"/quotes/{payments.quote}"))["status"]
    fields = form_of(confirmed)
    pages = [shown(person.post(f"{PAYMENTS}/send", fields)) for _ in range(2)]

    assert f'action="{ROOT}{PAYMENTS}/send"' in asked
    assert "Pay 100.00 USD" in confirmed
    assert before == "PENDING", "nothing has moved"
    for page in pages:
        assert payments.transaction in page
        assert "/sandbox/send" in page
        assert fields["idempotency_key"] in page
    paid = eventually(lambda: ok(api.get(f"/quotes/{payments.quote}")))
    assert paid["status"] in {"PROCESSING", "COMPLETED"}
    again = shown(person.http.get(f"{ROOT}{address}"), 400)
    assert "Cannot be paid any more" in again


def test_a_quote_that_cannot_be_paid_is_refused(
    person: Person, api: Api, other_platform: Api
) -> None:
    foreign = Payments.of(other_platform).addresses[0]
    customer = str(api.customer()["id"])
    usd, eur = (str(api.account(customer, code)["id"]) for code in ("USD", "EUR"))
    api.fund(usd, 20_000)
    of_account = made(
        api.post(
            "/quotes",
            {
                "source": {"sourceType": "ACCOUNT", "accountId": usd},
                "destination": {"destinationType": "ACCOUNT", "accountId": eur},
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": 10_000,
            },
        )
    )

    unknown = shown(person.http.get(f"{ROOT}{foreign}"), 400)
    malformed = shown(person.get(f"{PAYMENTS}/send", quote="Quote:1"), 400)
    wrong = shown(person.get(f"{PAYMENTS}/send", quote=of_account["id"]), 400)
    fields = sent(person, malformed, quote=of_account["id"])
    refused = shown(person.post(f"{PAYMENTS}/send", fields), 409)

    assert "Is not a quote of this platform" in unknown
    assert 'aria-describedby="send-quote-problem"' in unknown
    assert 'value="Quote:1"' in malformed
    assert "Is paid from an account, not from outside" in wrong
    assert "paid from an account" in refused
    assert f'href="{ROOT}{PAYMENTS}">Back to the form</a>' in refused


@pytest.mark.parametrize("is_by_address", [False, True])
def test_a_payment_arrives_on_the_confirmed_account(
    person: Person, api: Api, *, is_by_address: bool
) -> None:
    customer = api.customer(umaAddress=f"$ada.{is_by_address}@{api.uma_domain()}".lower())
    account = api.account(customer["id"])["id"]
    named = customer["umaAddress"] if is_by_address else customer["id"]
    wanted = {"sender": "$success.usd@sandbox.uma.money", "amount": "1,012.50 USD"}

    confirmed = shown(person.get(f"{PAYMENTS}/receive", receiver=named, **wanted))
    fields = form_of(confirmed)
    moved = shown(
        person.post(f"{PAYMENTS}/receive", fields | {"account": "InternalAccount:1"}), 400
    )
    page = shown(person.post(f"{PAYMENTS}/receive", fields))

    assert "Receive 1,012.50 USD" in confirmed
    assert (fields["account"], fields["receiver"]) == (account, customer["id"])
    assert "is not the one of its page" in moved
    [arrived] = ok(api.get("/transactions", customerId=customer["id"], type="INCOMING"))["data"]
    assert arrived["receivedAmount"]["amount"] == 101_250
    assert arrived["id"] in page
    assert "/sandbox/uma/receive" in page


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("receiver", "Customer:019542f5-b3e7-7d02-0000-00000000a1b4", "is not a customer"),
        ("receiver", "$unknown@example.com", "is not a customer"),
        ("receiver", "Card:1", "or a UMA address"),
        ("amount", "0 USD", "must be greater than 0"),
        ("amount", "90,000,000,000,001 USD", "at most 90,000,000,000,000"),
        ("sender", " ", "is required"),
        ("amount", "1,50 USD", "must be an amount with its currency"),
        ("amount", "1 GBP", "is not a currency in which"),
    ],
)
def test_a_payment_to_nowhere_is_refused_by_its_field(
    person: Person, api: Api, field: str, value: str, problem: str
) -> None:
    wanted = {
        "sender": "$success.usd@sandbox.uma.money",
        "receiver": api.customer()["id"],
        "amount": "1 USD",
    }

    page = shown(person.get(f"{PAYMENTS}/receive", **(wanted | {field: value})), 400)

    assert problem.lower() in page.lower()
    assert f'aria-describedby="receive-{field}-problem"' in page


def test_an_unknown_sender_is_refused_by_its_field(person: Person, api: Api) -> None:
    customer = api.customer()["id"]
    page = shown(
        person.get(f"{PAYMENTS}/receive", sender="$x@y.example", receiver=customer, amount="1 USD")
    )

    refused = shown(person.post(f"{PAYMENTS}/receive", form_of(page)), 400)

    assert "Is not a UMA address elsewhere" in refused
    assert 'aria-describedby="receive-sender-problem"' in refused


def test_a_rate_is_set_and_listed(person: Person) -> None:
    fields = sent(
        person, shown(person.get(PAYMENTS)), source="usd", destination="EUR", rate="1.0924"
    )

    page = shown(person.post(PAYMENTS, fields))
    wrong = shown(person.post(PAYMENTS, fields | {"rate": "1,09"}), 400)
    none = shown(
        person.post(PAYMENTS, fields | {"destination": "XXX", "idempotency_key": "other"}),
        400,
    )

    assert '<td class="number">1.0924</td>' in page
    assert "&#34;exchangeRate&#34;: 1.0924" in page
    assert "Must be a number, such as 1.0924" in wrong
    assert 'aria-describedby="rate-destination-problem"' in none
