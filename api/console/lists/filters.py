"""Fields of the filters of lists, as people fill them in; an empty field is no filter."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Annotated, Any, Final, Self

from fastapi import Request
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from cardledger.schema.wire.common import CURRENCIES, MAX_AMOUNT, PageQuery

# A comma is one between groups of three digits. Elsewhere it may have been meant as a decimal
# separator, and 1,50 must never be read as 150.
_WHOLE: Final = r"[0-9]{1,31}|[1-9][0-9]{0,2}(?:,[0-9]{3}){1,9}"
_AMOUNT: Final = re.compile(
    rf"\s*((?:{_WHOLE})(?:\.[0-9]{{1,18}})?)\s*([A-Za-z]{{3,8}})\s*", re.ASCII
)
_EXACT: Final = Context(prec=60)  # More digits than the form of an amount has.
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)  # Ids have times from then on.
_REST_OF_SECOND: Final = timedelta(microseconds=999_999)  # Times are shown in whole seconds.
_DAY: Final = "%Y-%m-%d"
_FORMS: Final = (_DAY, "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")
_NUL: Final = PydanticCustomError("value_error", "must not contain the character U+0000")
PAGE_ROWS: Final = 50
"""Rows of a page."""


@dataclass(frozen=True, slots=True)
class NamedAmount:
    """An amount with its currency, in minor units; as it was typed in `text`."""

    minor_units: int
    currency: str
    text: str


def _amount(value: object) -> NamedAmount:
    found = _AMOUNT.fullmatch(str(value))
    currency = CURRENCIES.get(found[2].upper()) if found else None
    if found is None or currency is None:
        message = (
            "must be an amount with its currency, such as 1,234.50 USD: decimals follow a point,"
            " and a comma only separates groups of three digits"
        )
        raise ValueError(message)
    scaled = Decimal(found[1].replace(",", "")).scaleb(currency.decimals, _EXACT)
    if scaled != int(scaled) or scaled > MAX_AMOUNT:
        message = f"must have at most {currency.decimals} decimals, and be an amount of the ledger"
        raise ValueError(message)
    return NamedAmount(int(scaled), currency.code, f"{found[1]} {currency.code}")


def _moment(value: object) -> datetime:
    return _beginning_and_form(value)[0]


def _last_moment(value: object) -> datetime:
    moment, form = _beginning_and_form(value)
    return datetime.combine(moment, time.max, UTC) if form == _DAY else moment + _REST_OF_SECOND


def _beginning_and_form(value: object) -> tuple[datetime, str]:
    text = str(value).strip().removesuffix("Z")
    for form in _FORMS:
        try:
            moment = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if moment >= _EARLIEST:
            return moment, form
        break
    message = "must be a time in UTC from 1970 on, such as 2026-01-31T12:00"
    raise ValueError(message)


Amount = Annotated[NamedAmount, BeforeValidator(_amount)]
"""An amount as the console writes it: `1,234.50 USD`."""

Moment = Annotated[datetime, BeforeValidator(_moment)]
"""A time in UTC, as a field for times sends it."""

LastMoment = Annotated[datetime, BeforeValidator(_last_moment)]
"""The end of a time in UTC: that of the second which a field for times sends, or of the day."""


class Filters(PageQuery):
    """The filters of a list, and which page of it; an empty field is no filter."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    limit: Annotated[int, Field(ge=1, le=100)] = PAGE_ROWS

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, values: Any) -> Any:  # noqa: ANN401 - what was sent
        if isinstance(values, dict):
            wrong = [name for name, value in values.items() if "\x00" in str(value)]
            if wrong:
                errors = [
                    InitErrorDetails(type=_NUL, loc=(name,), input=values[name]) for name in wrong
                ]
                raise ValidationError.from_exception_data(cls.__name__, errors)
            return {name: value for name, value in values.items() if value != ""}
        return values


class Sent(dict[str, str]):
    """The parameters of a request, for a form that shows them again; others are empty.

    A browser sends every field of a form. Those with nothing in them are left out: they select
    nothing, and a list is the whole one where none is sent.
    """

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return what a request has sent."""
        return cls({name: value for name, value in request.query_params.items() if value})

    def __missing__(self, _name: str) -> str:
        return ""
