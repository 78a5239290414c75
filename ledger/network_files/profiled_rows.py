"""The file of a processor as rows of the canonical form, by a profile."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import BinaryIO, Final

from cardledger.ledger.file_profiles.profile import CREDIT, DEBIT, Where
from cardledger.ledger.network_files import csv_rows, fields
from cardledger.ledger.network_files.profile import Profile
from cardledger.ledger.network_files.records import COLUMNS, PLACE, Code, RefusedError
from cardledger.ledger.network_files.settlement_file import Rows
from cardledger.schema.wire.common import CURRENCIES
from cardledger.schema.wire.iso4217 import CODES

_WIDTH: Final = len(COLUMNS)
_OF_FILE: Final = ("file_id", "network", "settlement_date", "cycle")

Places = Mapping[str, int]


def rows(file: BinaryIO, profile: Profile) -> Rows:
    """Yield the rows of `file` as a file of the canonical form has them. Raises: RefusedError."""
    return _Reader(file, profile).rows()


class _Reader:
    """One file: where its fields are is known once its first row is read."""

    def __init__(self, file: BinaryIO, profile: Profile) -> None:
        self._profile = profile
        self._raw = csv_rows.rows(
            file, delimiter=profile.delimiter, quote=profile.quote, encoding=profile.encoding
        )
        self._names: Places = {}
        self._repeated: frozenset[str] = frozenset()
        self._width = 0  # Of each line; 0: any.
        self._currency = profile.constants.get("currency", "")

    def rows(self) -> Rows:
        profile = self._profile
        raw = self._raw_rows()
        columns = {name: self._place(where, name) for name, where in profile.columns.items()}
        is_total = profile.totals["record"]
        totals: Sequence[str] | None = None
        begun = "header" in profile.records
        number = 1
        for number, row in raw:
            record = self._record_of(row, number)
            if record == "line":
                line = self._line(row, columns, number)
                if not begun:
                    yield number, _header_of(line)
                begun = True
                yield number, line
            elif record == "header":
                yield number, self._header(row, number)
            if record == is_total == "trailer":
                yield number, self._trailer(row, number)
            elif record == is_total:
                totals = row
        if totals is not None:
            yield number, self._trailer(totals, number)

    def _raw_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Return the rows after the one that names the columns, if there is one."""
        first = next(self._raw, None)
        if first is None:
            raise RefusedError(Code.EMPTY_FILE, "the file is empty")
        if self._profile.names_columns:
            names = [name.strip() for name in first[1]]
            self._names = {name: place for place, name in enumerate(names)}
            self._repeated = frozenset(name for name in names if names.count(name) > 1)
            self._width = len(first[1])
            return self._raw
        return chain([first], self._raw)

    def _record_of(self, row: Sequence[str], number: int) -> str:
        """Return which record `row` is: header, line or trailer. Raises: RefusedError."""
        records = self._profile.records
        code = _at(row, self._place(records["column"], "record"), number)
        for name in ("header", "trailer"):
            if records.get(name) == code:
                return name
        if records.get("line", code) == code:
            if self._width not in {0, len(row)}:
                raise RefusedError(
                    Code.TRUNCATED,
                    f"the row has {len(row)} of {self._width} columns",
                    line=number,
                )
            return "line"
        fields.refuse_card_numbers(_only(record=code), number)
        raise RefusedError(
            Code.BAD_TYPE,
            f"{fields.shown(code)}: the profile has no such record",
            line=number,
            column="record",
        )

    def _place(self, where: Where, name: str) -> int:
        if isinstance(where, int):
            return where - 1
        if where not in self._names:
            raise RefusedError(
                Code.BAD_HEADER,
                f"the first row does not name the column {where!a} of the profile",
                line=1,
                column=name,
            )
        if where in self._repeated:
            raise RefusedError(
                Code.BAD_HEADER,
                f"the first row names the column {where!a} of the profile more than once",
                line=1,
                column=name,
            )
        return self._names[where]

    def _header(self, row: Sequence[str], number: int) -> list[str]:
        constants = self._profile.constants
        found = {name: constants.get(name, "") for name in _OF_FILE}
        for name, where in self._profile.header.items():
            found[name] = _at(row, self._place(where, name), number).strip()
        found["settlement_date"] = self._date("settlement_date", found["settlement_date"], number)
        return _only(record="H", **found)

    def _line(self, row: Sequence[str], columns: Places, number: int) -> list[str]:
        found = [""] * _WIDTH
        found[0] = "D"
        for name, value in self._profile.constants.items():
            found[PLACE[name]] = value
        for name, place in columns.items():
            found[PLACE[name]] = _at(row, place, number).strip()
        # Before a message can quote one.
        fields.refuse_card_numbers(found, number)
        for name in ("settlement_date", "transaction_date"):
            if found[PLACE[name]]:
                found[PLACE[name]] = self._date(name, found[PLACE[name]], number)
        for name in ("currency", "merchant_currency"):
            found[PLACE[name]] = self._profile.currencies.get(
                found[PLACE[name]], found[PLACE[name]]
            )
        side, digits = self._side(row, found[PLACE["amount"]], number)
        currency = found[PLACE["currency"]]
        found[PLACE["amount"]] = self._minor(digits, currency, number, "amount")
        if found[PLACE["merchant_amount"]]:
            found[PLACE["merchant_amount"]] = self._minor(
                found[PLACE["merchant_amount"]],
                found[PLACE["merchant_currency"]],
                number,
                "merchant_amount",
            )
        found[PLACE["interchange"]] = self._plain(found[PLACE["interchange"]], number)
        found[PLACE["type"]] = self._type(found[PLACE["type"]], side, number)
        return found

    def _trailer(self, row: Sequence[str], number: int) -> list[str]:
        totals = self._profile.totals
        found = {
            name: _at(row, self._place(where, name), number).strip()
            for name, where in totals.items()
            if name != "record"
        }
        # Before a message can quote one.
        fields.refuse_card_numbers(
            _only(
                currency=found.get("currency", ""),
                type=found.get("side", ""),
                amount=self._simple(found["amount"]),
                interchange=self._simple(found.get("interchange", "")),
                count=found["count"],
            ),
            number,
            is_total=True,
        )
        currency = found.pop("currency", self._currency)
        currency = self._profile.currencies.get(currency, currency)
        text = found["amount"]
        side, digits = self._side_of(found.pop("side", None), text, number)
        sign = "-" if side == CREDIT else ""
        amount = sign + self._minor(digits, currency, number, "amount")
        interchange = self._plain(found.get("interchange", ""), number)
        return _only(
            record="T",
            currency=currency,
            count=found["count"].lstrip("0") or "0",
            amount=amount,
            interchange=interchange,
        )

    def _side(self, row: Sequence[str], amount: str, number: int) -> tuple[str, str]:
        where = self._profile.sides.get("column")
        if where is None:
            return self._side_of(None, amount, number)
        return self._side_of(_at(row, self._place(where, "type"), number).strip(), amount, number)

    def _side_of(self, code: str | None, amount: str, number: int) -> tuple[str, str]:
        """Return the side of `amount`, D or C, and the amount without a sign."""
        sides = self._profile.sides
        if "sign" in sides:
            is_minus = amount.startswith("-")
            minus = str(sides["sign"])
            side = minus if is_minus else (CREDIT if minus == DEBIT else DEBIT)
            return side, amount.removeprefix("-" if is_minus else "+")
        if code is None:
            is_minus = amount.startswith("-")
            return (CREDIT if is_minus else DEBIT), amount.removeprefix("-")
        for side, name in ((DEBIT, "debit"), (CREDIT, "credit")):
            if code == sides.get(name):
                return side, amount
        fields.refuse_card_numbers(_only(type=code), number)
        raise RefusedError(
            Code.BAD_TYPE,
            f"side {fields.shown(code)}: must be {sides.get('debit')} or {sides.get('credit')}",
            line=number,
            column="type",
        )

    def _type(self, code: str, side: str, number: int) -> str:
        types = self._profile.types
        if not types:
            return code
        found = types.get(f"{code}/{side}", types.get(code))
        if found is None:
            raise RefusedError(
                Code.BAD_TYPE,
                f"{fields.shown(code)} on side {side}: the profile has no type for it",
                line=number,
                column="type",
            )
        return found

    def _plain(self, text: str, number: int) -> str:
        """Return an interchange of the file with a point and without grouping.

        Raises: RefusedError.
        """
        amounts = self._profile.amounts
        decimal = amounts.get("decimal", ".")
        sign = text[:1] if text[:1] in {"+", "-"} else ""
        whole, point, fraction = text.removeprefix(sign).partition(decimal)
        digits = ungrouped(whole, amounts.get("grouping"))
        if digits is None or (decimal != "." and "." in digits + fraction):
            raise RefusedError(
                Code.BAD_AMOUNT,
                f"{fields.shown(text)}: must be a decimal with the signs of the profile",
                line=number,
                column="interchange",
            )
        return sign + digits + (point and ".") + fraction

    def _simple(self, text: str) -> str:
        amounts = self._profile.amounts
        for sign, instead in ((amounts.get("grouping"), ""), (amounts.get("decimal"), ".")):
            text = text.replace(sign, instead) if sign else text
        return text

    def _minor(self, text: str, currency: str, number: int, column: str) -> str:
        """Return `text` in minor units of `currency`; what is no amount is returned as it is."""
        if self._profile.amounts.get("unit", "minor") == "minor":
            return text
        if currency not in CODES or currency not in CURRENCIES:
            raise RefusedError(
                Code.UNKNOWN_CURRENCY,
                f"{fields.shown(currency)}: must be a currency whose decimals are known",
                line=number,
                column="currency",
            )
        amounts = self._profile.amounts
        decimals = CURRENCIES[currency].decimals
        whole, point, fraction = text.partition(amounts.get("decimal", "."))
        grouping = amounts.get("grouping")
        digits = ungrouped(whole, grouping)
        fraction = fraction.ljust(decimals, "0")
        is_right = (
            digits is not None
            and len(fraction) == decimals
            and (not point or decimals > 0)
            and (digits + fraction).isascii()
            and (digits + fraction).isdigit()
        )
        if not is_right:
            raise RefusedError(
                Code.BAD_AMOUNT,
                f"{fields.shown(text)}: must be an amount in {currency} as the profile says:"
                f" {decimals} decimals",
                line=number,
                column=column,
            )
        assert digits is not None
        return (digits + fraction).lstrip("0") or "0"

    def _date(self, name: str, text: str, number: int) -> str:
        form = self._profile.dates.get(name)
        if form is None or not text:
            return text
        day = iso_date(text, form)
        if day is None:
            fields.refuse_card_numbers(_only(**{name: text}), number)
            raise RefusedError(
                Code.BAD_DATE,
                f"{fields.shown(text)}: must be a date of the form {form}",
                line=number,
                column=name,
            )
        return day


