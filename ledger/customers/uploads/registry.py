"""Jobs that create customers from a file: accepted, claimed part by part, finished once.

What a part has created is committed together with its progress and without the part: whatever ends
a process, each row makes one customer or one error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.uploads import csv_files
from cardledger.ledger.customers.uploads.csv_files import ParsedFile, UnreadableError
from cardledger.ledger.messaging import outbox
from cardledger.ledger.storage import caps
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.uploads import (
    CustomerUploadResource,
    UploadError,
    UploadProgress,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.envelope import WebhookType

UNFINISHED_LIMIT: Final = 5
"""The most jobs of a platform that are not finished."""

ERROR_LIMIT: Final = 100
"""Errors that a job keeps; its progress counts all."""

RETENTION: Final = timedelta(days=90)
"""How long a job is kept after its end."""

KEPT_LIMIT: Final = 1_000
"""Jobs of a platform that are kept, the newest: each has errors of up to some 200 kB."""

_PARTS_AT_A_TIME: Final = 20
_FILE: Final = "file"
_NO_CUSTOMER: Final = Id(bytes(16))

_UPLOADS: Final = tables.customer_uploads.c
_PARTS: Final = tables.customer_upload_parts.c

_SHOWN: Final = select(tables.customer_uploads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that this database transaction has claimed, with its next part; None: no part left."""

    id: Id
    platform_id: Id
    columns: Sequence[str]
    errors: Sequence[dict[str, Any]]
    part_number: int | None
    rows: Sequence[csv_files.Row]


async def check_room(
    connection: AsyncConnection, *, platform_id: Id, with_lock: bool = False
) -> None:
    """Check that the platform may have another job, before its file is received.

    Raises: CapReachedError.
    """
    await caps.check(
        connection,
        tables.customer_uploads,
        _UPLOADS.completed_at.is_(None),
        platform_id=platform_id,
        limit=UNFINISHED_LIMIT,
        noun="unfinished uploads of customers",
        advice="; wait until one is finished",
        with_lock=with_lock,
    )


async def create(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    file: ParsedFile | UnreadableError,
    at: datetime,
) -> CustomerUploadResource:
    """Accept a file as a job.

    Raises: CapReachedError; nothing has been written.
    """
    await check_room(connection, platform_id=platform_id, with_lock=True)
    key = new_id()
    parsed = file if isinstance(file, ParsedFile) else None
    errors = [] if parsed is not None else [_unreadable(str(file))]
    await connection.execute(
        tables.customer_uploads.insert().values(
            id=key,
            platform_id=platform_id,
            status="PENDING",
            columns=[] if parsed is None else list(parsed.columns),
            total=0 if parsed is None else parsed.total,
            errors=[error.wire() for error in errors],
            created_at=at,
            updated_at=at,
        )
    )
    if parsed is not None:
        await _keep_parts(connection, platform_id, key, parsed.parts)
    created = await get(connection, platform_id=platform_id, upload_id=key)
    assert created is not None
    return created


async def _keep_parts(
    connection: AsyncConnection, platform_id: Id, upload_id: Id, parts: Sequence[str]
) -> None:
    """Write the parts of a job, few at a time: the event loop goes on between two statements."""
    rows = [
        {"upload_id": upload_id, "number": number, "platform_id": platform_id, "rows": part}
        for number, part in enumerate(parts)
    ]
    for first in range(0, len(rows), _PARTS_AT_A_TIME):
        batch = rows[first : first + _PARTS_AT_A_TIME]
        await connection.execute(tables.customer_upload_parts.insert(), batch)


