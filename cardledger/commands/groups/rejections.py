"""`cardledger rejections`: list and retry rejected events.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cardledger.commands.groups.database import (
    identifier,
    in_suspense,
    inbox_key,
    quoted,
    run,
    suspense_note,
)
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from cardledger.ledger.books.suspense_items import Suspended
    from cardledger.ledger.messaging.rejections import Rejection
    from cardledger.schema.ids import Id

app = typer.Typer(
    name="rejections",
    help="List and retry rejected events.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Reason = Annotated[
    str | None,
    typer.Option(
        metavar="CODE", help="Only this reason, such as INTERNAL_ERROR.", show_default=False
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Rejected from this time on, such as 2026-03-01T12:00:00Z.",
        show_default=False,
    ),
]
_LIMIT: Final = 10_000


@app.command("list")
def list_rejections(
    *,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of events.", min=1, max=_LIMIT)
    ] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List rejected events, newest first, one a line.

    What an event has moved at the network stands in SUSPENSE, until it is applied.
    """
    from cardledger.ledger.books import suspense_items
    from cardledger.ledger.messaging import rejections
    from cardledger.ledger.messaging.rejections import Filter

    which = Filter(reason=reason, since=_time(since))

    async def find(
        connection: "AsyncConnection[Any]",
    ) -> "tuple[list[Rejection], dict[Id, Suspended]]":
        found = await rejections.find(connection, which, limit=limit)
        return found, await suspense_items.open_among(connection, [each.id for each in found])

    found, suspended = run(data_dir, find)
    if as_json:
        listed = [_as_dict(each) | in_suspense(suspended.get(each.id)) for each in found]
        print(json.dumps(listed, indent=2))
        return
    for rejection in found:
        retried = (
            f"; retried {rejection.retried_at:%Y-%m-%dT%H:%M:%SZ}" if rejection.retried_at else ""
        )
        print(
            f"{rejection.id}  {rejection.recorded_at:%Y-%m-%dT%H:%M:%SZ}  {rejection.reason}"
            f"  {quoted(rejection.source)}/{quoted(rejection.reference)}"
            f"  {quoted(rejection.detail)}{suspense_note(suspended.get(rejection.id))}{retried}"
        )
    if not found:
        print("none")


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", show_default=False)] = None,
    *,
    reason: Reason = None,
    since: Since = None,
    data_dir: DataDir = None,
) -> None:
    """Enqueue rejected events again, with the body that was kept, each at most once.

    Name them by ID, or all of a --reason. The exit code is 1 if one cannot be retried as it is.
    The network was refused a rejected authorization, other than of a credit, and an event with
    expectedSequence has not happened: neither is retried, and --reason passes over them.
    """
    from cardledger.ledger.messaging import rejections
    from cardledger.ledger.messaging.rejections import RETRY_LIMIT, Filter, Retries
    from cardledger.ledger.storage import database_clock
    from cardledger.schema.ids import Id

    if bool(ids) == bool(reason):
        raise CommandError("name either rejections by ID, or a --reason", code=USAGE)
    key = inbox_key(data_dir)
    moment = _time(since)
    keys = None if reason else [identifier(text, "a rejection") for text in ids or ()]
    accepted = 0
    # Of ids that are found, the reason why they cannot be retried follows, or none.
    refused: dict[Id, str] = dict.fromkeys(keys or (), "no such rejection")
    passed_over = 0
    # The oldest first: the authorization of a credit says of its clearing that it is one.
    after = Id(bytes(16))
    while True:
        which = Filter(
            reason=reason, since=moment, ids=keys, after=after, not_retried=reason is not None
        )

        async def retry_page(
            connection: "AsyncConnection[Any]", which: Filter = which
        ) -> "tuple[list[Rejection], Retries]":
            found = await rejections.find(connection, which, limit=RETRY_LIMIT)
            # An event without a time of its own is posted on the day of its receipt.
            now = await database_clock.read_async(connection)
            return found, await rejections.retry(connection, found, key, now=now)

        found, retries = run(data_dir, retry_page)
        accepted += len(retries.accepted)
        for rejection in found:
            refused.pop(rejection.id, None)
        answered = retries.answered if reason else frozenset()
        passed_over += len(answered)
        refused |= {each: why for each, why in retries.refused.items() if each not in answered}
        if len(found) < RETRY_LIMIT:
            break
        after = found[-1].id
    for each, why in refused.items():
        print(f"{each}: {quoted(why)}")
    print(f"{accepted:,} enqueued again, {len(refused):,} not{_note(passed_over)}")
    if refused:
        raise typer.Exit(FAILURE)


def _note(passed_over: int) -> str:
    if not passed_over:
        return ""
    return f"; {passed_over:,} passed over, to which the rejection was the answer"


def _as_dict(rejection: "Rejection") -> dict[str, Any]:
    fields = {
        "id": str(rejection.id),
        "platformId": str(rejection.platform_id),
        "source": rejection.source,
        "reference": rejection.reference,
        "reason": rejection.reason,
        "detail": rejection.detail,
        "body": rejection.body,
        "recordedAt": rejection.recorded_at.isoformat(),
        "retriedAt": rejection.retried_at and rejection.retried_at.isoformat(),
        "retriedAs": rejection.retried_as and str(rejection.retried_as),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _time(text: str | None) -> Any:  # noqa: ANN401 - a datetime, imported where it is needed
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--since {quoted(text)}: write it like 2026-03-01T12:00:00Z", code=USAGE
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
