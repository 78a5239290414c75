"""What `cardledger doctor` says about messages: forged ones, and enqueued events that wait."""

from typing import Any, Final

from psycopg import Connection

from cardledger.install.findings import FAIL, OK, WARN, Finding
from cardledger.ledger.messaging import enqueued_events
from cardledger.ledger.messaging.forged_messages import COUNT_LIMIT, REPORTED_FOR
from cardledger.schema.compatibility import OLDEST_HEAD_FINISHED

_NAME: Final = "inbox"
_ENQUEUED: Final = "enqueued events"
_STUCK_S: Final = 10.0  # A worker looks for enqueued events four times a second.

# By the clock of the database; the ids of refusals, by which readiness looks, are of its clients.
_RECENT: Final = """
    SELECT count(*), max(refused_at), current_schema() FROM (
        SELECT refused_at FROM forged_messages WHERE refused_at > now() - %s
        ORDER BY id DESC LIMIT %s
    ) recent
"""

_ARE_BELIEVED: Final = "SELECT oldest_head < %s FROM schema_compatibility"


def forged(connection: Connection[Any]) -> Finding:
    """Return whether messages were forged lately, and whether every message needs a MAC."""
    [(count, last, schema)] = connection.execute(_RECENT, [REPORTED_FOR, COUNT_LIMIT])
    if count:
        return Finding(
            name=_NAME,
            state=FAIL,
            detail=f"{count} message(s) in a day were not accepted by this installation, the last"
            f" at {last:%Y-%m-%d %H:%M:%S %Z}; they were refused: a process has another"
            " CARDLEDGER_SECRET_KEY, or an intruder writes to the database",
            fix=f"psql -c 'SELECT * FROM {schema}.forged_messages ORDER BY id DESC LIMIT 20'",
        )
    believed = None
    if connection.execute("SELECT is_required FROM inbox_macs").fetchall() != [(True,)]:
        believed = "messages without a MAC are decided"
    elif connection.execute(_ARE_BELIEVED, [OLDEST_HEAD_FINISHED]).fetchall() != [(False,)]:
        believed = "quotes and payments without a MAC are carried out"
    if believed:
        return Finding(
            name=_NAME,
            state=WARN,
            detail=f"{believed}, as earlier releases write them",
            fix="cardledger migrate --finish, once no earlier release runs",
        )
    detail = "every message, quote and payment needs a MAC; no message was forged"
    return Finding(name=_NAME, state=OK, detail=detail)


def enqueued(connection: Connection[Any]) -> Finding:
    """Return whether events wait that no worker moves."""
    waiting = enqueued_events.waiting(connection)
    if waiting.age_s is None:
        return Finding(name=_ENQUEUED, state=OK, detail="none waits to be moved to the inbox")
    count = f"{waiting.count:,}{' or more' if waiting.count == enqueued_events.COUNT_LIMIT else ''}"
    detail = f"{count} wait to be moved to the inbox, the oldest for {waiting.age_s:.1f} s"
    if waiting.age_s <= _STUCK_S:
        return Finding(name=_ENQUEUED, state=OK, detail=detail)
    return Finding(
        name=_ENQUEUED,
        state=FAIL,
        detail=detail,
        fix="cardledger worker --only events; the log of one that runs says what it passed over",
    )
