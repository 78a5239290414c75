"""Changes of the schema that finance reads, whose name only the database knows.

Source: docs/decisions/0063-finance-schema.md
"""

from collections.abc import Iterable
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
    function regprocedure;
BEGIN
    EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', views_in);
    FOREACH role IN ARRAY ARRAY['finance', 'reader', 'app'] LOOP
        role := current_database() || '_' || role;
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', views_in, role);
        FOR function IN
            SELECT oid FROM pg_proc
            WHERE pronamespace = quote_ident(views_in)::regnamespace AND provolatile <> 'v'
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, role);
        END LOOP;
    END LOOP;
END $run$
"""

_GRANT_TO_PEOPLE: Final = """
DO $act$ BEGIN
    EXECUTE format('GRANT EXECUTE ON FUNCTION finance.{function} TO %I',
        current_database() || '_{right}');
END $act$
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
    """Let the roles that read the schema read all that is in it, and no other role.

    A function that is volatile changes something: it is for people (`grant_to_people`).
    """
    op.execute(_GRANT)


def grant_to_people(right: str, functions: Iterable[str]) -> None:
    """Let people with `right`, one of `roles.Right`, call `functions` of the schema, after `grant`.

    Each is named with the types of its arguments: "approve_closing(uuid)".
    """
    for function in functions:
        run(_GRANT_TO_PEOPLE.format(function=function, right=right))
