"""Read outcomes from the database, for callers that received no reply.

A message that is not in the inbox is decided or not accepted yet. Only the record tells which:

| record | answer |
|---|---|
| in the inbox | none: it waits |
| in `rejections` under its id, quarantined or not | `REJECTED` |
| in `outcomes` under its id, parked or not | that outcome |
| in `outcomes` under its key, of another message with the same event | `DUPLICATE` |
| in `outcomes` under its key, of another message with another event | none: to be rejected |
| nowhere | none: not accepted yet |

To who repeats it, an approval with a timeout reversal, decided or waiting, is a decline.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.engine.parsing import key_of, reversal_key_of
from cardledger.ledger.engine.records import Key
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.projections import history, past_versions
from cardledger.ledger.projections.card_transaction import RollUp, wire
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.network_events import AUTHORIZATIONS
from cardledger.schema.wire.outcomes import Outcome, OutcomeType

_IN_INBOX: Final = """
    SELECT i.id FROM unnest(%s::int2[], %s::int2[], %s::uuid[]) AS k (lane, shard, id)
    JOIN inbox i USING (lane, shard, id)
"""


async def find(
    connection: AsyncConnection[Any], messages: Sequence[Message], key: InboxKey
) -> dict[Id, Outcome]:
    """Return the outcomes of those `messages` that are decided, by message id.

    A timeout reversal that waits, verified with `key`, counts as decided.
    Bounds: one statement a table, whatever the number of messages; callers pass at most 1,000.
    """
    by_id = {message.id: message for message in messages}
    # The inbox first: a message that has left it by now is in the tables that are read after it.
    cursor = await connection.execute(
        _IN_INBOX,
        [
            [int(message.lane) for message in messages],
            [message.shard for message in messages],
            list(by_id),
        ],
    )
    waiting = {row[0] async for row in cursor}
    decided = [message for message_id, message in by_id.items() if message_id not in waiting]
    if not decided:
        return {}
    rejected = await _rejections(connection, decided)
    rest = [message for message in decided if message.id not in rejected]
    return rejected | await _outcomes(connection, rest, key) if rest else rejected


_REJECTED: Final = "SELECT id, reason, detail FROM rejections WHERE id = ANY(%s)"


async def _rejections(
    connection: AsyncConnection[Any], messages: Sequence[Message]
) -> dict[Id, Outcome]:
    references = {message.id: message.reference for message in messages}
    cursor = await connection.execute(_REJECTED, [list(references)])
    return {
        key: outcomes.outcome(references[key], OutcomeType.REJECTED, reason=reason, detail=detail)
        async for key, reason, detail in cursor
    }


_DECIDED: Final = """
    SELECT k.id, o.body_hash, o.message_id, o.outcome, o.reason, o.subject_id, o.sequence
    FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::uuid[], %s::uuid[])
        AS k (id, reference, source, platform_id, customer_id)
    JOIN outcomes o USING (reference, source, platform_id, customer_id)
