"""The operations of the sandbox that the simulator has a form for, and the request of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from cardledger.api.console.lists.filters import Amount, NamedAmount
from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.schema.wire.common import format_amount
from cardledger.schema.wire.customers.accounts import MAX_FUND
from cardledger.schema.wire.errors import Code

AMOUNT: Final = "amount"
DESCRIPTOR: Final = "descriptor"
FINAL: Final = "final"
MERCHANT_FIELDS: Final = ("mcc", "country")
"""What a form may say of the merchant besides its name."""

_AMOUNTS: Final[TypeAdapter[NamedAmount]] = TypeAdapter(Amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of `/sandbox/cards/{card}/simulate/`, by its last segment.

    `is_follow_up`: it is about a card transaction that exists. `needs_amount` is False where the
    amount may be left out.
    """

    name: str
    title: str
    effect: str
    fields: tuple[str, ...] = ()
    is_follow_up: bool = False
    needs_amount: bool = True


OPERATIONS: Final = (
    Operation(
        name="authorization",
        title="Authorization",
        effect="A merchant asks for an amount; it is held when the account can pay it.",
        fields=(AMOUNT, DESCRIPTOR),
    ),
    Operation(
        name="financial_authorization",
        title="Financial authorization",
        effect="Authorizes and clears with one message, as a cash machine does.",
        fields=(AMOUNT, DESCRIPTOR),
    ),
    Operation(
        name="balance_inquiry",
        title="Balance inquiry",
        effect="Checks the card for an amount of 0; nothing is recorded.",
        fields=(DESCRIPTOR,),
    ),
    Operation(
        name="credit_authorization",
        title="Credit authorization",
        effect="Authorizes a credit; nothing moves before its clearing.",
        fields=(AMOUNT, DESCRIPTOR),
    ),
    Operation(
        name="credit_authorization_advice",
        title="Credit advice",
        effect="Reports a credit that the network has approved.",
        fields=(AMOUNT, DESCRIPTOR),
    ),
    Operation(
        name="financial_credit_authorization",
        title="Financial credit",
        effect="Credits the card with one message, as a push payment does.",
        fields=(AMOUNT, DESCRIPTOR),
    ),
    Operation(
        name="clearing",
        title="Clearing",
        effect="The network moves the amount; what exceeds the hold is pulled afterwards.",
        fields=(AMOUNT, FINAL),
        is_follow_up=True,
    ),
    Operation(
        name="authorization_advice",
        title="Advice",
        effect="The authorized total becomes the amount.",
        fields=(AMOUNT,),
        is_follow_up=True,
    ),
    Operation(
        name="authorization_reversal",
        title="Reversal",
        effect="Reverses the amount of the authorization; without an amount, all of it.",
        fields=(AMOUNT,),
        is_follow_up=True,
        needs_amount=False,
    ),
    Operation(
        name="authorization_expiry",
        title="Expiry",
        effect="What has not cleared is released.",
        is_follow_up=True,
    ),
    Operation(
        name="return",
        title="Refund",
        effect="The merchant refunds an amount, at most what has settled.",
        fields=(AMOUNT,),
        is_follow_up=True,
    ),
    Operation(
        name="return_reversal",
        title="Refund reversal",
        effect="Takes all refunds of the purchase back.",
        is_follow_up=True,
    ),
)
"""The operations, in the order of their forms."""

BY_NAME: Final[Mapping[str, Operation]] = {each.name: each for each in OPERATIONS}

FUND: Final = "fund"
"""The name of the form that funds the account of a card."""


def path_of(card: str, operation: str) -> str:
    """Return the path of an operation of a card."""
    return f"/sandbox/cards/{card}/simulate/{operation}"


def fund_path(account: str) -> str:
    """Return the path of the operation that funds an account."""
    return f"/sandbox/internal-accounts/{account}/fund"


def amount_of(fields: Mapping[str, str], currency: str | None = None) -> NamedAmount:
    """Return the amount of a form, in `currency` if that is given.

    Raises: ApiError INVALID_INPUT, INVALID_CURRENCY.
    """
    try:
        amount = _AMOUNTS.validate_python(fields.get(AMOUNT, ""))
    except ValidationError as error:
        raise invalid_field(AMOUNT, _message(error)) from None
    if currency is not None and amount.currency != currency:
        raise invalid_field(AMOUNT, f"must be in {currency}", Code.INVALID_CURRENCY)
    return amount


def deposit_of(fields: Mapping[str, str], currency: str | None = None) -> NamedAmount:
    """Return the amount of a form that funds an account, in `currency` if that is given.

    Raises: ApiError INVALID_INPUT, INVALID_CURRENCY.
    """
    amount = amount_of(fields, currency)
    if amount.minor_units > MAX_FUND:
        limit = format_amount(MAX_FUND, amount.currency)
        raise invalid_field(AMOUNT, f"must be at most {limit}, in one deposit of the sandbox")
    return amount


def body_of(
    operation: Operation, fields: Mapping[str, str], *, purchase: str | None, currency: str
) -> dict[str, Any]:
    """Return the body of the request that a form makes; `currency` is that of the card.

    Raises: ApiError INVALID_INPUT, INVALID_CURRENCY.
    """
    body: dict[str, Any] = {}
    if operation.is_follow_up:
        if purchase is None:
            raise ApiError(Code.INVALID_INPUT, "Choose the purchase that this is about.")
        body["cardTransactionId"] = purchase
    if AMOUNT in operation.fields and (operation.needs_amount or fields.get(AMOUNT, "").strip()):
        amount = amount_of(fields, currency if operation.is_follow_up else None)
        body["amount"] = amount.minor_units
        if not operation.is_follow_up:
            body["currency"] = {"code": amount.currency}
    if DESCRIPTOR in operation.fields:
        more = {name: fields[name].strip() for name in MERCHANT_FIELDS if fields.get(name)}
        body["merchant"] = {"descriptor": fields.get(DESCRIPTOR, ""), **more}
    if FINAL in operation.fields and fields.get(FINAL):
        body["final"] = fields[FINAL] == "yes"
    return body


def _message(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")
