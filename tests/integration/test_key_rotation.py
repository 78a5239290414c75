"""Secrets in the database: bound to their places, and sealed again when the server key changes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
import pytest
import typer
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.commands.groups import keys
from cardledger.install import key_rotation
from cardledger.ledger.agents import access_tokens
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers import updates
from cardledger.ledger.customers.authentication import state, totp
from cardledger.ledger.messaging import idempotency_keys, inbox
from cardledger.ledger.messaging.idempotency_keys import Answer, Claim
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.platforms import api_tokens, console_tickets
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.sandbox.card_numbers import number_of
from cardledger.ledger.storage.engines import async_engine, sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import sealed_columns, server_keys
from cardledger.ledger.storage.secrets.key_ring import KeyRing, SecretsError, ServerKey
from cardledger.ledger.storage.secrets.sealed_columns import TOTP_SECRET, SealedColumn
from cardledger.ledger.webhooks import endpoints, signing_keys
from cardledger.ledger.webhooks.endpoints import NewEndpoint
from cardledger.ledger.webhooks.signers import signer_for
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import TotpEnrolment

OLD: Final = "the former server key of at least 32 characters"
NEW: Final = "the current server key of at least 32 characters"
NOW: Final = datetime.now(UTC)
EARLIER: Final = KeyRing(ServerKey(OLD, binds=False))
"""Writes as releases before schema 0018 did."""
BEFORE: Final = KeyRing(OLD)
ROTATING: Final = ServerKey(NEW, former=(OLD,))
TAX_NUMBER: Final = "123-45-6789"

Result = TypeVar("Result")

_LEFT: Final = (
    "inbox",
    "server_keys",
    "api_tokens",
    "idempotency_keys",
    "outbox",
    "internal_accounts",
    "customer_authentication",
    "customers",
    "webhook_signing_keys",
    "webhook_endpoints",
    "system_accounts",
    "platforms",
)


def within(url: str, do: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
    """Run `do` in a database transaction."""

    async def run() -> Result:
        engine = async_engine(url, reply_limit_s=None)  # Silence is for other tests.
        try:
            async with engine.begin() as connection:
                return await do(connection)
        finally:
            await engine.dispose()

    return asyncio.run(run())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A platform with a secret in every sealed column that has no API of its own here."""

    platform_id: Id
    endpoint_id: Id
    customer_id: Id
    client_id: str
    client_secret: str
    webhook_secret: str
    totp_secret: str


async def _tenant(connection: AsyncConnection, keys: KeyRing) -> Tenant:
    platform = await platforms.create(connection, name="Acme", keys=keys)
    new = NewEndpoint(
        url="https://hooks.example", description=None, event_types=(), mode="FIFO", state="DISABLED"
    )
    endpoint = await endpoints.create(
        connection, platform_id=platform.id, new=new, keys=keys, at=NOW
    )
    rotated = await endpoints.rotate_secret(
        connection, platform_id=platform.id, endpoint_id=endpoint.id, keys=keys, at=NOW
    )
    assert rotated is not None
    assert rotated.secret is not None
    await signing_keys.rotate(
        connection, platform_id=platform.id, keys=keys, overlap=timedelta(0), at=NOW
    )
    customer = await customers.create(
        connection,
        platform_id=platform.id,
        person=customers.Individual(full_name="Ada", id_type="SSN", identifier=TAX_NUMBER),
        verifier=None,
        keys=keys,
        at=NOW,
    )
    ada = await state.find(connection, platform.id, customer.id)
    assert ada is not None
    enrolment = await totp.enrol(connection, person=ada, issuer="Acme", keys=keys, at=NOW)
    assert isinstance(enrolment, TotpEnrolment)
    assert enrolment.secret is not None
    claim = Claim(platform_id=platform.id, key="order-1", request_hash=bytes(32))
    await idempotency_keys.keep(connection, claim, Answer(200, b"{}"), keys=keys, at=NOW)
    client_id, client_secret = await api_tokens.create(
        connection, platform_id=platform.id, name="ci", permissions=["VIEW"], keys=keys
    )
    return Tenant(
        platform_id=platform.id,
        endpoint_id=endpoint.id,
        customer_id=customer.id,
        client_id=client_id,
        client_secret=client_secret,
        webhook_secret=rotated.secret,
        totp_secret=enrolment.secret,
    )


def tenant(url: str, keys: KeyRing) -> Tenant:
    return within(url, lambda connection: _tenant(connection, keys))


