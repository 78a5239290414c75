"""Actions of agents as readers see them.

An action and its transfer have the same key. The status of an action is derived from its transfer
alone, so the two cannot contradict each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, literal_column, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.projections import payment_resources, transfers
from cardledger.ledger.projections.transfers import TRANSFERS, Transfer
from cardledger.ledger.quotes import resources as quote_resources
from cardledger.ledger.quotes.records import COLUMNS as QUOTE_COLUMNS
from cardledger.ledger.quotes.records import EXECUTED, Quote, Shown
from cardledger.ledger.quotes.records import from_row as quote_from_row
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import (
    ActionStatus,
    ActionType,
    AgentActionResource,
    TransferDetails,
)
from cardledger.schema.wire.exchange.quotes import QuoteResource

_ACTION: Final = tables.agent_actions.c
_TRANSFER: Final = tables.transfers.c

_SHOWN_COLUMNS: Final = TRANSFERS.with_only_columns(
    _ACTION.id.label("action_id"),
    *TRANSFERS.selected_columns,
    _ACTION.type,
    _ACTION.rejection_reason,
    *(tables.quotes.c[name] for name in QUOTE_COLUMNS),
)
_SHOWN: Final = _SHOWN_COLUMNS.join(tables.agent_actions, _ACTION.id == _TRANSFER.id).join(
    tables.quotes, tables.quotes.c.id == _TRANSFER.quote_id, isouter=True
)
"""The key for paging, the transfer with its customer's name, the columns of the action, and those
of its quote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFilters:
    """Filters of a list of actions; None matches all, and times are inclusive."""

    agent_id: Id | None = None
    customer_id: Id | None = None
    status: ActionStatus | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action and its transfer."""

    transfer: Transfer
    type: ActionType
    rejection_reason: str | None
    quote: Quote | None = None


def status_of(transfer: Transfer) -> ActionStatus:
    """Return the status of the action that requested `transfer`."""
    if transfer.awaits_approval:
        return "PENDING_APPROVAL"
    if transfer.failure_reason == FailureReason.REJECTED_BY_PLATFORM:
        return "REJECTED"
    return "FAILED" if transfer.status == transfers.FAILED else "APPROVED"


def render(action: Action) -> AgentActionResource:
    """Return `action` as a resource."""
    transfer, status = action.transfer, status_of(action.transfer)
    assert transfer.agent_id is not None, "an action has an agent"
    return AgentActionResource(
        id=transfer.id,
        agent_id=transfer.agent_id,
        customer_id=transfer.customer_id,
        platform_customer_id=transfer.platform_customer_id,
        status=status,
        type=action.type,
        quote=_quote(action),
        transfer_details=None if action.quote else _details(transfer),
        transaction=(
            payment_resources.resource(transfer) if status in {"APPROVED", "FAILED"} else None
        ),
        rejection_reason=action.rejection_reason,
        created_at=transfer.created_at,
        updated_at=transfer.updated_at,
    )


def _quote(action: Action) -> QuoteResource | None:
    if action.quote is None:
        return None
    shown = Shown(
        quote=replace(action.quote, status=EXECUTED),  # Reserved, at least.
        platform_customer_id=action.transfer.platform_customer_id,
        payment_status=action.transfer.status,
        awaits_approval=action.transfer.awaits_approval,
    )
    return quote_resources.render(shown, None, at=action.transfer.updated_at)


def _details(transfer: Transfer) -> TransferDetails:
    return TransferDetails(
        amount=transfer.amount,
        currency=transfer.currency,
        source_account_id=payment_resources.source_id(transfer),
        destination_account_id=payment_resources.destination_id(transfer),
    )


async def get(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    agent_id: Id | None = None,
) -> Action | None:
    """Return an action of the platform, and of `agent_id` if given; None: no such action."""
    matching = [_ACTION.id == transaction_id, _ACTION.platform_id == platform_id]
    if agent_id is not None:
        matching.append(_ACTION.agent_id == agent_id)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _action(row)


async def of_agent(
    connection: AsyncConnection, agent: Agent, *, filters: ActionFilters, wanted: paging.Wanted
) -> paging.Page[AgentActionResource]:
    """Return one page of the actions of `agent`."""
    matching = [_ACTION.agent_id == agent.id, _ACTION.platform_id == agent.platform_id]
    if filters.status is not None:
        with_status = select(_TRANSFER.id).where(
            _TRANSFER.customer_id == agent.customer_id,
            _TRANSFER.agent_id == agent.id,
            *_CONDITIONS[filters.status],
        )
        matching.append(_ACTION.id.in_(with_status))
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.agent_actions,
        matching=matching,
        wanted=wanted,
        item=_rendered,
    )


async def pending_approval(
    connection: AsyncConnection, *, platform_id: Id, filters: ActionFilters, wanted: paging.Wanted
) -> paging.Page[AgentActionResource]:
    """Return one page of the actions that wait for the platform's approval."""
    matching = [_TRANSFER.platform_id == platform_id, *_CONDITIONS["PENDING_APPROVAL"]]
    if filters.agent_id is not None:
        agent = own(tables.agents, filters.agent_id, platform_id=platform_id)
        matching.append(_TRANSFER.agent_id == agent)
    if filters.customer_id is not None:
        customer = own(tables.customers, filters.customer_id, platform_id=platform_id)
        matching.append(_TRANSFER.customer_id == customer)
    if filters.created_from is not None:
        matching.append(_TRANSFER.created_at >= filters.created_from)
    if filters.created_to is not None:
        matching.append(_TRANSFER.created_at <= filters.created_to)
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.transfers,
        matching=matching,
        wanted=wanted,
        item=_rendered,
    )


_CONDITIONS: Final[dict[ActionStatus, Sequence[ColumnElement[bool]]]] = {
    # A literal, not a parameter: the partial index of pending transfers needs the value itself.
    "PENDING_APPROVAL": [
        _TRANSFER.status == literal_column(f"'{transfers.PENDING}'"),
        _TRANSFER.requested_at.is_(None),
        _TRANSFER.agent_id.isnot(None),
    ],
    "APPROVED": [
        or_(
            _TRANSFER.status.in_([transfers.PROCESSING, transfers.COMPLETED]),
            _TRANSFER.requested_at.isnot(None) & (_TRANSFER.status == transfers.PENDING),
        )
    ],
    "REJECTED": [_TRANSFER.failure_reason == FailureReason.REJECTED_BY_PLATFORM.value],
    "FAILED": [
        _TRANSFER.status == transfers.FAILED,
        _TRANSFER.failure_reason != FailureReason.REJECTED_BY_PLATFORM.value,
    ],
}
"""`status_of` as SQL conditions."""


def _action(row: Row[*tuple[Any, ...]]) -> Action:
    _key, *columns = row
    of_action, of_quote = columns[: -len(QUOTE_COLUMNS)], columns[-len(QUOTE_COLUMNS) :]
    *transfer, kind, rejection_reason = of_action
    return Action(
        transfer=transfers.transfer_from_row(transfer),
        type=kind,
        rejection_reason=rejection_reason,
        quote=None if of_quote[0] is None else quote_from_row(of_quote),
    )


def _rendered(row: Row[*tuple[Any, ...]]) -> AgentActionResource:
    return render(_action(row))
