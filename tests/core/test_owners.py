"""Beneficial owners, identifiers and verification results; pure."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from cardledger.ledger.customers.verifications import missing
from cardledger.ledger.ports import Applicant, Evidence, VerificationResult
from cardledger.ledger.sandbox.identity_verifier import SandboxIdentityVerifier
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerUpdate, Percentage
from cardledger.schema.wire.customers.customers import merged, missing_contacts, undescribed
from cardledger.schema.wire.customers.identity import identifier_errors, issued_in

SANDBOX = SandboxIdentityVerifier()

_PERCENTAGE: TypeAdapter[Decimal] = TypeAdapter(Percentage)

PERSON = {
    "fullName": "Ada",
    "birthDate": "1978-06-15",
    "nationality": "US",
    "idType": "SSN",
    "identifier": b"sealed",
    "address": {"line1": "1"},
}


def person(*, is_documented: bool = True, **fields: object) -> Applicant:
    key = new_id()
    passport = Evidence(
        id="Document:1", holder=public_id("Customer", key), document_type="PASSPORT"
    )
    documents = [passport] if is_documented else []
    return Applicant(id=key, is_business=False, fields=PERSON | fields, documents=documents)


def business(**info: object) -> Applicant:
    return Applicant(id=new_id(), is_business=True, fields={"businessInfo": info})


def verified(applicant: Applicant) -> VerificationResult:
    return SANDBOX.verify(applicant, missing(applicant))


# --- shares ------------------------------------------------------------------------------------


@given(st.decimals(0, 100, places=4))
def test_a_share_is_read_and_written_without_loss(share: Decimal) -> None:
    read = _PERCENTAGE.validate_json(str(share))

    assert read == share
    assert Decimal(_PERCENTAGE.dump_json(read).decode()) == share


@given(st.decimals(allow_nan=False, allow_infinity=False).filter(lambda n: not 0 <= n <= 100))
def test_a_share_below_0_or_above_100_percent_is_refused(share: Decimal) -> None:
    with pytest.raises(ValidationError):
        _PERCENTAGE.validate_python(float(share) if float(share) > 100 else -1)


@pytest.mark.parametrize("share", [True, "1", None, [], 33.33333, float("nan"), float("inf")])
def test_an_invalid_share_is_refused(share: object) -> None:
    with pytest.raises(ValidationError):
        _PERCENTAGE.validate_python(share)


@pytest.mark.parametrize("field", ["roles", "ownershipPercentage", "personalInfo"])
def test_a_required_field_of_an_owner_cannot_be_removed(field: str) -> None:
    with pytest.raises(ValidationError, match="must not be null"):
        BeneficialOwnerUpdate.model_validate({field: None})


# --- tax numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "number", "country", "wrong"),
    [
        ("SSN", "123-45-6789", "US", []),
        ("SSN", None, None, []),
        ("SSN", "123-45-678", None, ["identifier"]),
        ("SSN", "١٢٣-45-6789", None, ["identifier"]),
        ("SSN", "123-45-6789\n", None, ["identifier"]),
        ("ITIN", "812-34-5678", None, ["identifier"]),
        ("ITIN", "912-34-5678", "GB", ["countryOfIssuance"]),
        ("EIN", "12-3456789", None, []),
        ("EIN", "123456789", "GB", ["identifier", "countryOfIssuance"]),
        ("NON_US_TAX_ID", "anything", "GB", []),
        ("NON_US_TAX_ID", "anything", "US", ["countryOfIssuance"]),
        (None, "1", "US", ["idType", "countryOfIssuance"]),
        (None, None, None, []),
    ],
)
def test_an_identifier_is_valid_for_its_type_and_country(
    kind: str | None, number: str | None, country: str | None, wrong: list[str]
) -> None:
    fields = [
        error.field for error in identifier_errors(id_type=kind, identifier=number, country=country)
    ]

    assert fields == wrong


def test_identifiers_of_the_united_states_have_that_country_of_issuance() -> None:
    assert [issued_in(kind, None) for kind in ("SSN", "EIN", "NON_US_TAX_ID", None)] == [
        "US",
        "US",
        None,
        None,
    ]


# --- what goes together ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, []),
        ({"purposeOfAccount": "OTHER"}, ["purposeOfAccountOtherDescription"]),
        ({"purposeOfAccount": "OTHER", "purposeOfAccountOtherDescription": "x"}, []),
        ({"purposeOfAccountOtherDescription": "x"}, ["purposeOfAccountOtherDescription"]),
        ({"sourceOfFundsCategories": ["GIFT", "OTHER"]}, ["sourceOfFundsOtherDescription"]),
        ({"sourceOfWealthCategories": ["GIFT"]}, []),
    ],
)
def test_the_choice_other_requires_a_description(fields: dict[str, Any], wrong: list[str]) -> None:
    assert [error.field for error in undescribed(fields)] == wrong


def test_a_description_is_removed_with_the_choice_that_it_describes() -> None:
    before = {"purposeOfAccount": "OTHER", "purposeOfAccountOtherDescription": "x", "a": 1}

    after = merged(before, {"purposeOfAccount": "AP_AUTOMATION", "b": None})

    assert after == {"purposeOfAccount": "AP_AUTOMATION", "a": 1}


def test_the_economic_area_requires_email_and_phone_number() -> None:
    def fields(region: str | None, email: str | None = None) -> list[str]:
        errors = missing_contacts(region=region, email=email, phone_number=None)
        return [error.field for error in errors]

    assert fields("NO") == ["email", "phoneNumber"]
    assert fields("FR", "ada@example.com") == ["phoneNumber"]
    assert fields("GB") == fields(None) == []


# --- decisions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("applicant", "status"),
    [
        (person(), "APPROVED"),
        (person(fullName="A 001"), "PENDING_MANUAL_REVIEW"),
        (person(fullName="A 002"), "REJECTED"),
        (person(fullName="A 002", address=None), "REJECTED"),
        (person(fullName="A 003"), "RESOLVE_ERRORS"),
        (person(fullName=None), "RESOLVE_ERRORS"),
        (person(identifier=None), "RESOLVE_ERRORS"),
        (person(is_documented=False), "RESOLVE_ERRORS"),
        (person(is_documented=False, fullName="A 002"), "REJECTED"),
        (business(), "APPROVED"),
        (business(registrationNumber="x-002"), "REJECTED"),
        (business(registrationNumber="x-001"), "RESOLVE_ERRORS"),
        (business(registrationNumber="x-003"), "RESOLVE_ERRORS"),
    ],
)
def test_the_sandbox_decides_an_applicant_by_its_suffix_and_its_missing_data(
    applicant: Applicant, status: str
) -> None:
    assert verified(applicant).status == status


@pytest.mark.parametrize(
    ("applicant", "is_complete"),
    [
        (person(), True),
        (person(fullName="A 002"), True),
        (person(fullName="A 002", address=None), False),
        (person(fullName=None), False),
        (person(identifier=None), False),
        (person(is_documented=False), False),
        (business(), False),
        (business(registrationNumber="x-002"), False),
    ],
)
def test_no_suffix_replaces_missing_data(applicant: Applicant, *, is_complete: bool) -> None:
    assert (not missing(applicant)) == is_complete


@given(st.text())
def test_only_a_verification_with_errors_has_problems(name: str) -> None:
    for applicant in (person(fullName=name), business(registrationNumber=name)):
        result = verified(applicant)

        assert bool(result.problems) == (result.status == "RESOLVE_ERRORS")


def test_the_end_of_an_owners_last_name_decides_in_the_sandbox() -> None:
    names = ("Byron", "Byron 001", "Byron 002", "")

    assert [SANDBOX.owner_kyc_status(name) for name in names] == [
        "APPROVED",
        "PENDING",
        "REJECTED",
        "APPROVED",
    ]


def test_the_end_of_a_full_name_decides_at_creation_in_the_sandbox() -> None:
    names = ("Ada", "Ada 001", "Ada 002", "Ada 003", None)

    assert [SANDBOX.initial_kyc_status(name) for name in names] == [
        "APPROVED",
        "PENDING",
        "REJECTED",
        "UNVERIFIED",
        "APPROVED",
    ]