async def get(
    connection: AsyncConnection, *, platform_id: Id, upload_id: Id
) -> CustomerUploadResource | None:
    """Return the platform's job, or None when it has no such job."""
    rows = await connection.execute(
        _SHOWN.where(_UPLOADS.id == upload_id, _UPLOADS.platform_id == platform_id)
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def unfinished(connection: AsyncConnection, *, limit: int) -> Sequence[tuple[Id, Id]]:
    """Return platform and id of jobs that are not finished, of all platforms.

    They are drawn by lot: whatever a platform has accepted, no other one waits for its end.
    """
    rows = await connection.execute(
        select(_UPLOADS.platform_id, _UPLOADS.id)
        .where(_UPLOADS.completed_at.is_(None))
        .order_by(func.random())
        .limit(limit)
    )
    return [(row.platform_id, row.id) for row in rows.all()]


async def claim(connection: AsyncConnection, *, platform_id: Id, upload_id: Id) -> Job | None:
    """Lock a job until the database transaction ends; None: it is finished, or locked already."""
    rows = await connection.execute(
        select(_UPLOADS.columns, _UPLOADS.errors)
        .where(
            _UPLOADS.id == upload_id,
            _UPLOADS.platform_id == platform_id,
            _UPLOADS.completed_at.is_(None),
        )
        .with_for_update(skip_locked=True)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    parts = await connection.execute(
        select(_PARTS.number, _PARTS.rows)
        .where(_PARTS.upload_id == upload_id)
        .order_by(_PARTS.number)
        .limit(1)
    )
    part = parts.one_or_none()
    return Job(
        id=upload_id,
        platform_id=platform_id,
        columns=row.columns,
        errors=row.errors,
        part_number=None if part is None else part.number,
        rows=[] if part is None else csv_files.rows_of(part.rows),
    )


async def record(
    connection: AsyncConnection, job: Job, errors: Sequence[UploadError], *, at: datetime
) -> None:
    """Count the rows of the part that was claimed, and remove it."""
    await connection.execute(
        delete(tables.customer_upload_parts).where(
            _PARTS.upload_id == job.id, _PARTS.number == job.part_number
        )
    )
    kept = [*job.errors, *(error.wire() for error in errors)][:ERROR_LIMIT]
    await connection.execute(
        tables.customer_uploads.update()
        .where(_UPLOADS.id == job.id)
        .values(
            status="PROCESSING",
            processed=_UPLOADS.processed + len(job.rows),
            successful=_UPLOADS.successful + len(job.rows) - len(errors),
            failed=_UPLOADS.failed + len(errors),
            errors=kept,
            updated_at=at,
        )
    )


async def finish(connection: AsyncConnection, job: Job, *, at: datetime) -> None:
    """Finish a job without parts, and write its webhook; it fails when its file has no rows."""
    await connection.execute(
        tables.customer_uploads.update()
        .where(_UPLOADS.id == job.id)
        .values(status="COMPLETED" if job.columns else "FAILED", completed_at=at, updated_at=at)
    )
    finished = await get(connection, platform_id=job.platform_id, upload_id=job.id)
    assert finished is not None
    await connection.execute(
        outbox.insert(
            type=WebhookType(f"BULK_UPLOAD.{finished.status}"),
            subject_id=job.id,
            customer_id=_NO_CUSTOMER,
            platform_id=job.platform_id,
            data=finished.wire(),
            at=at,
        )
    )
    await _remove_surplus(connection, job.platform_id)


async def _remove_surplus(connection: AsyncConnection, platform_id: Id) -> None:
    """Delete the finished jobs of a platform that are older than its newest `KEPT_LIMIT`."""
    oldest_kept = (
        select(_UPLOADS.id)
        .where(_UPLOADS.platform_id == platform_id)
        .order_by(_UPLOADS.id.desc())
        .offset(KEPT_LIMIT - 1)
        .limit(1)
    )
    await connection.execute(
        delete(tables.customer_uploads).where(
            _UPLOADS.platform_id == platform_id,
            _UPLOADS.completed_at.isnot(None),
            _UPLOADS.id < oldest_kept.scalar_subquery(),
        )
    )


async def remove_old(
    connection: AsyncConnection, *, platform_id: Id, at: datetime, limit: int
) -> int:
    """Delete jobs that ended long ago; returns how many, up to `limit`."""
    old = (
        select(_UPLOADS.id)
        .where(_UPLOADS.platform_id == platform_id, _UPLOADS.completed_at <= at - RETENTION)
        .limit(limit)
    )
    gone = await connection.execute(
        delete(tables.customer_uploads).where(_UPLOADS.id.in_(old.scalar_subquery()))
    )
    return gone.rowcount


def _unreadable(message: str) -> UploadError:
    return UploadError(correlation_id=_FILE, code=Code.INVALID_INPUT.value, message=message)


def _render(row: Row[*tuple[Any, ...]]) -> CustomerUploadResource:
    return CustomerUploadResource(
        id=row.id,
        status=row.status,
        progress=UploadProgress(
            total=row.total,
            processed=row.processed,
            successful=row.successful,
            failed=row.failed,
        ),
        errors=[UploadError(**_names(error)) for error in row.errors],
        completed_at=row.completed_at,
    )


def _names(error: dict[str, Any]) -> dict[str, Any]:
    return {"correlation_id" if name == "correlationId" else name: error[name] for name in error}
