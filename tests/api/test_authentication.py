"""What is remembered of callers, and for how long; with a clock of our own."""

import asyncio
from base64 import b64encode

import pytest
from sqlalchemy import delete, event

from cardledger.api.http.authentication import Authenticator
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import RateLimits
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code
from tests.api.support import SECRET_KEY, Tenant, new_tenant

NO_LIMITS = RateLimits({}, "redis://127.0.0.1")


def header(tenant: Tenant, secret: str | None = None) -> list[str]:
    pair = f"{tenant.client_id}:{tenant.client_secret if secret is None else secret}"
    return ["Basic " + b64encode(pair.encode()).decode()]


def test_a_caller_is_looked_up_once_in_a_while(app_database_url: str) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> tuple[list[Id], int]:
        engine = async_engine(app_database_url)
        statements: list[str] = []
        event.listen(
            engine.sync_engine,
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_: statements.append(statement),
        )
        now = 0.0
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS, monotonic=lambda: now)
        known = [(await authenticator.token(header(tenant))).platform_id for _ in range(100)]
        at_once = len(statements)
        now = 5.0
        known.append((await authenticator.token(header(tenant))).platform_id)
        await engine.dispose()
        return known, len(statements) - at_once if at_once == 1 else -1

    known, asked_again = asyncio.run(act())

    assert set(known) == {tenant.platform_id}
    assert asked_again == 1


def test_memory_of_a_right_secret_lets_no_wrong_one_in(database_url: str) -> None:
    tenant = new_tenant(database_url)

    async def act() -> None:
        engine = async_engine(database_url)
        now = 0.0
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS, monotonic=lambda: now)
        await authenticator.token(header(tenant))
        for wrong in ("", tenant.client_secret + "x"):
            with pytest.raises(ApiError) as refused:
                await authenticator.token(header(tenant, wrong))
            assert refused.value.code is Code.UNAUTHORIZED

        async with engine.begin() as connection:
            await connection.execute(
                delete(tables.api_tokens).where(tables.api_tokens.c.client_id == tenant.client_id)
            )
        now = 5.0
        with pytest.raises(ApiError):
            await authenticator.token(header(tenant))
        await engine.dispose()

    asyncio.run(act())
