"""What is kept for some time only: a platform that is in the way of nothing but its own rows."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable, QueryCanceled
from sqlalchemy import ColumnElement, Table
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.background import upkeep
from cardledger.api.background.upkeep import Upkeep
from cardledger.ledger.customers import kyc_links
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id
from tests.api.support import logged

ADA, BOB = new_id(), new_id()
PAGE = 20

RemoveOld = Callable[..., Awaitable[int]]


def run(
    config: ApiConfig, monkeypatch: pytest.MonkeyPatch, remove: RemoveOld
) -> tuple[int, Sequence[Any]]:
    """Have `remove` delete the old links of two platforms; return how many, and what is logged."""

    async def platforms_with(_: Upkeep, table: Table, __: ColumnElement[bool]) -> list[Id]:
        return [ADA, BOB] if table is tables.kyc_links else []

    monkeypatch.setattr(Upkeep, "_platforms_with", platforms_with)
    monkeypatch.setattr(kyc_links, "remove_old", remove)

    async def step() -> int:
        platforms = PlatformConnections(config.database_url)
        installation = async_engine(config.database_url)
        kept = Upkeep(platforms, installation, files=None, clock=lambda: datetime.now(UTC))
        removed = await kept.step()
        await platforms.dispose()
        await installation.dispose()
        return removed

    with logged() as logs:
        return asyncio.run(step()), logs


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such key"),
        DBAPIError("DELETE", None, LockNotAvailable("no such key")),
        OperationalError("DELETE", None, QueryCanceled("no such key")),
    ],
    ids=lambda error: type(getattr(error, "orig", error)).__name__,
)
def test_rows_of_a_platform_that_cannot_be_deleted_keep_those_of_no_other(
    api_config: ApiConfig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def remove(_: AsyncConnection, *, platform_id: Id, **__: object) -> int:
        if platform_id == ADA:
            raise error
        return 1

    removed, logs = run(api_config, monkeypatch, remove)

    assert removed == 1
    assert logs == [
        {
            "event": "old rows not deleted",
            "what": "kyc_links",
            "platform": str(ADA),
            "error": "no such key",
        }
    ]


def test_a_long_backlog_of_a_platform_lets_others_have_their_turn(
    api_config: ApiConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_TURN_S", 0.0)
    left, turns = {ADA: 2 * PAGE + 1, BOB: 1}, []

    async def remove(_: AsyncConnection, *, platform_id: Id, **__: object) -> int:
        turns.append(platform_id)
        count = min(PAGE, left[platform_id])
        left[platform_id] -= count
        return count

    removed, _ = run(api_config, monkeypatch, remove)

    assert removed == 2 * PAGE + 2
    assert turns == [ADA, BOB, ADA, ADA]


def test_a_backlog_that_takes_too_long_goes_on_with_the_next_step(
    api_config: ApiConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_TURN_S", 0.0)
    monkeypatch.setattr(upkeep, "_STEP_S", 0.0)

    async def remove(_: AsyncConnection, **__: object) -> int:
        return PAGE

    assert run(api_config, monkeypatch, remove)[0] == 0
