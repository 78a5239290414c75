"""What people do with adjustments: prepare, approve, reject and list them.

Source: docs/decisions/0069-adjustments.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from psycopg import errors

from cardledger.config.errors import USAGE, CommandError
from cardledger.install.acting import Session
from cardledger.schema.ids import Id

APPROVED: Final = "APPROVED"
BOOKED: Final = "BOOKED"

POLL_S: Final = 0.1
"""Between two looks whether an adjustment is booked."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A row of the view `adjustments`; amounts are minor units."""

    id: Id
    platform_id: Id
    kind: str
    state: str
    from_kind: str | None
    to_kind: str | None
    amount: int
    currency: str
    decimals: int
    card_transaction_id: Id | None
    suspense_id: Id | None
    reason: str
    prepared_by: str
    prepared_at: datetime
    decided_by: str | None
    decided_at: datetime | None
    booked_at: datetime | None
    refusal: str | None
    break_id: Id | None
    reverses_id: Id | None


@dataclass(frozen=True, slots=True)
class Debt:
    """What a card transaction owes now, in minor units of its currency."""

    currency: str
    decimals: int
    owed: int


def decimals_of(session: Session, currency: str) -> int:
    """Return how many decimals amounts of `currency` have.

    Raises: CommandError when the books have no such currency.
    """
    rows = session.rows("SELECT code, decimals FROM {finance}.currencies ORDER BY code")
    decimals: dict[str, int] = dict(rows)
    if currency not in decimals:
        raise CommandError(
            f"--currency {currency!a}: not a currency of the books; they are {', '.join(decimals)}",
            code=USAGE,
        )
    return decimals[currency]


def platform_with(session: Session, account: str, currency: str) -> Id:
    """Return the only platform that has `account` in `currency`.

    Raises: CommandError when there are several, or none.
    """
    rows = session.rows(
        "SELECT DISTINCT platform_id FROM {finance}.accounts WHERE kind = %s AND currency = %s"
        " AND customer_id IS NULL LIMIT 4",
        account,
        currency,
    )
    if not rows:
        raise CommandError(f"no platform has an account {account!a} in {currency}")
    if len(rows) > 1:
        some = ", ".join(str(key) for (key,) in rows[:3])
        raise CommandError(
            f"several platforms have an account {account} in {currency}: add --platform"
            f" ({some}, ...)",
            code=USAGE,
        )
    found: Id = rows[0][0]
    return found


def debt_of(session: Session, card_transaction: Id) -> Debt:
    """Return what a card transaction owes.

    Raises: CommandError when there is no such card transaction.
    """
    rows = session.rows(
        "SELECT t.currency, c.decimals, t.owed FROM {finance}.card_transactions t"
        " JOIN {finance}.currencies c ON c.code = t.currency WHERE t.card_transaction_id = %s",
        card_transaction,
    )
    if not rows:
        raise CommandError(f"there is no card transaction {card_transaction}")
    return Debt(*rows[0])


def prepare_move(  # noqa: PLR0913 - what a move is, by name
    session: Session,
    platform: Id,
    *,
    from_account: str,
    to_account: str,
    amount: int,
    currency: str,
    reason: str,
    break_id: Id | None = None,
) -> Id:
    """Prepare to debit `from_account` and to credit `to_account`; return the adjustment.

    `break_id`: the break of the bank line that the move books.
    """
    move = (platform, from_account, to_account, amount, currency, reason)
    if break_id is None:
        return _prepared(session, "prepare_move(%s, %s, %s, %s, %s, %s)", *move)
    return _prepared(session, "prepare_bank_move(%s, %s, %s, %s, %s, %s, %s)", *move, break_id)


def prepare_reversal(session: Session, key: Id, reason: str) -> Id:
    """Prepare to take back the move `key` of the bank without a line; return the adjustment."""
    return _prepared(session, "prepare_reversal(%s, %s)", key, reason)


def prepare_write_off(session: Session, card_transaction: Id, amount: int, reason: str) -> Id:
    """Prepare to give up `amount` of what a card transaction owes; return the adjustment."""
    return _prepared(session, "prepare_write_off(%s, %s, %s)", card_transaction, amount, reason)


def prepare_suspense_resolution(session: Session, item: Id, reason: str) -> Id:
    """Prepare to take an item of the suspense account back; return the adjustment."""
    return _prepared(session, "prepare_suspense_resolution(%s, %s)", item, reason)


def _prepared(session: Session, call: str, *values: object) -> Id:
    [(key,)] = session.rows(f"SELECT {{finance}}.{call}", *values)
    found: Id = key
    return found


def approve(session: Session, key: Id) -> str:
    """Approve the adjustment `key`; return its state.

    Raises: CommandError when there is none, or the person has prepared it.
    """
    return _decided(session, key, "approve_adjustment(%s)", key)


def reject(session: Session, key: Id, reason: str) -> str:
    """Reject the adjustment `key`; return its state.

    Raises: as `approve`.
    """
    return _decided(session, key, "reject_adjustment(%s, %s)", key, reason)


def _decided(session: Session, key: Id, call: str, *values: object) -> str:
    try:
        [(state,)] = session.rows(f"SELECT {{finance}}.{call}", *values)
    except errors.CheckViolation as error:
        if error.diag.constraint_name != "adjustments_two_people_check":
            raise
        raise CommandError(
            f"adjustment {key} was prepared by this person: another one has to approve or reject it"
        ) from None
    if state is None:
        raise CommandError(f"there is no adjustment {key}")
    decided: str = state
    return decided


_FIND: Final = """
    SELECT a.adjustment_id, a.platform_id, a.kind, a.state, a.from_kind, a.to_kind, a.amount,
        a.currency, c.decimals, a.card_transaction_id, a.suspense_id, a.reason, a.prepared_by,
        a.prepared_at, a.decided_by, a.decided_at, a.booked_at, a.refusal, a.break_id,
        a.reverses_id
    FROM {{finance}}.adjustments a JOIN {{finance}}.currencies c ON c.code = a.currency
    WHERE {} ORDER BY a.prepared_at DESC, a.adjustment_id DESC LIMIT %s
"""


def find(session: Session, key: Id) -> Adjustment:
    """Return the adjustment `key`.

    Raises: CommandError when there is none.
    """
    rows = session.rows(_FIND.format("a.adjustment_id = %s"), key, 1)
    if not rows:
        raise CommandError(f"there is no adjustment {key}")
    return Adjustment(*rows[0])


def listed(session: Session, state: str | None, limit: int) -> list[Adjustment]:
    """Return adjustments, the newest first, in `state` if it is given."""
    condition = "coalesce(a.state = %s, true)"
    return [Adjustment(*row) for row in session.rows(_FIND.format(condition), state, limit)]


def wait_until_booked(
    session: Session, key: Id, *, limit_s: float, pause: Callable[[float], object]
) -> Adjustment:
    """Return the adjustment `key` once it is booked or refused, or as it is after `limit_s`."""
    deadline = monotonic() + limit_s
    while (found := find(session, key)).state == APPROVED and monotonic() < deadline:
        pause(POLL_S)
    return found
