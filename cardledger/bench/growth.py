"""What growth costs: the same rate on a large record, and the bytes that an authorization takes."""

from collections.abc import Iterator
from typing import Final

import psycopg

from cardledger.bench import scene
from cardledger.bench.engine import Say
from cardledger.bench.figures import Figure, ratio
from cardledger.bench.scene import Holder
from cardledger.bench.workbench import Bench

_PART: Final = "growth"
_COUNT: Final = 16_000
_HOLDERS: Final = 4_000
_MILLION: Final = 1_000_000
_FILL: Final = 20_000  # Authorizations put in at a time.

_SIZE: Final = """
    SELECT sum(pg_total_relation_size(c.oid))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r'
"""


def measure(bench: Bench, *, millions: float, rounds: int, say: Say) -> Iterator[Figure]:
    """Yield the rate on an empty record and on one of `millions` of events."""
    holders = bench.holders(_HOLDERS)
    say("growth, empty")
    empty = _rate(bench, holders, "an empty record", rounds)
    yield empty
    yield from _bytes(bench, holders)
    say(f"growth, filling in {millions:g} million events")
    _fill(bench, holders, int(millions * _MILLION))
    say(f"growth, {millions:g} million events")
    full = _rate(bench, holders, f"{millions:g} million events", rounds)
    yield full
    name = f"rate at {millions:g} million stored events against empty"
    yield ratio(name, full, empty, part=_PART, least=0.85, aim=0.95)


def _rate(bench: Bench, holders: list[Holder], name: str, rounds: int) -> Figure:
    values = []
    for number in range(rounds + 1):
        wanted = scene.purchases(holders, _COUNT, seed=number, run=name)
        bench.accept(scene.authorizations(wanted))
        drained = bench.drain(threads=2)
        if number:  # The first round warms caches and plans.
            values.append(drained.rate)
    return Figure(part=_PART, name=f"authorizations, {name}", unit="/s", values=values)


def _bytes(bench: Bench, holders: list[Holder]) -> Iterator[Figure]:
    """Yield what one authorization writes: tables with their indexes, and the log."""
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        size, log = _sizes(connection)
        bench.accept(scene.authorizations(scene.purchases(holders, _COUNT, seed=1, run="bytes")))
        bench.drain()
        grown, written = _sizes(connection)
    for name, change in (("tables and indexes", grown - size), ("log (WAL)", written - log)):
        yield Figure(
            part=_PART,
            name=f"bytes an authorization, {name}",
            unit="B",
            values=[change / _COUNT],
            lower=True,
        )


def _sizes(connection: psycopg.Connection[tuple[int]]) -> tuple[int, int]:
    size = connection.execute(_SIZE).fetchone()
    log = connection.execute("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert size is not None
    assert log is not None
    return int(size[0]), int(log[0])


def _fill(bench: Bench, holders: list[Holder], events: int) -> None:
    """Have the engine decide purchases, two events each, until so many events are there.

    Through the front door: what the record looks like after a year, not what a copy would.
    """
    wanted = scene.purchases(holders, events // 2, seed=0, run="fill")
    for batch in scene.in_batches(wanted, _FILL):
        bench.accept(scene.authorizations(batch))
        bench.drain(threads=2, batch_size=2_000)
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        connection.execute("TRUNCATE outbox")  # Nobody is told; it would be the same at any size.
        connection.execute("VACUUM (ANALYZE)")
