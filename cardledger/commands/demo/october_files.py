"""The files of October 2026 for `demo --finance`: those of the network, and two of the bank.

They say what the events say, but for what is planted in them: twelve breaks.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from cardledger.commands.demo import october
from cardledger.commands.demo.october import DAY, NETWORK, Cards, Event
from cardledger.ledger.network_files.records import COLUMNS, SIGNS

Row = dict[str, str]

FIRST_FILE: Final = date(2026, 10, 2)
LAST_FILE: Final = october.LATE_SETTLEMENT_DATE

PLANTED: Final = {
    "AMOUNT_DIFFERS": 1,
    "BANK_DIFFERS": 1,
    "BANK_ONLY": 1,
    "CURRENCY_DIFFERS": 1,
    "DUPLICATE_LINE": 1,
    "IN_FILE_ONLY": 2,
    "IN_LEDGER_ONLY": 2,
    "NOT_PAID": 1,
    "TIMING": 1,
    "TYPE_DIFFERS": 1,
}
"""How many breaks of each kind there are; a line in the file of another day is two of them."""

LOST: Final = "parking"
"""The purchase whose event the processor has lost."""

_TYPES: Final = {"CLEARING": "PRESENTMENT", "RETURN": "CREDIT"}
_MORE: Final = 10  # Minor units that the network takes for a dinner.
_MORE_ON: Final = date(2026, 10, 6)
_TWICE_ON: Final = date(2026, 10, 8)
_LEFT_OUT_ON: Final = date(2026, 10, 9)  # It is in the file of the next day.
_LOST_ON: Final = date(2026, 10, 14)
_OTHER_TYPE_ON: Final = date(2026, 10, 15)
_MISSING_ON: Final = date(2026, 10, 19)
_OTHER_CURRENCY_ON: Final = date(2026, 10, 21)
_FEE: Final = 315
_LESS_ON: Final = date(2026, 10, 22)
_LESS: Final = 500
_UNPAID_ON: Final = date(2026, 10, 27)
_BANK_HOLIDAY: Final = date(2026, 10, 12)
_CHARGES: Final = 1_250
_OPENING: Final = 1_000_000
_REST_DAY: Final = date(2026, 11, 3)

_BANK_COLUMNS: Final = (
    "booking_date",
    "value_date",
    "amount",
    "currency",
    "bank_reference",
    "description",
    "opening",
    "closing",
)


def network_files(cards: Cards) -> dict[str, str]:
    """Return the files of the network by their names, one for each business day."""
    return {f"visa-{day}.csv": _file(day, rows) for day, rows in _days(cards).items()}


def statements(cards: Cards) -> dict[str, str]:
    """Return the statements of the bank: of October, and of the first days of November."""
    due = {day: _due(rows) for day, rows in _days(cards).items()}
    paid: dict[date, int] = {}
    for day, amount in due.items():
        if day != _UNPAID_ON:
            on = _paid_on(day)
            paid[on] = paid.get(on, 0) + amount - (_LESS if day == _LESS_ON else 0)
    lines = [(day, -amount, "VISA SETTLEMENT") for day, amount in paid.items()]
    lines.insert(-1, (october.LATE_SETTLEMENT_DATE, -_CHARGES, "ACCOUNT FEE OCTOBER"))
    rest = [
        (_REST_DAY, -due[_UNPAID_ON], f"VISA SETTLEMENT {_UNPAID_ON}"),
        (_REST_DAY, -_LESS, f"VISA SETTLEMENT {_LESS_ON} REST"),
    ]
    closing = _OPENING + sum(amount for _, amount, _ in lines)
    return {
        "bank-october.csv": _statement(lines, _OPENING),
        "bank-november.csv": _statement(rest, closing),
    }


def _days(cards: Cards) -> dict[date, list[Row]]:
    """Return the lines of the file of each business day."""
    found: dict[date, list[Row]] = {day: [] for day in october.business_days(FIRST_FILE, LAST_FILE)}
    lost = october.clearing(cards.grace, LOST, 1_800, _LOST_ON, "CITY PARKING")
    for event in (*october.events(cards), october.corrected(cards), october.late_fact(cards), lost):
        day = date.fromisoformat(event.get("settlement", {}).get("settlementDate", "9999-12-31"))
        if day in found:
            _plant(found, day, event)
    for day, rows in found.items():
        if day.isoweekday() == 5:  # noqa: PLR2004 - Friday
            rows.append(_fee(day))
    return found


def _plant(found: Mapping[date, list[Row]], day: date, event: Event) -> None:
    """Add the line of `event` to the file of `day`, with what is planted there."""
    line = _line(event)
    is_groceries = event["issuerTransactionToken"].startswith("groceries")
    if day == _MORE_ON and not is_groceries:
        line["amount"] = str(event["amount"] + _MORE)
    elif day == _OTHER_TYPE_ON and event["type"] == "RETURN":
        line["type"] = "PRESENTMENT_REVERSAL"
    elif day == _OTHER_CURRENCY_ON and is_groceries:
        line |= {"currency": "EUR", "interchange": ""}
    elif day == _MISSING_ON and is_groceries:
        return
    elif day == _LEFT_OUT_ON and is_groceries:
        found[october.business_days(day + DAY, day + 7 * DAY)[0]].append(line)
        return
    found[day].append(line)
    if day == _TWICE_ON and is_groceries:
        found[day].append(line)


def _line(event: Event) -> Row:
    return {
        "record": "D",
        "type": _TYPES[event["type"]],
        "reference": event["reference"],
        "token": event["issuerTransactionToken"],
        "card_id": event["cardId"],
        "amount": str(event["amount"]),
        "currency": event["currency"],
        "interchange": event["settlement"].get("interchange", ""),
        "merchant": event["merchant"]["descriptor"],
        "mcc": event["merchant"]["mcc"],
    }


def _fee(day: date) -> Row:
    return {
        "record": "D",
        "type": "FEE",
        "reference": f"fee-{day}",
        "amount": str(_FEE),
        "currency": "USD",
    }


def _totals(rows: Sequence[Row]) -> dict[str, tuple[int, int, Decimal]]:
    """Return number, amount and interchange of each currency."""
    found: dict[str, tuple[int, int, Decimal]] = {}
    for row in rows:
        count, amount, interchange = found.get(row["currency"], (0, 0, Decimal(0)))
        found[row["currency"]] = (
            count + 1,
            amount + SIGNS[row["type"]] * int(row["amount"]),
            interchange + Decimal(row.get("interchange") or 0),
        )
    return found


def _due(rows: Sequence[Row]) -> int:
    """Return what is due to the network in USD: the total less interchange, in minor units."""
    _, amount, interchange = _totals(rows)["USD"]
    return amount - int((interchange * 100).quantize(Decimal(1), ROUND_HALF_EVEN))


def _file(day: date, rows: Sequence[Row]) -> str:
    head = {
        "record": "H",
        "file_id": f"VISA-{day:%Y%m%d}",
        "network": NETWORK,
        "settlement_date": str(day),
    }
    totals = [
        {
            "record": "T",
            "currency": currency,
            "count": str(count),
            "amount": str(amount),
            "interchange": str(interchange),
        }
        for currency, (count, amount, interchange) in _totals(rows).items()
    ]
    return _csv(COLUMNS, [head, *rows, *totals])


def _statement(lines: Sequence[tuple[date, int, str]], opening: int) -> str:
    rows: list[dict[str, Any]] = [
        {
            "booking_date": day,
            "amount": amount,
            "currency": "USD",
            "bank_reference": f"BK-{day:%m%d}-{place}",
            "description": text,
        }
        for place, (day, amount, text) in enumerate(lines, start=1)
    ]
    rows[0]["opening"] = opening
    rows[-1]["closing"] = opening + sum(amount for _, amount, _ in lines)
    return _csv(_BANK_COLUMNS, rows)


def _paid_on(day: date) -> date:
    """Return the next day on which the bank is open."""
    return next(
        each for each in october.business_days(day + DAY, day + 7 * DAY) if each != _BANK_HOLIDAY
    )


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
