"""The 45 variants: required fields, what is returned, check digits."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cardledger.ledger.customers import account_numbers, wallet_addresses
from cardledger.ledger.customers.external_accounts import (
    Registration,
    RegistrationRefusal,
    RegistrationRefusedError,
    checked,
    fingerprint,
    name_match,
)
from cardledger.ledger.ports import AccountVerifier
from cardledger.ledger.sandbox.account_verifier import SandboxAccountVerifier
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.account_variants import VARIANTS, Optional, Variant
from cardledger.schema.wire.customers.external_accounts import (
    AccountInfoResource,
    ExternalAccountCreate,
)
from cardledger.schema.wire.errors import field_errors
from tests.external_accounts import ADDRESS, COMPANY, EVM, EXAMPLES, PERSON, body, info

PAGE = Path(__file__).parents[2] / "docs" / "external-accounts.md"
OWNER = Id(bytes(15) + b"\x01")
SANDBOX = SandboxAccountVerifier()


def parsed(sent: dict[str, Any]) -> Registration:
    request = ExternalAccountCreate.model_validate(sent)
    return Registration(customer_id=OWNER, currency=request.currency, info=request.account_info)


def refused(
    wanted: Registration, verifier: AccountVerifier | None = SANDBOX
) -> RegistrationRefusedError | None:
    try:
        checked(wanted, verifier)
    except RegistrationRefusedError as error:
        return error
    return None


def wrong(sent: dict[str, Any], verifier: AccountVerifier | None = SANDBOX) -> set[str]:
    """Return the fields that a client has to change."""
    try:
        error = refused(parsed(sent), verifier)
    except ValidationError as invalid:
        return {complaint.field for complaint in field_errors(invalid.errors())}
    return {field.field for field in error.errors} if error else set()


def changed(account_type: str, **changes: object) -> dict[str, Any]:
    return body(account_type, accountInfo=info(account_type, **changes))


def refusal(
    sent: dict[str, Any], verifier: AccountVerifier | None = SANDBOX
) -> RegistrationRefusal | None:
    error = refused(parsed(sent), verifier)
    return error.refusal if error else None


# --- every variant ---------------------------------------------------------------------------


def test_there_are_45_variants_and_an_example_of_each() -> None:
    assert len(VARIANTS) == 45
    assert set(VARIANTS) == set(EXAMPLES)


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_a_valid_account_is_accepted(account_type: str) -> None:
    assert wrong(body(account_type)) == set()


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_the_table_has_the_fields_and_rails_of_the_interface(account_type: str) -> None:
    example, variant = EXAMPLES[account_type], VARIANTS[account_type]

    assert {to_camel(name) for name in variant.fields} == set(example.wrong)
    assert list(variant.rails) == example.rails.split()


@pytest.mark.parametrize(
    ("account_type", "field", "value"),
    [
        (account_type, field, value)
        for account_type, example in EXAMPLES.items()
        for field, values in example.wrong.items()
        for value in values
    ],
)
def test_the_error_names_the_invalid_field(account_type: str, field: str, value: object) -> None:
    assert f"accountInfo.{field}" in wrong(changed(account_type, **{field: value}))


@pytest.mark.parametrize(
    ("account_type", "field"),
    [
        (account_type, field)
        for account_type, example in EXAMPLES.items()
        for field in example.fields
    ],
)
def test_only_an_optional_field_may_be_missing(account_type: str, field: str) -> None:
    missing = wrong(changed(account_type, **{field: None}))

    assert bool(missing) == (field not in EXAMPLES[account_type].optional)


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_an_unknown_field_is_refused(account_type: str) -> None:
    for field in ("surprise", "paymentRails"):
        assert wrong(changed(account_type, **{field: ["x"]})) == {f"accountInfo.{field}"}


FIAT = [name for name, example in EXAMPLES.items() if example.beneficiary]


@pytest.mark.parametrize("account_type", FIAT)
def test_a_fiat_account_needs_a_beneficiary(account_type: str) -> None:
    assert wrong(changed(account_type, beneficiary=None)) == {"accountInfo.beneficiary"}


@pytest.mark.parametrize("account_type", sorted(set(EXAMPLES) - set(FIAT)))
def test_a_wallet_has_no_beneficiary(account_type: str) -> None:
    assert wrong(changed(account_type, beneficiary=PERSON)) == {"accountInfo.beneficiary"}


@pytest.mark.parametrize("account_type", FIAT)
def test_a_company_may_own_a_fiat_account(account_type: str) -> None:
    assert wrong(changed(account_type, beneficiary=COMPANY)) == set()


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_a_registered_account_is_returned_as_it_was_sent(account_type: str) -> None:
    sent = info(account_type)
    resource = sent | {"paymentRails": list(VARIANTS[account_type].rails)}

    read = TypeAdapter(AccountInfoResource).validate_python(resource)

    rails = {} if EXAMPLES[account_type].rails else {"paymentRails"}
    shown = read.wire()
    assert shown == {name: value for name, value in resource.items() if name not in rails}
    accepted = ExternalAccountCreate.model_validate(body(account_type)).account_info
    assert accepted.model_dump(mode="json", by_alias=True, exclude_none=True) == sent


# --- several fields ----------------------------------------------------------------------------


def test_a_reader_accepts_the_alias_of_lightning() -> None:
    resource = info("LIGHTNING") | {"accountType": "LIGHTNING_ACCOUNT"}

    assert TypeAdapter(AccountInfoResource).validate_python(resource).wire() == resource


@pytest.mark.parametrize("account_type", ["LIGHTNING_ACCOUNT", "PLASMA_WALLET", "usd_account", ""])
def test_a_type_that_cannot_be_created_is_refused(account_type: str) -> None:
    assert wrong(changed("LIGHTNING", accountType=account_type)) == {"accountInfo.accountType"}


@pytest.mark.parametrize(
    ("account_type", "changes", "fields"),
    [
        ("BDT_ACCOUNT", {"accountNumber": None, "phoneNumber": None}, {""}),
        ("COP_ACCOUNT", {"bankAccountType": None, "phoneNumber": None}, {""}),
        ("INR_ACCOUNT", {"vpa": None, "ifsc": None}, {""}),
        ("INR_ACCOUNT", {"vpa": None}, set()),
        ("INR_ACCOUNT", {"accountNumber": None, "ifsc": None, "rail": "UPI"}, set()),
        ("INR_ACCOUNT", {"rail": "UPI"}, {"rail"}),
        ("SLV_ACCOUNT", {"bankName": None, "phoneNumber": None}, {""}),
        ("SWIFT_ACCOUNT", {"iban": "DE89370400440532013000"}, {""}),
        ("SWIFT_ACCOUNT", {"iban": "DE89370400440532013000", "accountNumber": None}, set()),
        ("LIGHTNING", {"bolt12": "lno1qgsq"}, {""}),
        ("LIGHTNING", {"bolt12": "lno1qgsq", "lightningAddress": None}, set()),
        ("CNY_ACCOUNT", {"beneficiary": PERSON}, {"beneficiary.beneficiaryType"}),
        ("CNY_ACCOUNT", {"accountNumber": None}, {"bankName"}),
        (
            "CNY_ACCOUNT",
            {"accountNumber": None, "bankName": "AliPay", "beneficiary": PERSON},
            set(),
        ),
    ],
)
def test_the_fields_must_identify_exactly_one_account(
    account_type: str, changes: dict[str, object], fields: set[str]
) -> None:
    assert wrong(changed(account_type, **changes)) == {
        f"accountInfo.{field}".removesuffix(".") for field in fields
    }


@pytest.mark.parametrize(
    ("account_type", "field"),
    [
        ("AED_ACCOUNT", "address"),
        ("EUR_ACCOUNT", "countryOfResidence"),
        ("GTQ_ACCOUNT", "countryOfResidence"),
        ("GTQ_ACCOUNT", "phoneNumber"),
        ("JMD_ACCOUNT", "address"),
        ("JMD_ACCOUNT", "phoneNumber"),
    ],
)
def test_some_rails_require_more_of_an_individual_than_of_a_business(
    account_type: str, field: str
) -> None:
    def without(owner: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in owner.items() if name != field}

    assert wrong(changed(account_type, beneficiary=without(PERSON))) == {
        f"accountInfo.beneficiary.{field}"
    }
    assert wrong(changed(account_type, beneficiary=without(COMPANY))) == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("beneficiaryType", "PERSON"),
        ("fullName", None),
        ("fullName", ""),
        ("birthDate", "10.12.1990"),
        ("nationality", "GBR"),
        ("countryOfResidence", "gb"),
        ("email", "ada"),
        ("phoneNumber", "07700"),
        ("legalName", "Engines"),
        ("registrationNumber", "1"),
        ("address.line1", None),
        ("address.postalCode", None),
        ("address.country", "Norway"),
    ],
)
def test_the_fields_of_a_beneficiary_are_checked(field: str, value: object) -> None:
    parent, _, child = field.rpartition(".")
    owner: dict[str, Any] = PERSON | {
        parent or child: {**ADDRESS, child: value} if parent else value
    }
    if value is None:
        (owner[parent] if parent else owner).pop(child)

    assert wrong(changed("USD_ACCOUNT", beneficiary=owner)) == {f"accountInfo.beneficiary.{field}"}


@pytest.mark.parametrize(
    ("account_type", "more"),
    [
        ("CAD_ACCOUNT", {"registrationNumber": "123"}),
        ("COP_ACCOUNT", {"documentType": "CC", "documentNumber": "123"}),
    ],
)
def test_two_account_types_have_additional_fields_of_an_individual(
    account_type: str, more: dict[str, str]
) -> None:
    assert wrong(changed(account_type, beneficiary=PERSON | more)) == set()
    assert len(wrong(changed("USD_ACCOUNT", beneficiary=PERSON | more))) == len(more)


def test_a_default_account_requires_a_customer() -> None:
    request = parsed(body("USD_ACCOUNT"))
    wanted = Registration(customer_id=None, currency="USD", info=request.info, is_default=True)

    error = refused(wanted)

    assert error is not None
    assert [field.field for field in error.errors] == ["defaultUmaDepositAccount"]


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_the_currency_must_fit_the_account_type(account_type: str) -> None:
    free = not EXAMPLES[account_type].beneficiary

    assert refusal(body(account_type, currency="ZZZ")) == (
        None if free else RegistrationRefusal.CURRENCY
    )


# --- numbers with check digits ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("account_type", "field", "value"),
    [
        ("AED_ACCOUNT", "iban", "AE080331234567890123456"),
        ("EUR_ACCOUNT", "iban", "DE89370400440532013001"),
        ("EUR_ACCOUNT", "iban", "DE8937040044053201300"),
        ("EUR_ACCOUNT", "iban", "ZZ89370400440532013000"),
        ("EUR_ACCOUNT", "swiftCode", "DEUTZZFF"),
        ("USD_ACCOUNT", "routingNumber", "021000012"),
        ("USD_ACCOUNT", "intermediaryRoutingNumber", "021000022"),
        ("MXN_ACCOUNT", "clabeNumber", "032180000118359718"),
        ("SWIFT_ACCOUNT", "swiftCode", "BOTKZZJT"),
        ("BASE_WALLET", "address", EVM.replace("Aae", "aae").replace("aAeb", "aaeb")),
        ("ETHEREUM_WALLET", "address", EVM[:-1]),
        ("POLYGON_WALLET", "address", EVM[2:]),
        ("SOLANA_WALLET", "address", "0xabc"),
        ("SOLANA_WALLET", "address", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"),
        ("TRON_WALLET", "address", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6u"),
        ("SPARK_WALLET", "address", "spark1qqqqqqqq"),
        ("SPARK_WALLET", "address", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"),
        ("LIGHTNING", "lightningAddress", "ada"),
    ],
)
def test_an_invalid_identifier_is_refused_where_a_rail_is_real(
    account_type: str, field: str, value: str
) -> None:
    sent = changed(account_type, **{field: value})

    assert refusal(sent, None) is RegistrationRefusal.NUMBER
    assert wrong(sent, None) == {f"accountInfo.{field}"}


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_a_valid_account_is_accepted_where_a_rail_is_real(account_type: str) -> None:
    assert wrong(body(account_type), None) == set()


@pytest.mark.parametrize("suffix", ["002", "003", "005", "102", "105", "107"])
@pytest.mark.parametrize(
    ("account_type", "field"),
    [
        ("AED_ACCOUNT", "iban"),
        ("EUR_ACCOUNT", "iban"),
        ("SWIFT_ACCOUNT", "iban"),
        ("USD_ACCOUNT", "routingNumber"),
        ("MXN_ACCOUNT", "clabeNumber"),
        ("BASE_WALLET", "address"),
        ("SOLANA_WALLET", "address"),
        ("SPARK_WALLET", "address"),
        ("TRON_WALLET", "address"),
        ("LIGHTNING", "bolt12"),
        ("LIGHTNING", "invoice"),
    ],
)
def test_in_a_sandbox_an_identifier_may_end_in_every_suffix(
    account_type: str, field: str, suffix: str
) -> None:
    # An account has one way of being identified here.
    alone = {"iban": {"accountNumber": None} if account_type == "SWIFT_ACCOUNT" else {}}
    alone |= {name: {"lightningAddress": None} for name in ("bolt12", "invoice")}
    valid = info(account_type).get(field) or ENDLESS[field]
    sent = changed(account_type, **{field: valid[:-3] + suffix}, **alone.get(field, {}))

    error = refused(parsed(sent))

    # An unknown account is the verdict of the rail, which has understood the identifier.
    is_identifier = field != "routingNumber"
    expected = ["accountInfo"] if suffix == "105" and is_identifier else []
    assert [one.field for one in (error.errors if error else ())] == expected


ENDLESS = {
    "bolt12": "lno1qgsqvgnwgcg35z6ee2h3yczraddm72xrfua9uve2rlrm9deu7xyfzrcgqyqs",
    "invoice": "lnbc2500u1pvjluezpp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxx",
    "iban": "DE89370400440532013000",
}
"""Identifiers of types whose example is identified by another field."""


@pytest.mark.parametrize(
    ("account_type", "field", "value"),
    [
        ("ETHEREUM_WALLET", "address", EVM[:-1]),
        ("POLYGON_WALLET", "address", EVM[2:]),
        ("SOLANA_WALLET", "address", "0xabc"),
        ("TRON_WALLET", "address", "XR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"),
        ("SPARK_WALLET", "address", "spark1qqqqqqqq"),
        ("SPARK_WALLET", "address", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"),
        ("LIGHTNING", "lightningAddress", "ada"),
    ],
)
def test_in_a_sandbox_the_form_of_an_identifier_counts(
    account_type: str, field: str, value: str
) -> None:
    sent = changed(account_type, **{field: value})

    assert refusal(sent) is RegistrationRefusal.NUMBER
    assert wrong(sent) == {f"accountInfo.{field}"}


def test_the_routing_number_that_the_interface_shows_is_accepted_in_a_sandbox_only() -> None:
    sent = changed("USD_ACCOUNT", routingNumber="123456789")

    assert wrong(sent) == set()
    assert wrong(sent, None) == {"accountInfo.routingNumber"}


@pytest.mark.parametrize(
    ("iban", "problem"),
    [
        ("DE89370400440532013001", "check digits"),
        ("GB82WEST12345698765432", None),
        ("ZZ22370400440532013000", "ZZ is not a country"),
        ("DE5137040044053201300", "length or structure is not that of DE"),
        ("MA5701151900000120500053492", "must have 28 characters in MA"),
    ],
)
def test_the_error_of_an_iban_says_what_is_wrong(iban: str, problem: str | None) -> None:
    objection = account_numbers.iban_objection(iban)

    assert (objection is None) == (problem is None)
    assert (problem or "") in (objection or "")


@given(st.from_regex(r"\A[A-Z]{2}[0-9]{2}[A-Za-z0-9]{11,30}\Z"), st.text())
def test_any_text_is_accepted_or_refused_without_an_exception(iban: str, text: str) -> None:
    assert account_numbers.is_iban(iban) in {True, False}
    assert isinstance(account_numbers.iban_objection(iban), str | None)
    for table in (wallet_addresses.OBJECTIONS, wallet_addresses.FORMS):
        for checks in table.values():
            for object_to in checks.values():
                assert isinstance(object_to(text), str | None)


def one_digit_off(number: str) -> Iterable[str]:
    for at, digit in enumerate(number):
        yield number[:at] + str((int(digit) + 1) % 10) + number[at + 1 :]


def test_check_digits_detect_every_single_wrong_digit() -> None:
    for number in ("021000021", "011401533", "091000019"):
        assert account_numbers.is_routing_number(number)
        assert not any(map(account_numbers.is_routing_number, one_digit_off(number)))
    for number in ("032180000118359719", "002010077777777771"):
        assert account_numbers.is_clabe(number)
        assert not any(map(account_numbers.is_clabe, one_digit_off(number)))


def test_keccak_is_the_variant_from_before_sha3() -> None:
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    abc = "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"

    assert wallet_addresses.keccak_256(b"").hex() == empty
    assert wallet_addresses.keccak_256(b"abc").hex() == abc
    assert len({wallet_addresses.keccak_256(b"a" * size) for size in range(130, 280)}) == 150


@pytest.mark.parametrize(
    "address",
    [
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ],
)
def test_the_case_of_an_address_is_its_checksum(address: str) -> None:
    digits = address[2:]

    assert wallet_addresses.is_evm(address)
    assert wallet_addresses.is_evm("0x" + digits.lower())
    assert wallet_addresses.is_evm("0x" + digits.upper())
    assert not wallet_addresses.is_evm("0x" + digits.swapcase())


def test_spark_addresses_of_every_network_and_of_the_old_prefix_are_accepted() -> None:
    for address in (
        "spark1pgss9z2gpzrnhztwy8ffs44x67angma38sqewwddhxlsk65t0c5d5576quly2j",
        "sprt1pgssyuuuhnrrdjswal5c3s3rafw9w3y5dd4cjy3duxlf7hjzkp0rqx6dj6mrhu",
        "spark1pgssyuuuhnrrdjswal5c3s3rafw9w3y5dd4cjy3duxlf7hjzkp0rqx6dj6mrhu",
    ):
        assert wallet_addresses.is_spark(address)
        assert not wallet_addresses.is_spark(address.replace("pgss", "pgsz"))
        assert not wallet_addresses.is_spark(address[:-1] + address[-1].upper())


def test_an_invoice_has_a_checksum() -> None:
    invoice = (
        "lnbc2500u1pvjluezpp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7"
        "enxv4jsxqzpuaztrnwngzn3kdzw5hydlzf03qdgm2hdq27cqv3agm2awhz5se903vruatfhq77w3ls4evs3ch9zw9"
        "7j25emudupq63nyw24cg27h2rspfj9srp"
    )

    assert wallet_addresses.is_invoice(invoice)
    assert wallet_addresses.is_invoice(invoice.upper())
    assert not wallet_addresses.is_invoice(invoice[:-1] + "q")
    assert not wallet_addresses.is_invoice("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4")


# --- the sandbox's suffixes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "status", "name"),
    [
        ("101", "MATCHED", "Ada Lovelace"),
        ("102", "NOT_MATCHED", None),
        ("103", "PARTIAL_MATCH", "A. Lovelace"),
        ("104", "PENDING", None),
        ("106", "UNSUPPORTED", None),
        ("107", "CHECKED_BY_RECEIVING_FI", None),
    ],
)
def test_the_end_of_the_identifier_decides_the_name_match_in_the_sandbox(
    suffix: str, status: str, name: str | None
) -> None:
    account = parsed(changed("USD_ACCOUNT", accountNumber=f"1234{suffix}")).info

    check = SANDBOX.check(account)

    assert (name_match(account, check), check.verified_name) == (status, name)
    assert name_match(account, None) == "PENDING"


@pytest.mark.parametrize("name", [" ", "Ada", " Ada Lovelace", "é"])
def test_a_partial_match_never_returns_the_beneficiarys_name(name: str) -> None:
    owner = PERSON | {"fullName": name}
    account = parsed(changed("USD_ACCOUNT", beneficiary=owner, accountNumber="1234103")).info

    check = SANDBOX.check(account)

    assert check.name_match == "PARTIAL_MATCH"
    assert check.verified_name != name


def test_the_part_before_the_at_sign_decides_the_name_match() -> None:
    account = parsed(changed("INR_ACCOUNT", vpa="ada102@upi")).info

    assert SANDBOX.check(account).name_match == "NOT_MATCHED"


def test_a_wallet_has_no_name_match() -> None:
    account = parsed(body("SPARK_WALLET")).info

    assert name_match(account, SANDBOX.check(account)) is None
    assert name_match(account, None) is None


def test_only_the_sandbox_reports_an_account_that_does_not_exist() -> None:
    sent = changed("USD_ACCOUNT", accountNumber="1234105")

    assert wrong(sent) == {"accountInfo"}
    assert refusal(sent) is RegistrationRefusal.NUMBER
    assert wrong(sent, None) == set()


# --- sameness --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"bankName": "Another spelling"}, True),
        ({"beneficiary": COMPANY}, True),
        ({"accountNumber": "12345 67890"}, True),
        ({"accountNumber": "1234567891"}, False),
        ({"routingNumber": "011401533"}, False),
    ],
)
def test_two_registrations_of_one_account_have_the_same_fingerprint(
    changes: dict[str, object],
    is_same: bool,  # noqa: FBT001 - a column of the table
) -> None:
    first, second = parsed(body("USD_ACCOUNT")), parsed(changed("USD_ACCOUNT", **changes))

    assert (fingerprint(first) == fingerprint(second)) == is_same


# --- the documentation -----------------------------------------------------------------------


def documented(variant: Variant) -> str:
    fields = ", ".join(
        f"`{to_camel(name)}`" + ("" if isinstance(field, Optional) else "\\*")
        for name, field in variant.fields.items()
    )
    ways = " or ".join(" + ".join(map(to_camel, way)) for way in variant.ways)
    needs = ", ".join(to_camel(field) for field in variant.individual_needs)
    return (
        f"| `{variant.account_type}` | {fields} | {ways} | {' '.join(variant.rails) or 'none'}"
        f" | {needs or 'none'} |"
    )


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_the_documented_table_is_the_table_in_the_code(account_type: str) -> None:
    assert documented(VARIANTS[account_type]) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("iban", "is_valid"),
    [
        ("MA64011519000001205000534921", True),
        ("SN08SN0100152000048500003035", True),
        ("MA64011519000001205000534922", False),
        ("MA6401151900000120500053492", False),
    ],
)
def test_ibans_of_countries_outside_the_registry_have_length_and_check_digits(
    iban: str, *, is_valid: bool
) -> None:
    assert account_numbers.is_iban(iban) is is_valid
