"""How fast `verify` audits the ledger, and how fast roll-ups are rebuilt from their events."""

import json
from collections.abc import Iterator
from time import perf_counter
from typing import Final

import psycopg

from benchmarks import workbench, workload
from benchmarks.parts import stored_events
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench
from cardledger.ledger.projections import history

_PART: Final = "proof"
_MILLION: Final = 1_000_000
_CARDHOLDERS: Final = 4_000
_REBUILT: Final = 40_000
_PAGE: Final = 2_000


def measure(
    bench: Bench, *, rounds: int, progress: Progress, events: int = _MILLION
) -> Iterator[Figure]:
    """Yield how long `verify` takes for a million events, and how fast roll-ups are rebuilt."""
    progress(f"proof: writing {events:,} events")
    stored_events.write(bench, bench.cardholders(_CARDHOLDERS), events, lambda _events: None)
    progress("proof: roll-ups from their events")
    yield Figure(
        part=_PART,
        name="roll-ups rebuilt from their events",
        unit="/s",
        values=[_rebuild(bench) for _ in range(rounds)],
    )
    progress("proof: verify")
    verified, seconds, memory_mb = _verify(bench)
    yield Figure(
        part=_PART,
        name="verify, a million events",
        unit="s",
        values=[seconds * _MILLION / verified],
        least=60,
        aim=20,
        lower=True,
    )
    yield Figure(
        part=_PART,
        name=f"memory of verify at most, {verified / _MILLION:.1f} million events",
        unit="MB",
        values=[memory_mb],
        lower=True,
    )


def _rebuild(bench: Bench) -> float:
    """Fold the events of many card transactions; returns how many a second."""
    with psycopg.connect(bench.app_url) as connection:
        places = connection.execute(
            "SELECT id, sequence FROM card_transactions ORDER BY id LIMIT %s", [_REBUILT]
        ).fetchall()
        started = perf_counter()
        rebuilt = sum(
            len(history.at(connection, page)) for page in workload.in_batches(places, _PAGE)
        )
        seconds = perf_counter() - started
    assert rebuilt == len(places), "every card transaction has events"
    return rebuilt / seconds


def _verify(bench: Bench) -> tuple[int, float, float]:
    """Run the command; returns the events it folded, the seconds it took and its memory in MB."""
    ran = workbench.run_command(bench.app_url, "verify", "--json")
    return int(json.loads(ran.output)["events"]), ran.seconds, ran.memory_mb
