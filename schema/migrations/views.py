"""Changes of tables that have a view for one platform, which has the columns of its table.

Unlike `steps`, this is part of the database transaction of a revision: no session sees a table
without its view.
Source: docs/decisions/0052-platform-views.md
"""

from typing import Final

from alembic import op

_ALTER: Final = """
DO $$ DECLARE
    views_in text := current_schema() || '_api';
    view oid := format('%I.%I', views_in, '{table}')::regclass;
    condition text := substring(pg_get_viewdef(view) from E'\\n +WHERE (.*);$');
    names text;
    granted record;
    rights text[] := '{{}}';
BEGIN
    {remember}
    {drop}
    ALTER TABLE {table} {change};
    SELECT string_agg(format('t.%I', attname), ', ' ORDER BY attnum) INTO STRICT names
    FROM pg_attribute
    WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE format('CREATE OR REPLACE VIEW %I.{table} AS SELECT %s FROM {table} t WHERE %s',
        views_in, names, condition) || ' WITH LOCAL CHECK OPTION';
    {restore}
END $$
"""

_REMEMBER: Final = """
    FOR granted IN
        SELECT r.rolname, x.privilege_type, x.attname
        FROM (
            SELECT a.grantee, a.privilege_type, NULL::name AS attname
            FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = view
            UNION ALL
            SELECT a.grantee, a.privilege_type, n.attname
            FROM pg_attribute n, aclexplode(n.attacl) a
            WHERE n.attrelid = view AND NOT n.attisdropped
        ) x JOIN pg_roles r ON r.oid = x.grantee
    LOOP
        rights := rights || format('%s%s ON %I.{table} TO %I', granted.privilege_type,
            coalesce(' (' || quote_ident(granted.attname) || ')', ''), views_in, granted.rolname);
    END LOOP;
"""

_RESTORE: Final = """
    FOR granted IN SELECT unnest(rights) AS what LOOP
        BEGIN
            EXECUTE 'GRANT ' || granted.what;
        EXCEPTION WHEN undefined_column THEN
            NULL;  -- The column is gone.
        END;
    END LOOP;
"""


_CREATE: Final = """
DO $$ DECLARE
    views_in text := current_schema() || '_api';
    names text;
BEGIN
    SELECT string_agg(format('t.%I', attname), ', ' ORDER BY attnum) INTO STRICT names
    FROM pg_attribute
    WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE format('CREATE VIEW %I.{table} AS SELECT %s FROM {table} t WHERE {platform} ='
        ' (SELECT nullif(current_setting(%L, true), %L)::uuid) WITH LOCAL CHECK OPTION',
        views_in, names, 'cardledger.platform_id', '');
    EXECUTE format('COMMENT ON VIEW %I.{table} IS %L', views_in, '{comment}');
    EXECUTE format('GRANT {rights} ON %I.{table} TO %I, %I',
        views_in, current_database() || '_api', current_database() || '_app');
END $$
"""


def create_view(table: str, rights: str, *, platform: str = "t.platform_id") -> None:
    """Create the view of a `table`; `platform` is SQL for the platform of its row `t`.

    `rights` are those of the API's role on it: "SELECT, INSERT, UPDATE (status)".
    """
    op.execute(_CREATE.format(table=table, rights=rights, comment=_COMMENT, platform=platform))


def add_to_table_and_view(table: str, change: str) -> None:
    """Execute ALTER TABLE `table` with the `change`, and show new columns in its view.

    A role may do to a new column what it may do to the whole view; other rights are granted on the
    view as on a table.
    """
    _alter(table, change)


def change_table_below_view(table: str, change: str) -> None:
    """Do as `add_to_table_and_view` with a `change` of columns that the view has.

    For a contract revision: PostgreSQL changes or drops no column that a view has, so the view is
    created again, with its rights and its comment.
    """
    view = "' || quote_ident(views_in) || '." + table
    _alter(
        table,
        change,
        remember=_REMEMBER.replace("{table}", table),
        drop=f"EXECUTE 'DROP VIEW {view}';",
        restore=_RESTORE + f"    EXECUTE 'COMMENT ON VIEW {view} IS ''{_COMMENT}''';",
    )


_COMMENT: Final = "The rows of the platform in the setting cardledger.platform_id."


def _alter(
    table: str, change: str, *, remember: str = "", drop: str = "", restore: str = ""
) -> None:
    op.execute(
        _ALTER.format(table=table, change=change, remember=remember, drop=drop, restore=restore)
    )
