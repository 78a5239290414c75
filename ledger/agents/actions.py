"""Actions of agents: transfers that start at once, wait for approval, or are refused.

A policy is evaluated while its agent is locked, so that of two concurrent requests the second sees
what the first has spent.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents import usage
from cardledger.ledger.agents.action_queries import Action, get, render
from cardledger.ledger.agents.policy import (
    AgentPermission,
    ExecutionMode,
    PolicyRefusal,
    RefusalReason,
    Spend,
    Usage,
    evaluate_policy,
)
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.messaging import inbox, outbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.projections import payment_resources, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import ActionType
from cardledger.schema.wire.common import Response
from cardledger.schema.wire.webhooks.envelope import WebhookType

SOURCE: Final = "transfers"
"""Source of the inbox messages that execute transfers; their reference is the transfer's id."""

_ACTION: Final = tables.agent_actions.c
_TRANSFER: Final = tables.transfers.c


class ActionRefusal(Enum):
    """Why a transfer is not requested."""

    AGENT = auto()  # Paused, deleted or without the permission since authentication.
    POLICY = auto()  # An account, currency or amount that its policy does not allow.
    SAME_ACCOUNT = auto()  # From an account to itself.
    UNKNOWN_SOURCE = auto()  # Not an internal account of the agent's customer.
    UNKNOWN_DESTINATION = auto()
    CURRENCY = auto()  # The two accounts have different currencies.


class ActionRefusedError(Exception):
    """Nothing was written; `reason` only when the policy refuses."""

    def __init__(
        self, refusal: ActionRefusal, message: str, *, reason: RefusalReason | None = None
    ) -> None:
        super().__init__(message)
        self.refusal: Final = refusal
        self.reason: Final = reason


class NotPendingError(Exception):
    """The transaction does not wait for approval; its status is `status`."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the transaction is {status}")
        self.status: Final = status


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """A transfer to be requested; `amount` in minor units of the accounts' currency."""

    type: ActionType
    source_account_id: Id
    destination_account_id: Id
    amount: int
    remittance_information: str | None = None
    purpose_of_payment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A platform's decision about an action that waits for approval."""

    approve: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """A recorded action; `message` executes its transfer, None when it is not to be executed."""

    action: Action
    message: Message | None


# --- policy, pure ------------------------------------------------------------------------------


def evaluate_transfer(
    agent: Agent, used: Usage, transfer: Transfer
) -> ExecutionMode | PolicyRefusal:
    """Return how `transfer` is executed by the policy of `agent`, or why it is refused.

    The policy must allow both the source, from which money is spent, and the destination.
    """
    policy = agent.policy
    assert transfer.source_account_id is not None
    assert transfer.destination_account_id is not None
    if policy.allows_account(transfer.source_account_id) and not policy.allows_account(
        transfer.destination_account_id
    ):
        message = (
            "The agent's policy does not allow the destination account; use one of"
            " allowedAccountIds."
        )
        return PolicyRefusal(reason=RefusalReason.ACCOUNT_NOT_ALLOWED, message=message)
    spend = Spend(
        amount=transfer.amount,
        currency=transfer.currency,
        account_id=transfer.source_account_id,
    )
    return evaluate_policy(policy, used, spend)


def _objection(agent: Agent | None, used: Usage, transfer: Transfer) -> FailureReason | None:
    """Return why `transfer` fails although its platform has approved it; None: it does not."""
    if agent is None or agent.is_paused or not agent.policy.allows(_PERMISSION):
        return FailureReason.AGENT_NOT_ALLOWED
    evaluated = evaluate_transfer(agent, used, transfer)
    if not isinstance(evaluated, PolicyRefusal):
        return None
    if evaluated.reason in {RefusalReason.ACCOUNT_NOT_ALLOWED, RefusalReason.CURRENCY_NOT_ALLOWED}:
        return FailureReason.AGENT_NOT_ALLOWED
    return FailureReason.LIMIT_EXCEEDED


_PERMISSION: Final = AgentPermission.CREATE_TRANSFERS


# --- requests and decisions --------------------------------------------------------------------


async def request(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    wanted: TransferRequest,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
) -> RecordedAction:
    """Record a transfer: once the caller commits, it is executed or waits for approval.

    Raises: ActionRefusedError; nothing has been written.
    """
    if wanted.source_account_id == wanted.destination_account_id:
        message = "Source and destination are the same account; name two different accounts."
        raise ActionRefusedError(ActionRefusal.SAME_ACCOUNT, message)
    agent = await agents.locked(connection, platform_id=platform_id, agent_id=agent_id)
    if agent is None or agent.is_paused or not agent.policy.allows(_PERMISSION):
        raise ActionRefusedError(ActionRefusal.AGENT, "The agent may no longer make transfers.")
    transfer = await draft_transfer(connection, agent, wanted, at)
    mode = evaluate_transfer(agent, await usage.of_agent(connection, agent_id, at), transfer)
    if isinstance(mode, PolicyRefusal):
        raise ActionRefusedError(ActionRefusal.POLICY, mode.message, reason=mode.reason)
    if mode is ExecutionMode.AUTO:
        transfer = transfer.processing(at=at)
    action = Action(transfer=transfer, type=wanted.type, rejection_reason=None)
    await _insert(connection, action)
    await _publish_payment(connection, transfer, at)
    if mode is ExecutionMode.AUTO:
        execution = _execution(transfer, reply_to, at)
        await inbox.accept_async(await driver_async(connection), [execution], inbox_key)
        return RecordedAction(action=action, message=execution)
    webhook_type = WebhookType.AGENT_ACTION_PENDING_APPROVAL
    await _publish(connection, webhook_type, transfer, render(action), at)
    return RecordedAction(action=action, message=None)


