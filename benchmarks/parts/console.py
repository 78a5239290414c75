"""How long the pages of the console take on a large record, and what they cost other callers.

A page counts from when it was due, so a page that waits for the one before it is slow as well.
Authorizations arrive all the time. Pages are measured while many people read; what they cost other
callers, while two people do: alone and beside their pages, in turn.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import psycopg

from benchmarks import load, workload
from benchmarks.load import LoadResult
from benchmarks.parts import finance, stored_events
from benchmarks.parts.engine import Progress
from benchmarks.parts.service import (
    Authorizations,
    Service,
    wait_until,
    wait_until_decided,
    wait_until_dispatched,
)
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench
from benchmarks.workload import Cardholder
from cardledger.api.console import ROOT
from cardledger.install.http_client import HttpApi
from cardledger.webhooks.receiver import Listener, Reply

_PART: Final = "console"
_CARDHOLDERS: Final = 4_000
_DAYS: Final = 30
_BUSY_SHARE: Final = 10  # One account has a tenth of all events.
_EXCEPTIONS: Final = 1_000
_DELIVERIES: Final = 1_000

_RATE: Final = 300  # Authorizations a second.
_PAGES_A_SECOND: Final = 4.0
_VISITS: Final = 20  # Of each page a round.
_PAGES_OF_TWO_A_SECOND: Final = 1.0
_SECONDS_OF_TWO: Final = 60.0
_MOST_MS: Final = 150
_MOST_BY_KEY_MS: Final = 50
_MOST_P99_RATIO: Final = 1.1

_BY_KEY: Final = {
    "search by id": "/search?q=CardTransaction:{purchase}",
    "search by source and reference": "/search?q={source}+{reference}",
    "a card transaction": "/card-transactions/CardTransaction:{purchase}",
    "a customer": "/customers/Customer:{customer}",
    "an account": "/accounts/InternalAccount:{account}",
    "an account of a tenth of all events": "/accounts/InternalAccount:{busy}",
    "a card": "/cards/Card:{card}",
    "an endpoint": "/webhooks/endpoints/{endpoint}",
    "a delivery": "/webhooks/deliveries/WebhookDelivery:{delivery}",
    "fund what is missing": "/exceptions/CardTransaction:{exception}/fund",
}
_OTHERS: Final = {
    "overview": "",
    "overview, its fragment": "/live",
    "card transactions": "/card-transactions",
    "card transactions in EXCEPTION": "/card-transactions?status=EXCEPTION",
    "card transactions of a card": "/card-transactions?cardId=Card:{card}",
    "card transactions of an account": "/card-transactions?accountId=InternalAccount:{account}",
    "card transactions of an account of a tenth": (
        "/card-transactions?accountId=InternalAccount:{busy}"
    ),
    "card transactions of a minute": "/card-transactions?since={minute}",
    "card transactions until a day": "/card-transactions?until={day}",
    "exceptions": "/exceptions",
    "customers": "/customers",
    "accounts": "/accounts",
    "cards": "/cards",
    "journal of today": "/journal",
    "journal of an account kind": "/journal?kind=CARD_HOLDS&currency=USD",
    "trial balance": "/trial-balance",
    "webhooks": "/webhooks",
    "deliveries": "/webhooks/deliveries",
    "deliveries of a minute": "/webhooks/deliveries?since={minute}",
    "simulator": "/simulator",
    "system": "/system",
}

_NAMES: Final = """
    SELECT t.id AS purchase, t.customer_id AS customer, t.account_id AS account, t.card_id AS card,
        o.source, o.reference
    FROM card_transactions t JOIN outcomes o ON o.subject_id = t.id
    WHERE t.customer_id = %s AND t.status = 'SETTLED'
    ORDER BY t.id DESC LIMIT 1
