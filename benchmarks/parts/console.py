"""How long the pages of the console take on a large record, and what they cost other callers.

A page counts from when it was due, so a page that waits for the one before it is slow as well.
Authorizations arrive all the time. Pages are measured while many people read; what they cost other
callers, while two people do.

That cost is a ratio of two p99, which the machine changes more than the pages do: a checkpoint, or
a neighbour, makes one minute slower than the next. So the minute alone and the minute beside pages
of a round are cut into windows of ten seconds, by turns, each pair in the other order than the one
before it: what lasts longer than a window meets both kinds. The samples of all windows of a kind
are pooled before their p99 is taken, since a window alone has thirty samples above it. How far to
trust the ratio is shown by those of the two halves of the run.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import psycopg

from benchmarks import load, workload
from benchmarks.load import LoadResult
from benchmarks.parts import finance, stored_deliveries, stored_events
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
from cardledger.api.console.access import forms
from cardledger.install.http_client import HttpApi
from cardledger.webhooks.receiver import Listener, Reply

_PART: Final = "console"
_CARDHOLDERS: Final = 4_000
_DAYS: Final = 30
_BUSY_SHARE: Final = 10  # One account has a tenth of all events.
_EXCEPTIONS: Final = 1_000
_DELIVERIES: Final = 100_000

_RATE: Final = 300  # Authorizations a second.
_PAGES_A_SECOND: Final = 4.0
_VISITS: Final = 20  # Of each page a round.
_PAGES_OF_TWO_A_SECOND: Final = 1.0
_WINDOWS: Final = 6  # Of a round, of each kind.
_WINDOW_S: Final = 10.0
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
    "a statement until a day": "/accounts/InternalAccount:{account}?until={day}",
    "a statement of a tenth of all events until a day": (
        "/accounts/InternalAccount:{busy}?until={day}"
    ),
    "a card": "/cards/Card:{card}",
    "an endpoint": "/webhooks/endpoints/{endpoint}",
    "a delivery": "/webhooks/deliveries/WebhookDelivery:{delivery}",
    "fund what is missing": "/exceptions/CardTransaction:{exception}/fund",
    "a card in the simulator": "/simulator/cards/Card:{card}?purchase=CardTransaction:{purchase}",
    "fund an account": "/simulator/cards/Card:{card}/fund?amount=1.00+USD",
    "payments from outside": "/simulator/payments",
    "pay a quote": "/simulator/payments/send?quote={quote}",
    "receive a payment": (
        "/simulator/payments/receive?sender=$a.usd@sandbox.uma.money&receiver={receiver}"
        "&amount=1.00+USD"
    ),
    "a story": (
        "/simulator/stories/tip?run={run}&card=Card:{card}&account=InternalAccount:{account}"
        "&purchase=CardTransaction:{purchase}&step=1"
    ),
}
_OTHERS: Final = {
    "overview": "",
    "overview, its fragment": "/live",
    "card transactions": "/card-transactions",
    "card transactions in EXCEPTION": "/card-transactions?status=EXCEPTION",
    "card transactions in AUTHORIZED": "/card-transactions?status=AUTHORIZED",
    "card transactions in VOIDED": "/card-transactions?status=VOIDED",
    "card transactions of a least amount": "/card-transactions?minAmount=9000.00+USD",
    "card transactions of a card": "/card-transactions?cardId=Card:{card}",
    "card transactions of a customer": "/card-transactions?customerId=Customer:{customer}",
    "card transactions of an account": "/card-transactions?accountId=InternalAccount:{account}",
    "card transactions of an account of a tenth": (
        "/card-transactions?accountId=InternalAccount:{busy}"
    ),
    "card transactions of an account of a tenth in VOIDED": (
        "/card-transactions?accountId=InternalAccount:{busy}&status=VOIDED"
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
    "deliveries in FAILED": "/webhooks/deliveries?state=FAILED",
    "deliveries to an endpoint": "/webhooks/deliveries?endpointId={endpoint}",
    "deliveries about a card transaction": (
        "/webhooks/deliveries?subjectId=CardTransaction:{exception}"
    ),
    "deliveries of a minute": "/webhooks/deliveries?since={minute}",
    "simulator": "/simulator",
    "system": "/system",
}
PAGES: Final[Mapping[str, str]] = {**_BY_KEY, **_OTHERS}
"""What is measured: addresses below the console, with names of what `_names` returns in braces."""

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
    pages = {name: path.format(**names) for name, path in PAGES.items()}
    seconds = len(pages) * visits / _PAGES_A_SECOND
    authorizations = Authorizations(_with_busy(system, record.busy))
    reader = Reader(system, pages)
    progress("console: warming up")
    reader.check()
    asyncio.run(_beside(reader, authorizations, len(pages) / _PAGES_A_SECOND))
    runs = _Runs()
    for number in range(rounds):
        progress(f"console: round {number + 1} of {rounds}")
        loaded, pages_read = asyncio.run(_beside(reader, authorizations, seconds))
        runs.beside_many.append(loaded)
        runs.pages.append(pages_read)
        window_s = min(seconds / _WINDOWS, _WINDOW_S)
        for is_beside in by_turns(_WINDOWS):
            if is_beside:
                run = _beside_two(reader, authorizations, window_s)
                runs.beside_two.append(asyncio.run(run))
            else:
                runs.alone.append(authorizations.paced(_RATE, seconds=window_s))
    yield from _figures(runs)


def by_turns(count: int) -> Iterator[bool]:
    """Yield which windows are beside pages, of `count` of each kind: each pair in another order."""
    for number in range(count):
        yield from (False, True) if number % 2 else (True, False)


def _with_busy(system: Service, busy: Cardholder) -> Service:
    """Return `system` with a tenth of what happens now on `busy`, too."""
    cardholders = list(system.cardholders)
    cardholders += [busy] * (len(cardholders) // (_BUSY_SHARE - 1))
    random.Random(1).shuffle(cardholders)
    return replace(system, cardholders=cardholders)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Latencies of authorizations and of pages: of each round; with two people of each window."""

    alone: list[LoadResult] = field(default_factory=list)
    beside_two: list[LoadResult] = field(default_factory=list)
    beside_many: list[LoadResult] = field(default_factory=list)
    pages: list[Mapping[str, LoadResult]] = field(default_factory=list)