async def check_open(connection: AsyncConnection, tenant: Tenant, keys: KeyRing) -> None:
    """Read every secret of a tenant.

    Raises: SecretsError.
    """
    await platforms.webhook_secret(connection, tenant.platform_id, keys)
    columns = tables.customer_authentication.c
    sealed = await connection.scalar(
        select(columns.totp_secret).where(columns.id == tenant.customer_id)
    )
    assert sealed is not None
    location = TOTP_SECRET.of(tenant.platform_id, tenant.customer_id)
    assert keys.decrypt(sealed, location).hex() == tenant.totp_secret
    kept = await idempotency_keys.find(
        connection, platform_id=tenant.platform_id, key="order-1", keys=keys
    )
    assert kept is not None
    assert kept.answer == Answer(200, b"{}")
    changed = await updates.change(  # Compares the country with the number, which is sealed.
        connection,
        platform_id=tenant.platform_id,
        customer_id=tenant.customer_id,
        customer_type="INDIVIDUAL",
        changes={"country_of_issuance": "US"},
        keys=keys,
        at=NOW,
    )
    assert changed is not None


def opens(url: str, tenant: Tenant, keys: KeyRing) -> bool:
    """Return whether every secret of a tenant opens with `keys`."""
    engine = sync_engine(url, reply_limit_s=None)
    try:
        within(url, lambda connection: check_open(connection, tenant, keys))
        with engine.connect() as connection:
            # Before the later signing key, and with it.
            signers = [
                signer_for(connection, tenant.endpoint_id, keys, at=at)
                for at in (NOW - timedelta(days=1), NOW)
            ]
    except SecretsError:
        return False
    finally:
        engine.dispose()
    assert {signer.secret for signer in signers} == {tenant.webhook_secret}
    assert [len(signer.former_secrets) for signer in signers] == [1, 1]
    return True


