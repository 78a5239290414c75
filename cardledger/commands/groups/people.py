"""`cardledger person`: add, list and remove people, who are logins of PostgreSQL.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cardledger.config.options import DataDir, Json, RightName

if TYPE_CHECKING:
    from cardledger.embedded.servers import DatabaseUrl

app = typer.Typer(
    name="person",
    help="Add, list and remove people, who read the books and prepare or approve changes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The login: a-z, 0-9, '.', '_', '-'.")]


@app.command()
def add(
    name: Name,
    *,
    may: Annotated[
        list[RightName] | None,
        typer.Option("--may", help="What the person may do; may be repeated.", show_default=False),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Create a login for a person and print its URL, once.

    Commands take it as DATABASE_URL. Needs the login of the owner of the tables.
    """
    from cardledger.install import people
    from cardledger.schema.roles import Right

    rights = [Right(right) for right in dict.fromkeys(may or ())]
    with _owner(data_dir) as url:
        added = people.add(url, name, rights)
    if not added.is_asked:
        print(
            f"warning: PostgreSQL lets {name} in without a password, so anyone can act as {name}:"
            " change its pg_hba.conf",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps({"name": name, "may": rights, "databaseUrl": added.database_url}))
    else:
        print(added.database_url)


@app.command("list")
def list_people(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the people, by name, with what each may do."""
    from cardledger.install import people

    with _owner(data_dir) as url:
        found = people.listed(url)
    if as_json:
        items = [
            {
                "name": person.name,
                "may": person.may,
                "addedAt": person.added_at.isoformat() if person.added_at else None,
                "addedBy": person.added_by,
            }
            for person in found
        ]
        print(json.dumps(items, indent=2))
        return
    for person in found:
        since = "" if person.added_at is None else f"  {person.added_at:%Y-%m-%dT%H:%M:%SZ}"
        print(f"{person.name:<20}  {' '.join(person.may):<15}{since}")
    if not found:
        print("none")


@app.command()
def remove(name: Name, *, data_dir: DataDir = None) -> None:
    """End the sessions of a person and drop the login; what it did stays recorded.

    Needs the login of the owner of the tables.
    """
    from cardledger.install import people

    with _owner(data_dir) as url:
        people.remove(url, name)
    print(f"{name} removed")


@contextmanager
def _owner(data_dir: Path | None) -> "Iterator[DatabaseUrl]":
    from cardledger.config import configuration
    from cardledger.install import databases, discovery

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with discovery.owner(settings) as url:
        databases.check_schema(url)
        yield url
