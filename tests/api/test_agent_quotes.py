"""Quotes of agents: within the policy, whatever the currency of its limits."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from cardledger.api.app import ApiConfig
from tests.api.support import AgentApi, Api, made, new_tenant, ok, redeem, refused, server, webhooks
from tests.api.test_quotes import Payer, payer_of, set_rate
from tests.waiting import eventually

Json = dict[str, Any]

POLICY: Json = {
    "permissions": ["CREATE_QUOTES", "EXECUTE_QUOTES", "VIEW_TRANSACTIONS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "EUR", "perTransactionLimit": 8_000, "dailyLimit": 12_000},
}


@pytest.fixture(scope="module")
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform with USD and EUR, at 1.25 dollars for a euro without a spread."""
    with Api(root, new_tenant(api_config.database_url, currencies=("USD", "EUR"))) as client:
        set_rate(client, "USD", "EUR", 1.25)
        yield client


class Buyer:
    """An agent of a customer with 500.00 USD."""

    def __init__(self, own: Api, **policy: object) -> None:
        self.payer: Payer = payer_of(own)
        wish = {"name": "Buyer", "customerId": self.payer.id, "policy": POLICY | policy}
        created = made(own.post("/agents", wish))
        self.id = str(created["agent"]["id"])
        token = ok(redeem(own.root, created["deviceCode"]["code"]))["accessToken"]
        self.api = AgentApi(own.root, str(token))

    def body(self, amount: int = 10_000, **fields: object) -> Json:
        return {
            "source": {"sourceType": "ACCOUNT", "accountId": self.payer.usd},
            "destination": {"destinationType": "ACCOUNT", "accountId": self.payer.eur},
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": amount,
            **fields,
        }

    def quote(self, amount: int = 10_000) -> Json:
        return made(self.api.post("/agents/me/quotes", self.body(amount)))

    def execute(self, quote: Json) -> Any:  # noqa: ANN401 - a response
        return self.api.http.post(f"/agents/me/quotes/{quote['id']}/execute")


Make = Callable[..., Buyer]


@pytest.fixture
def buyer_of(own: Api) -> Iterator[Make]:
    """Makes agents, each of a customer of its own, with a policy."""
    with ExitStack() as stack:

        def make(**policy: object) -> Buyer:
            buyer = Buyer(own, **policy)
            stack.enter_context(buyer.api)
            return buyer

        yield make


def test_a_quote_within_the_limits_is_executed_at_once(buyer_of: Make) -> None:
    buyer = buyer_of()
    quote = buyer.quote()

    action = ok(buyer.execute(quote))

    assert (action["type"], action["status"]) == ("EXECUTE_QUOTE", "APPROVED")
    assert action["quote"]["id"] == quote["id"]
    assert "transferDetails" not in action
    assert action["transaction"]["id"] == quote["transactionId"]
    assert action["transaction"]["status"] == "COMPLETED"
    assert action["transaction"]["agentId"] == buyer.id
    assert buyer.payer.balance(buyer.payer.eur) == 8_000
    seen = ok(buyer.api.get(f"/agents/me/quotes/{quote['id']}"))
    assert seen["status"] == "COMPLETED"
    assert ok(buyer.api.get(f"/agents/me/actions/{action['id']}")) == action
    refused(buyer.execute(quote), 409, "CONFLICT")


def test_limits_count_what_is_spent_in_the_currency_of_the_policy_rounded_up(
    buyer_of: Make, own: Api
) -> None:
    buyer = buyer_of()

    # 100.01 USD is 80.008 EUR, which is more than 80.00.
    above = refused(buyer.execute(buyer.quote(10_001)), 403, "FORBIDDEN")
    ok(buyer.execute(buyer.quote(10_000)))
    too_much_today = refused(buyer.execute(buyer.quote(5_001)), 403, "FORBIDDEN")
    ok(buyer.execute(buyer.quote(5_000)))

    assert above["details"] == {"reason": "PER_TRANSACTION_LIMIT"}
    assert too_much_today["details"] == {"reason": "DAILY_LIMIT"}
    used = ok(own.get(f"/agents/{buyer.id}"))["usage"]
    assert (used["dailySpend"], used["dailyTransactionCount"]) == (12_000, 2)


