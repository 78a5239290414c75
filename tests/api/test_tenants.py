"""Two platforms in one database never see each other's rows: every operation is tried.

Operations are read from the application, so a new one is tried without being named here. What it
may need from here is a resource to name in its path (`MAKERS`), a body (`BODIES`) and who may
call it (`CALLERS`); it fails until it has them.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

import httpx2
import psycopg
import pytest
import structlog
from psycopg import errors, sql
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.platform_views import SETTING, VIEWS, schema_beside, search_path
from tests.api import contract, documents
from tests.api.documents import document
from tests.api.support import (
    AGENT_POLICY,
    AgentApi,
    Api,
    authorization,
    made,
    new_tenant,
    ok,
    parked,
    redeem,
    rejected,
)
from tests.api.test_beneficial_owners import PERSON
from tests.api.test_challenges import unproven
from tests.api.test_idempotency import BUSINESS
from tests.external_accounts import body as external_account
from tests.external_accounts import new_account_number
from tests.files import form
from tests.passkeys import ORIGIN, Passkey
from tests.waiting import eventually

ID: Final = re.compile(r"([A-Z][A-Za-z]+):([0-9a-f-]{36})")

Ids = Mapping[str, str]
"""Ids of one platform, by what names them: a path parameter, perhaps with the path before it."""


# --- what a new operation may need -----------------------------------------------------------


def _card_transaction(one: "Platform") -> str:
    return str(one.api.authorize(one.ids["cardId"], 100)["id"])


def _business(one: "Platform") -> str:
    return str(made(one.api.post("/customers", BUSINESS))["id"])


def _another_account(one: "Platform") -> str:
    wish = {"customerId": one.ids["customerId"], "currency": "USD"}
    return str(made(one.api.post("/customers/internal-accounts", wish))["id"])


def _token(one: "Platform") -> str:
    return str(made(one.api.post("/tokens", {"name": "till", "permissions": ["VIEW"]}))["id"])


def _external_account(one: "Platform") -> str:
    wish = external_account("EUR_ACCOUNT", customerId=one.ids["customerId"])
    return str(made(one.api.post("/customers/external-accounts", wish))["id"])


def _platform_external_account(one: "Platform") -> str:
    wish = external_account("USD_ACCOUNT")
    wish["accountInfo"]["accountNumber"] = new_account_number()  # The same twice is a conflict.
    return str(made(one.api.post("/platform/external-accounts", wish))["id"])


def _beneficial_owner(one: "Platform") -> str:
    return str(made(one.api.post("/beneficial-owners", _owner(one.ids)))["id"])


def _verification(one: "Platform") -> str:
    return str(ok(one.api.post("/verifications", {"customerId": one.ids["businessId"]}))["id"])


def _document(one: "Platform") -> str:
    return str(made(one.api.http.post("/documents", **form(one.ids["customerId"])))["id"])


def _upload(one: "Platform") -> str:
    sent = one.api.http.post("/customers/bulk/csv", files={"file": ("a.csv", b"a")})
    key = str(ok(sent, 202)["jobId"])
    eventually(lambda: "completedAt" in ok(one.api.get(f"/customers/bulk/jobs/{key}")))
    return key


def _agent(one: "Platform") -> str:
    wish = {"name": "Bookkeeper", "customerId": one.ids["customerId"], "policy": _POLICY}
    return str(made(one.api.post("/agents", wish))["agent"]["id"])


def _action(one: "Platform") -> str:
    with AgentApi(one.api.root, one.bearer) as agent:
        return str(made(agent.post("/agents/me/transfer-out", _transfer(one.ids)))["id"])


def _transfer_that_waits(one: "Platform") -> str:
    listed = one.api.get("/transactions", customerId=one.ids["customerId"], status="PENDING")
    [waits] = ok(listed)["data"]
    return str(waits["id"])


def _quote(one: "Platform") -> str:
    return str(made(one.api.post("/quotes", _quoted(one.ids)))["id"])


def _quote_of_agent(one: "Platform") -> str:
    with AgentApi(one.api.root, one.bearer) as agent:
        return str(made(agent.post("/agents/me/quotes", _quoted(one.ids)))["id"])


def _webhook_endpoint(one: "Platform") -> str:
    return str(made(one.api.post("/webhooks/endpoints", _NOWHERE))["id"])


def _webhook_delivery(one: "Platform") -> str:
    wish = {"endpointId": one.ids["webhookEndpointId"]}
    return str(ok(one.api.post("/webhooks/test", wish))["deliveryId"])


def _european(one: "Platform") -> str:
    """Make a customer who has to authenticate, with verified contacts."""
    contacts = {"email": "ada@example.com", "phoneNumber": "+4915112345678"}
    customer_id = str(one.api.customer(region="DE", **contacts)["id"])
    for channel in ("email", "phone"):
        path = f"/customers/{customer_id}/verify-{channel}"
        assert one.api.post(path, None).status_code == 204
        ok(one.api.post(path + "/confirm", {"code": "123456"}))
    return customer_id


def _passkey(one: "Platform") -> str:
    path = f"/sca/factors{{}}?customerId={one.ids['europeanId']}"
    options = ok(one.api.post(path.format(""), {"type": "PASSKEY"}))["options"]
    passkey = Passkey()
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": passkey.create(options)}
    return str(ok(one.api.post(path.format("/confirm"), proof))["factor"]["credentialId"])


def _sca_reset(one: "Platform") -> str:
    path = f"/sca/factors/reset?customerId={one.ids['europeanId']}"
    return str(made(one.api.post(path, {"factor": "SMS_OTP"}))["resetId"])


def _uma_address(one: "Platform") -> str:
    return str(ok(one.api.get(f"/customers/{one.ids['customerId']}"))["umaAddress"])


def _invitation(one: "Platform") -> str:
    return str(made(one.api.post("/invitations", {"inviterUma": _uma_address(one)}))["code"])


def _bearer(one: "Platform") -> Mapping[str, str]:
    return {"authorization": f"Bearer {one.bearer}"}


def _owner(ids: Ids) -> dict[str, Any]:
    return {
        "customerId": ids["businessId"],
        "roles": ["UBO"],
        "ownershipPercentage": 1,
        "personalInfo": PERSON,
    }


def _transfer(ids: Ids) -> dict[str, Any]:
    return {
        "source": {"accountId": ids["internalAccountId"]},
        "destination": {"accountId": ids["destinationId"]},
        "amount": 1,
    }


def _quoted(ids: Ids) -> dict[str, Any]:
    return {
        "source": {"sourceType": "ACCOUNT", "accountId": ids["internalAccountId"]},
        "destination": {"destinationType": "ACCOUNT", "accountId": ids["externalAccountId"]},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 100,
    }


_POLICY: Final = AGENT_POLICY | {
    "permissions": [
        "VIEW_TRANSACTIONS",
        "CREATE_TRANSFERS",
        "MANAGE_EXTERNAL_ACCOUNTS",
        "CREATE_QUOTES",
        "EXECUTE_QUOTES",
    ],
    "defaultExecutionMode": "APPROVAL_REQUIRED",
}
_NOWHERE: Final = {"url": "http://127.0.0.1:9/", "state": "DISABLED"}

MAKERS: Final[dict[str, Callable[["Platform"], str]]] = {
    "cardId": lambda one: str(one.api.active_card()["id"]),
    "customerId": lambda one: str(ok(one.api.get(f"/cards/{one.ids['cardId']}"))["cardholderId"]),
    "internalAccountId": lambda one: str(
        ok(one.api.get(f"/cards/{one.ids['cardId']}"))["fundingSources"][0]
    ),
    "destinationId": _another_account,
    "businessId": _business,
    "beneficialOwnerId": _beneficial_owner,
    "verificationId": _verification,
    "documentId": _document,
    "jobId": _upload,
    "externalAccountId": _external_account,
    "/platform/external-accounts/externalAccountId": _platform_external_account,
    "/agents/me/external-accounts/externalAccountId": lambda one: one.ids["externalAccountId"],
    "agentId": _agent,
    "actionId": _action,
    "/agents/me/transactions/transactionId": _transfer_that_waits,
    "code": lambda one: str(one.api.agent(one.ids["customerId"])["deviceCode"]["code"]),
    "transactionId": _card_transaction,
    "tokenId": _token,
    "quoteId": _quote,
    "/agents/me/quotes/quoteId": _quote_of_agent,
    "/receiver/external-account/accountId": lambda one: one.ids["externalAccountId"],
    "receiverUmaAddress": lambda _: "$success.eur@sandbox.uma.money",
    "umaAddress": _uma_address,
    "invitationCode": _invitation,
    "webhookEndpointId": _webhook_endpoint,
    "webhookDeliveryId": _webhook_delivery,
    "rejectionId": lambda one: rejected(one.database_url, one.api, {}),
    "parkedEventId": lambda one: parked(one.database_url, one.ids["cardId"], str(uuid4())),
    "europeanId": _european,
    "resetId": _sca_reset,
    "credentialId": _passkey,
}
"""How to make what a path parameter or a body names, in this order; where the same name means two
things, with the path before it."""

UNLISTED: Final = {"resetId", "quoteId", "/agents/me/quotes/quoteId", "umaAddress"}
"""What no list has."""

PUBLIC: Final = {"receiverUmaAddress", "invitationCode"}
"""What belongs to no platform, or whose code is the right to it: anyone may look it up."""

QUERIES: Final[dict[str, str]] = {
    **{
        f"/sca/{path}?customerId": "europeanId"
        for path in (
            "factors",
            "factors/confirm",
            "factors/{credentialId}",
            "factors/reset",
            "factors/reset/{resetId}",
            "factors/reset/{resetId}/complete",
            "login/start",
            "login/complete",
            "record-event",
        )
    },
    "customerId": "customerId",
    "cardholderId": "customerId",
    "accountId": "internalAccountId",
    "cardId": "cardId",
    "agentId": "agentId",
    "cardTransactionId": "transactionId",
    "endpointId": "webhookEndpointId",
    "subjectId": "cardId",
    "/beneficial-owners?customerId": "businessId",
    "documentHolder": "customerId",
    "accountIdentifier": "internalAccountId",
    "senderAccountIdentifier": "internalAccountId",
    "receiverAccountIdentifier": "internalAccountId",
}
"""What a query parameter names that ends in Id or Identifier, perhaps with the path before it."""

NAMES: Final = {"platformCustomerId", "platformCardId"}
"""Query parameters that look as if they named a resource and are free text of the platform's."""

