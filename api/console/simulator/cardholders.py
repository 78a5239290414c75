"""A customer, its account with money, and a card: four requests, one step of a person."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardledger.api.console.access.forms import Action, Answer
from cardledger.api.console.simulator import operations
from cardledger.api.console.simulator.stories import StepRequest, key_of
from cardledger.api.http.errors import ApiError
from cardledger.schema.wire.errors import Code

_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 5.0  # The issuer of a sandbox answers within milliseconds.
_FIAT: Final = "INTERNAL_FIAT"
_APPROVED: Final = "APPROVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardholderRequest:
    """What is wanted: a name, money on an account, and an ending that the issuer reacts to.

    `balance` is in minor units of `currency`; None: the platform has none that a card can spend.
    """

    name: str
    currency: str | None
    balance: int
    card_ending: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardholder:
    """The public ids of a card and its account, and their currency."""

    card: str
    account: str
    currency: str
    is_active: bool


class NotApprovedError(Exception):
    """The customer was made and is not approved: it gets neither money nor a card."""

    def __init__(self, customer: str) -> None:
        self.customer: Final = customer
        super().__init__(f"{customer} is not approved")


class SetUpError(Exception):
    """One of the requests was refused; those before it were carried out, and have `made` this."""

    def __init__(self, answer: Answer, made: Sequence[str] = ()) -> None:
        self.answer: Final = answer
        self._before: Final = f" Made before that: {', '.join(made)}." if made else ""
        super().__init__(f"{answer.message}{self._before}")

    def error(self, names: Mapping[str, str]) -> ApiError:
        """Return the error of a form, which names what was made; `names` as in `Answer.error`."""
        error = self.answer.error(names)
        details = dict(error.details or {})
        if self._before and details.get("errors"):
            first, *others = details["errors"]
            message = f"{first['message'].removesuffix('.')}.{self._before}"
            details["errors"] = [{**first, "message": message}, *others]
        return ApiError(error.code, str(self), details=details, status=error.status)


async def set_up(action: Action, wanted: CardholderRequest, *, run_id: str) -> Cardholder:
    """Make a customer, fund its account, issue a card, and wait until that can be used.

    Repeated with the same `run_id`, it returns the same card.
    Raises: SetUpError, NotApprovedError.
    """
    made: list[str] = []
    try:
        return await _make(action, wanted, run_id, made)
    except SetUpError as error:
        raise SetUpError(error.answer, made) from error


async def _make(
    action: Action, wanted: CardholderRequest, run_id: str, made: list[str]
) -> Cardholder:
    """Make a cardholder, and add the ids of what was made to `made`."""
    customer = await _send(action, _customer_request(run_id, wanted))
    made.append(str(customer["id"]))
    if customer["kycStatus"] != _APPROVED:
        raise NotApprovedError(str(customer["id"]))
    account = await _account(action, customer["id"], wanted.currency)
    currency = str(account["balance"]["currency"]["code"])
    if wanted.balance:
        await _send(action, _deposit_request(run_id, wanted, account["id"]))
    card = await _send(action, _card_request(run_id, wanted, customer["id"], account["id"]))
    made.append(str(card["id"]))
    if not wanted.card_ending:
        card = await _issued(action, card)
    return Cardholder(
        card=str(card["id"]),
        account=str(account["id"]),
        currency=currency,
        is_active=card["state"] == "ACTIVE",
    )


def requests_of(
    wanted: CardholderRequest, *, customer: str, account: str, run_id: str
) -> Sequence[StepRequest]:
    """Return the requests that have made a cardholder, by the ids of what they have made."""
    return [
        _customer_request(run_id, wanted),
        *([_deposit_request(run_id, wanted, account)] if wanted.balance else []),
        _card_request(run_id, wanted, customer, account),
    ]


def _customer_request(run_id: str, wanted: CardholderRequest) -> StepRequest:
    body = {"customerType": "INDIVIDUAL", "fullName": wanted.name}
    return StepRequest(path="/customers", body=body, key=key_of(run_id, "customer"))


def _deposit_request(run_id: str, wanted: CardholderRequest, account: str) -> StepRequest:
    body = {"amount": wanted.balance}
    return StepRequest(path=operations.fund_path(account), body=body, key=key_of(run_id, "fund"))


def _card_request(
    run_id: str, wanted: CardholderRequest, customer: str, account: str
) -> StepRequest:
    body: dict[str, Any] = {
        "cardholderId": customer,
        "form": "VIRTUAL",
        "fundingSources": [account],
    }
    if wanted.card_ending:
        body["platformCardId"] = f"{run_id}-{wanted.card_ending}"
    return StepRequest(path="/cards", body=body, key=key_of(run_id, "card"))


async def _account(action: Action, customer: str, currency: str | None) -> Mapping[str, Any]:
    """Return the customer's account in `currency`."""
    path = f"/customers/internal-accounts?customerId={customer}&type={_FIAT}&limit=100"
    found: list[Mapping[str, Any]] = (await _get(action, path))["data"]
    of_currency = {account["balance"]["currency"]["code"]: account for account in found}
    if currency in of_currency:
        return of_currency[currency]
    if currency is None or not of_currency:
        message = "The platform has no fiat currency, from which a card could be funded."
        raise _refused(message)
    found_in = ", ".join(of_currency)
    raise _refused(
        f"The platform has no accounts in {currency}; it has: {found_in}.",
        field=f"must be in a currency of the platform's accounts, {found_in}, not in {currency}",
    )


def _refused(message: str, *, field: str | None = None) -> SetUpError:
    """Return the error of what the API was not asked for; `field` is about the amount."""
    errors = [] if field is None else [{"field": operations.AMOUNT, "message": field}]
    body = {"code": Code.INVALID_INPUT, "message": message, "details": {"errors": errors}}
    return SetUpError(Answer(status=400, body=body))


async def _issued(action: Action, card: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the card once the issuer has answered, or as it is when that takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while card["state"] == "PROCESSING" and loop.time() < deadline:
        await asyncio.sleep(_PAUSE_S)
        card = await _get(action, f"/cards/{card['id']}")
    return card


async def _send(action: Action, request: StepRequest) -> Any:  # noqa: ANN401 - JSON
    return _body_of(await action.run("POST", request.path, request.body, key=request.key))


async def _get(action: Action, path: str) -> Any:  # noqa: ANN401 - JSON
    return _body_of(await action.run("GET", path))


def _body_of(answer: Answer) -> Any:  # noqa: ANN401 - JSON
    if not answer.is_success:
        raise SetUpError(answer)
    return answer.body
