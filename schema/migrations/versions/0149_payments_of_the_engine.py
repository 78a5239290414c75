"""What the engine has begun: no quota refuses what follows, and no other role ends it."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages, execute_alone

revision = "0149"
down_revision = "0148"

# A payment that has arrived and a fee follow from a payment that was requested and counted, or from
# an event. To refuse them would leave that payment half done, and to count them would let payments
# of other platforms use up a quota.
_REQUESTED: Final = "kind NOT IN ('RECEIVED', 'FEE')"

_DECLARED: Final = """DECLARE
        counted uuid[];
        inserted record;"""
_DECLARED_BEFORE: Final = """DECLARE
        inserted record;"""

# PL/pgSQL plans a statement when it is first executed, so only `transfers` needs a column `kind`.
_LOOP: Final = f"""IF TG_TABLE_NAME = 'transfers' THEN
            counted := ARRAY(SELECT platform_id FROM written WHERE {_REQUESTED});
        ELSE
            counted := ARRAY(SELECT platform_id FROM written);
        END IF;
        FOR inserted IN
            SELECT platform_id, count(*) AS rows FROM unnest(counted) AS platform_id GROUP BY 1
        LOOP"""
_LOOP_BEFORE: Final = (
    "FOR inserted IN SELECT platform_id, count(*) AS rows FROM written GROUP BY 1 LOOP"
)

# With its settings and rights; a second run finds nothing to replace.
_REPLACE: Final = """
DO $change$ BEGIN
    EXECUTE replace(replace(pg_get_functiondef('count_rows()'::regprocedure),
        $was${}$was$, $becomes${}$becomes$), $was${}$was$, $becomes${}$becomes$);
END $change$
"""

# One statement sees one state: the trigger counts with the rows themselves. Where count and rows
# are equal it changes nothing, so it can be repeated.
_COUNT: Final = """
    INSERT INTO row_counts AS c (platform_id, resource, slot, rows)
    SELECT counted.platform_id, 'transfers', 16, coalesce(found.rows, 0) - counted.rows
    FROM (
        SELECT platform_id, sum(rows) AS rows FROM row_counts
        WHERE resource = 'transfers' GROUP BY platform_id
    ) counted
    LEFT JOIN (
        SELECT platform_id, count(*) AS rows FROM transfers WHERE {} GROUP BY platform_id
    ) found ON found.platform_id = counted.platform_id
    WHERE counted.rows <> coalesce(found.rows, 0)
    LIMIT 1000000
    ON CONFLICT (platform_id, resource, slot) DO UPDATE SET rows = c.rows + excluded.rows
"""

_COMMENT: Final = "COMMENT ON COLUMN row_counts.slot IS '{}'"
_SLOTS: Final = (
    "0 to 15: by the session that inserted; 16: rows older than schema 0029, less quotes deleted"
    " before 0139 and transfers that the engine inserted before 0149; 17 to 32: deleted rows,"
    " negative, by the session that deleted."
)
_SLOTS_BEFORE: Final = (
    "0 to 15: by the session that inserted; 16: rows older than schema 0029, and quotes deleted"
    " before 0139; 17 to 32: deleted rows, negative, by the session that deleted."
)


# Which status may follow which, and by whom. A step of the engine has a number, except where it
# fails a payment that it has not begun; so a role that cannot number steps, as that of the API,
# does not end what waits for the engine or for a bank.
_MAY_FOLLOW: Final = """NEW.kind <> OLD.kind OR NOT CASE WHEN OLD.kind = 'INTERNAL'
        THEN (OLD.status, NEW.status) IN (('PENDING', 'PROCESSING'), ('PENDING', 'FAILED'),
            ('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED'))
            OR (OLD.status, OLD.settled_at, OLD.updated_at)
                IS NOT DISTINCT FROM (NEW.status, NEW.settled_at, NEW.updated_at)
        ELSE OLD.status = NEW.status
            OR (OLD.status = 'PENDING' AND NEW.status <> 'PENDING')
            OR (OLD.status, NEW.status) IN (('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED'),
                ('COMPLETED', 'FAILED')) END"""
_IS_NO_STEP: Final = """OLD.kind <> 'INTERNAL' AND NEW.status <> OLD.status
        AND NEW.sequence = OLD.sequence
        AND (OLD.sequence > 0 OR OLD.requested_at IS NOT NULL
            AND NOT has_column_privilege(OLD.tableoid, 'sequence', 'UPDATE'))
        OR NEW.requested_at IS DISTINCT FROM OLD.requested_at AND OLD.requested_at IS NOT NULL"""

_GUARD: Final = """
CREATE OR REPLACE TRIGGER only_forward BEFORE UPDATE ON transfers FOR EACH ROW
    WHEN ({})
    EXECUTE FUNCTION refuse_way_back();
ALTER TABLE transfers ENABLE ALWAYS TRIGGER only_forward;
"""


def upgrade() -> None:
    """Replace trigger and function, then subtract what it has counted, while others insert."""
    execute_alone(_GUARD.format(f"{_MAY_FOLLOW} OR {_IS_NO_STEP}"))
    execute_alone(_REPLACE.format(_DECLARED_BEFORE, _DECLARED, _LOOP_BEFORE, _LOOP))
    change_in_pages(_COUNT.format(_REQUESTED))
    execute_alone(_COMMENT.format(_SLOTS))


def downgrade() -> None:
    """Count every row again, and let the API end what the engine has begun."""
    execute_alone(_COMMENT.format(_SLOTS_BEFORE))
    execute_alone(_REPLACE.format(_DECLARED, _DECLARED_BEFORE, _LOOP, _LOOP_BEFORE))
    change_in_pages(_COUNT.format("true"))
    execute_alone(_GUARD.format(_MAY_FOLLOW))
