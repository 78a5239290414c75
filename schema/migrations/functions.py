"""Changes of functions of the schema, beside those that other revisions have made to them."""

from typing import Final

from alembic import op

# PostgreSQL keeps the body of a function in plpgsql as it was written, with its settings. Rights
# stay when a function is replaced.
_CHANGE: Final = """
DO $change$ DECLARE
    before text := pg_get_functiondef('{signature}'::regprocedure);
    after text := replace(before, $was${was}$was$, $becomes${becomes}$becomes$);
BEGIN
    IF after = before THEN
        RAISE EXCEPTION 'function {signature} has another body than this revision changes';
    END IF;
    EXECUTE after;
END $change$
"""


def change(signature: str, was: str, becomes: str) -> None:
    """Replace the text `was` in the body of a function in plpgsql; it must be there."""
    op.execute(_CHANGE.format(signature=signature, was=was, becomes=becomes))


def protect(signature: str) -> None:
    """Let only the owner call a function, and look its names up where the tables are now.

    Names in a function with the rights of its owner must not be looked up where its caller says.
    """
    op.execute(f"""
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION {signature} SET search_path = %I, pg_temp', current_schema());
END $$
""")
