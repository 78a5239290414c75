"""Platforms and their tokens in the database: what is secret stays it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
)
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.platforms import api_tokens as tokens
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission, Token
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets import secret_hashes
from cardledger.ledger.storage.secrets.key_ring import KeyRing, SecretsError, ServerKey
from cardledger.ledger.storage.secrets.sealed_columns import SIGNING_KEY
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.tokens import TokenResource

SECRET = "a secret key that only tests use, long enough"
KEYS = KeyRing(SECRET)
NOW = datetime.now(UTC)

Result = TypeVar("Result")


def within(url: str, do: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
    """Run `do` in a database transaction."""

    async def run() -> Result:
        engine = async_engine(url)
        async with engine.begin() as connection:
            result = await do(connection)
        await engine.dispose()
        return result

    return asyncio.run(run())


def test_a_platform_has_system_accounts_in_every_currency(app_database_url: str) -> None:
    async def act(connection: AsyncConnection) -> set[tuple[str, str]]:
        platform = await platforms.create(
            connection, name="Acme", keys=KEYS, currencies=("USD", "EUR")
        )
        columns = tables.system_accounts.c
        rows = await connection.execute(
            select(columns.currency, columns.kind).where(columns.platform_id == platform.id)
        )
        return {(row.currency, row.kind) for row in rows}

    kinds = {
        "CARD_HOLDS",
        "NETWORK_SETTLEMENT",
        "RECEIVABLE",
        "SANDBOX_FUNDING",
        "OPERATOR_LOSS",
        "TRANSFERS",
        "SETTLEMENT_BANK",
        "SUSPENSE",
        "INTERCHANGE",
        "NETWORK_FEES",
        "OUTBOUND_CLEARING",
        "INBOUND_CLEARING",
        "FX",
    }
    assert within(app_database_url, act) == {
        (currency, kind) for currency in ("USD", "EUR") for kind in kinds
    }


def test_signing_keys_are_readable_with_the_server_key_only(app_database_url: str) -> None:
    async def act(connection: AsyncConnection) -> tuple[str, bytes, str]:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        sealed = await connection.scalar(
            select(tables.platforms.c.signing_key).where(tables.platforms.c.id == platform.id)
        )
        with pytest.raises(SecretsError):
            await platforms.webhook_secret(connection, platform.id, KeyRing("x" * 32))
        secret = await platforms.webhook_secret(connection, platform.id, KEYS)
        private_key = KEYS.decrypt(sealed or b"", SIGNING_KEY.of(platform.id, platform.id))
        return await platforms.public_key(connection, platform.id), private_key, secret

    public_key, decrypted, secret = within(app_database_url, act)

    private_key = load_der_private_key(decrypted, None)
    assert isinstance(private_key, EllipticCurvePrivateKey)
    derived = private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert derived.decode() == public_key
    assert secret.startswith("whsec_")


def test_a_token_is_authenticated_by_its_secret_which_is_not_stored(app_database_url: str) -> None:
    async def act(connection: AsyncConnection) -> None:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        client_id, secret = await tokens.create(
            connection, platform_id=platform.id, name="ci", permissions=["TRANSACT"], keys=KEYS
        )

        token = await tokens.authenticate(connection, client_id, secret, KEYS)

        assert token is not None
        assert token.platform_id == platform.id
        assert [one for one in Permission if token.allows(one)] == [Permission.TRANSACT]
        for wrong in ("", secret[:-1], secret + "x", "\x00", "\ud800"):
            assert await tokens.authenticate(connection, client_id, wrong, KEYS) is None
        for wrong in ("", "unknown", client_id + "\x00", "é", "x" * 1000):
            assert await tokens.authenticate(connection, wrong, secret, KEYS) is None
        other_server = KeyRing("another key of the very same length..")
        assert await tokens.authenticate(connection, client_id, secret, other_server) is None
        rows = await connection.execute(select(tables.api_tokens))
        assert secret not in str(rows.all())

    within(app_database_url, act)


@pytest.mark.parametrize("by", ["delete", "revoke", "rotate"])
def test_what_a_token_is_making_is_there_when_its_deletion_is_over(
    app_database_url: str, by: str
) -> None:
    async def run() -> None:
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            platform = await platforms.create(connection, name="Acme", keys=KEYS)
            thief, other = [
                await tokens.issue(
                    connection,
                    platform_id=platform.id,
                    name=name,
                    permissions=["TOKENS"],
                    keys=KEYS,
                    at=datetime.now(UTC),
                )
                for name in ("thief", "other")
            ]
        token = proven(thief, platform.id)

        async def remove() -> None:
            async with engine.begin() as connection:
                if by == "revoke":
                    await tokens.revoke(connection, thief.client_id)
                else:
                    await tokens.delete(connection, platform_id=platform.id, token_id=thief.id)

        async with engine.begin() as making:
            if by == "rotate":
                await tokens.rotate_secret(
                    making,
                    token_id=other.id,
                    rotated_by=token,
                    keys=KEYS,
                    overlap=timedelta(0),
                    at=datetime.now(UTC),
                )
            else:
                await tokens.issue(
                    making,
                    platform_id=platform.id,
                    name="loot",
                    permissions=["TOKENS"],
                    keys=KEYS,
                    at=datetime.now(UTC),
                    granted_by=token,
                )
            removal = asyncio.create_task(remove())
            async with engine.connect() as looking:
                while not removal.done() and not await looking.scalar(_WAITING):  # noqa: ASYNC110 - PostgreSQL does not tell
                    await asyncio.sleep(0.01)
            assert not removal.done(), "it waits"
        await removal
        await engine.dispose()

    asyncio.run(run())


def test_a_token_is_not_deleted_while_it_gives_access(app_database_url: str) -> None:
    async def run() -> None:
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            platform = await platforms.create(connection, name="Acme", keys=KEYS)
            made = await tokens.issue(
                connection,
                platform_id=platform.id,
                name="thief",
                permissions=["AGENTS"],
                keys=KEYS,
                at=datetime.now(UTC),
            )
        thief = proven(made, platform.id)

        async def delete() -> bool:
            async with engine.begin() as connection:
                await connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
                return await tokens.delete(connection, platform_id=platform.id, token_id=made.id)

        async with engine.begin() as making, engine.begin() as another:
            await tokens.keep(making, thief, at=NOW)
            await tokens.keep(another, thief, at=NOW)  # They do not wait for each other.
            with pytest.raises(OperationalError, match="lock timeout"):
                await delete()
        assert await delete()
        async with engine.begin() as connection:
            with pytest.raises(tokens.RevokedTokenError):
                await tokens.keep(connection, thief, at=NOW)
        await engine.dispose()

    asyncio.run(run())


def test_a_secret_gives_access_as_long_as_it_counts(app_database_url: str) -> None:
    hour = timedelta(hours=1)

    async def act(connection: AsyncConnection) -> list[bool]:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        issued = await issue(connection, platform.id)
        former = proven(issued, platform.id)
        stored = await tokens.find(connection, issued.client_id)
        assert stored is not None
        stamp = stored.stamp
        session = tokens.ProvenToken(
            token=former.token, proof=lambda now, at: now.has_stamp(stamp, at)
        )
        rotating = proven(await issue(connection, platform.id), platform.id)

        async def rotate(overlap: timedelta, at: datetime) -> tokens.ProvenToken:
            rotated = await tokens.rotate_secret(
                connection,
                token_id=issued.id,
                rotated_by=rotating,
                keys=KEYS,
                overlap=overlap,
                at=at,
            )
            assert rotated is not None
            return proven(rotated, platform.id)

        second = await rotate(hour, NOW)
        counted = [
            await is_kept(connection, each, at)
            for at in (NOW, NOW + hour)
            for each in (second, former, session)
        ]
        third = await rotate(timedelta(0), NOW + hour)
        return counted + [await is_kept(connection, each, NOW + hour) for each in (third, second)]

    assert within(app_database_url, act) == [True, True, True, True, False, False, True, False]


def test_a_secret_that_is_hashed_with_a_new_server_key_gives_access_all_the_same(
    app_database_url: str,
) -> None:
    async def act(connection: AsyncConnection) -> bool:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        issued = await issue(connection, platform.id)
        rotating = KeyRing(ServerKey("another secret key that only tests use", former=(SECRET,)))
        token = proven(issued, platform.id, rotating)
        stored = await tokens.find(connection, issued.client_id)
        assert stored is not None
        assert issued.client_secret is not None
        presented = tokens.presented(rotating, issued.client_id, issued.client_secret)
        rehash = stored.replacement(presented)
        assert rehash is not None
        assert await secret_hashes.replace(connection, rehash)
        return await is_kept(connection, token, NOW)

    assert within(app_database_url, act)


async def issue(connection: AsyncConnection, platform_id: Id) -> TokenResource:
    return await tokens.issue(
        connection, platform_id=platform_id, name="x", permissions=["TOKENS"], keys=KEYS, at=NOW
    )


def proven(issued: TokenResource, platform_id: Id, keys: KeyRing = KEYS) -> tokens.ProvenToken:
    """Return the token of a caller who has presented the secret of `issued`."""
    assert issued.client_secret is not None
    presented = tokens.presented(keys, issued.client_id, issued.client_secret)
    permissions = frozenset(map(Permission, issued.permissions))
    return tokens.ProvenToken(
        token=Token(id=issued.id, platform_id=platform_id, permissions=permissions),
        proof=lambda stored, at: stored.proves(presented, at),
    )


async def is_kept(connection: AsyncConnection, token: tokens.ProvenToken, at: datetime) -> bool:
    try:
        await tokens.keep(connection, token, at=at)
    except tokens.RevokedTokenError:
        return False
    return True


_WAITING = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
