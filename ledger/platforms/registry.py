"""Platforms: the tenants, each with keys, settings and system accounts of its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Row, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.storage.engines import constraint_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import (
    ENDPOINT_SECRET,
    SIGNING_KEY,
    WEBHOOK_SECRET,
)
from cardledger.ledger.webhooks import endpoints, signatures
from cardledger.schema import tables
from cardledger.schema.ids import Id

UMA_DOMAIN: Final = "uma.cardledger.example"
"""The domain of generated UMA addresses, unless the platform sets its own."""

_GENERATED_ADDRESS: Final = r"^\$[0-9a-f]{32}@"

_SYSTEM_ACCOUNTS: Final = tuple(
    account for account in ChartAccount if account is not ChartAccount.CUSTOMER
)

_PLATFORM: Final = select(
    tables.platforms.c.id,
    tables.platforms.c.name,
    tables.platforms.c.supported_currencies,
    tables.platforms.c.currency_settings,
    tables.platforms.c.uma_domain,
    tables.platforms.c.embedded_wallet_config,
    tables.platforms.c.card_tokenization_2fa_config,
    tables.platforms.c.fee_configs,
    select(tables.webhook_endpoints.c.url)
    .where(
        tables.webhook_endpoints.c.platform_id == tables.platforms.c.id,
        tables.webhook_endpoints.c.is_default,
        tables.webhook_endpoints.c.deleted_at.is_(None),
    )
    .scalar_subquery()
    .label("webhook_endpoint"),
    func.coalesce(
        select(tables.webhook_signing_keys.c.public_key)
        .where(
            tables.webhook_signing_keys.c.platform_id == tables.platforms.c.id,
            tables.webhook_signing_keys.c.signs_from <= func.now(),
        )
        .order_by(tables.webhook_signing_keys.c.signs_from.desc())
        .limit(1)
        .scalar_subquery(),
        tables.platforms.c.public_key,
    ).label("public_key"),
    tables.platforms.c.created_at,
    tables.platforms.c.updated_at,
)
"""All columns but the secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A tenant, without its secrets."""

    id: Id
    name: str
    supported_currencies: tuple[str, ...]
    webhook_endpoint: str | None
    public_key: str
    created_at: datetime
    updated_at: datetime
    uma_domain: str = UMA_DOMAIN
    currency_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    embedded_wallet_config: Mapping[str, Any] | None = None
    card_tokenization_2fa_config: Mapping[str, Any] | None = None
    fee_configs: Sequence[Mapping[str, Any]] = ()


class CurrencyInUseError(Exception):
    """A currency cannot be removed: a customer has an open account in it."""

    def __init__(self, currency: str) -> None:
        super().__init__(f"there are open accounts in {currency}")
        self.currency = currency


class UmaDomainTakenError(Exception):
    """Another platform has this domain for its UMA addresses."""


class UmaDomainInUseError(Exception):
    """A domain cannot be given up: a customer has a chosen address in it."""

    def __init__(self, domain: str) -> None:
        super().__init__(f"there are customers with a chosen umaAddress in {domain}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSettings:
    """A change of a platform's settings: the fields in `named`; the others are kept.

    The two configurations change field by field: None removes a field, and None for a whole
    configuration removes all of it. Fees are added, or replace fees of the same kind.
    """

    named: frozenset[str]
    uma_domain: str | None = None
    currencies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    embedded_wallet_config: Mapping[str, Any] | None = None
    card_tokenization_2fa_config: Mapping[str, Any] | None = None
    fee_configs: Sequence[Mapping[str, Any]] = ()


async def create(
    connection: AsyncConnection,
    *,
    name: str,
    keys: KeyRing,
    currencies: tuple[str, ...] = ("USD",),
    at: datetime | None = None,
) -> Platform:
    """Create a platform with its signing keys and its system accounts in every currency."""
    at = at or datetime.now(UTC)
    private_key, public_key = signatures.new_signing_key()
    platform = Platform(
        id=new_id(),
        name=name,
        supported_currencies=currencies,
        webhook_endpoint=None,
        public_key=public_key,
        created_at=at,
        updated_at=at,
    )
    await connection.execute(
        tables.platforms.insert().values(
            id=platform.id,
            name=name,
            supported_currencies=list(currencies),
            signing_key=keys.encrypt(private_key, SIGNING_KEY.of(platform.id, platform.id)),
            public_key=public_key,
            webhook_secret=keys.encrypt(
                signatures.new_webhook_secret().encode(),
                WEBHOOK_SECRET.of(platform.id, platform.id),
            ),
            created_at=at,
            updated_at=at,
        )
    )
    await _open_system_accounts(connection, platform.id, currencies)
    return platform


async def _open_system_accounts(
    connection: AsyncConnection, platform_id: Id, currencies: Iterable[str]
) -> None:
    """Open the platform's system accounts in `currencies`, where they are missing."""
    rows = [
        {"id": new_id(), "platform_id": platform_id, "currency": currency, "kind": kind.value}
        for currency in currencies
        for kind in _SYSTEM_ACCOUNTS
    ]
    await connection.execute(
        # A currency that was removed keeps its system accounts.
        postgresql.insert(tables.system_accounts).on_conflict_do_nothing(),
        rows,
    )


