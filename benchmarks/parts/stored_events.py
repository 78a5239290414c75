"""Millions of stored events for an empty ledger, written by SQL on the server.

The engine would take far too long for them. So these are its rows as it would have written them
(what `verify` proves), in the same order, so that tables and indexes get the same size and shape:
purchases of many cardholders in turn, each authorized and then cleared for good, every second
with a tip. Two connections share the cardholders, as two threads of a worker do. Of earlier days
only the ids and times are in that order: some cardholders are written after others.

Webhook deliveries are left out: the engine never reads `webhook_deliveries`, which would be
most of the bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any, Final

import psycopg

from benchmarks import workload
from benchmarks.workbench import Bench
from benchmarks.workload import Cardholder

EVENTS_PER_PURCHASE: Final = 3.5
"""Authorized, pulled, cleared; every second one has the pull of a tip besides."""

_CONNECTIONS: Final = 2
_AT_A_TIME: Final = (
    40_000  # Purchases a connection writes at a time, as near as its cardholders allow.
)
_AT_A_TIME_IN_ORDER: Final = 4_000  # So that entries are about in the order of their times.

OnWritten = Callable[[int], None]
"""Called now and then with how many more events there are."""

# New books begin with this month, and PostgreSQL refuses entries of earlier days.
_BEGIN_BOOKS: Final = "UPDATE books SET first_open_day = least(first_open_day, (now() - %s)::date)"


def write(
    bench: Bench,
    cardholders: Sequence[Cardholder],
    events: int,
    on_written: OnWritten,
    *,
    days: int = 0,
) -> int:
    """Write at least `events` events about purchases of `cardholders`; return how many.

    No other process may use the accounts of `cardholders` meanwhile. Events and entries are
    recorded and posted over the last `days`, 500 purchases at a moment; with 0, now.
    """
    if days:
        with psycopg.connect(bench.owner_url, autocommit=True) as connection:
            connection.execute(_BEGIN_BOOKS, [timedelta(days=days + 1)])
    share = ceil(len(cardholders) / _CONNECTIONS)
    parts = [
        _Part(bench.owner_url, part, wanted=events * len(part) // len(cardholders), days=days)
        for part in workload.in_batches(cardholders, share)
    ]
    with ThreadPoolExecutor(len(parts)) as pool:
        written = sum(
            [part.result() for part in [pool.submit(part.write, on_written) for part in parts]]
        )
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        # As autovacuum would have left it, so that it does not run during a measurement.
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return written


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the cardholders, and the events that they still lack."""

    url: str
    cardholders: Sequence[Cardholder]
    wanted: int
    days: int

    def write(self, on_written: OnWritten) -> int:
        written = 0
        with psycopg.connect(self.url) as connection:
            connection.execute(_CARDHOLDERS)
            with connection.cursor().copy("COPY cardholder FROM STDIN") as copy:
                for place, cardholder in enumerate(self.cardholders):
                    copy.write_row((place, cardholder.card_id, cardholder.account_id))
            while written < self.wanted:
                purchases = self._each(self.wanted - written) * len(self.cardholders)
                self._round(connection, purchases, written)
                events = int(purchases * EVENTS_PER_PURCHASE)
                on_written(events)
                written += events
        return written

    def _each(self, events: int) -> int:
        """Return how many purchases each cardholder makes next: even, as each second has a tip."""
        wanted = ceil(events / EVENTS_PER_PURCHASE / len(self.cardholders))
        at_a_time = _AT_A_TIME_IN_ORDER if self.days else _AT_A_TIME
        most = at_a_time // len(self.cardholders)
        return max(2, 2 * ceil(min(wanted, most) / 2))

    def _round(self, connection: psycopg.Connection[Any], purchases: int, written: int) -> None:
        """Authorize and then clear so many purchases, in a commit each."""
        values = {"purchases": purchases, **self._times(written)}
        for phase in (_AUTHORIZE, _CLEAR):
            for statement in phase:
                connection.execute(statement, values)
            connection.commit()
        connection.execute("DROP TABLE purchase")

    def _times(self, written: int) -> Mapping[str, timedelta | None]:
        """Return how long before now the next purchases begin, and the time between two of them."""
        if not self.days:
            return {"before": None, "between": None}
        between = timedelta(days=self.days) * EVENTS_PER_PURCHASE / self.wanted
        left = max(1 - written / self.wanted, 0)
        return {"before": timedelta(days=self.days) * left, "between": between}


