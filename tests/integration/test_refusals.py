"""What rejects a message: only what it says. Neither a race nor a defect of ours does."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing.strategies import NETWORK_TYPES
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import RejectionReason
from tests.integration.workers import engine_with
from tests.waiting import eventually, limit_s
from tests.world import Cardholder, World, open_world, outcomes_of

Event = dict[str, Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


# --- a race --------------------------------------------------------------------------------------


def wait_until_blocked(world: World) -> None:
    """Return once a session of the engine waits for a lock."""
    eventually(
        lambda: world.rows(
            "SELECT FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


def move_card(connection: psycopg.Connection[Any], cardholder: Cardholder) -> Id:
    """Open another account for `cardholder` and make it the funding source of the card."""
    account_id, owner, now = new_id(), cardholder.owner, datetime.now(UTC)
    connection.execute(
        "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
        " created_at, updated_at) VALUES (%s, %s, %s, 'USD', 'INTERNAL_FIAT', 'ACTIVE', %s, %s)",
        [account_id, owner.customer_id, owner.platform_id, now, now],
    )
    connection.execute(
        "UPDATE cards SET funding_sources = %s WHERE id = %s", [[account_id], cardholder.card_id]
    )
    return account_id


def test_a_card_that_moves_to_a_new_account_while_its_clearing_is_read_is_cleared_there(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    world.accept([(cardholder, world.clearing(cardholder, "T1", 400))])
    decided: list[Decided] = []

    structlog.configure(wrapper_class=structlog.stdlib.BoundLogger)  # As it was, after the test.
    with (
        capture_logs() as logs,
        engine_with(world, "lock_timeout = 0") as engine,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(world.url) as other,
    ):
        # The locks are taken in a snapshot without the new account, the card is read after it.
        other.execute(
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE", [cardholder.account_id]
        )
        drained = pool.submit(engine.drain, Lane.LIVE, [cardholder.shard], decided.extend)
        wait_until_blocked(world)
        account_id = move_card(other, cardholder)
        other.commit()
        drained.result(limit_s())

    assert outcomes_of(decided) == ["APPLIED"]
    assert logs == [], "no batch has failed"
    assert world.rows(
        "SELECT account_id, settled FROM card_transactions WHERE customer_id = %s",
        cardholder.owner.customer_id,
    ) == [(account_id, 400)]
    assert world.balance(cardholder) == 1000
    assert world.rows("SELECT owed FROM internal_accounts WHERE id = %s", account_id) == [(400,)]


# --- whatever comes ------------------------------------------------------------------------------

TYPES = (
    *(*NETWORK_TYPES, "DEPOSIT", "TRANSFER", "CARD_CLOSED", "RECOVERY", "PULL_CONFIRMATION"),
    "SUSPENSE",
)
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["\0", "\ud800", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "2026-02-30", "-1"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, 40, 2**63 - 1, 2**63, 10**40])
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MERCHANTS = st.fixed_dictionaries(
    {}, optional={"descriptor": VALUES, "mcc": VALUES | st.just("5812"), "country": VALUES}
)


def bodies(cardholder: Cardholder) -> st.SearchStrategy[object]:
    """Return bodies of any JSON; most are an event of `cardholder` with anything in some fields."""
    right: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(TYPES),
        "cardId": st.just(f"Card:{cardholder.card_id}"),
        "accountId": st.just(str(cardholder.account_id)),
        "transferId": st.just(str(new_id())),
        "issuerTransactionToken": st.sampled_from(["T1", "T2", "T3"]),
        "currency": st.just("USD"),
        "amount": st.integers(1, 2000),
    }
    odd = dict.fromkeys(
        [*right, "final", "succeeded", "occurredAt", "decideBy", "expiresAt", "expectedSequence"],
        VALUES,
    ) | {"merchant": VALUES | MERCHANTS}
    some_odd = st.lists(st.sampled_from(sorted(odd)), max_size=2, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: odd[name] for name in names})
    )
    events = st.builds(
        lambda event, changes, missing: {
            name: value for name, value in (event | changes).items() if name not in missing
        },
        st.fixed_dictionaries(right),
        some_odd,
        st.just(()) | st.lists(st.sampled_from(sorted(right)), max_size=1),
    )
    return events | VALUES


@settings(max_examples=40)
@given(st.data())
def test_any_json_in_the_inbox_is_applied_or_rejected_with_a_reason(
    world: World, platform: Id, data: st.DataObject
) -> None:
    cardholder = world.cardholder(platform, 500)
    sent = data.draw(st.lists(bodies(cardholder), min_size=1, max_size=25))
    for number, body in enumerate(sent):
        world.insert_unchecked(cardholder, json.dumps(body), reference=f"any-{number}")
    commits: list[list[Decided]] = []

    world.engine().drain(Lane.LIVE, [cardholder.shard], commits.append)

    [decided] = commits  # None failed: nothing had to be decided alone.
    assert len(decided) == len(sent)
    rejected = [decision for decision in decided if decision.outcome == "REJECTED"]
    assert {decision.reason for decision in rejected} <= set(RejectionReason)
    assert all(decision.detail for decision in rejected)
    world.check_books(cardholder)