@pytest.fixture
def app(app_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the application."""
    with psycopg.connect(app_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the owner; afterwards no secret is left for another test."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
        for table in _LEFT:
            connection.execute(f"DELETE FROM {table}".encode())


# --- places ------------------------------------------------------------------------------------


def test_every_column_that_is_encrypted_is_sealed_again_by_a_rotation() -> None:
    encrypted = {
        (table.name, column.name)
        for table in tables.metadata.sorted_tables
        for column in table.columns
        if "encrypted" in (column.comment or "").lower() or column.name == "former_secret"
    }

    known = {(column.table, column.column) for column in sealed_columns.ALL}
    # A file is encrypted with the key of its document, and that is what a rotation seals again.
    files = {("document_contents", "content"), ("document_pieces", "content")}
    assert encrypted == known | files | {("server_keys", "card_key")}


MOVES = [
    ("platforms", "signing_key", "id"),
    ("platforms", "webhook_secret", "id"),
    ("webhook_signing_keys", "private_key", "platform_id"),
    ("webhook_endpoints", "secret", "platform_id"),
    ("webhook_endpoints", "former_secret", "platform_id"),
    ("customers", "identifier", "platform_id"),
    ("idempotency_keys", "answer", "platform_id"),
]


def value_of(
    connection: psycopg.Connection[Any], table: str, column: str, key: str, platform_id: Id
) -> bytes:
    [[value]] = connection.execute(
        f"SELECT {column} FROM {table} WHERE {key} = %s", [platform_id]
    ).fetchall()
    assert isinstance(value, bytes)
    return value


def test_a_sealed_value_of_another_tenant_does_not_open(
    owner: psycopg.Connection[Any], app_database_url: str
) -> None:
    ours, theirs = tenant(app_database_url, BEFORE), tenant(app_database_url, BEFORE)
    opened = []

    for table, column, key in MOVES:
        own = value_of(owner, table, column, key, ours.platform_id)
        other = value_of(owner, table, column, key, theirs.platform_id)
        move = f"UPDATE {table} SET {column} = %s WHERE {key} = %s"
        owner.execute(move, [other, ours.platform_id])
        if opens(app_database_url, ours, BEFORE):
            opened.append((table, column))
        owner.execute(move, [own, ours.platform_id])

    assert opens(app_database_url, ours, BEFORE)
    assert opened == []


def test_a_sealed_value_does_not_open_in_another_column(
    owner: psycopg.Connection[Any], app_database_url: str
) -> None:
    ours = tenant(app_database_url, BEFORE)

    owner.execute(
        "UPDATE webhook_endpoints SET former_secret = secret WHERE id = %s", [ours.endpoint_id]
    )

    assert not opens(app_database_url, ours, BEFORE)


def test_the_hash_of_a_secret_does_not_prove_it_for_another_token(
    owner: psycopg.Connection[Any], app_database_url: str
) -> None:
    ours, theirs = tenant(app_database_url, BEFORE), tenant(app_database_url, BEFORE)

    owner.execute(
        "UPDATE api_tokens SET secret_hash = (SELECT secret_hash FROM api_tokens"
        " WHERE client_id = %s) WHERE client_id = %s",
        [ours.client_id, theirs.client_id],
    )

    async def authenticated(connection: AsyncConnection) -> list[bool]:
        found = [
            await api_tokens.authenticate(connection, client_id, ours.client_secret, BEFORE)
            for client_id in (ours.client_id, theirs.client_id)
        ]
        return [token is not None for token in found]

    assert within(app_database_url, authenticated) == [True, False]


def test_the_hash_of_an_api_secret_connects_no_agent() -> None:
    secret = access_tokens.new(new_id())
    presented = access_tokens.presented(BEFORE, secret)

    assert not presented.proves(api_tokens.presented(BEFORE, "clid_1", secret).digest)
    assert presented.proves(access_tokens.hash_of(BEFORE, secret))


# --- rotation ----------------------------------------------------------------------------------


def totals(found: key_rotation.Status) -> tuple[int, int, int]:
    """Return how many values are of the current key, of others, and unreadable."""
    return (
        sum(count.current for count in found.sealed),
        sum(count.outdated for count in found.sealed),
        sum(count.unreadable for count in found.sealed),
    )


@pytest.mark.usefixtures("owner")
def test_after_a_rotation_the_new_key_alone_opens_everything(
    app: psycopg.Connection[Any], app_database_url: str
) -> None:
    unbound, bound = tenant(app_database_url, EARLIER), tenant(app_database_url, BEFORE)
    card_id = new_id()
    number = number_of(BEFORE, card_id, "0042")

    begun = key_rotation.status(app, ROTATING)
    done = key_rotation.rotate(app, ROTATING)

    alone = KeyRing(NEW)
    assert totals(begun) == (0, 16, 0)
    assert not begun.is_sealed
    assert totals(done) == (16, 0, 0)
    assert done.is_sealed
    assert opens(app_database_url, unbound, alone)
    assert opens(app_database_url, bound, alone)
    assert not opens(app_database_url, bound, BEFORE)
    # Hashes wait for their secrets, with which they are made again.
    assert [(count.current, count.outdated) for count in done.hashes if count.outdated] == [(0, 2)]
    assert done.needs_former_keys
    assert number_of(alone, card_id, "0042") != number
    within(app_database_url, lambda connection: server_keys.load_card_key(connection, alone))
    assert number_of(alone, card_id, "0042") == number


@pytest.mark.usefixtures("owner")
def test_card_numbers_stay_through_a_second_rotation(
    app: psycopg.Connection[Any], app_database_url: str
) -> None:
    card_id, newest = new_id(), "the third server key, of at least 32 characters"
    number = number_of(BEFORE, card_id, "0042")
    key_rotation.rotate(app, ROTATING)
    key = ServerKey(newest, former=(NEW,))

    assert key_rotation.rotate(app, key).is_sealed

    alone = KeyRing(newest)
    within(app_database_url, lambda connection: server_keys.load_card_key(connection, alone))
    assert number_of(alone, card_id, "0042") == number


@pytest.mark.usefixtures("owner")
def test_an_interrupted_rotation_is_continued(
    app: psycopg.Connection[Any], app_database_url: str
) -> None:
    ours = tenant(app_database_url, BEFORE)

    def interrupt(_: SealedColumn, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        key_rotation.rotate(app, ROTATING, interrupt)
    between = key_rotation.status(app, ROTATING)
    assert opens(app_database_url, ours, KeyRing(ROTATING))
    done = key_rotation.rotate(app, ROTATING)

    assert totals(between) == (1, 7, 0)
    assert not between.is_sealed
    assert done.is_sealed
    assert opens(app_database_url, ours, KeyRing(NEW))


@pytest.mark.usefixtures("owner")
def test_a_rotation_goes_page_by_page_through_every_row(
    app: psycopg.Connection[Any],
    app_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_rotation, "PAGE_LIMIT", 2)
    ours = [tenant(app_database_url, BEFORE) for _ in range(3)]

    done = key_rotation.rotate(app, ROTATING)

    assert totals(done) == (24, 0, 0)
    assert all(opens(app_database_url, one, KeyRing(NEW)) for one in ours)


def test_a_rotation_waits_for_no_lock_and_leaves_the_row_for_the_next_run(
    owner: psycopg.Connection[Any],
    app: psycopg.Connection[Any],
    app_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_rotation, "_PAUSE_S", 0)
    ours = tenant(app_database_url, BEFORE)

    with owner.transaction():
        owner.execute("SELECT FROM customers WHERE id = %s FOR UPDATE", [ours.customer_id])
        meanwhile = key_rotation.rotate(app, ROTATING)
    done = key_rotation.rotate(app, ROTATING)

    assert totals(meanwhile) == (7, 1, 0)
    assert not meanwhile.keeps_card_key
    assert done.is_sealed


@pytest.mark.usefixtures("owner")
def test_without_the_former_key_nothing_changes_and_nothing_is_lost(
    app: psycopg.Connection[Any], app_database_url: str
) -> None:
    ours = tenant(app_database_url, BEFORE)

    found = key_rotation.rotate(app, ServerKey(NEW))

    assert totals(found) == (0, 8, 8)
    assert app.execute("SELECT count(*) FROM server_keys").fetchall() == [(0,)]
    assert opens(app_database_url, ours, BEFORE)


@pytest.mark.usefixtures("owner")
def test_a_message_that_waits_with_a_mac_of_the_former_key_keeps_it_needed(
    app: psycopg.Connection[Any],
) -> None:
    def insert(key: InboxKey) -> None:
        body = {"source": "network", "reference": str(new_id())}
        owner = inbox.Owner(new_id(), new_id())
        message = inbox.address(body, owner, lane=inbox.Lane.BULK, reply_to=None, at=NOW)
        app.execute(
            f"INSERT INTO inbox VALUES ({', '.join(['%s'] * 12)})", inbox.row_of(message, key)
        )

    key_rotation.rotate(app, ROTATING)
    insert(InboxKey(NEW))
    current = key_rotation.status(app, ROTATING)
    insert(InboxKey(OLD))
    begun = key_rotation.status(app, ROTATING)

    assert (current.messages.current, current.messages.outdated) == (1, 0)
    assert not current.needs_former_keys
    assert (begun.messages.current, begun.messages.outdated) == (1, 1)
    assert begun.is_sealed
    assert begun.needs_former_keys


@pytest.mark.usefixtures("owner")
def test_the_commands_say_what_remains_and_when_the_former_key_may_be_removed(
    app_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tenant(app_database_url, BEFORE)
    monkeypatch.setenv("DATABASE_URL", app_database_url)
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", NEW)
    monkeypatch.setenv("CARDLEDGER_FORMER_SECRET_KEYS", OLD)

    with pytest.raises(typer.Exit) as ended:
        keys.status()
    begun = capsys.readouterr().out
    keys.rotate()
    rotated = capsys.readouterr()
    within(app_database_url, lambda connection: api_tokens.revoke(connection, ours.client_id))
    keys.status(as_json=True)
    done = json.loads(capsys.readouterr().out)

    assert ended.value.exit_code == 1
    assert "Run `cardledger keys rotate`." in begun
    assert "platforms.signing_key: 1 sealed again" in rotated.err
    assert "Everything is sealed with the current key. 1 hash(es)" in rotated.out
    assert (done["isSealed"], done["needsFormerKeys"]) == (True, False)
    assert all(key not in begun + rotated.out + rotated.err for key in (OLD, NEW))


def test_a_changed_card_key_is_noticed(
    owner: psycopg.Connection[Any], app: psycopg.Connection[Any], app_database_url: str
) -> None:
    key_rotation.rotate(app, ROTATING)
    owner.execute(
        "UPDATE server_keys SET card_key = set_byte(card_key, 20, 255 - get_byte(card_key, 20))"
    )

    with pytest.raises(SecretsError, match=r"server_keys\.card_key"):
        within(app_database_url, lambda each: server_keys.load_card_key(each, KeyRing(NEW)))


@pytest.mark.parametrize(
    "statement", ["UPDATE server_keys SET card_key = ''", "DELETE FROM server_keys"]
)
def test_the_application_changes_no_card_key(app: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute(statement.encode())


async def _redeemed(
    connection: AsyncConnection, client_id: str, made: KeyRing, read: KeyRing
) -> str | None:
    ticket = await console_tickets.create(connection, client_id=client_id, keys=made, at=NOW)
    assert ticket is not None
    return await console_tickets.redeem(connection, ticket=ticket, keys=read, at=NOW)


def test_a_ticket_of_the_console_opens_while_the_key_rotates(app_database_url: str) -> None:
    ours = tenant(app_database_url, BEFORE)
    announced, taken = KeyRing(ServerKey(OLD, next=NEW)), KeyRing(ROTATING)

    for made, read in ((BEFORE, taken), (announced, taken), (taken, announced)):
        redeemed = partial(_redeemed, client_id=ours.client_id, made=made, read=read)
        assert within(app_database_url, redeemed) == ours.client_id
