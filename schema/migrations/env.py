"""Alembic's entry: runs the migrations on the connection that `schema/migrate.py` hands over."""

from alembic import context

from cardledger.schema.tables import metadata

if context.is_offline_mode():
    # Named parameters: with psycopg's style, `%` would be printed twice.
    context.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},
        target_metadata=metadata,
        literal_binds=True,
        as_sql=True,
    )
    schema = context.config.attributes["schema"]
    with context.begin_transaction():
        context.execute(f'CREATE SCHEMA "{schema}"')
        context.execute(f'SET search_path = "{schema}"')
        context.run_migrations()
else:
    context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
