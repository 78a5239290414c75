"""Alembic's entry: runs the migrations on the connection that `schema/migrate.py` hands over."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script.revision import Revision
from sqlalchemy import text

from cardledger.schema.migrations.steps import OLDEST_HEAD_AT_FIRST
from cardledger.schema.tables import metadata


def declared_oldest_head(revision: Revision | None) -> str | None:
    """Return what `revision` says about the releases that can use the schema after it."""
    module = getattr(revision, "module", None)
    oldest_head: str | None = getattr(module, "oldest_head", None)
    return oldest_head


def record_oldest_head(migration: MigrationContext, step: MigrationInfo) -> None:
    """Record which releases can use the schema, in the transaction of the revision that says so."""
    declared = declared_oldest_head(step.up_revision)
    if declared is None:
        return
    if not step.is_upgrade:
        before = context.script.iterate_revisions(step.down_revision_ids, "base")
        declared = next(filter(None, map(declared_oldest_head, before)), OLDEST_HEAD_AT_FIRST)
    statement = text("UPDATE schema_compatibility SET oldest_head = :oldest_head")
    migration.execute(statement.bindparams(oldest_head=declared))


def after_step(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: Collection[Any],  # noqa: ARG001 - Alembic calls it by name
    run_args: Mapping[str, Any],  # noqa: ARG001 - the same
) -> None:
    """Complete a revision, and report it to who started the migration."""
    record_oldest_head(ctx, step)
    if not context.is_offline_mode():
        context.config.attributes["on_step"](step)


if context.is_offline_mode():
    # Named parameters: with psycopg's style, `%` would be printed twice.
    context.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},
        target_metadata=metadata,
        transaction_per_migration=True,
        on_version_apply=after_step,
        literal_binds=True,
        as_sql=True,
    )
    schema = context.config.attributes["schema"]
    if schema is not None:
        context.execute(f'CREATE SCHEMA "{schema}"')
        context.execute(f'SET search_path = "{schema}"')
else:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        transaction_per_migration=True,
        on_version_apply=after_step,
    )
with context.begin_transaction():
    context.run_migrations()
