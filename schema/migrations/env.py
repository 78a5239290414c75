"""Alembic's entry: runs the migrations on the connection that `schema/migrate.py` hands over."""

from alembic import context

from cardledger.schema import location
from cardledger.schema.tables import metadata

if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql", target_metadata=metadata, literal_binds=True, as_sql=True
    )
    with context.begin_transaction():
        context.execute(f"CREATE SCHEMA {location.DEFAULT}")
        context.execute(f"SET search_path = {location.DEFAULT}")
        context.run_migrations()
else:
    context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
