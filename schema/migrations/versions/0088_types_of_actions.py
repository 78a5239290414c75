"""The types of agents' actions hold for all rows."""

from cardledger.schema.migrations.steps import execute_alone

revision = "0088"
down_revision = "0087"


def upgrade() -> None:
    """Check the rows that were there, while others are written."""
    execute_alone("ALTER TABLE agent_actions VALIDATE CONSTRAINT agent_actions_type_check")


def downgrade() -> None:
    """Leave the constraint as it is."""
