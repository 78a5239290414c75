"""Every run of `cardledger verify` is recorded; differences are in the way of closing a period."""

import importlib
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0145"
down_revision = "0144"

_BEFORE: Final = importlib.import_module(
    "cardledger.schema.migrations.versions.0132_finance_bank_moves"
)
_TABLE: Final = "book_verification_runs"

_CREATE: Final = f"""
CREATE TABLE {_TABLE} (
    began_at timestamptz NOT NULL,
    differences bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    ended_at timestamptz NOT NULL DEFAULT now(),
    ended_by text NOT NULL DEFAULT SESSION_USER,
    CONSTRAINT {_TABLE}_pkey PRIMARY KEY (began_at, id),
    CONSTRAINT {_TABLE}_differences_check CHECK (differences >= 0)
);
COMMENT ON TABLE {_TABLE} IS
    'Runs of `cardledger verify`, append-only; that which began last says whether the books hold.';
COMMENT ON COLUMN {_TABLE}.began_at IS
    'When its database transaction began, of which it has seen the snapshot.';
COMMENT ON COLUMN {_TABLE}.differences IS 'Differences that it has found; 0: the books held.';
COMMENT ON COLUMN {_TABLE}.id IS 'Tells runs apart that began at the same time.';
COMMENT ON COLUMN {_TABLE}.ended_at IS 'When it was recorded; written by the database.';
COMMENT ON COLUMN {_TABLE}.ended_by IS 'The login that verified; written by the database.';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {_TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE {_TABLE} ENABLE ALWAYS TRIGGER append_only;
"""

# Who has recorded a run, and when, is written by the database.
_RIGHTS: Final = f"""
DO $$ DECLARE
    db text := current_database();
BEGIN
    EXECUTE format('GRANT SELECT ON {_TABLE} TO %I, %I', db || '_app', db || '_reader');
    EXECUTE format('GRANT SELECT (began_at, differences, id, ended_at) ON {_TABLE} TO %I',
        db || '_api');
    EXECUTE format('GRANT INSERT (began_at, differences) ON {_TABLE} TO %I', db || '_app');
END $$
"""

_KIND: Final = """
INSERT INTO closing_kinds (kind, meaning, remedy, is_lasting) VALUES ('DIFFERENCES',
    'the last `cardledger verify` has found differences in the books',
    'repair what `cardledger verify` names, and run it again', true)
ON CONFLICT (kind) DO NOTHING
"""
_REFUSE: Final = f"""
DO $$ BEGIN
    IF (SELECT differences FROM {_TABLE} ORDER BY began_at DESC, id DESC LIMIT 1) > 0 THEN
        RAISE EXCEPTION 'the last verification found differences in the books, which the release'
            ' before does not know: repair them and verify first';
    END IF;
END $$
"""
_END: Final = ";\nEND;"
_WITH_DIFFERENCES: Final = f"""
    UNION ALL
    SELECT 'DIFFERENCES', r.differences, 'found at '
        || to_char(r.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    FROM (
        SELECT differences, ended_at FROM {_TABLE} ORDER BY began_at DESC, id DESC LIMIT 1
    ) r
    WHERE r.differences > 0{_END}"""


def upgrade() -> None:
    """Create the table, and find differences at a closing; earlier runs are not known."""
    op.execute(_CREATE)
    op.execute(_RIGHTS)
    op.execute(_KIND)
    finance.run(f"CREATE OR REPLACE {_findings().removesuffix(_END)}{_WITH_DIFFERENCES}")


def downgrade() -> None:
    """Remove it, unless the books differ; the kind stays: a closing may have allowed it."""
    op.execute(_REFUSE)
    finance.run(f"CREATE OR REPLACE {_findings()}")
    op.execute(f"DROP TABLE {_TABLE}")


def _findings() -> str:
    """Return what revision 0132 has made of the function that says what is in the way."""
    before = vars(_BEFORE)
    findings: str = before["_findings"]().removesuffix(before["_END"]) + before["_WITH_BANK"]
    assert findings.endswith(_END)
    return findings
