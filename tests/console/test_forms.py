"""Forms that act: what they must have, and that they run the operation of the API, once."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi import Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.api.console.access.forms import Managing, Transacting
from cardledger.api.console.application import PAGES, SANDBOX_PAGES
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.console.pages import login
from cardledger.api.console.routing import console_router
from cardledger.workers.signals.outage_log import DATABASE
from tests.api.support import Api, new_tenant, serving, url_of, worker
from tests.connection_guard import GuardedApp
from tests.console.person import Person, shown

ACCOUNT = "account_id"
router = console_router()


@router.post(f"{ROOT}/test-fund")
async def fund(action: Transacting) -> Response:
    path = f"/sandbox/internal-accounts/{action.fields[ACCOUNT]}/fund"
    answer = await action.run("POST", path, {"amount": int(action.fields["amount"])})
    return Response(f"{answer.status} {answer.message or answer.body['balance']['amount']}")


@router.post(f"{ROOT}/test-card")
async def change(action: Managing) -> Response:  # noqa: ARG001 - what it needs is the test
    return Response("changed")


@router.get(f"{ROOT}/test-pool")
async def wait_in_vain() -> Response:
    raise PoolTimeoutError  # As the pool that credentials are looked up with does.


@pytest.fixture(scope="module")
def root(config: ApiConfig) -> Iterator[str]:
    app = create_app(config)
    app.router.routes[:0] = router.routes  # Before the answer for unknown pages.
    with worker(config.database_url, config.redis_url), serving(GuardedApp(app)) as served:
        yield url_of(served)


@pytest.fixture
def account(api: Api) -> str:
    return str(api.account(api.customer()["id"])["id"])


def fields(person: Person, **more: str) -> dict[str, str]:
    page = shown(person.get(""))
    return {
        "form_token": person.hidden(page, "form_token"),
        "idempotency_key": forms.new_key(),
        **more,
    }


@pytest.fixture(autouse=True)
def any_headers(person: Person) -> None:
    """The routes of this module are not pages."""
    person.http.event_hooks = {}


def test_a_form_runs_the_operation_of_the_api_once(person: Person, account: str) -> None:
    sent = fields(person, account_id=account, amount="500")

    answers = [person.post("/test-fund", sent).text for _ in range(3)]

    assert answers == ["200 500"] * 3


def test_another_form_with_the_same_key_is_refused(person: Person, account: str) -> None:
    sent = fields(person, account_id=account, amount="500")
    person.post("/test-fund", sent)

    answer = person.post("/test-fund", sent | {"amount": "600"}).text

    assert answer.startswith("409 ")


def test_what_the_api_refuses_is_refused(person: Person, other_platform: Api) -> None:
    foreign = str(other_platform.account(other_platform.customer()["id"])["id"])

    answer = person.post("/test-fund", fields(person, account_id=foreign, amount="500")).text

    assert answer.startswith("404 ")


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"form_token": "wrong"}, 403),
        ({"form_token": "é" * 200}, 403),
        ({"idempotency_key": ""}, 400),
        ({"idempotency_key": "with space"}, 400),
    ],
)
def test_a_form_without_token_or_key_does_nothing(
    person: Person, account: str, changed: dict[str, str], status: int
) -> None:
    sent = fields(person, account_id=account, amount="500")

    shown(person.post("/test-fund", sent | changed), status)

    assert person.post("/test-fund", sent).text == "200 500"


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_form_of_another_site_does_nothing(person: Person, account: str, origin: str) -> None:
    sent = fields(person, account_id=account, amount="500")

    shown(person.post("/test-fund", sent, Origin=origin), 403)

    assert person.post("/test-fund", sent).text == "200 500"


def test_a_form_of_a_session_that_has_ended_does_nothing(person: Person, account: str) -> None:
    sent = fields(person, account_id=account, amount="500")
    person.post("/logout", {"form_token": sent["form_token"]})

    page = shown(person.post("/test-fund", sent), 403)

    assert "session has ended" in page


def test_a_form_needs_the_permission_of_its_operation(
    root: str, config: ApiConfig, api: Api, account: str
) -> None:
    tenant = new_tenant(config.database_url, permissions=("VIEW",), of=api.tenant)
    with Person(root) as viewer:
        viewer.log_in(tenant)
        viewer.http.event_hooks = {}
        sent = fields(viewer, account_id=account, amount="500")

        pages = [shown(viewer.post(path, sent), 403) for path in ("/test-fund", "/test-card")]

    assert ["TRANSACT" in pages[0], "MANAGE" in pages[1]] == [True, True]


def test_a_console_that_only_shows_carries_out_nothing(
    config: ApiConfig, api: Api, account: str
) -> None:
    app = create_app(replace(config, console=ConsoleConfig(mode=ConsoleMode.READ)))
    app.router.routes[:0] = router.routes  # Before the answer for unknown pages.
    with serving(GuardedApp(app)) as served, Person(url_of(served)) as visitor:
        visitor.log_in(api.tenant)
        visitor.http.event_hooks = {}
        sent = fields(visitor, account_id=account, amount="500")

        page = shown(visitor.post("/test-fund", sent), 403)

    assert "CARDLEDGER_CONSOLE=act" in page


def test_connections_that_are_all_in_use_are_no_outage_of_postgresql(person: Person) -> None:
    page = shown(person.get("/test-pool"), 503)

    assert "The installation is busy; try again in a moment." in page
    assert "PostgreSQL" not in page
    assert not DATABASE.is_out


@pytest.mark.parametrize("content", [b"%ff=1", b"a=1&a=2", b"a=%00", b"a", b"x" * 20_000])
def test_a_malformed_form_is_an_error(person: Person, content: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = person.http.post(f"{ROOT}/login", content=content, headers=headers)

    assert answer.status_code in {400, 413}
    assert answer.headers["content-type"].startswith("text/html")


def test_no_get_takes_what_acts() -> None:
    """A link of another site opens any page in the session of the browser."""
    routes = [
        route
        for each in (login.router, *PAGES, *SANDBOX_PAGES)
        for route in each.routes
        if isinstance(route, APIRoute)
    ]

    acting = [route for route in routes if takes_an_action(route)]

    assert len(acting) > 5
    assert {method for route in acting for method in route.methods or ()} == {"POST"}


def takes_an_action(route: APIRoute) -> bool:
    types = route.endpoint.__annotations__.values()
    return bool({Transacting, Managing}.intersection(types))
