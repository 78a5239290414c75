"""Counts and quotas of the rows of a platform, and the function that keeps them."""

from typing import Final

from alembic import op

revision = "0027"
down_revision = "0026"

_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"

_UP: Final = (
    """
    CREATE TABLE row_counts (
        platform_id UUID NOT NULL,
        resource TEXT NOT NULL,
        slot SMALLINT NOT NULL,
        rows BIGINT NOT NULL,
        CONSTRAINT row_counts_pkey PRIMARY KEY (platform_id, resource, slot)
    )
    """,
    (
        "COMMENT ON TABLE row_counts IS 'How many rows of a resource a platform has: the sum of its"
        " slots, so that concurrent requests do not wait for one row; written by a trigger.'"
    ),
    "COMMENT ON COLUMN row_counts.platform_id IS 'The platform.'",
    "COMMENT ON COLUMN row_counts.resource IS 'The table that the rows are in.'",
    (
        "COMMENT ON COLUMN row_counts.slot IS"
        " '0 to 15: by the session that inserted; 16: rows older than schema 0029.'"
    ),
    "COMMENT ON COLUMN row_counts.rows IS 'Rows counted in this slot.'",
    """
    CREATE TABLE row_quotas (
        platform_id UUID NOT NULL,
        resource TEXT NOT NULL,
        rows BIGINT NOT NULL,
        CONSTRAINT row_quotas_pkey PRIMARY KEY (platform_id, resource),
        CONSTRAINT row_quotas_rows_check CHECK (rows >= 0)
    )
    """,
    (
        "COMMENT ON TABLE row_quotas IS"
        " 'How many rows of a resource a platform may have; written by cardledger platform quotas.'"
    ),
    (
        "COMMENT ON COLUMN row_quotas.platform_id IS"
        " 'The platform; the nil UUID: every platform without a quota of its own.'"
    ),
    "COMMENT ON COLUMN row_quotas.resource IS 'The table that the rows are in.'",
    "COMMENT ON COLUMN row_quotas.rows IS 'The most rows, deleted resources included.'",
    # Each session sees its own rows and those that are committed: concurrent ones can exceed the
    # quota by as many rows as they insert at that moment.
    f"""
    CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE
        inserted record;
        quota bigint;
    BEGIN
        FOR inserted IN SELECT platform_id, count(*) AS rows FROM written GROUP BY 1 LOOP
            INSERT INTO row_counts AS c (platform_id, resource, slot, rows)
            VALUES (inserted.platform_id, TG_TABLE_NAME, pg_backend_pid() % 16, inserted.rows)
            ON CONFLICT (platform_id, resource, slot) DO UPDATE SET rows = c.rows + excluded.rows;
            SELECT q.rows INTO quota FROM row_quotas q
            WHERE q.resource = TG_TABLE_NAME
                AND q.platform_id IN (inserted.platform_id, '{_EVERY_PLATFORM}')
            ORDER BY q.platform_id DESC LIMIT 1;
            IF quota < (
                SELECT sum(c.rows) FROM row_counts c
                WHERE c.platform_id = inserted.platform_id AND c.resource = TG_TABLE_NAME
            ) THEN
                RAISE EXCEPTION 'platform % has reached its quota of % rows in %',
                    inserted.platform_id, quota, TG_TABLE_NAME
                    USING ERRCODE = 'CL001', TABLE = TG_TABLE_NAME, DETAIL = quota;
            END IF;
        END LOOP;
        RETURN NULL;
    END $$
    """,
)

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = """
DO $$ BEGIN
    -- Used as the trigger of a table of the caller's own, they would record what is not so.
    REVOKE EXECUTE ON FUNCTION count_rows(), record_acceptance() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION count_rows() SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('GRANT SELECT ON row_counts, row_quotas TO %I, %I',
        current_database() || '_reader', current_database() || '_app');
END $$
"""


def upgrade() -> None:
    """Create tables and function; triggers and quotas come with the next revisions."""
    for statement in (*_UP, _RIGHTS):
        op.execute(statement)


def downgrade() -> None:
    """Count nothing, and refuse nothing."""
    op.execute("DROP FUNCTION count_rows()")
    op.execute("DROP TABLE row_quotas, row_counts")
