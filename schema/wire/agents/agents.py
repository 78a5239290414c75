"""Agents: programs that act for a customer within a policy."""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from cardledger.schema.wire.common import (
    CURRENCIES,
    NO_CURRENCY,
    NOT_NULLABLE,
    AgentId,
    Currency,
    CustomerId,
    Documented,
    InternalAccountId,
    Name,
    NonNegativeAmount,
    PageQuery,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.customers.accounts import AccountType

MAX_ACCOUNTS = 100
"""The number of accounts that a policy may name."""

AgentPermissionName = Literal[
    "VIEW_TRANSACTIONS",
    "CREATE_TRANSFERS",
    "CREATE_QUOTES",
    "EXECUTE_QUOTES",
    "MANAGE_EXTERNAL_ACCOUNTS",
]
ExecutionModeName = Literal["AUTO", "APPROVAL_REQUIRED"]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
"""A number of transactions, zero allowed."""

AccountIds = Annotated[list[InternalAccountId], Field(max_length=MAX_ACCOUNTS)]
"""Internal accounts of the agent's customer."""


def _each_once(value: list[AgentPermissionName]) -> list[AgentPermissionName]:
    if len(set(value)) != len(value):
        message = "has a duplicate; send each permission once"
        raise ValueError(message)
    return value


def _known(value: str) -> str:
    if value not in CURRENCIES:
        raise ValueError(NO_CURRENCY)
    return value


Permissions = Annotated[list[AgentPermissionName], Field(max_length=5), AfterValidator(_each_once)]
LimitCurrency = Annotated[Currency, AfterValidator(_known)]


# --- the policy --------------------------------------------------------------------------------


class SpendingLimits(Request):
    """Spending limits of an agent, in minor units of `currency`; null is no limit.

    Days and months are in UTC. What is spent in another currency is converted at the present rate,
    rounded up.
    """

    currency: LimitCurrency
    per_transaction_limit: NonNegativeAmount
    daily_limit: NonNegativeAmount | None = None
    daily_transaction_limit: Count | None = None
    monthly_limit: NonNegativeAmount | None = None


class AccountRule(Request):
    """A rule for one account, which replaces the rules of the policy."""

    account_id: InternalAccountId
    execution_mode: ExecutionModeName | None = None
    per_transaction_limit: NonNegativeAmount | None = None


class AccountRestrictions(Request):
    """The accounts that an agent may read and debit; null `allowedAccountIds` is all."""

    allowed_account_ids: AccountIds | None = None
    account_rules: Annotated[list[AccountRule] | None, Field(max_length=MAX_ACCOUNTS)] = None

    @field_validator("allowed_account_ids")
    @classmethod
    def _accounts_once(cls, value: list[Any] | None) -> list[Any] | None:
        if value is not None and len(set(value)) != len(value):
            message = "has a duplicate; send each account once"
            raise ValueError(message)
        return value

    @field_validator("account_rules")
    @classmethod
    def _rules_once(cls, value: list[AccountRule] | None) -> list[AccountRule] | None:
        if value is not None and len({rule.account_id for rule in value}) != len(value):
            message = "has two rules for one account; send one rule per account"
            raise ValueError(message)
        return value


class ApprovalThresholds(Request):
    """Above `amount` of `currency` an approval is required, also in the mode `AUTO`."""

    currency: LimitCurrency | None = None
    amount: NonNegativeAmount | None = None


class AgentPolicy(Request):
    """What an agent may do by itself, with an approval, or not at all."""

    permissions: Permissions
    default_execution_mode: ExecutionModeName
    spending_limits: SpendingLimits
    account_restrictions: AccountRestrictions | None = None
    approval_thresholds: ApprovalThresholds | None = None

    @model_validator(mode="after")
    def _threshold_can_be_compared(self) -> Self:
        threshold, currency = self.approval_thresholds, self.spending_limits.currency
        if threshold is None or (threshold.amount is None and threshold.currency is None):
            return self
        if threshold.amount is None or threshold.currency is None:
            message = "approvalThresholds must have both currency and amount, or neither"
            raise ValueError(message)
        if threshold.currency != currency:
            # The agent cannot spend another currency, so the threshold would never apply.
            message = f"approvalThresholds.currency must be {currency}, as in spendingLimits"
            raise ValueError(message)
        return self


StoredPolicy = Annotated[dict[str, Any], Documented(AgentPolicy)]
"""A policy as it was stored, as the API returns it."""


class SpendingLimitsUpdate(Request):
    """A change of the limits; absent fields keep their value, null removes a limit."""

    currency: Annotated[LimitCurrency | None, NOT_NULLABLE] = None
    per_transaction_limit: Annotated[NonNegativeAmount | None, NOT_NULLABLE] = None
    daily_limit: NonNegativeAmount | None = None
    daily_transaction_limit: Count | None = None
    monthly_limit: NonNegativeAmount | None = None


class AgentPolicyUpdate(Request):
    """A change of a policy; absent fields keep their value, also in nested objects.

    A list replaces the whole list. Null removes an optional field.
    """

    permissions: Annotated[Permissions | None, NOT_NULLABLE] = None
    default_execution_mode: Annotated[ExecutionModeName | None, NOT_NULLABLE] = None
    spending_limits: Annotated[SpendingLimitsUpdate | None, NOT_NULLABLE] = None
    account_restrictions: AccountRestrictions | None = None
    approval_thresholds: ApprovalThresholds | None = None


# --- the agent ---------------------------------------------------------------------------------


class AgentCreate(Request):
    """An agent to create."""

    name: Name
    customer_id: CustomerId
    policy: AgentPolicy


class AgentUpdate(Request):
    """A change of an agent; absent fields keep their value."""

    name: Annotated[Name | None, NOT_NULLABLE] = None
    is_paused: Annotated[Annotated[bool, Field(strict=True)] | None, NOT_NULLABLE] = None


class AgentsQuery(PageQuery):
    """Filters of the list of agents; all must match, times are inclusive."""

    customer_id: CustomerId | None = None
    is_paused: Literal["true", "false"] | None = None
    is_connected: Literal["true", "false"] | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None


class AgentUsage(Response):
    """The amounts an agent has spent or has pending approval, in minor units of its limits.

    The periods are the day `dailyResetDate` and the month `monthlyResetMonth`, in UTC.
    """

    daily_transaction_count: int
    daily_spend: int
    daily_reset_date: date
    monthly_spend: int
    monthly_reset_month: str


class AgentResource(Response):
    """An agent, its policy and its usage."""

    id: AgentId
    name: str
    customer_id: CustomerId
    is_paused: bool
    is_connected: bool
    policy: StoredPolicy
    usage: AgentUsage
    created_at: Time
    updated_at: Time


class AgentDeviceCode(Response):
    """A one-time code that connects a program as the agent; a repetition has no `code`."""

    code: str | None = None
    agent_id: AgentId
    expires_at: Time
    redeemed: bool


class AgentCreated(Response):
    """A new agent and the device code that connects it."""

    agent: AgentResource
    device_code: AgentDeviceCode


class DeviceCodeStatus(Response):
    """Whether a device code was redeemed."""

    code: str
    redeemed: bool


class AgentConnection(Response):
    """The agent that a program was connected as; `accessToken` is returned only once."""

    agent_id: AgentId
    agent_name: str
    access_token: str | None = None
    policy: StoredPolicy


# --- filters of an agent ------------------------------------------------------------------------


class AgentAccountsQuery(PageQuery):
    """Filters of the list of internal accounts that an agent may read."""

    currency: Currency | None = None
    type: AccountType | None = None


class AgentExternalAccountsQuery(PageQuery):
    """Filters of the list of external accounts of an agent's customer."""

    currency: Currency | None = None
