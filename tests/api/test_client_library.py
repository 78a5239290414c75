"""`cardledger_client` against a real server: outcomes in order, whatever happens to connections."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from cardledger.api.app import ApiConfig
from cardledger_client import AsyncClient, Client, Error, Outcome
from cardledger_client.batches import LIVE_EVENTS
from cardledger_client.deadlines import utc_now
from storm.proxy import Link, Network, Trap
from tests.api.support import Api, closed_port, new_tenant
from tests.waiting import eventually, limit_s

MANY = 400  # Of more than one chunk of the server.


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as api:
        yield api


@pytest.fixture
def link(root: str) -> Iterator[Link]:
    """A proxy in front of the server, which a test can cut."""
    address = urlsplit(root)
    with Network() as network:
        yield network.link("api", (address.hostname or "", address.port or 0))


class Proxy(ThreadingHTTPServer):
    """A server that is not cardledger: it has one response for every request, and counts them."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.status: Final = status
        self.content: Final = content
        self.requests = 0

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Page(BaseHTTPRequestHandler):
    """One response of `Proxy`."""

    server: Proxy

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    do_DELETE = do_GET  # noqa: N815 - the name of the base class

    @override
    def log_message(self, *_: object, **__: object) -> None:
        """Log nothing."""


@contextmanager
def proxy(status: int, content: bytes) -> Iterator[Proxy]:
    with Proxy(status, content) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever, poll_interval=0.01)
        try:
            yield server
        finally:
            server.shutdown()


def token_of(api: Api) -> str:
    return f"{api.tenant.client_id}:{api.tenant.client_secret}"


def client(api: Api, link: Link | None = None) -> Client:
    root = api.root if link is None else f"http://127.0.0.1:{link.port}"
    return Client(root, token_of(api), timeout_s=limit_s(20))


def event(card: dict[str, Any], kind: str, reference: str, amount: int, **more: object) -> Any:  # noqa: ANN401 - JSON
    return {
        "type": kind,
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": "T1",
        "cardId": card["id"],
        "amount": amount,
        "currency": "USD",
        **more,
    }


def clearings(card: dict[str, Any]) -> list[Any]:
    return [event(card, "CLEARING", f"c{number}", 1) for number in range(MANY)]


def check_applied_once(api: Api, outcomes: list[Outcome]) -> None:
    assert [each.reference for each in outcomes] == [f"c{number}" for number in range(MANY)]
    assert {each.result for each in outcomes} == {"APPLIED"}
    last = outcomes[-1].card_transaction
    assert last is not None
    assert last["settledAmount"]["amount"] == MANY
    with client(api) as ledger:
        assert ledger.card_transaction(last["id"])["settledAmount"]["amount"] == MANY


def test_a_tip_is_settled_and_read_back(own: Api) -> None:
    card = own.active_card()

    with client(own) as ledger:
        authorized, cleared = ledger.events(
            [
                event(card, "AUTHORIZATION", "a1", 1250),
                event(card, "CLEARING", "c1", 1500, final=True),
            ]
        )
        [again] = ledger.events([event(card, "AUTHORIZATION", "a1", 1250)])
        recorded = ledger.outcome("visa", "c1")
        unknown = ledger.outcome("visa", "c2")
        [listed] = ledger.card_transactions(cardId=card["id"])

    assert (authorized.outcome, authorized.is_approval) == ("APPLIED", True)
    assert cleared.card_transaction is not None
    assert cleared.card_transaction["status"] == "SETTLED"
    assert (again.outcome, again.result) == ("DUPLICATE", "APPLIED")
    assert recorded == cleared
    assert unknown is None
    assert listed == cleared.card_transaction


def test_an_event_loop_gets_the_same(own: Api) -> None:
    card = own.active_card()

    async def use() -> tuple[list[Outcome], list[str]]:
        async with AsyncClient(own.root, token_of(own)) as ledger:
            outcomes = await ledger.events(clearings(card))
            cards = [each["id"] async for each in ledger.cards()]
            assert await ledger.outcome("visa", "none") is None
            return outcomes, cards

    outcomes, cards = asyncio.run(use())

    check_applied_once(own, outcomes)
    assert cards == [card["id"]]


