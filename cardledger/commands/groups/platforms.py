"""`cardledger platform`: create platforms; list, revoke and recover their credentials; quotas.

It works on the database, so it needs no token: who has the database has every platform.
What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup
from typing_extensions import override

from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from cardledger.config.settings import Settings
    from cardledger.ledger.platforms.quotas import Usage
    from cardledger.ledger.platforms.registry import PlatformSummary
    from cardledger.ledger.storage.secrets.key_ring import KeyRing
    from cardledger.schema.ids import Id
    from cardledger.schema.wire.tokens import TokenResource


class _CreatesByDefault(TyperGroup):
    """`cardledger platform NAME` creates a platform, as it did before there were subcommands."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = args[:1] in (["-h"], ["--help"])
        if args and not is_help and args[0] not in self.commands:
            args = ["create", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="platform",
    help="Create platforms; list, revoke and recover their credentials; show and change quotas.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=_CreatesByDefault,
)

Platform = Annotated[
    str, typer.Argument(metavar="PLATFORM", help="Id of the platform, as `list` prints it.")
]

Result = TypeVar("Result")

_DIGITS: Final = 19  # Of the largest number that PostgreSQL stores.
_RAISE_QUOTA: Final = "raise the quota: cardledger platform quotas PLATFORM --set api_tokens=N"
_NO_ROOM: Final = "revoke a token first, or use --revoke-others"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Display name.")], *, data_dir: DataDir = None
) -> None:
    """Create a platform with an API token; in a sandbox with the currencies USD, USDC and USDB.

    Prints its secrets once, as JSON. Not needed with `up`, which creates a sandbox platform.
    """
    from cardledger.install import credentials, discovery, key_check

    settings = _settings(data_dir)
    keys = _keys(settings)
    with discovery.database(settings) as database_url:
        key_check.check(database_url, keys)
        made = credentials.create_platform(
            database_url,
            name,
            keys,
            currencies=credentials.SANDBOX_CURRENCIES if settings.sandbox else ("USD",),
        )
    _print(
        {
            "platformId": made.access.platform_id,
            "clientId": made.access.client_id,
            "clientSecret": made.access.client_secret,
            "webhookPublicKey": made.public_key,
            "webhookSecret": made.webhook_secret,
        }
    )


