"""The client for an event loop: as `client`, and only the sending differs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Self, cast

import httpx2

from cardledger_client import requests, responses
from cardledger_client.batches import Pending, batches
from cardledger_client.deadlines import Answer, Answers, Report, utc_now
from cardledger_client.errors import Error
from cardledger_client.requests import Request, Requests
from cardledger_client.resources import Accepted, Card, CardTransaction, Event, Lane, Outcome
from cardledger_client.retries import Attempts


class AsyncClient:
    """Does as `Client` does, for an event loop; use it as an async context manager."""

    def __init__(
        self, base_url: str, token: str | tuple[str, str], *, timeout_s: float = 60.0
    ) -> None:
        """Begin as `Client` does."""
        self._requests: Final = Requests(base_url)
        self._http: Final = httpx2.AsyncClient(headers=requests.usual_headers(token))
        self._timeout_s: Final = timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def events(self, events: Iterable[Event], lane: Lane | None = None) -> list[Outcome]:
        """Do as `Client.events` does."""
        answers = Answers()
        try:
            async for answer in self._answers(events, lane, began=utc_now()):
                answers.add(answer)
        except Error as error:
            raise answers.error(error, now=utc_now()) from error
        return answers.outcomes(now=utc_now())

    def iter_events(
        self, events: Iterable[Event], lane: Lane | None = None
    ) -> AsyncGenerator[Outcome]:
        """Do as `Client.iter_events` does."""
        return self._reported(self._answers(events, lane, began=utc_now()))

    async def accept(self, events: Iterable[Event], lane: Lane | None = None) -> Accepted:
        """Do as `Client.accept` does."""
        counts = [
            await self._result(self._requests.acceptance(batch)) for batch in batches(events, lane)
        ]
        return responses.accepted(counts)

    async def outcome(
        self, source: str, reference: str, *, card_id: str | None = None
    ) -> Outcome | None:
        """Do as `Client.outcome` does."""
        request = self._requests.outcome(source, reference, card_id)
        try:
            return responses.outcome_of(await self._result(request))
        except Error as error:
            if responses.is_without_outcome(error, source, reference):
                return None
            raise

    async def card(self, card_id: str) -> Card:
        """Do as `Client.card` does."""
        return cast("Card", await self.call("GET", f"/cards/{requests.identified(card_id)}"))

    def cards(self, **filters: str | None) -> AsyncIterator[Card]:
        """Do as `Client.cards` does."""
        return cast("AsyncIterator[Card]", self.items("/cards", **filters))

    async def card_transaction(self, card_transaction_id: str) -> CardTransaction:
        """Do as `Client.card_transaction` does."""
        path = f"/transactions/{requests.identified(card_transaction_id)}"
        return cast("CardTransaction", await self.call("GET", path))

    def card_transactions(self, **filters: str | None) -> AsyncIterator[CardTransaction]:
        """Do as `Client.card_transactions` does."""
        return cast(
            "AsyncIterator[CardTransaction]", self.items("/transactions", type="CARD", **filters)
        )

    async def items(self, path: str, **query: str | None) -> AsyncIterator[Any]:
        """Do as `Client.items` does."""
        cursor: str | None = None
        while True:
            page = await self._result(self._requests.page(path, query, cursor))
            for item in page["data"]:
                yield item
            cursor = page.get("nextCursor")
            if cursor is None:
                return

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | None
    ) -> Any:  # noqa: ANN401 - JSON
        """Do as `Client.call` does."""
        return await self._result(self._requests.call(method, path, body, query))

    async def _result(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        attempts = Attempts(self._timeout_s)
        while True:
            try:
                return await self._attempt(request, attempts.left_s)
            except Error as error:
                await asyncio.sleep(attempts.delay_s(error))

    async def _attempt(self, request: Request, limit_s: float) -> Any:  # noqa: ANN401 - JSON
        try:
            response = await self._http.send(requests.prepared(self._http, request, limit_s))
        except httpx2.RequestError as error:
            raise responses.no_response(error, may_retry=request.is_repeatable) from error
        return responses.resource(response, is_repeatable=request.is_repeatable)

    async def _reported(self, answers: AsyncGenerator[Answer]) -> AsyncGenerator[Outcome]:
        report = Report()
        async with aclosing(answers):
            async for answer in answers:
                yield report.outcome(answer, now=utc_now())
        report.finish()

    async def _answers(
        self, events: Iterable[Event], lane: Lane | None, *, began: datetime
    ) -> AsyncGenerator[Answer]:
        for batch in batches(events, lane):
            async with aclosing(self._outcomes(Pending(batch, began=began))) as answers:
                async for answer in answers:
                    yield answer

    async def _outcomes(self, pending: Pending) -> AsyncGenerator[Answer]:
        attempts = Attempts(self._timeout_s)
        while not pending.is_complete:
            failure: Error | None = None
            try:
                async with aclosing(self._lines(pending, attempts.left_s)) as lines:
                    async for line in lines:
                        yield pending.take(line)
                        attempts.progressed()
            except Error as error:
                failure = error
            if not pending.is_complete:
                delay_s = attempts.delay_s(failure or pending.incomplete())
                await asyncio.sleep(pending.pause_s(delay_s, now=utc_now()))
                pending.repeat(now=utc_now())

    async def _lines(self, pending: Pending, limit_s: float) -> AsyncGenerator[bytes]:
        patience_s = pending.patience_s(limit_s, now=utc_now())
        request = requests.prepared(self._http, self._requests.outcomes(pending), patience_s)
        lines = responses.Lines()
        try:
            async with aclosing(await self._http.send(request, stream=True)) as response:
                if response.status_code != responses.OK:
                    await response.aread()
                    raise responses.error_of(response)
                async for chunk in response.aiter_bytes():
                    for line in lines.feed(chunk):
                        yield line
        except httpx2.RequestError as error:
            raise responses.no_response(error) from error