"""
_EXCEPTION: Final = "SELECT id FROM card_transactions WHERE status = 'EXCEPTION' LIMIT 1"
_DELIVERY: Final = "SELECT id FROM webhook_deliveries WHERE endpoint_id = %s LIMIT 1"
_DELIVERED: Final = """
    SELECT count(*) >= %s FROM webhook_deliveries WHERE endpoint_id = %s AND state = 'DELIVERED'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who has the stored events: `busy` a tenth of them, `holder` as many as each other."""

    busy: Cardholder
    holder: Cardholder


def write(bench: Bench, *, events: int, progress: Progress) -> Record:
    """Write so many events over the last `_DAYS` days."""
    progress(f"console: writing {events:,} events")
    [busy] = bench.cardholders(1)
    stored_events.write(bench, [busy], events // _BUSY_SHARE, lambda _: None, days=_DAYS)
    holders = bench.cardholders(_CARDHOLDERS)
    others = events - events // _BUSY_SHARE
    stored_events.write(bench, holders, others, lambda _: None, days=_DAYS)
    progress("console: adding totals")
    finance.add_totals(bench)
    return Record(busy=busy, holder=holders[0])


def measure(
    system: Service, *, events: int, rounds: int, progress: Progress, visits: int = _VISITS
) -> Iterator[Figure]:
    """Yield how long each page takes beside so many events, and authorizations beside the pages."""
    record = write(system.bench, events=events, progress=progress)
    names = _names(system, record, progress)
    pages = {name: path.format(**names) for name, path in {**_BY_KEY, **_OTHERS}.items()}
    seconds = len(pages) * visits / _PAGES_A_SECOND
    seconds_of_two = min(seconds, _SECONDS_OF_TWO)
    authorizations = Authorizations(_with_busy(system, record.busy))
    reader = _Reader(system, pages)
    progress("console: warming up")
    reader.check()
    asyncio.run(_beside(reader, authorizations, len(pages) / _PAGES_A_SECOND, _PAGES_A_SECOND))
    runs = _Runs()
    for number in range(rounds):
        progress(f"console: round {number + 1} of {rounds}")
        loaded, pages_read = asyncio.run(_beside(reader, authorizations, seconds, _PAGES_A_SECOND))
        runs.beside_many.append(loaded)
        runs.pages.append(pages_read)
        for is_beside in (False, True) if number % 2 else (True, False):
            if is_beside:
                run = _beside(reader, authorizations, seconds_of_two, _PAGES_OF_TWO_A_SECOND)
                runs.beside_two.append(asyncio.run(run)[0])
            else:
                runs.alone.append(authorizations.paced(_RATE, seconds=seconds_of_two))
    yield from _figures(runs)


def _with_busy(system: Service, busy: Cardholder) -> Service:
    """Return `system` with a tenth of what happens now on `busy`, too."""
    cardholders = list(system.cardholders)
    cardholders += [busy] * (len(cardholders) // (_BUSY_SHARE - 1))
    random.Random(1).shuffle(cardholders)
    return replace(system, cardholders=cardholders)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Latencies of authorizations, and of pages, of each round."""

    alone: list[LoadResult] = field(default_factory=list)
    beside_two: list[LoadResult] = field(default_factory=list)
    beside_many: list[LoadResult] = field(default_factory=list)
    pages: list[Mapping[str, LoadResult]] = field(default_factory=list)


def _figures(runs: _Runs) -> Iterator[Figure]:
    for name in (*_BY_KEY, *_OTHERS):
        yield Figure(
            part=_PART,
            name=f"page: {name}, p95",
            unit="ms",
            values=[results[name].quantile_ms(0.95) for results in runs.pages],
            least=_MOST_BY_KEY_MS if name in _BY_KEY else _MOST_MS,
            lower=True,
        )
    for share, quantile in ((0.5, "p50"), (0.99, "p99")):
        for what, results in (
            ("alone", runs.alone),
            (f"beside {_PAGES_OF_TWO_A_SECOND:.0f} page/s", runs.beside_two),
            (f"beside {_PAGES_A_SECOND:.0f} pages/s", runs.beside_many),
        ):
            yield Figure(
                part=_PART,
                name=f"HTTP authorization at {_RATE}/s {what}, {quantile}",
                unit="ms",
                values=[result.quantile_ms(share) for result in results],
                lower=True,
            )
    yield Figure(
        part=_PART,
        name=f"HTTP authorization, p99 beside {_PAGES_OF_TWO_A_SECOND:.0f} page/s to alone",
        unit="ratio",
        values=[
            with_pages.quantile_ms(0.99) / without.quantile_ms(0.99)
            for with_pages, without in zip(runs.beside_two, runs.alone, strict=True)
        ],
        least=_MOST_P99_RATIO,
        lower=True,
    )


