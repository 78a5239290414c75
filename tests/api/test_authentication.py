"""What is remembered of callers, and for how long; with a clock of our own."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from sqlalchemy import delete, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cardledger.api.http.authentication import AGENT_REQUESTS, FAILURES, Authenticator
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.http.sliding_window import Rate
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.registry import PresentedToken
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing, PresentedSecret
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code
from tests.api.support import SECRET_KEY, TIMEOUT_S, Api, Tenant, new_tenant

NO_LIMITS = RateLimits({}, "redis://127.0.0.1", "")


def header(tenant: Tenant, secret: str | None = None) -> list[str]:
    pair = f"{tenant.client_id}:{tenant.client_secret if secret is None else secret}"
    return ["Basic " + b64encode(pair.encode()).decode()]


def test_credentials_are_looked_up_once_until_the_cache_expires(app_database_url: str) -> None:
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


def test_credentials_that_expire_for_many_requests_are_looked_up_once(
    app_database_url: str,
) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> int:
        engine = async_engine(app_database_url, pool_size=20)
        statements: list[str] = []
        event.listen(
            engine.sync_engine,
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_: statements.append(statement),
        )
        now = 0.0
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS, monotonic=lambda: now)
        await authenticator.token(header(tenant))
        now = 5.0
        statements.clear()
        await asyncio.gather(*(authenticator.token(header(tenant)) for _ in range(50)))
        await engine.dispose()
        return len(statements)

    assert asyncio.run(act()) == 1


def test_a_right_caller_does_not_wait_for_the_look_up_of_a_caller_who_may_be_guessing(
    app_database_url: str, redis_url: str
) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> Id:
        engine = async_engine(app_database_url, pool_size=20)
        now = 0.0
        limits = RateLimits({FAILURES: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        keys = KeyRing(SECRET_KEY)
        authenticator = Authenticator(engine, keys, limits, monotonic=lambda: now)
        await authenticator.token(header(tenant))
        now = 5.0
        await authenticator.count_failure("10.0.0.1", credential=tenant.client_id)
        async with AsyncExitStack() as stack:
            for _ in range(2):  # All turns of those who may be guessing.
                turn = authenticator.looking_up("10.0.0.1", tenant.client_id, b"")
                _ = await stack.enter_async_context(turn)
            guess = asyncio.create_task(authenticator.token(header(tenant, "wrong")))
            await asyncio.sleep(0)
            async with asyncio.timeout(TIMEOUT_S):
                token = await authenticator.token(header(tenant))
            assert not guess.done()
            guess.cancel()
        await engine.dispose()
        return token.platform_id

    assert asyncio.run(act()) == tenant.platform_id


def test_a_session_does_not_wait_for_those_who_guess_at_the_secret_of_its_token(
    app_database_url: str, redis_url: str
) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> list[Id | None]:
        engine = async_engine(app_database_url, pool_size=20)
        limits = RateLimits({FAILURES: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        keys = KeyRing(SECRET_KEY)
        stamp = await Authenticator(engine, keys, NO_LIMITS).session_stamp(
            tenant.client_id, tenant.client_secret
        )
        assert stamp is not None
        started = Authenticator(engine, keys, limits)  # Another process knows neither.
        await started.count_failure("10.0.0.1", credential=tenant.client_id)
        async with AsyncExitStack() as stack:
            for _ in range(2):  # All turns of those who may be guessing.
                turn = started.looking_up("10.0.0.1", tenant.client_id, b"")
                _ = await stack.enter_async_context(turn)
            async with asyncio.timeout(TIMEOUT_S):
                session = await started.session_token(tenant.client_id, stamp)
        ended = await started.session_token(tenant.client_id, bytes(len(stamp)))
        await engine.dispose()
        return [None if found is None else found.token.platform_id for found in (session, ended)]

    assert asyncio.run(act()) == [tenant.platform_id, None]


def test_after_a_look_up_that_fails_one_more_is_enough(app_database_url: str) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> tuple[list[Id], int]:
        engine = async_engine(app_database_url, pool_size=20)
        now = 0.0
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS, monotonic=lambda: now)
        await authenticator.token(header(tenant))
        now = 5.0
        statements: list[str] = []
        event.listen(
            engine.sync_engine,
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_: statements.append(statement),
        )
        first = asyncio.create_task(authenticator.token(header(tenant)))
        await asyncio.sleep(0)
        others = [asyncio.create_task(authenticator.token(header(tenant))) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        found = [(await other).platform_id for other in others]
        await engine.dispose()
        return found, len(statements)

    found, asked = asyncio.run(act())

    assert found == [tenant.platform_id] * 5
    assert asked <= 2  # That of the first may have been sent.


def test_a_cached_secret_does_not_admit_a_wrong_secret(database_url: str) -> None:
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


class Connections:
    """The connections of an engine: how many were in use at once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.most, self._now = 0, 0
        event.listen(engine.sync_engine, "checkout", lambda *_: self._count(1))
        event.listen(engine.sync_engine, "checkin", lambda *_: self._count(-1))

    def _count(self, more: int) -> None:
        self._now += more
        self.most = max(self.most, self._now)


