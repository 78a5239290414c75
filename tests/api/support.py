"""Shared by tests of the HTTP interface: API server, worker, platform, tokens, steps."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import httpx2
import psycopg
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig, create_app
from cardledger.api.connections.limits import ConnectionLimits
from cardledger.api.connections.server import server_config
from cardledger.api.health.examination import Examine
from cardledger.ledger.engine import rejections
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging.inbox import UNROUTED
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from tests.api import contract
from tests.connection_guard import GuardedApp
from tests.databases import as_role
from tests.waiting import eventually, limit_s
from tests.worker_process import worker_process

SECRET_KEY = "a secret key that only tests use, long enough"
ALL = ("VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS", "INGEST")
TIMEOUT_S = limit_s()


@dataclass(frozen=True)
class Tenant:
    """A platform and the credentials of one of its tokens."""

    platform_id: Id
    client_id: str
    client_secret: str


AGENT_POLICY = {
    "permissions": ["VIEW_TRANSACTIONS", "MANAGE_EXTERNAL_ACCOUNTS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 5},
}


def rejected(
    database_url: str, api: "Api", event: Mapping[str, Any], *, reason: str = "MALFORMED"
) -> str:
    """Insert a rejection of `event`, as the client does, for the platform of `api`.

    Returns its id.
    """
    record = RejectionRecord(
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=api.tenant.platform_id,
        source=event.get("source"),
        reference=event.get("reference"),
        body=json.dumps(event),
        reason=reason,
        detail=None,
        recorded_at=datetime.now(UTC),
    )

    async def keep() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await rejections.keep(connection, [record], InboxKey(SECRET_KEY))

    asyncio.run(keep())
    return f"Rejection:{record.id}"


_PARK = """
    INSERT INTO parked (id, customer_id, card_id, issuer_transaction_token, body, received_at)
    SELECT %s, customer_id, id, %s, %s, now() FROM cards WHERE id = %s
