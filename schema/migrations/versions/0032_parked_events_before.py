"""Events that were parked before their platform was written get it, too."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0032"
down_revision = "0031"

# By primary key; what a worker removes meanwhile is not found any more.
_FILL: Final = """
    UPDATE parked p SET platform_id = page.platform_id
    FROM (
        SELECT w.customer_id, w.card_id, w.issuer_transaction_token, w.id, c.platform_id
        FROM parked w JOIN cards c ON c.id = w.card_id AND c.customer_id = w.customer_id
        WHERE w.platform_id IS NULL LIMIT 1000
    ) page
    WHERE p.customer_id = page.customer_id AND p.card_id = page.card_id
        AND p.issuer_transaction_token = page.issuer_transaction_token AND p.id = page.id
"""


def upgrade() -> None:
    """Write the platforms, a page at a time, while others park and remove events."""
    change_in_pages(_FILL)


def downgrade() -> None:
    """Leave the platforms, which are right."""
