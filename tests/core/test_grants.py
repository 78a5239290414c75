"""A grant is allowed exactly when it gives nothing that its creator lacks: every combination."""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations

import pytest

from cardledger.ledger.agents import grants
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.platforms.scopes import GrantExceededError, Permission, check_grant

# What an agent with a permission can do, as permissions of tokens.
GIVES = {
    AgentPermission.VIEW_TRANSACTIONS: {Permission.VIEW},
    AgentPermission.CREATE_TRANSFERS: {Permission.TRANSACT},
    AgentPermission.CREATE_QUOTES: {Permission.TRANSACT},
    AgentPermission.EXECUTE_QUOTES: {Permission.TRANSACT},
    AgentPermission.MANAGE_EXTERNAL_ACCOUNTS: {Permission.VIEW, Permission.MANAGE},
}
ANY_AGENT = {Permission.VIEW}  # Each can read itself.


def subsets(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    every = list(names)
    return chain.from_iterable(combinations(every, size) for size in range(len(every) + 1))


def test_a_token_is_granted_exactly_within_its_creator() -> None:
    for held in subsets(Permission):
        for wanted in subsets(Permission):
            missing = set(wanted) - set(held)
            if not missing:
                check_grant(wanted, [Permission(name) for name in held])
                continue
            with pytest.raises(GrantExceededError) as raised:
                check_grant(wanted, [Permission(name) for name in held])
            assert raised.value.missing == sorted(missing)


def test_an_agent_is_granted_exactly_within_its_creator() -> None:
    for held in subsets(Permission):
        for policy in subsets(AgentPermission):
            given = ANY_AGENT.union(*(GIVES[AgentPermission(name)] for name in policy))
            missing = given - {Permission(name) for name in held}
            if not missing:
                grants.check(policy, [Permission(name) for name in held])
                continue
            with pytest.raises(GrantExceededError) as raised:
                grants.check(policy, [Permission(name) for name in held])
            assert raised.value.missing == sorted(missing)
