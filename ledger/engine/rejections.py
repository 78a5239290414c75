"""Messages that were rejected when they were submitted, or quarantined, kept with their reason."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection, Connection

from cardledger.ledger.engine import reads, writes
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.parsing import rejection_of, transfers_of
from cardledger.ledger.engine.records import Decided, RejectionRecord
from cardledger.ledger.messaging import claims
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

_QUARANTINED: Final = "Internal processing error; event quarantined. Resubmit after the fix."

_NAMED: Final = 5  # Messages that a line of the log names.
_FORGED: Final = "Not accepted by a process of this installation."

_log = structlog.get_logger()


class UnverifiedError(Exception):
    """No message in the inbox has a MAC by the key of this process, which may be the wrong one."""

    def __init__(self) -> None:
        super().__init__(
            "no message that waits was accepted with this key; check that CARDLEDGER_SECRET_KEY is"
            " the same in every process"
        )


_INSERT: Final = f"""
    INSERT INTO rejections ({", ".join(RejectionRecord._fields)}, mac)
    VALUES ({", ".join(["%s"] * len(RejectionRecord._fields))}, %s)
"""


async def keep(
    connection: AsyncConnection[Any], records: Sequence[RejectionRecord], key: InboxKey
) -> None:
    """Write `records`, signed with `key`; they are kept once the caller has committed."""
    if records:
        rows = [(*record, key.mac_of_rejection(record)) for record in records]
        async with connection.cursor() as cursor:
            await cursor.executemany(_INSERT, rows)


def quarantine(
    connection: Connection[Any], messages: Sequence[Message], now: datetime, key: InboxKey
) -> list[Decided]:
    """Reject `messages`, which fail inside the ledger, at `now`, and keep their bodies.

    `key` signs the rejections.

    Shape: all from one lane.
    """
    reason = RejectionReason.INTERNAL_ERROR
    rejected = [rejection_of(message, reason, _QUARANTINED, now) for message in messages]
    writes.append_rejections(connection, rejected, key)
    claims.remove(connection, messages[0].lane, messages)
    _fail_transfers(connection, messages, now)
    return [
        Decided(message, OutcomeType.REJECTED, reason=reason, detail=_QUARANTINED)
        for message in messages
    ]


def refuse(connection: Connection[Any], forged: Sequence[Message], now: datetime) -> list[Decided]:
    """Move `forged` messages, which this installation has not accepted, to their table at `now`.

    None has an outcome: the key, and the id, may be those of a message that was accepted. For the
    same reason no caller gets a reply, and the transfers that they name stay as they are.
    Shape: all from one lane.
    """
    reason = RejectionReason.INTERNAL_ERROR
    writes.append_forged(connection, forged, now)
    claims.remove(connection, forged[0].lane, forged)
    _log.error(
        "forged messages refused",
        count=len(forged),
        message_ids=[str(message.id) for message in forged[:_NAMED]],
    )
    return [
        Decided(
            replace(message, reply_to=None),
            OutcomeType.REJECTED,
            reason,
            _FORGED,
            is_forged=True,
        )
        for message in forged
    ]


def _fail_transfers(
    connection: Connection[Any], messages: Sequence[Message], now: datetime
) -> None:
    """Fail the transfers that quarantined `messages` were to carry out.

    When that fails as well, it is logged and the queue goes on.
    """
    transfers = transfers_of(messages)
    if not transfers:
        return
    try:
        with connection.transaction():
            snapshot = BatchSnapshot(transfers=reads.lock_transfers(connection, transfers))
            batch = Batch(snapshot, now=now, rail=None)
            batch.fail_transfers(messages)
            for update in writes.change(connection, batch.writes, now):
                update.check()
            writes.append_outbox(connection, batch.writes.outbox)
    except psycopg.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - a defect of ours must not stop the queue
        _log.exception(
            "quarantined transfer stays PROCESSING",
            transfers=[str(key) for key, _ in transfers],
        )
