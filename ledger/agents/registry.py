"""Agents: programs that act for one customer, within a policy, with an access token."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import access_tokens, grants, policy_document, usage
from cardledger.ledger.agents.policy import Policy, Usage
from cardledger.ledger.agents.refusals import AgentRefusal, AgentRefusedError
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import PresentedSecret
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.agents import AgentPolicy, AgentResource, AgentUsage
from cardledger.schema.wire.errors import FieldError

AGENT_LIMIT: Final = 10_000
"""The most agents a platform may have; deleted ones do not count."""

_AGENTS: Final = tables.agents.c

_SHOWN: Final[Select[*tuple[Any, ...]]] = select(
    _AGENTS.id,
    _AGENTS.platform_id,
    _AGENTS.customer_id,
    _AGENTS.name,
    _AGENTS.is_paused,
    _AGENTS.policy,
    _AGENTS.access_token_hash.isnot(None).label("is_connected"),
    _AGENTS.created_at,
    _AGENTS.updated_at,
)
"""All columns but the hash of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent: the customer for which it acts, and its policy."""

    id: Id
    name: str
    platform_id: Id
    customer_id: Id
    is_paused: bool
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedToken:
    """What an access token stands for.

    `agent` is None unless the token authenticates it; `agent_id` is that of the agent that the
    token names, None when there has never been such an agent.
    """

    agent: Agent | None
    agent_id: Id | None
    outdated_hash: bytes | None = None  # Of a former server key or release.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilters:
    """Filters of a list of agents; None matches all, and times are inclusive."""

    customer_id: Id | None = None
    is_paused: bool | None = None
    is_connected: bool | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None


# --- authentication and locks ------------------------------------------------------------------


async def authenticate(
    connection: AsyncConnection, token: str, presented: PresentedSecret
) -> PresentedToken:
    """Look up the access token `token`, which is `presented`.

    It does not authenticate when the agent or its customer is deleted. Nothing is cached, so a
    pause or another policy applies from the next request on.
    """
    agent_id = access_tokens.agent_id_in(token)
    is_this = (
        _AGENTS.access_token_hash.in_(presented.candidates)
        if agent_id is None
        else _AGENTS.id == agent_id
    )
    customer = tables.customers.c
    rows = await connection.execute(
        _SHOWN.add_columns(_AGENTS.access_token_hash, customer.is_deleted)
        .join(tables.customers, customer.id == _AGENTS.customer_id)
        .where(is_this)
    )
    row = rows.one_or_none()
    if row is None:
        return PresentedToken(agent=None, agent_id=None)
    # A deleted agent has no hash: see the constraint `deleted_has_no_access`.
    stored = row.access_token_hash or bytes(len(presented.digest))
    is_right = presented.proves(stored) and not row.is_deleted
    return PresentedToken(
        agent=_agent(row) if is_right else None,
        agent_id=row.id,
        outdated_hash=None if agent_id is None or presented.is_current(stored) else stored,
    )


async def locked(connection: AsyncConnection, *, platform_id: Id, agent_id: Id) -> Agent | None:
    """Lock and return the platform's agent; None when there is no such agent.

    A transfer holds this lock from reading the agent's usage to the commit.
    """
    # The customer first: deleting a customer locks it before its agents.
    customer = tables.customers.c
    locked_id = await connection.scalar(
        select(customer.id)
        .join(tables.agents, _AGENTS.customer_id == customer.id)
        .where(*_live(platform_id, agent_id), ~customer.is_deleted)
        .with_for_update(read=True, key_share=True, of=tables.customers)
    )
    if locked_id is None:
        return None
    row = await locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    return None if row is None else _agent(row)


async def read_row(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Return the columns of the platform's agent; None when there is no such agent."""
    rows = await connection.execute(_SHOWN.where(*_live(platform_id, agent_id)))
    return rows.one_or_none()


