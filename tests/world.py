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

from cardledger.ledger.engine import timers
from cardledger.ledger.engine.commit import Clock, Engine
from cardledger.ledger.engine.decisions import Decided
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import (
    CARD_CLOSED,
    DEPOSIT,
    TRANSFER,
    UNROUTED,
    Lane,
    Message,
    Owner,
)
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import history
from cardledger.ledger.storage.engines import async_engine, sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import Scene
from cardledger.schema.ids import Id

SECRET_KEY: Final = "a server key for tests, 32 characters and more"

# Look-ups that the engine's own tables answer about one account.
_ACCOUNT: Final = "SELECT balance, held, owed, version FROM internal_accounts WHERE id = %s"
_ROLL_UPS: Final = (
    "SELECT issuer_transaction_token, status, authorized, declined, pull_count, pulled, released,"
    " settled, refunded FROM card_transactions WHERE account_id = %s"
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A cardholder with one card on one account."""

    home: Owner
    account_id: Id
    card_id: Id

    @property
    def shard(self) -> int:
        return inbox.shard_of(self.home.customer_id)

    @property
    def scene(self) -> Scene:
        return Scene(f"Card:{self.card_id}", str(self.account_id), source="test")


class World:
    """Sets the scene with SQL and events, drains queues, and reads what became of them."""

    def __init__(self, url: str, app_url: str) -> None:
        self.owner: Final = psycopg.connect(url, autocommit=True)
        self.url: Final = url
        self.app_url: Final = app_url
        self.database: Final[Database] = sync_engine(app_url, keyed=True, pool_size=8)
        self._references: Final = count(1)

    def close(self) -> None:
        self.owner.close()
        self.database.dispose()

    # --- the scene -------------------------------------------------------------------------

    def platform(self) -> Id:
        async def create() -> Id:
            engine = async_engine(self.app_url, poolclass=NullPool)
            async with engine.begin() as connection:
                keys = KeyRing(SECRET_KEY)
                platform = await platforms.create(connection, name="Test", keys=keys)
            return platform.id

        return asyncio.run(create())

    def holder(
        self,
        platform_id: Id,
        balance: int = 0,
        *,
        max_spend: int | None = None,
        engine: Engine | None = None,
    ) -> Holder:
        """Return a new cardholder; `balance` is deposited, as every balance has to be."""
        now, customer_id, card_id = datetime.now(UTC), new_id(), new_id()
        self.owner.execute(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'INDIVIDUAL', 'APPROVED', %s, '{USD}', %s, %s)",
            [customer_id, platform_id, str(customer_id), f"${customer_id}@test", now, now],
        )
        account_id = self._account(Owner(customer_id, platform_id), "USD", "ACTIVE")
        self.owner.execute(
            "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form,"
            " currency, funding_sources, max_spend_per_transaction, processor_ref, issuer_ref,"
            " created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, 'ACTIVE', 'VIRTUAL', 'USD', %s, %s, 'p', 'i', %s, %s)",
            [card_id, customer_id, platform_id, str(card_id), [account_id], max_spend, now, now],
        )
        holder = Holder(Owner(customer_id, platform_id), account_id, card_id)
        if balance:
            self.play(engine or self.engine(), [(holder, self.deposit(holder, balance))])
        return holder

    def another_account(
        self, holder: Holder, balance: int = 0, *, currency: str = "USD", status: str = "ACTIVE"
    ) -> Holder:
        """Return `holder` with another account, on which `balance` is deposited."""
        other = replace(holder, account_id=self._account(holder.home, currency, status))
        if balance:
            self.play(self.engine(), [(other, self.deposit(other, balance))])
        return other

    def _account(self, home: Owner, currency: str, status: str) -> Id:
        key, now = new_id(), datetime.now(UTC)
        self.owner.execute(
            "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
            " created_at, updated_at) VALUES (%s, %s, %s, %s, 'INTERNAL_FIAT', %s, %s, %s)",
            [key, home.customer_id, home.platform_id, currency, status, now, now],
        )
        return key

    def agent(self, holder: Holder, **policy: Any) -> Id:  # noqa: ANN401 - JSON
        """Return a new agent of the holder that may make transfers at once, unless said otherwise.

        `policy` is in the words of the interface.
        """
        key = new_id()
        usual = {
            "permissions": ["CREATE_TRANSFERS"],
            "defaultExecutionMode": "AUTO",
            "spendingLimits": {"currency": "USD", "perTransactionLimit": 1_000_000},
        }
        self.owner.execute(
            "INSERT INTO agents (id, platform_id, customer_id, name, is_paused, policy, created_at,"
            " updated_at) VALUES (%s, %s, %s, 'test', false, %s, now(), now())",
            [key, holder.home.platform_id, holder.home.customer_id, Jsonb(usual | policy)],
        )
        return key

    def engine(
        self,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        batch_size: int = 500,
        sandbox_delay: timedelta | None = timedelta(0),
    ) -> Engine:
        return Engine(
            self.database, clock=clock, sandbox_delay=sandbox_delay, batch_size=batch_size
        )

    # --- events ----------------------------------------------------------------------------

    def authorization(self, holder: Holder, token: str, amount: int, **said: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        return self._event("AUTHORIZATION", holder, token, amount, said)

    def clearing(self, holder: Holder, token: str, amount: int, **said: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        return self._event("CLEARING", holder, token, amount, said)

    def deposit(self, holder: Holder, amount: int) -> dict[str, Any]:
        return {
            "type": DEPOSIT,
            "source": "test",
            "reference": self._reference(),
            "accountId": str(holder.account_id),
            "amount": amount,
        }

    def transfer(self, source: Holder, destination: Holder, amount: int) -> dict[str, Any]:
        """Write a transfer that is to be carried out; return the message that says so."""
        key = new_id()
        self.owner.execute(
            "INSERT INTO transfers (id, customer_id, platform_id, source_account_id,"
            " destination_account_id, amount, currency, status, created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, 'USD', 'PROCESSING', now(), now())",
            [
                key,
                source.home.customer_id,
                source.home.platform_id,
                source.account_id,
                destination.account_id,
                amount,
            ],
        )
        return {
            "type": TRANSFER,
            "source": "transfers",
            "reference": str(key),
            "transferId": str(key),
        }

    def event(
        self,
        kind: str,
        holder: Holder,
        token: str,
        amount: int | None = None,
        **said: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return self._event(kind, holder, token, amount, said)

    def card_closed(self, holder: Holder) -> dict[str, Any]:
        return {
            "type": CARD_CLOSED,
            "source": "test",
            "reference": self._reference(),
            "cardId": f"Card:{holder.card_id}",
        }

    def _reference(self) -> str:
        return f"r-{next(self._references)}"

    def _event(
        self, kind: str, holder: Holder, token: str, amount: int | None, said: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "type": kind,
            "source": "test",
            "reference": self._reference(),
            "issuerTransactionToken": token,
            "cardId": f"Card:{holder.card_id}",
            **({} if amount is None else {"amount": amount}),
            "currency": "USD",
            **said,
        }

    def tick(self, engine: Engine, now: datetime) -> list[Decided]:
        """Let time speak at `now`, and decide what it says."""
        with psycopg.connect(self.app_url) as connection:
            timers.enqueue_due(connection, now)
        return [one for lane in Lane for one in self.drain(engine, lane)]

    # --- the way in and through -------------------------------------------------------------

    def accept(
        self, events: Sequence[tuple[Holder | None, Mapping[str, Any]]], lane: Lane = Lane.LIVE
    ) -> list[Message]:
        """Put `events` into the inbox as the client does; nobody's go where unknown cards go."""
        now = datetime.now(UTC)
        messages = [
            inbox.address(
                body, holder.home if holder else UNROUTED, lane=lane, reply_to=None, at=now
            )
            for holder, body in events
        ]

        async def write() -> None:
            async with await psycopg.AsyncConnection.connect(self.app_url) as connection:
                await inbox.accept(connection, messages)

        asyncio.run(write())
        return messages

    def smuggle(self, holder: Holder, body: str, *, reference: str, source: str = "test") -> Id:
        """Put a row into the inbox past the door: `body` is any JSON text."""
        key = new_id()
        self.owner.execute(
            "INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference,"
            " body, body_hash, received_at) VALUES (0, %s, %s, %s, %s, %s, %s, %s, %s, now())",
            [
                holder.shard,
                key,
                holder.home.customer_id,
                holder.home.platform_id,
                source,
                reference,
                body,
                reference.encode(),
            ],
        )
        return key

    def drain(self, engine: Engine, lane: Lane = Lane.LIVE) -> list[Decided]:
        """Empty every queue of `lane`; return what was decided, by order of arrival."""
        decided: list[Decided] = []
        for waiting_lane, shard in engine.waiting():
            if waiting_lane is lane:
                engine.drain(lane, [shard], decided.extend)
        return sorted(decided, key=lambda one: one.message.id)

    def play(
        self,
        engine: Engine,
        events: Sequence[tuple[Holder | None, Mapping[str, Any]]],
        lane: Lane = Lane.LIVE,
    ) -> list[Decided]:
        """Accept `events` and decide them; return what became of them, in their order."""
        ids = {message.id for message in self.accept(events, lane)}
        return [one for one in self.drain(engine, lane) if one.message.id in ids]

    # --- what a reader sees -----------------------------------------------------------------

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.owner.execute(query.encode(), parameters).fetchall()

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def account(self, holder: Holder) -> dict[str, Any]:
        """Return the account in the words of fixtures/lifecycles.json."""
        [(balance, held, owed, _)] = self.rows(_ACCOUNT, holder.account_id)
        return {
            "balance": balance,
            "held": held,
            "owed": owed,
            "transactions": {
                token: {
                    "status": status,
                    "authorized": authorized or declined,
                    "pullCount": pull_count,
                    "pulled": pulled,
                    "released": released,
                    "settled": settled,
                    "refunded": refunded,
                }
                for (
                    token,
                    status,
                    authorized,
                    declined,
                    pull_count,
                    pulled,
                    released,
                    settled,
                    refunded,
                ) in self.rows(_ROLL_UPS, holder.account_id)
            },
        }

    def balance(self, holder: Holder) -> int:
        [(balance, *_)] = self.rows(_ACCOUNT, holder.account_id)
        return int(balance)

    def check_books(self, holder: Holder, model: Model | None = None) -> None:
        """Add everything up again, from the facts and from the entries; see that all agree."""
        self._check_roll_ups(holder)
        self._check_entries(holder)
        if model is not None:
            assert self.account(holder) == model.account()
            queue = self.rows(
                "SELECT issuer_transaction_token FROM card_transactions"
                " WHERE account_id = %s AND debt_id IS NOT NULL ORDER BY debt_since, debt_id",
                holder.account_id,
            )
            assert [token for (token,) in queue] == model.queue
            [(pending,)] = self.rows(
                "SELECT pending FROM internal_accounts WHERE id = %s", holder.account_id
            )
            assert pending == model.pending()
            [(parked,)] = self.rows(
                "SELECT count(*) FROM parked WHERE customer_id = %s", holder.home.customer_id
            )
            assert parked == len(model.parked)

    def _check_roll_ups(self, holder: Holder) -> None:
        """Fold the events of every card transaction again and compare with its row."""
        places = self.rows(
            "SELECT id, sequence FROM card_transactions WHERE account_id = %s", holder.account_id
        )
        with psycopg.connect(self.app_url) as connection:
            folded = history.at(connection, places)
            kept = asyncio.run(self._kept([key for key, _ in places]))
        assert {place[0]: roll_up for place, roll_up in folded.items()} == kept
        counted = dict(
            self.rows(
                "SELECT t.id, count(e.*) FROM card_transactions t"
                " LEFT JOIN card_transaction_events e ON e.card_transaction_id = t.id"
                " WHERE t.account_id = %s GROUP BY t.id",
                holder.account_id,
            )
        )
        assert counted == dict(places)

    async def _kept(self, ids: Sequence[Id]) -> dict[Id, Any]:
        async with await psycopg.AsyncConnection.connect(self.app_url) as connection:
            return await history.current_async(connection, ids)

    def _check_entries(self, holder: Holder) -> None:
        [(balance, held, owed, version)] = self.rows(_ACCOUNT, holder.account_id)
        lines = self.rows(
            "SELECT account_version, balance_after, CASE WHEN credit_account_id = account_id"
            " THEN amount ELSE -amount END FROM entries WHERE account_id = %s"
            " ORDER BY account_version",
            holder.account_id,
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
                holder.home.customer_id,
            )
        )
        [(settled,)] = self.rows(
            "SELECT coalesce(sum(settled - refunded), 0) FROM card_transactions"
            " WHERE account_id = %s",
            holder.account_id,
        )
        assert by_kind.get("CARD_HOLDS", 0) == held
        assert by_kind.get("RECEIVABLE", 0) == -owed
        assert by_kind.get("NETWORK_SETTLEMENT", 0) == settled
        assert balance + sum(by_kind.values()) == 0


@contextmanager
def world_of(url: str, app_url: str) -> Iterator[World]:
    world = World(url, app_url)
    try:
        yield world
    finally:
        world.close()


def words(decided: Iterable[Decided]) -> list[str]:
    return [one.outcome.value for one in decided]
