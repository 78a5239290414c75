"""The record in PostgreSQL: read at the end over a direct connection, and in snapshots meanwhile.

The storm keeps a log of its own of every row that is committed to the inbox: a trigger writes it in
the commit that accepts the message. So the record can be asked what became of each of them, and the
replay has the bodies that the inbox no longer has.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cardledger.ledger.audit import payments
from cardledger.ledger.messaging import timeout_reversals
from cardledger.schema.ids import Id
from storm.system import System

_INSTRUMENTS: Final = """
    CREATE SCHEMA storm;
    CREATE TABLE storm.accepted (
        id uuid PRIMARY KEY, lane int2 NOT NULL, shard int2 NOT NULL, customer_id uuid NOT NULL,
        source text NOT NULL, reference text NOT NULL, body json NOT NULL, body_hash bytea NOT NULL,
        at timestamptz NOT NULL
    );
    CREATE TABLE storm.probe (content text);
    CREATE FUNCTION storm.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO storm.accepted VALUES (NEW.id, NEW.lane, NEW.shard, NEW.customer_id,
            NEW.source, NEW.reference, NEW.body, NEW.body_hash, clock_timestamp());
        RETURN NULL;
    END $$;
    CREATE TRIGGER storm AFTER INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION storm.note();
"""

# One statement is one snapshot. In each currency: what owners have, and what is held for them, less
# what they owe, what went to the network less what is written off, and what payments have brought
# in, taken out and hold in clearing (by their rows alone), is what was ever deposited.
_CONSERVATION: Final = f"""
    SELECT
        (SELECT array_agg(format('%s %s', k.currency, k.lost)) FROM (
            SELECT m.currency, sum(m.amount) AS lost FROM (
                SELECT a.currency, -d.amount::numeric AS amount
                FROM deposits d JOIN internal_accounts a ON a.id = d.account_id
                UNION ALL SELECT currency, balance::numeric + held - owed FROM internal_accounts
                UNION ALL SELECT currency, settled::numeric - refunded - written_off
                FROM card_transactions
                UNION ALL SELECT currency, amount FROM ({payments.SUB_LEDGER}) p
            ) m GROUP BY m.currency
        ) k WHERE k.lost <> 0),
        (SELECT count(*) FROM internal_accounts a JOIN LATERAL (
            SELECT balance_after, account_version FROM entries e WHERE e.account_id = a.id
            ORDER BY account_version DESC LIMIT 1
        ) e ON true WHERE (a.balance, a.version) <> (e.balance_after, e.account_version)),
        (SELECT count(*) FROM inbox)
"""

_READ_PAUSE_S: Final = 0.4


def instrument(system: System) -> None:
    """Install the log of accepted messages."""
    with system.connect() as connection:
        connection.execute(_INSTRUMENTS.encode())


class Reader:
    """Reads the whole of the books in one snapshot, again and again."""

    def __init__(self, system: System) -> None:
        """Read the database of `system`, past the links."""
        self._system: Final = system
        self._stopping: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="reader", daemon=True)
        self.snapshots = 0
        self.unavailable = 0
        self.violations: Final[list[str]] = []
        self.most_waiting = 0

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._system.connect() as connection:
                    while not self._stopping.wait(_READ_PAUSE_S):
                        self.read(connection)
            except psycopg.OperationalError:
                self.unavailable += 1
                self._stopping.wait(_READ_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - the books are not read any more
                self.violations.append(f"the reader has ended: {type(error).__name__}: {error}")
                return

    def read(self, connection: psycopg.Connection[Any]) -> None:
        """Read the books once, in one snapshot, and note where money is not conserved."""
        row = connection.execute(_CONSERVATION.encode()).fetchone()
        assert row is not None
        lost, differing, waiting = row
        self.snapshots += 1
        self.most_waiting = max(self.most_waiting, waiting)
        if lost:
            found = ", ".join(lost)
            self.violations.append(f"{found} more or less than deposited at {time.time():.3f}")
        if differing:
            self.violations.append(f"{differing} balances differ from their last entries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A message that was committed to the inbox."""

    id: Id
    lane: int
    shard: int
    customer_id: Id
    key: tuple[str, str]
    body: Mapping[str, Any]
    body_hash: bytes
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A row of `outcomes`, with the moment of its commit."""

    message_id: Id
    customer_id: Id
    key: tuple[str, str]
    body_hash: bytes
    outcome: str
    reason: str | None
    subject_id: Id | None
    at: float

    @property
    def order(self) -> tuple[float, bytes]:
        """Decisions about one cardholder happened in this order."""
        return self.at, bytes(self.message_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A row of `rejections`."""

    message_id: Id
    key: tuple[str | None, str | None]
    reason: str
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record at the end of a storm."""

    accepted: dict[Id, Accepted]
    decisions: dict[tuple[str, str], Decision]
    rejections: list[Rejection]

    def timeout_reversals(self) -> dict[tuple[str, str], Decision]:
        """Return the decision about the timeout reversal of each authorization that has one."""
        return {
            key_of(self.accepted[decision.message_id].body["authorization"]): decision
            for key, decision in self.decisions.items()
            if key[0] == timeout_reversals.SOURCE and decision.message_id in self.accepted
        }


def key_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the idempotency key of a message."""
    return body["source"], body["reference"]


def read(system: System) -> Record:
    """Return the record as it is now."""
    with system.connect() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        accepted = connection.execute(
            "SELECT id, lane, shard, customer_id, source, reference, body, body_hash,"
            " extract(epoch FROM at)::float8 FROM storm.accepted"
        ).fetchall()
        decided = connection.execute(
            "SELECT message_id, customer_id, source, reference, body_hash, outcome, reason,"
            " subject_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM outcomes"
        ).fetchall()
        rejected = connection.execute(
            "SELECT id, source, reference, reason, detail FROM rejections"
        ).fetchall()
    return Record(
        accepted={
            row[0]: Accepted(
                id=row[0], lane=row[1], shard=row[2], customer_id=row[3], key=(row[4], row[5]),
                body=row[6], body_hash=row[7], at=row[8],
            )
            for row in accepted
        },
        decisions={
            (row[2], row[3]): Decision(
                message_id=row[0], customer_id=row[1], key=(row[2], row[3]), body_hash=row[4],
                outcome=row[5], reason=row[6], subject_id=row[7], at=row[8],
            )
            for row in decided
        },
        rejections=[
            Rejection(message_id=row[0], key=(row[1], row[2]), reason=row[3], detail=row[4])
            for row in rejected
        ],
    )  # fmt: skip
