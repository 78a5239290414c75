"""Agents in the database: at most one device code or access token, none after deletion."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import errors

from cardledger.ledger.agents import access_tokens, device_codes, usage
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.policy import Usage
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.registry import Individual
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.agents import AgentPolicy, AgentResource

KEYS = KeyRing("a secret key that only tests use, long enough")
NOW = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
POLICY = AgentPolicy.model_validate(
    {
        "permissions": [],
        "defaultExecutionMode": "AUTO",
        "spendingLimits": {"currency": "USD", "perTransactionLimit": 5},
    }
)


async def _agent(url: str) -> tuple[Id, str]:
    engine = async_engine(url)
    async with engine.begin() as connection:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        ada = Individual(full_name="Ada")
        customer = await customers.create(
            connection, platform_id=platform.id, person=ada, verifier=None, keys=KEYS, at=NOW
        )
        agent = await agents.create(
            connection,
            platform_id=platform.id,
            customer_id=customer.id,
            name="Bookkeeper",
            policy=POLICY,
            granted_by=frozenset(Permission),
            at=NOW,
        )
        code = await device_codes.create(
            connection,
            platform_id=platform.id,
            agent_id=agent.id,
            granted_by=frozenset(Permission),
            keys=KEYS,
            at=NOW,
        )
        assert code is not None
        assert code.code is not None
    await engine.dispose()
    return agent.id, code.code


@pytest.fixture
def agent_id(app_database_url: str) -> Id:
    """An agent with an open device code."""
    return asyncio.run(_agent(app_database_url))[0]


@pytest.fixture
def app(app_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(app_database_url, autocommit=True) as connection:
        yield connection


INSERT = (
    "INSERT INTO agent_device_codes (code_hash, agent_id, created_at, expires_at, redeemed_at)"
    " VALUES (sha256(%s), %s, now(), now(), %s)"
)


def test_an_agent_has_at_most_one_redeemable_code(app: psycopg.Connection, agent_id: Id) -> None:
    with pytest.raises(errors.UniqueViolation, match="agent_device_codes_open_key"):
        app.execute(INSERT, [b"another", agent_id, None])


def test_an_agent_is_connected_by_at_most_one_code(app: psycopg.Connection, agent_id: Id) -> None:
    app.execute("UPDATE agent_device_codes SET redeemed_at = now() WHERE agent_id = %s", [agent_id])

    with pytest.raises(errors.UniqueViolation, match="agent_device_codes_redeemed_key"):
        app.execute(INSERT, [b"a second", agent_id, NOW])


def test_a_code_cannot_be_both_redeemed_and_replaced(app: psycopg.Connection, agent_id: Id) -> None:
    with pytest.raises(errors.CheckViolation, match="one_end"):
        app.execute(
            "UPDATE agent_device_codes SET redeemed_at = now(), replaced_at = now()"
            " WHERE agent_id = %s",
            [agent_id],
        )


def test_a_deleted_agent_has_no_access(app: psycopg.Connection, agent_id: Id) -> None:
    with pytest.raises(errors.CheckViolation, match="deleted_has_no_access"):
        app.execute(
            "UPDATE agents SET deleted_at = now(), access_token_hash = sha256('x') WHERE id = %s",
            [agent_id],
        )


def test_an_access_token_belongs_to_one_agent(
    app: psycopg.Connection, app_database_url: str
) -> None:
    two = [asyncio.run(_agent(app_database_url))[0] for _ in range(2)]

    with pytest.raises(errors.UniqueViolation, match="access_token_hash"):
        app.execute(
            "UPDATE agents SET access_token_hash = sha256('same') WHERE id = ANY(%s)", [two]
        )


def test_usage_is_counted_by_day_and_month_of_utc(
    app: psycopg.Connection, app_database_url: str, agent_id: Id
) -> None:
    [platform_id] = app.execute(
        "SELECT platform_id FROM agents WHERE id = %s", [agent_id]
    ).fetchone() or [None]
    assert platform_id is not None

    async def act() -> tuple[AgentResource | None, Usage]:
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            shown = await agents.get(connection, platform_id=platform_id, agent_id=agent_id, at=NOW)
            used = await usage.of_agent(connection, agent_id, NOW)
        await engine.dispose()
        return shown, used

    shown, used = asyncio.run(act())

    assert used == Usage()
    assert shown is not None
    assert shown.wire()["usage"] == {
        "dailyTransactionCount": 0,
        "dailySpend": 0,
        "dailyResetDate": "2026-01-31",
        "monthlySpend": 0,
        "monthlyResetMonth": "2026-01",
    }


def test_a_code_that_was_used_before_is_drawn_again(
    app: psycopg.Connection, app_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, taken = asyncio.run(_agent(app_database_url))
    drawn = iter([taken, taken, "FRESH-ONE"])
    monkeypatch.setattr(device_codes, "_new_code", lambda: next(drawn))

    agent_id, code = asyncio.run(_agent(app_database_url))

    assert code == "FRESH-ONE"
    [count] = app.execute(
        "SELECT count(*) FROM agent_device_codes WHERE agent_id = %s", [agent_id]
    ).fetchall()
    assert count == (1,)


def test_an_agent_of_a_deleted_customer_is_not_authenticated(
    app: psycopg.Connection, app_database_url: str, agent_id: Id
) -> None:
    # Deleting a customer deletes its agents; this is the second wall.
    token = access_tokens.new(agent_id)
    presented = access_tokens.presented(KEYS, token)
    [row] = app.execute(
        "UPDATE agents SET access_token_hash = %s WHERE id = %s RETURNING platform_id",
        [presented.digest, agent_id],
    ).fetchall()

    async def look() -> list[agents.Agent | None]:
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            agents_seen = [
                (await agents.authenticate(connection, token, presented)).agent,
                await agents.locked(connection, platform_id=row[0], agent_id=agent_id),
            ]
        await engine.dispose()
        return agents_seen

    before = asyncio.run(look())
    app.execute(
        "UPDATE customers SET is_deleted = true"
        " WHERE id = (SELECT customer_id FROM agents WHERE id = %s)",
        [agent_id],
    )

    after = asyncio.run(look())

    assert [agent and agent.id for agent in before] == [agent_id] * 2
    assert after == [None, None]