_PURCHASE = {"amount": 10}

BODIES: Final[dict[str, Callable[[Ids], Any]]] = {
    "POST /customers": lambda _: {"customerType": "INDIVIDUAL", "fullName": "Ada"},
    "PATCH /customers/{customerId}": lambda _: {"customerType": "INDIVIDUAL", "fullName": "Eve"},
    "POST /cards": lambda ids: {
        "cardholderId": ids["customerId"],
        "form": "VIRTUAL",
        "fundingSources": [ids["internalAccountId"]],
    },
    "PATCH /cards/{cardId}": lambda ids: {"fundingSources": [ids["internalAccountId"]]},
    "POST /sandbox/internal-accounts/{internalAccountId}/fund": lambda _: _PURCHASE,
    "POST /customers/external-accounts": lambda ids: external_account(
        "EUR_ACCOUNT", customerId=ids["customerId"]
    ),
    "POST /platform/external-accounts": lambda _: external_account("USD_ACCOUNT"),
    "POST /tokens": lambda _: {"name": "till", "permissions": ["VIEW"]},
    "POST /tokens/{tokenId}/rotate-secret": lambda _: {"overlapHours": 1},
    "POST /agents": lambda ids: {
        "name": "Bookkeeper",
        "customerId": ids["customerId"],
        "policy": AGENT_POLICY,
    },
    "PATCH /agents/{agentId}": lambda _: {"name": "Eve"},
    "PATCH /agents/{agentId}/policy": lambda _: AGENT_POLICY,
    "POST /agents/me/external-accounts": lambda _: external_account("GBP_ACCOUNT"),
    **{f"POST /agents/me/transfer-{way}": _transfer for way in ("in", "out")},
    "POST /transfer-out": _transfer,
    "POST /transfer-in": lambda ids: {
        "source": {"accountId": ids["externalAccountId"]},
        "destination": {"accountId": ids["internalAccountId"]},
        "amount": 1,
    },
    "POST /crypto/estimate-withdrawal-fee": lambda ids: {
        "internalAccountId": ids["internalAccountId"],
        "currency": "USDC",
        "cryptoNetwork": "BASE",
        "amount": 10_000_000,
        "destinationAddress": "0x52908400098527886E0F7030069857D2E4169EE7",
    },
    **{
        f"POST /transactions/{{transactionId}}/{step}": lambda _: {}
        for step in ("cancel", "confirm")
    },
    **{
        f"POST {path}/{decision}": lambda _: {}
        for path in ("/transactions/{transactionId}", "/agents/{agentId}/actions/{actionId}")
        for decision in ("approve", "reject")
    },
    "POST /customers/internal-accounts": lambda ids: {
        "customerId": ids["customerId"],
        "currency": "USD",
    },
    "POST /beneficial-owners": _owner,
    **{
        f"POST /customers/{{customerId}}/verify-{channel}/confirm": lambda _: {"code": "123456"}
        for channel in ("email", "phone")
    },
    "POST /sca/factors": lambda _: {"type": "TOTP"},
    "POST /sca/factors/confirm": lambda _: {"type": "TOTP", "secret": "00", "code": "123456"},
    "POST /sca/login/start": lambda _: {"factor": "SMS_OTP"},
    "POST /sca/login/complete": lambda _: {
        "factor": "SMS_OTP",
        "code": "123456",
        "endUserIpAddress": "192.0.2.1",
    },
    "POST /sca/record-event": lambda _: {"eventType": "FAILED_LOGIN_ATTEMPT"},
    "POST /sca/factors/reset": lambda _: {"factor": "SMS_OTP"},
    "POST /sca/factors/reset/{resetId}/complete": lambda _: {
        "mobile": {"countryCode": "+49", "number": "15100000000"}
    },
    **{
        f"POST /customers/external-accounts/{{externalAccountId}}/{way}/confirm": lambda _: {
            "code": "123456"
        }
        for way in ("trust", "untrust")
    },
    "PATCH /beneficial-owners/{beneficialOwnerId}": lambda _: {"ownershipPercentage": 2},
    "POST /customers/bulk/csv": lambda _: {"files": {"file": ("a.csv", b"a")}},
    "POST /customers/{customerId}/kyc-link": lambda _: {},
    **{
        f"POST /{owner}/external-accounts/{{externalAccountId}}/verify": lambda _: {
            "amounts": [12, 34]
        }
        for owner in ("customers", "platform")
    },
    "POST /documents": lambda ids: form(ids["customerId"]),
    "PUT /documents/{documentId}": lambda _: form(None),
    "POST /verifications": lambda ids: {"customerId": ids["businessId"]},
    "POST /webhooks/endpoints": lambda _: _NOWHERE,
    "PATCH /webhooks/endpoints/{webhookEndpointId}": lambda _: {"description": "Eve"},
    "POST /webhooks/signing-keys/rotate": lambda _: {"overlapHours": 1},
    "POST /webhooks/test": lambda ids: {"endpointId": ids["webhookEndpointId"]},
    "POST /webhooks/replay": lambda ids: {
        "since": "2020-01-01T00:00:00Z",
        "endpointId": ids["webhookEndpointId"],
    },
    "POST /quotes": _quoted,
    "POST /quotes/{quoteId}/authorize": lambda _: {"code": "123456"},
    "POST /agents/me/quotes": _quoted,
    "POST /invitations": lambda ids: {"inviterUma": ids["umaAddress"]},
    "POST /invitations/{invitationCode}/claim": lambda ids: {"inviteeUma": ids["umaAddress"]},
    "POST /sandbox/uma/receive": lambda ids: {
        "senderUmaAddress": "$success.usd@sandbox.uma.money",
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 1,
        "customerId": ids["customerId"],
    },
    "POST /sandbox/send": lambda ids: {"quoteId": ids["quoteId"], "currencyCode": "USD"},
    "POST /sandbox/exchange-rates": lambda _: {
        "sourceCurrency": "USD",
        "destinationCurrency": "EUR",
        "exchangeRate": 1.25,
    },
    "PATCH /config": lambda _: {"umaDomain": "eve.example.com"},
    **{
        f"POST /sandbox/cards/{{cardId}}/simulate/{name}": lambda _: authorization(10)
        for name in (
            "authorization",
            "financial_authorization",
            "financial_credit_authorization",
            "credit_authorization",
            "credit_authorization_advice",
        )
    },
    **{
        f"POST /sandbox/cards/{{cardId}}/simulate/{name}": lambda ids: (
            _PURCHASE | {"cardTransactionId": ids["transactionId"]}
        )
        for name in ("clearing", "return", "authorization_advice")
    },
    **{
        f"POST /sandbox/cards/{{cardId}}/simulate/{name}": lambda ids: {
            "cardTransactionId": ids["transactionId"]
        }
        for name in ("return_reversal", "authorization_reversal", "authorization_expiry")
    },
    "POST /sandbox/cards/{cardId}/simulate/balance_inquiry": lambda _: {
        "merchant": {"descriptor": "SHOP"}
    },
}
"""A body that the operation takes, made of ids of the caller's own."""

