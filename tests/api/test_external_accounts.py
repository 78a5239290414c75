"""External accounts over HTTP: owners, duplicates, the default account."""

import logging
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import httpx2
import psycopg
import pytest
import structlog

from cardledger.api.app import ApiConfig
from cardledger.ledger.customers import external_accounts
from tests.api.support import Api, at_once, check_cap, made, new_tenant, ok, refused, server
from tests.external_accounts import EXAMPLES, body, info

CUSTOMERS = "/customers/external-accounts"
PLATFORM = "/platform/external-accounts"
UNKNOWN = "019542f5-b3e7-7d02-0000-00000000a1b4"


@pytest.fixture
def customer_id(api: Api) -> str:
    return str(api.customer()["id"])


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform that has nothing yet."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def register(api: Api, account_type: str = "USD_ACCOUNT", **fields: object) -> dict[str, Any]:
    return made(api.post(CUSTOMERS, body(account_type, **fields)))


def usd(number: str, **fields: object) -> dict[str, Any]:
    return body("USD_ACCOUNT", accountInfo=info("USD_ACCOUNT", accountNumber=number), **fields)


def remove(api: Api, path: str) -> httpx2.Response:
    return api.http.delete(path)


@pytest.mark.parametrize("account_type", EXAMPLES)
def test_every_variant_is_registered_read_and_deleted(
    api: Api, customer_id: str, account_type: str
) -> None:
    sent = body(account_type, customerId=customer_id, platformAccountId="mine")
    rails = EXAMPLES[account_type].rails.split()

    created = made(api.post(CUSTOMERS, sent))

    path = f"{CUSTOMERS}/{created['id']}"
    returned = sent["accountInfo"] | ({"paymentRails": rails} if rails else {})
    assert created["accountInfo"] == returned
    assert created["id"].startswith("ExternalAccount:")
    assert created["customerId"] == customer_id
    assert (created["status"], created["currency"]) == ("ACTIVE", sent["currency"])
    assert (created["platformAccountId"], created["defaultUmaDepositAccount"]) == ("mine", False)
    assert created.get("beneficiaryVerificationStatus") == ("MATCHED" if rails else None)
    assert ok(api.get(path)) == created
    assert ok(api.get(CUSTOMERS, customerId=customer_id))["data"] == [created]
    gone = remove(api, path)
    assert (gone.status_code, gone.content) == (204, b"")
    refused(api.get(path), 404, "REFERENCE_NOT_FOUND")
    refused(remove(api, path), 404, "REFERENCE_NOT_FOUND")
    assert ok(api.get(CUSTOMERS, customerId=customer_id))["totalCount"] == 0


def test_the_platform_has_accounts_of_its_own(own: Api) -> None:
    theirs = register(own, customerId=own.customer()["id"])
    first = made(own.post(PLATFORM, usd("1000200")))
    second = register(own, "EUR_ACCOUNT")  # Without a customer.

    assert first["customerId"] is None
    assert ok(own.get(f"{PLATFORM}/{first['id']}")) == first
    assert ok(own.get(PLATFORM))["data"] == [first, second]
    assert ok(own.get(PLATFORM, currency="EUR"))["data"] == [second]
    assert ok(own.get(CUSTOMERS))["data"] == [theirs]
    assert ok(own.get(f"{PLATFORM}/{second['id']}")) == second
    assert ok(own.get(f"{CUSTOMERS}/{second['id']}")) == second
    refused(own.get(f"{PLATFORM}/{theirs['id']}"), 404, "REFERENCE_NOT_FOUND")
    refused(remove(own, f"{PLATFORM}/{theirs['id']}"), 404, "REFERENCE_NOT_FOUND")
    assert remove(own, f"{PLATFORM}/{first['id']}").status_code == 204
    assert ok(own.get(PLATFORM))["data"] == [second]


def test_the_platform_paths_accept_neither_customers_nor_defaults(api: Api) -> None:
    sent = body("USD_ACCOUNT", customerId="Customer:x", defaultUmaDepositAccount=True)

    refusal = refused(api.post(PLATFORM, sent), 400, "INVALID_INPUT")

    fields = {error["field"] for error in refusal["details"]["errors"]}
    assert fields == {"customerId", "defaultUmaDepositAccount"}
    refused(api.get(PLATFORM, customerId=f"Customer:{UNKNOWN}"), 400, "INVALID_INPUT")


