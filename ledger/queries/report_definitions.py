"""The reports of finance: their columns, where each comes from, and what it can be limited to.

Each reads the PostgreSQL schema `finance` and nothing else, so that the role of a person in finance
is enough. A column keeps its name, its meaning and its place; new ones are added on the right.
Source: docs/decisions/0065-exports.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

AGE_DAYS: Final = (0, 2, 4, 8, 15, 31)
"""The first day of each class of ages; the last has no end."""

AGES: Final = (
    *(f"{first}-{following - 1}" for first, following in pairwise(AGE_DAYS)),
    f"over {AGE_DAYS[-1] - 1}",
)
"""The names of the classes of ages, in days."""


class Kind(StrEnum):
    """What a column has; each format writes each kind in one way."""

    TEXT = "TEXT"
    ID = "ID"
    DATE = "DATE"
    TIME = "TIME"
    COUNT = "COUNT"
    MINOR = "MINOR"
    """An amount in minor units of the currency in the column `currency` of the same row."""
    TOTAL = "TOTAL"
    """A sum of such amounts, which can have more than 64 bits."""
    FRACTION = "FRACTION"
    """The same with decimals: an amount that is rounded when it is booked."""
    MAJOR = "MAJOR"
    """The amount of another column in major units."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a report."""

    name: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: the rows of `source`, an SQL expression that may use parameters.

    `order` sorts them; it calls the source `r`. `conditions` are by the parameter that each is
    about: a row is in the report if it meets those whose parameter has a value.
    """

    name: str
    columns: tuple[Column, ...]
    source: str
    order: str
    conditions: Mapping[str, str] = field(default_factory=dict)


def _columns(names: str) -> tuple[Column, ...]:
    """Return the columns in `names`: each by name, with its kind behind a colon unless text."""
    parted = [name.partition(":") for name in names.split()]
    return tuple(Column(name, Kind(kind.upper() or Kind.TEXT)) for name, _, kind in parted)


_PLATFORM: Final = {"platform": "platform_id = %(platform)s"}
_CURRENCY: Final = {"currency": "currency = %(currency)s"}
_POSTED: Final = {
    "first": "posted_on >= %(first)s",
    "on": "posted_on <= %(on)s",
    "known": "recorded_at <= %(known)s",
}

TRIAL_BALANCE: Final = Report(
    name="trial-balance",
    columns=_columns("account class currency debits:total credits:total net:total"),
    source="finance.trial_balance(%(on)s, %(known)s, %(platform)s)",
    order="r.currency, r.account",
    conditions=_CURRENCY,
)

JOURNAL: Final = Report(
    name="journal",
    columns=_columns("""
        entry_id:id platform_id:id posted_on:date occurred_at:time recorded_at:time event
        debit_account_id:id debit_kind debit_class credit_account_id:id credit_kind credit_class
        amount:minor amount_decimal:major currency customer_id:id card_id:id merchant source
        reference subject_id:id sequence:count line:count late_from:date
    """),
    source="finance.journal",
    order="r.posted_on, r.recorded_at, r.subject_id, r.sequence, r.line",
    conditions=_POSTED
    | _PLATFORM
    | _CURRENCY
    | {"account": "%(account)s IN (debit_account_id, credit_account_id)"},
)

STATEMENT: Final = Report(
    name="statement",
    columns=_columns("""
        posted_on:date recorded_at:time entry_id:id event side amount:minor balance:total currency
    """),
    source="""(
        SELECT s.*, a.currency, row_number() OVER () AS place
        FROM finance.statement(%(account)s, %(first)s, %(on)s, %(known)s) s, finance.accounts a
        WHERE a.account_id = %(account)s
    )""",
    order="r.place",
)

NETWORK_DAYS: Final = Report(
    name="network-days",
    columns=_columns("""
        settlement_date:date network cycle currency platform_id:id presentments:total credits:total
        reversals:total fees:total interchange:fraction net:total paid:total open:total
    """),
    source="finance.network_days",
    order="r.settlement_date, r.network, r.cycle, r.currency, r.platform_id",
    conditions=_PLATFORM
    | _CURRENCY
    | {"first": "settlement_date >= %(first)s", "on": "settlement_date <= %(on)s"},
)


_AGE: Final = "CASE {} ELSE '{}' END".format(
    " ".join(
        f"WHEN age_days < {first} THEN '{name}'"
        for first, name in zip(AGE_DAYS[1:], AGES, strict=False)
    ),
    AGES[-1],
)
_OLDEST_FIRST: Final = "r.currency, r.age_days DESC, r.card_transaction_id"

HOLDS: Final = Report(
    name="holds",
    columns=_columns("""
        card_transaction_id:id platform_id:id customer_id:id card_id:id account_id:id merchant
        currency held:minor authorized_at:time recorded_at:time expires_at:time age_days:count age
    """),
    source=f"(SELECT *, {_AGE} AS age FROM finance.open_holds(%(on)s, %(known)s))",
    order=_OLDEST_FIRST,
    conditions=_PLATFORM | _CURRENCY,
)

RECEIVABLES: Final = Report(
    name="receivables",
    columns=_columns("""
        card_transaction_id:id platform_id:id customer_id:id card_id:id account_id:id merchant
        currency owed:minor owed_since:time authorized_at:time age_days:count age
    """),
    source=f"(SELECT *, {_AGE} AS age FROM finance.receivables(%(on)s, %(known)s))",
    order=_OLDEST_FIRST,
    conditions=_PLATFORM | _CURRENCY,
)

UNAPPLIED: Final = Report(
    name="unapplied",
    columns=_columns("""
        message_id:id state platform_id:id source reference type amount:minor currency reason
        recorded_at:time age_days:count suspense_id:id
    """),
    source="finance.unapplied",
    order="r.recorded_at, r.message_id",
    conditions=_PLATFORM | _CURRENCY,
)

BREAKS: Final = Report(
    name="breaks",
    columns=_columns("""
        break_id:id platform_id:id network settlement_date:date cycle file_id line:count kind cause
        state reference issuer_transaction_token card_transaction_id:id currency file_amount:minor
        ledger_amount:minor difference:total rule
        age_days:count age owner opened_at:time closed_at:time closed_by
    """),
    source=f"(SELECT *, {_AGE} AS age FROM finance.breaks)",
    order="r.settlement_date, r.network, r.file_id, r.line, r.break_id",
    conditions=_PLATFORM
    | _CURRENCY
    | {"first": "settlement_date >= %(first)s", "on": "settlement_date <= %(on)s"},
)

EXPLAIN_COLUMNS: Final = _columns("""
    card_transaction_id:id sequence:count line:count debit_kind credit_kind amount:minor currency
    event explanation source reference occurred_at:time recorded_at:time
""")
"""The columns of the report `explain`, whose rows are made of the events of a card transaction."""

REPORTS: Final[Mapping[str, Report]] = {
    report.name: report
    for report in (
        TRIAL_BALANCE,
        JOURNAL,
        STATEMENT,
        NETWORK_DAYS,
        HOLDS,
        RECEIVABLES,
        UNAPPLIED,
        BREAKS,
    )
}
"""Every report that is a query, by name."""
