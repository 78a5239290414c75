"""Changes of the schema that finance reads, whose name only the database knows.

Source: docs/decisions/0063-finance-schema.md
"""

from typing import Final

from alembic import op

_RUN: Final = """
DO $run$ DECLARE
    own text := current_schema() || '_finance';
    is_own boolean := to_regnamespace(quote_ident(own)) IS NOT NULL;
    views_in text := CASE WHEN is_own THEN own ELSE 'finance' END;
BEGIN
    EXECUTE replace($statements${statements}$statements$, 'finance.', quote_ident(views_in) || '.');
END $run$
"""

_GRANT: Final = """
DO $run$ DECLARE
    own text := current_schema() || '_finance';
    is_own boolean := to_regnamespace(quote_ident(own)) IS NOT NULL;
    views_in text := CASE WHEN is_own THEN own ELSE 'finance' END;
    role text;
BEGIN
    EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', views_in);
    FOREACH role IN ARRAY ARRAY['finance', 'reader', 'app'] LOOP
        role := current_database() || '_' || role;
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', views_in, role);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', views_in, role);
    END LOOP;
END $run$
"""


def run(statements: str) -> None:
    """Execute `statements`, in which `finance.` stands before the names of the schema.

    Names of tables are looked up where they are now, for good: views and bodies of functions
    (BEGIN ATOMIC) keep what they refer to, whatever a caller's search path says.
    """
    op.execute(_RUN.replace("{statements}", statements))


def grant_again() -> None:
    """Do as `grant` does on the way back, where a role may be gone."""
    named = "role := current_database() || '_' || role;"
    op.execute(
        _GRANT.replace(named, f"{named} CONTINUE WHEN to_regrole(quote_ident(role)) IS NULL;")
    )


def grant() -> None:
    """Let the roles that read the schema read all that is in it, and no other role."""
    op.execute(_GRANT)
