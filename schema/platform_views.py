"""Views by which the API sees the rows of one platform at a time.

They have the names and columns of their tables, in a PostgreSQL schema of their own that comes
first in the search path of the API's connections, so that statements are the same with and without
them. Which platform a connection is for is a setting of its session; without it the views are
empty. A row of another platform can be neither read, changed nor written by them.
Source: docs/decisions/0052-platform-views.md
"""

from typing import Final

SETTING: Final = "cardledger.platform_id"
"""The setting that says whose rows a session sees; a UUID, or nothing."""

VIEWS: Final = (
    "agent_actions",
    "agent_device_codes",
    "agents",
    "api_tokens",
    "authentication_challenges",
    "authentication_passkeys",
    "authentication_resets",
    "beneficial_owners",
    "card_reveals",
    "card_transaction_events",
    "card_transactions",
    "cards",
    "conversion_details",
    "customer_authentication",
    "customer_upload_parts",
    "customer_uploads",
    "customers",
    "deposits",
    "document_contents",
    "document_pieces",
    "document_usage",
    "documents",
    "entries",
    "external_account_challenges",
    "external_accounts",
    "idempotency_keys",
    "internal_accounts",
    "invitations",
    "kyc_links",
    "outbox",
    "outcomes",
    "parked",
    "platform_exchange_rates",
    "platforms",
    "quotes",
    "rejection_retries",
    "rejections",
    "system_accounts",
    "transfers",
    "trial_balances",
    "verifications",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_signing_keys",
)
"""The tables with a view."""

SINCE: Final = "0024"
"""The revision that created the views."""

_SUFFIX: Final = "_api"


def schema_beside(tables: str) -> str:
    """Return the PostgreSQL schema of the views, beside the one of the `tables`."""
    return tables + _SUFFIX


def search_path(tables: str) -> str:
    """Return the search path on which the views come before the `tables`."""
    return f"{schema_beside(tables)},{tables}"