def _figures(runs: _Runs) -> Iterator[Figure]:
    for name in PAGES:
        yield Figure(
            part=_PART,
            name=f"page: {name}, p95",
            unit="ms",
            values=[results[name].quantile_ms(0.95) for results in runs.pages],
            least=_MOST_BY_KEY_MS if name in _BY_KEY else _MOST_MS,
            lower=True,
        )
    yield Figure(
        part=_PART,
        name="pages that were not answered, or with an error",
        unit="",
        values=[sum(map(_failed, results.values())) for results in runs.pages],
        least=0,
        lower=True,
    )
    of_two = f"beside {_PAGES_OF_TWO_A_SECOND:.0f} page/s"
    for share, quantile in ((0.5, "p50"), (0.99, "p99")):
        name = f"HTTP authorization at {_RATE}/s {{}}, {quantile}"
        for what, windows in (("alone", runs.alone), (of_two, runs.beside_two)):
            yield _pooled(name.format(what), "ms", _quantile(share), windows)
        yield Figure(
            part=_PART,
            name=name.format(f"beside {_PAGES_A_SECOND:.0f} pages/s"),
            unit="ms",
            values=[result.quantile_ms(share) for result in runs.beside_many],
            lower=True,
        )
    yield _pooled(
        f"HTTP authorization, p99 {of_two} to alone",
        "ratio",
        lambda beside, alone: beside.quantile_ms(0.99) / alone.quantile_ms(0.99),
        runs.beside_two,
        runs.alone,
        least=_MOST_P99_RATIO,
    )


def _failed(pages: LoadResult) -> int:
    """Return how many `pages` were neither read nor led to another one, as a search does."""
    return sum(count for status, count in pages.statuses.items() if status not in {200, 303})


def _quantile(share: float) -> Callable[[LoadResult], float]:
    return lambda result: result.quantile_ms(share)