def ungrouped(whole: str, grouping: str | None) -> str | None:
    """Return the digits of `whole` without grouping signs; None if they are not at thousands."""
    if grouping is None or grouping not in whole:
        return whole
    first, *others = whole.split(grouping)
    is_right = 0 < len(first) < 4 and all(len(part) == 3 for part in others)  # noqa: PLR2004
    return first + "".join(others) if is_right else None


@lru_cache(maxsize=4096)
def iso_date(text: str, form: str) -> str | None:
    """Return the date in `text` as YYYY-MM-DD; None: it is not of this form."""
    try:
        # A calendar date has no time zone.
        day = datetime.strptime(text, form).date()  # noqa: DTZ007
    except ValueError:
        return None
    # `strptime` takes one digit for two and spaces for none.
    return day.isoformat() if day.strftime(form) == text else None


def _header_of(line: Sequence[str]) -> list[str]:
    return _only(record="H", **{name: line[PLACE[name]] for name in _OF_FILE})


def _only(**values: str) -> list[str]:
    found = [""] * _WIDTH
    for name, value in values.items():
        found[PLACE[name]] = value
    return found


def _at(row: Sequence[str], place: int, number: int) -> str:
    if place >= len(row):
        raise RefusedError(
            Code.TRUNCATED,
            f"the row has {len(row)} columns: the profile reads column {place + 1}",
            line=number,
        )
    return row[place]
