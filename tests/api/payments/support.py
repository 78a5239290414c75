"""Shared by tests of payments: a payer with money and accounts outside."""

from dataclasses import dataclass
from typing import Any

from tests.api.support import Api, made, ok
from tests.external_accounts import body, info
from tests.waiting import eventually

OUT = "/transfer-out"
IN = "/transfer-in"


@dataclass(frozen=True)
class Payer:
    """A customer with 1,000 on an account in US dollars."""

    api: Api
    customer_id: str
    account_id: str

    def bank(self, ending: str = "890", account_type: str = "USD_ACCOUNT") -> str:
        """Return the id of an external account of the customer, whose number has this `ending`."""
        return bank(self.api, ending, account_type, customerId=self.customer_id)

    def out(self, bank_id: str, amount: object = 400, **fields: object) -> dict[str, Any]:
        """Return the body of a transfer to an account."""
        return {
            "source": {"accountId": self.account_id},
            "destination": {"accountId": bank_id},
            "amount": amount,
        } | fields

    def pays(self, bank_id: str, amount: int = 400, **fields: object) -> dict[str, Any]:
        """Return the transaction of a transfer to an account."""
        return made(self.api.post(OUT, self.out(bank_id, amount, **fields)))

    def collects(self, bank_id: str, amount: int = 400) -> dict[str, Any]:
        """Return the transaction of a transfer from an external account."""
        wanted = {
            "source": {"accountId": bank_id},
            "destination": {"accountId": self.account_id},
            "amount": amount,
        }
        return made(self.api.post(IN, wanted))

    def balance(self) -> int:
        account = ok(self.api.get(f"/internal-accounts/{self.account_id}"))
        return int(account["balance"]["amount"])


def payer(api: Api, balance: int = 1_000, currency: str = "USD", **fields: object) -> Payer:
    customer = api.customer(**fields)
    account = api.account(customer["id"], currency)
    if balance:
        api.fund(account["id"], balance)
    return Payer(api, customer["id"], account["id"])


def bank(api: Api, ending: str = "890", account_type: str = "USD_ACCOUNT", **fields: object) -> str:
    """Return the id of an external account; without a `customerId` it is the platform's."""
    numbers = {
        "USD_ACCOUNT": {"accountNumber": "1234567" + ending},
        "GBP_ACCOUNT": {"accountNumber": "12345" + ending},
    }
    details = info(account_type, **numbers.get(account_type, {}))
    wanted = body(account_type, accountInfo=details) | fields
    return str(made(api.post("/customers/external-accounts", wanted))["id"])


def settled(api: Api, transaction: dict[str, Any], status: str) -> dict[str, Any]:
    """Return `transaction` once it has `status`."""

    def look() -> dict[str, Any] | None:
        shown = ok(api.get(f"/transactions/{transaction['id']}"))
        return shown if shown["status"] == status else None

    return eventually(look)