def test_a_refused_execution_leaves_the_quote_as_it_was(buyer_of: Make, own: Api) -> None:
    buyer = buyer_of()
    quote = buyer.quote(10_001)

    refused(buyer.execute(quote), 403, "FORBIDDEN")

    assert ok(own.get(f"/quotes/{quote['id']}"))["status"] == "PENDING"


def test_what_needs_an_approval_waits_and_is_executed_by_the_platforms(
    buyer_of: Make, own: Api, database_url: str
) -> None:
    threshold = {"currency": "EUR", "amount": 4_000}
    buyer = buyer_of(approvalThresholds=threshold)

    small = ok(buyer.execute(buyer.quote(5_000)))
    quote = buyer.quote(5_001)
    waits = ok(buyer.execute(quote))

    assert small["status"] == "APPROVED"
    assert waits["status"] == "PENDING_APPROVAL"
    assert "transaction" not in waits
    assert ok(own.get(f"/quotes/{quote['id']}"))["status"] == "PENDING"
    refused(own.http.post(f"/quotes/{quote['id']}/execute"), 409, "CONFLICT")
    kinds = dict(webhooks(database_url, quote["transactionId"], 2))
    assert kinds["AGENT_ACTION.PENDING_APPROVAL"]["quote"]["id"] == quote["id"]
    done = ok(own.post(f"/transactions/{quote['transactionId']}/approve", None))
    assert done["status"] == "COMPLETED"
    assert buyer.payer.balance(buyer.payer.eur) == 4_000 + quote["totalReceivingAmount"]


def test_a_rejected_quote_has_failed(buyer_of: Make, own: Api) -> None:
    buyer = buyer_of(defaultExecutionMode="APPROVAL_REQUIRED")
    quote = buyer.quote()
    waits = ok(buyer.execute(quote))

    path = f"/agents/{buyer.id}/actions/{waits['id']}/reject"
    rejected = ok(own.post(path, {"reason": "Not now"}))

    assert (rejected["status"], rejected["rejectionReason"]) == ("REJECTED", "Not now")
    assert ok(own.get(f"/quotes/{quote['id']}"))["status"] == "FAILED"
    assert buyer.payer.balance(buyer.payer.usd) == 50_000


def test_an_approval_that_comes_after_the_quote_has_expired_fails(
    buyer_of: Make, own: Api, api_config: ApiConfig
) -> None:
    buyer = buyer_of(defaultExecutionMode="APPROVAL_REQUIRED")
    quote = buyer.quote()
    waits = ok(buyer.execute(quote))
    ahead = timedelta(minutes=6)

    with (
        server(api_config, clock=lambda: datetime.now(UTC) + ahead) as url,
        Api(url, own.tenant) as later,
    ):
        path = f"/agents/{buyer.id}/actions/{waits['id']}/approve"
        failed = ok(later.post(path, None))

    assert failed["status"] == "FAILED"
    assert failed["transaction"]["failureReason"] == "QUOTE_EXPIRED"
    assert buyer.payer.balance(buyer.payer.usd) == 50_000


@pytest.mark.parametrize(
    ("missing", "creates", "executes"),
    [("CREATE_QUOTES", 403, None), ("EXECUTE_QUOTES", 201, 403)],
)
def test_each_step_needs_its_permission(
    buyer_of: Make, missing: str, creates: int, executes: int | None
) -> None:
    permissions = [name for name in POLICY["permissions"] if name != missing]
    buyer = buyer_of(permissions=permissions)

    created = buyer.api.post("/agents/me/quotes", buyer.body())

    assert created.status_code == creates
    if executes is not None:
        refused(buyer.execute(created.json()), executes, "FORBIDDEN")