def test_lists_are_filtered_and_come_in_pages(api: Api, customer_id: str) -> None:
    created = [
        made(api.post(CUSTOMERS, usd(f"77700{number}", customerId=customer_id)))
        for number in range(5)
    ]
    euro = register(api, "EUR_ACCOUNT", customerId=customer_id)

    page = ok(api.get(CUSTOMERS, customerId=customer_id, currency="USD", limit=3))
    rest = ok(
        api.get(
            CUSTOMERS, customerId=customer_id, currency="USD", limit=3, cursor=page["nextCursor"]
        )
    )

    assert page["data"] + rest["data"] == created
    assert (page["hasMore"], rest["hasMore"], rest["totalCount"]) == (True, False, 5)
    assert ok(api.get(CUSTOMERS, customerId=customer_id, currency="EUR"))["data"] == [euro]
    other = api.get(CUSTOMERS, customerId=customer_id, cursor=page["nextCursor"])
    refused(other, 400, "INVALID_INPUT")


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"currency": "EUR"}, "INVALID_CURRENCY", "currency"),
        ({"currency": "usd"}, "INVALID_INPUT", "currency"),
        ({"currency": None}, "INVALID_INPUT", "currency"),
        ({"surprise": 1}, "INVALID_INPUT", "surprise"),
        ({"platformAccountId": ""}, "INVALID_INPUT", "platformAccountId"),
        ({"defaultUmaDepositAccount": "true"}, "INVALID_INPUT", "defaultUmaDepositAccount"),
        ({"defaultUmaDepositAccount": True}, "INVALID_INPUT", "defaultUmaDepositAccount"),
        ({"customerId": "1"}, "INVALID_INPUT", "customerId"),
        ({"customerId": f"Customer:{UNKNOWN}"}, "INVALID_INPUT", "customerId"),
        ({"accountInfo": {}}, "INVALID_INPUT", "accountInfo.accountType"),
        ({"accountInfo": []}, "INVALID_INPUT", "accountInfo"),
        (
            {"accountInfo": {"accountType": "PLASMA_WALLET"}},
            "INVALID_INPUT",
            "accountInfo.accountType",
        ),
        (
            {"accountInfo": info("USD_ACCOUNT", routingNumber="12345678")},
            "INVALID_INPUT",
            "accountInfo.routingNumber",
        ),
        (
            {"accountInfo": info("USD_ACCOUNT", accountNumber="555105")},
            "INVALID_BANK_ACCOUNT",
            "accountInfo",
        ),
    ],
)
def test_the_error_names_the_invalid_fields_and_nothing_is_stored(
    own: Api, change: dict[str, object], code: str, field: str
) -> None:
    refusal = refused(own.post(CUSTOMERS, body("USD_ACCOUNT") | change), 400, code)

    assert [error["field"] for error in refusal["details"]["errors"]] == [field]
    assert ok(own.get(PLATFORM))["totalCount"] == 0


def test_an_account_is_registered_once_per_owner(api: Api, customer_id: str) -> None:
    first = register(api, "GBP_ACCOUNT", customerId=customer_id)

    refused(api.post(CUSTOMERS, body("GBP_ACCOUNT", customerId=customer_id)), 409, "CONFLICT")

    assert register(api, "GBP_ACCOUNT", customerId=api.customer()["id"])["id"] != first["id"]
    assert remove(api, f"{CUSTOMERS}/{first['id']}").status_code == 204
    assert register(api, "GBP_ACCOUNT", customerId=customer_id)["id"] != first["id"]


