"""Webhooks of card transactions with many events: a dispatch reads a bounded number of these."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, insert, null, select, text

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core import events
from cardledger.ledger.projections import card_transaction, history
from cardledger.ledger.storage.engines import driver
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.dispatch import Dispatched, dispatch
from cardledger.ledger.webhooks.folds import EVENTS_LIMIT, Folds
from cardledger.schema import tables
from cardledger.schema.ids import Id
from tests.integration.test_webhooks import (
    Platform,
    World,
    card_transaction_of,
    deliveries,
    world_in,
)
from tests.world import World as Books
from tests.world import open_world


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def books(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[Books]:
    with open_world(database_url, app_database_url) as made:
        yield made


def cleared(count: int) -> list[events.Event]:
    return [events.Cleared(amount=1, unfunded=1, final=False) for _ in range(count)]


def emit_versions(
    world: World, platform: Platform, subject: Id, sequences: Sequence[int]
) -> list[Id]:
    """Emit a webhook for each of the events, as earlier releases did: without its data."""
    keys = [new_id() for _ in sequences]
    rows = [
        {
            "id": key,
            "customer_id": new_id(),
            "platform_id": platform.id,
            "type": "CARD_TRANSACTION.SETTLED",
            "subject_id": subject,
            "sequence": sequence,
            "data": null(),
            "recorded_at": world.clock(),
        }
        for key, sequence in zip(keys, sequences, strict=True)
    ]
    with world.engine.begin() as connection:
        connection.execute(insert(tables.outbox), rows)
    return keys


def dispatch_once(world: World, folds: Folds, limit: int = 500) -> Dispatched:
    with world.engine.begin() as connection:
        return dispatch(connection, limit=limit, at=world.clock(), folds=folds)


def events_read(connection: Connection) -> int:
    """Return how many events the session has read; it tells others about it now and then only."""
    found = connection.execute(
        text(
            "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))"
            " FROM pg_stat_xact_user_tables WHERE relname LIKE 'card_transaction_events%'"
        )
    )
    return int(found.scalar_one() or 0)


def sequences_sent(world: World, subject: Id) -> list[int]:
    """Return the sequences in the bodies of a resource, in the order of their webhooks."""
    wanted = select(deliveries.c.body).where(deliveries.c.subject_id == subject)
    with world.engine.connect() as connection:
        bodies = connection.execute(wanted.order_by(deliveries.c.webhook_id)).scalars()
        return [json.loads(body)["data"]["sequence"] for body in bodies]


def test_a_dispatch_reads_a_bounded_number_of_events(world: World) -> None:
    busy = world.platform("https://hooks.example.com/busy")
    subject = card_transaction_of(world, busy, cleared(3 * EVENTS_LIMIT))
    emit_versions(world, busy, subject, [3 * EVENTS_LIMIT - 1])
    other = world.platform("https://hooks.example.com/other")
    fine = emit_versions(world, other, card_transaction_of(world, other, cleared(3)), [2])

    with world.engine.begin() as connection:
        before = events_read(connection)
        dispatched = dispatch(connection, limit=500, at=world.clock())
        read = events_read(connection) - before

    assert read <= EVENTS_LIMIT + 10, "and the one before each page"
    assert dispatched.has_more
    assert world.deliveries(fine[0])


def test_webhooks_of_a_long_card_transaction_go_out_in_their_order(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    subject = card_transaction_of(world, platform, cleared(120))
    sequences = [*range(40, 121)]
    keys = emit_versions(world, platform, subject, sequences)
    folds = Folds(limit=30, page=7)
    for _ in range(10):
        dispatch_once(world, folds, limit=50)
        sent = [key for key in keys if world.deliveries(key)]

        assert sent == keys[: len(sent)]

    assert sequences_sent(world, subject) == sequences


def test_each_event_is_read_once_however_many_dispatches_it_takes(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    subject = card_transaction_of(world, platform, cleared(400))
    emit_versions(world, platform, subject, [*range(1, 400)])
    folds, read = Folds(limit=60, page=25), 0
    while world.waiting():
        with world.engine.begin() as connection:
            before = events_read(connection)
            dispatch(connection, limit=20, at=world.clock(), folds=folds)
            read += events_read(connection) - before

    assert read <= 500, "399, and the one before each page"


def test_what_was_folded_before_is_what_is_folded_at_once(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    subject = card_transaction_of(world, platform, cleared(100))
    versions = [(subject, sequence) for sequence in range(1, 100)]
    folds = Folds(limit=30, page=7)
    found: dict[history.Version, card_transaction.RollUp] = {}

    with world.engine.begin() as connection:
        for _ in range(10):
            waiting = [version for version in versions if version not in found]
            found |= folds.at(driver(connection), waiting).roll_ups
        expected = history.at(driver(connection), versions)

    assert {version: found[version] for version in versions} == expected


def test_events_that_a_database_has_lost_are_not_part_of_what_was_folded(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    subject = card_transaction_of(world, platform, cleared(100), without=range(61, 101))
    folds = Folds()
    lost = rows_of(world, subject, range(61, 101), amount=1)
    with world.engine.connect() as connection:
        connection.execute(insert(tables.card_transaction_events), lost)
        folds.at(driver(connection), [(subject, 70)])
        connection.rollback()
    with world.engine.begin() as connection:
        others = rows_of(world, subject, range(61, 101), amount=2)
        connection.execute(insert(tables.card_transaction_events), others)

        refused = folds.at(driver(connection), [(subject, 80)])
        again = folds.at(driver(connection), [(subject, 80)])

        expected = history.at(driver(connection), [(subject, 80)])

    assert (subject, 80) not in refused.roll_ups
    assert (subject, 80) in refused.later  # With what is behind it: the order is kept.
    assert again.roll_ups[subject, 80] == expected[subject, 80]
    assert again.roll_ups[subject, 80].state.settled == 60 + 2 * 20


def rows_of(
    world: World, subject: Id, sequences: Iterable[int], *, amount: int
) -> list[dict[str, Any]]:
    """Return rows of clearings, of a message of their own."""
    message_id = new_id()
    return [
        {
            "card_transaction_id": subject,
            "sequence": sequence,
            "customer_id": new_id(),
            "message_id": message_id,
            "occurred_at": world.clock(),
            "recorded_at": world.clock(),
            "kind": "CLEARED",
            "amount": amount,
            "unfunded": amount,
            "final": False,
        }
        for sequence in sequences
    ]


def test_a_card_transaction_whose_events_cannot_be_folded_stops_only_itself(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    torn = card_transaction_of(world, platform, cleared(9), without=[5])
    whole = card_transaction_of(world, platform, cleared(9))
    kept = emit_versions(world, platform, torn, [3, 6])
    fine = emit_versions(world, platform, whole, [3, 6])

    dispatch_once(world, Folds())

    assert [bool(world.deliveries(key)) for key in kept] == [True, False]
    assert all(world.deliveries(key) for key in fine)


def test_a_long_card_transaction_has_its_webhooks_written_by_the_engine(books: Books) -> None:
    cardholder = books.cardholder(books.platform(), 2000)
    books.process(
        books.engine(batch_size=50),
        [(cardholder, books.clearing(cardholder, "T1", 1, final=False)) for _ in range(80)],
    )
    rows: list[tuple[Any, ...]] = books.rows(
        "SELECT subject_id, sequence, data FROM outbox WHERE customer_id = %s"
        " AND type LIKE 'CARD_TRANSACTION.%%' ORDER BY sequence",
        cardholder.owner.customer_id,
    )
    short = [(key, sequence) for key, sequence, data in rows if data is None]
    written = {(key, sequence): data for key, sequence, data in rows if data is not None}

    with psycopg.connect(books.app_url) as connection:
        folded = history.at(connection, list(written))

    assert short
    assert written
    assert max(sequence for _, sequence in short) <= 100 < min(key[1] for key in written)
    assert written == {at: card_transaction.wire(folded[at]) for at in written}
