"""The webhooks of `cardledger.ledger.testing.webhooks` are those that the engine sends."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from sqlalchemy import Engine as Database

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.testing.strategies import (
    SCENE,
    Story,
    arbitrary,
    duplicated,
    numbered,
    tight,
    valid,
)
from cardledger.ledger.testing.webhooks import PLATFORM_CUSTOMER_ID, webhooks
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.schema.ids import Id
from tests.world import World, open_world

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OPENED_AT = re.compile(r'"createdAt":"[^"]+"')

PARKED = numbered(
    [
        SCENE.deposit(100),
        SCENE.event("AUTHORIZATION_REVERSAL", "T1", amount=30),
        SCENE.event("AUTHORIZATION", "T1", amount=50),
        SCENE.event("CLEARING", "T1", amount=150),
        SCENE.deposit(1000),
        SCENE.event("AUTHORIZATION", "T5", amount=10),
        SCENE.event("AUTHORIZATION", "T2", amount=9_999),
    ]
)


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def sender(world: World) -> Iterator[Database]:
    database = sync_engine(world.webhooks_url)
    yield database
    database.dispose()


def test_parked_events_debts_and_declines_send_the_same(
    world: World, platform: Id, sender: Database
) -> None:
    check(world, platform, sender, PARKED)


@settings(max_examples=20)
@given(valid() | tight(max_size=8) | duplicated(arbitrary(max_size=8, inside=False)))
def test_any_story_sends_the_same(
    world: World, platform: Id, sender: Database, story: Story
) -> None:
    check(world, platform, sender, story)


def check(world: World, platform: Id, sender: Database, story: Story) -> None:
    story = [event for event in story if event["type"] != "CARD_CLOSED"]  # Its card stays ACTIVE.

    expected = sent_by_the_engine(world, platform, sender, story)

    assert comparable([webhook.body for webhook in webhooks(story, now=BEGIN)]) == expected


def sent_by_the_engine(
    world: World, platform: Id, sender: Database, story: Story
) -> list[dict[str, Any]]:
    """Return the webhooks of `story`, whose events are decided one by one."""
    cardholder = world.cardholder(platform)
    names = {"cardId": f"Card:{cardholder.card_id}", "accountId": str(cardholder.account_id)}
    now = BEGIN
    engine = world.engine(clock=lambda: now)
    for event in story:
        own = {**event, **{name: names[name] for name in names if name in event}}
        world.process(engine, [(cardholder, own)])
        now += MILLISECOND
    more = True
    while more:
        with sender.begin() as connection:
            more = webhook_dispatch.dispatch(connection, limit=500, at=now).has_more
    rows = world.rows(
        "SELECT body FROM webhook_deliveries WHERE customer_id = %s ORDER BY webhook_id",
        cardholder.owner.customer_id,
    )
    bodies = [body.encode() for (body,) in rows]
    return comparable(bodies, str(cardholder.owner.customer_id))


def comparable(bodies: Sequence[bytes], name: str = PLATFORM_CUSTOMER_ID) -> list[dict[str, Any]]:
    """Return `bodies` with the place of its first appearance for every id.

    The order of the keys counts. Accounts were opened at another time.
    """
    seen: dict[str, str] = {}
    text = "\n".join(body.decode() for body in bodies).replace(f'"{name}"', '"customer"')
    text = IDENTIFIER.sub(lambda found: seen.setdefault(found[0], f"id-{len(seen)}"), text)
    lines = [
        OPENED_AT.sub('"createdAt":null', line) if ".BALANCE_UPDATED" in line else line
        for line in text.split("\n")
    ]
    return [json.loads(line, object_pairs_hook=list) for line in lines]
