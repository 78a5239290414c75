"""What a token may do: its permissions, its limits, and what it may grant to others."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from cardledger.schema.ids import Id


class Permission(StrEnum):
    """What a token allows; no permission includes another."""

    VIEW = "VIEW"
    TRANSACT = "TRANSACT"
    MANAGE = "MANAGE"
    TOKENS = "TOKENS"  # Creates and deletes tokens.
    AGENTS = "AGENTS"  # Creates, connects, changes and deletes agents.
    INGEST = "INGEST"  # Sends network events and reads their outcomes.


class GrantExceededError(Exception):
    """A token would grant permissions that it lacks, which are `missing`; nothing was written."""

    def __init__(self, missing: Iterable[Permission]) -> None:
        self.missing: Final = sorted(missing)
        super().__init__(f"the token lacks {', '.join(self.missing)}")


def check_grant(wanted: Iterable[str], held: Collection[Permission]) -> None:
    """Check that a token with the permissions `held` may grant `wanted`: it grants what it has.

    Raises: GrantExceededError.
    """
    missing = {Permission(permission) for permission in wanted} - frozenset(held)
    if missing:
        raise GrantExceededError(missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Until when, and from which networks, a token can be used; None is no limit."""

    expires_at: datetime | None = None
    allowed_addresses: Sequence[str] | None = None

    def is_expired(self, at: datetime) -> bool:
        """Return whether the token has ended at `at`."""
        return self.expires_at is not None and self.expires_at <= at

    def allows_address(self, address: str) -> bool:
        """Return whether a caller from `address` may use the token; "" is a caller without one."""
        if self.allowed_addresses is None:
            return True
        try:
            caller = ip_address(address)
        except ValueError:
            return False
        caller = getattr(caller, "ipv4_mapped", None) or caller
        return any(caller in _network(network) for network in self.allowed_addresses)

    def contains(self, other: "Limits") -> bool:
        """Return whether `other` ends no later, and lies within the same networks."""
        if self.expires_at is not None and (
            other.expires_at is None or other.expires_at > self.expires_at
        ):
            return False
        if self.allowed_addresses is None:
            return True
        return other.allowed_addresses is not None and all(
            any(_is_within(network, allowed) for allowed in self.allowed_addresses)
            for network in other.allowed_addresses
        )


@lru_cache(maxsize=10_000)  # Parsed for each request otherwise.
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


def _is_within(network: str, allowed: str) -> bool:
    inner, outer = _network(network), _network(allowed)
    return (
        inner.version == outer.version
        and inner.network_address in outer
        and inner.broadcast_address in outer
    )


NO_LIMITS: Final = Limits()


class LimitsExceededError(Exception):
    """A token would grant access beyond its own expiry or networks; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An authenticated token."""

    id: Id
    platform_id: Id
    permissions: frozenset[Permission]
    limits: Limits = NO_LIMITS

    def check_grant(self, wanted: Iterable[str], limits: Limits) -> None:
        """Check that this token may grant another one `wanted` within `limits`.

        Raises: GrantExceededError, LimitsExceededError.
        """
        check_grant(wanted, self.permissions)
        if not self.limits.contains(limits):
            raise LimitsExceededError

    def allows(self, permission: Permission) -> bool:
        """Return whether this token may do what needs `permission`."""
        return permission in self.permissions
