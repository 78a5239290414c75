"""How long it takes to import the settlement file of a network, and how much memory.

Each file is of a day of its own, and the events of all days are there before the first is read. One
line in ten thousand names an unknown event, another is left out.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import psycopg

from benchmarks import workbench
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench, Ran
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.install import people
from cardledger.ledger.network_files.records import COLUMNS
from cardledger.schema.roles import Right

_PART: Final = "finance"
_NETWORK: Final = "BENCH"
_SMALL: Final = 20_000
_LARGE: Final = 1_000_000
_ODD_ONE_IN: Final = 10_000
_LIMITS: Final = ((_SMALL, 3, None), (_LARGE, 60, 30))  # Lines; seconds, and those aimed at.
_MEMORY_MB: Final = 200

# Days of so many lines, in the order in which the events were recorded.
_SETTLE: Final = """
    INSERT INTO settlement_details (card_transaction_id, sequence, customer_id, platform_id,
        message_id, network, settlement_date, network_reference, interchange, recorded_at)
    SELECT e.card_transaction_id, e.sequence, e.customer_id, %(platform)s, e.message_id,
        %(network)s, %(first)s::date + (CASE
            WHEN e.n <= %(small)s::bigint * %(rounds)s THEN (e.n - 1) / %(small)s
            ELSE %(rounds)s + (e.n - 1 - %(small)s::bigint * %(rounds)s) / %(large)s END)::integer,
        'N-' || e.n, 0.2315, e.recorded_at
    FROM (
        SELECT c.*, row_number() OVER (ORDER BY c.recorded_at, c.card_transaction_id) AS n
        FROM card_transaction_events c WHERE c.kind = 'CLEARED'
    ) e
    ORDER BY e.n
"""
_COUNTS: Final = """
    SELECT settlement_date, count(*) FROM settlement_details WHERE network = %s
    GROUP BY settlement_date ORDER BY settlement_date
"""
_LINES: Final = """
    SELECT row_number() OVER (ORDER BY md5(x.message_id::text)) AS n, o.reference,
        x.network_reference, t.issuer_transaction_token, t.card_id, e.amount, t.currency,
        x.interchange, e.occurred_at, t.descriptor, t.mcc
    FROM settlement_details x
    JOIN card_transaction_events e USING (card_transaction_id, sequence, customer_id)
    JOIN card_transactions t ON (t.id, t.customer_id) = (x.card_transaction_id, x.customer_id)
    JOIN outcomes o ON o.message_id = x.message_id
    WHERE x.network = '{network}' AND x.settlement_date = '{day}'
"""
_WRITE_LINES: Final = f"""
    COPY (
        SELECT 'D', NULL, NULL, NULL, NULL, 'PRESENTMENT',
            CASE WHEN mod(n, {_ODD_ONE_IN}) = 0 THEN 'unknown-' ELSE '' END || reference,
            network_reference, issuer_transaction_token, 'Card:' || card_id, amount, currency, NULL,
            NULL, interchange, occurred_at::date, descriptor, mcc, NULL
        FROM ({_LINES}) l WHERE mod(n, {_ODD_ONE_IN}) <> 1
    ) TO STDOUT (FORMAT csv)
"""
_TOTALS: Final = f"""
    SELECT count(*), sum(amount), sum(interchange)
    FROM ({_LINES}) l WHERE mod(n, {_ODD_ONE_IN}) <> 1
"""


def measure(bench: Bench, *, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield how long files of 20,000 and of a million lines take, as far as there are events."""
    first = datetime.now(UTC).date() - timedelta(days=90)
    progress("finance: settlement details of all clearings")
    days = settle(bench, first, rounds=rounds)
    with _person(bench.owner_url) as anna, tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "file.csv"
        for lines, seconds, aim in _LIMITS:
            ran: list[Ran] = []
            for day in [day for day, count in days.items() if count == lines][:rounds]:
                write_file(bench, file, day)
                progress(f"finance: a settlement file of {lines:,} lines")
                ran.append(_reconcile(anna, file, lines))
            if ran:
                yield from _figures(lines, ran, seconds, aim)


def settle(bench: Bench, first: date, *, rounds: int) -> dict[date, int]:
    """Say on which day each clearing is settled; return how many of each day."""
    values = {
        "platform": bench.platform_id,
        "network": _NETWORK,
        "first": first,
        "small": _SMALL,
        "large": _LARGE,
        "rounds": rounds,
    }
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        connection.execute(_SETTLE, values)
        connection.execute("VACUUM ANALYZE settlement_details")
        return dict(connection.execute(_COUNTS, [_NETWORK]).fetchall())


def write_file(bench: Bench, file: Path, day: date) -> None:
    """Write the settlement file of `day`."""
    names = {"network": _NETWORK, "day": day.isoformat()}
    with psycopg.connect(bench.owner_url) as connection, file.open("wb") as out:
        out.write(f"{','.join(COLUMNS)}\nH,F-{day},{_NETWORK},{day}{',' * 15}\n".encode())
        with connection.cursor().copy(_WRITE_LINES.format(**names).encode()) as copy:
            for block in copy:
                out.write(block)
        row = connection.execute(_TOTALS.format(**names).encode()).fetchone()
        assert row is not None
        count, amount, interchange = row
        out.write(f"T{',' * 10}{amount},USD,,,{interchange},,,,{count}\n".encode())


def _reconcile(url: DatabaseUrl, file: Path, lines: int) -> Ran:
    ran = workbench.run_command(url, "reconcile", str(file), "--json", code=1)
    result = json.loads(ran.output)
    odd = lines // _ODD_ONE_IN
    kinds = {each["kind"]: each["count"] for each in result["breaks"]}
    assert kinds == {"IN_FILE_ONLY": odd, "IN_LEDGER_ONLY": 2 * odd}, kinds
    return ran


def _figures(lines: int, ran: list[Ran], seconds: float, aim: float | None) -> Iterator[Figure]:
    yield Figure(
        part=_PART,
        name=f"a settlement file of {lines:,} lines, imported and matched",
        unit="s",
        values=[each.seconds for each in ran],
        least=seconds,
        aim=aim,
        lower=True,
    )
    yield Figure(
        part=_PART,
        name=f"memory of importing {lines:,} lines at most",
        unit="MB",
        values=[each.memory_mb for each in ran],
        least=_MEMORY_MB,
        lower=True,
    )


@contextmanager
def _person(owner: DatabaseUrl) -> Iterator[DatabaseUrl]:
    name = f"anna-{owner.database[-12:]}"
    url = people.add(owner, name, [Right.PREPARE]).database_url
    try:
        yield url
    finally:
        people.remove(owner, name)
