"""What agents ask for: transfers that happen at once, wait for an approval, or are refused.

An action is judged while its agent is locked, so that what two requests spend together is seen by
the second. An action and its transfer have one key, and how it stands is told by the transfer
alone: there is no second status that could disagree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import policy as agent_policy
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.policy import (
    AgentPermission,
    ExecutionMode,
    RefusalReason,
    Spend,
    judge,
)
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.core.transfer import FailureReason
from cardledger.ledger.messaging import inbox, outbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import TRANSFERS, Transfer
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import (
    ActionStatus,
    ActionType,
    AgentActionResource,
    TransferDetails,
)
from cardledger.schema.wire.common import Response
from cardledger.schema.wire.webhooks.envelope import WebhookType

SOURCE: Final = "transfers"
"""Who sends the message that carries a transfer out; its reference is the transfer."""

_ACTION: Final = tables.agent_actions.c
_TRANSFER: Final = tables.transfers.c

_SHOWN: Final = TRANSFERS.with_only_columns(
    _ACTION.id.label("action_id"),
    *TRANSFERS.selected_columns,
    _ACTION.type,
    _ACTION.rejection_reason,
).join(tables.agent_actions, _ACTION.id == _TRANSFER.id)
"""A key for paging, a transfer with its customer's name, and what the action adds."""


class Refusal(Enum):
    """Why nothing is asked for."""

    AGENT = auto()  # Paused, deleted or without the permission since it was let in.
    POLICY = auto()  # Not an account, a currency or an amount that its policy lets it spend.
    SAME_ACCOUNT = auto()  # From an account to itself.
    UNKNOWN_SOURCE = auto()  # Not an internal account of its customer.
    UNKNOWN_DESTINATION = auto()
    CURRENCY = auto()  # The two accounts have different ones.


class RefusedError(Exception):
    """Nothing was written; `reason` is the policy's, where it was the policy."""

    def __init__(
        self, refusal: Refusal, message: str, *, reason: RefusalReason | None = None
    ) -> None:
        super().__init__(message)
        self.refusal: Final = refusal
        self.reason: Final = reason


class NotPendingError(Exception):
    """Nobody waits for a decision about it: it stands at `status`."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the transaction is {status}")
        self.status: Final = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A transfer that an agent wants to make, in minor units of the accounts' currency."""

    type: ActionType
    source_account_id: Id
    destination_account_id: Id
    amount: int
    remittance_information: str | None = None
    purpose_of_payment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a platform says to an action that waits for it."""

    approve: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What actions have to match; None matches all, and times are included."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An action after something was decided; `message` is for the engine, None when it is not."""

    action: Action
    message: Message | None


# --- rules, pure -------------------------------------------------------------------------------


def status_of(transfer: Transfer) -> ActionStatus:
    """Return how the action stands that asked for `transfer`."""
    if transfer.status == transfers.PENDING:
        return "PENDING_APPROVAL"
    if transfer.failure_reason == FailureReason.REJECTED_BY_PLATFORM:
        return "REJECTED"
    return "FAILED" if transfer.status == transfers.FAILED else "APPROVED"


def render(action: Action) -> AgentActionResource:
    """Return `action` as every reader sees it."""
    transfer, status = action.transfer, status_of(action.transfer)
    assert transfer.agent_id is not None, "an action has an agent"
    return AgentActionResource(
        id=transfer.id,
        agent_id=transfer.agent_id,
        customer_id=transfer.customer_id,
        platform_customer_id=transfer.platform_customer_id,
        status=status,
        type=action.type,
        transfer_details=TransferDetails(
            amount=transfer.amount,
            currency=transfer.currency,
            source_account_id=transfer.source_account_id,
            destination_account_id=transfer.destination_account_id,
        ),
        transaction=transfers.outgoing(transfer) if status in {"APPROVED", "FAILED"} else None,
        rejection_reason=action.rejection_reason,
        created_at=transfer.created_at,
        updated_at=transfer.updated_at,
    )


