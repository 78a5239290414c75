"""Agents: programs that act for one customer, within a policy, with a token of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Row, Select, func, select, type_coerce, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents.policy import (
    AccountRestrictions,
    AccountRule,
    AgentPermission,
    ApprovalThreshold,
    ExecutionMode,
    Policy,
    SpendingLimits,
    Usage,
)
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents import agents as wire
from cardledger.schema.wire.agents.agents import AgentPolicy, AgentResource, AgentUsage
from cardledger.schema.wire.errors import FieldError, field_errors

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
"""Everything but the hash of the token."""


class AgentRefusal(Enum):
    """Why an agent or its policy cannot be as it is asked for."""

    CUSTOMER = auto()  # Nobody to act for.
    POLICY = auto()  # The policy does not go together, or with the customer's accounts.
    CURRENCY = auto()  # The platform's books do not have the currency of the limits.


class AgentRefusedError(Exception):
    """Nothing was written; `errors` name what to change, in a policy from its top."""

    def __init__(self, refusal: AgentRefusal, *errors: FieldError) -> None:
        super().__init__(refusal.name)
        self.refusal: Final = refusal
        self.errors: Final[Sequence[FieldError]] = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent as rules see it: for whom it acts, and what it may do."""

    id: Id
    name: str
    platform_id: Id
    customer_id: Id
    is_paused: bool
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilters:
    """What agents have to match; None matches all, and times are included."""

    customer_id: Id | None = None
    is_paused: bool | None = None
    is_connected: bool | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None


# --- rules, pure -------------------------------------------------------------------------------


def policy_of(said: AgentPolicy) -> Policy:
    """Return the policy that was `said`, as it is judged by."""
    limits = said.spending_limits
    return Policy(
        permissions=frozenset(map(AgentPermission, said.permissions)),
        default_execution_mode=ExecutionMode(said.default_execution_mode),
        spending_limits=SpendingLimits(
            currency=limits.currency,
            per_transaction=limits.per_transaction_limit,
            daily=limits.daily_limit,
            daily_count=limits.daily_transaction_limit,
            monthly=limits.monthly_limit,
        ),
        account_restrictions=_restrictions(said.account_restrictions),
        approval_threshold=_threshold(said.approval_thresholds),
    )


def _threshold(said: wire.ApprovalThresholds | None) -> ApprovalThreshold | None:
    if said is None or said.currency is None or said.amount is None:
        return None
    return ApprovalThreshold(currency=said.currency, amount=said.amount)


def _restrictions(said: wire.AccountRestrictions | None) -> AccountRestrictions:
    if said is None:
        return AccountRestrictions()
    allowed = said.allowed_account_ids
    return AccountRestrictions(
        allowed_account_ids=None if allowed is None else frozenset(allowed),
        rules={
            rule.account_id: AccountRule(
                execution_mode=None
                if rule.execution_mode is None
                else ExecutionMode(rule.execution_mode),
                per_transaction=rule.per_transaction_limit,
            )
            for rule in said.account_rules or ()
        },
    )


def changed_policy(before: Mapping[str, Any], changes: Mapping[str, Any]) -> AgentPolicy:
    """Return the policy `before` with `changes`, both as the interface writes them.

    What a part does not name stays; a list replaces the whole list; None takes away.
    Raises: AgentRefusedError when what comes out is no policy.
    """
    _check_units(before, changes)
    merged = {**before, **{name: _merged(before.get(name), said) for name, said in changes.items()}}
    try:
        return AgentPolicy.model_validate(_without_none(merged))
    except ValidationError as error:
        complaints = error.errors(include_url=False, include_input=False)
        raise AgentRefusedError(AgentRefusal.POLICY, *field_errors(complaints)) from None


def _merged(before: Any, said: Any) -> Any:  # noqa: ANN401 - parts of a policy
    if isinstance(said, dict):
        return _without_none({**(before or {}), **said})
    return said


