"""Card transactions at some of their sequences, for an event loop that has other work as well.

Current ones are read as they are. For others events are read in pages, between which the event
loop goes on: a fold of ten thousand events takes a quarter of a second, that of a page some
milliseconds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.projections import event_spans, history
from cardledger.ledger.projections.card_transaction import RollUp, opened
from cardledger.ledger.projections.event_spans import Events, Span
from cardledger.ledger.projections.history import Version
from cardledger.schema.ids import Id

FOLD_LIMIT: Final = 10_000
"""Events that are folded for a past version; one after more events is left out."""

_TOTAL: Final = 10 * FOLD_LIMIT  # Of one call: those that need the fewest come first.
_PAGE: Final = 200


async def at(
    connection: AsyncConnection[Any], versions: Sequence[Version]
) -> dict[Version, RollUp]:
    """Return the roll-up at each of `versions`; those are left out that do not exist.

    So are those that are not current and take more than `FOLD_LIMIT` events to fold.
    """
    stored = await history.current_async(connection, [*{key for key, _ in versions}])
    wanted: dict[Id, set[int]] = defaultdict(set)
    found: dict[Version, RollUp] = {}
    for key, sequence in versions:
        if key in stored and sequence == stored[key].state.sequence:
            found[key, sequence] = stored[key]
        elif key in stored and 0 < sequence < min(stored[key].state.sequence, FOLD_LIMIT + 1):
            wanted[key].add(sequence)
    places: dict[Id, RollUp] = {}
    for page in event_spans.pages(_within_total(wanted), _PAGE):
        converted = [span for span in page if stored[span.key].conversion is not None]
        events = await event_spans.read_async(connection, page, converted)
        found |= _fold(page, stored, events, wanted, places)
    return found


def _within_total(wanted: Mapping[Id, Collection[int]]) -> Iterator[Span]:
    room = _TOTAL
    for last, key in sorted((max(sequences), key) for key, sequences in wanted.items()):
        room -= last
        if room >= 0:
            yield Span(key, 0, last)


def _fold(
    page: Sequence[Span],
    stored: Mapping[Id, RollUp],
    events: Events,
    wanted: Mapping[Id, Collection[int]],
    places: dict[Id, RollUp],
) -> dict[Version, RollUp]:
    """Return the versions that are reached in `page`, and note in `places` how far each is."""
    found: dict[Version, RollUp] = {}
    for span in page:
        place = places.get(span.key) or opened(stored[span.key].identity)
        rows = events.rows.get(span.key, [])[1 if span.after else 0 :]
        conversions = events.conversions.get(span.key, {})
        for roll_up in history.continued(place, rows, conversions):
            places[span.key] = roll_up
            if roll_up.state.sequence in wanted[span.key]:
                found[span.key, roll_up.state.sequence] = roll_up
    return found