CALLERS: Final[dict[str, Callable[["Platform"], Mapping[str, str]]]] = {"/agents/me": _bearer}
"""By how its path begins: the header that lets a platform's caller in, where it is not Basic."""


# --- the rest works by itself ----------------------------------------------------------------


@dataclass
class Platform:
    """One platform, and one of each of its resources."""

    api: Api
    database_url: str
    ids: dict[str, str] = field(default_factory=dict)

    @cached_property
    def bearer(self) -> str:
        """The token of this platform's agent."""
        made_anew = self.api.post(f"/agents/{self.ids['agentId']}/device-codes", None)
        return str(ok(redeem(self.api.root, made(made_anew)["code"]))["accessToken"])

    def ask(
        self, operation: "Operation", ids: Ids, body: object = None, **query: str
    ) -> httpx2.Response:
        """Call `operation` as this platform, with `ids` in its path."""
        path = operation.path_with(ids) + (f"?{urlencode(query)}" if query else "")
        if operation.takes_form and isinstance(body, dict):
            return self.api.http.request(operation.method, path, **body)
        content = b"" if body is None else json.dumps(body).encode()
        for beginning, header in CALLERS.items():
            if operation.path.startswith(beginning):
                return httpx2.request(
                    operation.method,
                    self.api.root + BASE_PATH + path,
                    content=content,
                    headers={"content-type": "application/json", **header(self)},
                )
        return self.api.raw(operation.method, path, content)


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    queries: tuple[str, ...]
    needed: tuple[str, ...]
    takes_body: bool
    takes_form: bool
    is_not_built: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> list[str]:
        """What names a resource in the path, by the names of `MAKERS`."""
        named = []
        for found in re.finditer(r"\{(\w+)\}", self.path):
            longer = self.path[: found.start()] + found[1]
            named.append(longer if longer in MAKERS else found[1])
        return named

    @property
    def owned(self) -> list[str]:
        """What names a resource of a platform in the path."""
        return [name for name in self.parameters if name not in PUBLIC]

    def path_with(self, ids: Ids) -> str:
        """Return the path as it is sent."""
        names = iter(self.parameters)
        return re.sub(r"\{\w+\}", lambda _: ids[next(names)], self.path)

    def named_by(self, query: str) -> str:
        """Return by which name of `MAKERS` the parameter `query` names something."""
        longer = f"{self.path}?{query}"
        assert longer in QUERIES or query in QUERIES, f"{self}: say in QUERIES what {query} names"
        return QUERIES.get(longer) or QUERIES[query]

    def query_with(self, ids: Ids) -> dict[str, str]:
        """Return what the query cannot be without."""
        return {query: ids[self.named_by(query)] for query in self.needed}

    def body_with(self, ids: Ids) -> object:
        """Return a body that is right, None when there is none to be sent."""
        if not self.takes_body:
            return None
        make = BODIES.get(str(self))
        assert make is not None, f"give {self} a body in BODIES"
        return make(ids)