@pytest.mark.parametrize("share", [0.5, 1.2])
def test_a_request_or_response_that_is_cut_off_is_continued(
    own: Api, link: Link, share: float
) -> None:
    events = clearings(own.active_card())
    size = sum(len(str(each)) for each in events)

    with client(own, link) as ledger:
        link.cut_after(int(size * share))  # In the request, or among its outcomes.
        outcomes = ledger.events(events)

    assert link.cut_connections == 1
    check_applied_once(own, outcomes)


def test_an_event_loop_continues_too(own: Api, link: Link) -> None:
    events = clearings(own.active_card())

    async def use() -> list[Outcome]:
        url = f"http://127.0.0.1:{link.port}"
        async with AsyncClient(url, token_of(own), timeout_s=limit_s(20)) as ledger:
            link.cut_after(int(sum(len(str(each)) for each in events) * 1.2))
            return await ledger.events(events)

    outcomes = asyncio.run(use())

    assert link.cut_connections == 1
    check_applied_once(own, outcomes)


def test_a_resource_whose_response_is_lost_is_made_once(own: Api, link: Link) -> None:
    body = {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}

    with client(own, link) as ledger:
        link.cut_at(b"Lovelace", Trap.AFTER)
        made = ledger.call("POST", "/customers", body)
        listed = list(ledger.items("/customers"))

    assert link.trapped == 1
    assert [each["id"] for each in listed] == [made["id"]]


@pytest.mark.parametrize(("method", "is_repeated"), [("DELETE", False), ("GET", True)])
def test_what_may_have_been_carried_out_is_not_deleted_again(
    method: str,
    is_repeated: bool,  # noqa: FBT001
) -> None:
    async def use(root: str) -> None:
        async with AsyncClient(root, "a:b", timeout_s=0.3) as ledger:
            await ledger.call(method, "/tokens/1")

    with proxy(502, b"<html>") as server:
        with Client(server.root, "a:b", timeout_s=0.3) as ledger, pytest.raises(Error) as caught:
            ledger.call(method, "/tokens/1")
        by_threads = server.requests
        with pytest.raises(Error):
            asyncio.run(use(server.root))

    assert (caught.value.code, caught.value.status) == ("INVALID_RESPONSE", 502)
    assert (by_threads > 1) is is_repeated
    assert (server.requests - by_threads > 1) is is_repeated


def test_events_are_accepted_without_waiting(own: Api) -> None:
    card = own.active_card()

    with client(own) as ledger:
        accepted = ledger.accept([*clearings(card)[:3], {"type": "CLEARING"}])
        decided = eventually(lambda: ledger.outcome("visa", "c2"))

    assert (accepted.accepted, accepted.rejected) == (3, 1)
    assert decided.outcome == "APPLIED"


def test_rejections_are_outcomes_whatever_their_reference(own: Api) -> None:
    card = own.active_card()
    references: list[object] = ["x" * 300, "\0", "\ud800", 17, None, "last"]
    events = [event(card, "CLEARING", "", 1) | {"reference": each} for each in references]

    with client(own) as ledger:
        outcomes = ledger.events(events)

    assert [each.outcome for each in outcomes] == ["REJECTED"] * 5 + ["APPLIED"]
    assert [each.reference for each in outcomes] == ["x" * 255, None, None, None, None, "last"]


