"""Actions of agents: transfers that start at once, wait for approval, or are refused.

A policy is evaluated while its agent is locked, so that of two concurrent requests the second sees
what the first has spent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

import structlog
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
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.payments.conversion import compared
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import Pair, Pricing
from cardledger.ledger.messaging import outbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments import drafts, parties, requests
from cardledger.ledger.payments.drafts import Wanted
from cardledger.ledger.projections import payment_resources, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.quotes import execution
from cardledger.ledger.quotes import records as quotes
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import ActionType
from cardledger.schema.wire.common import Response
from cardledger.schema.wire.webhooks.envelope import WebhookType

_log = structlog.get_logger()

_ACTION: Final = tables.agent_actions.c
_TRANSFER: Final = tables.transfers.c


class ActionRefusal(Enum):
    """Why the agent may not request a transfer; `drafts.Refusal` is why no caller may."""

    AGENT = auto()  # Paused, deleted or without the permission since authentication.
    POLICY = auto()  # An account, currency or amount that its policy does not allow.


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
class Decision:
    """A platform's decision about an action that waits for approval."""

    approve: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """A recorded action; `message` executes its transfer, None when it is not to be executed."""

    action: Action
    message: Message | None


_NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})


# --- policy, pure ------------------------------------------------------------------------------


def evaluate_transfer(
    agent: Agent, used: Usage, transfer: Transfer, elsewhere: Mapping[str, int] = _NOWHERE
) -> ExecutionMode | PolicyRefusal:
    """Return how `transfer` is executed by the policy of `agent`, or why it is refused.

    The policy must allow every internal account: the source, from which money is spent, and the
    destination. A collection from an external account is measured by the account that it credits.
    `elsewhere` has the amount in other currencies, for limits in those.
    """
    policy = agent.policy
    measured = (
        transfer.destination_account_id if transfer.is_incoming else transfer.source_account_id
    )
    assert measured is not None, "a transfer of an agent has an account of its customer"
    others = transfer.own_accounts - {measured}
    if policy.allows_account(measured) and not all(map(policy.allows_account, others)):
        message = (
            "The agent's policy does not allow the destination account; use one of"
            " allowedAccountIds."
        )
        return PolicyRefusal(reason=RefusalReason.ACCOUNT_NOT_ALLOWED, message=message)
    spend = Spend(
        amount=transfer.amount,
        currency=transfer.currency,
        account_id=measured,
        elsewhere=elsewhere,
    )
    return evaluate_policy(policy, used, spend)


def _objection(
    agent: Agent | None, used: Usage, action: Action, elsewhere: Mapping[str, int], at: datetime
) -> FailureReason | None:
    """Return why an action fails although its platform has approved it; None: it does not."""
    transfer, quote = action.transfer, action.quote
    needed = _PERMISSION if quote is None else AgentPermission.EXECUTE_QUOTES
    if agent is None or agent.is_paused or not agent.policy.allows(needed):
        return FailureReason.AGENT_NOT_ALLOWED
    if quote is not None and at >= quote.expires_at:
        return FailureReason.QUOTE_EXPIRED
    evaluated = evaluate_transfer(agent, used, transfer, elsewhere)
    if not isinstance(evaluated, PolicyRefusal):
        return None
    if evaluated.reason in {RefusalReason.ACCOUNT_NOT_ALLOWED, RefusalReason.CURRENCY_NOT_ALLOWED}:
        return FailureReason.AGENT_NOT_ALLOWED
    return FailureReason.LIMIT_EXCEEDED


_PERMISSION: Final = AgentPermission.CREATE_TRANSFERS


async def _elsewhere(
    connection: AsyncConnection, agent: Agent, transfer: Transfer, pricing: Pricing, at: datetime
) -> dict[str, int]:
    """Return what `transfer` spends in the other currencies of the agent's policy, rounded up."""
    policy = agent.policy
    threshold = policy.approval_threshold
    currencies = {policy.spending_limits.currency} | ({threshold.currency} if threshold else set())
    pairs = [Pair(transfer.currency, other) for other in currencies - {transfer.currency}]
    if not pairs:
        return {}
    known = await rates.read(
        connection, pairs, platform_id=agent.platform_id, pricing=pricing, at=at
    )
    found = {pair.destination: known.rate(*pair) for pair in pairs}
    return {
        other: compared(transfer.amount, rate)
        for other, rate in found.items()
        if rate is not None and compared(transfer.amount, rate) <= MAX_AMOUNT
    }


# --- requests and decisions --------------------------------------------------------------------


async def request(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    kind: ActionType,
    wanted: Wanted,
    pricing: Pricing,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
) -> RecordedAction:
    """Record a transfer: once the caller commits, it is executed or waits for approval.

    Raises: ActionRefusedError; RefusedError of the accounts; nothing has been written.
    """
    agent = await _permitted(connection, platform_id, agent_id, _PERMISSION)
    transfer = await draft_transfer(connection, agent, kind, wanted, at)
    return await _begin(
        connection,
        agent,
        Action(transfer=transfer, type=kind, rejection_reason=None),
        pricing=pricing,
        reply_to=reply_to,
        inbox_key=inbox_key,
        at=at,
    )


async def execute_quote(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    quote_id: Id,
    pricing: Pricing,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
) -> RecordedAction | None:
    """Execute a quote of the agent, or let it wait for approval: it is used up either way.

    None: the agent has no such quote.
    Raises: ActionRefusedError; QuoteRefusedError; nothing has been written.
    """
    agent = await _permitted(connection, platform_id, agent_id, AgentPermission.EXECUTE_QUOTES)
    quote = await quotes.locked(
        connection, platform_id=platform_id, quote_id=quote_id, agent_id=agent_id
    )
    if quote is None:
        return None
    transfer = await execution.payment(connection, quote, inbox_key=inbox_key, at=at)
    await connection.execute(quotes.set_status(quote, quotes.EXECUTED, at=at))
    return await _begin(
        connection,
        agent,
        Action(transfer=transfer, type="EXECUTE_QUOTE", rejection_reason=None, quote=quote),
        pricing=pricing,
        reply_to=reply_to,
        inbox_key=inbox_key,
        at=at,
    )


