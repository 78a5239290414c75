"""The CSV of a bank as rows of the canonical form, by a profile."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import BinaryIO, Final

from cardledger.ledger.bank_statements.profile import Profile
from cardledger.ledger.bank_statements.records import COLUMNS, PLACE
from cardledger.ledger.bank_statements.statement import Rows
from cardledger.ledger.file_profiles.profile import Where
from cardledger.ledger.network_files import card_numbers, csv_rows, fields
from cardledger.ledger.network_files.profiled_rows import iso_date, ungrouped
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.schema.wire.common import CURRENCIES

_AMOUNT: Final = PLACE["amount"]
_CURRENCY: Final = PLACE["currency"]


def rows(file: BinaryIO, profile: Profile) -> Rows:
    """Yield the rows of `file` as the canonical form has them. Raises: RefusedError."""
    return _Reader(file, profile).rows()


class _Reader:
    """One file: where its fields are is known once its first row is read."""

    def __init__(self, file: BinaryIO, profile: Profile) -> None:
        self._profile: Final = profile
        self._raw: Final = csv_rows.rows(
            file, delimiter=profile.delimiter, quote=profile.quote, encoding=profile.encoding
        )
        self._names: Mapping[str, int] = {}
        self._before: int | None = None  # The balance after the last line.

    def rows(self) -> Rows:
        raw = self._raw_rows()
        number = 1
        last: list[str] | None = None
        for number, row in raw:
            record = self._record_of(row, number)
            found = self._fields(row, number)
            if record is not None:
                balance = found[_AMOUNT]
                found = self._only(found, **{record: balance})
            elif "balance" in self._profile.columns:
                self._add_balance(found, row, number)
                last = found
            yield number, found
        if last is not None:
            yield number, self._only(last, closing=str(self._before))

    def _raw_rows(self) -> Iterator[tuple[int, list[str]]]:
        first = next(self._raw, None)
        if first is None:
            raise RefusedError(Code.EMPTY_FILE, "the file is empty")
        if not self._profile.names_columns:
            return chain([first], self._raw)
        names = [name.strip() for name in first[1]]
        self._names = {name: place for place, name in enumerate(names)}
        wanted = [
            *self._profile.columns.values(),
            *(table["column"] for table in (self._profile.records, self._profile.sides) if table),
        ]
        for where in wanted:
            if isinstance(where, str) and names.count(where) != 1:
                raise RefusedError(
                    Code.BAD_HEADER,
                    f"the first row names the column {where!a} of the profile"
                    f" {names.count(where)} times",
                    line=1,
                )
        return self._raw

    def _at(self, row: Sequence[str], where: Where, number: int) -> str:
        place = where - 1 if isinstance(where, int) else self._names[where]
        if place >= len(row):
            raise RefusedError(
                Code.TRUNCATED,
                f"the row has {len(row)} columns: the profile reads column {place + 1}",
                line=number,
            )
        return row[place].strip()

    def _record_of(self, row: Sequence[str], number: int) -> str | None:
        records = self._profile.records
        if not records:
            return None
        code = self._at(row, records["column"], number)
        return next((name for name in ("opening", "closing") if records[name] == code), None)

    def _fields(self, row: Sequence[str], number: int) -> list[str]:
        profile = self._profile
        found = [""] * len(COLUMNS)
        for name, value in profile.constants.items():
            found[PLACE[name]] = value
        for name, where in profile.columns.items():
            if name != "balance":
                found[PLACE[name]] = self._at(row, where, number)
        _refuse_card_numbers(found, number)
        self._set_dates(found, number)
        found[_AMOUNT] = self._minor(found[_AMOUNT], found[_CURRENCY], number, "amount")
        if profile.sides:
            found[_AMOUNT] = self._signed(row, found[_AMOUNT], number)
        for name in ("opening", "closing"):
            if found[PLACE[name]]:
                found[PLACE[name]] = self._minor(found[PLACE[name]], found[_CURRENCY], number, name)
        return found

    def _set_dates(self, found: list[str], number: int) -> None:
        for name, form in self._profile.dates.items():
            text = found[PLACE[name]]
            if text:
                day = iso_date(text, form)
                if day is None:
                    raise RefusedError(
                        Code.BAD_DATE,
                        f"{fields.shown(text)}: must be a date of the form {form}",
                        line=number,
                        column=name,
                    )
                found[PLACE[name]] = day

    def _signed(self, row: Sequence[str], amount: str, number: int) -> str:
        sides = self._profile.sides
        side = self._at(row, sides["column"], number)
        if side == sides["credit"]:
            return amount
        if side == sides["debit"]:
            return amount.removeprefix("-") if amount.startswith("-") else f"-{amount}"
        raise RefusedError(
            Code.BAD_TYPE,
            f"the side must be {sides['debit']} or {sides['credit']}",
            line=number,
            column="amount",
        )

    def _add_balance(self, found: list[str], row: Sequence[str], number: int) -> None:
        """Check that the balance of the row is that before it and its amount."""
        text = self._minor(
            self._at(row, self._profile.columns["balance"], number),
            found[_CURRENCY],
            number,
            "closing",
        )
        try:
            balance, amount = int(text), int(found[_AMOUNT])
        except ValueError:
            raise RefusedError(
                Code.BAD_AMOUNT, "must be an amount as the profile says", line=number,
                column="closing",
            ) from None  # fmt: skip
        if self._before is None:
            found[PLACE["opening"]] = str(balance - amount)
        elif self._before + amount != balance:
            raise RefusedError(
                Code.CONTROL_TOTAL,
                f"the balance before, {self._before}, and the amount do not give that of the row",
                line=number,
                column="closing",
            )
        self._before = balance

    def _only(self, row: Sequence[str], **values: str) -> list[str]:
        found = [""] * len(COLUMNS)
        for name in ("currency", "account", "statement_id"):
            found[PLACE[name]] = row[PLACE[name]]
        for name, value in values.items():
            found[PLACE[name]] = value
        return found

    def _minor(self, text: str, currency: str, number: int, column: str) -> str:
        """Return `text` in minor units of `currency`, with its sign. Raises: RefusedError."""
        amounts = self._profile.amounts
        if amounts.get("unit", "minor") == "minor":
            return text
        if currency not in CURRENCIES:
            raise RefusedError(
                Code.UNKNOWN_CURRENCY,
                f"{fields.shown(currency)}: must be a currency whose decimals are known",
                line=number,
                column="currency",
            )
        decimals = CURRENCIES[currency].decimals
        sign = text[:1] if text[:1] in {"+", "-"} else ""
        whole, point, fraction = text.removeprefix(sign).partition(amounts.get("decimal", "."))
        digits = ungrouped(whole, amounts.get("grouping"))
        fraction = fraction.ljust(decimals, "0")
        if (
            not digits
            or len(fraction) != decimals
            or (point and decimals == 0)
            or not (digits + fraction).isascii()
            or not (digits + fraction).isdigit()
        ):
            raise RefusedError(
                Code.BAD_AMOUNT,
                f"must be an amount in {currency} as the profile says: {decimals} decimals",
                line=number,
                column=column,
            )
        return sign + ((digits + fraction).lstrip("0") or "0")


def _refuse_card_numbers(found: Sequence[str], number: int) -> None:
    """Raise RefusedError before a message can quote one."""
    for name in ("description", "booking_date", "value_date", "amount", "currency"):
        if card_numbers.found_in(found[PLACE[name]]):
            raise RefusedError(
                Code.PAN_FOUND,
                "the field has a card number: files with card numbers are not kept",
                line=number,
                column=name,
            )