def test_an_agent_pays_from_allowed_accounts_of_its_customer(buyer_of: Make, own: Api) -> None:
    buyer, stranger = buyer_of(), buyer_of()
    theirs = {"sourceType": "ACCOUNT", "accountId": stranger.payer.usd}
    restricted = buyer_of()
    policy = {"accountRestrictions": {"allowedAccountIds": [restricted.payer.usd]}}
    ok(own.patch(f"/agents/{restricted.id}/policy", policy))

    refused(buyer.api.post("/agents/me/quotes", buyer.body(source=theirs)), 400, "INVALID_INPUT")
    error = refused(restricted.api.post("/agents/me/quotes", restricted.body()), 403, "FORBIDDEN")
    quote = stranger.quote()

    assert error["details"] == {"reason": "ACCOUNT_NOT_ALLOWED"}
    refused(buyer.api.get(f"/agents/me/quotes/{quote['id']}"), 404, "QUOTE_NOT_FOUND")
    refused(buyer.execute(quote), 404, "QUOTE_NOT_FOUND")
    refused(buyer.api.get(f"/agents/me/quotes/Quote:{uuid4()}"), 404, "QUOTE_NOT_FOUND")


def test_a_restricted_agent_pays_no_internal_account_by_its_uma_address(
    buyer_of: Make, own: Api
) -> None:
    """The account behind the address is internal, as is one that a quote names."""
    free, restricted = buyer_of(), buyer_of()
    policy = {"accountRestrictions": {"allowedAccountIds": [restricted.payer.usd]}}
    ok(own.patch(f"/agents/{restricted.id}/policy", policy))
    answers = []
    for address in (own.customer()["umaAddress"], "$success.eur@sandbox.uma.money"):
        looked_up = ok(own.get(f"/receiver/uma/{address}"))
        destination = {"destinationType": "UMA_ADDRESS", "umaAddress": address, "currency": "EUR"}
        more = {"destination": destination, "lookupId": looked_up["lookupId"]}
        answers += [
            one.api.post("/agents/me/quotes", one.body() | more) for one in (free, restricted)
        ]

    assert [answer.status_code for answer in answers] == [201, 403, 201, 201]
    assert answers[1].json()["details"] == {"reason": "ACCOUNT_NOT_ALLOWED"}


def test_an_agent_pays_no_account_of_another_customer(buyer_of: Make, own: Api) -> None:
    buyer, stranger = buyer_of(), buyer_of()
    [platforms] = ok(own.get("/platform/internal-accounts", currency="EUR"))["data"]

    for foreign in (stranger.payer.usd, stranger.payer.eur, platforms["id"]):
        theirs = {"destinationType": "ACCOUNT", "accountId": foreign}
        wish = buyer.body(destination=theirs)
        refused(buyer.api.post("/agents/me/quotes", wish), 400, "INVALID_INPUT")

    assert stranger.payer.balance(stranger.payer.usd) == 50_000


@pytest.mark.parametrize(
    "fields",
    [
        {"immediatelyExecute": True},
        {"source": {"sourceType": "REALTIME_FUNDING", "currency": "USD"}},
        {
            "platformFeeOverride": {
                "platformFixedFee": {"amount": 0, "currency": {"code": "USD"}},
                "platformVariableFeeBps": 0,
            }
        },
    ],
)
def test_what_is_not_for_agents_is_refused(buyer_of: Make, fields: Json) -> None:
    buyer = buyer_of()

    refused(buyer.api.post("/agents/me/quotes", buyer.body(**fields)), 400, "INVALID_INPUT")


def test_insufficient_funds_are_a_result_and_not_an_error(buyer_of: Make, own: Api) -> None:
    buyer = buyer_of(spendingLimits={"currency": "USD", "perTransactionLimit": 100_000})
    quote = buyer.quote(50_001)

    action = ok(buyer.execute(quote))

    eventually(lambda: ok(own.get(f"/quotes/{quote['id']}"))["status"] == "FAILED")
    assert action["status"] == "FAILED"
    assert action["transaction"]["failureReason"] == "INSUFFICIENT_FUNDS"
