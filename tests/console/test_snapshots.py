"""The connections that pages read on: read-only, limited in time, and one snapshot a page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.console import navigation
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.console import purchase_history
from cardledger.ledger.storage.snapshot_connections import (
    SnapshotConnections,
    SnapshotError,
    SnapshotProblem,
    limited,
)
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id
from tests.api.support import Api
from tests.console.person import Person, shown
from tests.console.snapshots import in_snapshot

SETTINGS: Final = {
    "statement_timeout": "2s",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
    "transaction_isolation": "repeatable read",
}

_WRITE: Final = "UPDATE webhook_endpoints SET state = state"  # The role may.


async def settings_of(connection: AsyncConnection) -> dict[str, Any]:
    return {name: await connection.scalar(text(f"SHOW {name}")) for name in SETTINGS}


def test_every_part_is_read_on_a_connection_with_these_settings(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = []
    real = SnapshotConnections.snapshot
    purchase = api.authorize(api.active_card()["id"], 100)["id"]

    @asynccontextmanager
    async def noted(self: SnapshotConnections, platform: Id) -> AsyncIterator[AsyncConnection]:
        async with real(self, platform) as connection:
            found.append(await settings_of(connection))
            yield connection

    monkeypatch.setattr(SnapshotConnections, "snapshot", noted)
    paths = [part.path for part in (*navigation.PARTS, *navigation.HOLDERS, *navigation.BOOKS)]
    paths += [navigation.DELIVERIES, f"{navigation.CARD_TRANSACTIONS.path}/{purchase}"]
    read = {}
    for path in dict.fromkeys(paths):
        found.clear()
        shown(person.http.get(path))
        read[path] = list(found)

    without = {path for path, settings in read.items() if not settings}
    assert without <= {navigation.SYSTEM.path, navigation.SIMULATOR.path}
    assert all(each == SETTINGS for settings in read.values() for each in settings)


def test_what_takes_longer_is_stopped(config: ApiConfig, api: Api) -> None:
    with pytest.raises(SnapshotError) as stopped:
        in_snapshot(
            config,
            api.tenant.platform_id,
            lambda connection: connection.execute(text("SELECT pg_sleep(600)")),
        )

    assert stopped.value.problem is SnapshotProblem.SLOW


def test_a_limited_look_keeps_the_prepared_statements_and_takes_its_limit_back(
    config: ApiConfig, api: Api
) -> None:
    async def read(connection: AsyncConnection) -> tuple[list[str], list[str]]:
        prepared = text("SELECT statement FROM pg_prepared_statements")
        for _ in range(5):  # It is prepared when it is executed again.
            await connection.scalar(text("SELECT 'often'"))
        async with limited(connection, 300):
            inside = await connection.scalar(text("SHOW statement_timeout"))
        statements = (await connection.scalars(prepared)).all()
        with pytest.raises(OperationalError):
            async with limited(connection, 1):
                await connection.execute(text("SELECT pg_sleep(60)"))
        limits = [inside, await connection.scalar(text("SHOW statement_timeout"))]
        return limits, list(statements)

    limits, statements = in_snapshot(config, api.tenant.platform_id, read)

    assert limits == ["300ms", "2s"]
    assert "SELECT 'often'" in statements


def test_nothing_can_be_written(config: ApiConfig, api: Api) -> None:
    with pytest.raises(InternalError, match="read-only transaction"):
        in_snapshot(
            config,
            api.tenant.platform_id,
            lambda connection: connection.execute(
                text("UPDATE webhook_endpoints SET state = state")
            ),
        )


def test_a_purchase_that_changes_while_it_is_read_is_that_of_the_beginning(
    config: ApiConfig, api: Api
) -> None:
    card = api.active_card()["id"]
    purchase = str(api.authorize(card, 1_250)["id"])
    platform, key = api.tenant.platform_id, parse_id("CardTransaction", purchase)

    async def read(connection: AsyncConnection) -> tuple[str, int]:
        resource = await card_transactions.get(
            connection, platform_id=platform, card_transaction_id=key
        )
        assert resource is not None
        # Between the two statements of one page.
        if resource.status == "AUTHORIZED":
            await asyncio.to_thread(api.clear, card, purchase, 1_500)
        history = await purchase_history.read(
            connection, platform_id=platform, card_transaction_id=key
        )
        assert history is not None
        return resource.status, len(history.rows)

    assert in_snapshot(config, platform, read) == ("AUTHORIZED", 2)
    assert in_snapshot(config, platform, read) == ("SETTLED", 4)
