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
from cardledger.api.console.access.refusals import form_on, form_page_at
from cardledger.api.console.application import PAGES, SANDBOX_PAGES
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.console.pages import login
from cardledger.api.console.routing import LOGIN, console_router
from cardledger.api.http.errors import ApiError
from cardledger.schema.wire.errors import Code
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


@router.post(f"{ROOT}/test-note/{{card}}")
@form_on(f"{ROOT}/cards/{{card}}", labels={"note": "What for", "other": "Other"})
async def note(action: Transacting) -> Response:
    if action.fields["note"] == "broken":
        raise RuntimeError
    raise ApiError(Code.CONFLICT, "The card is closed.")


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


# --- what the page of a failure says --------------------------------------------------------------


def main_of(page: str) -> str:
    return page[page.index("<h1>") : page.index("</main>")]


def test_a_failure_of_a_form_shows_what_was_typed_and_leads_back(person: Person) -> None:
    sent = fields(person, note="<b>12,50</b>", other="", account_id="hidden")

    page = main_of(shown(person.post("/test-note/Card:1", sent), 409))

    assert "<h1>Not done</h1>\n<p>The card is closed.</p>" in page
    assert "<dt>What for</dt><dd><bdi>&lt;b&gt;12,50&lt;/b&gt;</bdi></dd>" in page
    assert f'<a class="button quiet" href="{ROOT}/cards/Card:1">Back to the form</a>' in page
    assert "Other" not in page
    assert "hidden" not in page
    assert "Request id" not in page


def test_a_page_that_cannot_be_shown_leads_to_the_one_without_parameters(person: Person) -> None:
    page = main_of(shown(person.get("/search", q="x" * 301), 400))

    assert "<h1>That cannot be shown</h1>" in page
    assert f'href="{ROOT}/search">' in page
    assert "Back to the form" not in page


@pytest.mark.parametrize("status", [500, 503])
def test_an_error_shows_the_request_id_of_its_response(person: Person, status: int) -> None:
    if status == 500:
        answer = person.post("/test-note/Card:1", fields(person, note="broken"))
    else:
        answer = person.get("/test-pool")

    page = main_of(shown(answer, status))
    request_id = answer.headers["X-Request-Id"]
    assert f"<code>{request_id}</code>" in page
    assert f'data-copy="{request_id}"' in page
    assert "X-Request-Id" not in page


def test_a_form_that_was_sent_after_the_log_out_leads_to_the_login(person: Person) -> None:
    sent = fields(person, note="lunch")
    person.post("/logout", {"form_token": sent["form_token"]})

    page = main_of(shown(person.post("/test-note/Card:1", sent), 403))

    assert "<h1>Not done</h1>" in page
    assert f'href="{LOGIN}?next=%2Fconsole%2Fcards%2FCard%3A1">Log in</a>' in page
    assert "<dt>What for</dt><dd><bdi>lunch</bdi></dd>" in page


def test_a_form_of_another_site_is_not_shown_to_those_who_have_logged_out(root: str) -> None:
    with Person(root) as stranger:
        stranger.http.event_hooks = {}
        answer = stranger.post("/test-note/Card:1", {"note": "x"}, Origin="https://evil.example")

    page = shown(answer, 403)
    assert "not sent from a page of this console" in page
    assert "What for" not in page


def test_every_form_has_a_page() -> None:
    pages = [route for route in routes() if "GET" in (route.methods or ())]

    found = {
        route.path: form_page_at(route.endpoint) for route in routes() if takes_an_action(route)
    }

    assert len(found) > 5
    assert [path for path, page in found.items() if page is None] == []
    assert {page.path for page in found.values() if page} <= {route.path for route in pages}


def test_no_get_takes_what_acts() -> None:
    """A link of another site opens any page in the session of the browser."""
    acting = [route for route in routes() if takes_an_action(route)]

    assert len(acting) > 5
    assert {method for route in acting for method in route.methods or ()} == {"POST"}


def routes() -> list[APIRoute]:
    return [
        route
        for each in (login.router, *PAGES, *SANDBOX_PAGES)
        for route in each.routes
        if isinstance(route, APIRoute)
    ]


def takes_an_action(route: APIRoute) -> bool:
    types = route.endpoint.__annotations__.values()
    return bool({Transacting, Managing}.intersection(types))