async def get(connection: AsyncConnection, platform_id: Id, *, hold: bool = False) -> Platform:
    """Return the platform `platform_id`, which exists: a token was issued for it.

    With `hold`, its settings are locked against changes until the database transaction ends.
    """
    wanted = _PLATFORM.where(tables.platforms.c.id == platform_id)
    rows = await connection.execute(wanted.with_for_update(read=True) if hold else wanted)
    return _platform(rows.one())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSummary:
    """A platform as operators list it."""

    id: Id
    name: str
    created_at: datetime
    token_count: int


async def summaries(connection: AsyncConnection) -> list[PlatformSummary]:
    """Return every platform, oldest first."""
    platform = tables.platforms.c
    counted = (
        select(func.count()).where(tables.api_tokens.c.platform_id == platform.id).scalar_subquery()
    )
    rows = await connection.execute(
        select(
            platform.id, platform.name, platform.created_at, counted.label("token_count")
        ).order_by(platform.created_at, platform.id)
    )
    return [
        PlatformSummary(
            id=row.id, name=row.name, created_at=row.created_at, token_count=row.token_count
        )
        for row in rows
    ]


async def configure(
    connection: AsyncConnection, platform_id: Id, settings: PlatformSettings, *, at: datetime
) -> Platform:
    """Change the platform's settings, all or none.

    Raises: CurrencyInUseError, UmaDomainInUseError, UmaDomainTakenError; then nothing may be
    committed.
    """
    # Exclusive: opening an account locks the settings as well.
    rows = await connection.execute(
        _PLATFORM.where(tables.platforms.c.id == platform_id).with_for_update(key_share=True)
    )
    before = _platform(rows.one())
    values: dict[str, Any] = {"updated_at": at}
    if "supported_currencies" in settings.named:
        removed = [code for code in before.supported_currencies if code not in settings.currencies]
        await _check_unused(connection, platform_id, removed)
        await _open_system_accounts(connection, platform_id, settings.currencies)
        values["supported_currencies"] = list(settings.currencies)
        values["currency_settings"] = dict(settings.currencies)
    if "uma_domain" in settings.named:
        # The shared domain of the installation is the default, and belongs to no platform.
        domain = settings.uma_domain or UMA_DOMAIN
        if before.uma_domain not in {domain, UMA_DOMAIN}:
            await _check_no_chosen_address(connection, platform_id, before.uma_domain)
        values["uma_domain"] = None if domain == UMA_DOMAIN else domain
    for name in ("embedded_wallet_config", "card_tokenization_2fa_config"):
        if name in settings.named:
            values[name] = _merged(getattr(before, name), getattr(settings, name))
    if "fee_configs" in settings.named:
        values["fee_configs"] = _upserted(before.fee_configs, settings.fee_configs)
    changed = tables.platforms.update().where(tables.platforms.c.id == platform_id)
    with _free_uma_domain():
        await connection.execute(changed.values(**values))
    return await get(connection, platform_id)


@contextmanager
def _free_uma_domain() -> Iterator[None]:
    """Raise UmaDomainTakenError when another platform has the domain that is written."""
    try:
        yield
    except IntegrityError as error:
        if constraint_of(error) != "platforms_uma_domain_key":
            raise
        raise UmaDomainTakenError("another platform has this domain") from None