@app.command("list")
def list_platforms(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the platforms, oldest first, with the number of their tokens."""
    from cardledger.ledger.platforms import registry

    found = _run(data_dir, registry.summaries)
    if as_json:
        _print([_as_dict(platform) for platform in found])
        return
    for platform in found:
        print(
            f"{platform.id}  {platform.created_at:%Y-%m-%dT%H:%M:%SZ}"
            f"  {platform.token_count:>3} tokens  {_quoted(platform.name)}"
        )
    if not found:
        print("none")


@app.command()
def tokens(platform: Platform, *, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the tokens of a platform, newest first, without their secrets."""
    from cardledger.ledger.platforms import api_tokens

    platform_id = _id(platform)

    async def find(connection: "AsyncConnection") -> "list[TokenResource]":
        await _check_exists(connection, platform_id)
        return await api_tokens.of_platform(connection, platform_id)

    found = _run(data_dir, find)
    if as_json:
        _print([token.wire() for token in found])
        return
    for token in found:
        print(
            f"{token.client_id}  {token.created_at:%Y-%m-%dT%H:%M:%SZ}"
            f"  {','.join(token.permissions)}{_dates(token)}  {_quoted(token.name)}"
        )
    if not found:
        print("none")


@app.command()
def revoke(
    client_ids: Annotated[list[str], typer.Argument(metavar="CLIENT_ID...", show_default=False)],
    *,
    data_dir: DataDir = None,
) -> None:
    """Delete tokens by their client ids; API processes refuse them within three seconds.

    Prints the id of each, by which the request log names it: see SECURITY.md on what a stolen token
    may have left behind. The exit code is 1 if one of them does not exist.
    """
    from cardledger.ledger.platforms import api_tokens
    from cardledger.schema.wire.common import public_id

    async def delete(connection: "AsyncConnection") -> "list[Id | None]":
        return [await api_tokens.revoke(connection, client_id) for client_id in client_ids]

    deleted = _run(data_dir, delete)
    for client_id, token_id in zip(client_ids, deleted, strict=True):
        result = "no such token" if token_id is None else public_id("Token", token_id)
        print(f"{_quoted(client_id)}: {result}")
    unknown = deleted.count(None)
    print(f"{len(deleted) - unknown:,} revoked, {unknown:,} not")
    if unknown:
        raise typer.Exit(FAILURE)


@app.command()
def recover(
    platform: Platform,
    *,
    revoke_others: Annotated[
        bool,
        typer.Option(
            "--revoke-others",
            help="Also delete every other token, as when one was stolen; look at agents and webhook"
            " endpoints, which stay.",
        ),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Create a token that may do everything, for a platform that has lost its secrets.

    Prints its secret once, as JSON.
    """
    from cardledger.ledger.platforms import api_tokens, scopes
    from cardledger.ledger.storage.caps import CapReachedError

    platform_id = _id(platform)
    keys = _keys(_settings(data_dir))

    async def revoke(connection: "AsyncConnection") -> None:
        await _check_exists(connection, platform_id)
        await api_tokens.revoke_all(connection, platform_id)

    async def issue(connection: "AsyncConnection") -> tuple[str, str]:
        await _check_exists(connection, platform_id)
        return await api_tokens.create(
            connection,
            platform_id=platform_id,
            name="recovered",
            permissions=list(scopes.Permission),
            keys=keys,
        )

    if revoke_others:
        _run(data_dir, revoke)  # By itself: it stays when no token can be made.
    try:
        client_id, client_secret = _run(data_dir, issue)
    except CapReachedError as error:
        raise CommandError(f"{error} {_NO_ROOM}") from None
    except CommandError as error:
        if not revoke_others:
            raise
        message = f"{error}; the platform's tokens have been revoked"
        raise CommandError(message, code=error.code) from None
    _print({"platformId": str(platform_id), "clientId": client_id, "clientSecret": client_secret})


@app.command()
def quotas(
    platform: Annotated[
        str | None,
        typer.Argument(
            metavar="[PLATFORM]",
            help="Id of the platform; without it, the quotas of every platform without its own.",
        ),
    ] = None,
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="RESOURCE=ROWS", help="Change a quota; may be repeated."),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show how many rows of each resource a platform has and may have; change the quotas.

    Changing needs the login of the owner of the tables.
    """
    from cardledger.ledger.platforms import quotas as row_quotas

    platform_id = row_quotas.EVERY_PLATFORM if platform is None else _id(platform)
    changes = [_assignment(each) for each in assignments or ()]

    async def change(connection: "AsyncConnection") -> "Sequence[Usage]":
        if platform is not None:
            await _check_exists(connection, platform_id)
        for resource, rows in changes:
            await row_quotas.set_quota(connection, resource, rows, platform_id=platform_id)
        return await row_quotas.usage(connection, platform_id)

    try:
        found = _run(data_dir, change)
    except row_quotas.UnknownResourceError as error:
        message = f"{_quoted(str(error))} has no quota; see `cardledger platform quotas`"
        raise CommandError(message, code=USAGE) from None
    if as_json:
        _print([{"resource": one.resource, "rows": one.rows, "quota": one.quota} for one in found])
        return
    for one in found:
        rows = "" if platform is None else f"{one.rows:>14,} of "
        print(f"{one.resource:<18}{rows}{one.quota:>14,}")


def _assignment(text: str) -> tuple[str, int]:
    resource, _, rows = text.partition("=")
    # The length first: Python refuses to read a number of thousands of digits.
    if not rows.isascii() or not rows.isdecimal() or len(rows) > _DIGITS or int(rows) >= 2**63:
        message = f"--set {_quoted(text)}: write RESOURCE=ROWS, for example customers=5000000"
        raise CommandError(message, code=USAGE)
    return resource, int(rows)


async def _check_exists(connection: "AsyncConnection", platform_id: "Id") -> None:
    from cardledger.ledger.platforms import registry

    if not any(platform.id == platform_id for platform in await registry.summaries(connection)):
        raise CommandError(f"there is no platform {platform_id}; see `cardledger platform list`")


def _settings(data_dir: Path | None) -> "Settings":
    from cardledger.config import configuration

    return configuration.load(data_dir=data_dir, log_level="warning")


def _keys(settings: "Settings") -> "KeyRing":
    from cardledger.install import credentials
    from cardledger.ledger.storage.secrets.key_ring import KeyRing

    return KeyRing(credentials.needed_key(settings))


def _run(data_dir: Path | None, work: "Callable[[AsyncConnection], Awaitable[Result]]") -> Result:
    """Run `work` in a database transaction of the installation."""
    import asyncio

    from sqlalchemy import NullPool
    from sqlalchemy.exc import DBAPIError

    from cardledger.install import discovery
    from cardledger.ledger.platforms import quotas
    from cardledger.ledger.storage.engines import async_engine, message_of

    async def run(url: str) -> Result:
        async with async_engine(url, poolclass=NullPool).begin() as connection:
            return await work(connection)

    with discovery.database(_settings(data_dir)) as url:
        try:
            return asyncio.run(run(url))
        except DBAPIError as error:
            if quotas.reached_in(error):
                raise CommandError(f"{message_of(error)}; {_RAISE_QUOTA}") from None
            raise CommandError(f"PostgreSQL failed: {error.orig}") from None


def _as_dict(platform: "PlatformSummary") -> dict[str, Any]:
    return {
        "id": str(platform.id),
        "name": platform.name,
        "createdAt": platform.created_at.isoformat(),
        "tokenCount": platform.token_count,
    }


def _dates(token: "TokenResource") -> str:
    dates = (("expires", token.expires_at), ("used", token.last_used_at))
    return "".join(f"  {verb} {at:%Y-%m-%dT%H:%M:%SZ}" for verb, at in dates if at is not None)


def _print(value: object) -> None:
    print(json.dumps(value, indent=2, default=str))


def _quoted(text: str) -> str:
    """Return `text` without characters that a terminal obeys."""
    return json.dumps(text)[1:-1]


def _id(text: str) -> "Id":
    from cardledger.schema.ids import Id

    try:
        return Id.parse(text.rpartition(":")[2])
    except ValueError:
        raise CommandError(f"{_quoted(text)} is not the id of a platform", code=USAGE) from None
