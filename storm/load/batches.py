"""The interfaces that take several events at once: `POST /network-events`, `enqueue` in SQL, files.

What is sent again is sent as it was, until each of its events has an outcome.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx2
import psycopg
from psycopg.types.json import Jsonb

from cardledger.ledger.messaging.inbox import Lane
from storm.load.journal import ENQUEUED, Answer, Sent
from storm.load.population import Cardholder
from storm.system import ENQUEUE, SUBMIT, System

SHARES: Final = {"events over HTTP": 4, "enqueue": 4, "file": 1}
"""How often each of these interfaces is used, relative to the others."""

EventOf = Callable[[Cardholder], dict[str, Any]]
"""Makes an event without a deadline."""

EVENTS_LIMIT: Final = 3
"""Events of a request, and of a database transaction."""

Note = Callable[[Cardholder, dict[str, Any], str, Lane], Sent]
"""Notes an event before its first attempt."""

Attempt = Callable[[], Awaitable[str | None]]
"""Sends; returns why it has to be sent again, or None."""

Retry = Callable[[Sequence[Sent], Attempt], Awaitable[None]]
"""Calls an attempt until it returns None, with pauses."""

_PATH: Final = "/network-events"
_FILE_LINES: Final = 30
_CONNECT_TIMEOUT_S: Final = 4
_LOOKS: Final = 40  # For the outcomes of what was enqueued, before the next attempt.
_LOOK_S: Final = 0.1
_UNDECIDED: Final = {None, "ACCEPTED"}


class Batches:
    """These interfaces; each sends a few events about one cardholder."""

    def __init__(self, system: System, *, event_of: EventOf, note: Note, retry: Retry) -> None:
        """Send events that `event_of` makes."""
        self._system: Final = system
        self._event_of: Final = event_of
        self._note: Final = note
        self._retry: Final = retry
        self._files_under_way = 0

    async def use(
        self, interface: str, cardholder: Cardholder, count: int, http: httpx2.AsyncClient
    ) -> None:
        """Send `count` events through an interface of `SHARES`; a file always has many."""
        match interface:
            case "events over HTTP":
                await self._over_http(http, cardholder, count)
            case "enqueue":
                await self._enqueue(cardholder, count)
            case _:
                await self._one_file(cardholder)

    def _noted(
        self, cardholder: Cardholder, interface: str, lane: Lane, count: int
    ) -> tuple[list[dict[str, Any]], list[Sent]]:
        events = [self._event_of(cardholder) for _ in range(count)]
        return events, [self._note(cardholder, event, interface, lane) for event in events]

    # --- HTTP ------------------------------------------------------------------------------------

    async def _over_http(
        self, http: httpx2.AsyncClient, cardholder: Cardholder, count: int
    ) -> None:
        """Send events in one request, which has their outcomes for its answer."""
        events, notes = self._noted(cardholder, "events over HTTP", Lane.LIVE, count)

        async def attempt() -> str | None:
            try:
                response = await http.post(f"{self._system.base_url}{_PATH}", json=events)
            except httpx2.TransportError as error:
                return type(error).__name__
            if not response.is_success:
                return str(response.status_code)  # One that stays leaves the events without answer.
            try:
                lines = response.json()
            except ValueError:
                return "the answer is incomplete"
            return _answered(notes, lines)

        await self._retry(notes, attempt)

    # --- SQL -------------------------------------------------------------------------------------

    async def _enqueue(self, cardholder: Cardholder, count: int) -> None:
        """Enqueue events in a database transaction of their own, and look their outcomes up."""
        events, notes = self._noted(cardholder, "enqueue", Lane.LIVE, count)
        for note in notes:
            note.queue = ENQUEUED

        async def attempt() -> str | None:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._system.database_url(ENQUEUE),
                    autocommit=True,
                    connect_timeout=_CONNECT_TIMEOUT_S,
                    application_name="storm enqueue",
                ) as connection:
                    if notes[0].acknowledged is None:
                        await _enqueue_once(connection, events)
                        # In a transaction of this statement alone: it has been committed.
                        for note in notes:
                            note.acknowledged = time.time()
                    return await _look_up(connection, notes)
            except psycopg.Error as error:
                return type(error).__name__

        await self._retry(notes, attempt)

    # --- files -----------------------------------------------------------------------------------

    async def _one_file(self, cardholder: Cardholder) -> None:
        """Have `cardledger submit` send a file, again and again until it says that all is well."""
        if self._files_under_way:
            return
        self._files_under_way += 1
        try:
            await self._submit_file(cardholder)
        finally:
            self._files_under_way -= 1

    async def _submit_file(self, cardholder: Cardholder) -> None:
        events, notes = self._noted(cardholder, "file", Lane.BULK, _FILE_LINES)
        path = self._system.home / f"{notes[0].key[1]}.jsonl"
        await asyncio.to_thread(write_lines, path, events)

        async def attempt() -> str | None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cardledger", "submit", str(path), "--timeout", "20",
                env=self._system.environment(SUBMIT),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                printed, _ = await process.communicate()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # A second time it only closes what was left open.
            lines = [json.loads(line) for line in printed.splitlines()]
            for note, line in zip(notes, lines, strict=False):
                _answer(note, line)
            is_complete = process.returncode == 0 and len(lines) == len(notes)
            if is_complete or any(line["outcome"] == "REJECTED" for line in lines):
                return None
            return f"exit code {process.returncode}"

        await self._retry(notes, attempt)


async def _enqueue_once(
    connection: psycopg.AsyncConnection[Any], events: Sequence[Mapping[str, Any]]
) -> None:
    await connection.execute("SELECT cardledger.enqueue(%s)", [Jsonb(events)])


async def _look_up(connection: psycopg.AsyncConnection[Any], notes: Sequence[Sent]) -> str | None:
    """Note the outcomes of the events of `notes`; return why to look again later."""
    for _ in range(_LOOKS):
        for note in notes:
            if note.answers:
                continue
            cursor = await connection.execute("SELECT cardledger.outcome(%s, %s)", note.key)
            row = await cursor.fetchone()
            if row and row[0] and row[0]["outcome"] not in _UNDECIDED:
                _answer(note, row[0])
        if all(note.answers for note in notes):
            return None
        await asyncio.sleep(_LOOK_S)
    return "not decided in time"


def _answered(notes: Sequence[Sent], lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Note outcomes that were received; return why events have to be sent again."""
    for note, line in zip(notes, lines, strict=False):
        note.acknowledged = note.acknowledged or time.time()
        if line["outcome"] not in _UNDECIDED:
            _answer(note, line)
    if len(lines) < len(notes):
        return "the answer is incomplete"
    is_undecided = any(line["outcome"] in _UNDECIDED for line in lines)
    return "not decided in time" if is_undecided else None


def _answer(note: Sent, line: Mapping[str, Any]) -> None:
    at = time.time()
    first = line.get("firstOutcome")
    note.answers.append(Answer(line["outcome"], line.get("reason"), first, at, None))
    note.acknowledged = note.acknowledged or at


def write_lines(path: Path, events: Sequence[Mapping[str, Any]]) -> None:
    """Write `events` as a file for `cardledger submit`."""
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
