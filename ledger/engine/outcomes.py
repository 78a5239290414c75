"""Read outcomes from the database, for callers that received no reply."""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import history
from cardledger.ledger.projections.card_transaction import RollUp, wire
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.outcomes import Outcome, OutcomeType

_REJECTED: Final = "SELECT id, reason, detail FROM rejections WHERE id = ANY(%s)"
_DECIDED: Final = (
    "SELECT k.id, o.message_id, o.outcome, o.reason, o.subject_id, o.sequence"
    " FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::uuid[], %s::uuid[])"
    " AS k (id, reference, source, platform_id, customer_id)"
    " JOIN outcomes o USING (reference, source, platform_id, customer_id)"
)


async def find(connection: AsyncConnection[Any], messages: Sequence[Message]) -> dict[Id, Outcome]:
    """Return the outcomes of those `messages` that are decided, by message id."""
    by_id = {message.id: message for message in messages}
    # The inbox first: a message that has left it by now is in the tables that are read after it.
    cursor = await connection.execute(
        "SELECT i.id FROM unnest(%s::int2[], %s::int2[], %s::uuid[]) AS k (lane, shard, id)"
        " JOIN inbox i USING (lane, shard, id)",
        [
            [int(message.lane) for message in messages],
            [message.shard for message in messages],
            list(by_id),
        ],
    )
    waiting = {row[0] async for row in cursor}
    decided = [message for key, message in by_id.items() if key not in waiting]
    if not decided:
        return {}
    rejected = await _rejections(connection, decided)
    rest = [message for message in decided if message.id not in rejected]
    return rejected | await _outcomes(connection, rest)


async def _rejections(
    connection: AsyncConnection[Any], messages: Sequence[Message]
) -> dict[Id, Outcome]:
    references = {message.id: message.reference for message in messages}
    cursor = await connection.execute(_REJECTED, [list(references)])
    return {
        key: outcomes.outcome(references[key], OutcomeType.REJECTED, reason=reason, detail=detail)
        async for key, reason, detail in cursor
    }


async def _outcomes(
    connection: AsyncConnection[Any], messages: Sequence[Message]
) -> dict[Id, Outcome]:
    references = {message.id: message.reference for message in messages}
    cursor = await connection.execute(
        _DECIDED,
        [
            list(references),
            list(references.values()),
            [message.source for message in messages],
            [message.platform_id for message in messages],
            [message.customer_id for message in messages],
        ],
    )
    rows = await cursor.fetchall()
    places = [(subject, sequence) for *_, subject, sequence in rows if sequence]
    then = await history.at_async(connection, places)
    now = await history.current_async(connection, [subject for subject, _ in places])
    return {
        key: _outcome(
            references[key],
            row,
            then.get((row[3], row[4])) if row[0] == key else now.get(row[3]),
            is_first=row[0] == key,
        )
        for key, *row in rows
    }


def _outcome(
    reference: str, row: Sequence[Any], subject: RollUp | None, *, is_first: bool
) -> Outcome:
    """Return the outcome of the first message with its idempotency key, or of a duplicate.

    A duplicate gets the current card transaction, as the engine's reply has it.
    """
    _, outcome, reason, *_ = row
    return outcomes.outcome(
        reference,
        OutcomeType(outcome) if is_first else OutcomeType.DUPLICATE,
        first_outcome=None if is_first else OutcomeType(outcome),
        reason=reason,
        card_transaction=wire(subject) if subject else None,
    )