def test_a_customer_has_exactly_as_many_accounts_as_it_may_have(
    api: Api, customer_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_accounts, "ACCOUNT_LIMIT", 3)
    numbers = count(10_000_000)

    def register_next(owner: str = customer_id) -> httpx2.Response:
        return api.post(CUSTOMERS, usd(str(next(numbers)), customerId=owner))

    answers = at_once(8, register_next)

    check_cap(answers, made=3, limit=3)
    created = next(answer for answer in answers if answer.status_code == 201).json()
    made(register_next(api.customer()["id"]))
    assert remove(api, f"{CUSTOMERS}/{created['id']}").status_code == 204
    made(register_next())


def test_of_concurrent_registrations_of_one_account_one_succeeds(
    api: Api, customer_id: str
) -> None:
    with ThreadPoolExecutor(10) as pool:
        sent = [
            pool.submit(api.post, CUSTOMERS, body("ZAR_ACCOUNT", customerId=customer_id))
            for _ in range(20)
        ]
        answers = [future.result() for future in sent]

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19


def test_a_token_needs_the_permission(root: str, api: Api, api_config: ApiConfig) -> None:
    created = register(api, "NGN_ACCOUNT", customerId=api.customer()["id"])
    tenant = new_tenant(api_config.database_url, permissions=("VIEW",), of=api.tenant)
    with Api(root, tenant) as reader:
        assert ok(reader.get(f"{CUSTOMERS}/{created['id']}")) == created
        refused(reader.post(CUSTOMERS, body("USD_ACCOUNT")), 403, "FORBIDDEN")
        refused(reader.post(PLATFORM, body("USD_ACCOUNT")), 403, "FORBIDDEN")
        refused(remove(reader, f"{CUSTOMERS}/{created['id']}"), 403, "FORBIDDEN")


def test_another_platform_sees_and_changes_nothing(
    api: Api, other_platform: Api, customer_id: str
) -> None:
    theirs = register(api, customerId=customer_id)
    shared = made(api.post(PLATFORM, usd("424200")))

    for path in (CUSTOMERS, PLATFORM):
        for account in (theirs, shared):
            refused(other_platform.get(f"{path}/{account['id']}"), 404, "REFERENCE_NOT_FOUND")
            refused(remove(other_platform, f"{path}/{account['id']}"), 404, "REFERENCE_NOT_FOUND")
        assert ok(other_platform.get(path))["totalCount"] == 0
    assert ok(other_platform.get(CUSTOMERS, customerId=customer_id))["totalCount"] == 0
    answer = other_platform.post(CUSTOMERS, body("EUR_ACCOUNT", customerId=customer_id))
    refused(answer, 400, "INVALID_INPUT")
    assert made(other_platform.post(PLATFORM, usd("424200")))["id"] != shared["id"]
    assert ok(api.get(f"{CUSTOMERS}/{theirs['id']}")) == theirs


@pytest.mark.parametrize("key", ["1", "ExternalAccount:1", f"Card:{UNKNOWN}"])
def test_an_invalid_id_is_not_found(api: Api, key: str) -> None:
    for path in (CUSTOMERS, PLATFORM):
        refused(api.get(f"{path}/{key}"), 404, "REFERENCE_NOT_FOUND")
        refused(remove(api, f"{path}/{key}"), 404, "REFERENCE_NOT_FOUND")


# --- the default -----------------------------------------------------------------------------


def defaults(api: Api, customer_id: str) -> list[str]:
    listed = ok(api.get(CUSTOMERS, customerId=customer_id, limit=100))["data"]
    return [account["id"] for account in listed if account["defaultUmaDepositAccount"]]


def test_a_new_default_replaces_the_former_default(api: Api, customer_id: str) -> None:
    def make(number: str, **fields: object) -> str:
        return str(made(api.post(CUSTOMERS, usd(number, customerId=customer_id, **fields)))["id"])

    first = make("100", defaultUmaDepositAccount=True)
    make("200")
    assert defaults(api, customer_id) == [first]

    second = make("300", defaultUmaDepositAccount=True)
    assert defaults(api, customer_id) == [second]

    refused(
        api.post(CUSTOMERS, usd("100", customerId=customer_id, defaultUmaDepositAccount=True)),
        409,
        "CONFLICT",
    )
    assert defaults(api, customer_id) == [second]

    assert remove(api, f"{CUSTOMERS}/{second}").status_code == 204
    assert defaults(api, customer_id) == []
    third = make("400", defaultUmaDepositAccount=True)
    assert defaults(api, customer_id) == [third]


