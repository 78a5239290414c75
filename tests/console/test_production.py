"""A console without a sandbox: no page of it has a simulator."""

from dataclasses import replace

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access import forms
from tests.api.support import Api, new_tenant, server
from tests.console.crawling import pages_of
from tests.console.person import Person, shown

SIMULATOR = "/simulator"


def owing_purchase(api: Api) -> None:
    """Have the network clear a purchase without funds: no event of it is the simulator's."""
    event = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": "production-1",
        "issuerTransactionToken": "production",
        "cardId": api.active_card(balance=2_000)["id"],
        "amount": 1_000,
        "currency": "USD",
    }
    cleared = {"type": "CLEARING", "reference": "production-2", "amount": 4_000}
    for each in (event, event | cleared):
        [outcome] = api.http.post(f"{api.root}/network-events", json=[each]).json()
        assert outcome["outcome"] == "APPLIED"


def test_without_a_sandbox_there_is_no_simulator(root: str, config: ApiConfig) -> None:
    tenant = new_tenant(config.database_url)
    with Api(root, tenant) as api:
        owing_purchase(api)
    with server(replace(config, sandbox=False)) as production, Person(production) as visitor:
        visitor.log_in(tenant)
        token = visitor.hidden(shown(visitor.get("")), "form_token")
        form = {"form_token": token, "idempotency_key": forms.new_key()}
        paths = [SIMULATOR, f"{SIMULATOR}/stories/tip", f"{SIMULATOR}/cards/Card:x"]

        pages = dict(pages_of(visitor))
        read = [visitor.get(path).status_code for path in paths]
        sent_to = [visitor.post(path, form).status_code for path in paths]

    parts = navigation.parts(is_sandbox=False)
    assert pages.keys() >= {part.path.removeprefix(ROOT) for part in parts}
    assert any(path.startswith("/card-transactions/") for path in pages)
    assert [path for path, page in pages.items() if "imulator" in page] == []
    assert read == [404] * 3
    assert sent_to == [404] * 3
