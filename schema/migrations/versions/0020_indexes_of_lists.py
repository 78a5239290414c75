"""The rows of each list, and those that count against a cap, are found by an index."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0020"
down_revision = "0019"

_INDEXES: Final = {
    "cards_live_idx": "cards (customer_id) WHERE state <> 'CLOSED'",
    "cards_platform_card_id_idx": "cards (platform_id, platform_card_id, id)",
    "cards_state_idx": "cards (platform_id, state, id)",
    "customers_platform_id_idx": "customers (platform_id, id)",
    "customers_of_id_idx": "customers (platform_id, platform_customer_id, id)",
    "customers_created_at_idx": "customers (platform_id, created_at, id)",
    "customers_updated_at_idx": "customers (platform_id, updated_at, id)",
    "customers_region_idx": "customers (platform_id, region, id)",
    "customers_type_idx": "customers (platform_id, customer_type, id)",
    "external_accounts_of_platform_idx": (
        "external_accounts (platform_id, id) WHERE customer_id IS NULL AND deleted_at IS NULL"
    ),
    "external_accounts_live_idx": "external_accounts (customer_id) WHERE deleted_at IS NULL",
    "external_accounts_currency_idx": "external_accounts (platform_id, currency, id)",
    "internal_accounts_list_idx": "internal_accounts (platform_id, id)",
    "internal_accounts_currency_idx": "internal_accounts (platform_id, currency, id)",
    "internal_accounts_type_idx": "internal_accounts (platform_id, type, id)",
    "verifications_status_idx": "verifications (platform_id, status, id)",
    "webhook_deliveries_endpoint_id_idx": "webhook_deliveries (endpoint_id, id)",
    "webhook_deliveries_state_idx": (
        "webhook_deliveries (platform_id, state, id) WHERE state <> 'DELIVERED'"
    ),
}


def upgrade() -> None:
    """Build the indexes, one by one."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on)


def downgrade() -> None:
    """Drop the indexes."""
    for name in _INDEXES:
        drop_index_concurrently(name)