"""


async def _outcomes(
    connection: AsyncConnection[Any], messages: Sequence[Message], inbox_key: InboxKey
) -> dict[Id, Outcome]:
    by_id = {message.id: message for message in messages}
    cursor = await connection.execute(_DECIDED, _keys(by_id, map(key_of, messages)))
    # Another event under the same key is not the outcome of this message, which will be rejected.
    rows = [
        (key, *row) async for key, body_hash, *row in cursor if inbox.repeats(by_id[key], body_hash)
    ]
    approved = [
        by_id[key]
        for key, _, outcome, *_ in rows
        if outcome == OutcomeType.APPLIED and by_id[key].body["type"] in AUTHORIZATIONS
    ]
    reversed_late = await _reversed_late(connection, approved, inbox_key)
    # Of a first outcome the card transaction as it was then, of a duplicate as it is now.
    firsts = [(row[4], row[5]) for row in rows if row[5] and row[0] == row[1]]
    repeats = [row[4] for row in rows if row[5] and row[0] != row[1]]
    then = await past_versions.at(connection, firsts) if firsts else {}
    now = await history.current_async(connection, repeats) if repeats else {}
    return {
        key: _outcome(
            by_id[key].reference,
            row,
            then.get((row[3], row[4])) if row[0] == key else now.get(row[3]),
            is_first=row[0] == key,
            is_reversed=key in reversed_late,
        )
        for key, *row in rows
    }


async def _reversed_late(
    connection: AsyncConnection[Any], approved: Sequence[Message], inbox_key: InboxKey
) -> set[Id]:
    """Return which of `approved`, first or repeated, have a timeout reversal."""
    if not approved:
        return set()
    keys = {message.id: reversal_key_of(message) for message in approved}
    # What waits first, as in `find`.
    waiting = await timeout_reversals.waiting_async(connection, {*keys.values()}, inbox_key)
    cursor = await connection.execute(_DECIDED, _keys(keys, keys.values()))
    decided = {row[0] async for row in cursor}
    return decided | {key for key, reversal in keys.items() if reversal in waiting}


def _keys(ids: Iterable[Id], keys: Iterable[Key]) -> list[Sequence[Any]]:
    """Return the parameters of `_DECIDED`: `ids` and the columns of their `keys`."""
    return [list(ids), *map(list, zip(*keys, strict=True))]


def _outcome(
    reference: str,
    row: Sequence[Any],
    subject: RollUp | None,
    *,
    is_first: bool,
    is_reversed: bool,
) -> Outcome:
    """Return the outcome of the first message with its idempotency key, or of a duplicate.

    A duplicate gets the current card transaction, as the engine's reply has it.
    """
    _, outcome, reason, *_ = row
    if is_reversed and is_first:
        return outcomes.outcome(
            reference,
            OutcomeType.DECLINED,
            reason=DeclineReason.DECISION_TIMEOUT,
            detail=timeout_reversals.DETAIL,
            card_transaction=wire(subject) if subject else None,
        )
    if is_reversed:
        return outcomes.outcome(
            reference,
            OutcomeType.DUPLICATE,
            first_outcome=OutcomeType.DECLINED,
            reason=DeclineReason.DECISION_TIMEOUT,
            detail=timeout_reversals.DETAIL_AGAIN,
            card_transaction=wire(subject) if subject else None,
        )
    return outcomes.outcome(
        reference,
        OutcomeType(outcome) if is_first else OutcomeType.DUPLICATE,
        first_outcome=None if is_first else OutcomeType(outcome),
        reason=reason,
        card_transaction=wire(subject) if subject else None,
    )


_BY_KEY: Final = """
    SELECT customer_id, body_hash, outcome, reason, subject_id, sequence FROM outcomes
    WHERE reference = %s AND source = %s AND platform_id = %s
        AND customer_id = coalesce(%s, customer_id)
    LIMIT 2
"""
_REVERSED: Final = """
    SELECT FROM outcomes
    WHERE reference = %s AND source = %s AND platform_id = %s AND customer_id = %s
"""


class SeveralEventsError(Exception):
    """Events of several cardholders have this source and reference."""


async def find_by_key(  # noqa: PLR0913 - a key and its parts, by name
    connection: AsyncConnection[Any],
    *,
    platform_id: Id,
    source: str,
    reference: str,
    inbox_key: InboxKey,
    customer_id: Id | None = None,
) -> Outcome | None:
    """Return the outcome that is recorded for a key of the platform; None when there is none.

    The card transaction is shown as the event left it, unless too many events have to be folded
    for that (`past_versions`). An approval that could not be reported by
    `decideBy` is DECLINED: it was reversed, or its reversal waits, verified with `inbox_key`.
    Raises: SeveralEventsError when there are several and `customer_id` does not choose one.
    """
    cursor = await connection.execute(_BY_KEY, [reference, source, platform_id, customer_id])
    rows = await cursor.fetchall()
    if not rows:
        return None
    if len(rows) > 1:
        raise SeveralEventsError
    [(customer_id, body_hash, recorded, reason, subject_id, sequence)] = rows
    outcome, detail = OutcomeType(recorded), None
    if outcome is OutcomeType.APPLIED:
        reversal = body_hash.hex(), timeout_reversals.SOURCE, platform_id, customer_id
        if await _has_timed_out(connection, reversal, inbox_key):
            outcome, reason = OutcomeType.DECLINED, DeclineReason.DECISION_TIMEOUT
            detail = timeout_reversals.DETAIL_AGAIN
    versions = [(subject_id, sequence)] if subject_id and sequence else []
    then = await past_versions.at(connection, versions) if versions else {}
    return outcomes.outcome(
        reference,
        outcome,
        reason=reason,
        detail=detail,
        card_transaction=next((wire(roll_up) for roll_up in then.values()), None),
    )


async def _has_timed_out(
    connection: AsyncConnection[Any], reversal: Key, inbox_key: InboxKey
) -> bool:
    if await timeout_reversals.waiting_async(connection, {reversal}, inbox_key):
        return True
    return await (await connection.execute(_REVERSED, reversal)).fetchone() is not None
