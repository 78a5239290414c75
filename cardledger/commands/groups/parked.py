"""`cardledger parked`: list parked events.

What it needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cardledger.commands.groups.database import (
    identifier,
    in_suspense,
    quoted,
    run,
    suspense_note,
)
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from cardledger.ledger.books.suspense_items import Suspended
    from cardledger.ledger.messaging.parked_events import ParkedEvent
    from cardledger.schema.ids import Id

app = typer.Typer(
    name="parked",
    help="List events that wait for the event that they reverse or change.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LIMIT: Final = 10_000


@app.command("list")
def list_parked(
    *,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only older events than this, for the next page.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of events.", min=1, max=_LIMIT)
    ] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List parked events, newest first, one a line.

    They are applied by themselves when the missing event arrives: submit that, if it was rejected.
    What they have moved at the network stands in SUSPENSE until then.
    """
    from cardledger.ledger.books import suspense_items
    from cardledger.ledger.messaging import parked_events
    from cardledger.ledger.messaging.parked_events import Filter

    which = Filter(before=None if before is None else identifier(before, "a parked event"))

    async def find(
        connection: "AsyncConnection[Any]",
    ) -> "tuple[list[ParkedEvent], dict[Id, Suspended]]":
        found = await parked_events.find(connection, which, limit=limit)
        return found, await suspense_items.open_among(connection, [each.id for each in found])

    found, suspended = run(data_dir, find)
    if as_json:
        listed = [_as_dict(each) | in_suspense(suspended.get(each.id)) for each in found]
        print(json.dumps(listed, indent=2))
        return
    for parked in found:
        print(
            f"{parked.id}  {parked.received_at:%Y-%m-%dT%H:%M:%SZ}  {quoted(parked.type)}"
            f"  {quoted(parked.source)}/{quoted(parked.reference)}"
            f"  Card:{parked.card_id}  {quoted(parked.issuer_transaction_token)}"
            f"{suspense_note(suspended.get(parked.id))}"
        )
    if not found:
        print("none")


def _as_dict(parked: "ParkedEvent") -> dict[str, Any]:
    fields = {
        "id": str(parked.id),
        "platformId": parked.platform_id and str(parked.platform_id),
        "type": parked.type,
        "source": parked.source,
        "reference": parked.reference,
        "cardId": f"Card:{parked.card_id}",
        "issuerTransactionToken": parked.issuer_transaction_token,
        "event": parked.body,
        "receivedAt": parked.received_at.isoformat(),
    }
    return {name: value for name, value in fields.items() if value is not None}
