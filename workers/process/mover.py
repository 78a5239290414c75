"""Moves enqueued events to the inbox, in their order, one worker of an installation at a time.

A notification of PostgreSQL says that there are events; because it may be lost, behind a connection
pooler for example, the mover also looks four times a second.
Source: docs/decisions/0057-events-in-a-database-transaction.md
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from psycopg import Connection
from sqlalchemy import Engine as Database

from cardledger.ledger.engine import rejections, writes
from cardledger.ledger.engine.parsing import card_id_of
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging import enqueued_events, inbox
from cardledger.ledger.messaging.enqueued_events import CHANNEL, EnqueuedEvent
from cardledger.ledger.messaging.inbox import UNROUTED, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.engines import driver, is_unable
from cardledger.ledger.storage.ids import ids_in_order
from cardledger.schema import connections
from cardledger.schema.ids import Id
from cardledger.workers.client import jsonl, parsing
from cardledger.workers.client.parsing import Malformed
from cardledger.workers.signals.doorbell import Doorbell, drain_all
from cardledger.workers.signals.periodic_task import PeriodicTask

_MOVE_LIMIT: Final = 1_000  # Events of one database transaction, which stays short.
_USUAL_S: Final = 0.25  # Between two looks.
_FIRST_S: Final = 0.005  # Between two looks after events were moved; then twice as long each time.
_NEIGHBOURS: Final = 8  # Events of which one must succeed before the others are passed over.
_PASSED_OVER_LIMIT: Final = 100
_OTHER_SOURCES: Final = 8  # Of which an event is tried when all neighbours fail.
_ARE_CHECKED: Final = "SET CONSTRAINTS ALL IMMEDIATE"  # What else is checked by the commit.

_WAIT_S: Final = 0.2  # Of the listener, which ends after that when it is stopped.
_STOP_S: Final = 1.0
_RECONNECT_S: Final = 1.0

_log = structlog.get_logger()


class Moved(NamedTuple):
    """What enqueued events become."""

    messages: list[Message]
    rejections: list[RejectionRecord]


class Mover:
    """Moves enqueued events over connections of batches, which the watch ends when they freeze."""

    def __init__(
        self,
        database: Database,
        key: InboxKey,
        notify: Callable[[Sequence[Doorbell]], None],
        *,
        limit: int = _MOVE_LIMIT,
    ) -> None:
        """Sign with `key` what is moved, at most `limit` events at a time, and then `notify`."""
        self._database: Final = database
        self._looks: Final = database.execution_options(isolation_level="AUTOCOMMIT")
        self._key: Final = key
        self._notify: Final = notify
        self._limit: Final = limit
        self._pause_s = _USUAL_S
        self._passed_over: Final[set[int]] = set()  # Positions of events that fail by themselves.
        self.task: Final = PeriodicTask("mover", self.move, every_s=self._next_s)

    def move(self) -> bool:
        """Move the oldest events; return whether there were any.

        An event that fails while another succeeds is passed over, until this process ends; it stays
        where it is. Whatever else fails is repeated. The other is one of its neighbours, or where
        they all fail one of another source or lane, or the newest.
        """
        try:
            moved = self._move(self._limit)
        except Exception as error:
            if is_unable(error):
                raise
            moved = self._move_one_by_one(error)
        if moved:
            self._pause_s = _FIRST_S
        return moved

    def _next_s(self) -> float:
        # Soon again after events were moved: the next may have been committed without a
        # notification, because those waited when they were enqueued.
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _USUAL_S)
        return pause_s

    def _move(self, limit: int, *, without: Collection[int] = (), only: int | None = None) -> bool:
        """Move the oldest events, at most `limit`; return whether there were any.

        Not those at the positions `without`; of the others the event at `only`, if that is given.
        """
        with self._looks.connect() as outer:
            if enqueued_events.is_idle(driver(outer)):
                return False
        with self._database.begin() as outer:
            connection = driver(outer)
            turn = enqueued_events.take_turn(connection)
            if turn is None:
                return False
            left_out = [*self._passed_over, *without]
            events, are_all = enqueued_events.oldest(
                connection, limit, begin=turn.progress.begins_at, without=left_out
            )
            if only is not None and [event.position for event in events] != [only]:
                return False  # An older one was committed meanwhile: of the live lane.
            moved = self._write(connection, events, turn.at)
            if not left_out:  # These stay where they are, and where the next look begins.
                enqueued_events.update_progress(connection, turn, events, are_all=are_all)
        if moved.messages:
            self._notify(drain_all((message.lane, message.shard) for message in moved.messages))
        return bool(events)

    def _write(
        self, connection: Connection[Any], events: Sequence[EnqueuedEvent], at: datetime
    ) -> Moved:
        if not events:
            return Moved([], [])
        moved = moved_from(connection, events, at)
        inbox.accept(connection, moved.messages, self._key)
        writes.append_rejections(connection, moved.rejections, self._key)
        enqueued_events.remove(connection, events)
        return moved

    def _move_one_by_one(self, error: Exception) -> bool:
        """Move the oldest event that can be moved, and pass over those before it.

        None is moved before an older one that may succeed: where all of the oldest fail, they are
        passed over if one behind them could be moved.
        Raises: `error`, the failure of all together, when none of these can be moved alone.
        """
        failed: dict[int, Exception] = {}
        for position in self._oldest_positions():
            try:
                is_moved = self._move(1, without=failed, only=position)
            except Exception as alone:
                if is_unable(alone):
                    raise
                failed[position] = alone
                continue
            if is_moved:
                self._pass_over(failed)
                return True
            break
        else:
            has_room = len(self._passed_over) < _PASSED_OVER_LIMIT
            if failed and has_room and self._another_succeeds(failed):
                self._pass_over(failed)
                return True
        raise error

    def _oldest_positions(self) -> list[int]:
        with self._database.begin() as outer:
            connection = driver(outer)
            turn = enqueued_events.take_turn(connection)
            if turn is None:
                return []
            events, _ = enqueued_events.oldest(
                connection,
                _NEIGHBOURS,
                begin=turn.progress.begins_at,
                without=[*self._passed_over],
            )
        return [event.position for event in events]

    def _another_succeeds(self, failed: Collection[int]) -> bool:
        """Return whether an event other than `failed` can be moved to the inbox; none is moved."""
        with self._database.begin() as outer:
            connection = driver(outer)
            turn = enqueued_events.take_turn(connection)
            if turn is None:
                return False
            for event in self._others(connection, turn.progress.begins_at, failed):
                try:
                    with connection.transaction(force_rollback=True):
                        moved = self._write(connection, [event], turn.at)
                        connection.execute(_ARE_CHECKED)
                except Exception as alone:
                    if is_unable(alone):
                        raise
                else:
                    if moved.messages:  # A rejection says nothing about the inbox.
                        return True
        return False

    def _others(
        self, connection: Connection[Any], begin: int, failed: Collection[int]
    ) -> list[EnqueuedEvent]:
        """Return some events behind those that `failed`: of both lanes, and of several sources."""
        without = [*self._passed_over, *failed]
        oldest, _ = enqueued_events.oldest(connection, _MOVE_LIMIT, begin=begin, without=without)
        of_sources = {(each.lane, each.source): each for each in reversed(oldest)}
        newest = enqueued_events.newest(connection, begin=begin, without=without)
        return [*newest, *list(of_sources.values())[:_OTHER_SOURCES]]

    def _pass_over(self, failed: Mapping[int, Exception]) -> None:
        for position, error in failed.items():
            if len(self._passed_over) < _PASSED_OVER_LIMIT:
                self._passed_over.add(position)
            _log.error("enqueued event passed over", position=position, error=str(error))


def moved_from(connection: Connection[Any], events: Sequence[EnqueuedEvent], at: datetime) -> Moved:
    """Return what `events` become at `at`, by PostgreSQL's clock, each with an id of its own.

    Shape: messages and rejections in the order of `events`.
    """
    found = [parsing.read(jsonl.event_in(event.event.encode())) for event in events]
    cards = {_card_of(body) for body in found if not isinstance(body, Malformed)}
    owners = inbox.owners_of_cards(connection, cards)
    moved = Moved([], [])
    keys = ids_in_order(at, [event.id for event in events])
    for event, body, key in zip(events, found, keys, strict=True):
        if isinstance(body, Malformed):
            moved.rejections.append(_rejection(event, body, key, at))
        else:
            owner = owners.get(_card_of(body), UNROUTED)
            moved.messages.append(_message(event, body, key, owner))
    moved.messages.extend(_suspensions(connection, moved.rejections))
    return moved


def _suspensions(connection: Connection[Any], records: Sequence[RejectionRecord]) -> list[Message]:
    """Return the messages that book what `records` have moved; they follow the other messages."""
    money = rejections.money_of(records)
    if not money:
        return []
    owners = inbox.owners_of_cards(connection, {each.card_id for each in money.values()})
    return rejections.suspensions(records, money, owners)


def _card_of(body: Mapping[str, Any]) -> Id:
    return card_id_of(body["cardId"])


def _message(event: EnqueuedEvent, body: Mapping[str, Any], key: Id, owner: Owner) -> Message:
    message = inbox.address(body, owner, lane=event.lane, reply_to=None, at=event.enqueued_at)
    return replace(message, id=key)


def _rejection(
    event: EnqueuedEvent, malformed: Malformed, key: Id, at: datetime
) -> RejectionRecord:
    named = replace(
        malformed,
        source=parsing.identifier(event.source),
        reference=parsing.identifier(event.reference),
    )
    return named.rejection(key, at)


class EnqueuedEventsListener:
    """Calls `wake` when events are enqueued, in a thread and over a connection of its own."""

    def __init__(self, database_url: str, wake: Callable[[], None]) -> None:
        self._database_url: Final = database_url
        self._wake: Final = wake
        self._is_stopping = False
        self._task: Final = PeriodicTask("listener", self._listen, every_s=_RECONNECT_S)

    def start(self) -> None:
        """Start listening."""
        self._task.start()
        self._task.wake()

    def end_soon(self) -> None:
        """Stop listening, without waiting for the end."""
        self._is_stopping = True

    def stop(self, limit_s: float) -> None:
        """Stop listening; a server that is silent is not waited for."""
        self.end_soon()
        self._task.stop(min(limit_s, _STOP_S))

    def _listen(self) -> bool:
        """Listen until the end of the connection or of this process."""
        with connections.connect(
            self._database_url, autocommit=True, application_name="cardledger listener"
        ) as connection:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            connection.reply_limit_s = None  # Silence is usual from now on.
            self._wake()  # For what was committed before.
            while not self._is_stopping:
                for _ in connection.notifies(timeout=_WAIT_S, stop_after=1):
                    self._wake()
        return False
