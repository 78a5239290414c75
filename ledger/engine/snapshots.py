"""What a batch reads: one statement a table, those that every batch needs in one round trip.

The accounts are locked first, until the commit; what is read after that cannot change any more.
"""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.books.calendars import CachedCalendars
from cardledger.ledger.books.system_accounts import SystemAccounts
from cardledger.ledger.engine import debts, reads, timeout_reversal_reads
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.failures import StaleSnapshotError
from cardledger.ledger.engine.parsing import (
    adjustments_of,
    card_transaction_keys_of,
    cards_of_money,
    closings_of,
    key_of,
    late_authorizations,
    receivers_of,
    settlement_bookings_of,
    suspended_events,
    transfers_of,
)
from cardledger.ledger.engine.records import SuspenseItem
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.database_clock import Reading
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.outcomes import OutcomeType


class SnapshotReader:
    """Reads the snapshots of an engine's batches; keeps what never changes. Safe in threads."""

    def __init__(self, key: InboxKey) -> None:
        """Believe timeout reversals that wait, and payments, when they were signed with `key`."""
        self._key: Final = key
        self._system_accounts: Final = SystemAccounts()
        self._calendars: Final = CachedCalendars()

    def read(
        self, connection: Connection[Any], messages: Sequence[Message]
    ) -> tuple[BatchSnapshot, Reading]:
        """Lock the accounts of the cardholders of `messages` and return what decides on them.

        Returned are the snapshot and the time by PostgreSQL's clock, read after the locks.
        Raises: StaleSnapshotError.
        """
        left_out: list[Message] = []
        keys = card_transaction_keys_of(messages, left_out=left_out)
        suspended = suspended_events(left_out)
        keys |= card_transaction_keys_of(suspended)
        customers = list({message.customer_id for message in messages})
        share = debts.limit_of(len(customers))
        with connection.pipeline():
            # The locks come first: what is read after them cannot change any more.
            accounts_of = reads.lock_accounts(connection, customers)
            key_columns = reads.columns(keys)
            roll_ups_of = reads.roll_ups(connection, key_columns)
            late = late_authorizations(messages)
            timed_out = [*map(key_of, late)]
            idempotency_keys = [*map(key_of, messages), *timed_out, *map(key_of, suspended)]
            outcomes_of = reads.outcomes(connection, idempotency_keys)
            card_ids = {card_id for _, card_id, _ in keys} | cards_of_money(left_out)
            cards_of = reads.cards(connection, card_ids)
            debts_of = debts.read(connection, customers, share)
            parked_of = reads.parked(connection, key_columns)
            # After the locks: a batch that waited for another is recorded later than the other.
            books_of = reads.state_of_books(connection)
        books, accounts = books_of(), accounts_of()
        charts = {(account.platform_id, account.currency) for account in accounts.values()}
        # Read only when needed: most batches have none of them.
        pages = reads.closing_pages(connection, closings_of(messages))
        adjustments = reads.lock_adjustments(connection, adjustments_of(messages))
        charts |= {(each.platform_id, each.currency) for each in adjustments.values()}
        bookings = reads.lock_settlement_bookings(connection, settlement_bookings_of(messages))
        charts |= {(each.platform_id, each.currency) for each in bookings.values()}
        transfers = reads.lock_signed_transfers(connection, transfers_of(messages), self._key)
        charts |= {(each.platform_id, each.arriving_currency) for each in transfers.values()}
        outcomes, parked = outcomes_of(), parked_of()
        roll_ups = roll_ups_of()
        items: Sequence[SuspenseItem] = ()
        if books.has_suspense:
            ids = [*reads.ids_of(parked), *reads.suspended_by(adjustments)]
            items = reads.suspense_items(connection, ids, idempotency_keys)
        approved = [
            found
            for key in timed_out
            if (found := outcomes.get(key)) and found.outcome == OutcomeType.APPLIED
        ]
        approved_keys = {row.key for row in approved}
        cleared = card_transaction_keys_of(
            each
            for each in late
            if each.body.get("type") == EventType.FINANCIAL_AUTHORIZATION
            and (key_of(each) in approved_keys or key_of(each) not in outcomes)
        )
        expecting = [roll_up for page in pages.values() for roll_up in page.expecting]
        snapshot = BatchSnapshot(
            outcomes=outcomes,
            reversals=reads.reversals(
                connection, messages, outcomes, self._key, any_waits=books.has_reversals
            ),
            late_histories=timeout_reversal_reads.late_histories(
                connection,
                approved,
                [each.identity.id for each in roll_ups if cleared and each.identity.key in cleared],
            ),
            cards=cards_of(),
            accounts=accounts,
            roll_ups=roll_ups + expecting,
            closing_pages=pages,
            debts=debts.read_on(connection, debts_of(), share),
            parked=parked,
            transfers=transfers,
            adjustments=adjustments,
            settlement_bookings=bookings,
            platform_customer_ids=reads.platform_customer_ids(connection, receivers_of(messages)),
            system_accounts=self._system_accounts.of(connection, charts),
            suspense_items=items,
            calendars=self._calendars.current(connection, books.calendar_versions),
            first_open_day=books.first_open_day,
        )
        # Each statement reads what is committed before it: an account that was opened after the
        # locks were taken can be the funding source of a card that was read after that.
        if not accounts.keys() >= snapshot.accounts_used_by(set(customers)):
            raise StaleSnapshotError
        return snapshot, books.reading
