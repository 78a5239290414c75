"""What the simulator's payments from outside are about: a quote, and a customer who receives."""

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlencode

from tests.api.support import Api, made


@dataclass(frozen=True, slots=True, kw_only=True)
class Payments:
    """A customer with an account in USD, and a quote of 100.00 USD that is paid from outside."""

    customer: str
    account: str
    quote: str
    transaction: str

    @classmethod
    def of(cls, api: Api) -> Self:
        """Make a customer, and a quote to its account in EUR."""
        customer = str(api.customer()["id"])
        quote = made(
            api.post(
                "/quotes",
                {
                    "source": {
                        "sourceType": "REALTIME_FUNDING",
                        "currency": "USD",
                        "customerId": customer,
                    },
                    "destination": {
                        "destinationType": "ACCOUNT",
                        "accountId": api.account(customer, "EUR")["id"],
                    },
                    "lockedCurrencySide": "SENDING",
                    "lockedCurrencyAmount": 10_000,
                },
            )
        )
        return cls(
            customer=customer,
            account=str(api.account(customer)["id"]),
            quote=str(quote["id"]),
            transaction=str(quote["transactionId"]),
        )

    @property
    def addresses(self) -> tuple[str, str]:
        """The addresses, below the console, of the pages that confirm."""
        wanted = {
            "sender": "$success.usd@sandbox.uma.money",
            "receiver": self.customer,
            "amount": "12.50 USD",
        }
        return (
            f"/simulator/payments/send?{urlencode({'quote': self.quote})}",
            f"/simulator/payments/receive?{urlencode(wanted)}",
        )
