"""Verifications: deciding whether a customer is who it says it is.

In the sandbox the customer's own data decides, as documented on `POST /verifications`. Outside it
no provider is connected: what is complete waits for a person. Documents cannot be sent here yet,
so none is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.messaging import outbox
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
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

_MANUAL: Final = "001"
_REJECTED: Final = "002"
_POOR: Final = "003"

_IDENTITY_DOCUMENTS: Final = ["PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID"]

_KYC: Final[Mapping[VerificationStatus, KycStatus]] = {
    "PENDING_MANUAL_REVIEW": "PENDING",
    "APPROVED": "APPROVED",
    "REJECTED": "REJECTED",
}
"""How a customer stands after its verification; what is not here changes nothing."""


class AlreadyDecidedError(Exception):
    """The customer is approved or rejected; that is the end of it."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the customer is {status} already")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationFilters:
    """What verifications have to match; None matches all."""

    customer_id: Id | None = None
    status: VerificationStatus | None = None


# --- rules, pure -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """What a decision looks at: `said` has the customer's fields by their names on the wire."""

    id: Id
    is_business: bool
    said: Mapping[str, Any]
    owners: Sequence[BeneficialOwnerResource] = ()

    @property
    def suffix(self) -> str:
        """What the sandbox goes by: the end of a person's name, or of a business's number."""
        info = self.said.get("businessInfo") or {}
        said = info.get("registrationNumber") if self.is_business else self.said.get("fullName")
        return str(said or "")[-3:]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """What comes of a verification; `problems` only with `RESOLVE_ERRORS`."""

    status: VerificationStatus
    problems: Sequence[VerificationProblem] = ()


def outcome_of(applicant: Applicant, *, is_sandbox: bool) -> VerificationResult:
    """Return what becomes of `applicant`; the first that applies.

    A business of the sandbox is decided by its number whatever else it says, unless the number
    asks for the ordinary way.
    """
    suffix = applicant.suffix if is_sandbox else ""
    if suffix == _REJECTED:
        return VerificationResult(status="REJECTED")
    ordinary = not is_sandbox or suffix in {_MANUAL, _POOR}
    if applicant.is_business and not ordinary:
        return VerificationResult(status="APPROVED")
    if problems := problems_of(applicant):
        return VerificationResult(status="RESOLVE_ERRORS", problems=problems)
    if suffix == _POOR and not applicant.is_business:
        return VerificationResult(status="RESOLVE_ERRORS", problems=[_poor_document(applicant)])
    return VerificationResult(status="PENDING_MANUAL_REVIEW" if ordinary else "APPROVED")


def problems_of(applicant: Applicant) -> list[VerificationProblem]:
    """Return what `applicant` has to add before anybody can decide."""
    if not applicant.is_business:
        needed = ("fullName", "birthDate", "nationality", "idType", "identifier", "address")
        return [_missing(applicant, name) for name in needed if not applicant.said.get(name)]
    info = applicant.said.get("businessInfo") or {}
    problems = [
        _missing(applicant, f"businessInfo.{name}")
        for name in ("legalName", "taxId", "countriesOfOperation")
        if not info.get(name)
    ]
    if not applicant.said.get("address"):
        problems.append(_missing(applicant, "address"))
    if not applicant.owners:
        reason = "everybody who owns 25 % of the business or more has to be named"
        problems.append(_problem(applicant, "MISSING_BENEFICIAL_OWNER", reason))
    if not any("CONTROL_PERSON" in owner.roles for owner in applicant.owners):
        reason = "somebody who controls the business has to be named"
        problems.append(_problem(applicant, "MISSING_CONTROL_PERSON", reason))
    return problems


def _missing(applicant: Applicant, field: str) -> VerificationProblem:
    return _problem(applicant, "MISSING_FIELD", f"{field} is needed to verify", field=field)


def _poor_document(applicant: Applicant) -> VerificationProblem:
    return _problem(
        applicant,
        "POOR_QUALITY_DOCUMENT",
        "the document cannot be read",
        accepted_document_types=_IDENTITY_DOCUMENTS,
    )


def _problem(
    applicant: Applicant,
    kind: Any,  # noqa: ANN401 - a ProblemType, checked where it is put
    reason: str,
    **where: Any,  # noqa: ANN401 - fields of a problem
) -> VerificationProblem:
    resource_id = public_id("Customer", applicant.id)
    return VerificationProblem(resource_id=resource_id, type=kind, reason=reason, **where)


# --- the record --------------------------------------------------------------------------------


async def submit(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    at: datetime,
    is_sandbox: bool,
) -> VerificationResource | None:
    """Have a customer verified; None when the platform has no such customer.

    A verification that is not decided is taken up again, and stays as it is, its webhook sent
    once, when nothing new comes of it. What comes of it is told in the same database transaction:
    first how the verification stands, then how the customer does, if that changed.
    Raises: AlreadyDecidedError; then nothing has been written.
    """
    row = await _locked(connection, platform_id, customer_id)
    if row is None:
        return None
    if row.kyc_status in customers.DECIDED:
        raise AlreadyDecidedError(row.kyc_status)
    applicant = await _applicant(connection, row)
    outcome = outcome_of(applicant, is_sandbox=is_sandbox)
    written = await _write(connection, platform_id, customer_id, outcome, at)
    now = _KYC.get(outcome.status)
    if now is not None and now != row.kyc_status:
        await customers.record_kyc_status(
            connection, platform_id=platform_id, customer_id=customer_id, status=now, at=at
        )
    return written


async def get(
    connection: AsyncConnection, *, platform_id: Id, verification_id: Id
) -> VerificationResource | None:
    """Return the platform's verification, or None when it has no such one."""
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
    asked = {
        _VERIFICATIONS.customer_id: filters.customer_id,
        _VERIFICATIONS.status: filters.status,
    }
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.verifications,
        matching=[
            _VERIFICATIONS.platform_id == platform_id,
            *(column == value for column, value in asked.items() if value is not None),
        ],
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


async def _applicant(connection: AsyncConnection, row: Row[*tuple[Any, ...]]) -> Applicant:
    owners = await beneficial_owners.of_customers(connection, [row.id])
    return Applicant(
        id=row.id,
        is_business=row.customer_type == "BUSINESS",
        said={
            "fullName": row.full_name,
            "birthDate": row.birth_date,
            "nationality": row.nationality,
            "idType": row.id_type,
            "identifier": row.identifier,  # Encrypted: that there is one is all that counts.
            "address": row.address,
            "businessInfo": row.business_info,
        },
        owners=owners.get(row.id, []),
    )


async def _write(
    connection: AsyncConnection,
    platform_id: Id,
    customer_id: Id,
    outcome: VerificationResult,
    at: datetime,
) -> VerificationResource:
    values = {
        "status": outcome.status,
        "errors": [problem.wire() for problem in outcome.problems],
        "updated_at": at,
    }
    open_one = _VERIFICATIONS.status.not_in(customers.DECIDED)
    rows = await connection.execute(
        _SHOWN.where(_VERIFICATIONS.customer_id == customer_id, open_one)
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
            type=WebhookType(f"VERIFICATION.{outcome.status}"),
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
        errors=[VerificationProblem(**problem) for problem in row.errors],
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
