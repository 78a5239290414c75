"""The client for threads; safe to share between them."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
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


class Client:
    """Calls one installation with the credentials of a platform; use it as a context manager.

    A call that gets no response, or 429, 502, 503 or 504, is repeated until nothing has arrived for
    `timeout_s`; what it sends has the same effect once or twice. A DELETE is repeated only when the
    server has refused it.
    """

    def __init__(
        self, base_url: str, token: str | tuple[str, str], *, timeout_s: float = 60.0
    ) -> None:
        """Call `base_url` with `token`: client id and secret, joined by a colon or as a pair."""
        self._requests: Final = Requests(base_url)
        self._http: Final = httpx2.Client(headers=requests.usual_headers(token))
        self._timeout_s: Final = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def events(self, events: Iterable[Event], lane: Lane | None = None) -> list[Outcome]:
        """Submit `events` and return their outcomes.

        Shape: one outcome an event, in their order; any number of events.
        Without `lane`, up to 20 events are LIVE and more are BULK. An outcome `ACCEPTED` is not
        decided yet. After an Error some events may be accepted: submit them again, unchanged.
        Raises: Error, with the outcomes that have arrived; DECIDE_BY_PASSED when an authorization
        has no outcome by its `decideBy`, or when this call has not ended by then.
        """
        answers = Answers()
        try:
            for answer in self._answers(events, lane, began=utc_now()):
                answers.add(answer)
        except Error as error:
            raise answers.error(error, now=utc_now()) from error
        return answers.outcomes(now=utc_now())

    def iter_events(self, events: Iterable[Event], lane: Lane | None = None) -> Iterator[Outcome]:
        """Do as `events` does, and yield each outcome as it arrives.

        `events` are read as they are sent: 10,000 at a time. An approval that is read after its
        `decideBy` is yielded as `DECIDE_BY_PASSED`; the Error comes after the last outcome.
        """
        return self._reported(self._answers(events, lane, began=utc_now()))

    def accept(self, events: Iterable[Event], lane: Lane | None = None) -> Accepted:
        """Submit `events` and return once they are accepted; they are decided later.

        Raises: Error; some events may be accepted.
        """
        counts = [self._result(self._requests.acceptance(batch)) for batch in batches(events, lane)]
        return responses.accepted(counts)

    def outcome(self, source: str, reference: str, *, card_id: str | None = None) -> Outcome | None:
        """Return the recorded outcome of an event; None when it has none yet, or is unknown.

        `card_id` chooses among events of several cardholders with this source and reference.
        Raises: Error; ValueError for an empty name, `.` and `..`, which a path cannot have.
        """
        request = self._requests.outcome(source, reference, card_id)
        try:
            return responses.outcome_of(self._result(request))
        except Error as error:
            if responses.is_without_outcome(error, source, reference):
                return None
            raise

    def card(self, card_id: str) -> Card:
        """Return a card.

        Raises: Error.
        """
        return cast("Card", self.call("GET", f"/cards/{requests.identified(card_id)}"))

    def cards(self, **filters: str | None) -> Iterator[Card]:
        """Yield the cards that match `filters`, such as `cardholderId` or `state`; newest first.

        Raises: Error.
        """
        return cast("Iterator[Card]", self.items("/cards", **filters))

    def card_transaction(self, card_transaction_id: str) -> CardTransaction:
        """Return a card transaction.

        Raises: Error.
        """
        path = f"/transactions/{requests.identified(card_transaction_id)}"
        return cast("CardTransaction", self.call("GET", path))

    def card_transactions(self, **filters: str | None) -> Iterator[CardTransaction]:
        """Yield the card transactions that match `filters`, such as `cardId`; newest first.

        Raises: Error.
        """
        return cast(
            "Iterator[CardTransaction]", self.items("/transactions", type="CARD", **filters)
        )

    def items(self, path: str, **query: str | None) -> Iterator[Any]:
        """Yield the items of any list of the interface, page after page.

        Raises: Error.
        """
        cursor: str | None = None
        while True:
            page = self._result(self._requests.page(path, query, cursor))
            yield from page["data"]
            cursor = page.get("nextCursor")
            if cursor is None:
                return

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | None
    ) -> Any:  # noqa: ANN401 - JSON
        """Call any operation of the interface, at its `path` below the dated one; return its JSON.

        Raises: Error.
        """
        return self._result(self._requests.call(method, path, body, query))

    def _result(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        attempts = Attempts(self._timeout_s)
        while True:
            try:
                return self._attempt(request, attempts.left_s)
            except Error as error:
                time.sleep(attempts.delay_s(error))

    def _attempt(self, request: Request, limit_s: float) -> Any:  # noqa: ANN401 - JSON
        try:
            response = self._http.send(requests.prepared(self._http, request, limit_s))
        except httpx2.RequestError as error:
            raise responses.no_response(error, may_retry=request.is_repeatable) from error
        return responses.resource(response, is_repeatable=request.is_repeatable)

    def _reported(self, answers: Iterator[Answer]) -> Iterator[Outcome]:
        report = Report()
        for answer in answers:
            yield report.outcome(answer, now=utc_now())
        report.finish()

    def _answers(
        self, events: Iterable[Event], lane: Lane | None, *, began: datetime
    ) -> Iterator[Answer]:
        for batch in batches(events, lane):
            yield from self._outcomes(Pending(batch, began=began))

    def _outcomes(self, pending: Pending) -> Iterator[Answer]:
        attempts = Attempts(self._timeout_s)
        while not pending.is_complete:
            failure: Error | None = None
            try:
                with closing(self._lines(pending, attempts.left_s)) as lines:
                    for line in lines:
                        yield pending.take(line)
                        attempts.progressed()
            except Error as error:
                failure = error
            if not pending.is_complete:
                delay_s = attempts.delay_s(failure or pending.incomplete())
                time.sleep(pending.pause_s(delay_s, now=utc_now()))
                pending.repeat(now=utc_now())

    def _lines(self, pending: Pending, limit_s: float) -> Generator[bytes]:
        patience_s = pending.patience_s(limit_s, now=utc_now())
        request = requests.prepared(self._http, self._requests.outcomes(pending), patience_s)
        lines = responses.Lines()
        try:
            with closing(self._http.send(request, stream=True)) as response:
                if response.status_code != responses.OK:
                    response.read()
                    raise responses.error_of(response)
                for chunk in response.iter_bytes():
                    yield from lines.feed(chunk)
        except httpx2.RequestError as error:
            raise responses.no_response(error) from error
