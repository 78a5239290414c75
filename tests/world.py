"""A platform with cardholders in a real database, and the engine driven by hand: no HTTP."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Engine as Database
from sqlalchemy import NullPool

from cardledger.ledger.audit.verification import Report, verify
from cardledger.ledger.books import totals
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.decider import Clock
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import canaries, inbox
from cardledger.ledger.messaging.inbox import (
    CARD_CLOSED,
    DEPOSIT,
    PULL_CONFIRMATION,
    RECOVERY,
    SUSPENSE,
    TRANSFER,
    UNROUTED,
    Lane,
    Message,
    Owner,
)
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.projections import card_transaction_rows, history, transfers
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.batch_connections import batch_engine
from cardledger.ledger.storage.engines import async_engine, driver, sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import Scene
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.databases import as_role
from tests.due import enqueue_due
from tests.waiting import eventually

SECRET_KEY: Final = "a server key for tests, 32 characters and more"
INBOX_KEY: Final = InboxKey(SECRET_KEY)
SOURCES: Final = {
    CARD_CLOSED: "cards",
    PULL_CONFIRMATION: "schedule",
    RECOVERY: "engine",
    SUSPENSE: "engine",
    TRANSFER: "transfers",
}
"""The sources of messages of the ledger itself."""
RAIL: Final = SandboxFundingRail(delay=timedelta(0))

# Look-ups that the engine's own tables answer about one account.
_ACCOUNT: Final = "SELECT balance, held, owed, version FROM internal_accounts WHERE id = %s"
_ROLL_UPS: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)},
        u.platform_customer_id
    FROM card_transactions t JOIN customers u ON u.id = t.customer_id WHERE t.account_id = %s
"""


_TOKEN: Final = card_transaction_rows.COLUMNS.index("issuer_transaction_token")
_STATUS: Final = card_transaction_rows.COLUMNS.index("status")


def figures_of(row: Sequence[Any]) -> dict[str, Any]:
    """Return the figures of a stored roll-up with the field names of fixtures/lifecycles.json."""
    state = card_transaction_rows.from_row(row).state
    return {
        "status": row[_STATUS],
        "authorized": state.authorized_amount,
        "pullCount": state.pull_count,
        "pulled": state.pulled,
        "released": state.released,
        "settled": state.settled_amount,
        "refunded": state.refunded - state.credited,
    }


@dataclass(frozen=True, slots=True)
class Cardholder:
    """A cardholder with one card on one account."""

    owner: Owner
    account_id: Id
    card_id: Id

    @property
    def shard(self) -> int:
        return inbox.shard_of(self.owner.customer_id)

    @property
    def scene(self) -> Scene:
        return Scene(f"Card:{self.card_id}", str(self.account_id), source="test")