def test_of_concurrent_default_accounts_one_remains_the_default(api: Api, customer_id: str) -> None:
    def make(number: int) -> int:
        sent = usd(f"88{number}00", customerId=customer_id, defaultUmaDepositAccount=True)
        return api.post(CUSTOMERS, sent).status_code

    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(make, range(20)))

    assert statuses == [201] * 20
    assert len(defaults(api, customer_id)) == 1


def test_the_database_itself_refuses_a_second_default(
    api: Api, customer_id: str, database_url: str
) -> None:
    for number in ("100", "200"):
        made(api.post(CUSTOMERS, usd(number, customerId=customer_id)))

    change = (
        "UPDATE external_accounts SET default_uma_deposit_account = true WHERE customer_id = %s"
    )
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.errors.UniqueViolation),
    ):
        connection.execute(change, [customer_id.removeprefix("Customer:")])


# --- rights, logs, and outside the sandbox ---------------------------------------------------


@pytest.mark.parametrize("change", ["account_info = '{}'", "customer_id = NULL", "currency = 'X'"])
def test_the_application_role_cannot_change_the_identity_of_an_account(
    app_database_url: str, change: str
) -> None:
    with (
        psycopg.connect(app_database_url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(f"UPDATE external_accounts SET {change}".encode())


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Every line that is logged, with its traceback."""
    lines: list[str] = []

    def keep(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        lines.append(str(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    caplog.set_level(logging.DEBUG)
    yield lines
    lines.append(caplog.text)
    structlog.configure(**before)


def test_no_account_data_is_logged_even_when_the_database_refuses_it(
    api: Api, customer_id: str, database_url: str, logged: list[str]
) -> None:
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE external_accounts ADD CHECK (platform_account_id <> 'odd')")
    for _ in range(2):
        api.post(CUSTOMERS, usd("9988776655", customerId=customer_id))
    api.post(CUSTOMERS, usd("9988776655105", customerId=customer_id))

    answer = api.post(
        CUSTOMERS, usd("99887766550", customerId=customer_id, platformAccountId="odd")
    )

    refused(answer, 500, "INTERNAL_ERROR")
    written = "".join(logged)
    assert "the record refused an external account" in written
    assert "9988776655" not in written
    assert "Lovelace" not in written


def test_without_an_account_verifier_an_account_stays_pending(api_config: ApiConfig) -> None:
    config = replace(api_config, sandbox=False)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as real:
        created = made(real.post(PLATFORM, usd("1234105")))

        wrong = info("USD_ACCOUNT", routingNumber="123456789")
        refusal = refused(
            real.post(PLATFORM, body("USD_ACCOUNT", accountInfo=wrong)), 400, "INVALID_BANK_ACCOUNT"
        )

    assert (created["status"], created["beneficiaryVerificationStatus"]) == ("PENDING", "PENDING")
    assert "beneficiaryVerifiedData" not in created
    [error] = refusal["details"]["errors"]
    assert error["field"] == "accountInfo.routingNumber"
    assert "check digit" in error["message"]


def test_the_sandbox_accepts_what_the_interface_shows(api: Api, customer_id: str) -> None:
    shown = info("USD_ACCOUNT", routingNumber="123456789", accountNumber="123456789")

    created = made(
        api.post(CUSTOMERS, body("USD_ACCOUNT", accountInfo=shown, customerId=customer_id))
    )

    assert created["accountInfo"]["routingNumber"] == "123456789"


@pytest.mark.parametrize(
    ("iban", "status"),
    [("DE89370400440532013102", "NOT_MATCHED"), ("DE89370400440532013103", "PARTIAL_MATCH")],
)
def test_the_suffix_of_an_iban_selects_the_name_check(api: Api, iban: str, status: str) -> None:
    wish = body("EUR_ACCOUNT", accountInfo=info("EUR_ACCOUNT", iban=iban))

    created = made(api.post(PLATFORM, wish))

    assert created["beneficiaryVerificationStatus"] == status