def _operations() -> Iterator[Operation]:
    for path, method, sent_body in contract.operations():
        if "servers" in document()["paths"][path]:
            continue  # Not below the base path: about the installation, not about a platform.
        if not sent_body["security"]:
            continue  # Without credentials: the token in the path is the proof.
        given = [documents.resolved(one) for one in sent_body.get("parameters", ())]
        yield Operation(
            method.upper(),
            path,
            tuple(one["name"] for one in given if one["in"] == "query"),
            tuple(one["name"] for one in given if one["in"] == "query" and one["required"]),
            "requestBody" in sent_body,
            "multipart/form-data" in sent_body.get("requestBody", {}).get("content", {}),
            bool(sent_body.get("x-unimplemented")),
        )


class Trace:
    """The SQL statements of each request, from where its credentials are known."""

    def __init__(self) -> None:
        self._queries: defaultdict[str, list[tuple[str, Any]]] = defaultdict(list)

    def note(self, statement: object, parameters: object) -> None:
        """Note a statement of the request that this task handles."""
        request_id = structlog.contextvars.get_contextvars().get("request_id")
        # Whether a pooled connection has served the platform before depends on other requests.
        is_before = "secret_hash" in str(statement) or SETTING in str(statement)
        if request_id is not None and not is_before:
            self._queries[request_id].append((str(statement), parameters))

    def of(self, response: httpx2.Response) -> list[str]:
        """Return the statements of the request that `response` answers."""
        return [statement for statement, _ in self.with_parameters(response)]

    def with_parameters(self, response: httpx2.Response) -> list[tuple[str, Any]]:
        """Return the statements of the request that `response` answers, and their parameters."""
        return self._queries[response.headers["x-request-id"]]


