"""Bringing a database to a version of the schema, up or down."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, make_url, text

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x6361726C  # Any number: two migrations at once wait for each other on it.


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database at `url` up to `revision`; all or nothing.

    The role in `url` must be allowed to create tables and roles.
    """
    with _connection(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Bring the database at `url` down to `revision` (`base`: nothing left); all or nothing."""
    with _connection(url) as connection:
        command.downgrade(_config(connection), revision)


def sql(revision: str = "head") -> None:
    """Print the statements that lead from nothing to `revision`, for a reader to check."""
    command.upgrade(_config(None), revision, sql=True)


def current(url: str) -> str | None:
    """Return the revision of the database at `url`; None when it has none."""
    engine = create_engine(_driver(url), poolclass=NullPool)
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the newest revision that this release knows."""
    newest = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    assert newest is not None, "there is at least one migration"
    return newest


def app_role(url: str) -> str:
    """Return the name of the role that the application uses in the database at `url`."""
    return f"{make_url(url).database}_app"


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = create_engine(_driver(url), poolclass=NullPool)
    with engine.begin() as connection:
        # A migration that waits for a lock makes everybody else wait behind it.
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _driver(url: str) -> str:
    driver = make_url(url).set(drivername="postgresql+psycopg")
    return driver.render_as_string(hide_password=False)
