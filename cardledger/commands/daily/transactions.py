"""`cardledger transactions`: card transactions of all platforms, the newest first."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.text import Text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.commands.daily import arguments, reading, tables
from cardledger.commands.daily.tables import Column
from cardledger.config import console as terminal
from cardledger.ledger.core.status import Status
from cardledger.ledger.projections.card_transaction import RollUp, wire
from cardledger.ledger.queries import operator_lists
from cardledger.ledger.queries.operator_lists import ListFilters
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.wire.common import format_amount, public_id

_WHEN_SLOW: Final = (
    "of the statuses only EXCEPTION has an index: add --since, --card, --customer or a smaller"
    " --limit"
)
_COLUMNS: Final = (
    Column(name="id", keep=True),
    Column(name="status", keep=True),
    Column(name="authorized", keep=True, is_number=True),
    Column(name="created (UTC)"),
    Column(name="settled", is_number=True),
    Column(name="owed", is_number=True),
    Column(name="merchant"),
    Column(name="refunded", is_number=True),
    Column(name="card"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command, as they were written."""

    status: Status | None
    card: str | None
    customer: str | None
    platform: str | None
    since: str | None
    after: str | None
    limit: int
    as_json: bool
    data_dir: Path | None


def run(options: Options) -> None:
    """Print one page of card transactions.

    Raises: CommandError.
    """
    filters = filters_of(options)

    async def find(connection: AsyncConnection) -> list[RollUp]:
        driver = await driver_async(connection)
        # One more than is shown says whether there is a further page.
        return await operator_lists.card_transactions(driver, filters, limit=options.limit + 1)

    found = reading.run(options.data_dir, find, when_slow=_WHEN_SLOW)
    shown = found[: options.limit]
    cursor = name_of(shown[-1]) if len(found) > len(shown) else None
    if options.as_json:
        print(json.dumps(_as_dict(shown, cursor), indent=2))
    else:
        _show(shown, cursor)


def filters_of(options: Options) -> ListFilters:
    """Return the conditions of `options`.

    Raises: CommandError, a usage error.
    """

    def key(resource: str, option: str, text: str | None) -> Any:  # noqa: ANN401 - an id or None
        return None if text is None else arguments.key_of(text, resource, option)

    return ListFilters(
        status=options.status,
        card_id=key("Card", "--card", options.card),
        customer_id=key("Customer", "--customer", options.customer),
        platform_id=key("Platform", "--platform", options.platform),
        since=None if options.since is None else arguments.time_of(options.since, "--since"),
        after=key("CardTransaction", "--after", options.after),
    )


def name_of(roll_up: RollUp) -> str:
    """Return the public id of a card transaction."""
    return public_id("CardTransaction", roll_up.identity.id)


def as_dict(roll_up: RollUp) -> dict[str, Any]:
    """Return a card transaction as the HTTP API does, with its platform."""
    return {**wire(roll_up), "platformId": str(roll_up.identity.platform_id)}


def _as_dict(shown: Sequence[RollUp], cursor: str | None) -> dict[str, Any]:
    page = {"data": [as_dict(roll_up) for roll_up in shown], "hasMore": cursor is not None}
    return page if cursor is None else {**page, "nextCursor": cursor}


def _show(shown: Sequence[RollUp], cursor: str | None) -> None:
    out = terminal.console()
    if not shown:
        out.print("none")
        return
    tables.show(out, _COLUMNS, [_row(roll_up) for roll_up in shown])
    if cursor is not None:
        out.print(Text(f"more: --after {cursor}", style="dim"))


def _row(roll_up: RollUp) -> Sequence[object]:
    identity, state = roll_up.identity, roll_up.state

    def amount(minor_units: int) -> str | None:
        return format_amount(minor_units, identity.currency) if minor_units else None

    return (
        # The UUID alone, whole: `explain` takes it as it is.
        identity.id,
        state.status,
        amount(state.authorized_amount),
        f"{identity.created_at:%Y-%m-%d %H:%M:%S}",
        amount(state.settled_amount),
        amount(state.owed),
        identity.descriptor,
        amount(state.refunded - state.credited),
        identity.card_id,
    )