@pytest.fixture(scope="module")
def trace() -> Iterator[Trace]:
    """Notes all statements of the API server, which runs in a thread of this process."""
    noted, execute = Trace(), psycopg.AsyncCursor.execute

    async def traced(
        cursor: psycopg.AsyncCursor[Any],
        query: Any,  # noqa: ANN401 - psycopg's own types
        params: Any = None,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> psycopg.AsyncCursor[Any]:
        noted.note(query, params)
        return await execute(cursor, query, params, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncCursor, "execute", traced)
        yield noted


_CONDITION: Final = re.compile(r"\b(?:\w+\.)?platform_id = (%\(\w+\)s(?:::UUID)?)")
"""A comparison with the caller's platform."""
_ANOTHER: Final = re.compile(r"\bplatform_id (?:=|<>|IN) *(?:%|\(|ANY|CAST)")
"""A comparison of another form, which `_CONDITION` would have to know."""


@pytest.fixture(params=["stated", "forgotten"])
def conditions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether the statements of the API name the platform, or all have forgotten it.

    Then the views of the database alone keep platforms apart.
    """
    if request.param == "stated":
        yield request.param
        return
    execute = psycopg.AsyncCursor.execute

    async def forgetful(
        cursor: psycopg.AsyncCursor[Any],
        query: Any,  # noqa: ANN401 - psycopg's own types
        params: Any = None,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> psycopg.AsyncCursor[Any]:
        if isinstance(query, str):
            query = _CONDITION.sub(r"\1 IS NOT NULL", query)
            assert not _ANOTHER.search(query), query
        return await execute(cursor, query, params, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncCursor, "execute", forgetful)
        yield request.param


OPERATIONS: Final = [one for one in _operations() if not one.is_not_built]


def platform(api: Api, database_url: str) -> Platform:
    one = Platform(api, database_url)
    for name, make in MAKERS.items():
        one.ids[name] = make(one)
    return one


@pytest.fixture(scope="module")
def owner(api: Api, database_url: str) -> Platform:
    """Whose resources are asked for; nothing happens to them by itself any more."""
    one = platform(api, database_url)
    eventually(lambda: all_is_told(database_url, one))
    return one


def all_is_told(url: str, tenant_of: Platform) -> bool:
    with psycopg.connect(url) as connection:
        waiting = connection.execute(
            "SELECT 1 FROM outbox WHERE platform_id = %s LIMIT 1",
            [tenant_of.api.tenant.platform_id],
        )
        return waiting.fetchone() is None


@pytest.fixture(scope="module")
def other(other_platform: Api, database_url: str) -> Platform:
    """Who asks for them, and has as many of its own."""
    one = platform(other_platform, database_url)
    eventually(lambda: all_is_told(database_url, one))
    return one


def unknown(ids: Ids) -> dict[str, str]:
    """Return `ids` of things that do not exist."""
    return {name: ID.sub(lambda found: f"{found[1]}:{uuid4()}", one) for name, one in ids.items()}


def record_of(url: str, tenant_of: Platform) -> dict[str, tuple[int, str]]:
    """Return what the record says of a platform: of every table, how many rows and their hash.

    Without trial balances, which a worker computes from the record, some seconds later, and without
    the time at which a token was used last, which a process writes once a minute.
    """
    platform_id = tenant_of.api.tenant.platform_id
    sent_body = {}
    with psycopg.connect(url) as connection:
        for table in tables.metadata.sorted_tables:
            if "platform_id" in table.columns and table is not tables.trial_balances:
                statement = sql.SQL(
                    "SELECT count(*), coalesce(md5(string_agg(r::text, '|' ORDER BY r::text)), '')"
                    " FROM (SELECT to_jsonb(t) - 'last_used_at' AS r FROM {} t"
                    " WHERE platform_id = %s) rows"
                ).format(sql.Identifier(table.name))
                [row] = connection.execute(statement, [platform_id]).fetchall()
                sent_body[table.name] = row[0], row[1]
    return sent_body


def leaked(owner: Platform, text: str) -> set[str]:
    """Return which of the owner's ids are in `text`; those of its customers' resources as well."""
    return {name for name, one in owner.ids.items() if one.rpartition(":")[2] in text}


def is_not_built(answer: httpx2.Response) -> bool:
    return answer.status_code == 501


def check_that_all_are_made(operation: Operation) -> None:
    missing = [name for name in operation.parameters if name not in MAKERS]
    assert not missing, f"{operation} names {missing}: say in MAKERS how one is made"


@pytest.mark.usefixtures("conditions")
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.owned], ids=str)
def test_resources_of_another_platform_are_not_found_by_any_operation(
    operation: Operation, owner: Platform, other: Platform, database_url: str
) -> None:
    check_that_all_are_made(operation)
    body, query = operation.body_with(other.ids), operation.query_with(other.ids)
    before = record_of(database_url, owner)

    answer = other.ask(operation, owner.ids, body, **query)

    if not is_not_built(answer):
        assert answer.status_code == 404, f"{operation} answered {answer.text}"
        # As for an id that does not exist: the response does not reveal that there is one.
        of_no_platform = other.ask(operation, unknown(owner.ids), body, **query)
        assert (of_no_platform.status_code, of_no_platform.json()) == (404, answer.json())
    assert record_of(database_url, owner) == before


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.owned], ids=str)
def test_an_id_of_another_platform_takes_the_statements_of_an_unknown_id(
    operation: Operation, owner: Platform, other: Platform, trace: Trace
) -> None:
    # Otherwise the time of the response would tell whether there is one.
    body, query = operation.body_with(other.ids), operation.query_with(other.ids)

    foreign = trace.of(other.ask(operation, owner.ids, body, **query))
    of_no_platform = trace.of(other.ask(operation, unknown(owner.ids), body, **query))

    assert foreign == of_no_platform


@pytest.mark.usefixtures("conditions")
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.parameters], ids=str)
def test_the_owner_itself_does_not_get_not_found(operation: Operation, owner: Platform) -> None:
    # Otherwise the test above would prove nothing.
    if operation.method != "GET":
        return
    check_that_all_are_made(operation)

    answer = owner.ask(operation, owner.ids, **operation.query_with(owner.ids))

    assert is_not_built(answer) or answer.status_code == 200, f"{operation}: {answer.text}"


LISTS: Final = [one for one in OPERATIONS if one.method == "GET" and not one.parameters]


@pytest.mark.usefixtures("conditions")
@pytest.mark.parametrize("operation", LISTS, ids=str)
def test_no_list_has_anything_of_another_platform(
    operation: Operation, owner: Platform, other: Platform
) -> None:
    wide = {"limit": "100"} if "limit" in operation.queries else {}

    answer = other.ask(operation, {}, **wide, **operation.query_with(other.ids))

    assert answer.status_code in {200, 501}, f"{operation} answered {answer.text}"
    assert not leaked(owner, answer.text)
    assert str(owner.api.tenant.platform_id) not in answer.text


@pytest.mark.usefixtures("conditions")
def test_every_resource_is_in_some_list_of_its_owner(owner: Platform) -> None:
    shown = "".join(
        owner.ask(operation, {}, **operation.query_with(owner.ids)).text for operation in LISTS
    )

    named = {name for name, one in owner.ids.items() if ID.fullmatch(one)}
    assert leaked(owner, shown) & named == named - UNLISTED


def _filters() -> Iterator[tuple[Operation, str]]:
    for operation in OPERATIONS:
        for query in operation.queries:
            if re.search(r"(Id|Identifier|Holder)$", query) and query not in NAMES:
                yield operation, query


@pytest.mark.usefixtures("conditions")
@pytest.mark.parametrize(("operation", "query"), list(_filters()), ids=str)
def test_a_filter_by_what_another_platform_has_finds_nothing(
    operation: Operation, query: str, owner: Platform, other: Platform, trace: Trace
) -> None:
    named = operation.named_by(query)

    answer = other.ask(operation, other.ids, **{query: owner.ids[named]})
    of_no_platform = other.ask(operation, other.ids, **{query: unknown(owner.ids)[named]})

    assert (answer.status_code, answer.json()) == (
        of_no_platform.status_code,
        of_no_platform.json(),
    )
    assert trace.of(answer) == trace.of(of_no_platform)
    if answer.status_code == 200:
        assert answer.json()["data"] == []
        assert answer.json()["totalCount"] == 0
    else:
        assert answer.status_code in {400, 404}


COPIED: Final = {
    "agents": "access_token_hash = NULL",
    "card_transactions": "issuer_transaction_token = gen_random_uuid()::text",
    "cards": "platform_card_id = gen_random_uuid()::text",
    "deposits": "",
    "documents": "",
    "external_accounts": "fingerprint = decode(md5(random()::text), 'hex')",
    "internal_accounts": "",
    "transfers": "",
    "verifications": "status = 'APPROVED'",
}
"""Tables with rows of customers, and how the copy of a row differs besides its id."""

KEYED: Final = """
    SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL jit = off;
    SET LOCAL enable_mergejoin = off; SET LOCAL plan_cache_mode = force_generic_plan;
    SET LOCAL session_replication_role = replica
"""
"""As the connections of the API plan (`ledger/storage/engines.py`)."""


@pytest.fixture
def crowded(owner: Platform, other: Platform, database_url: str) -> Iterator[psycopg.Connection]:
    """A database transaction in which the owner has 300 copies of each row of its customers.

    It sees what a request of the other platform sees.
    """
    with psycopg.connect(database_url) as connection, connection.transaction(force_rollback=True):
        connection.execute(KEYED)
        for table, change in COPIED.items():
            connection.execute(
                f"CREATE TEMPORARY TABLE copies ON COMMIT DROP AS SELECT t.* FROM {table} t,"
                " generate_series(1, 300) WHERE platform_id = %s",
                [owner.api.tenant.platform_id],
            )
            changes = ", ".join(filter(None, ("id = gen_random_uuid()", change)))
            connection.execute(f"UPDATE copies SET {changes}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM copies")
            connection.execute("DROP TABLE copies")
            connection.execute(f"ANALYZE {table}")
        path, platform_id = search_path("cardledger"), other.api.tenant.platform_id
        connection.execute(f"SET LOCAL search_path = {path}")
        connection.execute("SELECT set_config(%s, %s, true)", [SETTING, str(platform_id)])
        yield connection


def rows_read(connection: psycopg.Connection, statement: str, parameters: Any) -> int:  # noqa: ANN401 - of any query
    """Return how many rows of tables `statement` reads."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda name: f"${names.index(name[1]) + 1}", statement)
    connection.execute(f"PREPARE read AS {numbered}".encode())
    arguments = sql.SQL(", ").join(
        sql.Literal(str(value) if isinstance(value, Id) else value)
        for value in (parameters[name] for name in names)
    )
    explain = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE read ({})")
    [[[explained]]] = connection.execute(explain.format(arguments)).fetchall()
    connection.execute("DEALLOCATE read")
    return read_by(explained["Plan"])


def read_by(plan: dict[str, Any]) -> int:
    read = 0
    if "Relation Name" in plan:
        per_loop = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        per_loop += plan.get("Rows Removed by Index Recheck", 0)
        read = per_loop * plan["Actual Loops"]
    return int(read) + sum(read_by(inner) for inner in plan.get("Plans", ()))


def test_a_filter_by_what_another_platform_has_reads_as_little_as_by_an_unknown_id(
    owner: Platform, other: Platform, trace: Trace, crowded: psycopg.Connection
) -> None:
    more = {}
    for operation, query in _filters():
        named = operation.named_by(query)
        counts = []
        for ids in (owner.ids, unknown(owner.ids)):
            answer = other.ask(operation, other.ids, **{query: ids[named]})
            selects = [
                (statement, parameters)
                for statement, parameters in trace.with_parameters(answer)
                if isinstance(parameters, Mapping)
            ]
            counts.append(sum(rows_read(crowded, *each) for each in selects))
        if counts[0] > counts[1] + 10:  # The row itself, and what is beside it.
            more[f"{operation}?{query}"] = counts

    assert more == {}


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where in `value` there is an id."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from places(inner, (*place, name))
        case list():
            for number, inner in enumerate(value):
                yield from places(inner, (*place, number))
        case str() if ID.fullmatch(value):
            yield place
        case _:
            pass


def put(value: Any, place: tuple[str | int, ...], new: str) -> Any:  # noqa: ANN401 - JSON
    """Return a copy of `value` with `new` at `place`."""
    copy = deepcopy(value)
    inner = copy
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = new
    return copy


def at(value: Any, place: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - JSON
    for step in place:
        value = value[step]
    return value


@pytest.mark.usefixtures("conditions")
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.takes_body], ids=str)
def test_an_id_of_another_platform_in_a_body_is_refused(
    operation: Operation, owner: Platform, other: Platform, database_url: str, trace: Trace
) -> None:
    check_that_all_are_made(operation)
    body = operation.body_with(other.ids)
    theirs = {other.ids[name]: owner.ids[name] for name in owner.ids}
    not_there = unknown(theirs)
    for place in places(body):
        before = record_of(database_url, owner), record_of(database_url, other)

        answer = other.ask(operation, other.ids, put(body, place, theirs[at(body, place)]))

        if not is_not_built(answer):
            assert answer.status_code in {400, 404}, f"{operation} answered {answer.text}"
        assert not leaked(owner, answer.text)
        assert (record_of(database_url, owner), record_of(database_url, other)) == before
        of_no_platform = other.ask(
            operation, other.ids, put(body, place, not_there[at(body, place)])
        )
        assert trace.of(answer) == trace.of(of_no_platform)