# So that 500 purchases have one moment, as those of a batch.
_AT: Final = """
    least(now(), coalesce(
        now() - %(before)s::interval + (n / 500 * 500) * %(between)s::interval, now()
    ))
"""


def _id(salt: str) -> str:
    """Return SQL for the UUIDv7 of row `n`: rising with its time and `n`, random, no magic end.

    A thousand are of one millisecond, from the moment of the row on. Rows of now take longer to
    write, so the next phase begins later than the last of these says.
    """
    return (
        f"(lpad(to_hex((extract(epoch FROM {_AT}) * 1000)::int8 + n / 1000), 12, '0')"
        " || '7' || lpad(to_hex(mod(n, 1000)), 3, '0')"
        f" || '8' || substr(md5(n || '{salt}' || now() || pg_backend_pid()), 1, 12) || 'abc')::uuid"
    )


_CARDHOLDERS: Final = """
    CREATE TEMP TABLE cardholder (place int PRIMARY KEY, card_id uuid, account_id uuid)
"""

_AUTHORIZE: Final = (
    f"""
    CREATE TEMP TABLE purchase AS
    SELECT n, {_id("purchase")} AS id, {_id("authorization")} AS message_id,
        {_id("reference")}::text AS reference, a.customer_id, a.platform_id, h.card_id,
        a.id AS account_id, s.id AS holds_id, a.currency, p.amount, {_AT} AS at,
        -- Every second of a cardholder's has a tip, of a fifth.
        CASE WHEN mod(nth, 2) = 0 THEN p.amount / 5 ELSE 0 END AS tip,
        a.version + nth AS account_version,
        a.balance - sum(p.amount) OVER (PARTITION BY a.id ORDER BY n) AS balance_after
    FROM (
        SELECT n, 100 + mod(n * 7919::int8, 19900) AS amount, mod(n, h.count) AS place,
            1 + n / h.count AS nth
        FROM generate_series(0, %(purchases)s - 1) n, (SELECT count(*) FROM cardholder) h
    ) p
    JOIN cardholder h USING (place)
    JOIN internal_accounts a ON a.id = h.account_id
    JOIN system_accounts s
        ON (s.platform_id, s.currency, s.kind) = (a.platform_id, a.currency, 'CARD_HOLDS')
    """,
    f"""
    INSERT INTO card_transactions (id, customer_id, platform_id, card_id, account_id,
        issuer_transaction_token, currency, descriptor, mcc, country, status, sequence,
        authorizations, authorized, pulled, pull_count, expires_at, created_at, updated_at)
    -- Whenever it was authorized, it is cleared before a worker could release it as expired.
    SELECT id, customer_id, platform_id, card_id, account_id, 'stored-' || account_version,
        currency, '{workload.MERCHANT["descriptor"]}', '{workload.MERCHANT["mcc"]}',
        '{workload.MERCHANT["country"]}', 'AUTHORIZED', 2, 1, amount, amount, 1,
        now() + interval '7 days', at, at
    FROM purchase ORDER BY n
    """,
    """
    INSERT INTO card_transaction_events (card_transaction_id, sequence, customer_id, kind, amount,
        message_id, occurred_at, recorded_at)
    SELECT id, f.sequence, customer_id, f.kind, amount, message_id, at, at
    FROM purchase, (VALUES (1, 'AUTHORIZED'), (2, 'PULLED')) f (sequence, kind)
    ORDER BY n, f.sequence
    """,
    """
    INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,
        credit_account_id, amount, account_id, account_version, balance_after, recorded_at,
        occurred_at, posted_on)
    SELECT id, 2, 0, customer_id, account_id, holds_id, amount, account_id, account_version,
        balance_after, at, at, (at AT TIME ZONE 'UTC')::date
    FROM purchase ORDER BY n
    """,
    f"""
    INSERT INTO outcomes (reference, source, platform_id, customer_id, body_hash, message_id,
        outcome, subject_id, sequence, recorded_at)
    SELECT reference, '{workload.SOURCE}', platform_id, customer_id, decode(md5(reference), 'hex'),
        message_id, 'APPLIED', id, 2, now()
    FROM purchase ORDER BY n
    """,
    # As if each write to the inbox had 500 messages.
    """
    INSERT INTO acceptances (ids, recorded_at)
    SELECT array_agg(message_id), now() FROM purchase GROUP BY n / 500
    """,
    """
    UPDATE internal_accounts a SET balance = balance - p.amount, held = held + p.amount,
        version = version + p.entries, updated_at = now()
    FROM (
        SELECT account_id, sum(amount) AS amount, count(*) AS entries FROM purchase
        GROUP BY account_id
    ) p WHERE a.id = p.account_id
    """,
)