class World:
    """Creates platforms and cardholders by SQL, drives the engine, reads the database."""

    def __init__(self, url: str, app_url: str) -> None:
        self.connection: Final = psycopg.connect(url, autocommit=True)
        self.url: Final = url
        self.app_url: Final = app_url
        self.api_url: Final = as_role(app_url, Role.API)
        self.worker_url: Final = as_role(app_url, Role.WORKER)
        self.webhooks_url: Final = as_role(app_url, Role.WEBHOOKS)
        self.database: Final[Database] = batch_engine(self.worker_url, pool_size=8)
        # As `cardledger verify` does: a night's payments take longer than a reply may.
        self._finance: Final[Database] = sync_engine(
            as_role(app_url, Role.READER), pool_size=1, reply_limit_s=None
        )
        self._references: Final = count(1)

    def close(self) -> None:
        self.connection.close()
        self.database.dispose()
        self._finance.dispose()

    def verify(self) -> Report:
        """Audit the ledger with the role of finance, which can only read."""
        return verify(self._finance)

    # --- platforms and cardholders ------------------------------------------------------------

    def platform(self) -> Id:
        async def create() -> Id:
            engine = async_engine(self.app_url, poolclass=NullPool)
            async with engine.begin() as connection:
                keys = KeyRing(SECRET_KEY)
                platform = await platforms.create(connection, name="Test", keys=keys)
            return platform.id

        return asyncio.run(create())

    def cardholder(
        self,
        platform_id: Id,
        balance: int = 0,
        *,
        max_spend: int | None = None,
        engine: Engine | None = None,
    ) -> Cardholder:
        """Return a new cardholder, on whose account `balance` is deposited."""
        now, customer_id, card_id = datetime.now(UTC), new_id(), new_id()
        self.connection.execute(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'INDIVIDUAL', 'APPROVED', %s, '{USD}', %s, %s)",
            [customer_id, platform_id, str(customer_id), f"${customer_id}@test", now, now],
        )
        account_id = self._account(Owner(customer_id, platform_id), "USD", "ACTIVE")
        self.connection.execute(
            "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form,"
            " currency, funding_sources, max_spend_per_transaction, processor_ref, issuer_ref,"
            " created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, 'ACTIVE', 'VIRTUAL', 'USD', %s, %s, 'p', 'i', %s, %s)",
            [card_id, customer_id, platform_id, str(card_id), [account_id], max_spend, now, now],
        )
        cardholder = Cardholder(Owner(customer_id, platform_id), account_id, card_id)
        if balance:
            self.process(engine or self.engine(), [(cardholder, self.deposit(cardholder, balance))])
        return cardholder

    def another_account(
        self,
        cardholder: Cardholder,
        balance: int = 0,
        *,
        currency: str = "USD",
        status: str = "ACTIVE",
    ) -> Cardholder:
        """Return `cardholder` with another account, on which `balance` is deposited."""
        other = replace(cardholder, account_id=self._account(cardholder.owner, currency, status))
        if balance:
            self.process(self.engine(), [(other, self.deposit(other, balance))])
        return other

    def _account(self, owner: Owner, currency: str, status: str) -> Id:
        key, now = new_id(), datetime.now(UTC)
        self.connection.execute(
            "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
            " created_at, updated_at) VALUES (%s, %s, %s, %s, 'INTERNAL_FIAT', %s, %s, %s)",
            [key, owner.customer_id, owner.platform_id, currency, status, now, now],
        )
        return key

    def agent(self, cardholder: Cardholder, **policy: Any) -> Id:  # noqa: ANN401 - JSON
        """Return a new agent of `cardholder` that may make transfers without approval.

        `policy` overrides fields of its policy, as the HTTP interface names them.
        """
        key = new_id()
        usual = {
            "permissions": ["CREATE_TRANSFERS"],
            "defaultExecutionMode": "AUTO",
            "spendingLimits": {"currency": "USD", "perTransactionLimit": 1_000_000},
        }
        self.connection.execute(
            "INSERT INTO agents (id, platform_id, customer_id, name, is_paused, policy, created_at,"
            " updated_at) VALUES (%s, %s, %s, 'test', false, %s, now(), now())",
            [
                key,
                cardholder.owner.platform_id,
                cardholder.owner.customer_id,
                Jsonb(usual | policy),
            ],
        )
        return key

    def engine(
        self,
        *,
        clock: Clock | None = None,
        batch_size: int = 500,
        rail: FundingRail | None = RAIL,
        database: Database | None = None,
    ) -> Engine:
        return Engine(
            database or self.database,
            key=INBOX_KEY,
            clock=clock,
            rail=rail,
            batch_size=batch_size,
        )

    # --- events ----------------------------------------------------------------------------

    def authorization(
        self,
        cardholder: Cardholder,
        token: str,
        amount: int,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return self._event("AUTHORIZATION", cardholder, token, amount, fields)

    def clearing(
        self,
        cardholder: Cardholder,
        token: str,
        amount: int,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return self._event("CLEARING", cardholder, token, amount, fields)

    def deposit(self, cardholder: Cardholder, amount: int) -> dict[str, Any]:
        return {
            "type": DEPOSIT,
            "source": "test",
            "reference": self._reference(),
            "accountId": str(cardholder.account_id),
            "amount": amount,
        }

    def transfer(self, source: Cardholder, destination: Cardholder, amount: int) -> dict[str, Any]:
        """Insert a transfer in state PROCESSING; return the message that executes it."""
        key = new_id()
        self.connection.execute(
            "INSERT INTO transfers (id, customer_id, platform_id, source_account_id,"
            " destination_account_id, amount, currency, status, created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, 'USD', 'PROCESSING', now(), now())",
            [
                key,
                source.owner.customer_id,
                source.owner.platform_id,
                source.account_id,
                destination.account_id,
                amount,
            ],
        )
        self.sign(key, source.owner.customer_id)
        return {
            "type": TRANSFER,
            "source": "transfers",
            "reference": str(key),
            "transferId": str(key),
        }

    def sign(self, key: Id, customer_id: Id) -> None:
        """Sign the terms of a transfer, as who requests it does."""
        row = transfers.lock(self.connection, [(key, customer_id)])[key]
        mac = INBOX_KEY.mac_of_terms(Signed.PAYMENT, row.signed_terms)
        self.connection.execute("UPDATE transfers SET mac = %s WHERE id = %s", [mac, key])

    def event(
        self,
        kind: str,
        cardholder: Cardholder,
        token: str,
        amount: int | None = None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return self._event(kind, cardholder, token, amount, fields)

    def card_closed(self, cardholder: Cardholder) -> dict[str, Any]:
        return {
            "type": CARD_CLOSED,
            "source": "cards",
            "reference": self._reference(),
            "cardId": f"Card:{cardholder.card_id}",
        }

    def _reference(self) -> str:
        return f"r-{next(self._references)}"

    def _event(
        self,
        kind: str,
        cardholder: Cardholder,
        token: str,
        amount: int | None,
        fields: Mapping[str, Any],
    ) -> dict[str, Any]:
        return {
            "type": kind,
            "source": "test",
            "reference": self._reference(),
            "issuerTransactionToken": token,
            "cardId": f"Card:{cardholder.card_id}",
            **({} if amount is None else {"amount": amount}),
            "currency": "USD",
            **fields,
        }

    def run_timers(self, engine: Engine, now: datetime) -> list[Decided]:
        """Enqueue the timers that are due at `now`, and process their messages."""
        with psycopg.connect(self.worker_url) as connection:
            enqueue_due(connection, timers.Timers(INBOX_KEY), now)
        return [decision for lane in Lane for decision in self.drain(engine, lane)]

    # --- inbox and engine -------------------------------------------------------------

    def accept(
        self, events: Sequence[tuple[Cardholder | None, Mapping[str, Any]]], lane: Lane = Lane.LIVE
    ) -> list[Message]:
        """Put `events` into the inbox as the client does; without a cardholder: unrouted."""
        now = datetime.now(UTC)
        messages = [
            inbox.address(
                body, cardholder.owner if cardholder else UNROUTED, lane=lane, reply_to=None, at=now
            )
            for cardholder, body in events
        ]

        async def write() -> None:
            async with await psycopg.AsyncConnection.connect(self.api_url) as connection:
                await inbox.accept_async(connection, messages, INBOX_KEY)

        asyncio.run(write())
        return messages

    def accept_messages(self, messages: Sequence[Message]) -> None:
        """Put `messages`, which have their ids already, into the inbox."""
        with psycopg.connect(self.api_url) as connection:
            inbox.accept(connection, messages, INBOX_KEY)

    def insert_unchecked(
        self, cardholder: Cardholder, body: str, *, reference: str, source: str | None = None
    ) -> Id:
        """Insert an inbox row without the client's validation: `body` is any JSON text.

        Its source is, unless given, one that may send a message of its type.
        """
        source = source or next(
            (SOURCES[kind] for kind in SOURCES if f'"type": "{kind}"' in body), "test"
        )
        key, owner, now = new_id(), cardholder.owner, datetime.now(UTC)
        identity = (0, cardholder.shard, key, owner.customer_id, owner.platform_id)
        columns = (*identity, source, reference, body, reference.encode(), None, now)
        self.connection.execute(
            "INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference,"
            " body, body_hash, reply_to, received_at, mac)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [*columns, INBOX_KEY.mac(columns)],
        )
        return key

    def drain(self, engine: Engine, lane: Lane = Lane.LIVE) -> list[Decided]:
        """Drain every queue of `lane`; return the decisions in order of arrival."""
        decided: list[Decided] = []
        for queue_lane, shard in engine.waiting():
            if queue_lane is lane:
                engine.drain(lane, [shard], decided.extend)
        return sorted(decided, key=lambda decision: decision.message.id)

    def process(
        self,
        engine: Engine,
        events: Sequence[tuple[Cardholder | None, Mapping[str, Any]]],
        lane: Lane = Lane.LIVE,
    ) -> list[Decided]:
        """Accept `events` and drain `lane`; return their decisions in their order."""
        ids = {message.id for message in self.accept(events, lane)}
        return [d for d in self.drain(engine, lane) if d.message.id in ids]

    def add_totals(self, *, page_entries: int, account_entries: int) -> None:
        """Add totals of all entries, but for the last that fill no page.

        Waits until older database transactions have ended, those in other databases of the server.
        """
        lacking = (
            "SELECT count(*) < %s FROM posting_totals_progress p"
            " JOIN entries e ON e.recorded_at > greatest(p.recorded_until, '1970-01-01')"
        )

        def are_added() -> bool:
            self.advance_totals(page_entries=page_entries, account_entries=account_entries)
            return self.rows(lacking, page_entries) == [(True,)]

        eventually(are_added)

    def advance_totals(self, *, page_entries: int, account_entries: int) -> None:
        """Add what totals can be added now, as a worker does."""
        has_more = True
        while has_more:
            with self.database.begin() as outer:
                has_more = totals.advance(
                    driver(outer), page_entries=page_entries, account_entries=account_entries
                )

    # --- reads and checks -----------------------------------------------------------------

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), parameters).fetchall()

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def count_waiting(self) -> int:
        """Return how many messages wait, without the canaries of workers."""
        [(waiting,)] = self.rows("SELECT count(*) FROM inbox WHERE source <> %s", canaries.SOURCE)
        return int(waiting)

    def account(self, cardholder: Cardholder) -> dict[str, Any]:
        """Return the account with the field names of fixtures/lifecycles.json."""
        [(balance, held, owed, _)] = self.rows(_ACCOUNT, cardholder.account_id)
        return {
            "balance": balance,
            "held": held,
            "owed": owed,
            "transactions": {
                row[_TOKEN]: figures_of(row) for row in self.rows(_ROLL_UPS, cardholder.account_id)
            },
        }

    def balance(self, cardholder: Cardholder) -> int:
        [(balance, *_)] = self.rows(_ACCOUNT, cardholder.account_id)
        return int(balance)

    def check_books(self, cardholder: Cardholder, model: Model | None = None) -> None:
        """Recompute the account from events and from entries; assert that all agree."""
        self._check_roll_ups(cardholder)
        self._check_entries(cardholder)
        if model is not None:
            assert self.account(cardholder) == model.account()
            queue = self.rows(
                "SELECT issuer_transaction_token FROM card_transactions"
                " WHERE account_id = %s AND debt_id IS NOT NULL ORDER BY debt_since, debt_id",
                cardholder.account_id,
            )
            assert [token for (token,) in queue] == model.queue
            [(pending,)] = self.rows(
                "SELECT pending FROM internal_accounts WHERE id = %s", cardholder.account_id
            )
            assert pending == model.pending()
            [(parked,)] = self.rows(
                "SELECT count(*) FROM parked WHERE customer_id = %s", cardholder.owner.customer_id
            )
            assert parked == len(model.parked)
            assert self._suspended(cardholder) == model.suspended()

    def _check_roll_ups(self, cardholder: Cardholder) -> None:
        """Fold the events of every card transaction and compare the result with its row."""
        rows = self.rows(
            "SELECT id, sequence FROM card_transactions WHERE account_id = %s",
            cardholder.account_id,
        )
        with psycopg.connect(self.app_url) as connection:
            folded = history.at(connection, rows)
            stored = asyncio.run(self._stored([key for key, _ in rows]))
        assert {row[0]: roll_up for row, roll_up in folded.items()} == stored
        counted = dict(
            self.rows(
                "SELECT t.id, count(e.*) FROM card_transactions t"
                " LEFT JOIN card_transaction_events e ON e.card_transaction_id = t.id"
                " WHERE t.account_id = %s GROUP BY t.id",
                cardholder.account_id,
            )
        )
        assert counted == dict(rows)

    async def _stored(self, ids: Sequence[Id]) -> dict[Id, Any]:
        async with await psycopg.AsyncConnection.connect(self.api_url) as connection:
            return await history.current_async(connection, ids)

    def _suspended(self, cardholder: Cardholder) -> int:
        """Return what the open items of SUSPENSE are due to the network."""
        [(suspended,)] = self.rows(
            "SELECT coalesce(sum(CASE WHEN type IN ('CLEARING', 'RETURN_REVERSAL') THEN amount"
            " ELSE -amount END), 0) FROM suspense_items"
            " WHERE customer_id = %s AND resolved_at IS NULL",
            cardholder.owner.customer_id,
        )
        return int(suspended)

    def _check_entries(self, cardholder: Cardholder) -> None:
        [(balance, held, owed, version)] = self.rows(_ACCOUNT, cardholder.account_id)
        lines = self.rows(
            "SELECT account_version, balance_after, CASE WHEN credit_account_id = account_id"
            " THEN amount ELSE -amount END FROM entries WHERE account_id = %s"
            " ORDER BY account_version",
            cardholder.account_id,
        )
        running = 0
        for number, (account_version, balance_after, change) in enumerate(lines, start=1):
            running += change
            assert (account_version, balance_after) == (number, running)
        assert (len(lines), running) == (version, balance)

        by_kind = dict(
            self.rows(
                "SELECT s.kind, sum(CASE WHEN e.credit_account_id = s.id THEN e.amount"
                " ELSE -e.amount END) FROM entries e JOIN system_accounts s"
                " ON s.id IN (e.debit_account_id, e.credit_account_id)"
                " WHERE e.customer_id = %s GROUP BY s.kind",
                cardholder.owner.customer_id,
            )
        )
        [(settled, lost)] = self.rows(
            "SELECT coalesce(sum(settled - refunded), 0), coalesce(sum(written_off), 0)"
            " FROM card_transactions"
            " WHERE account_id = %s",
            cardholder.account_id,
        )
        assert by_kind.get("CARD_HOLDS", 0) == held
        assert by_kind.get("RECEIVABLE", 0) == -owed
        suspended = self._suspended(cardholder)
        assert by_kind.get("SUSPENSE", 0) == -suspended
        assert by_kind.get("NETWORK_SETTLEMENT", 0) == settled + suspended
        assert by_kind.get("OPERATOR_LOSS", 0) == -lost
        assert balance + sum(by_kind.values()) == 0


@contextmanager
def open_world(url: str, app_url: str) -> Iterator[World]:
    world = World(url, app_url)
    try:
        yield world
    finally:
        world.close()


def outcomes_of(decided: Iterable[Decided]) -> list[str]:
    return [decision.outcome.value for decision in decided]
