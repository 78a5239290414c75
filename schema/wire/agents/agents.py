"""Agents: programs that act for a customer, as platforms and as they themselves see them."""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from cardledger.schema.wire.common import (
    CURRENCIES,
    NOT_NULLABLE,
    AgentId,
    Currency,
    CustomerId,
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
"""How many accounts a policy may name."""

AgentPermissionName = Literal[
    "VIEW_TRANSACTIONS",
    "CREATE_TRANSFERS",
    "CREATE_QUOTES",
    "EXECUTE_QUOTES",
    "MANAGE_EXTERNAL_ACCOUNTS",
]
ExecutionModeName = Literal["AUTO", "APPROVAL_REQUIRED"]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
"""How often, zero allowed."""

AccountIds = Annotated[list[InternalAccountId], Field(max_length=MAX_ACCOUNTS)]
"""Internal accounts of the agent's customer."""


def _each_once(value: list[AgentPermissionName]) -> list[AgentPermissionName]:
    if len(set(value)) != len(value):
        message = "names a permission twice; send every permission once"
        raise ValueError(message)
    return value


def _known(value: str) -> str:
    if value not in CURRENCIES:
        message = f"must be one of {', '.join(CURRENCIES)}"
        raise ValueError(message)
    return value


Permissions = Annotated[list[AgentPermissionName], Field(max_length=5), AfterValidator(_each_once)]
LimitCurrency = Annotated[Currency, AfterValidator(_known)]


# --- the policy --------------------------------------------------------------------------------


class SpendingLimits(Request):
    """How much an agent may spend, in minor units of `currency`; null is no limit.

    Days and months are those of UTC. What is in another currency is refused.
    """

    currency: LimitCurrency
    per_transaction_limit: NonNegativeAmount
    daily_limit: NonNegativeAmount | None = None
    daily_transaction_limit: Count | None = None
    monthly_limit: NonNegativeAmount | None = None


class AccountRule(Request):
    """What is different for one account: it takes the place of what the policy says for all."""

    account_id: InternalAccountId
    execution_mode: ExecutionModeName | None = None
    per_transaction_limit: NonNegativeAmount | None = None


class AccountRestrictions(Request):
    """Which accounts an agent may see and spend from; `allowedAccountIds` null is all."""

    allowed_account_ids: AccountIds | None = None
    account_rules: Annotated[list[AccountRule] | None, Field(max_length=MAX_ACCOUNTS)] = None

    @field_validator("allowed_account_ids")
    @classmethod
    def _accounts_once(cls, value: list[Any] | None) -> list[Any] | None:
        if value is not None and len(set(value)) != len(value):
            message = "names an account twice; send every account once"
            raise ValueError(message)
        return value

    @field_validator("account_rules")
    @classmethod
    def _rules_once(cls, value: list[AccountRule] | None) -> list[AccountRule] | None:
        if value is not None and len({rule.account_id for rule in value}) != len(value):
            message = "has two rules for one account; send one rule for every account"
            raise ValueError(message)
        return value


class ApprovalThresholds(Request):
    """Above `amount` of `currency` an approval is needed, in the mode `AUTO` as well."""

    currency: LimitCurrency | None = None
    amount: NonNegativeAmount | None = None


class AgentPolicy(Request):
    """What an agent may do by itself, what somebody has to approve, and what is refused."""

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
            # Nothing in another currency can be spent, so it would never apply.
            message = f"approvalThresholds.currency must be {currency}, as in spendingLimits"
            raise ValueError(message)
        return self


class SpendingLimitsUpdate(Request):
    """What to change of the limits; null takes a limit away."""

    currency: Annotated[LimitCurrency | None, NOT_NULLABLE] = None
    per_transaction_limit: Annotated[NonNegativeAmount | None, NOT_NULLABLE] = None
    daily_limit: NonNegativeAmount | None = None
    daily_transaction_limit: Count | None = None
    monthly_limit: NonNegativeAmount | None = None


class AgentPolicyUpdate(Request):
    """What to change of a policy; what is not there stays, in its parts as well.

    A list replaces the whole list. Null takes away what is optional.
    """

    permissions: Annotated[Permissions | None, NOT_NULLABLE] = None
    default_execution_mode: Annotated[ExecutionModeName | None, NOT_NULLABLE] = None
    spending_limits: Annotated[SpendingLimitsUpdate | None, NOT_NULLABLE] = None
    account_restrictions: AccountRestrictions | None = None
    approval_thresholds: ApprovalThresholds | None = None


# --- the agent ---------------------------------------------------------------------------------


class AgentCreate(Request):
    """An agent that is asked for."""

    name: Name
    customer_id: CustomerId
    policy: AgentPolicy


class AgentUpdate(Request):
    """What changes about an agent; a field that is not there stays."""

    name: Annotated[Name | None, NOT_NULLABLE] = None
    is_paused: Annotated[Annotated[bool, Field(strict=True)] | None, NOT_NULLABLE] = None


class AgentsQuery(PageQuery):
    """Filters of the list of agents; all have to match, times included."""

    customer_id: CustomerId | None = None
    is_paused: Literal["true", "false"] | None = None
    is_connected: Literal["true", "false"] | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None


class AgentUsage(Response):
    """What an agent has spent, or has waiting for an approval, in minor units of its limits.

    Counted are the day `dailyResetDate` and the month `monthlyResetMonth`, both of UTC.
    """

    daily_transaction_count: int
    daily_spend: int
    daily_reset_date: date
    monthly_spend: int
    monthly_reset_month: str


class AgentResource(Response):
    """An agent as every reader sees it."""

    id: AgentId
    name: str
    customer_id: CustomerId
    is_paused: bool
    is_connected: bool
    policy: AgentPolicy
    usage: AgentUsage
    created_at: Time
    updated_at: Time


class AgentDeviceCode(Response):
    """A code with which a program becomes the agent, once and not for long."""

    code: str
    agent_id: AgentId
    expires_at: Time
    redeemed: bool


class AgentCreated(Response):
    """A new agent, with the code that connects it."""

    agent: AgentResource
    device_code: AgentDeviceCode


class DeviceCodeStatus(Response):
    """Whether a code was redeemed."""

    code: str
    redeemed: bool


class AgentConnection(Response):
    """Who the program that redeemed a code is now; `accessToken` is in no other answer."""

    agent_id: AgentId
    agent_name: str
    access_token: str
    policy: AgentPolicy


# --- what an agent asks for --------------------------------------------------------------------


class AgentAccountsQuery(PageQuery):
    """Filters of the list of internal accounts that an agent sees."""

    currency: Currency | None = None
    type: AccountType | None = None


class AgentExternalAccountsQuery(PageQuery):
    """Filters of the list of external accounts of an agent's customer."""

    currency: Currency | None = None