"""


def parked(database_url: str, card_id: str, reference: str) -> str:
    """Park a clearing reversal of 5.00 USD, as the engine does; return the id of the event.

    Its token is its reference.
    """
    key = new_id()
    event = {
        "type": "CLEARING_REVERSAL",
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": reference,
        "cardId": card_id,
        "amount": 500,
        "currency": "USD",
    }
    with psycopg.connect(as_role(database_url, Role.WORKER)) as connection:
        values = [key, reference, json.dumps(event), card_id.removeprefix("Card:")]
        connection.execute(_PARK, values)
    return f"ParkedEvent:{key}"


def new_tenant(
    database_url: str,
    *,
    permissions: tuple[str, ...] = ALL,
    currencies: tuple[str, ...] = ("USD", "EUR", "USDC"),
    of: Tenant | None = None,
) -> Tenant:
    """Set up a platform with one token, or another token `of` a platform, as an operator does."""

    async def make() -> Tenant:
        keys = KeyRing(SECRET_KEY)
        engine = async_engine(as_role(database_url, Role.APP))
        async with engine.begin() as connection:
            platform_id = (
                of.platform_id
                if of
                else (
                    await platforms.create(
                        connection, name="Acme", keys=keys, currencies=currencies
                    )
                ).id
            )
            client_id, client_secret = await api_tokens.create(
                connection,
                platform_id=platform_id,
                name="test",
                permissions=permissions,
                keys=keys,
            )
        await engine.dispose()
        return Tenant(platform_id, client_id, client_secret)

    return asyncio.run(make())


@contextmanager
def worker(database_url: str, redis_url: str, *, sandbox: bool = True) -> Iterator[int]:
    """Run the processes of a worker, one for each role; yields the id of the one for events."""
    config = WorkerConfig(
        database_url=as_role(database_url, Role.WORKER),
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.EVENTS,
        threads=4,
        webhook_retry_scale=0.001,
        sandbox_delay_s=0.5,
        sandbox=sandbox,
    )
    webhooks = replace(
        config,
        database_url=as_role(database_url, Role.WEBHOOKS),
        role=WorkerRole.WEBHOOKS,
    )
    with worker_process(config) as pid, worker_process(webhooks):
        yield pid


class LoopWatch:
    """Measures the longest time for which the event loop of an application does a single thing.

    In processor time of its thread, which hardly depends on the load of the machine.
    """

    LIMIT_S = 0.05

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._beats = 0

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return `app`, whose event loop is watched from its start."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                self._beat(asyncio.get_running_loop(), time.thread_time())
            await app(scope, receive, send)

        return watched

    def _beat(self, loop: asyncio.AbstractEventLoop, last: float) -> None:
        now = time.thread_time()
        self._longest_s = max(self._longest_s, now - last)
        self._beats += 1
        loop.call_later(0.001, self._beat, loop, now)

    def assert_not_blocked_by(self, requests: Callable[[], object]) -> None:
        """Assert that nothing of `requests` takes the event loop longer than the limit.

        They are repeated where it seems so: a virtual machine may count what it waited for its
        host as time of the thread that ran, but hardly three times in a row. So what blocks it
        once only, as the first use of a statement does, is not found.
        """
        took_s = list[float]()
        while len(took_s) < 3:
            self.longest_s()
            requests()
            took_s.append(self.longest_s())
            if took_s[-1] < self.LIMIT_S:
                return
        raise AssertionError(f"the event loop did one thing for {took_s} seconds")

    def longest_s(self) -> float:
        """Return the longest time since the last call."""
        seen = self._beats
        eventually(lambda: self._beats > seen + 1, poll_s=0.001)
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


@contextmanager
def server(
    config: ApiConfig,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    examine: Examine | None = None,
    limits: ConnectionLimits | None = None,
    watch: LoopWatch | None = None,
) -> Iterator[str]:
    """Serve the application on a free port; yields the URL of its root."""
    app: ASGIApp = GuardedApp(create_app(config, clock=clock, examine=examine))
    with serving(watch.wrap(app) if watch else app, limits) as served:
        yield url_of(served)


@contextmanager
def serving(app: ASGIApp, limits: ConnectionLimits | None = None) -> Iterator[uvicorn.Server]:
    """Serve `app` on a free port, as an API process does; yields its server."""
    within = limits or ConnectionLimits(head_timeout_s=TIMEOUT_S, stall_timeout_s=TIMEOUT_S)
    served = uvicorn.Server(server_config(app, within, host="127.0.0.1", port=0))
    thread = threading.Thread(target=served.run)
    thread.start()
    eventually(lambda: served.started or not thread.is_alive())
    assert thread.is_alive(), "the server did not start"
    try:
        yield served
    finally:
        served.should_exit = True
        thread.join(limit_s())


def url_of(served: uvicorn.Server) -> str:
    """Return the URL of the root of a server that has started."""
    [listening] = served.servers[0].sockets
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def closed_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Api:
    """A client of the API with the credentials of one token."""

    def __init__(self, root: str, tenant: Tenant) -> None:
        self.root = root
        self.tenant = tenant
        self.http = httpx2.Client(
            base_url=root + BASE_PATH,
            auth=(tenant.client_id, tenant.client_secret),
            timeout=TIMEOUT_S,
            event_hooks={"response": [contract.hold]},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **query: object) -> httpx2.Response:
        return self.http.get(path, params={name: str(value) for name, value in query.items()})

    def post(self, path: str, body: object) -> httpx2.Response:
        return self.http.post(path, json=body)

    def patch(self, path: str, body: object) -> httpx2.Response:
        return self.http.patch(path, json=body)

    def delete(self, path: str) -> httpx2.Response:
        return self.http.delete(path)

    def simulate(self, card_id: str, name: str, body: object) -> httpx2.Response:
        return self.post(f"/sandbox/cards/{card_id}/simulate/{name}", body)

    def raw(self, method: str, path: str, content: bytes | str, **headers: str) -> httpx2.Response:
        sent = {"content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self.http.request(method, path, content=content, headers=sent)

    # --- steps -----------------------------------------------------------------------------

    def uma_domain(self) -> str:
        """Return the platform's own domain, which is set when it had none."""
        domain = f"{self.tenant.platform_id}.example.com".lower()
        return str(ok(self.patch("/config", {"umaDomain": domain}))["umaDomain"])

    def customer(self, **fields: object) -> dict[str, Any]:
        return made(
            self.post("/customers", {"customerType": "INDIVIDUAL", "fullName": "Ada", **fields})
        )

    def account(self, customer_id: str, currency: str = "USD") -> dict[str, Any]:
        listed = self.get("/customers/internal-accounts", customerId=customer_id, currency=currency)
        [account] = ok(listed)["data"]
        assert isinstance(account, dict)
        return account

    def fund(self, account_id: str, amount: int) -> dict[str, Any]:
        return ok(self.post(f"/sandbox/internal-accounts/{account_id}/fund", {"amount": amount}))

    def card(self, customer_id: str, account_ids: list[str], **fields: object) -> dict[str, Any]:
        request = {"cardholderId": customer_id, "form": "VIRTUAL", "fundingSources": account_ids}
        return made(self.post("/cards", request | fields))

    def active_card(self, balance: int = 50_000, **fields: object) -> dict[str, Any]:
        """Return a card of a new customer with `balance` on its account, ready to be used."""
        customer = self.customer()
        account = self.account(customer["id"])
        if balance:
            self.fund(account["id"], balance)
        card = self.card(customer["id"], [account["id"]], **fields)
        return self.wait_for_state(card["id"], "ACTIVE")

    def agent(self, customer_id: str) -> dict[str, Any]:
        """Return a new agent of a customer, with the code that connects it."""
        request = {"name": "Bookkeeper", "customerId": customer_id, "policy": AGENT_POLICY}
        return made(self.post("/agents", request))

    def agent_token(self, customer_id: str) -> str:
        """Return the access token of a new agent of a customer."""
        code = self.agent(customer_id)["deviceCode"]["code"]
        return str(ok(redeem(self.root, code))["accessToken"])

    def wait_for_state(self, card_id: str, state: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            card = ok(self.get(f"/cards/{card_id}"))
            return card if card["state"] == state else None

        return eventually(look)

    def authorize(self, card_id: str, amount: int, **merchant: object) -> dict[str, Any]:
        body = authorization(amount) | {"merchant": {"descriptor": "RESTAURANT 9", **merchant}}
        return ok(self.post(f"/sandbox/cards/{card_id}/simulate/authorization", body))

    def clear(self, card_id: str, card_transaction_id: str, amount: int) -> dict[str, Any]:
        body = {"cardTransactionId": card_transaction_id, "amount": amount}
        return ok(self.post(f"/sandbox/cards/{card_id}/simulate/clearing", body))


class AgentApi(Api):
    """A client of the API with the access token of an agent."""

    def __init__(self, root: str, access_token: str) -> None:
        super().__init__(root, Tenant(Id(bytes(16)), "", ""))
        self.access_token = access_token
        self.http.auth = self._sign

    def _sign(self, request: httpx2.Request) -> httpx2.Request:
        request.headers["Authorization"] = f"Bearer {self.access_token}"
        return request


def redeem(root: str, code: str, **headers: str) -> httpx2.Response:
    """Redeem a device code, without credentials and without a body."""
    path = f"{root}{BASE_PATH}/agents/device-codes/{code}/redeem"
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(path, headers=sent, timeout=TIMEOUT_S)


WRONG_TOKENS = ("x", "%00", "%ff", "a" * 43, "a" * 5000, "%F0%9F%8E%82", "'--")
"""Parts of paths in which a token of a page belongs, which are none."""


@contextmanager
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """Yield the lines that are logged in the block, from their level INFO on."""
    lines: list[MutableMapping[str, Any]] = []

    def keep(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        lines.append(line)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(20))
    try:
        yield lines
    finally:
        structlog.configure(**before)


def at_once(count: int, send: Callable[[], httpx2.Response]) -> list[httpx2.Response]:
    """Call `send` from `count` threads at once; returns the responses."""
    start = threading.Barrier(count)

    def run(_: int) -> httpx2.Response:
        start.wait(TIMEOUT_S)
        return send()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def check_cap(responses: Sequence[httpx2.Response], *, made: int, limit: int) -> None:
    """Check that `made` of `responses` are 201, and that the others name the cap `limit`."""
    statuses = sorted(response.status_code for response in responses)
    assert statuses == [201] * made + [409] * (len(responses) - made)
    for response in responses:
        if response.status_code == 409:
            assert refused(response, 409, "CONFLICT")["details"] == {"limit": limit}


def another_account(  # noqa: PLR0913 - a row, by name
    owner_url: str,
    tenant: Tenant,
    customer_id: str,
    *,
    ends_in: str = "abc",
    currency: str = "USD",
    kind: str = "INTERNAL_FIAT",
    status: str = "ACTIVE",
) -> str:
    """Insert an account that the interface cannot open; returns its id."""
    key = str(new_id())[:-3] + ends_in
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
            " created_at, updated_at) VALUES (%s, %s, %s, %s, %s, %s, now(), now())",
            [
                key,
                customer_id.removeprefix("Customer:"),
                tenant.platform_id,
                currency,
                kind,
                status,
            ],
        )
    return f"InternalAccount:{key}"


