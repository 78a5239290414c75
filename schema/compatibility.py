"""Which releases may use a schema: a window, so that a newer schema does not stop an older release.

Migrations that an earlier release can work with leave `schema_compatibility.oldest_head` as it is;
one that it cannot work with moves it, and so does the end of a deployment (`migrate.finish`).
"""

from pathlib import Path
from typing import Final

_VERSIONS: Final = Path(__file__).parent / "migrations" / "versions"

OLDEST_HEAD_FINISHED: Final = "0147"
"""The newest revision of the oldest release that needs nothing which `migrate.finish` takes.

Releases sign what they accept from 0019 on, reach rows by views from 0024 on, enqueue by a function
from 0034 on, and sign the terms of quotes and payments from 0147 on. While a release before this
one may use the database, terms without a MAC are believed.
"""

OLDEST_HEAD_LIMITED: Final = "0034"
"""The same of what a migration gives back only below it: the rights of roles."""


def head() -> str:
    """Return the newest revision that this release knows, as `migrate.head` does without Alembic.

    The names of migrations begin with their revision. Importing Alembic and every migration would
    delay the start of each process.
    """
    return max(path.name[:4] for path in _VERSIONS.glob("[0-9][0-9][0-9][0-9]_*.py"))


def is_usable(revision: str | None, *, head: str, oldest_head: str | None) -> bool:
    """Return whether a release whose newest revision is `head` may use a database at `revision`.

    `oldest_head` is what the database says: the newest revision of the oldest release that may use
    it; None when it says nothing. Revisions are numbers of four digits.
    """
    if revision is None or revision < head:
        return False
    return revision == head or (oldest_head is not None and oldest_head <= head)


def problem(revision: str | None, *, head: str, oldest_head: str | None) -> str | None:
    """Return why the release may not use the database, and what to do; None when it may."""
    if is_usable(revision, head=head, oldest_head=oldest_head):
        return None
    if revision is None or revision < head:
        return (
            f"the database has schema {revision or 'none'}, this release needs {head};"
            " run `cardledger migrate`"
        )
    return (
        f"the database has schema {revision}, which this release, of {head}, cannot use; deploy the"
        " release that belongs to it"
    )
