"""What agents have spent, which their policies limit by day and by month (UTC)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import case, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents.policy import Usage
from cardledger.schema import tables
from cardledger.schema.ids import Id

_AGENTS: Final = tables.agents.c
_ACTION: Final = tables.agent_actions.c

_LIMITS_CURRENCY: Final = ("spendingLimits", "currency")


async def of_agent(
    connection: AsyncConnection, agent_id: Id, at: datetime, *, without: Id | None = None
) -> Usage:
    """Return what the agent has spent in the day and the month of `at` (UTC).

    Transfers that wait for approval count; failed and rejected ones and the transfer `without` do
    not.
    """
    return (await of_agents(connection, [agent_id], at, without=without))[agent_id]


async def of_agents(
    connection: AsyncConnection,
    agent_ids: Sequence[Id],
    at: datetime,
    *,
    without: Id | None = None,
) -> dict[Id, Usage]:
    """Return the usage of many agents, as `of_agent` does, in one round trip."""
    today = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = today + timedelta(days=1)
    this_month = today.replace(day=1)
    next_month = (this_month + timedelta(days=31)).replace(day=1)
    transfer = tables.transfers.c
    is_today = (transfer.created_at >= today) & (transfer.created_at < tomorrow)
    limits_currency = type_coerce(_AGENTS.policy, JSONB)[_LIMITS_CURRENCY].astext
    # What was spent in another currency counts as it was converted when it was requested. Transfers
    # from before the limits had their present currency cannot be compared with them.
    measured = case(
        (transfer.currency == limits_currency, transfer.amount),
        (_ACTION.measured_currency == limits_currency, _ACTION.measured_amount),
    )
    spent = (
        select(
            transfer.agent_id,
            func.count().filter(is_today).label("count"),
            func.coalesce(func.sum(measured).filter(is_today), 0).label("day"),
            func.coalesce(func.sum(measured), 0).label("month"),
        )
        .join_from(tables.transfers, tables.agents, _AGENTS.id == transfer.agent_id)
        .join(tables.agent_actions, _ACTION.id == transfer.id, isouter=True)
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
        agent_id: Usage(daily_count=count, daily_spend=int(day), monthly_spend=int(month))
        for agent_id, count, day, month in (await connection.execute(spent)).all()
    }
    return {agent_id: used.get(agent_id, Usage()) for agent_id in agent_ids}
