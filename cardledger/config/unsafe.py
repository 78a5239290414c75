"""What an operator may accept by name although it is unsafe on a network."""

import difflib
from enum import StrEnum


class Unsafe(StrEnum):
    """The names that CARDLEDGER_ACCEPT_UNSAFE may list."""

    SANDBOX = "sandbox"
    PLAINTEXT = "plaintext"
    REDIS_WITHOUT_PASSWORD = "redis-without-password"  # noqa: S105 - a name
    POSTGRESQL_UNVERIFIED = "postgresql-unverified"
    LOOPBACK_WEBHOOKS = "loopback-webhooks"


def parse(text: str) -> frozenset[Unsafe]:
    """Return the names in `text`, which are separated by commas.

    Raises: ValueError for a name that is unknown: a misspelt exception must not look accepted.
    """
    return frozenset(_named(part.strip()) for part in text.split(",") if part.strip())


def _named(name: str) -> Unsafe:
    try:
        return Unsafe(name)
    except ValueError:
        nearest = difflib.get_close_matches(name, list(Unsafe), n=1, cutoff=0.6)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(Unsafe)}"
        raise ValueError(f"unknown exception {name[:64]!r}: {hint}") from None
