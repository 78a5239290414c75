"""Card transactions at the sequences that webhooks report, by a bounded number of events a time.

Of a long card transaction the engine has written what its webhooks say (`change_set`). A row of an
earlier release says only which event it reports, and any number of events may stand before that:
they are read in pages, and over as many dispatches as it takes. Between these a process remembers
how far it has come. Events do not change; should a database have lost some, as the standby that
takes over for its primary may have, the message and the time of the last one tell.
Source: docs/decisions/0011-webhooks-are-folded.md
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
import structlog

from cardledger.ledger.projections import event_spans, history
from cardledger.ledger.projections.card_transaction import RollUp, opened
from cardledger.ledger.projections.event_spans import Events, Span
from cardledger.ledger.projections.history import Version
from cardledger.schema.ids import Id

EVENTS_LIMIT: Final = 5_000
"""Events that one dispatch folds."""

_PAGE: Final = 1_000  # Events of a statement.
_REMEMBERED: Final = 1_000  # Card transactions; of others, events are read from the first again.
_LONG: Final = 50  # Events from which on a place is worth to be remembered.

_log = structlog.get_logger()


class Folded(NamedTuple):
    """Roll-ups, and the versions whose turn is in a later dispatch.

    What is in neither does not exist, or its events cannot be read or folded.
    """

    roll_ups: Mapping[Version, RollUp]
    later: Collection[Version]


class _Place(NamedTuple):
    """A card transaction after an event, and the message and the time of that event."""

    roll_up: RollUp
    event: tuple[Id, datetime]

    @property
    def sequence(self) -> int:
        return self.roll_up.state.sequence


class _Without(NamedTuple):
    """Card transactions whose events cannot be folded, and those that another dispatch reads."""

    failed: set[Id]
    unread: set[Id]


class _LostPlaceError(Exception):
    """The database has not the event any more up to which a card transaction was folded.

    A standby may have taken over. The events are folded from the first one again.
    """


class Folds:
    """How far one process has folded long card transactions; for one thread at a time."""

    def __init__(self, limit: int = EVENTS_LIMIT, page: int = _PAGE) -> None:
        """Read `limit` events at a time, and `page` by one statement."""
        self._limit: Final = limit
        self._page: Final = page
        self._places: Final[dict[Id, _Place]] = {}

    def at(self, driver: psycopg.Connection[Any], versions: Sequence[Version]) -> Folded:
        """Return the roll-ups at `versions`, as far as `limit` events suffice.

        Most versions are the current ones, whose events need not be read again.
        """
        if not versions:
            return Folded({}, ())
        stored = history.current(driver, {key for key, _ in versions})
        found = {(key, roll_up.state.sequence): roll_up for key, roll_up in stored.items()}
        past: dict[Id, set[int]] = defaultdict(set)
        for key, sequence in versions:
            if key in stored and sequence < stored[key].state.sequence:
                past[key].add(sequence)
        if not past:
            return Folded(found, ())
        granted = self._granted(past)
        without = _Without(set(), set())
        for page in event_spans.pages(granted, self._page):
            spans = [span for span in page if span.key not in without.failed | without.unread]
            found |= self._fold(driver, spans, stored, past, without)
        self._forget(granted, past)
        until = {span.key: span.until for span in granted}
        later = {
            (key, sequence)
            for key, sequences in past.items()
            for sequence in sequences
            if key not in without.failed
            and (key, sequence) not in found
            and (key in without.unread or sequence > until.get(key, 0))
        }
        return Folded(found, later)

    def _granted(self, past: Mapping[Id, Collection[int]]) -> list[Span]:
        """Return which events are folded now: half of the limit for those that need the fewest.

        The other half is for the oldest of the rest, so that each of them gets its turn.
        """
        spans = [Span(key, self._begin(key, min(of)), max(of)) for key, of in past.items()]
        granted: list[Span] = []
        room = self._limit // 2
        rest = []
        for span in sorted(spans, key=lambda span: span.length):
            if span.length <= room:
                room -= span.length
                granted.append(span)
            else:
                rest.append(span.key)
        room += self._limit - self._limit // 2
        for span in spans:
            if room and span.key in rest:
                granted.append(span._replace(until=min(span.until, span.after + room)))
                room -= granted[-1].length
        return granted

    def _begin(self, key: Id, first: int) -> int:
        """Return the sequence from which on events are read to reach the sequence `first`."""
        place = self._places.get(key)
        if place is not None and place.sequence <= first:
            return place.sequence
        self._places.pop(key, None)
        return 0

    def _fold(
        self,
        driver: psycopg.Connection[Any],
        spans: Sequence[Span],
        stored: Mapping[Id, RollUp],
        past: Mapping[Id, Collection[int]],
        without: "_Without",
    ) -> dict[Version, RollUp]:
        """Fold the events of `spans`; add those for which that was not possible to `without`."""
        found: dict[Version, RollUp] = {}
        converted = [span for span in spans if stored[span.key].conversion is not None]
        try:
            with driver.transaction():  # A savepoint: what cannot be read does not stop the others.
                events = event_spans.read(driver, spans, converted)
        except psycopg.Error as error:
            if driver.closed:
                raise
            _log.exception("events cannot be read", count=len(spans))
            # A statement that was cancelled for example: their turn comes, and in their order.
            is_temporary = isinstance(error, psycopg.OperationalError)
            keys = without.unread if is_temporary else without.failed
            keys |= {span.key for span in spans}
            return {}
        for span in spans:
            try:
                for roll_up in self._continue(span, stored[span.key], events):
                    if roll_up.state.sequence in past[span.key]:
                        found[span.key, roll_up.state.sequence] = roll_up
            except _LostPlaceError:
                without.unread.add(span.key)
            except Exception:  # noqa: BLE001 - events of one that cannot be folded stop only itself
                _log.exception("events cannot be folded", resource=str(span.key))
                self._places.pop(span.key, None)
                without.failed.add(span.key)
        return found

    def _continue(self, span: Span, stored: RollUp, events: Events) -> Iterator[RollUp]:
        """Yield the roll-up after each event of `span`, and of the place where it begins."""
        rows = events.rows.get(span.key, [])
        place = self._places.pop(span.key, None)
        roll_up = opened(stored.identity)
        if span.after:
            if place is None or not rows or (rows[0][0], rows[0][1]) != place.event:
                raise _LostPlaceError
            roll_up, rows = place.roll_up, rows[1:]
            yield roll_up
        conversions = events.conversions.get(span.key, {})
        for after in history.continued(roll_up, rows, conversions):
            roll_up = after
            yield roll_up
        if roll_up.state.sequence != span.until:
            raise LookupError(f"there is no event {roll_up.state.sequence + 1}")
        if rows:
            place = _Place(roll_up, (rows[-1][0], rows[-1][1]))
        if place is not None:
            self._places[span.key] = place

    def _forget(self, granted: Iterable[Span], past: Mapping[Id, Collection[int]]) -> None:
        """Forget the places that are soon reached again, and those longest ago of too many."""
        for span in granted:
            if span.until == max(past[span.key]) < _LONG:
                self._places.pop(span.key, None)
        while len(self._places) > _REMEMBERED:
            del self._places[next(iter(self._places))]
