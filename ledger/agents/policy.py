"""Policies of agents: what an agent may do itself, what needs approval, what is refused.

Pure: the amounts spent so far arrive as `Usage`; nothing here reads a clock or a row.
Amounts are minor units of the currency of the policy's limits. A spend in another currency is
compared by what it is in that one, which arrives with it; without a rate it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import format_amount


class AgentPermission(StrEnum):
    """What a policy grants; no permission includes another."""

    VIEW_TRANSACTIONS = "VIEW_TRANSACTIONS"  # And balances.
    CREATE_TRANSFERS = "CREATE_TRANSFERS"
    CREATE_QUOTES = "CREATE_QUOTES"
    EXECUTE_QUOTES = "EXECUTE_QUOTES"
    MANAGE_EXTERNAL_ACCOUNTS = "MANAGE_EXTERNAL_ACCOUNTS"


class ExecutionMode(StrEnum):
    """How a spend that is within the limits is executed."""

    AUTO = "AUTO"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"


class RefusalReason(StrEnum):
    """Why an agent may not spend."""

    ACCOUNT_NOT_ALLOWED = "ACCOUNT_NOT_ALLOWED"
    CURRENCY_NOT_ALLOWED = "CURRENCY_NOT_ALLOWED"
    PER_TRANSACTION_LIMIT = "PER_TRANSACTION_LIMIT"
    DAILY_TRANSACTION_LIMIT = "DAILY_TRANSACTION_LIMIT"
    DAILY_LIMIT = "DAILY_LIMIT"
    MONTHLY_LIMIT = "MONTHLY_LIMIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimits:
    """How much may be spent; None is no limit, and an amount equal to a limit is within it."""

    currency: str
    per_transaction: int
    daily: int | None = None
    daily_count: int | None = None
    monthly: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRule:
    """Overrides for one account; None keeps the policy's value."""

    execution_mode: ExecutionMode | None = None
    per_transaction: int | None = None


_NO_RULES: Final[Mapping[Id, AccountRule]] = MappingProxyType({})
_NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRestrictions:
    """Which accounts may be spent from (None: all of the customer's), and by which rules."""

    allowed_account_ids: frozenset[Id] | None = None
    rules: Mapping[Id, AccountRule] = field(default_factory=lambda: _NO_RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalThreshold:
    """The largest amount that needs no approval where the mode is `AUTO`."""

    currency: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the platform allows an agent."""

    permissions: frozenset[AgentPermission]
    default_execution_mode: ExecutionMode
    spending_limits: SpendingLimits
    account_restrictions: AccountRestrictions = field(default_factory=AccountRestrictions)
    approval_threshold: ApprovalThreshold | None = None

    def allows(self, permission: AgentPermission) -> bool:
        """Return whether the agent may do what needs `permission`."""
        return permission in self.permissions

    def allows_account(self, account_id: Id) -> bool:
        """Return whether the agent may see `account_id` and spend from it."""
        allowed = self.account_restrictions.allowed_account_ids
        return allowed is None or account_id in allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an agent has spent this day and this month (UTC), pending approvals included."""

    daily_count: int = 0
    daily_spend: int = 0
    monthly_spend: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount to be spent from an account; `elsewhere` has it in other currencies, rounded up."""

    amount: int
    currency: str
    account_id: Id
    elsewhere: Mapping[str, int] = field(default_factory=lambda: _NOWHERE)

    def in_currency(self, currency: str) -> int | None:
        """Return the amount in `currency`; None: there is no rate."""
        return self.amount if currency == self.currency else self.elsewhere.get(currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefusal:
    """Why the policy refuses a spend."""

    reason: RefusalReason
    message: str


def evaluate_policy(policy: Policy, usage: Usage, spend: Spend) -> ExecutionMode | PolicyRefusal:
    """Return how `spend` is executed, or why it is refused.

    In this order: the account, the currency, the limits from the narrowest to the widest; then
    the mode of the account, else of the policy; then the threshold, which can only require more.
    An account's own limit and mode replace the policy's, also where they allow more.
    """
    refused = _account(policy, spend) or _limits(policy, usage, spend)
    return refused or _mode(policy, spend)


def _account(policy: Policy, spend: Spend) -> PolicyRefusal | None:
    if policy.allows_account(spend.account_id):
        return None
    message = "The agent's policy does not allow the source account; use one of allowedAccountIds."
    return PolicyRefusal(reason=RefusalReason.ACCOUNT_NOT_ALLOWED, message=message)


def _limits(policy: Policy, usage: Usage, spend: Spend) -> PolicyRefusal | None:
    limits, currency = policy.spending_limits, policy.spending_limits.currency
    amount = spend.in_currency(currency)
    if amount is None:
        message = (
            f"The agent's limits are in {currency}, and there is no rate from {spend.currency};"
            f" spend {currency}."
        )
        return PolicyRefusal(reason=RefusalReason.CURRENCY_NOT_ALLOWED, message=message)
    rule = _rule(policy, spend)
    largest = limits.per_transaction if rule.per_transaction is None else rule.per_transaction
    if amount > largest:
        message = f"Exceeds the per-transaction limit of {format_amount(largest, currency)}."
        return PolicyRefusal(reason=RefusalReason.PER_TRANSACTION_LIMIT, message=message)
    if limits.daily_count is not None and usage.daily_count >= limits.daily_count:
        message = f"Exceeds the limit of {limits.daily_count} transactions a day (UTC)."
        return PolicyRefusal(reason=RefusalReason.DAILY_TRANSACTION_LIMIT, message=message)
    if limits.daily is not None and usage.daily_spend + amount > limits.daily:
        message = _exceeded("daily", limits.daily, usage.daily_spend, currency)
        return PolicyRefusal(reason=RefusalReason.DAILY_LIMIT, message=message)
    if limits.monthly is not None and usage.monthly_spend + amount > limits.monthly:
        message = _exceeded("monthly", limits.monthly, usage.monthly_spend, currency)
        return PolicyRefusal(reason=RefusalReason.MONTHLY_LIMIT, message=message)
    return None


def _exceeded(period: str, limit: int, spent: int, currency: str) -> str:
    remaining = format_amount(max(0, limit - spent), currency)
    allowed = format_amount(limit, currency)
    return f"Exceeds the {period} limit of {allowed} (UTC); {remaining} remains."


def _mode(policy: Policy, spend: Spend) -> ExecutionMode:
    threshold = policy.approval_threshold
    if threshold is not None:
        amount = spend.in_currency(threshold.currency)
        # Without a rate it cannot be compared, so the threshold counts as exceeded.
        if amount is None or amount > threshold.amount:
            return ExecutionMode.APPROVAL_REQUIRED
    return _rule(policy, spend).execution_mode or policy.default_execution_mode


def _rule(policy: Policy, spend: Spend) -> AccountRule:
    return policy.account_restrictions.rules.get(spend.account_id, AccountRule())
