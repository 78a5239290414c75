"""The whole circle of money on the real system: in, spent, out, back, converted, gone."""

import secrets
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.external_accounts import body as external_account
from tests.external_accounts import info
from tests.system import support
from tests.waiting import eventually

pytestmark = pytest.mark.slow

RETURNED = "005"  # A payment by a quote to a number that ends so is returned by the bank.


class Circle:
    """A customer with 100.00 USD and an empty account in euros, on a system that runs."""

    def __init__(self, api: httpx2.Client) -> None:
        self.api = api
        self.patch("/config", {"supportedCurrencies": [currency("USD"), currency("EUR")]})
        made = support.cardholder(api, funds=10_000)
        self.customer, self.dollars, self.card = made["customer"], made["account"], made["card"]
        filters = {"customerId": self.customer, "currency": "EUR"}
        [account] = self.get("/customers/internal-accounts", **filters)["data"]
        self.euros = str(account["id"])

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        return content(self.api.post(path, json=body))

    def patch(self, path: str, body: object) -> dict[str, Any]:
        return content(self.api.patch(path, json=body))

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return content(self.api.get(path, params=query))

    def balances(self) -> tuple[int, int]:
        """Return dollars and euros, in cents."""
        dollars, euros = (
            int(self.get(f"/internal-accounts/{account}")["balance"]["amount"])
            for account in (self.dollars, self.euros)
        )
        return dollars, euros

    def bank(self, account_type: str, **details: str) -> str:
        wanted = external_account(
            account_type, accountInfo=info(account_type, **details), customerId=self.customer
        )
        return str(self.post("/customers/external-accounts", wanted)["id"])

    def dollar_bank(self, ending: str = "890") -> str:
        return self.bank("USD_ACCOUNT", accountNumber=f"{secrets.randbelow(10**9):09}{ending}")

    def pays(self, source: str, bank: str, amount: int) -> dict[str, Any]:
        wanted = {
            "source": {"accountId": source},
            "destination": {"accountId": bank},
            "amount": amount,
        }
        return self.post("/transfer-out", wanted)

    def quoted(self, destination: str, amount: int) -> str:
        """Pay dollars by a quote that is executed at once; returns its transaction."""
        wanted = {
            "source": {"sourceType": "ACCOUNT", "accountId": self.dollars},
            "destination": {"destinationType": "ACCOUNT", "accountId": destination},
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": amount,
            "immediatelyExecute": True,
        }
        return str(self.post("/quotes", wanted)["transactionId"])

    def becomes(self, transaction: str, status: str) -> dict[str, Any]:
        path = f"/transactions/{transaction}"
        eventually(lambda: self.get(path)["status"] == status)
        return self.get(path)


def content(answered: httpx2.Response) -> dict[str, Any]:
    assert answered.is_success, answered.text
    body: dict[str, Any] = answered.json()
    return body


def currency(code: str) -> dict[str, Any]:
    return {
        "currencyCode": code,
        "minAmount": 1,
        "maxAmount": 10**12,
        "requiredCounterpartyFields": [],
        "enabledTransactionTypes": ["INCOMING", "OUTGOING"],
    }


def trial_balances(url: str) -> dict[str, int]:
    """Return debits less credits of all accounts, by currency."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT currency, sum(net)::bigint FROM finance.trial_balance('9999-12-31', now())"
            " GROUP BY currency"
        ).fetchall()
    return dict(rows)


def test_the_circle_of_money_closes(postgres_url: DatabaseUrl, tmp_path: Path) -> None:
    with support.own_database(postgres_url) as url:
        env = support.environment(
            DATABASE_URL=url,
            CARDLEDGER_SECRET_KEY=secrets.token_urlsafe(48),
            CARDLEDGER_SANDBOX_DELAY_S="1",
        )
        with support.up(tmp_path, env) as up, up.api() as api:
            circle = Circle(api)
            bought = support.authorize(api, circle.card, 1_250)
            support.clear(api, circle.card, bought["id"], 1_500)  # With the tip.
            assert circle.balances() == (8_500, 0)

            circle.becomes(paid := circle.quoted(circle.dollar_bank(RETURNED), 5_000), "FAILED")
            returned = circle.get(f"/transactions/{paid}")
            assert returned["failureReason"] == "PAYOUT_RETURNED"
            assert returned["refund"]["status"] == "COMPLETED"
            assert circle.balances() == (8_500, 0)

            exchanged = circle.becomes(circle.quoted(circle.euros, 2_000), "COMPLETED")
            euros = int(exchanged["receivedAmount"]["amount"])
            assert 0 < euros < 2_000
            assert circle.balances() == (6_500, euros)

            assert api.delete(f"/customers/{circle.customer}").status_code == 409
            assert circle.pays(circle.euros, circle.bank("EUR_ACCOUNT"), euros)["status"] == (
                "COMPLETED"
            )
            circle.pays(circle.dollars, circle.dollar_bank(), 6_500)
            assert circle.balances() == (0, 0)
            circle.patch(f"/cards/{circle.card}", {"state": "CLOSED"})
            assert content(api.delete(f"/customers/{circle.customer}"))["isDeleted"] is True

            proof = support.run("verify", "--json", env=env)
            assert proof.returncode == 0, proof.stdout + proof.stderr
            balances = trial_balances(url)

    assert {"USD", "EUR"} <= set(balances)
    assert set(balances.values()) == {0}
