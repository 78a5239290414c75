"""`python -m benchmarks.parts.tenants`: what the load of one platform costs another.

One platform sends authorizations at a low, fixed rate: first alone, then while another one sends on
256 connections as fast as it is answered, in turn, round by round.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.load import LoadResult
from benchmarks.parts.service import Authorizations, Service, service
from benchmarks.workbench import SECRET_KEY, Bench, bench, server
from cardledger.install import credentials
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id

_RATE: Final = 20.0
_CARDHOLDERS: Final = 200
_LEAD_S: Final = 1.0  # Of the load, before it is measured what it costs.


@dataclass(frozen=True, slots=True)
class Round:
    """The latencies of the small platform, without and with load, and the rate of the load."""

    quiet: LoadResult
    loaded: LoadResult
    load_rate: float


def neighbour_of(system: Service) -> Service:
    """Return the same system as another platform uses it, with cardholders of its own."""
    keys = KeyRing(SECRET_KEY)
    made = credentials.create_platform(system.running.database_url, "Neighbour", keys)
    own = Bench(
        owner_url=system.bench.owner_url,
        app_url=system.bench.app_url,
        platform_id=Id.parse(made.access.platform_id),
    )
    running = replace(
        system.running,
        client_id=made.access.client_id,
        client_secret=made.access.client_secret,
    )
    return Service(
        bench=own,
        data_dir=system.data_dir,
        running=running,
        cardholders=own.cardholders(_CARDHOLDERS),
    )


@contextmanager
def _load(system: Service, connections: int, seconds: float) -> Iterator[list[float]]:
    """Send on `connections` of another process meanwhile; yields a list that gets the rate."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(system, connections, seconds, sender))
    process.start()
    rates: list[float] = []
    try:
        receiver.recv()  # It has begun.
        yield rates
        rates.append(receiver.recv())
    finally:
        process.join()


def _send(
    system: Service,
    connections: int,
    seconds: float,
    report: Connection,
) -> None:
    authorizations = Authorizations(system)
    authorizations.closed(connections=connections, seconds=_LEAD_S)
    report.send(None)
    report.send(authorizations.closed(connections=connections, seconds=seconds).rate)


def measure(system: Service, *, connections: int, seconds: float, rounds: int) -> Sequence[Round]:
    """Return `rounds` of the latencies of a platform that has such a neighbour."""
    small = Authorizations(neighbour_of(system))
    small.paced(_RATE, seconds=2.0)
    measured = []
    for _ in range(rounds):
        quiet = small.paced(_RATE, seconds=seconds)
        with _load(system, connections, seconds + _LEAD_S) as rates:
            loaded = small.paced(_RATE, seconds=seconds)
        measured.append(Round(quiet, loaded, rates[0]))
    assert not small.failed, f"{small.failed} requests failed"
    return measured


def _main(
    *,
    connections: Annotated[int, typer.Option(help="Of the large platform.", min=1)] = 256,
    seconds: Annotated[float, typer.Option(help="Of each measurement.", min=1)] = 5.0,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Measure what the load of one platform costs another."""
    with server(None) as postgres, bench(postgres) as made, service(made) as system:
        found = measure(system, connections=connections, seconds=seconds, rounds=rounds)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        quiet = median(each.quiet.quantile_ms(share) for each in found)
        loaded = median(each.loaded.quantile_ms(share) for each in found)
        print(
            f"{name}: {quiet:.1f} ms alone, {loaded:.1f} ms beside {connections} connections of"
            f" another platform: {loaded / quiet:.1f} times"
        )
    print(f"the other platform: {median(each.load_rate for each in found):,.0f} a second")


if __name__ == "__main__":
    typer.run(_main)