def webhooks(owner_url: str, resource_id: str, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return type and data of the first `count` webhooks about a resource, in their order."""
    key = resource_id.partition(":")[2]

    def look() -> list[tuple[str, dict[str, Any]]] | None:
        with psycopg.connect(owner_url) as connection:
            rows = connection.execute(
                "SELECT type, body::json -> 'data' FROM webhook_deliveries WHERE subject_id = %s"
                " ORDER BY id",
                [key],
            ).fetchall()
        return rows[:count] if len(rows) >= count else None

    return eventually(look)


def authorization(amount: object = 1250) -> dict[str, Any]:
    return {
        "amount": amount,
        "currency": {"code": "USD"},
        "merchant": {"descriptor": "RESTAURANT 9", "mcc": "5812", "country": "US"},
    }


def ok(response: httpx2.Response, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert isinstance(body, dict)
    return body


def made(response: httpx2.Response) -> dict[str, Any]:
    return ok(response, 201)


def refused(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Return the error envelope, after checking that it follows the interface."""
    body = ok(response, status)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert set(body) <= {"status", "code", "message", "details"}
    assert (body["status"], body["code"]) == (status, code)
    assert len(body["message"]) > len("a code")
    if status == 409:
        assert response.headers["x-should-retry"] == "false"
    return body