def _without_none(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


_AMOUNTS: Final = ("perTransactionLimit", "dailyLimit", "monthlyLimit")


def _check_units(before: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """See to it that a new currency does not give the numbers that stay another meaning."""
    limits, said = before["spendingLimits"], changes.get("spendingLimits", {})
    if said.get("currency", limits["currency"]) == limits["currency"]:
        return
    stay = [name for name in _AMOUNTS if name in limits and name not in said]
    if stay:
        message = f"changes what {', '.join(stay)} would mean; send those with it"
        field = FieldError(field="spendingLimits.currency", message=message)
        raise AgentRefusedError(AgentRefusal.POLICY, field)


# --- who calls ---------------------------------------------------------------------------------


async def authenticate_hash(connection: AsyncConnection, presented: bytes) -> Agent | None:
    """Return the agent whose access token has the hash `presented`, else None.

    None, too, once the agent or its customer is deleted. What comes back is as it is now: nothing
    is remembered, so a pause or another policy counts from the next request on.
    """
    customer = tables.customers.c
    rows = await connection.execute(
        _SHOWN.join(tables.customers, customer.id == _AGENTS.customer_id).where(
            _AGENTS.access_token_hash == presented,
            _AGENTS.deleted_at.is_(None),
            ~customer.is_deleted,
        )
    )
    row = rows.one_or_none()
    return None if row is None else _agent(row)


async def locked(connection: AsyncConnection, *, platform_id: Id, agent_id: Id) -> Agent | None:
    """Return the platform's agent and let nobody else change it until the end; None: no such.

    Whoever spends for an agent holds this lock from the look at its usage to the commit.
    """
    # Its customer first, as whoever deletes a customer locks it before its agents.
    customer = tables.customers.c
    there = await connection.scalar(
        select(customer.id)
        .join(tables.agents, _AGENTS.customer_id == customer.id)
        .where(*_mine(platform_id, agent_id), ~customer.is_deleted)
        .with_for_update(read=True, key_share=True, of=tables.customers)
    )
    if there is None:
        return None
    row = await locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    return None if row is None else _agent(row)


async def locked_row(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Do as `locked` does, with the columns."""
    rows = await connection.execute(_SHOWN.where(*_mine(platform_id, agent_id)).with_for_update())
    return rows.one_or_none()


async def usage(
    connection: AsyncConnection, agent_id: Id, at: datetime, *, without: Id | None = None
) -> Usage:
    """Return what the agent has spent in the day and the month of `at` (UTC).

    What waits for an approval counts, what failed or was rejected does not, nor does the transfer
    `without`.
    """
    return (await usages(connection, [agent_id], at, without=without))[agent_id]


async def usages(
    connection: AsyncConnection,
    agent_ids: Sequence[Id],
    at: datetime,
    *,
    without: Id | None = None,
) -> dict[Id, Usage]:
    """Do as `usage` does, for many agents in one round trip."""
    today = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = today + timedelta(days=1)
    this_month = today.replace(day=1)
    next_month = (this_month + timedelta(days=31)).replace(day=1)
    transfer = tables.transfers.c
    is_today = (transfer.created_at >= today) & (transfer.created_at < tomorrow)
    # The limits are in one currency; what was spent before they were in it cannot be measured.
    is_measured = transfer.currency == type_coerce(_AGENTS.policy, JSONB)[_LIMITS_CURRENCY].astext
    spent = (
        select(
            transfer.agent_id,
            func.count().filter(is_today).label("count"),
            func.coalesce(func.sum(transfer.amount).filter(is_today & is_measured), 0).label("day"),
            func.coalesce(func.sum(transfer.amount).filter(is_measured), 0).label("month"),
        )
        .join_from(tables.transfers, tables.agents, _AGENTS.id == transfer.agent_id)
        .where(
            transfer.agent_id.in_(agent_ids),
            transfer.created_at >= this_month,
            transfer.created_at < next_month,
            transfer.status != "FAILED",
        )
        .group_by(transfer.agent_id)
    )
    if without is not None:
        spent = spent.where(transfer.id != without)
    used = {
        agent_id: Usage(daily_count=number, daily_spend=int(day), monthly_spend=int(month))
        for agent_id, number, day, month in (await connection.execute(spent)).all()
    }
    return {agent_id: used.get(agent_id, Usage()) for agent_id in agent_ids}


_LIMITS_CURRENCY: Final = ("spendingLimits", "currency")


# --- the record --------------------------------------------------------------------------------


async def create(  # noqa: PLR0913 - a row, by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    name: str,
    policy: AgentPolicy,
    at: datetime,
) -> AgentResource:
    """Make an agent for a customer; nothing can be done as it before a code of it is redeemed.

    Raises: AgentRefusedError.
    """
    await _lock_customer(connection, platform_id, customer_id)
    await _check_policy(connection, platform_id, customer_id, policy)
    key = new_id()
    await connection.execute(
        tables.agents.insert().values(
            id=key,
            platform_id=platform_id,
            customer_id=customer_id,
            name=name,
            is_paused=False,
            policy=_kept(policy),
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
    rows = await connection.execute(_SHOWN.where(*_mine(platform_id, agent_id)))
    row = rows.one_or_none()
    return None if row is None else _render(row, await usage(connection, agent_id, at), at)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: AgentFilters,
    wanted: paging.Wanted,
    at: datetime,
) -> paging.Page[AgentResource]:
    """Return one page of the platform's agents, each with its usage at `at`."""
    found = await paging.read(
        connection,
        _SHOWN,
        table=tables.agents,
        matching=_matching(platform_id, filters),
        wanted=wanted,
        item=lambda row: row,
    )
    used = await usages(connection, [row.id for row in found.items], at)
    return paging.Page(
        items=[_render(row, used[row.id], at) for row in found.items],
        last=found.last,
        total_count=found.total_count,
    )


async def change(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    changes: Mapping[str, Any],
    at: datetime,
) -> AgentResource | None:
    """Change an agent's name or pause it; None when the platform has no such agent."""
    await connection.execute(
        update(tables.agents).where(*_mine(platform_id, agent_id)).values(**changes, updated_at=at)
    )
    return await get(connection, platform_id=platform_id, agent_id=agent_id, at=at)


async def change_policy(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    changes: Mapping[str, Any],
    at: datetime,
) -> AgentResource | None:
    """Change parts of an agent's policy; None when the platform has no such agent.

    Raises: AgentRefusedError.
    """
    before = await locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    if before is None:
        return None
    policy = changed_policy(before.policy, changes)
    await _check_policy(connection, platform_id, before.customer_id, policy)
    return await change(
        connection,
        platform_id=platform_id,
        agent_id=agent_id,
        changes={"policy": _kept(policy)},
        at=at,
    )


async def connect(
    connection: AsyncConnection, *, agent_id: Id, token_hash: bytes, at: datetime
) -> None:
    """Let in whoever presents the token of `token_hash`; the agent is locked, and not connected."""
    await connection.execute(
        update(tables.agents)
        .where(_AGENTS.id == agent_id)
        .values(access_token_hash=token_hash, updated_at=at)
    )


async def delete(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id, at: datetime
) -> bool:
    """Take an agent's access away for ever; the row stays for what it did.

    Returns whether there was one.
    """
    return await _delete(connection, _mine(platform_id, agent_id), at) == 1


async def delete_of_customer(connection: AsyncConnection, *, customer_id: Id, at: datetime) -> None:
    """Delete every agent of a customer, which is deleted itself and locked."""
    mine = [_AGENTS.customer_id == customer_id, _AGENTS.deleted_at.is_(None)]
    await _delete(connection, mine, at)


async def _delete(
    connection: AsyncConnection, matching: Sequence[ColumnElement[bool]], at: datetime
) -> int:
    gone = await connection.execute(
        update(tables.agents)
        .where(*matching)
        .values(access_token_hash=None, deleted_at=at, updated_at=at)
    )
    return gone.rowcount


def _mine(platform_id: Id, agent_id: Id) -> Sequence[ColumnElement[bool]]:
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
        matching.append(_AGENTS.customer_id == filters.customer_id)
    if filters.is_paused is not None:
        matching.append(_AGENTS.is_paused.is_(filters.is_paused))
    if filters.is_connected is not None:
        token = _AGENTS.access_token_hash
        matching.append(token.isnot(None) if filters.is_connected else token.is_(None))
    return matching


async def _lock_customer(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Keep the customer from being deleted while an agent of it comes in."""
    columns = tables.customers.c
    found = await connection.scalar(
        select(columns.id)
        .where(columns.id == customer_id, columns.platform_id == platform_id, ~columns.is_deleted)
        .with_for_update(read=True)
    )
    if found is None:
        field = FieldError(field="customerId", message="is not a customer of this platform")
        raise AgentRefusedError(AgentRefusal.CUSTOMER, field)


async def _check_policy(
    connection: AsyncConnection, platform_id: Id, customer_id: Id, policy: AgentPolicy
) -> None:
    """See to it that `policy` speaks of the platform's currencies and the customer's accounts.

    Raises: AgentRefusedError.
    """
    currency = policy.spending_limits.currency
    supported = (await platforms.get(connection, platform_id)).supported_currencies
    if currency not in supported:
        message = f"is {currency}; this platform has {', '.join(supported)}"
        field = FieldError(field="spendingLimits.currency", message=message)
        raise AgentRefusedError(AgentRefusal.CURRENCY, field)
    named = dict(_accounts_in(policy.account_restrictions))
    columns = tables.internal_accounts.c
    known = await connection.scalars(
        select(columns.id).where(
            columns.customer_id == customer_id,
            columns.platform_id == platform_id,
            columns.id.in_(named.values()),
        )
    )
    there = set(known) if named else set()
    message = "is not an internal account of the agent's customer"
    strange = [
        FieldError(field=f"accountRestrictions.{place}", message=message)
        for place, account_id in named.items()
        if account_id not in there
    ]
    if strange:
        raise AgentRefusedError(AgentRefusal.POLICY, *strange)


def _accounts_in(said: wire.AccountRestrictions | None) -> Sequence[tuple[str, Id]]:
    """Return every account that is named, with its place."""
    if said is None:
        return []
    allowed = enumerate(said.allowed_account_ids or ())
    rules = enumerate(said.account_rules or ())
    return [
        *((f"allowedAccountIds.{number}", account_id) for number, account_id in allowed),
        *((f"accountRules.{number}.accountId", rule.account_id) for number, rule in rules),
    ]


def _kept(policy: AgentPolicy) -> dict[str, Any]:
    return policy.model_dump(mode="json", by_alias=True, exclude_none=True)


def _agent(row: Row[*tuple[Any, ...]]) -> Agent:
    return Agent(
        id=row.id,
        name=row.name,
        platform_id=row.platform_id,
        customer_id=row.customer_id,
        is_paused=row.is_paused,
        policy=policy_of(AgentPolicy.model_validate(row.policy)),
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
