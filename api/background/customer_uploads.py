"""Creates the customers of uploaded files: part by part, each in one database transaction.

Every API process does it, because no other role of the database may write customers; a job is
locked by one of them at a time. What a process has not committed when it ends, another one does.
Source: docs/decisions/0074-bulk-uploads.md
"""

import asyncio
import time
from asyncio import Task
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import structlog
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cardledger.api.http.errors import ApiError, invalid
from cardledger.api.routes.customers.registry import applicant, check_new, creating
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.uploads import csv_files
from cardledger.ledger.customers.uploads import registry as uploads
from cardledger.ledger.customers.uploads.csv_files import Row
from cardledger.ledger.customers.uploads.registry import Job
from cardledger.ledger.platforms import quotas
from cardledger.ledger.ports import IdentityVerifier
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.uploads import UploadedCustomer, UploadError
from cardledger.schema.wire.errors import Code, FieldError, field_errors
from cardledger.workers.client import background

_JOBS: Final = 20  # That are looked at in one step; each of them advances by a part.
_IDLE_S: Final = 2.0  # Between two looks for jobs that other processes have accepted.
_REST: Final = 3.0  # So many times as long as a part has kept the event loop, requests have it.

_ROW: Final[TypeAdapter[Any]] = TypeAdapter(UploadedCustomer)

_log = structlog.get_logger()


class CustomerUploads:
    """Advances the jobs of all platforms. An async context manager."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        platforms: PlatformConnections,
        installation: AsyncEngine,
        *,
        verifier: IdentityVerifier | None,
        keys: KeyRing,
        clock: Callable[[], datetime],
        rest: float = _REST,
    ) -> None:
        """Find jobs over `installation`, and create customers over `platforms`."""
        self._platforms: Final = platforms
        self._installation: Final = installation
        self._verifier: Final = verifier
        self._keys: Final = keys
        self._clock: Final = clock
        self._rest: Final = rest
        self._has_job: Final = asyncio.Event()
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await background.end(self._task)

    def wake(self) -> None:
        """Look for jobs at once."""
        self._has_job.set()

    async def run(self) -> None:
        """Advance jobs until this task is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():
            try:
                has_more = await self.step()
            except Exception:  # noqa: BLE001 - the step is repeated
                # Not a warning: an outage of PostgreSQL has its own lines.
                _log.debug("uploads of customers not advanced", exc_info=True)
                has_more = False
            if not has_more:
                await self._wait()

    async def step(self) -> bool:
        """Advance jobs by a part each; return whether one was advanced."""
        async with self._installation.connect() as connection:
            found = await uploads.unfinished(connection, limit=_JOBS)
        advanced = [await self._attempt(platform_id, key) for platform_id, key in found]
        return any(advanced)

    async def _attempt(self, platform_id: Id, upload_id: Id) -> bool:
        """Advance a job, and rest; one that fails is tried again and keeps no other one waiting."""
        began = time.thread_time()  # With requests in between: the busier, the more rest.
        is_advanced = False
        try:
            is_advanced = await self._advance(platform_id, upload_id)
        except OperationalError:
            raise  # The database is away, for every job.
        except Exception as error:  # noqa: BLE001 - the part is repeated
            # Without the message: PostgreSQL quotes what it refuses.
            job, kind = public_id("Job", upload_id), type(error).__name__
            _log.error("upload of customers not advanced", job=job, error=kind)
        await asyncio.sleep(self._rest * (time.thread_time() - began))
        return is_advanced

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_IDLE_S):
                await self._has_job.wait()
        except TimeoutError:
            return
        self._has_job.clear()

    async def _advance(self, platform_id: Id, upload_id: Id) -> bool:
        async with self._platforms.writing(platform_id) as connection:
            job = await uploads.claim(connection, platform_id=platform_id, upload_id=upload_id)
            if job is None:
                return False
            at = self._clock()
            if job.part_number is None:
                await uploads.finish(connection, job, at=at)
                return True
            results = [await self._create(connection, job, row, at) for row in job.rows]
            errors = [error for error in results if error is not None]
            await uploads.record(connection, job, errors, at=at)
        return True

    async def _create(
        self, connection: AsyncConnection, job: Job, row: Row, at: datetime
    ) -> UploadError | None:
        """Create the customer of a row, by the rules of `POST /customers`; return why it failed."""
        try:
            body = _parsed(job, row)
            check_new(body)
            with creating():
                # What fails in it ends with it, and not with the other rows.
                async with connection.begin_nested():
                    await customers.create(
                        connection,
                        platform_id=job.platform_id,
                        person=applicant(body),
                        verifier=self._verifier,
                        keys=self._keys,
                        at=at,
                    )
        except ApiError as error:
            return _error(job, row, error)
        except DBAPIError as error:
            reached = quotas.reached_in(error)
            if reached is None:
                raise
            message = f"The platform has {reached.rows:,} {reached.resource}, its quota."
            refused = ApiError(Code.CONFLICT, message, details={"limit": reached.rows})
            return _error(job, row, refused)
        return None


def _parsed(job: Job, row: Row) -> Any:  # noqa: ANN401 - a row of either type
    """Return the body that a row stands for.

    Raises: ApiError INVALID_INPUT, which names columns.
    """
    try:
        return _ROW.validate_python(csv_files.body_of(job.columns, row))
    except ValidationError as error:
        found = field_errors(error.errors(include_url=False, include_input=False))
    except ValueError as error:
        found = [FieldError(field="row", message=str(error))]
    named = [
        each.model_copy(update={"field": csv_files.column_of(_of_variant(each.field))})
        for each in found
    ]
    raise invalid(named)


def _of_variant(field: str) -> str:
    """Return the path of a field without the type of customer, which Pydantic puts before it."""
    head, _, rest = field.partition(".")
    return rest if head in {"INDIVIDUAL", "BUSINESS"} else field


def _error(job: Job, row: Row, error: ApiError) -> UploadError:
    return UploadError(
        correlation_id=csv_files.correlation_of(job.columns, row),
        code=error.code.value,
        message=error.message,
        details={"line": row.line, **(error.details or {})},
    )