async def locked_row(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Lock and return the columns of the platform's agent; None when there is no such agent."""
    rows = await connection.execute(_SHOWN.where(*_live(platform_id, agent_id)).with_for_update())
    return rows.one_or_none()


# --- the record --------------------------------------------------------------------------------


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    name: str,
    policy: AgentPolicy,
    granted_by: Collection[Permission],
    at: datetime,
) -> AgentResource:
    """Create an agent for a customer; it cannot act before one of its device codes is redeemed.

    `granted_by` are the permissions of the token that creates it.
    Raises: AgentRefusedError, CapReachedError, GrantExceededError.
    """
    grants.check(policy.permissions, granted_by)
    await _lock_customer(connection, platform_id, customer_id)
    await _check_policy(connection, platform_id, customer_id, policy)
    await caps.check(
        connection,
        tables.agents,
        _AGENTS.deleted_at.is_(None),
        platform_id=platform_id,
        limit=AGENT_LIMIT,
        noun="agents",
    )
    key = new_id()
    await connection.execute(
        tables.agents.insert().values(
            id=key,
            platform_id=platform_id,
            customer_id=customer_id,
            name=name,
            is_paused=False,
            policy=policy_document.stored(policy),
            created_at=at,
            updated_at=at,
        )
    )
    created = await get(connection, platform_id=platform_id, agent_id=key, at=at)
    assert created is not None
    return created


async def get(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id, at: datetime
) -> AgentResource | None:
    """Return the platform's agent with its usage at `at`, or None when it has no such agent."""
    row = await read_row(connection, platform_id=platform_id, agent_id=agent_id)
    return None if row is None else _render(row, await usage.of_agent(connection, agent_id, at), at)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: AgentFilters,
    wanted: paging.Wanted,
    at: datetime,
) -> paging.Page[AgentResource]:
    """Return one page of the platform's agents, each with its usage at `at`."""
    rows = await paging.read(
        connection,
        _SHOWN,
        table=tables.agents,
        matching=_matching(platform_id, filters),
        wanted=wanted,
        item=lambda row: row,
    )
    used = await usage.of_agents(connection, [row.id for row in rows.items], at)
    return paging.Page(
        items=[_render(row, used[row.id], at) for row in rows.items],
        last=rows.last,
        total_count=rows.total_count,
    )


async def change(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    changes: Mapping[str, Any],
    granted_by: Collection[Permission],
    at: datetime,
) -> AgentResource | None:
    """Change an agent's name or pause it; None when the platform has no such agent.

    Resuming gives the agent its permissions again, so it needs them.
    Raises: GrantExceededError.
    """
    if changes.get("is_paused") is False:
        before = await locked_row(connection, platform_id=platform_id, agent_id=agent_id)
        if before is None:
            return None
        grants.check(before.policy["permissions"], granted_by)
    return await _change(connection, platform_id, agent_id, changes, at)


async def _change(
    connection: AsyncConnection,
    platform_id: Id,
    agent_id: Id,
    changes: Mapping[str, Any],
    at: datetime,
) -> AgentResource | None:
    await connection.execute(
        update(tables.agents).where(*_live(platform_id, agent_id)).values(**changes, updated_at=at)
    )
    return await get(connection, platform_id=platform_id, agent_id=agent_id, at=at)


async def change_policy(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    changes: Mapping[str, Any],
    granted_by: Collection[Permission],
    at: datetime,
) -> AgentResource | None:
    """Change parts of an agent's policy; None when the platform has no such agent.

    Raises: AgentRefusedError, GrantExceededError.
    """
    before = await locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    if before is None:
        return None
    policy = policy_document.changed_policy(before.policy, changes)
    grants.check(policy.permissions, granted_by)
    await _check_policy(connection, platform_id, before.customer_id, policy)
    stored = {"policy": policy_document.stored(policy)}
    return await _change(connection, platform_id, agent_id, stored, at)


async def connect(
    connection: AsyncConnection, *, agent_id: Id, token_hash: bytes, at: datetime
) -> None:
    """Set the access token of an agent, which the caller has locked and which has none."""
    await connection.execute(
        update(tables.agents)
        .where(_AGENTS.id == agent_id)
        .values(access_token_hash=token_hash, updated_at=at)
    )


async def delete(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id, at: datetime
) -> bool:
    """Delete an agent and its access; its row is kept for its transfers.

    Returns whether there was such an agent.
    """
    return await _delete(connection, _live(platform_id, agent_id), at) == 1


async def delete_of_customer(connection: AsyncConnection, *, customer_id: Id, at: datetime) -> None:
    """Delete every agent of a customer, which the caller has locked to delete it."""
    matching = [_AGENTS.customer_id == customer_id, _AGENTS.deleted_at.is_(None)]
    await _delete(connection, matching, at)


