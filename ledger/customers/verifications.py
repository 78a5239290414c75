"""Verifications of customers (KYC, KYB) by the connected identity verifier.

Whether required data or documents are missing is decided here, the rest by the verifier.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents.requirements import missing_documents
from cardledger.ledger.messaging import outbox
from cardledger.ledger.ports import (
    Applicant,
    IdentityVerifier,
    NotConnectedError,
    VerificationResult,
)
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.people import KycStatus
from cardledger.schema.wire.customers.verifications import (
    VerificationProblem,
    VerificationResource,
    VerificationStatus,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType

_VERIFICATIONS: Final = tables.verifications.c
_CUSTOMERS: Final = tables.customers.c

_SHOWN: Final = select(
    _VERIFICATIONS.id,
    _VERIFICATIONS.customer_id,
    _VERIFICATIONS.status,
    _VERIFICATIONS.errors,
    _VERIFICATIONS.created_at,
    _VERIFICATIONS.updated_at,
)

_KYC: Final[Mapping[VerificationStatus, KycStatus]] = {
    "PENDING_MANUAL_REVIEW": "PENDING",
    "APPROVED": "APPROVED",
    "REJECTED": "REJECTED",
}
"""The customer's KYC status after a verification; any other result does not change it."""

_RELIED_ON: Final = frozenset({"IN_PROGRESS", "PENDING_MANUAL_REVIEW", "APPROVED", "REJECTED"})
"""The results of verifications whose documents must stay as they are."""


