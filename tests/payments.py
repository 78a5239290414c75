"""Payments for tests: rows and messages as the API writes them, with its role and its views."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from psycopg.types.json import Jsonb
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments.conversion import LockedSide, Rate, received_for, sent_for
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.messaging.inbox_key import Signed
from cardledger.ledger.payments import messages, requests
from cardledger.ledger.projections import accounts, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema.ids import Id
from tests.world import INBOX_KEY, Cardholder, World

Made = TypeVar("Made")

DELAY = timedelta(seconds=30)
"""Of the sandbox."""

STARTED_AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Conversion:
    """The currency that is received, and the rate."""

    currency: str
    rate: Rate
    side: LockedSide = LockedSide.SENDING


class Desk:
    """Requests payments in a world, by the role of the API, and lets its engine decide them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = STARTED_AT
        self.engine: Engine = world.engine(
            rail=SandboxFundingRail(delay=DELAY), clock=lambda: self.now
        )

    # --- owners and accounts -------------------------------------------------------------------

    def platform_account(self, platform_id: Id, currency: str = "USD") -> Cardholder:
        """Return the account of the platform itself, which is opened when there is none."""

        async def open_it(connection: AsyncConnection) -> Id:
            await accounts.open_platform_accounts(
                connection, platform_id=platform_id, currencies=[currency], at=self.now
            )
            [opened] = await accounts.platform_accounts(
                connection, platform_id=platform_id, currency=currency
            )
            key: Id = opened.id
            return key

        key = self.written(platform_id, open_it)
        return Cardholder(Owner(platform_id, platform_id), key, new_id())

    def external_account(self, owner: Owner, number: str, currency: str = "USD") -> Id:
        """Return a new bank account whose number is `number`."""
        key, is_platforms = new_id(), owner.customer_id == owner.platform_id
        self.world.connection.execute(
            "INSERT INTO external_accounts (id, platform_id, customer_id, currency, account_type,"
            " status, default_uma_deposit_account, fingerprint, account_info, created_at,"
            " updated_at) VALUES (%s, %s, %s, %s, %s, 'ACTIVE', false, %s, %s, now(), now())",
            [
                key,
                owner.platform_id,
                None if is_platforms else owner.customer_id,
                currency,
                "USD_ACCOUNT" if currency == "USD" else "EUR_ACCOUNT",
                bytes(key),
                Jsonb(
                    {"accountNumber": number, "routingNumber": "123456789"}
                    if currency == "USD"
                    else {"iban": number}
                ),
            ],
        )
        return key

    # --- requests ------------------------------------------------------------------------------

    def out(
        self,
        source: Cardholder,
        amount: int,
        number: str = "1234567890",
        **fields: Any,  # noqa: ANN401 - columns
    ) -> Id:
        """Request a payout of `amount` to a new external account with `number`."""
        conversion: Conversion | None = fields.pop("conversion", None)
        currency = conversion.currency if conversion else fields.get("currency", "USD")
        destination = self.external_account(source.owner, number, currency)
        return self.submit(source, amount, destination, Kind.OUT, conversion=conversion, **fields)

    def pull(self, destination: Cardholder, amount: int, number: str = "1234567890") -> Id:
        """Request that `amount` is pulled from a new external account with `number`."""
        external = self.external_account(destination.owner, number)
        transfer = self.draft(
            destination, amount, destination.account_id, Kind.IN, source_account_id=external
        )
        return self._submit(transfer)

    def pay(
        self,
        source: Cardholder,
        receiver: Cardholder,
        amount: int,
        **fields: Any,  # noqa: ANN401 - columns
    ) -> Id:
        """Request a payment to another owner of this installation."""
        return self.submit(
            source,
            amount,
            receiver.account_id,
            Kind.OUT,
            peer_id=receiver.owner.customer_id,
            peer_platform_id=receiver.owner.platform_id,
            **fields,
        )

    def exchange(
        self,
        source: Cardholder,
        destination: Cardholder,
        amount: int,
        conversion: Conversion,
        **fields: Any,  # noqa: ANN401 - columns
    ) -> Id:
        """Request a conversion between two accounts of one owner."""
        return self.submit(
            source,
            amount,
            destination.account_id,
            Kind.EXCHANGE,
            conversion=conversion,
            **fields,
        )

    def submit(
        self,
        source: Cardholder,
        amount: int,
        destination: Id | None,
        kind: Kind,
        *,
        conversion: Conversion | None = None,
        **fields: Any,  # noqa: ANN401 - columns
    ) -> Id:
        """Request a payment; with a conversion locked to RECEIVING, `amount` is what arrives."""
        if conversion is not None:
            fee = fields.get("fee_amount", 0)
            received = amount
            if conversion.side is LockedSide.RECEIVING:
                amount = sent_for(received, conversion.rate) + fee
            else:
                received = received_for(amount - fee, conversion.rate)
            fields |= {
                "received_amount": received,
                "received_currency": conversion.currency,
                "rate_numerator": conversion.rate.numerator,
                "rate_denominator": conversion.rate.denominator,
                "locked_side": conversion.side.value,
            }
        return self._submit(self.draft(source, amount, destination, kind, **fields))

    def draft(
        self,
        owner: Cardholder,
        amount: int,
        destination: Id | None,
        kind: Kind,
        **fields: Any,  # noqa: ANN401 - columns
    ) -> Transfer:
        """Return a payment as it is before it is requested."""
        values: dict[str, Any] = {
            "id": new_id(),
            "customer_id": owner.owner.customer_id,
            "platform_id": owner.owner.platform_id,
            "source_account_id": owner.account_id,
            "destination_account_id": destination,
            "amount": amount,
            "currency": "USD",
            "status": transfers.PENDING,
            "failure_reason": None,
            "agent_id": None,
            "remittance_information": None,
            "purpose_of_payment": None,
            "created_at": self.now,
            "settled_at": None,
            "updated_at": self.now,
            "platform_customer_id": str(owner.owner.customer_id),
            "kind": kind.value,
        }
        return Transfer(**(values | fields))

    def _submit(self, transfer: Transfer) -> Id:
        async def write(connection: AsyncConnection) -> None:
            await requests.submit(
                connection, transfer, inbox_key=INBOX_KEY, reply_to=None, at=self.now
            )

        self.written(transfer.platform_id, write)
        return transfer.id

    def record(self, payment: Transfer) -> None:
        """Record a payment whose message does not arrive."""

        async def write(connection: AsyncConnection) -> None:
            mac = INBOX_KEY.mac_of_terms(Signed.PAYMENT, payment.signed_terms)
            await connection.execute(transfers.insert(replace(payment, mac=mac)))

        self.written(payment.platform_id, write)

    def begin(self, payment: Transfer) -> None:
        """Let the message of a recorded payment arrive after all."""

        async def write(connection: AsyncConnection) -> None:
            message = messages.execution(payment, None, self.now)
            await inbox.accept_async(await driver_async(connection), [message], INBOX_KEY)

        self.written(payment.platform_id, write)

    def written(self, platform_id: Id, write: Callable[[AsyncConnection], Awaitable[Made]]) -> Made:
        """Run `write` as the API does: with its role, on the views of one platform."""

        async def run() -> Made:
            connections = PlatformConnections(self.world.api_url, poolclass=NullPool)
            async with connections.writing(platform_id) as connection:
                return await write(connection)

        return asyncio.run(run())

    def cancel(self, payment: Id) -> list[Decided]:
        """Cancel a payment; return what was decided."""
        stored = self.stored(payment)

        async def write(connection: AsyncConnection) -> None:
            await requests.cancel(
                connection, stored, inbox_key=INBOX_KEY, reply_to=None, at=self.now
            )

        self.written(stored.platform_id, write)
        return self.drain()

    # --- the engine ----------------------------------------------------------------------------

    def drain(self) -> list[Decided]:
        """Let the engine decide all that waits, and what follows from it."""
        return self.world.drain(self.engine)

    def pass_time(self, time: timedelta) -> list[Decided]:
        """Let `time` pass, and the schedule enqueue what is due then."""
        self.now += time
        return self.world.run_timers(self.engine, self.now)

    # --- the record ----------------------------------------------------------------------------

    def stored(self, payment: Id) -> Transfer:
        """Return the row of a payment."""
        [row] = self.world.rows(
            f"SELECT {transfers.LISTED} FROM transfers t"
            " LEFT JOIN customers u ON u.id = t.customer_id WHERE t.id = %s",
            payment,
        )
        return transfers.transfer_from_row(row)

    def arrived(self, origin: Id) -> Transfer:
        """Return the payment that `origin` has caused at its receiver."""
        [[key]] = self.world.rows("SELECT id FROM transfers WHERE origin_id = %s", origin)
        return self.stored(key)

    def steps(self, payment: Id) -> list[str]:
        """Return the kinds of the events of a payment."""
        return [
            kind
            for (kind,) in self.world.rows(
                "SELECT kind FROM transfer_events WHERE transfer_id = %s ORDER BY sequence", payment
            )
        ]

    def entries(self, payment: Id) -> list[tuple[Any, ...]]:
        """Return the entries of a payment: event, debit, credit, amount, currency."""
        return self.world.rows(
            "SELECT sequence, debit, credit, amount, currency FROM journal"
            " WHERE subject_id = %s ORDER BY sequence, line",
            payment,
        )

    def webhooks(self, payment: Id) -> list[tuple[str, str, str | None]]:
        """Return the webhooks about a payment: type, status, and status of the refund."""
        return self.world.rows(
            "SELECT type, data ->> 'status', data -> 'refund' ->> 'status' FROM outbox"
            " WHERE subject_id = %s ORDER BY id",
            payment,
        )

    def totals(self, platform_id: Id) -> dict[tuple[str, str], int]:
        """Return the balances of the platform's system accounts that are not zero, credit side."""
        return {
            (kind, currency): int(total)
            for kind, currency, total in self.world.rows(
                "SELECT s.kind, s.currency, sum(CASE s.id WHEN e.credit_account_id THEN e.amount"
                " ELSE -e.amount END) FROM system_accounts s JOIN entries e"
                " ON s.id IN (e.debit_account_id, e.credit_account_id)"
                " WHERE s.platform_id = %s GROUP BY s.kind, s.currency",
                platform_id,
            )
            if total
        }
