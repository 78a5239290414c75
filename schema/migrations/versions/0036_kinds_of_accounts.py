"""The kinds of system accounts are those of the chart of accounts."""

from typing import Final

from alembic import op

revision = "0036"
down_revision = "0035"

_COMMENT: Final = "COMMENT ON COLUMN system_accounts.kind IS '{}'"
_BEFORE: Final = (
    "Account of the chart. CARD_HOLDS, NETWORK_SETTLEMENT: liability, normal balance credit;"
    " RECEIVABLE, SANDBOX_FUNDING: asset, debit; OPERATOR_LOSS: expense, debit; TRANSFERS: clearing"
    " account, zero after every transfer."
)
_AFTER: Final = (
    "Account of the chart (`chart_of_accounts`, which has its class): CARD_HOLDS,"
    " NETWORK_SETTLEMENT, RECEIVABLE, SANDBOX_FUNDING, OPERATOR_LOSS, SETTLEMENT_BANK, SUSPENSE,"
    " INTERCHANGE, NETWORK_FEES; TRANSFERS: clearing account, zero after every transfer."
)


def upgrade() -> None:
    """Replace the list of kinds by a reference; revision 0039 checks the rows that are there."""
    op.execute("ALTER TABLE system_accounts DROP CONSTRAINT system_accounts_kind_check")
    op.execute(
        "ALTER TABLE system_accounts ADD CONSTRAINT system_accounts_kind_check"
        " CHECK (kind <> 'CUSTOMER') NOT VALID"
    )
    op.execute(
        "ALTER TABLE system_accounts ADD CONSTRAINT system_accounts_kind_fkey"
        " FOREIGN KEY (kind) REFERENCES chart_of_accounts (kind) NOT VALID"
    )
    op.execute(_COMMENT.format(_AFTER))


def downgrade() -> None:
    """Put the list back; accounts of other kinds have been removed."""
    op.execute(_COMMENT.format(_BEFORE))
    op.execute("ALTER TABLE system_accounts DROP CONSTRAINT system_accounts_kind_fkey")
    op.execute("ALTER TABLE system_accounts DROP CONSTRAINT system_accounts_kind_check")
    op.execute(
        "ALTER TABLE system_accounts ADD CONSTRAINT system_accounts_kind_check CHECK (kind IN"
        " ('CARD_HOLDS', 'NETWORK_SETTLEMENT', 'RECEIVABLE', 'SANDBOX_FUNDING', 'OPERATOR_LOSS',"
        " 'TRANSFERS')) NOT VALID"
    )
