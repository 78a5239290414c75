"""The outbox table of the user's own database, read and written in short database transactions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    MetaData,
    NullPool,
    Table,
    Text,
    case,
    cast,
    create_engine,
    delete,
    func,
    null,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from cardledger.config.errors import USAGE, CommandError

DEFAULT_TABLE: Final = "cardledger_outbox"
MAX_EVENT: Final = 64 * 1024
"""Bytes of an event; a longer one is not read."""

_NO_EVENT: Final = f"needs a JSON object of at most {MAX_EVENT} bytes as event"
_ERROR_LENGTH: Final = 2_000

# SQLAlchemy shortens what is longer than the database's names may be.
_INDEX_NAME: Final = {"ix": "%(table_name)s_pending"}
_WITH_PARTIAL_INDEXES: Final = ("postgresql", "sqlite")
_WITH_PREFIXES: Final = ("mysql", "mariadb")

# A server that is lost is noticed after five seconds while connecting, after ten otherwise.
_OF_POSTGRESQL: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "options": "-c statement_timeout=30s -c lock_timeout=5s -c timezone=UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the outbox; `problem` says why it has no event that can be enqueued."""

    id: int
    event: str  # The text of its JSON.
    problem: str | None = None


class Source:
    """The outbox table in the database at a URL of SQLAlchemy's."""

    def __init__(self, url: str, table: str) -> None:
        """Read `table`, which may be of the form `schema.table`.

        Raises: CommandError when the URL has no driver that is installed.
        """
        parsed = _parsed(url)
        self.name: Final = f"{_without_secrets(parsed)} {table}"
        """The source for people, and for the lock: without password and options."""
        self._table: Final = _table(table)
        self._engine: Final = create_engine(
            parsed, poolclass=NullPool, hide_parameters=True, connect_args=_arguments(parsed)
        )

    def create_table(self) -> None:
        """Create the table and its index, if there is no table of its name."""
        self._table.create(self._engine, checkfirst=True)

    def oldest(self, limit: int) -> list[Row]:
        """Return the rows without an error in the order of their ids, at most `limit`."""
        columns = self._table.columns
        text = cast(columns.event, Text)
        shown = case((func.length(text) <= MAX_EVENT, text), else_=null())
        statement = (
            select(columns.id, shown)
            .where(columns.error.is_(None))
            .order_by(columns.id)
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return [_row(key, event) for key, event in connection.execute(statement)]

    def finish(self, sent: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete the rows `sent`, and write to those `refused` why."""
        columns = self._table.columns
        with self._engine.begin() as connection:
            if sent:
                connection.execute(delete(self._table).where(columns.id.in_(sent)))
            for key, problem in refused.items():
                changed = update(self._table).where(columns.id == key)
                connection.execute(changed.values(error=problem[:_ERROR_LENGTH]))


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_dialect().import_dbapi()
    except (NoSuchModuleError, ImportError) as error:
        raise CommandError(
            f"--from: no driver for this URL ({error}); install it, or name another such as"
            " postgresql+psycopg://…",
            code=USAGE,
        ) from None
    except ArgumentError:
        raise CommandError("--from is not a URL such as postgresql://…", code=USAGE) from None
    return parsed


def _without_secrets(url: URL) -> str:
    return url.set(password=None, query={}).render_as_string()


def _arguments(url: URL) -> dict[str, object]:
    if url.drivername not in {"postgresql", "postgresql+psycopg"}:
        return {}
    # What the URL names wins.
    return {name: value for name, value in _OF_POSTGRESQL.items() if name not in url.query}


def _table(name: str) -> Table:
    """Return the table `name` as the relay uses it, and as it creates it.

    Raises: CommandError.
    """
    schema, _, table = name.rpartition(".")
    if not table:
        raise CommandError(f"--table {name}: needs the name of a table", code=USAGE)
    made = Table(
        table,
        MetaData(naming_convention=_INDEX_NAME),
        Column(
            "id",
            BigInteger().with_variant(Integer, "sqlite"),
            Identity(always=False),
            primary_key=True,
        ),
        Column("event", JSON, nullable=False),
        Column("error", Text),
        schema=schema or None,
    )
    _add_index(made)
    return made


def _add_index(table: Table) -> None:
    """Add the index by which rows are found, so that those with an error are not read each time.

    None where a text cannot be the key of an index.
    """
    columns = table.columns
    pending = columns.error.is_(None)
    partial = Index(None, columns.id, postgresql_where=pending, sqlite_where=pending)
    partial.ddl_if(dialect=_WITH_PARTIAL_INDEXES)  # type: ignore[arg-type]  # It takes several.
    first = {"error": 1}  # MySQL's text is a key by its first characters only.
    whole = Index(None, columns.error, columns.id, mysql_length=first, mariadb_length=first)
    whole.ddl_if(dialect=_WITH_PREFIXES)  # type: ignore[arg-type]  # It takes several.


def _row(key: int, event: str | None) -> Row:
    """Return the row `key`, whose `event` is None when it is too long or missing."""
    if event is None:
        return Row(id=key, event="", problem=_NO_EVENT)
    try:
        is_object = isinstance(json.loads(event), dict)
    except (ValueError, RecursionError):
        is_object = False
    return Row(id=key, event=event, problem=None if is_object else _NO_EVENT)


SOURCE_ERRORS: Final = (SQLAlchemyError, OSError)
"""What is raised when the source does not answer, or refuses a statement."""
