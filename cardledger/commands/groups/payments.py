"""`cardledger payments`: list payments that stopped before their end, and try again.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cardledger.commands.groups.database import identifier, inbox_key, quoted, run
from cardledger.config.errors import FAILURE
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from cardledger.ledger.projections.unfinished_payments import Unfinished
    from cardledger.schema.ids import Id

app = typer.Typer(
    name="payments",
    help="List payments that stopped before their end, and try again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LIMIT: Final = 10_000
_RETRIED: Final = 500


@app.command("list")
def list_unfinished(
    *,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of payments.", min=1, max=_LIMIT)
    ] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List payments whose refund failed, or whose arrival, fee or receipt was rejected, one a line.

    Their money stands on OUTBOUND_CLEARING or TRANSFERS.
    """
    from cardledger.ledger.projections import unfinished_payments

    found = run(data_dir, lambda connection: unfinished_payments.find(connection, limit=limit))
    if as_json:
        print(json.dumps([_as_dict(each) for each in found], indent=2))
        return
    for payment in found:
        print(
            f"{payment.id}  {payment.since:%Y-%m-%dT%H:%M:%SZ}  {payment.problem}"
            f"  {payment.amount:,} minor units of {payment.currency} on {payment.account}"
            f"  {quoted(payment.detail)}"
        )
    if not found:
        print("none")


@app.command()
def retry(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", show_default=False)],
    *,
    data_dir: DataDir = None,
) -> None:
    """Refund payments that failed or never arrived, or deliver their fee or receipt again.

    A refund to an account that is CLOSED or full fails again. The exit code is 1 if a payment is
    not among those that `list` shows.
    """
    from cardledger.ledger.payments import retries
    from cardledger.ledger.projections import unfinished_payments
    from cardledger.ledger.storage import database_clock

    key = inbox_key(data_dir)
    keys = [identifier(text, "a payment") for text in ids]

    async def retry_all(connection: "AsyncConnection[Any]") -> "dict[Id, str]":
        found = await unfinished_payments.find(connection, limit=_RETRIED, ids=keys)
        now = await database_clock.read_async(connection)
        refused = await retries.retry(connection, found, key, now=now)
        listed = {payment.id for payment in found}
        return refused | {
            each: "Not a payment that stopped." for each in keys if each not in listed
        }

    refused = run(data_dir, retry_all)
    for each, why in refused.items():
        print(f"{each}: {quoted(why)}")
    print(f"{len(set(keys)) - len(refused):,} enqueued again, {len(refused):,} not")
    if refused:
        raise typer.Exit(FAILURE)


def _as_dict(payment: "Unfinished") -> dict[str, Any]:
    return {
        "id": str(payment.id),
        "customerId": str(payment.customer_id),
        "platformId": str(payment.platform_id),
        "problem": payment.problem,
        "amount": payment.amount,
        "currency": payment.currency,
        "account": payment.account,
        "detail": payment.detail,
        "since": payment.since.isoformat(),
    }