class _Reader:
    """A browser that has logged in and reads the pages in turn, each on a connection of its own."""

    def __init__(self, system: Service, pages: Mapping[str, str]) -> None:
        url = urlsplit(system.running.base_url)
        assert url.hostname is not None
        self._host: Final = url.hostname
        self._port: Final = url.port or 80
        self._cookie: Final = self._log_in(system)
        self._pages: Final = pages

    def _log_in(self, system: Service) -> str:
        running = system.running
        form = urlencode({"client_id": running.client_id, "client_secret": running.client_secret})
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self._host}:{self._port}",
        }
        connection = HTTPConnection(self._host, self._port)
        connection.request("POST", f"{ROOT}/login", form, headers)
        response = connection.getresponse()
        cookie = response.getheader("Set-Cookie") or ""
        connection.close()
        assert cookie, f"no session: {response.status}"
        return cookie.partition(";")[0]

    def check(self) -> None:
        """Read every page once. Raises: AssertionError when one is not answered with 200."""
        headers = {"Cookie": self._cookie, "Accept": "text/html"}
        with closing(HTTPConnection(self._host, self._port)) as connection:
            for name, path in self._pages.items():
                connection.request("GET", f"{ROOT}{path}", headers=headers)
                response = connection.getresponse()
                response.read()
                # A search leads to what it has found.
                assert response.status in {200, 303}, f"{name}: {response.status}"

    async def read(self, seconds: float, pages_a_second: float) -> dict[str, LoadResult]:
        """Read so many pages a second, in turn; return the latencies of each."""
        results = await asyncio.gather(
            *(
                self._read(number, path, seconds, pages_a_second)
                for number, path in enumerate(self._pages.values())
            )
        )
        return dict(zip(self._pages, results, strict=True))

    async def _read(
        self, number: int, path: str, seconds: float, pages_a_second: float
    ) -> LoadResult:
        await asyncio.sleep(number / pages_a_second)
        request = load.page(self._host, f"{ROOT}{path}", self._cookie)
        rate = pages_a_second / len(self._pages)
        return await load.paced(self._host, self._port, lambda: request, rate=rate, seconds=seconds)


async def _beside(
    reader: _Reader, authorizations: Authorizations, seconds: float, pages_a_second: float
) -> tuple[LoadResult, Mapping[str, LoadResult]]:
    """Return the latencies of authorizations, and those of the pages that are read meanwhile."""
    return await asyncio.gather(
        authorizations.pacing(_RATE, seconds=seconds), reader.read(seconds, pages_a_second)
    )


def _names(system: Service, record: Record, progress: Progress) -> dict[str, Any]:
    """Return the ids of what the pages are about, after having made what is missing."""
    progress(f"console: {_EXCEPTIONS:,} exceptions and {_DELIVERIES:,} deliveries")
    running = system.running
    with (
        Listener(lambda _headers, _body: Reply()) as receiver,
        HttpApi(running.base_url, running.client_id, running.client_secret) as api,
        psycopg.connect(system.bench.owner_url, autocommit=True) as connection,
    ):
        request = {"url": receiver.url, "eventTypes": ["CARD_TRANSACTION.*"]}
        endpoint = api.post("/webhooks/endpoints", request)["id"]
        key = endpoint.rpartition(":")[2]
        poor = system.bench.cardholders(_EXCEPTIONS)
        wanted = workload.purchases(poor, _EXCEPTIONS, seed=1, run="exceptions")
        system.bench.accept(workload.authorizations(wanted))
        system.bench.accept(workload.overdrafts(wanted))
        wait_until_decided(system)
        wait_until_dispatched(system)
        wait_until(
            lambda: bool(_one(connection, _DELIVERED, _DELIVERIES, key)[0]), "webhooks delivered"
        )
        api.patch(f"/webhooks/endpoints/{endpoint}", {"state": "DISABLED"})
        connection.execute("VACUUM (ANALYZE)")
        now = datetime.now(UTC)
        purchase, customer, account, card, source, reference = _one(
            connection, _NAMES, record.holder.owner.customer_id
        )
        return {
            "purchase": purchase,
            "customer": customer,
            "account": account,
            "card": card,
            "source": source,
            "reference": reference,
            "busy": record.busy.account_id,
            "endpoint": endpoint,
            "exception": _one(connection, _EXCEPTION)[0],
            "delivery": _one(connection, _DELIVERY, key)[0],
            "minute": f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}",
            "day": f"{now - timedelta(days=_DAYS // 2):%Y-%m-%d}",
        }


def _one(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:  # noqa: ANN401
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row