async def _delete(
    connection: AsyncConnection, matching: Sequence[ColumnElement[bool]], at: datetime
) -> int:
    deleted = await connection.execute(
        update(tables.agents)
        .where(*matching)
        .values(access_token_hash=None, deleted_at=at, updated_at=at)
    )
    return deleted.rowcount


def _live(platform_id: Id, agent_id: Id) -> Sequence[ColumnElement[bool]]:
    return [
        _AGENTS.id == agent_id,
        _AGENTS.platform_id == platform_id,
        _AGENTS.deleted_at.is_(None),
    ]


def _matching(platform_id: Id, filters: AgentFilters) -> Sequence[ColumnElement[bool]]:
    since = {_AGENTS.created_at: filters.created_from, _AGENTS.updated_at: filters.updated_from}
    until = {_AGENTS.created_at: filters.created_to, _AGENTS.updated_at: filters.updated_to}
    matching = [_AGENTS.platform_id == platform_id, _AGENTS.deleted_at.is_(None)]
    matching += [column >= time for column, time in since.items() if time is not None]
    matching += [column <= time for column, time in until.items() if time is not None]
    if filters.customer_id is not None:
        customer = own(tables.customers, filters.customer_id, platform_id=platform_id)
        matching.append(_AGENTS.customer_id == customer)
    if filters.is_paused is not None:
        matching.append(_AGENTS.is_paused.is_(filters.is_paused))
    if filters.is_connected is not None:
        token = _AGENTS.access_token_hash
        matching.append(token.isnot(None) if filters.is_connected else token.is_(None))
    return matching


async def _lock_customer(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Lock the customer, so that it is not deleted while an agent of it is created."""
    columns = tables.customers.c
    locked_id = await connection.scalar(
        select(columns.id)
        .where(columns.id == customer_id, columns.platform_id == platform_id, ~columns.is_deleted)
        .with_for_update(read=True)
    )
    if locked_id is None:
        field = FieldError(field="customerId", message="is not a customer of this platform")
        raise AgentRefusedError(AgentRefusal.CUSTOMER, field)


async def _check_policy(
    connection: AsyncConnection, platform_id: Id, customer_id: Id, policy: AgentPolicy
) -> None:
    """Raise AgentRefusedError for currencies or accounts that platform or customer do not have."""
    currency = policy.spending_limits.currency
    supported = (await platforms.get(connection, platform_id)).supported_currencies
    if currency not in supported:
        message = f"is {currency}; this platform supports {', '.join(supported)}"
        field = FieldError(field="spendingLimits.currency", message=message)
        raise AgentRefusedError(AgentRefusal.CURRENCY, field)
    named = dict(policy_document.accounts_in(policy.account_restrictions))
    columns = tables.internal_accounts.c
    known = await connection.scalars(
        select(columns.id).where(
            columns.customer_id == customer_id,
            columns.platform_id == platform_id,
            columns.id.in_(named.values()),
        )
    )
    known_ids = set(known) if named else set()
    message = "is not an internal account of the agent's customer"
    unknown = [
        FieldError(field=f"accountRestrictions.{path}", message=message)
        for path, account_id in named.items()
        if account_id not in known_ids
    ]
    if unknown:
        raise AgentRefusedError(AgentRefusal.POLICY, *unknown)


def _agent(row: Row[*tuple[Any, ...]]) -> Agent:
    return Agent(
        id=row.id,
        name=row.name,
        platform_id=row.platform_id,
        customer_id=row.customer_id,
        is_paused=row.is_paused,
        policy=policy_document.policy_of(AgentPolicy.model_validate(row.policy)),
    )


def _render(row: Row[*tuple[Any, ...]], used: Usage, at: datetime) -> AgentResource:
    day = at.astimezone(UTC).date()
    return AgentResource(
        id=row.id,
        name=row.name,
        customer_id=row.customer_id,
        is_paused=row.is_paused,
        is_connected=row.is_connected,
        policy=row.policy,
        usage=AgentUsage(
            daily_transaction_count=used.daily_count,
            daily_spend=used.daily_spend,
            daily_reset_date=day,
            monthly_spend=used.monthly_spend,
            monthly_reset_month=f"{day:%Y-%m}",
        ),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
