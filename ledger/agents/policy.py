"""What an agent may do by itself, what somebody has to approve, and what is refused.

Pure: how much was spent arrives as `Usage`; nothing here reads a clock or a row.
Amounts are minor units of the currency of the policy's limits. A spend in another currency is
refused: there are no exchange rates here by which it could be measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cardledger.schema.ids import Id


class AgentPermission(StrEnum):
    """What a policy grants; none includes another."""

    VIEW_TRANSACTIONS = "VIEW_TRANSACTIONS"  # And balances.
    CREATE_TRANSFERS = "CREATE_TRANSFERS"
    CREATE_QUOTES = "CREATE_QUOTES"
    EXECUTE_QUOTES = "EXECUTE_QUOTES"
    MANAGE_EXTERNAL_ACCOUNTS = "MANAGE_EXTERNAL_ACCOUNTS"


class ExecutionMode(StrEnum):
    """What happens to a spend that is within the limits."""

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
    """How much may be spent; None is no limit, and what is equal to a limit is within it."""

    currency: str
    per_transaction: int
    daily: int | None = None
    daily_count: int | None = None
    monthly: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRule:
    """What is different for one account; None is as for every other."""

    execution_mode: ExecutionMode | None = None
    per_transaction: int | None = None


_NO_RULES: Final[Mapping[Id, AccountRule]] = MappingProxyType({})


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
    """Everything that an agent's platform has laid down for it."""

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
    """What an agent has spent this day and this month in UTC, or has waiting for an approval."""

    daily_count: int = 0
    daily_spend: int = 0
    monthly_spend: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What an agent wants to spend, and from which account."""

    amount: int
    currency: str
    account_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefusal:
    """A spend that the policy forbids, and what to change."""

    reason: RefusalReason
    message: str


def evaluate_policy(policy: Policy, usage: Usage, spend: Spend) -> ExecutionMode | PolicyRefusal:
    """Return how `spend` happens, or why it does not.

    In this order: the account, the currency, the limits from the narrowest to the widest; then
    the mode of the account, else of the policy; then the threshold, which only makes it stricter.
    An account's own limit and mode take the place of the policy's, also where they allow more.
    """
    refused = _account(policy, spend) or _limits(policy, usage, spend)
    return refused or _mode(policy, spend)


def _account(policy: Policy, spend: Spend) -> PolicyRefusal | None:
    if policy.allows_account(spend.account_id):
        return None
    message = "this agent may not spend from this account; use one of allowedAccountIds"
    return PolicyRefusal(reason=RefusalReason.ACCOUNT_NOT_ALLOWED, message=message)


def _limits(policy: Policy, usage: Usage, spend: Spend) -> PolicyRefusal | None:
    limits, currency = policy.spending_limits, policy.spending_limits.currency
    if spend.currency != currency:
        message = (
            f"this agent's limits are in {currency}, and there are no exchange rates to measure"
            f" {spend.currency} by; spend {currency}"
        )
        return PolicyRefusal(reason=RefusalReason.CURRENCY_NOT_ALLOWED, message=message)
    rule = _rule(policy, spend)
    largest = limits.per_transaction if rule.per_transaction is None else rule.per_transaction
    if spend.amount > largest:
        message = f"this agent may spend at most {largest} at once; send less"
        return PolicyRefusal(reason=RefusalReason.PER_TRANSACTION_LIMIT, message=message)
    if limits.daily_count is not None and usage.daily_count >= limits.daily_count:
        message = f"this agent may spend {limits.daily_count} times a day; try again tomorrow (UTC)"
        return PolicyRefusal(reason=RefusalReason.DAILY_TRANSACTION_LIMIT, message=message)
    if limits.daily is not None and usage.daily_spend + spend.amount > limits.daily:
        left = max(0, limits.daily - usage.daily_spend)
        message = f"this agent may spend {left} more today (UTC); send less"
        return PolicyRefusal(reason=RefusalReason.DAILY_LIMIT, message=message)
    if limits.monthly is not None and usage.monthly_spend + spend.amount > limits.monthly:
        left = max(0, limits.monthly - usage.monthly_spend)
        message = f"this agent may spend {left} more this month (UTC); send less"
        return PolicyRefusal(reason=RefusalReason.MONTHLY_LIMIT, message=message)
    return None


def _mode(policy: Policy, spend: Spend) -> ExecutionMode:
    threshold = policy.approval_threshold
    # A threshold in another currency cannot be compared, so it is taken to be passed.
    if threshold is not None and (
        spend.currency != threshold.currency or spend.amount > threshold.amount
    ):
        return ExecutionMode.APPROVAL_REQUIRED
    return _rule(policy, spend).execution_mode or policy.default_execution_mode


def _rule(policy: Policy, spend: Spend) -> AccountRule:
    return policy.account_restrictions.rules.get(spend.account_id, AccountRule())
