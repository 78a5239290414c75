"""The 45 variants, one by one: what is asked, what is told, what is wrong with a number."""

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
    Refusal,
    Registration,
    fingerprint,
    refusal_of,
    verification_of,
    verified_name,
)
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


def parsed(sent: dict[str, Any]) -> Registration:
    request = ExternalAccountCreate.model_validate(sent)
    return Registration(customer_id=OWNER, currency=request.currency, info=request.account_info)


def wrong(sent: dict[str, Any], *, is_sandbox: bool = True) -> set[str]:
    """Return the fields that a client is told to change."""
    try:
        refused = refusal_of(parsed(sent), is_sandbox=is_sandbox)
    except ValidationError as error:
        return {complaint.field for complaint in field_errors(error.errors())}
    return {error.field for error in refused.errors} if refused else set()


def changed(account_type: str, **changes: object) -> dict[str, Any]:
    return body(account_type, accountInfo=info(account_type, **changes))


def refusal(sent: dict[str, Any]) -> Refusal | None:
    refused = refusal_of(parsed(sent), is_sandbox=True)
    return refused.refusal if refused else None


# --- every variant ---------------------------------------------------------------------------


def test_there_are_45_variants_and_an_example_of_each() -> None:
    assert len(VARIANTS) == 45
    assert set(VARIANTS) == set(EXAMPLES)


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_a_right_account_is_accepted(account_type: str) -> None:
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
def test_a_field_that_is_wrong_is_named(account_type: str, field: str, value: object) -> None:
    assert f"accountInfo.{field}" in wrong(changed(account_type, **{field: value}))


@pytest.mark.parametrize(
    ("account_type", "field"),
    [
        (account_type, field)
        for account_type, example in EXAMPLES.items()
        for field in example.fields
    ],
)
def test_a_field_may_be_missing_only_when_it_is_optional(account_type: str, field: str) -> None:
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
def test_what_was_registered_reads_as_it_was_sent(account_type: str) -> None:
    sent = info(account_type)
    told = sent | {"paymentRails": list(VARIANTS[account_type].rails)}

    read = TypeAdapter(AccountInfoResource).validate_python(told)

    rails = {} if EXAMPLES[account_type].rails else {"paymentRails"}
    shown = read.wire()
    assert shown == {name: value for name, value in told.items() if name not in rails}
    accepted = ExternalAccountCreate.model_validate(body(account_type)).account_info
    assert accepted.model_dump(mode="json", by_alias=True, exclude_none=True) == sent


# --- more than one field ---------------------------------------------------------------------


def test_a_reader_understands_the_other_name_of_lightning() -> None:
    told = info("LIGHTNING") | {"accountType": "LIGHTNING_ACCOUNT"}

    assert TypeAdapter(AccountInfoResource).validate_python(told).wire() == told


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
def test_the_fields_have_to_tell_one_account(
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
def test_some_rails_ask_more_of_a_person_than_of_a_company(account_type: str, field: str) -> None:
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
def test_a_beneficiary_is_looked_at_too(field: str, value: object) -> None:
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
def test_two_countries_know_more_of_a_person(account_type: str, more: dict[str, str]) -> None:
    assert wrong(changed(account_type, beneficiary=PERSON | more)) == set()
    assert len(wrong(changed("USD_ACCOUNT", beneficiary=PERSON | more))) == len(more)


def test_a_default_needs_a_customer() -> None:
    request = parsed(body("USD_ACCOUNT"))
    wanted = Registration(customer_id=None, currency="USD", info=request.info, is_default=True)

    refused = refusal_of(wanted, is_sandbox=True)

    assert refused is not None
    assert [error.field for error in refused.errors] == ["defaultUmaDepositAccount"]


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_the_currency_fits_the_account(account_type: str) -> None:
    free = not EXAMPLES[account_type].beneficiary

    assert refusal(body(account_type, currency="ZZZ")) == (None if free else Refusal.CURRENCY)


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
def test_a_number_that_no_account_has_is_refused(account_type: str, field: str, value: str) -> None:
    sent = changed(account_type, **{field: value})

    assert refusal(sent) is Refusal.NUMBER
    assert wrong(sent) == {f"accountInfo.{field}"}


@given(st.from_regex(r"\A[A-Z]{2}[0-9]{2}[A-Za-z0-9]{11,30}\Z"), st.text())
def test_whatever_is_sent_is_judged(iban: str, text: str) -> None:
    assert account_numbers.is_iban(iban) in {True, False}
    for checks in wallet_addresses.CHECKS.values():
        assert {is_right(text) for is_right in checks.values()} <= {True, False}


def one_digit_off(number: str) -> Iterable[str]:
    for at, digit in enumerate(number):
        yield number[:at] + str((int(digit) + 1) % 10) + number[at + 1 :]


def test_every_single_wrong_digit_shows() -> None:
    for number in ("021000021", "011401533", "091000019"):
        assert account_numbers.is_routing_number(number)
        assert not any(map(account_numbers.is_routing_number, one_digit_off(number)))
    for number in ("032180000118359719", "002010077777777771"):
        assert account_numbers.is_clabe(number)
        assert not any(map(account_numbers.is_clabe, one_digit_off(number)))


def test_keccak_is_the_one_from_before_the_standard() -> None:
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


def test_spark_addresses_of_every_network_and_of_the_old_name_are_understood() -> None:
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
def test_the_end_of_the_identifier_decides_on_the_name(
    suffix: str, status: str, name: str | None
) -> None:
    account = parsed(changed("USD_ACCOUNT", accountNumber=f"1234{suffix}")).info

    found = verification_of(account, is_sandbox=True)

    assert (found, verified_name(account, found)) == (status, name)
    assert verification_of(account, is_sandbox=False) == "PENDING"


@pytest.mark.parametrize("name", [" ", "Ada", " Ada Lovelace", "é"])
def test_every_name_can_be_matched_in_part(name: str) -> None:
    owner = PERSON | {"fullName": name}
    account = parsed(changed("USD_ACCOUNT", beneficiary=owner)).info

    assert verified_name(account, "PARTIAL_MATCH") != name


def test_of_an_e_mail_address_the_name_decides() -> None:
    account = parsed(changed("INR_ACCOUNT", vpa="ada102@upi")).info

    assert verification_of(account, is_sandbox=True) == "NOT_MATCHED"


def test_a_wallet_has_no_holder_whose_name_could_be_compared() -> None:
    assert verification_of(parsed(body("SPARK_WALLET")).info, is_sandbox=True) is None


def test_only_the_sandbox_knows_an_account_that_does_not_exist() -> None:
    sent = changed("USD_ACCOUNT", accountNumber="1234105")

    assert wrong(sent) == {"accountInfo"}
    assert refusal(sent) is Refusal.NUMBER
    assert wrong(sent, is_sandbox=False) == set()


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
def test_number_and_bank_make_an_account_the_same(
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
def test_the_documented_table_is_the_one_that_is_used(account_type: str) -> None:
    assert documented(VARIANTS[account_type]) in PAGE.read_text(encoding="utf-8").splitlines()
