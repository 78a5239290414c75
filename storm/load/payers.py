"""Customers who pay out, convert and collect: payments, beside the purchases of cardholders.

The end of a bank's number decides what becomes of a payment to it (docs/sandbox.md).
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from cardledger.api import BASE_PATH
from storm.system import System
from tests.external_accounts import body as external_account
from tests.external_accounts import info

INTERFACES: Final = {"payout": 5, "quote": 6, "collection": 2, "payer's deposit": 3}
"""How often each of these interfaces is used, relative to the others."""

_PAYERS: Final = 8
_OPENING: Final = 500_000
# Paid; refused; refused later, or by a quote returned after it was paid; a refund that fails.
_ENDINGS: Final = ("890", "002", "004", "005", "007")

Call = Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Sends a request until it succeeds or is refused for good: method, path, body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """One customer, by the ids of the interface."""

    dollars: str
    euros: str
    dollar_banks: Sequence[str]
    euro_banks: Sequence[str]


def populate(system: System) -> list[Payer]:
    """Create the payers, over the API, with banks of every ending."""
    assert system.sandbox is not None
    access = system.sandbox.access
    with httpx2.Client(
        base_url=f"{system.base_url}{BASE_PATH}",
        auth=(access.client_id, access.client_secret),
        timeout=30,
        trust_env=False,
    ) as api:
        supported = [_currency(code) for code in ("USD", "EUR")]
        _content(api.patch("/config", json={"supportedCurrencies": supported}))
        return [_payer(api, number) for number in range(_PAYERS)]


def _payer(api: httpx2.Client, number: int) -> Payer:
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}
    customer = _content(api.post("/customers", json=person))["id"]
    listed = _content(api.get("/customers/internal-accounts", params={"customerId": customer}))
    accounts = {one["balance"]["currency"]["code"]: one["id"] for one in listed["data"]}

    def bank(kind: str, **details: str) -> str:
        wanted = external_account(kind, accountInfo=info(kind, **details), customerId=customer)
        return str(_content(api.post("/customers/external-accounts", json=wanted))["id"])

    dollars: str = accounts["USD"]
    return Payer(
        dollars=dollars,
        euros=accounts["EUR"],
        dollar_banks=[bank("USD_ACCOUNT", accountNumber=f"{number:07}{end}") for end in _ENDINGS],
        euro_banks=[bank("EUR_ACCOUNT", iban=f"DE89{number:015}{end}") for end in _ENDINGS],
    )


class Payments:
    """The interfaces of payers; what one of them does is chosen by `chance`."""

    def __init__(self, payers: Sequence[Payer], chance: random.Random, call: Call) -> None:
        """Send requests with `call`."""
        self._payers: Final = payers
        self._chance: Final = chance
        self._call: Final = call

    async def open(self) -> None:
        """Give each payer money."""
        for payer in self._payers:
            await self._fund(payer, _OPENING)

    async def use(self, interface: str) -> None:
        """Send what one of `INTERFACES` is for."""
        payer = self._chance.choice(self._payers)
        match interface:
            case "payout":
                await self._pay_out(payer)
            case "quote":
                await self._pay_by_quote(payer)
            case "collection":
                source = self._chance.choice(payer.dollar_banks)
                await self._transfer("/transfer-in", source, payer.dollars)
            case _:
                await self._fund(payer, self._amount())

    async def _fund(self, payer: Payer, amount: int) -> None:
        path = f"/sandbox/internal-accounts/{payer.dollars}/fund"
        await self._call("POST", path, {"amount": amount})

    async def _pay_out(self, payer: Payer) -> None:
        other = self._chance.choice(self._payers)
        if other is not payer and self._chance.random() < 0.3:
            await self._transfer("/transfer-out", payer.dollars, other.dollars)
            return
        bank = self._chance.choice(payer.dollar_banks)
        await self._transfer("/transfer-out", payer.dollars, bank)

    async def _transfer(self, path: str, source: str, destination: str) -> None:
        body = {
            "source": {"accountId": source},
            "destination": {"accountId": destination},
            "amount": self._amount(),
        }
        await self._call("POST", path, body)

    async def _pay_by_quote(self, payer: Payer) -> None:
        """Convert dollars into euros, or the other way, to an account or to a bank."""
        source, to = self._chance.choice(
            [
                (payer.dollars, [payer.euros, *payer.euro_banks]),
                (payer.euros, [payer.dollars, *payer.dollar_banks]),
            ]
        )
        body = {
            "source": {"sourceType": "ACCOUNT", "accountId": source},
            "destination": {
                "destinationType": "ACCOUNT",
                "accountId": self._chance.choice(to),
            },
            "lockedCurrencySide": self._chance.choice(["SENDING", "RECEIVING"]),
            "lockedCurrencyAmount": self._amount(),
            "immediatelyExecute": True,
        }
        await self._call("POST", "/quotes", body)

    def _amount(self) -> int:
        return self._chance.randint(100, 20_000)


def _currency(code: str) -> dict[str, Any]:
    return {
        "currencyCode": code,
        "minAmount": 1,
        "maxAmount": 10**12,
        "requiredCounterpartyFields": [],
        "enabledTransactionTypes": ["INCOMING", "OUTGOING"],
    }


def _content(answered: httpx2.Response) -> dict[str, Any]:
    content: dict[str, Any] = answered.raise_for_status().json()
    return content