async def _check_no_chosen_address(
    connection: AsyncConnection, platform_id: Id, domain: str
) -> None:
    """Check that customers have no chosen address in `domain`, which other platforms may claim.

    They would get what is paid to a name there. A generated address, 32 digits that no customer
    of another platform has, stays.
    Raises: UmaDomainInUseError.
    """
    customer = tables.customers.c
    used = await connection.scalar(
        select(customer.id)
        .where(
            customer.platform_id == platform_id,
            ~customer.is_deleted,
            customer.uma_address.endswith(f"@{domain}", autoescape=True),
            ~customer.uma_address.regexp_match(_GENERATED_ADDRESS),
        )
        .limit(1)
    )
    if used is not None:
        raise UmaDomainInUseError(domain)


async def _check_unused(
    connection: AsyncConnection, platform_id: Id, currencies: Sequence[str]
) -> None:
    account = tables.internal_accounts.c
    used = await connection.scalar(
        select(account.currency)
        .where(
            account.platform_id == platform_id,
            account.currency.in_(currencies),
            account.status != "CLOSED",
        )
        .limit(1)
    )
    if used is not None:
        raise CurrencyInUseError(used)


def _merged(
    before: Mapping[str, Any] | None, changes: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return `before` with `changes`, nested objects merged likewise; None removes a field."""
    if changes is None:
        return None
    merged = dict(before or {})
    for name, value in changes.items():
        merged[name] = _merged(merged.get(name), value) if isinstance(value, Mapping) else value
    return {name: value for name, value in merged.items() if value is not None}


def _upserted(
    before: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    by_kind = {(fee["feeType"], fee["sourceCurrency"]): fee for fee in (*before, *changes)}
    return list(by_kind.values())


async def set_webhook_endpoint(
    connection: AsyncConnection, platform_id: Id, endpoint: str | None, *, at: datetime
) -> Platform:
    """Set the platform's default webhook endpoint; None: its webhooks are not sent."""
    # The platform's row first, which also serializes concurrent requests.
    await connection.execute(
        tables.platforms.update().where(tables.platforms.c.id == platform_id).values(updated_at=at)
    )
    await endpoints.set_default(connection, platform_id=platform_id, url=endpoint, at=at)
    return await get(connection, platform_id)


async def public_key(connection: AsyncConnection, platform_id: Id) -> str:
    """Return the PEM key that verifies the webhooks sent to the platform now."""
    return (await get(connection, platform_id)).public_key


async def webhook_secret(connection: AsyncConnection, platform_id: Id, keys: KeyRing) -> str:
    """Return the `whsec_...` secret of the platform's default endpoint.

    Raises: SecretsError when the server key is not the one that encrypted it.
    """
    endpoint = tables.webhook_endpoints.c
    rows = await connection.execute(
        select(endpoint.id, endpoint.secret, tables.platforms.c.webhook_secret)
        .join_from(
            tables.platforms,
            tables.webhook_endpoints,
            (endpoint.platform_id == tables.platforms.c.id) & endpoint.is_default,
            isouter=True,
        )
        .where(tables.platforms.c.id == platform_id)
    )
    row = rows.one()
    if row.secret is None:
        return keys.decrypt(
            row.webhook_secret, WEBHOOK_SECRET.of(platform_id, platform_id)
        ).decode()
    return keys.decrypt(row.secret, ENDPOINT_SECRET.of(platform_id, row.id)).decode()


def _platform(row: Row[*tuple[Any, ...]]) -> Platform:
    return Platform(
        id=row.id,
        name=row.name,
        supported_currencies=tuple(row.supported_currencies),
        webhook_endpoint=row.webhook_endpoint,
        public_key=row.public_key,
        created_at=row.created_at,
        updated_at=row.updated_at,
        uma_domain=row.uma_domain or UMA_DOMAIN,
        currency_settings=row.currency_settings,
        embedded_wallet_config=row.embedded_wallet_config,
        card_tokenization_2fa_config=row.card_tokenization_2fa_config,
        fee_configs=row.fee_configs,
    )