class AlreadyDecidedError(Exception):
    """The customer is already approved or rejected, which is final."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the customer is already {status}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationFilters:
    """Filters of a list of verifications; None matches all."""

    customer_id: Id | None = None
    status: VerificationStatus | None = None


# --- rules, pure -------------------------------------------------------------------------------


def missing(applicant: Applicant) -> list[VerificationProblem]:
    """Return what is required and missing: data, then documents."""
    return [*_missing_data(applicant), *missing_documents(applicant)]


def _missing_data(applicant: Applicant) -> list[VerificationProblem]:
    if not applicant.is_business:
        needed = ("fullName", "birthDate", "nationality", "idType", "identifier", "address")
        return [_missing(applicant, name) for name in needed if not applicant.fields.get(name)]
    info = applicant.fields.get("businessInfo") or {}
    problems = [
        _missing(applicant, f"businessInfo.{name}")
        for name in ("legalName", "taxId", "countriesOfOperation")
        if not info.get(name)
    ]
    if not applicant.fields.get("address"):
        problems.append(_missing(applicant, "address"))
    if not applicant.owners:
        reason = "every owner of 25 percent or more of the business is required"
        problems.append(_problem(applicant, "MISSING_BENEFICIAL_OWNER", reason))
    if not any("CONTROL_PERSON" in owner.roles for owner in applicant.owners):
        reason = "a person who controls the business is required"
        problems.append(_problem(applicant, "MISSING_CONTROL_PERSON", reason))
    return problems


def _missing(applicant: Applicant, field: str) -> VerificationProblem:
    reason = f"{field} is required for verification"
    return _problem(applicant, "MISSING_FIELD", reason, field=field)


def _problem(
    applicant: Applicant,
    kind: Any,  # noqa: ANN401 - a ProblemType, which the model checks
    reason: str,
    **where: Any,  # noqa: ANN401 - fields of a problem
) -> VerificationProblem:
    resource_id = public_id("Customer", applicant.id)
    return VerificationProblem(resource_id=resource_id, type=kind, reason=reason, **where)


# --- the record --------------------------------------------------------------------------------


async def submit(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    verifier: IdentityVerifier | None,
    keys: KeyRing,
    at: datetime,
    is_hosted: bool = False,
) -> VerificationResource | None:
    """Verify a customer; None when the platform has no such customer.

    Where the verifier's own page has collected the data (`is_hosted`), nothing counts as missing.

    An undecided verification is verified again under the same id. When its result is the same, it
    is not changed and no webhook is sent. The webhooks are written in the same database
    transaction: the verification's first, then the customer's, if its status changed.
    Raises: NotConnectedError, AlreadyDecidedError; nothing has been written.
    """
    if verifier is None:
        raise NotConnectedError("identity verifier")
    row = await _locked(connection, platform_id, customer_id)
    if row is None:
        return None
    if row.kyc_status in customers.DECIDED:
        raise AlreadyDecidedError(row.kyc_status)
    applicant = await _applicant(connection, platform_id, row, keys)
    result = verifier.verify(applicant, [] if is_hosted else missing(applicant))
    if result.status in _RELIED_ON:
        await documents.submit_all(connection, customer_id=customer_id, at=at)
    written = await _write(connection, platform_id, customer_id, result, at)
    status = _KYC.get(result.status)
    if status is not None and status != row.kyc_status:
        if status in customers.DECIDED:
            await beneficial_owners.resolve_all(
                connection, customer_id=customer_id, verifier=verifier, at=at
            )
        await customers.record_kyc_status(
            connection, platform_id=platform_id, customer_id=customer_id, status=status, at=at
        )
    return written


async def get(
    connection: AsyncConnection, *, platform_id: Id, verification_id: Id
) -> VerificationResource | None:
    """Return the platform's verification, or None when it has no such verification."""
    rows = await connection.execute(
        _SHOWN.where(
            _VERIFICATIONS.id == verification_id, _VERIFICATIONS.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: VerificationFilters,
    wanted: paging.Wanted,
) -> paging.Page[VerificationResource]:
    """Return one page of the platform's verifications."""
    matching = [_VERIFICATIONS.platform_id == platform_id]
    if filters.customer_id is not None:
        customer = own(tables.customers, filters.customer_id, platform_id=platform_id)
        matching.append(_VERIFICATIONS.customer_id == customer)
    if filters.status is not None:
        matching.append(_VERIFICATIONS.status == filters.status)
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.verifications,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def _locked(
    connection: AsyncConnection, platform_id: Id, customer_id: Id
) -> Row[*tuple[Any, ...]] | None:
    rows = await connection.execute(
        select(
            _CUSTOMERS.id,
            _CUSTOMERS.customer_type,
            _CUSTOMERS.kyc_status,
            _CUSTOMERS.full_name,
            _CUSTOMERS.birth_date,
            _CUSTOMERS.nationality,
            _CUSTOMERS.id_type,
            _CUSTOMERS.identifier,
            _CUSTOMERS.address,
            _CUSTOMERS.business_info,
        )
        .where(
            _CUSTOMERS.id == customer_id,
            _CUSTOMERS.platform_id == platform_id,
            ~_CUSTOMERS.is_deleted,
        )
        .with_for_update()
    )
    return rows.one_or_none()


async def _applicant(
    connection: AsyncConnection, platform_id: Id, row: Row[*tuple[Any, ...]], keys: KeyRing
) -> Applicant:
    owners = await beneficial_owners.of_customers(connection, [row.id])
    return Applicant(
        id=row.id,
        is_business=row.customer_type == "BUSINESS",
        fields={
            "fullName": row.full_name,
            "birthDate": row.birth_date,
            "nationality": row.nationality,
            "idType": row.id_type,
            "identifier": row.identifier,  # Encrypted; only its presence counts.
            "address": row.address,
            "businessInfo": row.business_info,
        },
        owners=owners.get(row.id, []),
        documents=await documents.evidence_of(
            connection, platform_id=platform_id, customer_id=row.id, keys=keys
        ),
    )


async def _write(
    connection: AsyncConnection,
    platform_id: Id,
    customer_id: Id,
    result: VerificationResult,
    at: datetime,
) -> VerificationResource:
    values = {
        "status": result.status,
        "errors": [problem.wire() for problem in result.problems],
        "updated_at": at,
    }
    undecided = _VERIFICATIONS.status.not_in(customers.DECIDED)
    rows = await connection.execute(
        _SHOWN.where(_VERIFICATIONS.customer_id == customer_id, undecided)
    )
    before = rows.one_or_none()
    if before is None:
        key = new_id()
        row = {"id": key, "platform_id": platform_id, "customer_id": customer_id, "created_at": at}
        await connection.execute(tables.verifications.insert().values(**row, **values))
    elif (before.status, before.errors) == (values["status"], values["errors"]):
        return _render(before)
    else:
        key = before.id
        await connection.execute(
            tables.verifications.update().where(_VERIFICATIONS.id == key).values(**values)
        )
    written = await get(connection, platform_id=platform_id, verification_id=key)
    assert written is not None
    await connection.execute(
        outbox.insert(
            type=WebhookType(f"VERIFICATION.{result.status}"),
            subject_id=key,
            customer_id=customer_id,
            platform_id=platform_id,
            data=written.wire(),
            at=at,
        )
    )
    return written


def _render(row: Row[*tuple[Any, ...]]) -> VerificationResource:
    return VerificationResource(
        id=row.id,
        customer_id=row.customer_id,
        verification_status=row.status,
        errors=row.errors,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