def test_the_statements_of_a_request_name_the_platform_unless_they_forget_it(
    other: Platform, trace: Trace, conditions: str
) -> None:
    # Otherwise the tests above would forget nothing.
    statements = trace.of(other.api.get("/customers"))

    assert any(_CONDITION.search(one) for one in statements) == (conditions == "stated")


def test_an_idempotency_key_of_another_platform_opens_nothing(
    owner: Platform, other: Platform
) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    wish = {"name": "till", "permissions": ["VIEW"]}

    mine = owner.api.http.post("/tokens", json=wish, headers=key)
    theirs = other.api.http.post("/tokens", json=wish, headers=key)

    assert made(mine)["clientSecret"] != made(theirs)["clientSecret"]


def test_a_cursor_of_another_platform_is_refused(
    root: str, api_config: ApiConfig, other: Platform
) -> None:
    with Api(root, new_tenant(api_config.database_url)) as crowded:
        for _ in range(3):
            crowded.customer()
        cursor = ok(crowded.get("/customers", limit=1))["nextCursor"]

        answer = other.api.get("/customers", limit=1, cursor=cursor)

        assert answer.status_code == 400, answer.text


# --- the views, whatever statements say ----------------------------------------------------------


@contextmanager
def seeing(url: str, platform_id: Id | None) -> Iterator[psycopg.Connection]:
    """Yield a connection of the owner to the views of a platform; nothing is kept."""
    with psycopg.connect(url, options=f"-c search_path={search_path('cardledger')}") as connection:
        if platform_id is not None:
            connection.execute("SELECT set_config(%s, %s, true)", [SETTING, str(platform_id)])
        yield connection
        connection.rollback()