def test_callers_with_an_id_over_the_limit_take_turns_at_the_database(
    app_database_url: str, redis_url: str
) -> None:
    async def act() -> int:
        engine = async_engine(app_database_url, pool_size=20)
        limits = RateLimits({FAILURES: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), limits)
        await authenticator.count_failure("10.0.0.1", credential="guessed")
        used = Connections(engine)

        async def guess() -> None:
            async with authenticator.looking_up("10.0.0.2", "guessed", b"") as connection:
                await connection.execute(text("SELECT pg_sleep(0.01)"))

        await asyncio.gather(*(guess() for _ in range(20)))
        await engine.dispose()
        return used.most

    assert asyncio.run(act()) == 2


def test_callers_without_an_id_wait_for_no_id_called_none(
    app_database_url: str, redis_url: str
) -> None:
    async def act() -> list[str | None]:
        engine = async_engine(app_database_url, pool_size=20)
        limits = RateLimits({FAILURES: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), limits)
        await authenticator.count_failure("10.0.0.1", credential="None")
        order: list[str | None] = []

        async def guess(credential: str | None) -> None:
            async with authenticator.looking_up("10.0.0.2", credential, b"") as connection:
                await connection.execute(text("SELECT pg_sleep(0.01)"))
            order.append(credential)

        await asyncio.gather(*(guess(credential) for credential in (*["None"] * 10, None)))
        await engine.dispose()
        return order

    assert None in asyncio.run(act())[:4]  # Behind the two under way, not behind ten.


def test_callers_from_an_address_over_the_limit_take_turns_at_the_database(
    app_database_url: str, redis_url: str
) -> None:
    proven, unseen = new_tenant(app_database_url), new_tenant(app_database_url)

    async def act() -> tuple[int, list[object]]:
        engine = async_engine(app_database_url, pool_size=20)
        limits = RateLimits({FAILURES: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), limits, monotonic=lambda: now)
        now = 0.0
        await authenticator.token(header(proven))
        now = 5.0  # The cache has expired.
        used = Connections(engine)
        strangers = [Tenant(Id(bytes(16)), f"clid_{number}", "guess") for number in range(20)]
        with pytest.raises(ApiError):
            await authenticator.token(header(strangers[0]))
        answers = await asyncio.gather(
            *(authenticator.token(header(each)) for each in (*strangers, unseen, proven)),
            return_exceptions=True,
        )
        await engine.dispose()
        return used.most, [getattr(each, "platform_id", each) for each in answers]

    most, answers = asyncio.run(act())

    # Two of them at once, and the caller whose credentials have succeeded before.
    assert most <= 3
    assert answers[-2:] == [unseen.platform_id, proven.platform_id]
    assert {each.code for each in answers[:-2] if isinstance(each, ApiError)} == {Code.RATE_LIMITED}


# --- agents --------------------------------------------------------------------------------------


