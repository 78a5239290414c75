"""Policies as the interface writes them: reading, changing and storing them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from cardledger.ledger.agents.policy import (
    AccountRestrictions,
    AccountRule,
    AgentPermission,
    ApprovalThreshold,
    ExecutionMode,
    Policy,
    SpendingLimits,
)
from cardledger.ledger.agents.refusals import AgentRefusal, AgentRefusedError
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents import agents as wire
from cardledger.schema.wire.agents.agents import AgentPolicy
from cardledger.schema.wire.errors import FieldError, field_errors


def policy_of(document: AgentPolicy) -> Policy:
    """Return the policy that `document` describes."""
    limits = document.spending_limits
    return Policy(
        permissions=frozenset(map(AgentPermission, document.permissions)),
        default_execution_mode=ExecutionMode(document.default_execution_mode),
        spending_limits=SpendingLimits(
            currency=limits.currency,
            per_transaction=limits.per_transaction_limit,
            daily=limits.daily_limit,
            daily_count=limits.daily_transaction_limit,
            monthly=limits.monthly_limit,
        ),
        account_restrictions=_restrictions(document.account_restrictions),
        approval_threshold=_threshold(document.approval_thresholds),
    )


def _threshold(thresholds: wire.ApprovalThresholds | None) -> ApprovalThreshold | None:
    if thresholds is None or thresholds.currency is None or thresholds.amount is None:
        return None
    return ApprovalThreshold(currency=thresholds.currency, amount=thresholds.amount)


def _restrictions(restrictions: wire.AccountRestrictions | None) -> AccountRestrictions:
    if restrictions is None:
        return AccountRestrictions()
    allowed = restrictions.allowed_account_ids
    return AccountRestrictions(
        allowed_account_ids=None if allowed is None else frozenset(allowed),
        rules={
            rule.account_id: AccountRule(
                execution_mode=None
                if rule.execution_mode is None
                else ExecutionMode(rule.execution_mode),
                per_transaction=rule.per_transaction_limit,
            )
            for rule in restrictions.account_rules or ()
        },
    )


def changed_policy(before: Mapping[str, Any], changes: Mapping[str, Any]) -> AgentPolicy:
    """Return the policy `before` with `changes`, both by the names of the wire.

    A field that a part does not name is kept; a list replaces the whole list; None removes.
    Raises: AgentRefusedError when the result is not a valid policy.
    """
    _check_units(before, changes)
    merged = {**before, **{name: _merged(before.get(name), part) for name, part in changes.items()}}
    try:
        return AgentPolicy.model_validate(_without_none(merged))
    except ValidationError as error:
        complaints = error.errors(include_url=False, include_input=False)
        raise AgentRefusedError(AgentRefusal.POLICY, *field_errors(complaints)) from None


def _merged(before: Any, change: Any) -> Any:  # noqa: ANN401 - parts of a policy
    if isinstance(change, dict):
        return _without_none({**(before or {}), **change})
    return change


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


_AMOUNTS: Final = ("perTransactionLimit", "dailyLimit", "monthlyLimit")


def _check_units(before: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Raise AgentRefusedError when a new currency would apply to amounts that are kept."""
    limits, changed = before["spendingLimits"], changes.get("spendingLimits", {})
    if changed.get("currency", limits["currency"]) == limits["currency"]:
        return
    kept = [name for name in _AMOUNTS if name in limits and name not in changed]
    if kept:
        message = f"changes the unit of {', '.join(kept)}; send these amounts as well"
        field = FieldError(field="spendingLimits.currency", message=message)
        raise AgentRefusedError(AgentRefusal.POLICY, field)


def accounts_in(restrictions: wire.AccountRestrictions | None) -> Sequence[tuple[str, Id]]:
    """Return the accounts that `restrictions` names, each with the path of its field."""
    if restrictions is None:
        return []
    allowed = enumerate(restrictions.allowed_account_ids or ())
    rules = enumerate(restrictions.account_rules or ())
    return [
        *((f"allowedAccountIds.{number}", account_id) for number, account_id in allowed),
        *((f"accountRules.{number}.accountId", rule.account_id) for number, rule in rules),
    ]


def stored(policy: AgentPolicy) -> dict[str, Any]:
    """Return `policy` as the column `agents.policy` has it."""
    return policy.model_dump(mode="json", by_alias=True, exclude_none=True)