async def _permitted(
    connection: AsyncConnection, platform_id: Id, agent_id: Id, permission: AgentPermission
) -> Agent:
    """Lock and return the agent, which may use `permission` at this moment.

    Raises: ActionRefusedError.
    """
    agent = await agents.locked(connection, platform_id=platform_id, agent_id=agent_id)
    if agent is None or agent.is_paused or not agent.policy.allows(permission):
        raise ActionRefusedError(ActionRefusal.AGENT, "The agent may no longer do this.")
    return agent


async def _begin(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    agent: Agent,
    wanted: Action,
    *,
    pricing: Pricing,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
) -> RecordedAction:
    """Record an action: executed at once, or waiting for approval, as the policy says.

    Raises: ActionRefusedError.
    """
    transfer = wanted.transfer
    elsewhere = await _elsewhere(connection, agent, transfer, pricing, at)
    used = await usage.of_agent(connection, agent.id, at)
    mode = evaluate_transfer(agent, used, transfer, elsewhere)
    if isinstance(mode, PolicyRefusal):
        raise ActionRefusedError(ActionRefusal.POLICY, mode.message, reason=mode.reason)
    currency = agent.policy.spending_limits.currency
    measured = (elsewhere[currency], currency) if currency in elsewhere else None
    if mode is ExecutionMode.AUTO:
        message = await requests.submit(
            connection, transfer, inbox_key=inbox_key, reply_to=reply_to, at=at
        )
        action = replace(wanted, transfer=requests.sent(transfer, at=at))
        await _insert_action(connection, action, measured)
        return RecordedAction(action=action, message=message)
    await requests.hold(connection, transfer, inbox_key=inbox_key, at=at)
    await _insert_action(connection, wanted, measured)
    webhook_type = WebhookType.AGENT_ACTION_PENDING_APPROVAL
    await _publish(connection, webhook_type, transfer, render(wanted), at)
    return RecordedAction(action=wanted, message=None)


async def resolve(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    decision: Decision,
    pricing: Pricing,
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
        action = replace(before, transfer=rejected, rejection_reason=decision.reason)
        await _update(connection, action.transfer, at)
        return RecordedAction(action=action, message=None)
    # The transfer counts for the day of its request, and not against itself.
    used = await usage.of_agent(
        connection, requested_by, before.transfer.created_at, without=transaction_id
    )
    elsewhere = {}
    if agent is not None:
        elsewhere = await _elsewhere(connection, agent, before.transfer, pricing, at)
    objection = _objection(agent, used, before, elsewhere, at)
    objection = objection or await _objection_to_row(connection, before.transfer, inbox_key)
    if objection:
        failed = before.transfer.failed(objection, at=at)
        await _update(connection, failed, at)
        action = replace(before, transfer=failed, rejection_reason=None)
        return RecordedAction(action=action, message=None)
    message = await requests.send(
        connection, before.transfer, inbox_key=inbox_key, reply_to=reply_to, at=at
    )
    sent = requests.sent(before.transfer, at=at)
    action = replace(before, transfer=sent, rejection_reason=None)
    return RecordedAction(action=action, message=message)


async def _objection_to_row(
    connection: AsyncConnection, transfer: Transfer, key: InboxKey
) -> FailureReason | None:
    """Return why `transfer` cannot be sent as it was recorded; None: it can."""
    if not await requests.is_signed(connection, transfer, key):
        _log.error("forged payment refused", transfer_id=str(transfer.id))
        return FailureReason.INTERNAL_ERROR
    if await parties.is_external_side_active(connection, transfer):
        return None
    if transfer.is_incoming:
        return FailureReason.ACCOUNT_INVALID
    return FailureReason.ACCOUNT_CANNOT_RECEIVE


async def draft_transfer(
    connection: AsyncConnection, agent: Agent, kind: ActionType, wanted: Wanted, at: datetime
) -> Transfer:
    """Return the requested transfer between accounts of the agent's customer, not recorded.

    Both types of action move money between two internal accounts; TRANSFER_OUT also to an external
    account, TRANSFER_IN also from one.
    Raises: RefusedError.
    """
    of_agent = replace(wanted, customer_id=agent.customer_id, agent_id=agent.id)
    collects = kind == "TRANSFER_IN" and wanted.source.resource == "ExternalAccount"
    draft = drafts.transfer_in if collects else drafts.transfer_out
    return await draft(connection, platform_id=agent.platform_id, wanted=of_agent, at=at)


async def _lock(connection: AsyncConnection, transfer: Transfer) -> None:
    """Lock `transfer`, which waits for approval.

    Raises: NotPendingError.
    """
    status = await transfers.lock_status(connection, transfer)
    if status != transfers.PENDING:
        raise NotPendingError(str(status))


async def _insert_action(
    connection: AsyncConnection, action: Action, measured: tuple[int, str] | None
) -> None:
    amount, currency = measured or (None, None)
    transfer = action.transfer
    await connection.execute(
        tables.agent_actions.insert().values(
            id=transfer.id,
            agent_id=transfer.agent_id,
            customer_id=transfer.customer_id,
            platform_id=transfer.platform_id,
            type=action.type,
            created_at=transfer.created_at,
            measured_amount=amount,
            measured_currency=currency,
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
