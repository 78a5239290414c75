"""Challenges for payments: who needs one, that it is linked to its payment, how it is answered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection
from typing_extensions import override

from cardledger.ledger.customers import external_accounts
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.authentication import contacts, payments, state
from cardledger.ledger.customers.authentication.refusals import Kind, Refused
from cardledger.ledger.customers.external_accounts import Registration
from cardledger.ledger.customers.registry import Individual
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import Channel, ScaChallengeResource
from cardledger.schema.wire.customers.external_accounts import ExternalAccountCreate
from tests.external_accounts import body

KEYS = KeyRing("a secret key that only tests use, long enough")
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Sender(CodeSender):
    """Keeps what it is to send: every code another one, as outside a sandbox."""

    def __init__(self) -> None:
        self.sent: list[tuple[Channel, str, str]] = []

    @override
    def new_code(self) -> str:
        return f"{len(self.sent):06}"

    @override
    def send(self, channel: Channel, address: str, code: str) -> None:
        self.sent.append((channel, address, code))

    @override
    def accepts_as_totp(self, code: str) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """A customer with an external account, who may pay."""

    connection: AsyncConnection
    platform_id: Id
    id: Id
    account_id: Id
    sender: Sender

    async def needs(self, account_id: Id | None) -> bool:
        return await payments.is_required(
            self.connection,
            platform_id=self.platform_id,
            customer_id=self.id,
            external_account_id=account_id,
            sender=self.sender,
        )

    async def challenge(self, subject: str, at: datetime = NOW) -> ScaChallengeResource | Refused:
        return await payments.challenge(
            self.connection,
            platform_id=self.platform_id,
            customer_id=self.id,
            subject=subject,
            purpose="PAYOUT",
            keys=KEYS,
            sender=self.sender,
            at=at,
        )

    async def answer(
        self, subject: str, code: str, *, challenge_id: Id | None = None, at: datetime = NOW
    ) -> Refused | None:
        return await payments.answer(
            self.connection,
            platform_id=self.platform_id,
            customer_id=self.id,
            subject=subject,
            challenge_id=challenge_id,
            code=code,
            keys=KEYS,
            at=at,
        )

    @property
    def last_code(self) -> str:
        return self.sender.sent[-1][2]


@asynccontextmanager
async def paying(url: str, region: str, *, verified: bool = True) -> AsyncIterator[Payer]:
    """Yield a payer in a database transaction that is rolled back."""
    engine = async_engine(url)
    async with engine.connect() as connection:
        platform = await platforms.create(connection, name="Acme", keys=KEYS)
        ada = Individual(
            full_name="Ada", region=region, email="ada@example.com", phone_number="+4915112345678"
        )
        customer = await customers.create(
            connection, platform_id=platform.id, person=ada, verifier=None, keys=KEYS, at=NOW
        )
        request = ExternalAccountCreate.model_validate(body("USD_ACCOUNT"))
        account = await external_accounts.create(
            connection,
            platform_id=platform.id,
            wanted=Registration(customer_id=customer.id, currency="USD", info=request.account_info),
            verifier=None,
            at=NOW,
        )
        payer = Payer(
            connection=connection,
            platform_id=platform.id,
            id=customer.id,
            account_id=account.id,
            sender=Sender(),
        )
        if verified and region == "DE":
            await verify_phone(payer)
        yield payer
        await connection.rollback()
    await engine.dispose()


async def verify_phone(payer: Payer) -> None:
    person = await state.find(payer.connection, payer.platform_id, payer.id)
    assert person is not None
    asked = {"person": person, "channel": "PHONE", "keys": KEYS, "sender": payer.sender}
    given: dict[str, Any] = asked | {"at": NOW}
    assert await contacts.start(payer.connection, **given) is None
    assert await contacts.confirm(payer.connection, code=payer.last_code, **given) is None


Play = Callable[[Payer], Coroutine[Any, Any, None]]


def play(url: str, act: Play, region: str = "DE", *, verified: bool = True) -> None:
    async def run() -> None:
        async with paying(url, region, verified=verified) as payer:
            await act(payer)

    asyncio.run(run())


def kind_of(answer: object) -> Kind:
    assert isinstance(answer, Refused), answer
    return answer.kind


@pytest.mark.parametrize(("region", "needs"), [("DE", True), ("US", False)])
def test_a_payment_of_who_has_to_authenticate_needs_a_challenge_unless_its_account_is_trusted(
    app_database_url: str, region: str, *, needs: bool
) -> None:
    async def act(payer: Payer) -> None:
        assert await payer.needs(payer.account_id) is needs
        assert await payer.needs(None) is needs
        await payer.connection.execute(
            update(tables.external_accounts)
            .where(tables.external_accounts.c.id == payer.account_id)
            .values(trusted_at=NOW)
        )
        assert await payer.needs(payer.account_id) is False
        assert await payer.needs(None) is needs

    play(app_database_url, act, region)


def test_a_code_authorizes_its_payment_once_and_no_other(app_database_url: str) -> None:
    async def act(payer: Payer) -> None:
        first = await payer.challenge("Quote:1")
        code = payer.last_code
        await payer.challenge("Quote:2")
        assert isinstance(first, ScaChallengeResource)
        assert payer.sender.sent[-1][:2] == ("PHONE", "+4915112345678")

        assert kind_of(await payer.answer("Quote:2", code)) is Kind.INVALID
        stolen = await payer.answer("Quote:2", code, challenge_id=first.id)
        assert kind_of(stolen) is Kind.INVALID
        assert await payer.answer("Quote:1", code, challenge_id=first.id) is None
        assert kind_of(await payer.answer("Quote:1", code)) is Kind.INVALID

    play(app_database_url, act)


def test_a_resent_code_replaces_the_first(app_database_url: str) -> None:
    async def act(payer: Payer) -> None:
        await payer.challenge("Quote:1")
        code = payer.last_code
        resent = await payer.challenge("Quote:1")
        assert isinstance(resent, ScaChallengeResource)

        shown = await payments.open_challenge(
            payer.connection,
            platform_id=payer.platform_id,
            customer_id=payer.id,
            subject="Quote:1",
            at=NOW,
        )

        assert shown == resent
        assert kind_of(await payer.answer("Quote:1", code)) is Kind.INVALID
        assert await payer.answer("Quote:1", payer.last_code) is None

    play(app_database_url, act)


def test_wrong_codes_for_payments_lock_the_customer(app_database_url: str) -> None:
    async def act(payer: Payer) -> None:
        kinds = []
        for number in range(5):
            await payer.challenge(f"Quote:{number}")
            refused = await payer.answer(f"Quote:{number}", "999999")
            kinds.append(kind_of(refused))
            assert isinstance(refused, Refused)
            assert refused.has_counted
        assert kinds == [Kind.INVALID] * 4 + [Kind.LOCKED]

        assert kind_of(await payer.challenge("Quote:9")) is Kind.LOCKED
        locked = await payer.answer("Quote:4", payer.last_code)
        assert kind_of(locked) is Kind.LOCKED
        later = NOW + timedelta(minutes=31)
        await payer.challenge("Quote:9", later)
        assert await payer.answer("Quote:9", payer.last_code, at=later) is None

    play(app_database_url, act)


def test_a_code_for_a_payment_expires(app_database_url: str) -> None:
    async def act(payer: Payer) -> None:
        challenge = await payer.challenge("Quote:1")
        assert isinstance(challenge, ScaChallengeResource)
        late = challenge.expires_at + timedelta(seconds=1)

        assert kind_of(await payer.answer("Quote:1", payer.last_code, at=late)) is Kind.INVALID

    play(app_database_url, act)


def test_without_a_verified_phone_there_is_no_challenge(app_database_url: str) -> None:
    async def act(payer: Payer) -> None:
        assert kind_of(await payer.challenge("Quote:1")) is Kind.CONFLICT

    play(app_database_url, act, verified=False)


async def other_phone(payer: Payer, number: str) -> None:
    change = update(tables.customers).where(tables.customers.c.id == payer.id)
    await payer.connection.execute(change.values(phone_number=number))


def test_a_code_for_a_phone_that_was_replaced_authorizes_nothing(database_url: str) -> None:
    async def act(payer: Payer) -> None:
        assert isinstance(await payer.challenge("Quote:1"), ScaChallengeResource)
        to_the_old_phone = payer.last_code
        await other_phone(payer, "+4915187654321")

        unverified = await payer.answer("Quote:1", to_the_old_phone)
        await verify_phone(payer)
        verified = await payer.answer("Quote:1", to_the_old_phone)

        for refused in (unverified, verified):
            assert isinstance(refused, Refused)
            assert refused.details["reason"] == "CODE_EXPIRED"

    play(database_url, act)


def test_an_account_that_another_customer_trusts_needs_a_challenge(database_url: str) -> None:
    async def act(payer: Payer) -> None:
        trusting = update(tables.external_accounts).where(
            tables.external_accounts.c.id == payer.account_id
        )
        await payer.connection.execute(trusting.values(trusted_at=NOW))
        assert not await payer.needs(payer.account_id)
        eve = Individual(
            full_name="Eve", region="DE", email="eve@example.com", phone_number="+4915112345670"
        )
        other = await customers.create(
            payer.connection,
            platform_id=payer.platform_id,
            person=eve,
            verifier=None,
            keys=KEYS,
            at=NOW,
        )

        assert await replace(payer, id=other.id).needs(payer.account_id)

    play(database_url, act)