def _pooled(
    name: str,
    unit: str,
    value: Callable[..., float],
    *windows: Sequence[LoadResult],
    least: float | None = None,
) -> Figure:
    """Return the `value` of all windows of each kind, and those of both halves of the run."""
    middle = len(windows[0]) // 2
    return Figure(
        part=_PART,
        name=name,
        unit=unit,
        values=[
            value(*(load.pooled(each[:middle]) for each in windows)),
            value(*(load.pooled(each[middle:]) for each in windows)),
        ],
        least=least,
        lower=True,
        pooled=value(*(load.pooled(each) for each in windows)),
    )


class Reader:
    """A browser that has logged in and reads the pages in turn, each on a connection of its own."""

    def __init__(self, system: Service, pages: Mapping[str, str]) -> None:
        url = urlsplit(system.running.base_url)
        assert url.hostname is not None
        self._host: Final = url.hostname
        self._port: Final = url.port or 80
        self._cookie: Final = self._log_in(system)
        self._pages: Final = pages
        self._in_turn: Final = itertools.cycle([self._request(path) for path in pages.values()])

    def _request(self, path: str) -> bytes:
        return load.page(self._host, f"{ROOT}{path}", self._cookie)

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

    async def read(self, seconds: float) -> dict[str, LoadResult]:
        """Read pages in turn, as many people do; return the latencies of each."""
        results = await asyncio.gather(
            *(self._read(number, path, seconds) for number, path in enumerate(self._pages.values()))
        )
        return dict(zip(self._pages, results, strict=True))

    async def _read(self, number: int, path: str, seconds: float) -> LoadResult:
        await asyncio.sleep(number / _PAGES_A_SECOND)
        request = self._request(path)
        rate = _PAGES_A_SECOND / len(self._pages)
        return await load.paced(self._host, self._port, lambda: request, rate=rate, seconds=seconds)

    async def read_on(self, seconds: float) -> LoadResult:
        """Read pages in turn, as two people do, from where that ended the last time."""
        rate = _PAGES_OF_TWO_A_SECOND
        return await load.paced(
            self._host, self._port, lambda: next(self._in_turn), rate=rate, seconds=seconds
        )


async def _beside(
    reader: Reader, authorizations: Authorizations, seconds: float
) -> tuple[LoadResult, Mapping[str, LoadResult]]:
    """Return the latencies of authorizations, and those of the pages that are read meanwhile."""
    return await asyncio.gather(authorizations.pacing(_RATE, seconds=seconds), reader.read(seconds))


async def _beside_two(reader: Reader, authorizations: Authorizations, seconds: float) -> LoadResult:
    """Return the latencies of authorizations while two people read pages."""
    loaded, _ = await asyncio.gather(
        authorizations.pacing(_RATE, seconds=seconds), reader.read_on(seconds)
    )
    return loaded


def _names(system: Service, record: Record, progress: Progress) -> dict[str, Any]:
    """Return what the addresses of the pages need, after having made what is missing."""
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
            lambda: bool(_one(connection, _DELIVERED, _EXCEPTIONS, key)[0]), "webhooks delivered"
        )
        api.patch(f"/webhooks/endpoints/{endpoint}", {"state": "DISABLED"})
        receiver_id, quote = _quote(api, connection)
        platform = system.bench.platform_id
        stored_deliveries.write(connection, platform=platform, endpoint=key, count=_DELIVERIES)
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
            "quote": quote,
            "receiver": receiver_id,
            "run": forms.new_key(),
            "minute": f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}",
            "day": f"{now - timedelta(days=_DAYS // 2):%Y-%m-%d}",
        }


def _quote(api: HttpApi, connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """Make a customer, and a quote of it that is paid from outside; return their public ids."""
    customer = api.post("/customers", {"customerType": "INDIVIDUAL", "fullName": "Ada"})["id"]
    owned = api.get(f"/customers/internal-accounts?customerId={customer}")["data"]
    [other] = [each["id"] for each in owned if each["balance"]["currency"]["code"] == "USDC"]
    funding = {"sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": customer}
    request = {
        "source": funding,
        "destination": {"destinationType": "ACCOUNT", "accountId": other},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 10_000,
    }
    quote = api.post("/quotes", request)["id"]
    # It would expire after five minutes, before the last round.
    connection.execute(
        "UPDATE quotes SET expires_at = expires_at + interval '1 day' WHERE id = %s",
        [quote.partition(":")[2]],
    )
    return customer, quote


def _one(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:  # noqa: ANN401
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row