def counted(connection: psycopg.Connection, table: str, condition: str = "true") -> int:
    [(count,)] = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}".encode())
    return int(count)


_FILL: Final = """
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at, retry_at)
    SELECT gen_random_uuid(), id, platform_id, 'X', id, '{}', now(), 'infinity'
    FROM customers WHERE platform_id = %(id)s LIMIT 1;
    INSERT INTO rejection_retries (rejection_id, platform_id, message_id, retried_at)
    SELECT id, platform_id, id, now() FROM rejections WHERE platform_id = %(id)s LIMIT 1;
    INSERT INTO customer_upload_parts (upload_id, number, platform_id, rows)
    SELECT id, 0, platform_id, '[]' FROM customer_uploads
    WHERE platform_id = %(id)s AND completed_at IS NOT NULL LIMIT 1;
    INSERT INTO document_pieces (document_id, number, platform_id, content)
    SELECT id, 1, platform_id, '' FROM documents WHERE platform_id = %(id)s LIMIT 1;
    INSERT INTO trial_balances VALUES (%(id)s, 'USD', 'CUSTOMER', 1, 1, 1, 0, 0, 0)
    ON CONFLICT DO NOTHING
"""
"""Rows of tables in which no request leaves any for long."""


@pytest.fixture(scope="module")
def filled(owner: Platform, other: Platform, database_url: str) -> None:
    """Both platforms have rows in every table."""
    for one in (owner, other):
        one.api.http.post(f"/cards/{one.ids['cardId']}/reveal").raise_for_status()
        key = {"Idempotency-Key": str(uuid4())}
        made(one.api.http.post("/tokens", json={"name": "x", "permissions": ["VIEW"]}, headers=key))
        ok(one.api.post("/webhooks/signing-keys/rotate", {"overlapHours": 1}))
        unverified = one.api.customer(fullName="Ada 003")["id"]
        made(one.api.post(f"/customers/{unverified}/kyc-link", None))
        account = made(one.api.post("/platform/external-accounts", unproven()))
        made(one.api.post(f"/platform/external-accounts/{account['id']}/challenge", None))
        rate = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": 1.25}
        ok(one.api.post("/sandbox/exchange-rates", rate))
        abroad = authorization(100) | {"currency": {"code": "EUR"}, "billingAmount": 110}
        ok(one.api.simulate(one.ids["cardId"], "authorization", abroad))
        with psycopg.connect(database_url) as connection:
            psycopg.ClientCursor(connection).execute(_FILL, {"id": str(one.api.tenant.platform_id)})


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("table", VIEWS)
def test_a_view_shows_each_row_to_the_one_platform_whose_it_is(
    table: str, owner: Platform, other: Platform, database_url: str
) -> None:
    two = [one.api.tenant.platform_id for one in (owner, other)]
    with psycopg.connect(database_url) as connection:
        total = counted(connection, table)
        found = [one for (one,) in connection.execute("SELECT id FROM platforms")]
    shown = {}
    for platform_id in [*found, Id(bytes(16))]:  # The last: of events for unknown cards.
        with seeing(database_url, platform_id) as connection:
            shown[platform_id] = counted(connection, table)
            if "platform_id" in tables.metadata.tables[table].columns:
                own = f"platform_id = '{platform_id}'"
                assert counted(connection, f"cardledger.{table}", own) == shown[platform_id]

    assert sum(shown.values()) == total
    assert all(0 < shown[platform_id] < total for platform_id in two)
    with seeing(database_url, None) as connection:
        assert counted(connection, table) == 0