async def resolve(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    decision: Decision,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
    agent_id: Id | None = None,
) -> RecordedAction | None:
    """Approve or reject an action that waits for approval; a decision is final.

    An approved transfer is evaluated by the agent's present policy. If it is not allowed any more,
    it fails, which is a result and not an error. None when the platform, or the agent if given, has
    no such action.
    Raises: NotPendingError; nothing has been written.
    """
    before = await get(
        connection, platform_id=platform_id, transaction_id=transaction_id, agent_id=agent_id
    )
    if before is None:
        return None
    requested_by = before.transfer.agent_id
    assert requested_by is not None, "an action has an agent"
    # In this order, as a request locks: the agent, then the transfer.
    agent = await agents.locked(connection, platform_id=platform_id, agent_id=requested_by)
    await _lock(connection, before.transfer)
    if not decision.approve:
        rejected = before.transfer.failed(FailureReason.REJECTED_BY_PLATFORM, at=at)
        await _record_rejection_reason(connection, transaction_id, decision.reason)
        action = Action(transfer=rejected, type=before.type, rejection_reason=decision.reason)
        await _update(connection, action.transfer, at)
        return RecordedAction(action=action, message=None)
    # The transfer counts for the day of its request, and not against itself.
    used = await usage.of_agent(
        connection, requested_by, before.transfer.created_at, without=transaction_id
    )
    objection = _objection(agent, used, before.transfer)
    after = (
        before.transfer.failed(objection, at=at) if objection else before.transfer.processing(at=at)
    )
    await _update(connection, after, at)
    action = Action(transfer=after, type=before.type, rejection_reason=None)
    if objection:
        return RecordedAction(action=action, message=None)
    message = _execution(after, reply_to, at)
    await inbox.accept_async(await driver_async(connection), [message], inbox_key)
    return RecordedAction(action=action, message=message)


async def draft_transfer(
    connection: AsyncConnection, agent: Agent, wanted: TransferRequest, at: datetime
) -> Transfer:
    """Return the requested transfer, PENDING and not recorded.

    Raises: ActionRefusedError unless its accounts are two of the customer's in one currency.
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
    account_by_id = {row.id: row for row in rows.all()}
    source = account_by_id.get(wanted.source_account_id)
    destination = account_by_id.get(wanted.destination_account_id)
    if source is None:
        raise ActionRefusedError(ActionRefusal.UNKNOWN_SOURCE, "Unknown source account.")
    if destination is None:
        raise ActionRefusedError(ActionRefusal.UNKNOWN_DESTINATION, "Unknown destination account.")
    if source.currency != destination.currency:
        message = (
            f"The source is in {source.currency}, the destination in {destination.currency};"
            " name two accounts of the same currency."
        )
        raise ActionRefusedError(ActionRefusal.CURRENCY, message)
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
    """Lock `transfer`, which waits for approval.

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
    """Record the status of `transfer`, which is locked, and write its webhook."""
    await connection.execute(transfers.decide(transfer))
    await _publish_payment(connection, transfer, at)


async def _record_rejection_reason(
    connection: AsyncConnection, action_id: Id, reason: str | None
) -> None:
    if reason is not None:
        await connection.execute(
            tables.agent_actions.update()
            .where(_ACTION.id == action_id)
            .values(rejection_reason=reason)
        )


def _execution(transfer: Transfer, reply_to: str | None, at: datetime) -> Message:
    """Return the message that executes `transfer`."""
    body = {
        "type": inbox.TRANSFER,
        "source": SOURCE,
        "reference": str(transfer.id),
        "transferId": str(transfer.id),
    }
    owner = Owner(transfer.customer_id, transfer.platform_id)
    return inbox.address(body, owner, lane=Lane.LIVE, reply_to=reply_to, at=at)


async def _publish_payment(connection: AsyncConnection, transfer: Transfer, at: datetime) -> None:
    resource = payment_resources.resource(transfer)
    await _publish(connection, payment_resources.webhook_type(transfer), transfer, resource, at)


async def _publish(
    connection: AsyncConnection,
    webhook_type: WebhookType,
    transfer: Transfer,
    data: Response,
    at: datetime,
) -> None:
    await connection.execute(
        outbox.insert(
            type=webhook_type,
            subject_id=transfer.id,
            customer_id=transfer.customer_id,
            platform_id=transfer.platform_id,
            data=data.wire(),
            at=at,
        )
    )
