"""`cardledger keys`: rotate the server key of the installation.

It works with the login of the application and the keys of its processes (docs/keys.md). What each
command needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    import psycopg

    from cardledger.config.settings import Settings
    from cardledger.install.key_rotation import Status
    from cardledger.ledger.storage.secrets.key_ring import ServerKey
    from cardledger.ledger.storage.secrets.sealed_columns import SealedColumn

    Work = Callable[[psycopg.Connection[Any], ServerKey], Status]

app = typer.Typer(
    name="keys",
    help="Rotate the server key.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def status(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Count what the current server key has sealed, and what former keys have.

    The exit code is 1 while something is sealed that the current key does not open.
    """
    from cardledger.install import key_rotation

    _report(_run(data_dir, key_rotation.status), as_json=as_json)


@app.command()
def rotate(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Seal again, with CARDLEDGER_SECRET_KEY, what former keys have sealed.

    While the system runs, and as often as needed: an interrupted rotation is continued. All
    processes must know both keys before. The exit code is 1 while something remains.
    """
    from cardledger.install import key_rotation

    def work(connection: "psycopg.Connection[Any]", key: "ServerKey") -> "Status":
        return key_rotation.rotate(connection, key, _progress)

    _report(_run(data_dir, work), as_json=as_json)


def _run(data_dir: Path | None, work: "Work") -> "Status":
    import psycopg

    from cardledger.config import configuration
    from cardledger.install import databases, discovery
    from cardledger.schema import connections

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    key = _key(settings)
    with discovery.database(settings) as url:
        databases.check_schema(url)
        try:
            with connections.connect(url, autocommit=True) as connection:
                return work(connection, key)
        except psycopg.Error as error:
            raise CommandError(
                f"PostgreSQL failed: {error}; what was sealed again stays, so run the command again"
            ) from None


def _key(settings: "Settings") -> "ServerKey":
    from cardledger.install import credentials

    known = credentials.known_key(settings)
    if known is None:
        raise CommandError(
            "set CARDLEDGER_SECRET_KEY and CARDLEDGER_FORMER_SECRET_KEYS as for the API and the"
            " workers",
            code=USAGE,
        )
    if not known.binds:
        raise CommandError(
            "CARDLEDGER_BIND_SECRETS is false: rotate the key when no earlier release runs any"
            " more, and remove the variable before",
            code=USAGE,
        )
    return known


def _progress(column: "SealedColumn", count: int) -> None:
    print(f"{column.table}.{column.column}: {count:,} sealed again", file=sys.stderr)


def _report(found: "Status", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        _show(found)
    if not found.is_sealed:
        raise typer.Exit(FAILURE)


def _as_dict(found: "Status") -> dict[str, Any]:
    return {
        "sealed": [asdict(count) for count in found.sealed],
        "hashes": [asdict(count) for count in found.hashes],
        "messages": asdict(found.messages),
        "terms": [asdict(count) for count in found.terms],
        "keepsCardKey": found.keeps_card_key,
        "isSealed": found.is_sealed,
        "needsFormerKeys": found.needs_former_keys,
    }


def _show(found: "Status") -> None:
    print(f"{'':<34}{'current key':>13}{'other':>9}{'unreadable':>12}")
    for count in [*found.sealed, *found.hashes, found.messages, *found.terms]:
        unreadable = f"{count.unreadable:>12,}" if count in found.sealed else ""
        print(f"{count.name:<34}{count.current:>13,}{count.outdated:>9,}{unreadable}")
    print(_conclusion(found))


def _conclusion(found: "Status") -> str:
    unreadable = sum(count.unreadable for count in found.sealed)
    hashes = sum(count.outdated for count in found.hashes)
    if unreadable:
        return (
            f"{unreadable:,} value(s) open with no key that is given: add their key to"
            " CARDLEDGER_FORMER_SECRET_KEYS; a value that was moved or changed opens with none."
        )
    if not found.is_sealed:
        return "Run `cardledger keys rotate`. Keep the former keys until nothing remains."
    if hashes:
        return (
            f"Everything is sealed with the current key. {hashes:,} hash(es) of secrets are of a"
            " former key or release: each is replaced when its secret is used; secrets that"
            " are not used have to be rotated or revoked. Keep the former keys until then."
        )
    if found.messages.outdated:
        return (
            f"{found.messages.outdated:,} message(s) that wait were accepted with a former key:"
            " keep the former keys until they are decided."
        )
    terms = sum(count.outdated for count in found.terms)
    if terms:
        return (
            f"{terms:,} quote(s) or payment(s) that may still be carried out were signed with a"
            " former key: keep the former keys until they are decided."
        )
    return "Everything is of the current key: CARDLEDGER_FORMER_SECRET_KEYS may be removed."
