"""Roles for finance: one that reads its schema, and what people may do; who was let in and when.

The schema is `finance`, or `<schema of the tables>_finance` where a schema of that name is not ours
(`schema.finance`).
"""

from typing import Final

from alembic import op

revision = "0040"
down_revision = "0039"

# People are logins of their own, which have these roles; only the first can log in itself.
# PostgreSQL would cut a longer name off, and two roles could get the same one.
_ROLES: Final = """
DO $$ DECLARE suffix text; role text; BEGIN
    FOREACH suffix IN ARRAY ARRAY['finance', 'prepare', 'approve'] LOOP
        role := current_database() || '_' || suffix;
        IF octet_length(role) > 63 THEN
            RAISE EXCEPTION 'the name of the database is too long for role %, of at most 63 bytes',
                role;
        END IF;
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = role);
        BEGIN
            EXECUTE format('CREATE ROLE %I %s', role,
                CASE suffix WHEN 'finance' THEN 'LOGIN' ELSE 'NOLOGIN' END);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'role % may not create role %: give it CREATEROLE, or create the'
                ' roles %_finance, %_prepare and %_approve first',
                current_user, role, current_database(), current_database(), current_database()
                USING ERRCODE = 'insufficient_privilege';
        END;
        EXECUTE format('COMMENT ON ROLE %I IS ''cardledger''', role);
    END LOOP;
END $$
"""

_PEOPLE: Final = """
CREATE TABLE person_changes (
    name TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    change TEXT NOT NULL,
    may TEXT[] NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    changed_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT person_changes_pkey PRIMARY KEY (id),
    CONSTRAINT person_changes_change_check CHECK (change IN ('ADDED', 'REMOVED'))
);
COMMENT ON TABLE person_changes IS 'Who became a person with a login, and who ceased to be; append-only.';
COMMENT ON COLUMN person_changes.id IS 'Ids rise with time.';
COMMENT ON COLUMN person_changes.name IS 'The person: a role of PostgreSQL.';
COMMENT ON COLUMN person_changes.change IS 'ADDED or REMOVED.';
COMMENT ON COLUMN person_changes.may IS 'What the person may do, or could do before: prepare, approve.';
COMMENT ON COLUMN person_changes.changed_at IS 'When it was changed, by the clock of PostgreSQL.';
COMMENT ON COLUMN person_changes.changed_by IS 'The login that changed it; written by the database.';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON person_changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE person_changes ENABLE ALWAYS TRIGGER append_only;
DO $$ BEGIN
    EXECUTE format('GRANT SELECT ON person_changes TO %I, %I',
        current_database() || '_app', current_database() || '_reader');
END $$
"""  # noqa: E501 - a sentence a line

_SCHEMA: Final = """
DO $$ DECLARE
    tables_in text := current_schema();
    views_in text := 'finance';
    role text;
BEGIN
    -- A schema of the user's own, or of another installation in this database.
    IF to_regnamespace('finance') IS NOT NULL THEN
        views_in := tables_in || '_finance';
        IF octet_length(views_in) > 63 THEN
            RAISE EXCEPTION 'there is a schema finance, and the name of schema % is too long for'
                ' schema %, of at most 63 bytes', tables_in, views_in;
        END IF;
    ELSIF to_regnamespace(quote_ident(tables_in || '_finance')) IS NOT NULL THEN
        RAISE EXCEPTION 'there is a schema %_finance, which is not of cardledger: give it'
            ' another name',
            tables_in;
    END IF;
    EXECUTE format('CREATE SCHEMA %I', views_in);
    EXECUTE format('COMMENT ON SCHEMA %I IS %L', views_in,
        'The books for finance: views of the tables of cardledger, without personal data.');
    FOREACH role IN ARRAY ARRAY['finance', 'reader', 'app'] LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', views_in,
            current_database() || '_' || role);
    END LOOP;
END $$
"""

_DROP_SCHEMA: Final = """
DO $$ DECLARE
    own text := current_schema() || '_finance';
BEGIN
    EXECUTE format('DROP SCHEMA %I',
        CASE WHEN to_regnamespace(quote_ident(own)) IS NULL THEN 'finance' ELSE own END);
END $$
"""

# A role of that name may be the user's own: only the one with our comment is dropped, and not while
# another installation in this database, or anything else, depends on it. What people may do goes
# with it; their logins stay, and can read nothing.
_RELEASE: Final = """
DO $$ DECLARE suffix text; role text; BEGIN
    FOREACH suffix IN ARRAY ARRAY['finance', 'prepare', 'approve'] LOOP
        role := current_database() || '_' || suffix;
        CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role
            AND shobj_description(oid, 'pg_authid') = 'cardledger');
        BEGIN
            EXECUTE format('DROP ROLE %I', role);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            EXIT;  -- The first of them reads the schema of the other installation.
        END;
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Create the roles, the schema, and the table of people."""
    op.execute(_ROLES)
    op.execute(_PEOPLE)
    op.execute(_SCHEMA)


def downgrade() -> None:
    """Remove them."""
    op.execute(_DROP_SCHEMA)
    op.execute("DROP TABLE person_changes")
    op.execute(_RELEASE)
