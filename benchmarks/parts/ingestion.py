"""Files of events over HTTP, beside the same number of events by `cardledger submit`."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from benchmarks import workload
from benchmarks.parts import service
from benchmarks.parts.engine import Progress
from benchmarks.parts.service import Service
from benchmarks.results.figures import Figure
from cardledger.api.ingestion.bodies import MAX_EVENTS, NDJSON, PATH
from cardledger.config.errors import CommandError
from cardledger.ledger.messaging.inbox import Message

_PART: Final = "ingestion"
_REQUESTS: Final = 4  # A round; `submit` gets as many events in one file.
_TIMEOUT_S: Final = 300.0
_OK: Final = 200


def measure(
    system: Service, *, rounds: int, progress: Progress, events: int = _REQUESTS * MAX_EVENTS
) -> Iterator[Figure]:
    """Yield the rate of `POST /network-events` and its ratio to that of `submit`, round by round.

    Both decide clearings, each of an authorization of its own; neither rate has the start of the
    command in it that only `submit` has.
    """
    posted_rates: list[float] = []
    ratios: list[float] = []
    for number in range(rounds + 1):
        progress(f"ingestion: round {number} of {rounds}")
        by_http, by_file = (
            _clearings(system, f"{how}-{number}", events) for how in ("post", "submit")
        )
        posted = _posted(system, by_http)
        submitted = _submitted(system, by_file)
        if number:  # The first round warms caches and plans.
            posted_rates.append(posted)
            ratios.append(posted / submitted)
    name = f"events by POST /network-events, {MAX_EVENTS:,} a request"
    yield Figure(part=_PART, name=name, unit="/s", values=posted_rates)
    yield Figure(
        part=_PART, name=f"{name}, to submit", unit="ratio", values=ratios, least=0.6, aim=0.9
    )


def _clearings(system: Service, run: str, count: int) -> Sequence[Message]:
    """Return clearings of authorizations that are decided, and whose webhooks are dispatched."""
    wanted = workload.purchases(system.cardholders, count, seed=1, run=run)
    system.bench.accept(workload.authorizations(wanted))
    service.wait_until_decided(system)
    service.wait_until_dispatched(system)
    return workload.clearings(wanted)


def _posted(system: Service, clearings: Sequence[Message]) -> float:
    """Return how many of `clearings` were decided a second, one request after the other."""
    url = urlsplit(system.running.base_url)
    headers = {"Content-Type": NDJSON, "Authorization": service.authorization_of(system)}
    bodies = [
        _lines(clearings[start : start + MAX_EVENTS])
        for start in range(0, len(clearings), MAX_EVENTS)
    ]
    connection = HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    began = perf_counter()
    for body in bodies:
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        outcomes = [json.loads(line).get("outcome") for line in response]
        if response.status != _OK or outcomes != ["APPLIED"] * body.count(b"\n"):
            raise CommandError(
                f"POST {PATH}: {response.status}, {outcomes.count('APPLIED')} applied"
            )
    rate = len(clearings) / (perf_counter() - began)
    connection.close()
    return rate


def _submitted(system: Service, clearings: Sequence[Message]) -> float:
    """Return how many of `clearings` `submit` had decided a second, without its start."""
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        none, file = Path(directory) / "none.jsonl", Path(directory) / "clearings.jsonl"
        none.write_bytes(b"")
        file.write_bytes(_lines(clearings))
        environment = service.environment_of(system)
        started_s = service.submitted(none, environment, lines=0)
        took_s = service.submitted(file, environment, lines=len(clearings))
    return len(clearings) / (took_s - started_s)


def _lines(messages: Sequence[Message]) -> bytes:
    return b"".join(json.dumps(message.body).encode() + b"\n" for message in messages)
