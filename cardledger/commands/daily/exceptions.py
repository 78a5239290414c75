"""`cardledger exceptions`: card transactions for which money is due, the oldest first."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.commands.daily import arguments, reading, tables
from cardledger.commands.daily.arguments import printable
from cardledger.commands.daily.tables import Column
from cardledger.commands.daily.transactions import as_dict as card_transaction
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.ledger.queries import operator_lists
from cardledger.ledger.queries.operator_lists import BUCKET_DAYS, DueSum, OpenException, Place
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import format_amount, rfc3339

BUCKETS: Final = (
    *(f"{first}-{following - 1} days" for first, following in pairwise(BUCKET_DAYS)),
    f"over {BUCKET_DAYS[-1] - 1} days",
)
"""The names of the ages, in whole days."""

_WHEN_SLOW: Final = "name a --platform, or credit the accounts for which most is due"
_COLUMNS: Final = (
    Column(name="id", keep=True),
    Column(name="due", keep=True, is_number=True),
    Column(name="owed", is_number=True),
    Column(name="age", keep=True, is_number=True),
    Column(name="event"),
    Column(name="since (UTC)"),
    Column(name="caused by"),
    Column(name="merchant"),
    Column(name="account"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page of the exceptions, and the sums of all of them at `now`."""

    now: datetime
    page: Sequence[OpenException]
    has_more: bool
    sums: Sequence[DueSum]


def run(
    *,
    platform: str | None,
    after: str | None,
    limit: int,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Print what is due.

    Raises: CommandError.
    """
    platform_id = None if platform is None else arguments.key_of(platform, "Platform", "--platform")
    place = None if after is None else place_of(after)

    async def find(connection: AsyncConnection) -> Listed:
        driver = await driver_async(connection)
        now = await operator_lists.now(driver)
        # One more than is shown says whether there is a further page.
        found = await operator_lists.exceptions(
            driver, platform_id=platform_id, after=place, limit=limit + 1
        )
        sums = await operator_lists.due_sums(driver, platform_id=platform_id)
        return Listed(now=now, page=found[:limit], has_more=len(found) > limit, sums=sums)

    listed = reading.run(data_dir, find, when_slow=_WHEN_SLOW)
    if as_json:
        print(json.dumps(as_dict(listed), indent=2))
    else:
        _show(terminal.console(), listed)


def place_of(cursor: str) -> Place:
    """Return the place in the list that `cursor_of` has written.

    Raises: CommandError, a usage error.
    """
    moment, _, key = cursor.rpartition("/")
    try:
        return datetime.fromisoformat(moment).astimezone(UTC), Id.parse(key)
    except (ValueError, OverflowError):
        raise CommandError(
            f"--after {printable(cursor)}: not a cursor of this list; write it as it was printed",
            code=USAGE,
        ) from None


def cursor_of(last: OpenException) -> str:
    """Return the cursor of the page after `last`."""
    return f"{last.since.astimezone(UTC).isoformat()}/{last.roll_up.identity.id}"


def totals(sums: Iterable[DueSum]) -> dict[str, tuple[int, int]]:
    """Return what is due, and what of it the network has taken, in each currency."""
    found: dict[str, tuple[int, int]] = {}
    for part in sums:
        due, owed = found.get(part.currency, (0, 0))
        found[part.currency] = due + part.due, owed + part.owed
    return found


# --- JSON --------------------------------------------------------------------------------------


def as_dict(listed: Listed) -> dict[str, Any]:
    """Return `listed` as JSON; amounts in minor units."""
    document: dict[str, Any] = {
        "at": rfc3339(listed.now),
        "data": [_as_dict(exception, listed.now) for exception in listed.page],
        "hasMore": listed.has_more,
        "sums": [
            {
                "currency": currency,
                "due": due,
                "owed": owed,
                "count": sum(part.count for part in listed.sums if part.currency == currency),
                "ages": [
                    {
                        "age": BUCKETS[part.bucket],
                        "count": part.count,
                        "due": part.due,
                        "owed": part.owed,
                    }
                    for part in listed.sums
                    if part.currency == currency
                ],
            }
            for currency, (due, owed) in totals(listed.sums).items()
        ],
    }
    if listed.has_more:
        document["nextCursor"] = cursor_of(listed.page[-1])
    return document


def _as_dict(exception: OpenException, now: datetime) -> dict[str, Any]:
    caused = {
        "type": exception.event,
        "source": exception.source,
        "reference": exception.reference,
    }
    return {
        "cardTransaction": card_transaction(exception.roll_up),
        "due": _due(exception),
        "owed": exception.roll_up.state.owed,
        "currency": exception.roll_up.identity.currency,
        "since": rfc3339(exception.since),
        "ageDays": _age(exception, now).days,
        "event": {name: value for name, value in caused.items() if value is not None},
    }


# --- text --------------------------------------------------------------------------------------


def _show(out: Console, listed: Listed) -> None:
    if not listed.sums and not listed.page:
        out.print("none")
        return
    tables.show(out, _COLUMNS, [_row(exception, listed.now) for exception in listed.page])
    if listed.has_more:
        out.print(Text(f"more: --after {cursor_of(listed.page[-1])}", style="dim"))
    for currency, (due, owed) in totals(listed.sums).items():
        out.print()
        sums = [part for part in listed.sums if part.currency == currency]
        count = sum(part.count for part in sums)
        noun = "card transaction" if count == 1 else "card transactions"
        line = f"{format_amount(due, currency)} due for {count:,} {noun}"
        out.print(Text(f"{line}, {format_amount(owed, currency)} owed", style="bold"))
        for part in sums:
            amount = format_amount(part.due, currency)
            out.print(f"  {BUCKETS[part.bucket]:<13} {amount:>20}  {part.count:,}")


def _row(exception: OpenException, now: datetime) -> Sequence[object]:
    identity = exception.roll_up.identity
    caused = f"{exception.source}/{exception.reference}" if exception.source else None
    return (
        # The UUID alone, whole: `explain` takes it as it is.
        identity.id,
        format_amount(_due(exception), identity.currency),
        format_amount(exception.roll_up.state.owed, identity.currency),
        f"{_age(exception, now).days} d",
        exception.event,
        f"{exception.since:%Y-%m-%d %H:%M:%S}",
        caused,
        identity.descriptor,
        identity.account_id,
    )


def _due(exception: OpenException) -> int:
    """Return what the account is asked for; of it, what is owed has gone to the network."""
    state = exception.roll_up.state
    return state.open_pull + state.unpaid


def _age(exception: OpenException, now: datetime) -> timedelta:
    return max(now - exception.since, timedelta(0))
