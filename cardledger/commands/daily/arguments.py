"""Values of arguments, and what is shown of them; nothing heavy is imported."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from cardledger.config.errors import USAGE, CommandError
from cardledger.schema.ids import Id

_AMOUNT: Final = re.compile(r"([0-9]{1,40})(?:\.([0-9]{1,40}))?", re.ASCII)
_MAX_AMOUNT: Final = 2**63 - 1  # `ledger.core.money.MAX_AMOUNT`, in minor units.


def key_of(text: str, resource: str, option: str) -> Id:
    """Return the id in `text`: a UUID, alone or after `resource` and a colon.

    Raises: CommandError, a usage error that names `option`.
    """
    try:
        return Id.parse(text.removeprefix(f"{resource}:"))
    except ValueError:
        raise CommandError(
            f"{option} {printable(text)}: not an id; write {resource}:<uuid> or the UUID alone",
            code=USAGE,
        ) from None


def time_of(text: str, option: str) -> datetime:
    """Return the time in `text`, which is UTC unless it names an offset.

    Raises: CommandError, a usage error that names `option`.
    """
    try:
        moment = datetime.fromisoformat(text)
        # A time near the first or the last one has no equivalent in UTC.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option} {printable(text)}: not a time; write it like 2026-03-01T12:00:00Z",
            code=USAGE,
        ) from None


def amount_of(text: str, currency: str, decimals: int, option: str) -> int:
    """Return the amount in `text`, such as 12.34 for USD, in minor units: 1234.

    Raises: CommandError, a usage error that names `option`.
    """
    parts = _AMOUNT.fullmatch(text)
    if parts is None:
        raise CommandError(
            f"{option} {printable(text)}: not an amount; write digits, with a point before the"
            " decimals, like 12.34",
            code=USAGE,
        )
    whole, fraction = parts[1], parts[2] or ""
    if len(fraction) > decimals:
        raise CommandError(
            f"{option} {text}: {currency} has {decimals or 'no'} decimals", code=USAGE
        )
    amount = int(whole + fraction.ljust(decimals, "0"))
    if not 0 < amount <= _MAX_AMOUNT:
        raise CommandError(
            f"{option} {text}: must be more than 0, and at most {_MAX_AMOUNT} minor units",
            code=USAGE,
        )
    return amount


def printable(value: Any) -> str:  # noqa: ANN401 - anything that a cell shows
    """Return `value` as text without characters that a terminal obeys."""
    if value is None:
        return "-"
    return "".join(char if char.isprintable() else "?" for char in str(value))
