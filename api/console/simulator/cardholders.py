"""A customer, its account with money, and a card: four requests, one step of a person."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cardledger.api.console.access.forms import Action, Answer
from cardledger.api.console.lists.filters import NamedAmount
from cardledger.api.console.simulator import operations
from cardledger.api.console.simulator.stories import key_of

USUAL_CURRENCY: Final = "USD"

_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 5.0  # The issuer of a sandbox answers within milliseconds.
_FIAT: Final = "INTERNAL_FIAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardholderRequest:
    """What is wanted: a name, money on the account, and an ending that the issuer reacts to.

    `minor_units` is the balance in whatever currency the account has, instead of `balance`.
    """

    name: str
    balance: NamedAmount | None = None
    minor_units: int = 0
    card_ending: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardholder:
    """The public ids of a card and its account, and their currency."""

    card: str
    account: str
    currency: str
    is_active: bool


class SetUpError(Exception):
    """One of the requests was refused; those before it were carried out."""

    def __init__(self, answer: Answer) -> None:
        self.answer: Final = answer
        super().__init__(answer.message)


async def set_up(action: Action, wanted: CardholderRequest, *, run_id: str) -> Cardholder:
    """Make a customer, fund its account, issue a card, and wait until that can be used.

    Repeated with the same `run_id`, it returns the same card.
    Raises: SetUpError.
    """
    body = {"customerType": "INDIVIDUAL", "fullName": wanted.name}
    customer = await _do(action, "POST", "/customers", body, key_of(run_id, "customer"))
    account = await _account(action, customer["id"], wanted.balance)
    currency = str(account["balance"]["currency"]["code"])
    amount = wanted.balance.minor_units if wanted.balance else wanted.minor_units
    if amount:
        path = operations.fund_path(account["id"])
        await _do(action, "POST", path, {"amount": amount}, key_of(run_id, "fund"))
    request: dict[str, Any] = {
        "cardholderId": customer["id"],
        "form": "VIRTUAL",
        "fundingSources": [account["id"]],
    }
    if wanted.card_ending:
        request["platformCardId"] = f"{run_id}-{wanted.card_ending}"
    card = await _do(action, "POST", "/cards", request, key_of(run_id, "card"))
    if not wanted.card_ending:
        card = await _issued(action, card)
    return Cardholder(
        card=str(card["id"]),
        account=str(account["id"]),
        currency=currency,
        is_active=card["state"] == "ACTIVE",
    )


async def _account(action: Action, customer: str, balance: NamedAmount | None) -> Mapping[str, Any]:
    """Return the customer's account in the currency of `balance`, else in the usual one."""
    path = f"/customers/internal-accounts?customerId={customer}&type={_FIAT}&limit=100"
    found: list[Mapping[str, Any]] = (await _do(action, "GET", path))["data"]
    of_currency = {account["balance"]["currency"]["code"]: account for account in found}
    if balance is not None:
        if balance.currency not in of_currency:
            message = f"The platform has no accounts in {balance.currency}; it has: "
            raise SetUpError(
                Answer(status=400, body={"message": message + ", ".join(of_currency) + "."})
            )
        return of_currency[balance.currency]
    if not found:
        message = "The platform has no fiat currency, from which a card could be funded."
        raise SetUpError(Answer(status=400, body={"message": message}))
    return of_currency.get(USUAL_CURRENCY, found[0])


async def _issued(action: Action, card: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the card once the issuer has answered, or as it is when that takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while card["state"] == "PROCESSING" and loop.time() < deadline:
        await asyncio.sleep(_PAUSE_S)
        card = await _do(action, "GET", f"/cards/{card['id']}")
    return card


async def _do(
    action: Action,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> Any:  # noqa: ANN401 - JSON
    answer = await action.run(method, path, body, key=key)
    if not answer.is_success:
        raise SetUpError(answer)
    return answer.body