def test_no_approval_is_returned_after_its_deadline(own: Api) -> None:
    card = own.active_card()
    deadline = utc_now() + timedelta(seconds=2)

    def events(name: str) -> list[Any]:
        more = {"issuerTransactionToken": name, "decideBy": deadline.isoformat()}
        numbers = (*range(LIVE_EVENTS - 1), "last")
        asked = [event(card, "AUTHORIZATION", f"{name}{each}", 1, **more) for each in numbers]
        return [*asked[:-1], event(card, "CLEARING", f"{name}c", 1), asked[-1]]

    def wait() -> None:
        # By more than what the API does not know of PostgreSQL's clock.
        eventually(lambda: utc_now() > deadline + timedelta(seconds=1))

    def slow_events() -> Iterator[Any]:
        *first, last = events("list")
        yield from (*first, first[0])  # One more than the first request may have.
        wait()
        yield last

    async def read_slowly(found: list[Outcome]) -> None:
        async with AsyncClient(own.root, token_of(own)) as ledger:
            async for each in ledger.iter_events(events("loop"), "LIVE"):
                found.append(each)
                await asyncio.to_thread(wait)

    outcomes: list[Outcome] = []
    in_loop: list[Outcome] = []
    with client(own) as ledger, ThreadPoolExecutor(1) as thread:
        beside = thread.submit(asyncio.run, read_slowly(in_loop))
        arriving = ledger.iter_events(events("read"), "LIVE")
        outcomes.append(next(arriving))
        with pytest.raises(Error) as slow:
            ledger.events(slow_events(), "LIVE")
        with pytest.raises(Error) as caught:
            outcomes.extend(arriving)
        with pytest.raises(Error) as caught_in_loop:
            beside.result()

    for found, error in ((outcomes, caught.value), (in_loop, caught_in_loop.value)):
        first, *late, cleared, last = found
        assert (first.outcome, cleared.outcome, last.outcome) == ("APPLIED", "APPLIED", "DECLINED")
        assert {each.outcome for each in late} == {error.code} == {"DECIDE_BY_PASSED"}
        assert error.details["references"] == [each.reference for each in late]
    assert slow.value.code == "DECIDE_BY_PASSED"
    assert len(slow.value.outcomes) == LIVE_EVENTS + 2
    assert [each.reference for each in slow.value.outcomes if each.is_approval] == ["listc"]


def test_lists_go_on_over_all_pages(own: Api) -> None:
    card = own.active_card()
    events = [
        event(card, "CLEARING", f"c{number}", 1, issuerTransactionToken=f"T{number}")
        for number in range(120)
    ]

    with client(own) as ledger:
        ledger.events(events)
        listed = [each["issuerTransactionToken"] for each in ledger.card_transactions()]

    assert sorted(listed) == sorted(each["issuerTransactionToken"] for each in events)


@pytest.mark.parametrize("prefix", ["/nothing", "/network-events/visa"])
def test_another_404_does_not_say_that_an_event_has_no_outcome(own: Api, prefix: str) -> None:
    async def use(root: str) -> None:
        async with AsyncClient(root, token_of(own)) as ledger:
            await ledger.outcome("a/b ?", "1/2#%2F ä")

    with client(own) as ledger:
        assert ledger.outcome("a/b ?", "1/2#%2F ä") is None
    with proxy(404, b"<html>") as server:
        for root in (server.root, own.root + prefix):
            with Client(root, token_of(own)) as ledger, pytest.raises(Error) as caught:
                ledger.outcome("visa", "c1")
            with pytest.raises(Error) as caught_in_loop:
                asyncio.run(use(root))

            assert caught.value.status == caught_in_loop.value.status == 404


def test_errors_have_a_code(own: Api) -> None:
    with client(own) as ledger, pytest.raises(Error) as missing:
        ledger.card("Card:019542f5-b3e7-7d02-0000-00000000a1b4")
    with Client(own.root, ("cl_x", "y")) as stranger, pytest.raises(Error) as unknown:
        stranger.events([{"type": "CLEARING"}])
    with (
        Client(f"http://127.0.0.1:{closed_port()}", token_of(own), timeout_s=0.3) as nowhere,
        pytest.raises(Error) as unanswered,
    ):
        list(nowhere.cards())

    assert (missing.value.code, missing.value.status) == ("REFERENCE_NOT_FOUND", 404)
    assert missing.value.request_id
    assert (unknown.value.code, unknown.value.status) == ("UNAUTHORIZED", 401)
    assert (unanswered.value.code, unanswered.value.status) == ("NO_RESPONSE", None)
