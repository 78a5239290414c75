"""What a token must have to grant a policy: an agent reaches no more than its creator. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.platforms.scopes import Permission, check_grant

_NEEDED: Final[Mapping[AgentPermission, frozenset[Permission]]] = {
    AgentPermission.VIEW_TRANSACTIONS: frozenset(),
    AgentPermission.CREATE_TRANSFERS: frozenset({Permission.TRANSACT}),
    AgentPermission.CREATE_QUOTES: frozenset({Permission.TRANSACT}),
    AgentPermission.EXECUTE_QUOTES: frozenset({Permission.TRANSACT}),
    AgentPermission.MANAGE_EXTERNAL_ACCOUNTS: frozenset({Permission.MANAGE}),
}


def needed(permissions: Iterable[str]) -> frozenset[Permission]:
    """Return what a token needs to grant the `permissions` of a policy.

    `VIEW` in any case: every agent reads itself and its actions.
    """
    needs = (_NEEDED[AgentPermission(permission)] for permission in permissions)
    return frozenset({Permission.VIEW}).union(*needs)


def check(permissions: Iterable[str], held: Collection[Permission]) -> None:
    """Check that a token that has `held` may grant a policy with `permissions`.

    Limits, accounts and modes of the policy narrow them, so they are not compared.
    Raises: GrantExceededError.
    """
    check_grant(needed(permissions), held)
