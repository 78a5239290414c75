"""Alembic's entry: runs the migrations on the connection that `schema/migrate.py` hands over."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script.revision import Revision
from sqlalchemy import text

from cardledger.schema.compatibility import OLDEST_HEAD_FINISHED, OLDEST_HEAD_LIMITED
from cardledger.schema.migrations.steps import OLDEST_HEAD_AT_FIRST
from cardledger.schema.tables import metadata

_RAISE: Final = text(
    "UPDATE schema_compatibility SET oldest_head = greatest(oldest_head, :oldest_head)"
)
_LOWER: Final = text("UPDATE schema_compatibility SET oldest_head = :oldest_head")
# What the end of a deployment has taken is not given back above the revision that it needs.
_LOWER_UNLESS_FINISHED: Final = text(
    "UPDATE schema_compatibility SET oldest_head = greatest(:oldest_head,"
    " (SELECT CAST(:finished AS text) FROM inbox_macs WHERE is_required))"
)

_FINISHED: Final = (OLDEST_HEAD_LIMITED, OLDEST_HEAD_FINISHED)


def declared_oldest_head(revision: Revision | None) -> str | None:
    """Return what `revision` says about the releases that can use the schema after it."""
    module = getattr(revision, "module", None)
    oldest_head: str | None = getattr(module, "oldest_head", None)
    return oldest_head


def record_oldest_head(migration: MigrationContext, step: MigrationInfo) -> None:
    """Record which releases can use the schema, in the transaction of the revision that says so."""
    declared = declared_oldest_head(step.up_revision)
    if step.is_upgrade:
        if declared is not None:
            migration.execute(_RAISE.bindparams(oldest_head=declared))
    elif declared is not None or step.up_revision_id in _FINISHED:
        before = context.script.iterate_revisions(step.down_revision_ids, "base")
        lowered = next(filter(None, map(declared_oldest_head, before)), OLDEST_HEAD_AT_FIRST)
        remaining = [each for each in _FINISHED if each < str(step.up_revision_id)]
        migration.execute(
            _LOWER_UNLESS_FINISHED.bindparams(oldest_head=lowered, finished=max(remaining))
            if remaining
            else _LOWER.bindparams(oldest_head=lowered)
        )


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