def judged(
    agent: Agent, used: agent_policy.Usage, transfer: Transfer
) -> ExecutionMode | agent_policy.Refusal:
    """Return how `transfer` happens by the policy of `agent`, or why it does not.

    Money is spent from the source; the destination, too, has to be an account that it may use.
    """
    policy = agent.policy
    if policy.allows_account(transfer.source_account_id) and not policy.allows_account(
        transfer.destination_account_id
    ):
        message = "this agent may not use the destination; use one of allowedAccountIds"
        return agent_policy.Refusal(reason=RefusalReason.ACCOUNT_NOT_ALLOWED, message=message)
    spend = Spend(
        amount=transfer.amount,
        currency=transfer.currency,
        account_id=transfer.source_account_id,
    )
    return judge(policy, used, spend)


def _objection(
    agent: Agent | None, used: agent_policy.Usage, transfer: Transfer
) -> FailureReason | None:
    """Return why `transfer`, which its platform has approved, cannot be made all the same."""
    if agent is None or agent.is_paused or not agent.policy.allows(_PERMISSION):
        return FailureReason.AGENT_NOT_ALLOWED
    found = judged(agent, used, transfer)
    if not isinstance(found, agent_policy.Refusal):
        return None
    if found.reason in {RefusalReason.ACCOUNT_NOT_ALLOWED, RefusalReason.CURRENCY_NOT_ALLOWED}:
        return FailureReason.AGENT_NOT_ALLOWED
    return FailureReason.LIMIT_EXCEEDED


_PERMISSION: Final = AgentPermission.CREATE_TRANSFERS


# --- asking and deciding -----------------------------------------------------------------------


async def request(  # noqa: PLR0913 - who, what, and how to tell
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    wanted: Wanted,
    reply_to: str | None,
    at: datetime,
) -> Written:
    """Ask for a transfer: it is on its way, or waits for an approval, once the caller commits.

    Raises: RefusedError; then nothing has been written.
    """
    if wanted.source_account_id == wanted.destination_account_id:
        message = "an account cannot pay itself; name two different accounts"
        raise RefusedError(Refusal.SAME_ACCOUNT, message)
    agent = await agents.locked(connection, platform_id=platform_id, agent_id=agent_id)
    if agent is None or agent.is_paused or not agent.policy.allows(_PERMISSION):
        raise RefusedError(Refusal.AGENT, "this agent may make no transfers any more")
    transfer = await draft_transfer(connection, agent, wanted, at)
    mode = judged(agent, await agents.usage(connection, agent_id, at), transfer)
    if isinstance(mode, agent_policy.Refusal):
        raise RefusedError(Refusal.POLICY, mode.message, reason=mode.reason)
    if mode is ExecutionMode.AUTO:
        transfer = transfer.processing(at=at)
    action = Action(transfer=transfer, type=wanted.type, rejection_reason=None)
    await _insert(connection, action)
    await _tell_payment(connection, transfer, at)
    if mode is ExecutionMode.AUTO:
        return Written(action=action, message=await _send(connection, transfer, reply_to, at))
    kind = WebhookType.AGENT_ACTION_PENDING_APPROVAL
    await _tell(connection, kind, transfer, render(action), at)
    return Written(action=action, message=None)


