"""Roll-ups as rows: queries return the roll-up that the engine writes."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import CardTransaction, fold
from cardledger.ledger.core.status import Closure
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import card_transaction_rows
from cardledger.ledger.projections.card_transaction import (
    Conversion,
    Identity,
    RollUp,
    advance,
    opened,
    render,
)
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from tests.ids import IDS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

amounts = st.integers(0, 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
states = st.builds(
    CardTransaction,
    sequence=counts,
    authorizations=counts,
    authorized=amounts,
    settled=amounts,
    settlement_count=counts,
    refunded=amounts,
    refund_count=counts,
    pulled=amounts,
    pull_count=counts,
    pending=amounts,
    pending_count=counts,
    open_pull=amounts,
    unpaid=amounts,
    released=amounts,
    release_count=counts,
    closed_by=st.none() | st.sampled_from(Closure),
    declined=amounts,
    decline_reason=st.none() | st.sampled_from(events.DeclineReason),
    written_off=st.integers(1, 2**63 - 1),
    debits_written_off=amounts,
    credit_authorized=st.none() | amounts,
)
texts = st.none() | st.text(max_size=5)
times = st.datetimes(timezones=st.just(UTC))
identities = st.builds(Identity, descriptor=texts, mcc=texts, country=texts, created_at=times)
roll_ups = st.builds(
    RollUp,
    identity=identities,
    state=states,
    debt_since=st.none() | times,
    debt_id=st.none() | IDS,
    expires_at=st.none() | times,
    last_event_at=st.none() | times,
    updated_at=times,
    conversion=st.none()
    | st.builds(
        Conversion,
        merchant_amount=amounts,
        merchant_currency=st.just("EUR"),
        billing_amount=amounts,
        rate=st.decimals("0.000000000001", 10**11, places=12),
    ),
)


@given(roll_ups)
def test_a_row_holds_the_whole_roll_up(roll_up: RollUp) -> None:
    row = card_transaction_rows.to_row(roll_up)

    assert len(row) == len(card_transaction_rows.COLUMNS)
    assert row[card_transaction_rows.COLUMNS.index("status")] == roll_up.state.status
    assert card_transaction_rows.from_row((*row, roll_up.identity.platform_customer_id)) == roll_up


HISTORIES: Sequence[Sequence[events.Event]] = (
    [events.Declined(amount=7, reason=events.DeclineReason.CARD_PAUSED)],
    [events.Authorized(amount=1250), events.Pulled(amount=1250)],
    [
        events.Authorized(amount=1250),
        events.Pulled(amount=1250),
        events.Cleared(amount=1500, unfunded=250, final=True),
        events.PullOpened(amount=250),
    ],
)


def test_queries_return_the_written_roll_ups(app_database_url: str) -> None:
    async def act() -> tuple[list[RollUp], list[CardTransactionResource | None], Id]:
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            platform = await platforms.create(connection, name="Acme", keys=KeyRing("k" * 32))
            customer = await customers.create(
                connection,
                platform_id=platform.id,
                person=customers.Individual(platform_customer_id="no. 1"),
                verifier=None,
                keys=KeyRing("k" * 32),
                at=NOON,
            )
            written = [
                _after(history, platform_id=platform.id, customer_id=customer.id)
                for history in HISTORIES
            ]
            for roll_up in written:
                row = dict(
                    zip(
                        card_transaction_rows.COLUMNS,
                        card_transaction_rows.to_row(roll_up),
                        strict=True,
                    )
                )
                await connection.execute(tables.card_transactions.insert().values(row))
            read = [
                await card_transactions.get(
                    connection, platform_id=platform.id, card_transaction_id=one.identity.id
                )
                for one in written
            ]
            page = await card_transactions.page(
                connection,
                platform_id=platform.id,
                filters=CardTransactionFilters(status="EXCEPTION"),
                wanted=paging.Wanted(limit=1),
            )
        await engine.dispose()
        assert page.total_count == 1
        return written, read, page.items[0].id

    written, read, exception = asyncio.run(act())

    assert read == [render(roll_up) for roll_up in written]
    assert exception == written[-1].identity.id


def _after(history: Sequence[events.Event], *, platform_id: Id, customer_id: Id) -> RollUp:
    identity = Identity(
        id=new_id(),
        customer_id=customer_id,
        platform_id=platform_id,
        platform_customer_id="no. 1",
        card_id=new_id(),
        account_id=new_id(),
        issuer_transaction_token="token",
        currency="USD",
        descriptor="RESTAURANT 9",
        mcc="5812",
        country=None,
        created_at=NOON,
    )
    later = NOON + timedelta(hours=1)
    return advance(opened(identity), history, fold(history), message_id=new_id(), recorded_at=later)