@pytest.mark.parametrize("table", VIEWS)
def test_a_view_has_the_columns_of_its_table(table: str, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        columns = connection.execute(
            "SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute WHERE attnum > 0"
            " AND NOT attisdropped AND attrelid = ANY(%s::regclass[]) GROUP BY attrelid",
            [[f"cardledger.{table}", f"{schema_beside('cardledger')}.{table}"]],
        ).fetchall()

    assert columns[0] == columns[1] == (sorted(tables.metadata.tables[table].columns.keys()),)


TRIGGERS: Final = {table.name for table in tables.APPEND_ONLY}
"""Tables with a trigger that refuses the change before the view does."""


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "table", [name for name in VIEWS if "platform_id" in tables.metadata.tables[name].columns]
)
def test_no_row_can_be_given_to_another_platform(
    table: str, other: Platform, database_url: str
) -> None:
    refusal = errors.InsufficientPrivilege if table in TRIGGERS else errors.WithCheckOptionViolation
    with (
        seeing(database_url, other.api.tenant.platform_id) as connection,
        pytest.raises(refusal),
    ):
        connection.execute(f"UPDATE {table} SET platform_id = gen_random_uuid()".encode())


@pytest.mark.usefixtures("filled")
def test_no_piece_of_a_file_can_be_added_to_the_document_of_another_platform(
    owner: Platform, other: Platform, database_url: str
) -> None:
    statement = (
        "INSERT INTO document_pieces SELECT document_id, 2, %s::uuid, '' FROM"
        " cardledger.document_pieces WHERE platform_id = %s LIMIT 1"
    )
    theirs, ours = (one.api.tenant.platform_id for one in (owner, other))
    for named, of in ((ours, theirs), (theirs, ours)):
        with (
            seeing(database_url, ours) as connection,
            pytest.raises(errors.WithCheckOptionViolation),
        ):
            connection.execute(statement, [named, of])


def test_a_connection_that_serves_one_platform_after_another_shows_each_its_own(
    owner: Platform, other: Platform, api_config: ApiConfig
) -> None:
    async def customers_of(connections: PlatformConnections, platform_id: Id) -> set[Id]:
        async with connections.reading(platform_id) as connection:
            found = await connection.execute(select(tables.customers.c.platform_id))
            return set(found.scalars())

    async def failing(connections: PlatformConnections, platform_id: Id) -> None:
        async with connections.writing(platform_id) as connection:
            await connection.execute(text("SELECT 1 / 0"))

    async def play() -> None:
        connections = PlatformConnections(api_config.database_url, pool_size=1, max_overflow=0)
        first, second = (one.api.tenant.platform_id for one in (owner, other))
        try:
            for platform_id in (first, second, second, first):
                assert await customers_of(connections, platform_id) == {platform_id}
            with pytest.raises(DBAPIError):
                await failing(connections, second)
            # The roll-back has not brought the platform before back.
            assert await customers_of(connections, second) == {second}
            async with connections.writing(first) as connection:
                found = await connection.execute(select(tables.customers.c.platform_id))
                assert set(found.scalars()) == {first}
            assert await customers_of(connections, first) == {first}
        finally:
            await connections.dispose()

    asyncio.run(play())
