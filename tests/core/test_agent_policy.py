"""What an agent may do itself, what needs approval, and what is refused."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cardledger.ledger.agents.policy import (
    AccountRestrictions,
    AccountRule,
    AgentPermission,
    ApprovalThreshold,
    ExecutionMode,
    Policy,
    PolicyRefusal,
    RefusalReason,
    Spend,
    SpendingLimits,
    Usage,
    evaluate_policy,
)
from cardledger.ledger.agents.policy_document import changed_policy, policy_of
from cardledger.ledger.agents.refusals import AgentRefusedError
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.agents import AgentPolicy
from cardledger.schema.wire.common import CURRENCIES, MAX_AMOUNT, format_amount

MINE, OTHER = Id(bytes(15) + b"\x01"), Id(bytes(15) + b"\x02")
EVERY = frozenset({MINE, OTHER})

LIMITS = SpendingLimits(currency="USD", per_transaction=100)
POLICY = Policy(
    permissions=frozenset(AgentPermission),
    default_execution_mode=ExecutionMode.AUTO,
    spending_limits=LIMITS,
)
NOTHING = Usage()


def spend(amount: int, currency: str = "USD", account_id: Id = MINE) -> Spend:
    return Spend(amount=amount, currency=currency, account_id=account_id)


def reason(policy: Policy, usage: Usage, wanted: Spend) -> RefusalReason | None:
    evaluated = evaluate_policy(policy, usage, wanted)
    return evaluated.reason if isinstance(evaluated, PolicyRefusal) else None


# --- examples ----------------------------------------------------------------------------------


def test_an_amount_equal_to_a_limit_is_allowed() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, daily=150, daily_count=2, monthly=150))
    before = Usage(daily_count=1, daily_spend=50, monthly_spend=50)

    assert evaluate_policy(policy, before, spend(100)) is ExecutionMode.AUTO


def test_a_spend_in_another_currency_is_compared_by_what_it_is_in_that_of_the_limits() -> None:
    wanted = Spend(amount=1, currency="EUR", account_id=MINE, elsewhere={"USD": 100, "GBP": 7})
    above = replace(wanted, elsewhere={"USD": 101, "GBP": 7})
    threshold = replace(POLICY, approval_threshold=ApprovalThreshold(currency="GBP", amount=7))
    lower = replace(POLICY, approval_threshold=ApprovalThreshold(currency="GBP", amount=6))
    unknown = replace(POLICY, approval_threshold=ApprovalThreshold(currency="JPY", amount=6))

    assert evaluate_policy(POLICY, Usage(), wanted) is ExecutionMode.AUTO
    assert reason(POLICY, Usage(), above) is RefusalReason.PER_TRANSACTION_LIMIT
    assert evaluate_policy(threshold, Usage(), wanted) is ExecutionMode.AUTO
    assert evaluate_policy(lower, Usage(), wanted) is ExecutionMode.APPROVAL_REQUIRED
    assert evaluate_policy(unknown, Usage(), wanted) is ExecutionMode.APPROVAL_REQUIRED


def test_limits_are_checked_in_the_documented_order() -> None:
    usage = Usage(daily_count=3, daily_spend=300, monthly_spend=3000)
    wanted = Spend(amount=500, currency="EUR", account_id=MINE)
    wider = replace(LIMITS, daily=300, daily_count=3, monthly=3000)
    policy = replace(
        POLICY,
        spending_limits=wider,
        account_restrictions=AccountRestrictions(allowed_account_ids=frozenset({OTHER})),
    )

    assert reason(policy, usage, wanted) is RefusalReason.ACCOUNT_NOT_ALLOWED
    policy = replace(policy, account_restrictions=AccountRestrictions())
    assert reason(policy, usage, wanted) is RefusalReason.CURRENCY_NOT_ALLOWED
    wanted = replace(wanted, currency="USD")
    assert reason(policy, usage, wanted) is RefusalReason.PER_TRANSACTION_LIMIT
    wider = replace(wider, per_transaction=500)
    policy = replace(policy, spending_limits=wider)
    assert reason(policy, usage, wanted) is RefusalReason.DAILY_TRANSACTION_LIMIT
    wider = replace(wider, daily_count=4)
    policy = replace(policy, spending_limits=wider)
    assert reason(policy, usage, wanted) is RefusalReason.DAILY_LIMIT
    wider = replace(wider, daily=800)
    policy = replace(policy, spending_limits=wider)
    assert reason(policy, usage, wanted) is RefusalReason.MONTHLY_LIMIT
    wider = replace(wider, monthly=3500)
    policy = replace(policy, spending_limits=wider)
    assert evaluate_policy(policy, usage, wanted) is ExecutionMode.AUTO


def test_a_refusal_by_the_daily_limit_states_the_remaining_amount() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, daily=150))

    evaluated = evaluate_policy(
        policy, Usage(daily_count=1, daily_spend=90, monthly_spend=90), spend(61)
    )

    assert isinstance(evaluated, PolicyRefusal)
    assert evaluated.message == "Exceeds the daily limit of 1.50 USD (UTC); 0.60 USD remains."


@pytest.mark.parametrize(
    ("currency", "limit"),
    [("USD", "5.00 USD"), ("JPY", "500 JPY"), ("USDC", "0.000500 USDC")],
)
def test_a_refusal_states_the_limit_in_units_of_its_currency(currency: str, limit: str) -> None:
    limits = SpendingLimits(currency=currency, per_transaction=500)

    refusal = evaluate_policy(
        replace(POLICY, spending_limits=limits), NOTHING, spend(501, currency)
    )

    assert isinstance(refusal, PolicyRefusal)
    assert refusal.message == f"Exceeds the per-transaction limit of {limit}."


@given(st.integers(0, 2**63 - 1), st.sampled_from(sorted(CURRENCIES)))
def test_a_formatted_amount_is_the_amount_in_major_units(amount: int, code: str) -> None:
    number, currency = format_amount(amount, code).split(" ")

    assert currency == code
    assert Decimal(number.replace(",", "")).scaleb(CURRENCIES[code].decimals) == amount


def test_an_amount_of_an_unknown_currency_is_stated_in_minor_units() -> None:
    assert format_amount(1234, "XTS") == "1,234 minor units of XTS"


def test_a_refusal_by_the_monthly_limit_states_the_remaining_amount() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, monthly=150))

    evaluated = evaluate_policy(
        policy, Usage(daily_count=1, daily_spend=0, monthly_spend=90), spend(61)
    )

    assert isinstance(evaluated, PolicyRefusal)
    assert evaluated.message == "Exceeds the monthly limit of 1.50 USD (UTC); 0.60 USD remains."


@pytest.mark.parametrize(
    "limits",
    [replace(LIMITS, daily=50), replace(LIMITS, monthly=50), replace(LIMITS, daily_count=1)],
)
def test_an_agent_that_has_spent_nothing_can_spend_the_whole_limit(limits: SpendingLimits) -> None:
    policy = replace(POLICY, spending_limits=limits)

    assert evaluate_policy(policy, Usage(), spend(50)) is ExecutionMode.AUTO


def test_approval_is_required_above_the_threshold_and_not_at_it() -> None:
    threshold = ApprovalThreshold(currency="USD", amount=50)
    policy = replace(POLICY, approval_threshold=threshold)

    assert evaluate_policy(policy, NOTHING, spend(49)) is ExecutionMode.AUTO
    assert evaluate_policy(policy, NOTHING, spend(50)) is ExecutionMode.AUTO
    assert evaluate_policy(policy, NOTHING, spend(51)) is ExecutionMode.APPROVAL_REQUIRED


def test_only_allowed_accounts_can_be_spent_from() -> None:
    mine = AccountRestrictions(allowed_account_ids=frozenset({MINE}))
    policy = replace(POLICY, account_restrictions=mine)

    assert evaluate_policy(policy, NOTHING, spend(1)) is ExecutionMode.AUTO
    other = reason(policy, NOTHING, spend(1, account_id=OTHER))
    assert other is RefusalReason.ACCOUNT_NOT_ALLOWED


def test_a_permission_that_is_not_granted_is_refused() -> None:
    viewer = replace(POLICY, permissions=frozenset({AgentPermission.VIEW_TRANSACTIONS}))

    assert viewer.allows(AgentPermission.VIEW_TRANSACTIONS)
    assert not viewer.allows(AgentPermission.CREATE_TRANSFERS)


def test_nothing_remains_of_a_month_whose_limit_is_below_what_was_spent() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, monthly=10))

    evaluated = evaluate_policy(policy, Usage(monthly_spend=90), spend(1))

    assert isinstance(evaluated, PolicyRefusal)
    assert "0.00 USD remains" in evaluated.message


def test_nothing_remains_of_a_day_whose_limit_is_below_what_was_spent() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, daily=10))

    evaluated = evaluate_policy(policy, Usage(daily_spend=90), spend(1))

    assert isinstance(evaluated, PolicyRefusal)
    assert "0.00 USD remains" in evaluated.message


def test_an_account_may_have_a_limit_and_a_mode_of_its_own() -> None:
    rule = AccountRule(execution_mode=ExecutionMode.APPROVAL_REQUIRED, per_transaction=500)
    policy = replace(POLICY, account_restrictions=AccountRestrictions(rules={MINE: rule}))

    assert evaluate_policy(policy, NOTHING, spend(500)) is ExecutionMode.APPROVAL_REQUIRED
    assert reason(policy, NOTHING, spend(501)) is RefusalReason.PER_TRANSACTION_LIMIT
    assert evaluate_policy(policy, NOTHING, spend(100, account_id=OTHER)) is ExecutionMode.AUTO
    assert reason(policy, NOTHING, spend(500, account_id=OTHER)) is not None


def test_an_empty_account_rule_keeps_the_policys_values() -> None:
    rules = AccountRestrictions(rules={MINE: AccountRule()})
    policy = replace(POLICY, account_restrictions=rules)

    assert evaluate_policy(policy, NOTHING, spend(100)) is ExecutionMode.AUTO
    assert reason(policy, NOTHING, spend(101)) is RefusalReason.PER_TRANSACTION_LIMIT


def test_a_limit_of_zero_allows_nothing() -> None:
    policy = replace(POLICY, spending_limits=replace(LIMITS, per_transaction=0))

    assert reason(policy, NOTHING, spend(1)) is RefusalReason.PER_TRANSACTION_LIMIT


def test_an_empty_list_of_allowed_accounts_allows_no_account() -> None:
    none = AccountRestrictions(allowed_account_ids=frozenset())

    refused = reason(replace(POLICY, account_restrictions=none), NOTHING, spend(1))

    assert refused is RefusalReason.ACCOUNT_NOT_ALLOWED


def test_a_threshold_in_another_currency_counts_as_exceeded() -> None:
    euros = ApprovalThreshold(currency="EUR", amount=100)

    evaluated = evaluate_policy(replace(POLICY, approval_threshold=euros), NOTHING, spend(1))

    assert evaluated is ExecutionMode.APPROVAL_REQUIRED


# --- properties --------------------------------------------------------------------------------

amounts = st.integers(min_value=1, max_value=200)
limits = st.integers(min_value=0, max_value=200)
modes = st.sampled_from(ExecutionMode)
accounts = st.sampled_from([MINE, OTHER])
usages = st.builds(Usage, daily_count=limits, daily_spend=limits, monthly_spend=limits)
spends = st.builds(Spend, amount=amounts, currency=st.just("USD"), account_id=accounts)
policies = st.builds(
    Policy,
    permissions=st.just(frozenset(AgentPermission)),
    default_execution_mode=modes,
    spending_limits=st.builds(
        SpendingLimits,
        currency=st.just("USD"),
        per_transaction=limits,
        daily=st.none() | limits,
        daily_count=st.none() | limits,
        monthly=st.none() | limits,
    ),
    account_restrictions=st.builds(
        AccountRestrictions,
        allowed_account_ids=st.none() | st.frozensets(accounts),
        rules=st.dictionaries(
            accounts,
            st.builds(
                AccountRule, execution_mode=st.none() | modes, per_transaction=st.none() | limits
            ),
        ),
    ),
    approval_threshold=st.none()
    | st.builds(ApprovalThreshold, currency=st.just("USD"), amount=limits),
)


@given(policies, st.lists(spends, max_size=30))
def test_no_sequence_spends_more_than_the_limits_allow(policy: Policy, wanted: list[Spend]) -> None:
    limits = policy.spending_limits
    executed: list[Spend] = []
    for request in wanted:
        spent = sum(each.amount for each in executed)
        usage = Usage(daily_count=len(executed), daily_spend=spent, monthly_spend=spent)
        if not isinstance(evaluate_policy(policy, usage, request), PolicyRefusal):
            executed.append(request)

    total = sum(each.amount for each in executed)
    assert limits.daily is None or total <= limits.daily
    assert limits.monthly is None or total <= limits.monthly
    assert limits.daily_count is None or len(executed) <= limits.daily_count
    for request in executed:
        rule = policy.account_restrictions.rules.get(request.account_id, AccountRule())
        own = rule.per_transaction
        assert request.amount <= (limits.per_transaction if own is None else own)
        assert policy.allows_account(request.account_id)


FREEDOM = {ExecutionMode.AUTO: 2, ExecutionMode.APPROVAL_REQUIRED: 1}


def freedom(evaluated: ExecutionMode | PolicyRefusal) -> int:
    return 0 if isinstance(evaluated, PolicyRefusal) else FREEDOM[evaluated]


def lower(limit: int | None, by: int) -> int | None:
    return None if limit is None else max(0, limit - by)


def stricter(policy: Policy, by: int, dropped: frozenset[Id]) -> Policy:
    """Return `policy` with everything in it a bit narrower."""
    limits, restrictions = policy.spending_limits, policy.account_restrictions
    allowed = restrictions.allowed_account_ids
    threshold = policy.approval_threshold
    return replace(
        policy,
        spending_limits=SpendingLimits(
            currency=limits.currency,
            per_transaction=max(0, limits.per_transaction - by),
            daily=lower(limits.daily, by),
            daily_count=lower(limits.daily_count, by),
            monthly=lower(limits.monthly, by),
        ),
        account_restrictions=AccountRestrictions(
            allowed_account_ids=(EVERY if allowed is None else allowed) - dropped,
            rules={
                account_id: replace(rule, per_transaction=lower(rule.per_transaction, by))
                for account_id, rule in restrictions.rules.items()
            },
        ),
        approval_threshold=threshold and replace(threshold, amount=max(0, threshold.amount - by)),
    )


@given(policies, usages, spends, limits, st.frozensets(accounts))
def test_a_stricter_policy_never_allows_more(
    policy: Policy, usage: Usage, wanted: Spend, by: int, dropped: frozenset[Id]
) -> None:
    strict = evaluate_policy(stricter(policy, by, dropped), usage, wanted)

    assert freedom(strict) <= freedom(evaluate_policy(policy, usage, wanted))


@given(policies, usages, usages, spends)
def test_more_usage_never_allows_more(
    policy: Policy, usage: Usage, more: Usage, wanted: Spend
) -> None:
    after = Usage(
        daily_count=usage.daily_count + more.daily_count,
        daily_spend=usage.daily_spend + more.daily_spend,
        monthly_spend=usage.monthly_spend + more.monthly_spend,
    )

    assert freedom(evaluate_policy(policy, after, wanted)) <= freedom(
        evaluate_policy(policy, usage, wanted)
    )


@given(policies, usages, spends)
def test_a_threshold_requires_approval_only_above_its_amount(
    policy: Policy, usage: Usage, wanted: Spend
) -> None:
    without = evaluate_policy(replace(policy, approval_threshold=None), usage, wanted)

    evaluated = evaluate_policy(policy, usage, wanted)

    passed = policy.approval_threshold and wanted.amount > policy.approval_threshold.amount
    if isinstance(without, PolicyRefusal) or not passed:
        assert evaluated == without
    else:
        assert evaluated is ExecutionMode.APPROVAL_REQUIRED


@given(policies, usages, spends)
def test_a_transfer_in_another_currency_than_the_policys_is_refused(
    policy: Policy, usage: Usage, wanted: Spend
) -> None:
    assert isinstance(
        evaluate_policy(policy, usage, replace(wanted, currency="EUR")), PolicyRefusal
    )


# --- the policy as it is written ---------------------------------------------------------------

ACCOUNT = f"InternalAccount:{MINE}"
WRITTEN = {
    "permissions": ["CREATE_TRANSFERS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 100, "dailyLimit": 300},
    "approvalThresholds": {"currency": "USD", "amount": 50},
}


def test_a_policy_document_is_read_field_by_field() -> None:
    rule = {"accountId": ACCOUNT, "executionMode": "APPROVAL_REQUIRED", "perTransactionLimit": 7}
    written = WRITTEN | {
        "spendingLimits": {
            "currency": "USD",
            "perTransactionLimit": 100,
            "dailyLimit": 300,
            "dailyTransactionLimit": 4,
            "monthlyLimit": MAX_AMOUNT,
        },
        "accountRestrictions": {"allowedAccountIds": [ACCOUNT], "accountRules": [rule]},
    }

    policy = policy_of(AgentPolicy.model_validate(written))

    own = AccountRule(execution_mode=ExecutionMode.APPROVAL_REQUIRED, per_transaction=7)
    assert policy == Policy(
        permissions=frozenset({AgentPermission.CREATE_TRANSFERS}),
        default_execution_mode=ExecutionMode.AUTO,
        spending_limits=SpendingLimits(
            currency="USD", per_transaction=100, daily=300, daily_count=4, monthly=MAX_AMOUNT
        ),
        account_restrictions=AccountRestrictions(
            allowed_account_ids=frozenset({MINE}), rules={MINE: own}
        ),
        approval_threshold=ApprovalThreshold(currency="USD", amount=50),
    )


def test_a_change_keeps_fields_that_it_does_not_name() -> None:
    changed = changed_policy(
        WRITTEN, {"spendingLimits": {"monthlyLimit": 900}, "approvalThresholds": {"amount": 60}}
    )

    policy = policy_of(changed)
    assert policy.spending_limits == SpendingLimits(
        currency="USD", per_transaction=100, daily=300, monthly=900
    )
    assert policy.approval_threshold == ApprovalThreshold(currency="USD", amount=60)
    assert policy.permissions == {AgentPermission.CREATE_TRANSFERS}


def test_null_removes_an_optional_field() -> None:
    changed = changed_policy(
        WRITTEN, {"spendingLimits": {"dailyLimit": None}, "approvalThresholds": None}
    )

    policy = policy_of(changed)
    assert policy.spending_limits.daily is None
    assert policy.approval_threshold is None


def test_a_list_replaces_the_whole_list() -> None:
    changed = changed_policy(WRITTEN, {"permissions": ["VIEW_TRANSACTIONS"]})

    assert changed.permissions == ["VIEW_TRANSACTIONS"]


def test_a_new_currency_without_all_amounts_is_refused() -> None:
    euros = {"currency": "EUR", "perTransactionLimit": 90}

    with pytest.raises(AgentRefusedError) as refused:
        changed_policy(WRITTEN, {"spendingLimits": euros, "approvalThresholds": None})

    assert refused.value.errors[0].field == "spendingLimits.currency"
    assert "dailyLimit" in refused.value.errors[0].message


def test_a_new_currency_with_all_amounts_is_accepted() -> None:
    euros = {"currency": "EUR", "perTransactionLimit": 90, "dailyLimit": None}
    threshold = {"currency": "EUR", "amount": 10}

    changed = changed_policy(WRITTEN, {"spendingLimits": euros, "approvalThresholds": threshold})

    assert policy_of(changed).spending_limits == SpendingLimits(currency="EUR", per_transaction=90)


@pytest.mark.parametrize(
    "wrong",
    [
        {"approvalThresholds": {"amount": 5}},
        {"approvalThresholds": {"currency": "USD"}},
        {"approvalThresholds": {"currency": "EUR", "amount": 5}},
    ],
)
def test_a_threshold_that_could_never_apply_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="approvalThresholds"):
        AgentPolicy.model_validate(WRITTEN | wrong)