async def decide(  # noqa: PLR0913 - which, what, and how to tell
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    decision: Decision,
    reply_to: str | None,
    at: datetime,
    agent_id: Id | None = None,
) -> Written | None:
    """Decide about an action that waits for it, once and for all; of two, one comes too late.

    An approval is judged by the policy of this moment. What is not possible any more fails, which
    is an answer and no error. None when the platform, or the agent if one is named, has no such
    action.
    Raises: NotPendingError; then nothing has been written.
    """
    before = await get(
        connection, platform_id=platform_id, transaction_id=transaction_id, agent_id=agent_id
    )
    if before is None:
        return None
    asked_by = before.transfer.agent_id
    assert asked_by is not None, "an action has an agent"
    # In this order, as a request locks: the agent, then what it asked for.
    agent = await agents.locked(connection, platform_id=platform_id, agent_id=asked_by)
    await _lock(connection, before.transfer)
    if not decision.approve:
        refused = before.transfer.failed(FailureReason.REJECTED_BY_PLATFORM, at=at)
        await _note_rejection(connection, transaction_id, decision.reason)
        action = Action(transfer=refused, type=before.type, rejection_reason=decision.reason)
        await _update(connection, action.transfer, at)
        return Written(action=action, message=None)
    # It counts for the day on which it was asked for, and not against itself.
    used = await agents.usage(
        connection, asked_by, before.transfer.created_at, without=transaction_id
    )
    objection = _objection(agent, used, before.transfer)
    after = (
        before.transfer.failed(objection, at=at) if objection else before.transfer.processing(at=at)
    )
    await _update(connection, after, at)
    action = Action(transfer=after, type=before.type, rejection_reason=None)
    message = None if objection else await _send(connection, after, reply_to, at)
    return Written(action=action, message=message)


async def draft_transfer(
    connection: AsyncConnection, agent: Agent, wanted: Wanted, at: datetime
) -> Transfer:
    """Return the transfer as it would be, waiting.

    Raises: RefusedError when its accounts are not two of the customer's in one currency.
    """
    account, customer = tables.internal_accounts.c, tables.customers.c
    rows = await connection.execute(
        select(account.id, account.currency, customer.platform_customer_id)
        .join_from(tables.internal_accounts, tables.customers, customer.id == account.customer_id)
        .where(
            account.id.in_([wanted.source_account_id, wanted.destination_account_id]),
            account.customer_id == agent.customer_id,
            account.platform_id == agent.platform_id,
        )
    )
    found = {row.id: row for row in rows.all()}
    source = found.get(wanted.source_account_id)
    destination = found.get(wanted.destination_account_id)
    if source is None:
        raise RefusedError(Refusal.UNKNOWN_SOURCE, "there is no such source account")
    if destination is None:
        raise RefusedError(Refusal.UNKNOWN_DESTINATION, "there is no such destination account")
    if source.currency != destination.currency:
        message = (
            f"the source is in {source.currency}, the destination in {destination.currency};"
            " name two accounts of one currency"
        )
        raise RefusedError(Refusal.CURRENCY, message)
    return Transfer(
        id=new_id(),
        customer_id=agent.customer_id,
        platform_id=agent.platform_id,
        source_account_id=wanted.source_account_id,
        destination_account_id=wanted.destination_account_id,
        amount=wanted.amount,
        currency=source.currency,
        status=transfers.PENDING,
        failure_reason=None,
        agent_id=agent.id,
        remittance_information=wanted.remittance_information,
        purpose_of_payment=wanted.purpose_of_payment,
        created_at=at,
        settled_at=None,
        updated_at=at,
        platform_customer_id=source.platform_customer_id,
    )


async def _lock(connection: AsyncConnection, transfer: Transfer) -> None:
    """Let nobody else decide about `transfer`, which waits for a decision.

    Raises: NotPendingError.
    """
    status = await transfers.lock_status(connection, transfer)
    if status != transfers.PENDING:
        raise NotPendingError(str(status))


async def _insert(connection: AsyncConnection, action: Action) -> None:
    transfer = action.transfer
    await connection.execute(transfers.insert(transfer))
    await connection.execute(
        tables.agent_actions.insert().values(
            id=transfer.id,
            agent_id=transfer.agent_id,
            customer_id=transfer.customer_id,
            platform_id=transfer.platform_id,
            type=action.type,
            created_at=transfer.created_at,
        )
    )


async def _update(connection: AsyncConnection, transfer: Transfer, at: datetime) -> None:
    """Write where `transfer`, which is locked and waits, has come to, and tell of it."""
    await connection.execute(transfers.decide(transfer))
    await _tell_payment(connection, transfer, at)


async def _note_rejection(connection: AsyncConnection, action_id: Id, reason: str | None) -> None:
    if reason is not None:
        await connection.execute(
            tables.agent_actions.update()
            .where(_ACTION.id == action_id)
            .values(rejection_reason=reason)
        )


