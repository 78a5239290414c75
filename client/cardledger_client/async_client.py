"""The client for an event loop: as `client`, and only the sending differs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Self, cast

import httpx2

from cardledger_client import requests, responses
from cardledger_client.batches import Pending, batches
from cardledger_client.client import OK, time_limit
from cardledger_client.deadlines import Answer, Answers, Report, utc_now
from cardledger_client.errors import Error
from cardledger_client.requests import Request, Requests
from cardledger_client.resources import Accepted, Card, CardTransaction, Event, Lane, Outcome
from cardledger_client.retries import Attempts


class AsyncClient:
    """Does as `Client` does, for an event loop; use it as an async context manager."""

    def __init__(
        self, base_url: str, token: str | tuple[str, str], *, timeout_s: float = 30.0
    ) -> None:
        """Call `base_url` with `token`: client id and secret, joined by a colon or as a pair."""
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
        """Submit `events` and return their outcomes.

        Shape: one outcome an event, in their order; any number of events.
        Without `lane`, up to 20 events are LIVE and more are BULK. An outcome `ACCEPTED` is not
        decided yet. After an Error some events may be accepted: submit them again, unchanged.
        Raises: Error, with the outcomes that have arrived; DECIDE_BY_PASSED when an authorization
        has no outcome by its `decideBy`, or when this call has not ended by then.
        """
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
        """Do as `events` does, and yield each outcome as it arrives.

        `events` are read as they are sent: 10,000 at a time. An approval that is read after its
        `decideBy` is yielded as `DECIDE_BY_PASSED`; the Error comes after the last outcome.
        """
        return self._reported(self._answers(events, lane, began=utc_now()))

    async def accept(self, events: Iterable[Event], lane: Lane | None = None) -> Accepted:
        """Submit `events` and return once they are accepted; they are decided later.

        Raises: Error; some events may be accepted.
        """
        accepted = rejected = 0
        for batch in batches(events, lane):
            counts = await self._result(self._requests.acceptance(batch))
            accepted += counts["accepted"]
            rejected += counts["rejected"]
        return Accepted(accepted=accepted, rejected=rejected)

    async def outcome(
        self, source: str, reference: str, *, card_id: str | None = None
    ) -> Outcome | None:
        """Return the recorded outcome of an event; None when it has none yet, or is unknown.

        `card_id` chooses among events of several cardholders with this source and reference.
        Raises: Error; ValueError for an empty name, `.` and `..`, which a path cannot have.
        """
        try:
            fields = await self._result(self._requests.outcome(source, reference, card_id))
        except Error as error:
            if responses.is_without_outcome(error, source, reference):
                return None
            raise
        return responses.outcome_of(fields)

    async def card(self, card_id: str) -> Card:
        """Return a card.

        Raises: Error.
        """
        return cast("Card", await self.call("GET", f"/cards/{requests.identified(card_id)}"))

    def cards(self, **filters: str | None) -> AsyncIterator[Card]:
        """Yield the cards that match `filters`, such as `cardholderId` or `state`; newest first.

        Raises: Error.
        """
        return cast("AsyncIterator[Card]", self.items("/cards", **filters))

    async def card_transaction(self, card_transaction_id: str) -> CardTransaction:
        """Return a card transaction.

        Raises: Error.
        """
        path = f"/transactions/{requests.identified(card_transaction_id)}"
        return cast("CardTransaction", await self.call("GET", path))

    def card_transactions(self, **filters: str | None) -> AsyncIterator[CardTransaction]:
        """Yield the card transactions that match `filters`, such as `cardId`; newest first.

        Raises: Error.
        """
        return cast(
            "AsyncIterator[CardTransaction]", self.items("/transactions", type="CARD", **filters)
        )

    async def items(self, path: str, **query: str | None) -> AsyncIterator[Any]:
        """Yield the items of any list of the interface, page after page.

        Raises: Error.
        """
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
        """Call any operation of the interface, at its `path` below the dated one; return its JSON.

        Raises: Error.
        """
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
            response = await self._http.request(
                request.method,
                request.url,
                params=request.query,
                headers=request.headers,
                content=request.content,
                timeout=time_limit(limit_s),
            )
        except httpx2.RequestError as error:
            raise responses.no_response(error, may_retry=request.is_repeatable) from error
        return responses.resource(
            response.status_code,
            response.headers,
            response.content,
            is_repeatable=request.is_repeatable,
        )

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
            request = self._requests.outcomes(pending)
            patience_s = pending.patience_s(attempts.left_s, now=utc_now())
            try:
                async with aclosing(self._lines(request, patience_s)) as lines:
                    async for line in lines:
                        yield pending.take(line)
                        attempts.progressed()
            except Error as error:
                failure = error
            if not pending.is_complete:
                delay_s = attempts.delay_s(failure or pending.incomplete())
                await asyncio.sleep(pending.pause_s(delay_s, now=utc_now()))
                pending.repeat(now=utc_now())

    async def _lines(self, request: Request, limit_s: float) -> AsyncGenerator[bytes]:
        lines = responses.Lines()
        try:
            async with self._http.stream(
                request.method,
                request.url,
                params=request.query,
                headers=request.headers,
                content=request.content,
                timeout=time_limit(limit_s),
            ) as response:
                if response.status_code != OK:
                    content = await response.aread()
                    raise responses.error_of(response.status_code, response.headers, content)
                async for chunk in response.aiter_bytes():
                    for line in lines.feed(chunk):
                        yield line
        except httpx2.RequestError as error:
            raise responses.no_response(error) from error