@dataclass
class HeldLookUps:
    """Look-ups of agents that do not end while they are held, and how many of them there are."""

    tokens: frozenset[str]
    began: int = 0
    order: list[str] = field(default_factory=list)  # In which they went on.
    free: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def during(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
        """Hold the look-ups of `tokens` for the block."""
        look_up = agents.authenticate

        async def held(
            connection: AsyncConnection, token: str, presented: PresentedSecret
        ) -> PresentedToken:
            if token in self.tokens:
                self.began += 1
                await self.free.wait()
            self.order.append(token)
            return await look_up(connection, token, presented)

        monkeypatch.setattr(agents, "authenticate", held)
        try:
            yield
        finally:
            self.free.set()

    async def have_begun(self, count: int) -> None:
        """Return once `count` look-ups are held."""
        while self.began < count:  # noqa: ASYNC110 - of two tasks, in either order
            await asyncio.sleep(0.01)


def bearer(token: str) -> list[str]:
    return [f"Bearer {token}"]


def agents_of(api: Api, count: int) -> list[str]:
    customer_id = str(api.customer()["id"])
    return [api.agent_token(customer_id) for _ in range(count)]


def test_the_agents_of_a_platform_leave_look_ups_to_others(
    api: Api, other_platform: Api, app_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood, [other] = agents_of(api, 12), agents_of(other_platform, 1)
    tenants = [new_tenant(app_database_url) for _ in range(3)]

    async def act() -> tuple[int, list[Id]]:
        engine = async_engine(app_database_url, pool_size=20)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS)
        for token in flood:  # In turns, as they have come so far.
            await authenticator.agent(bearer(token))
        look_ups = HeldLookUps(frozenset(flood))
        async with look_ups.during(monkeypatch):
            waiting = [asyncio.create_task(authenticator.agent(bearer(token))) for token in flood]
            async with asyncio.timeout(TIMEOUT_S):
                found = [(await authenticator.agent(bearer(other))).platform_id]
                found += [(await authenticator.token(header(each))).platform_id for each in tenants]
            began = look_ups.began
        found += [(await each).platform_id for each in waiting]
        await engine.dispose()
        return began, found

    began, found = asyncio.run(act())

    assert 0 < began <= 2
    assert found[:4] == [other_platform.tenant.platform_id, *(each.platform_id for each in tenants)]
    assert found[4:] == [api.tenant.platform_id] * 12  # They are right, and pass.


def test_agents_that_are_not_known_yet_leave_look_ups_to_tokens(
    api: Api, app_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood, tenant = agents_of(api, 12), new_tenant(app_database_url)

    async def act() -> tuple[int, Sequence[Id]]:
        engine = async_engine(app_database_url, pool_size=20)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS)
        look_ups = HeldLookUps(frozenset(flood))
        async with look_ups.during(monkeypatch):
            waiting = [asyncio.create_task(authenticator.agent(bearer(token))) for token in flood]
            async with asyncio.timeout(TIMEOUT_S):
                found = [(await authenticator.token(header(tenant))).platform_id]
            began = look_ups.began
        found += [(await each).platform_id for each in waiting]
        await engine.dispose()
        return began, found

    began, found = asyncio.run(act())

    assert 0 < began <= 4
    assert found == [tenant.platform_id] + [api.tenant.platform_id] * 12


def test_agents_that_are_not_known_yet_leave_look_ups_to_those_that_are(
    api: Api, other_platform: Api, app_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood, [known] = agents_of(api, 12), agents_of(other_platform, 1)

    async def act() -> Id:
        engine = async_engine(app_database_url, pool_size=20)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS)
        await authenticator.agent(bearer(known))
        look_ups = HeldLookUps(frozenset(flood))
        async with look_ups.during(monkeypatch):
            waiting = [
                asyncio.create_task(authenticator.agent(bearer(token), address=f"10.0.0.{number}"))
                for number, token in enumerate(flood)
            ]
            async with asyncio.timeout(TIMEOUT_S):
                await look_ups.have_begun(2)
                found = (await authenticator.agent(bearer(known))).platform_id
        await asyncio.gather(*waiting)
        await engine.dispose()
        return found

    assert asyncio.run(act()) == other_platform.tenant.platform_id


def test_new_ids_of_one_address_do_not_come_before_another_address(
    api: Api, app_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *flood, other = agents_of(api, 12)

    async def act() -> list[str]:
        engine = async_engine(app_database_url, pool_size=20)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), NO_LIMITS)
        look_ups = HeldLookUps(frozenset(flood))
        async with look_ups.during(monkeypatch):
            waiting = [
                asyncio.create_task(authenticator.agent(bearer(token), address=address))
                for token, address in (*((each, "10.0.0.1") for each in flood), (other, "10.0.0.2"))
            ]
            async with asyncio.timeout(TIMEOUT_S):
                await look_ups.have_begun(2)
        await asyncio.gather(*waiting)
        await engine.dispose()
        return look_ups.order

    assert other in asyncio.run(act())[:4]  # Behind the two under way, not behind eleven.


def test_agents_over_the_limit_of_their_platform_are_not_looked_up(
    api: Api, other_platform: Api, app_database_url: str, redis_url: str
) -> None:
    [busy], [other] = agents_of(api, 1), agents_of(other_platform, 1)

    async def act() -> tuple[Code, int, Id]:
        engine = async_engine(app_database_url)
        limits = RateLimits({AGENT_REQUESTS: Rate(1, 86_400)}, redis_url, SECRET_KEY)
        authenticator = Authenticator(engine, KeyRing(SECRET_KEY), limits)
        agent = await authenticator.agent(bearer(busy))
        await authenticator.agent(bearer(other))
        limits.admit(AGENT_REQUESTS, str(agent.platform_id))
        used = Connections(engine)
        with pytest.raises(ApiError) as refused:
            await authenticator.agent(bearer(busy))
        while_refused = used.most
        found = (await authenticator.agent(bearer(other))).platform_id
        await engine.dispose()
        return refused.value.code, while_refused, found

    assert asyncio.run(act()) == (Code.RATE_LIMITED, 0, other_platform.tenant.platform_id)
