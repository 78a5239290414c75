"""Views by which the API sees the rows of one platform at a time, with the rights of its role.

The rights that the role has on the tables are taken by `cardledger migrate --finish`: the previous
release needs them.
"""

from typing import Final

from alembic import op

revision = "0024"
down_revision = "0023"

# A subquery without columns of the row: PostgreSQL reads the setting once for each statement.
_PLATFORM: Final = "(SELECT nullif(current_setting('cardledger.platform_id', true), '')::uuid)"
_OWN: Final = f"t.platform_id = {_PLATFORM}"

_CONDITIONS: Final = {
    "agent_actions": _OWN,
    "agent_device_codes": (
        f"EXISTS (SELECT FROM agents p WHERE p.id = t.agent_id AND p.platform_id = {_PLATFORM})"
    ),
    "agents": _OWN,
    "api_tokens": _OWN,
    "beneficial_owners": _OWN,
    "card_reveals": (
        f"EXISTS (SELECT FROM cards p WHERE p.id = t.card_id AND p.platform_id = {_PLATFORM})"
    ),
    "card_transaction_events": (
        "EXISTS (SELECT FROM card_transactions p WHERE p.id = t.card_transaction_id"
        f" AND p.customer_id = t.customer_id AND p.platform_id = {_PLATFORM})"
    ),
    "card_transactions": _OWN,
    "cards": _OWN,
    "customers": _OWN,
    "deposits": _OWN,
    "external_accounts": _OWN,
    "idempotency_keys": _OWN,
    "internal_accounts": _OWN,
    "outbox": _OWN,
    "outcomes": _OWN,
    "platforms": f"t.id = {_PLATFORM}",
    "rejection_retries": _OWN,
    "rejections": _OWN,
    "system_accounts": _OWN,
    "transfers": _OWN,
    "verifications": _OWN,
    "webhook_attempts": (
        "EXISTS (SELECT FROM webhook_deliveries p WHERE p.id = t.delivery_id"
        f" AND p.customer_id = t.customer_id AND p.platform_id = {_PLATFORM})"
    ),
    "webhook_deliveries": _OWN,
    "webhook_endpoints": _OWN,
    "webhook_signing_keys": _OWN,
}

_CREATE: Final = """
DO $$ DECLARE
    tables_in text := current_schema();
    views_in text := current_schema() || '_api';
    api text := current_database() || '_api';
    app text := current_database() || '_app';
    view record;
    granted record;
    names text;
BEGIN
    IF octet_length(views_in) > 63 THEN
        RAISE EXCEPTION 'the name of schema % is too long for schema %, of at most 63 bytes',
            tables_in, views_in;
    END IF;
    EXECUTE format('CREATE SCHEMA %I', views_in);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I, %I', views_in, api, app);
    FOR view IN SELECT * FROM (VALUES {conditions}) AS v (name, condition) LOOP
        SELECT string_agg(format('t.%I', attname), ', ' ORDER BY attnum) INTO STRICT names
        FROM pg_attribute
        WHERE attrelid = format('%I.%I', tables_in, view.name)::regclass
            AND attnum > 0 AND NOT attisdropped;
        EXECUTE format('CREATE VIEW %I.%I AS SELECT %s FROM %I.%I t WHERE %s',
            views_in, view.name, names, tables_in, view.name, view.condition)
            || ' WITH LOCAL CHECK OPTION';
        EXECUTE format('COMMENT ON VIEW %I.%I IS %L', views_in, view.name,
            'The rows of the platform in the setting cardledger.platform_id.');
        {copy_rights}
    END LOOP;
END $$
"""

_COPY_RIGHTS: Final = """
        FOR granted IN
            SELECT r.rolname,
                x.privilege_type || coalesce(' (' || quote_ident(x.attname) || ')', '') AS what
            FROM (
                SELECT a.grantee, a.privilege_type, NULL::name AS attname
                FROM pg_class c, aclexplode(c.relacl) a
                WHERE c.oid = format('%I.%I', {source}, view.name)::regclass
                UNION ALL
                SELECT a.grantee, a.privilege_type, n.attname
                FROM pg_attribute n, aclexplode(n.attacl) a
                WHERE n.attrelid = format('%I.%I', {source}, view.name)::regclass
                    AND NOT n.attisdropped  -- Its rights may still be there.
            ) x JOIN pg_roles r ON r.oid = x.grantee
            WHERE r.rolname IN ({roles})
        LOOP
            EXECUTE format('GRANT %s ON %I.%I TO %I',
                granted.what, {target}, view.name, granted.rolname);
        END LOOP;
"""

_DROP: Final = """
DO $$ DECLARE
    tables_in text := current_schema();
    views_in text := current_schema() || '_api';
    api text := current_database() || '_api';
    view record;
    granted record;
BEGIN
    FOR view IN SELECT relname AS name FROM pg_class
        WHERE relnamespace = views_in::regnamespace AND relkind = 'v'
    LOOP
        {copy_rights}
        EXECUTE format('DROP VIEW %I.%I', views_in, view.name);
    END LOOP;
    EXECUTE format('DROP SCHEMA %I', views_in);
    EXECUTE format('GRANT SELECT ON acceptances, duplicates, entries, parked, pending_pulls TO %I',
        api);
END $$
"""


def _literal(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _block(template: str, *, source: str, target: str, roles: str) -> str:
    conditions = ", ".join(
        f"({_literal(name)}, {_literal(condition)})" for name, condition in _CONDITIONS.items()
    )
    for name, value in (
        ("copy_rights", _COPY_RIGHTS),
        ("conditions", conditions),
        ("source", source),
        ("target", target),
        ("roles", roles),
    ):
        template = template.replace(f"{{{name}}}", value)
    return template


def upgrade() -> None:
    """Create the views, each with the rights on its table."""
    op.execute(_block(_CREATE, source="tables_in", target="views_in", roles="api, app"))


def downgrade() -> None:
    """Give the API's role the rights on the tables back, and drop the views."""
    op.execute(_block(_DROP, source="views_in", target="tables_in", roles="api"))