async def _send(
    connection: AsyncConnection, transfer: Transfer, reply_to: str | None, at: datetime
) -> Message:
    """Put the message that carries `transfer` out into the inbox, in the caller's commit."""
    body = {
        "type": inbox.TRANSFER,
        "source": SOURCE,
        "reference": str(transfer.id),
        "transferId": str(transfer.id),
    }
    owner = Owner(transfer.customer_id, transfer.platform_id)
    message = inbox.address(body, owner, lane=Lane.LIVE, reply_to=reply_to, at=at)
    await inbox.accept_async(await driver_async(connection), [message])
    return message


async def _tell_payment(connection: AsyncConnection, transfer: Transfer, at: datetime) -> None:
    resource = transfers.outgoing(transfer)
    await _tell(connection, transfers.webhook_type(transfer), transfer, resource, at)


async def _tell(
    connection: AsyncConnection,
    kind: WebhookType,
    transfer: Transfer,
    data: Response,
    at: datetime,
) -> None:
    await connection.execute(
        outbox.insert(
            type=kind,
            subject_id=transfer.id,
            customer_id=transfer.customer_id,
            platform_id=transfer.platform_id,
            data=data.wire(),
            at=at,
        )
    )


# --- reading -----------------------------------------------------------------------------------


async def get(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    agent_id: Id | None = None,
) -> Action | None:
    """Return an action of the platform, and of the agent if one is named; None: no such."""
    matching = [_ACTION.id == transaction_id, _ACTION.platform_id == platform_id]
    if agent_id is not None:
        matching.append(_ACTION.agent_id == agent_id)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _action(row)


async def of_agent(
    connection: AsyncConnection, agent: Agent, *, filters: Filters, wanted: paging.Wanted
) -> paging.Page[AgentActionResource]:
    """Return one page of what `agent` has asked for."""
    matching = [_ACTION.agent_id == agent.id, _ACTION.platform_id == agent.platform_id]
    if filters.status is not None:
        standing = select(_TRANSFER.id).where(
            _TRANSFER.customer_id == agent.customer_id,
            _TRANSFER.agent_id == agent.id,
            *_STANDING[filters.status],
        )
        matching.append(_ACTION.id.in_(standing))
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.agent_actions,
        matching=matching,
        wanted=wanted,
        item=_rendered,
    )


async def waiting(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
) -> paging.Page[AgentActionResource]:
    """Return one page of the platform's actions that wait for its approval."""
    matching = [_TRANSFER.platform_id == platform_id, *_STANDING["PENDING_APPROVAL"]]
    if filters.agent_id is not None:
        matching.append(_TRANSFER.agent_id == filters.agent_id)
    if filters.customer_id is not None:
        matching.append(_TRANSFER.customer_id == filters.customer_id)
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


_STANDING: Final[dict[ActionStatus, Sequence[ColumnElement[bool]]]] = {
    # Spelt out, not a parameter: the index of what waits is for this value alone.
    "PENDING_APPROVAL": [
        _TRANSFER.status == literal_column(f"'{transfers.PENDING}'"),
        _TRANSFER.agent_id.isnot(None),
    ],
    "APPROVED": [_TRANSFER.status.in_([transfers.PROCESSING, transfers.COMPLETED])],
    "REJECTED": [_TRANSFER.failure_reason == FailureReason.REJECTED_BY_PLATFORM.value],
    "FAILED": [
        _TRANSFER.status == transfers.FAILED,
        _TRANSFER.failure_reason != FailureReason.REJECTED_BY_PLATFORM.value,
    ],
}
"""What `status_of` says, as conditions."""


def _action(row: Row[*tuple[Any, ...]]) -> Action:
    _key, *transfer, kind, rejection_reason = row
    return Action(
        transfer=transfers.transfer_from_row(transfer), type=kind, rejection_reason=rejection_reason
    )


def _rendered(row: Row[*tuple[Any, ...]]) -> AgentActionResource:
    return render(_action(row))
