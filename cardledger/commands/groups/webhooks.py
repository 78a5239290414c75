"""`cardledger webhooks`: endpoints, deliveries, replay and tests, by the interface itself.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

import typer

from cardledger.commands.groups.database import identifier
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from cardledger.install.http_client import HttpApi

app = typer.Typer(
    name="webhooks",
    help="Inspect, retry and replay webhook deliveries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ReadyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Ready file of the running system, or any JSON file with baseUrl, clientId"
        " and clientSecret.",
        show_default=False,
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Only deliveries to this endpoint.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="From this time, such as 2026-03-01T12:00:00Z.", show_default=False
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Until this time.", show_default=False)
]


def _identifier(text: str) -> str:
    identifier(text.rpartition(":")[2], "a delivery or an endpoint")
    return text


Id = Annotated[str, typer.Argument(metavar="ID", callback=_identifier)]

_PAGE: Final = 100
_ENDPOINT_COLUMNS: Final = ("id", "state", "disabledReason", "mode", "eventTypes", "url")
_DELIVERY_COLUMNS: Final = (
    "id",
    "createdAt",
    "type",
    "sequence",
    "state",
    "attempts",
    "lastStatus",
)
_ATTEMPT_COLUMNS: Final = ("number", "attemptedAt", "durationMs", "status", "error", "responseHead")


@app.command()
def endpoints(
    *, as_json: Json = False, data_dir: DataDir = None, ready_file: ReadyFile = None
) -> None:
    """List the platform's endpoints."""
    with _api(data_dir, ready_file) as api:
        found = list(_pages(api, "/webhooks/endpoints", {}, most=None))
    _show(found, _ENDPOINT_COLUMNS, as_json=as_json)


@app.command()
def deliveries(  # noqa: PLR0913 - the options of the command
    *,
    endpoint: Endpoint = None,
    kind: Annotated[
        str | None, typer.Option("--type", help="Only this event type.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Only about this resource: Card:..., CardTransaction:...",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="PENDING, DELIVERED, FAILED or NO_ENDPOINT.", show_default=False),
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of deliveries.", min=1)
    ] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
    ready_file: ReadyFile = None,
) -> None:
    """List deliveries, newest first."""
    query = {
        "endpointId": endpoint,
        "type": kind,
        "subjectId": subject,
        "state": state,
        "since": since,
        "until": until,
    }
    with _api(data_dir, ready_file) as api:
        found = list(_pages(api, "/webhooks/deliveries", query, most=limit))
    # Where there are several endpoints, a webhook has a line for each of them.
    several = len({one.get("endpointId") for one in found}) > 1
    _show(found, _DELIVERY_COLUMNS + ("endpointId",) * several, as_json=as_json)


@app.command()
def show(
    delivery: Id, *, as_json: Json = False, data_dir: DataDir = None, ready_file: ReadyFile = None
) -> None:
    """Show a delivery with its payload and its last attempts."""
    with _api(data_dir, ready_file) as api:
        found = api.get(f"/webhooks/deliveries/{delivery}")
    if as_json:
        _print_json(found)
        return
    attempts, payload = found.pop("attemptList", []), found.pop("payload", {})
    _describe(found)
    _print_json(payload)
    _show(attempts, _ATTEMPT_COLUMNS, as_json=False)


@app.command()
def retry(
    delivery: Id, *, as_json: Json = False, data_dir: DataDir = None, ready_file: ReadyFile = None
) -> None:
    """Send one delivery again, whatever its state."""
    with _api(data_dir, ready_file) as api:
        found = api.post(f"/webhooks/deliveries/{delivery}/retry", {})
    _print_json(found) if as_json else print(f"{found['webhookId']} is on its way again")


@app.command()
def replay(  # noqa: PLR0913 - the options of the command
    since: Annotated[str, typer.Option(metavar="TIME", help="From this time.")],
    *,
    until: Until = None,
    endpoint: Endpoint = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also successful deliveries, not only failed ones.")
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
    ready_file: ReadyFile = None,
) -> None:
    """Send failed deliveries since a time again, or all of them."""
    asked: dict[str, Any] = {"since": since, "onlyFailed": not everything}
    asked |= {name: value for name, value in (("until", until), ("endpointId", endpoint)) if value}
    count = 0
    with _api(data_dir, ready_file) as api:
        while True:
            done = api.post("/webhooks/replay", asked)
            count += done["count"]
            if not done["hasMore"]:
                break
            asked["cursor"] = done["nextCursor"]
    _print_json({"count": count}) if as_json else print(_sent_again(count))


@app.command("test")
def try_out(
    endpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", callback=lambda text: text and _identifier(text), show_default=False
        ),
    ] = None,
    *,
    as_json: Json = False,
    data_dir: DataDir = None,
    ready_file: ReadyFile = None,
) -> None:
    """Send a signed TEST webhook to an endpoint and show the response.

    To the default endpoint unless one is named. Ends with exit code 1 when it was not taken.
    """
    with _api(data_dir, ready_file) as api:
        tested = api.post("/webhooks/test", {"endpointId": endpoint} if endpoint else {})
    _print_json(tested) if as_json else _describe(tested)
    if not tested["delivered"]:
        raise typer.Exit(1)


@app.command("rotate-secret")
def rotate_secret(
    endpoint: Id, *, as_json: Json = False, data_dir: DataDir = None, ready_file: ReadyFile = None
) -> None:
    """Rotate the secret of an endpoint and print the new one once.

    The secret before signs beside it for a day more.
    """
    with _api(data_dir, ready_file) as api:
        changed = api.post(f"/webhooks/endpoints/{endpoint}/rotate-secret", {})
    _print_json(changed) if as_json else print(changed["secret"])


# --- the interface -----------------------------------------------------------------------------


def _api(data_dir: Path | None, ready_file: Path | None) -> "AbstractContextManager[HttpApi]":
    from cardledger.install import running_api

    return running_api.connect(data_dir, ready_file)


def _pages(
    api: "HttpApi", path: str, query: dict[str, str | None], *, most: int | None
) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {name: value for name, value in query.items() if value is not None}
    left = most
    while left is None or left > 0:
        asked["limit"] = _PAGE if left is None else min(left, _PAGE)
        page = api.get(f"{path}?{urlencode(asked)}")
        yield from page["data"]
        if not page["hasMore"]:
            return
        left = None if left is None else left - len(page["data"])
        asked["cursor"] = page["nextCursor"]


# --- words -------------------------------------------------------------------------------------


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=2))


def _sent_again(count: int) -> str:
    return (
        f"{count:,} {'is' if count == 1 else 'are'} on {'its' if count == 1 else 'their'} way again"
    )


def _describe(found: dict[str, Any]) -> None:
    width = max(map(len, found))
    for name, value in found.items():
        print(f" {name.ljust(width)}  {_cell(value)}")


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    from rich.table import Table

    from cardledger.config import console as terminal

    out = terminal.console()
    if not rows:
        out.print(" none")
        return
    lines = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    table = Table(box=None, show_header=False)
    for _ in columns:
        table.add_column(no_wrap=True)
    for line in lines:
        table.add_row(*line)
    # As wide as its content: what a pipe gets must not depend on a terminal that is not there.
    out.width = sum(max(map(len, cells)) + 2 for cells in zip(*lines, strict=True))
    out.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "all"
    # Answers of receivers are anything, and a terminal obeys some of it.
    return "".join(one if one.isprintable() else " " for one in str(value))[:200]