_CLEAR: Final = (
    f"""
    CREATE TEMP TABLE clearing ON COMMIT DROP AS
    SELECT p.n, p.id, {_id("clearing")} AS message_id, {_id("other")}::text AS reference,
        p.customer_id, p.platform_id, p.account_id, p.holds_id, s.id AS settlement_id, p.amount,
        p.tip, {_AT} AS at, a.version + count(*) FILTER (WHERE p.tip > 0) OVER w AS account_version,
        a.balance - sum(p.tip) OVER w AS balance_after,
        3 + (p.tip > 0)::int AS sequence
    FROM purchase p
    JOIN internal_accounts a ON a.id = p.account_id
    JOIN system_accounts s
        ON (s.platform_id, s.currency, s.kind) = (p.platform_id, p.currency, 'NETWORK_SETTLEMENT')
    WINDOW w AS (PARTITION BY p.account_id ORDER BY p.n)
    """,
    """
    UPDATE card_transactions t SET status = 'SETTLED', sequence = c.sequence,
        settled = c.amount + c.tip, settlement_count = 1, pulled = c.amount + c.tip,
        pull_count = c.sequence - 2, closed_by = 'CLEARED', expires_at = NULL,
        last_event_at = c.at, updated_at = c.at
    FROM clearing c WHERE t.id = c.id AND t.customer_id = c.customer_id
    """,
    """
    INSERT INTO card_transaction_events (card_transaction_id, sequence, customer_id, kind, amount,
        unfunded, final, message_id, occurred_at, recorded_at)
    SELECT id, f.sequence, customer_id, kind, f.amount, unfunded, final, message_id, at, at
    FROM clearing c, LATERAL (VALUES
        (3, 'PULLED', tip, NULL, NULL),
        (c.sequence, 'CLEARED', c.amount + tip, 0, true)
    ) f (sequence, kind, amount, unfunded, final)
    WHERE kind = 'CLEARED' OR tip > 0
    ORDER BY n, f.sequence
    """,
    """
    INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,
        credit_account_id, amount, account_id, account_version, balance_after, recorded_at,
        occurred_at, posted_on)
    SELECT id, f.sequence, 0, customer_id, debit, credit, f.amount, f.account_id, version,
        balance, at, at, (at AT TIME ZONE 'UTC')::date
    FROM clearing c, LATERAL (VALUES
        (3, c.account_id, holds_id, tip, c.account_id, account_version, balance_after),
        (c.sequence, holds_id, settlement_id, c.amount + tip, NULL, NULL, NULL)
    ) f (sequence, debit, credit, amount, account_id, version, balance)
    WHERE f.amount > 0 AND (f.account_id IS NULL OR tip > 0)
    ORDER BY n, f.sequence
    """,
    f"""
    INSERT INTO outcomes (reference, source, platform_id, customer_id, body_hash, message_id,
        outcome, subject_id, sequence, recorded_at)
    SELECT reference, '{workload.SOURCE}', platform_id, customer_id, decode(md5(reference), 'hex'),
        message_id, 'APPLIED', id, sequence, now()
    FROM clearing ORDER BY n
    """,
    # As if each write to the inbox had 500 messages.
    """
    INSERT INTO acceptances (ids, recorded_at)
    SELECT array_agg(message_id), now() FROM clearing GROUP BY n / 500
    """,
    """
    UPDATE internal_accounts a SET balance = balance - c.tip, held = held - c.amount,
        version = version + c.entries, updated_at = now()
    FROM (
        SELECT account_id, sum(amount) AS amount, sum(tip) AS tip,
            count(*) FILTER (WHERE tip > 0) AS entries
        FROM clearing GROUP BY account_id
    ) c WHERE a.id = c.account_id
    """,
)
