"""Views by which the API sees the rows of one platform at a time.

They have the names and columns of their tables, in a PostgreSQL schema of their own that comes
first in the search path of the API's connections, so that statements are the same with and without
them. Which platform a connection is for is a setting of its session; without it the views are
empty. A row of another platform can be neither read, changed nor written by them.
Source: docs/decisions/0052-platform-views.md
"""

from collections.abc import Mapping
from typing import Final

SETTING: Final = "cardledger.platform_id"
"""The setting that says whose rows a session sees; a UUID, or nothing."""

PARENTS: Final[Mapping[str, str | None]] = {
    "agent_actions": None,
    "agent_device_codes": "agents",
    "agents": None,
    "api_tokens": None,
    "beneficial_owners": None,
    "card_reveals": "cards",
    "card_transaction_events": "card_transactions",
    "card_transactions": None,
    "cards": None,
    "customers": None,
    "deposits": None,
    "external_accounts": None,
    "idempotency_keys": None,
    "internal_accounts": None,
    "outbox": None,
    "outcomes": None,
    "platforms": None,
    "rejection_retries": None,
    "rejections": None,
    "system_accounts": None,
    "transfers": None,
    "verifications": None,
    "webhook_attempts": "webhook_deliveries",
    "webhook_deliveries": None,
    "webhook_endpoints": None,
    "webhook_signing_keys": None,
}
"""The tables with a view, each with the table that says of which platform a row is.

None: its own column does.
"""

SINCE: Final = "0024"
"""The revision that created the views."""

_SUFFIX: Final = "_api"


def schema_beside(tables: str) -> str:
    """Return the PostgreSQL schema of the views, beside the one of the `tables`."""
    return tables + _SUFFIX


def search_path(tables: str) -> str:
    """Return the search path on which the views come before the `tables`."""
    return f"{schema_beside(tables)},{tables}"
