"""Tokens: made, shown without their secret, and dead soon after they are deleted."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
import structlog
from psycopg import errors
from structlog.testing import capture_logs

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.api_tokens import TOKEN_LIMIT
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from tests.api.support import (
    ALL,
    Api,
    Tenant,
    at_once,
    check_cap,
    made,
    new_tenant,
    ok,
    refused,
    server,
)
from tests.databases import as_platform
from tests.waiting import eventually


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def token(api: Api, *permissions: str, name: str = "till") -> dict[str, Any]:
    return made(api.post("/tokens", {"name": name, "permissions": permissions or ["VIEW"]}))


def cardholder(api: Api, held: dict[str, Any], root: str | None = None) -> Api:
    tenant = Tenant(api.tenant.platform_id, held["clientId"], held["clientSecret"])
    return Api(root or api.root, tenant)


def test_a_token_shows_its_secret_once_and_lets_in(own: Api) -> None:
    held = token(own, "TRANSACT", "VIEW", name="till 1")

    shown = ok(own.get(f"/tokens/{held['id']}"))

    assert held["id"].startswith("Token:")
    assert held["permissions"] == ["TRANSACT", "VIEW"]
    assert held["createdAt"] == held["updatedAt"]
    assert shown == {name: value for name, value in held.items() if name != "clientSecret"}
    assert all("clientSecret" not in one for one in ok(own.get("/tokens"))["data"])
    with cardholder(own, held) as till:
        assert ok(till.get("/config"))["id"].endswith(str(own.tenant.platform_id))


def test_the_answer_with_the_secret_is_not_for_caches(own: Api) -> None:
    answer = own.post("/tokens", {"name": "till", "permissions": ["VIEW"]})

    assert answer.headers["cache-control"] == "no-store"


def test_a_secret_is_kept_nowhere_in_clear(own: Api, database_url: str) -> None:
    answer = own.http.post(
        "/tokens",
        json={"name": "till", "permissions": ["VIEW"]},
        headers={"Idempotency-Key": str(uuid4())},
    )
    secret = made(answer)["clientSecret"]

    with psycopg.connect(database_url) as connection:
        for table in ("api_tokens", "idempotency_keys"):
            rows = connection.execute(f"SELECT t::text, t.* FROM {table} t").fetchall()
            assert secret not in str(rows)
            assert secret.encode().hex() not in str(rows)


@pytest.mark.parametrize("permission", ALL)
def test_a_token_may_what_its_permissions_say(own: Api, permission: str) -> None:
    account = own.account(own.customer()["id"])
    with cardholder(own, token(own, permission)) as held:
        seen = held.get("/tokens")
        fund = held.post(f"/sandbox/internal-accounts/{account['id']}/fund", {"amount": 5})
        make = held.post("/tokens", {"name": "x", "permissions": [permission]})
        delete = held.delete(f"/tokens/Token:{new_id()}")

    if permission == "VIEW":
        ok(seen)
    else:
        refused(seen, 403, "FORBIDDEN")
    if permission == "TRANSACT":
        ok(fund)
    else:
        refused(fund, 403, "FORBIDDEN")
    if permission == "TOKENS":
        made(make)
        refused(delete, 404, "TOKEN_NOT_FOUND")
    else:
        refused(make, 403, "FORBIDDEN")
        refused(delete, 403, "FORBIDDEN")


def test_a_token_grants_at_most_its_own_permissions(own: Api) -> None:
    with cardholder(own, token(own, "VIEW", "TOKENS")) as issuer:
        made(issuer.post("/tokens", {"name": "x", "permissions": ["TOKENS", "VIEW"]}))
        before = ok(own.get("/tokens"))["totalCount"]
        answer = issuer.post(
            "/tokens", {"name": "x", "permissions": ["VIEW", "TRANSACT", "AGENTS"]}
        )

    details = refused(answer, 403, "FORBIDDEN")["details"]
    assert details == {"missingPermissions": ["AGENTS", "TRANSACT"]}
    assert ok(own.get("/tokens"))["totalCount"] == before


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["TRANSACT"], ["VIEW", "TRANSACT"]),
        (["MANAGE"], ["VIEW", "MANAGE", "TOKENS", "AGENTS"]),
        (
            ["TRANSACT", "MANAGE", "VIEW"],
            ["VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS"],
        ),
    ],
)
def test_a_token_of_an_earlier_release_may_what_it_could(
    own: Api, database_url: str, before: list[str], now: list[str]
) -> None:
    held = token(own, "VIEW")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE api_tokens SET permissions = %s, scopes = NULL WHERE client_id = %s",
            [before, held["clientId"]],
        )

    with cardholder(own, held) as till:
        assert ok(till.get(f"/tokens/{held['id']}"))["permissions"] == now
        created = till.post("/tokens", {"name": "x", "permissions": now})
    if "TOKENS" in now:
        made(created)
    else:
        refused(created, 403, "FORBIDDEN")


def test_an_earlier_release_reads_no_permission_that_it_does_not_know(
    own: Api, database_url: str
) -> None:
    held = token(own, "VIEW", "TOKENS", "AGENTS")

    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT permissions FROM api_tokens WHERE client_id = %s", [held["clientId"]]
        ).fetchone()
    assert row == (["VIEW"],)


def test_a_webhook_endpoint_needs_the_permission_to_view(own: Api) -> None:
    with cardholder(own, token(own, "MANAGE")) as blind:
        for answer in (
            blind.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/x"}),
            blind.patch("/config", {"webhookEndpoint": "http://127.0.0.1:9/x"}),
        ):
            assert refused(answer, 403, "FORBIDDEN")["details"] == {"permission": "VIEW"}
        ok(blind.patch("/config", {"webhookEndpoint": None}))


def test_a_deleted_token_is_refused_on_every_server(own: Api, api_config: ApiConfig) -> None:
    held = token(own)
    with server(api_config) as elsewhere, cardholder(own, held, elsewhere) as far:
        ok(far.get("/config"))
        with cardholder(own, held) as near:
            ok(near.get("/config"))

            deleted = own.delete(f"/tokens/{held['id']}")

            assert (deleted.status_code, deleted.content) == (204, b"")
            refused(near.get("/config"), 401, "UNAUTHORIZED")
        # Another process knows it for a few seconds more.
        eventually(lambda: far.get("/config").status_code == 401)
    refused(own.get(f"/tokens/{held['id']}"), 404, "TOKEN_NOT_FOUND")
    refused(own.delete(f"/tokens/{held['id']}"), 404, "TOKEN_NOT_FOUND")


def test_a_token_cannot_delete_itself(own: Api) -> None:
    [mine] = ok(own.get("/tokens"))["data"]

    refused(own.delete(f"/tokens/{mine['id']}"), 400, "INVALID_INPUT")

    ok(own.get("/tokens"))


def test_a_token_of_another_platform_is_not_found(own: Api, other_platform: Api) -> None:
    held = token(own)

    refused(other_platform.get(f"/tokens/{held['id']}"), 404, "TOKEN_NOT_FOUND")
    refused(other_platform.delete(f"/tokens/{held['id']}"), 404, "TOKEN_NOT_FOUND")
    refused(own.get("/tokens/nonsense"), 404, "TOKEN_NOT_FOUND")

    assert held["id"] not in [one["id"] for one in ok(other_platform.get("/tokens"))["data"]]
    ok(own.get(f"/tokens/{held['id']}"))


# --- limits ------------------------------------------------------------------------------------


def limited(api: Api, *permissions: str, **limits: object) -> dict[str, Any]:
    return made(api.post("/tokens", {"name": "till", "permissions": permissions, **limits}))


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_an_expired_token_is_refused(own: Api, database_url: str) -> None:
    held = limited(own, "VIEW", expiresAt="2999-01-31T12:00:00Z")
    assert held["expiresAt"] == "2999-01-31T12:00:00.000000Z"
    with cardholder(own, held) as till:
        ok(till.get("/config"))
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "UPDATE api_tokens SET expires_at = now() WHERE client_id = %s", [held["clientId"]]
            )

        eventually(lambda: till.get("/config").status_code == 401)

        assert "expired" in refused(till.get("/config"), 401, "UNAUTHORIZED")["message"]


def test_a_token_is_used_from_its_networks_only(own: Api) -> None:
    near = limited(own, "VIEW", allowedAddresses=["10.0.0.0/8", "127.0.0.1"])
    far = limited(own, "VIEW", allowedAddresses=["203.0.113.0/24", "2001:db8::/32"])

    mapped = {"name": "x", "permissions": ["VIEW"], "allowedAddresses": ["::ffff:10.0.0.0/104"]}
    refused(own.post("/tokens", mapped), 400, "INVALID_INPUT")
    assert near["allowedAddresses"] == ["10.0.0.0/8", "127.0.0.1/32"]
    with cardholder(own, near) as till, cardholder(own, far) as stolen:
        ok(till.get("/config"))
        details = refused(stolen.get("/config"), 403, "FORBIDDEN")["details"]
        assert details == {"reason": "ADDRESS_NOT_ALLOWED"}
        with Api(own.root, replace(stolen.tenant, client_secret="wrong")) as guess:
            refused(guess.get("/config"), 401, "UNAUTHORIZED")


def test_a_token_grants_nothing_beyond_its_own_limits(own: Api) -> None:
    end = in_seconds(3600)
    held = limited(
        own, "VIEW", "TOKENS", expiresAt=end, allowedAddresses=["127.0.0.0/8", "10.0.0.0/8"]
    )
    wider = token(own, "VIEW")["id"]
    within = {"expiresAt": end, "allowedAddresses": ["127.0.0.1"]}

    with cardholder(own, held) as till:
        limited(till, "VIEW", **within)
        for limits in (
            {},
            {"expiresAt": end},
            {"allowedAddresses": ["127.0.0.1"]},
            within | {"expiresAt": in_seconds(7200)},
            within | {"allowedAddresses": ["127.0.0.1", "192.0.2.1"]},
            within | {"allowedAddresses": ["0.0.0.0/0"]},
            within | {"allowedAddresses": ["::/0"]},
        ):
            wish = {"name": "x", "permissions": ["VIEW"], **limits}
            details = refused(till.post("/tokens", wish), 403, "FORBIDDEN")["details"]
            assert details == {"reason": "LIMITS_EXCEEDED"}
        refused(till.post(f"/tokens/{wider}/rotate-secret", {}), 403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"expiresAt": "2020-01-31T12:00:00Z"}, "expiresAt"),
        ({"expiresAt": None}, "expiresAt"),
        ({"allowedAddresses": []}, "allowedAddresses"),
        ({"allowedAddresses": None}, "allowedAddresses"),
        ({"allowedAddresses": ["10.0.0.1/8"]}, "allowedAddresses.0"),
        ({"allowedAddresses": ["home"]}, "allowedAddresses.0"),
        ({"allowedAddresses": ["10.0.0.1"] * 21}, "allowedAddresses"),
        ({"permissions": ["AGENTS"], "allowedAddresses": ["10.0.0.1"]}, "permissions"),
        ({"permissions": ["AGENTS"], "expiresAt": "2999-01-31T12:00:00Z"}, "permissions"),
    ],
)
def test_invalid_limits_of_a_token_are_refused(
    own: Api, limits: dict[str, Any], field: str
) -> None:
    answer = own.post("/tokens", {"name": "x", "permissions": ["VIEW"]} | limits)

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert error["field"] == field


# --- rotation and use --------------------------------------------------------------------------


def test_a_former_secret_counts_during_the_overlap(
    own: Api, api_config: ApiConfig, database_url: str
) -> None:
    held = token(own)
    with server(api_config) as elsewhere, cardholder(own, held, elsewhere) as far:
        ok(far.get("/config"))

        rotated = ok(own.post(f"/tokens/{held['id']}/rotate-secret", {"overlapHours": 1}))

        assert rotated["clientId"] == held["clientId"]
        assert rotated["clientSecret"] != held["clientSecret"]
        assert rotated["updatedAt"] > held["updatedAt"]
        with cardholder(own, rotated) as new, cardholder(own, rotated, elsewhere) as far_new:
            ok(new.get("/config"))
            ok(far_new.get("/config"))  # At once, though this process knows the former secret.
            ok(far.get("/config"))
            with psycopg.connect(database_url) as connection:
                connection.execute(
                    "UPDATE api_tokens SET former_secret_until = now() WHERE client_id = %s",
                    [held["clientId"]],
                )
            eventually(lambda: far.get("/config").status_code == 401)
            ok(far_new.get("/config"))


def test_a_rotation_whose_response_was_lost_is_repeated_without_losing_the_secret_in_use(
    own: Api, database_url: str
) -> None:
    held = token(own)
    path = f"/tokens/{held['id']}/rotate-secret"
    lost = ok(own.post(path, {}))
    rotated = ok(own.post(path, {}))

    with cardholder(own, held) as deployed, cardholder(own, rotated) as new:
        ok(deployed.get("/config"))
        ok(new.get("/config"))
    with cardholder(own, lost) as undelivered:
        refused(undelivered.get("/config"), 401, "UNAUTHORIZED")

    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE api_tokens SET updated_at = now() - interval '11 minutes' WHERE client_id = %s",
            [held["clientId"]],
        )
    ok(own.post(path, {}))
    with cardholder(own, held) as deployed, cardholder(own, rotated) as former:
        refused(deployed.get("/config"), 401, "UNAUTHORIZED")
        ok(former.get("/config"))


def test_a_deleted_token_grants_nothing_although_a_process_still_knows_it(
    own: Api, database_url: str
) -> None:
    stolen = token(own, "TOKENS", "VIEW")
    with cardholder(own, stolen) as thief:
        ok(thief.get("/tokens"))
        with psycopg.connect(database_url) as connection:
            connection.execute("DELETE FROM api_tokens WHERE client_id = %s", [stolen["clientId"]])
        body = {"name": "spare", "permissions": ["VIEW"]}

        refused(thief.post("/tokens", body), 401, "UNAUTHORIZED")

    assert ok(own.get("/tokens", name="spare"))["data"] == []


def test_a_rotation_without_overlap_refuses_the_former_secret(own: Api) -> None:
    held = token(own)
    with cardholder(own, held) as leaked:
        ok(leaked.get("/config"))

        rotated = ok(own.post(f"/tokens/{held['id']}/rotate-secret", {"overlapHours": 0}))

        assert "formerSecretUntil" not in rotated
        refused(leaked.get("/config"), 401, "UNAUTHORIZED")


def test_a_token_keeps_its_own_secret_for_an_overlap(own: Api) -> None:
    """Without, a lost response would leave its caller no secret at all."""
    held = token(own, "TOKENS", "VIEW")
    path = f"/tokens/{held['id']}/rotate-secret"
    with cardholder(own, held) as caller:
        error = refused(caller.post(path, {"overlapHours": 0}), 400, "INVALID_INPUT")
        ok(caller.post(path, {"overlapHours": 1}))  # Its response is lost,
        rotated = ok(caller.post(path, {"overlapHours": 1}))  # and so it is sent again.

    assert error["details"]["errors"][0]["field"] == "overlapHours"
    with cardholder(own, rotated) as new:
        ok(new.get("/tokens"))


def test_a_token_rotates_itself_and_no_token_that_has_more(own: Api, other_platform: Api) -> None:
    with cardholder(own, token(own, "TOKENS")) as issuer:
        stronger, weaker = token(own, "TOKENS", "VIEW"), token(own, "TOKENS")
        details = refused(
            issuer.post(f"/tokens/{stronger['id']}/rotate-secret", {}), 403, "FORBIDDEN"
        )["details"]
        assert details == {"missingPermissions": ["VIEW"]}
        ok(issuer.post(f"/tokens/{weaker['id']}/rotate-secret", {}))
    [mine] = ok(own.get("/tokens", name="test"))["data"]
    ok(own.post(f"/tokens/{mine['id']}/rotate-secret", {}))
    path = f"/tokens/{mine['id']}/rotate-secret"
    refused(other_platform.post(path, {}), 404, "TOKEN_NOT_FOUND")
    refused(other_platform.post(path, {"overlapHours": 169}), 400, "INVALID_INPUT")


def test_the_last_use_of_a_token_is_shown(own: Api) -> None:
    held = token(own)
    assert "lastUsedAt" not in ok(own.get(f"/tokens/{held['id']}"))
    with cardholder(own, held) as till:
        ok(till.get("/config"))
        seen = eventually(lambda: ok(own.get(f"/tokens/{held['id']}")).get("lastUsedAt"))
        ok(till.get("/config"))

    assert seen > held["createdAt"]
    assert ok(own.get(f"/tokens/{held['id']}"))["updatedAt"] == held["updatedAt"]


def test_a_use_is_written_once_a_minute_and_by_one_process(app_database_url: str) -> None:
    tenant = new_tenant(app_database_url)

    async def act() -> list[datetime]:
        engine = async_engine(app_database_url)
        seen = []
        async with engine.begin() as connection:
            stored = await api_tokens.find(connection, tenant.client_id)
            assert stored is not None
            for seconds in (0, 59, 60, 61, 200):
                at = datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=seconds)
                await api_tokens.record_uses(connection, {stored.token.id: at})
                shown = await api_tokens.get(
                    connection, platform_id=tenant.platform_id, token_id=stored.token.id
                )
                assert shown is not None
                assert shown.last_used_at is not None
                seen.append(shown.last_used_at)
        await engine.dispose()
        return seen

    first, *later = asyncio.run(act())

    assert [(at - first).total_seconds() for at in later] == [0, 60, 60, 200]


def test_tokens_are_listed_in_pages_newest_first(own: Api) -> None:
    names = [token(own, name=f"no. {number}")["name"] for number in range(4)]

    first = ok(own.get("/tokens", limit=3))
    second = ok(own.get("/tokens", limit=3, cursor=first["nextCursor"]))

    assert [one["name"] for one in first["data"]] == names[:0:-1]
    assert [one["name"] for one in second["data"]] == [names[0], "test"]
    assert (first["hasMore"], first["totalCount"]) == (True, 5)
    assert (second["hasMore"], second["totalCount"]) == (False, 5)
    assert "nextCursor" not in second
    refused(own.get("/tokens", cursor=first["nextCursor"], name="x"), 400, "INVALID_INPUT")


def test_the_role_of_the_api_does_not_move_a_token_to_another_platform(
    own: Api, other_platform: Api, app_database_url: str
) -> None:
    """The hash proves the secret for its client id, whatever the platform is."""
    held = token(own, *ALL)
    other = other_platform.tenant.platform_id
    names = "name, client_id, secret_hash, permissions, scopes"
    with as_platform(app_database_url, own.tenant.platform_id) as views:
        [row] = views.execute(
            f"DELETE FROM api_tokens WHERE client_id = %s RETURNING {names}".encode(),
            [held["clientId"]],
        )
    insert = f"INSERT INTO api_tokens (id, platform_id, created_at, {names})"
    with (
        as_platform(app_database_url, other) as views,
        pytest.raises(errors.InsufficientPrivilege, match="was issued before"),
    ):
        views.execute(
            f"{insert} VALUES (%s, %s, now(), %s, %s, %s, %s, %s)".encode(), [new_id(), other, *row]
        )

    with cardholder(other_platform, held) as thief:
        refused(thief.get("/config"), 401, "UNAUTHORIZED")


def test_tokens_are_found_by_name_and_time(own: Api) -> None:
    old, new = token(own, name="old"), token(own, name="new")

    def found(**query: str) -> set[str]:
        return {one["name"] for one in ok(own.get("/tokens", **query))["data"]} - {"test"}

    assert found(name="old") == {"old"}
    assert found(name="ol") == set()
    for field in ("created", "updated"):
        assert found(**{f"{field}After": new["createdAt"]}) == {"new"}
        assert found(**{f"{field}Before": old["createdAt"]}) == {"old"}
        both = {f"{field}After": old["createdAt"], f"{field}Before": new["createdAt"]}
        assert found(**both) == {"old", "new"}


def test_a_platform_gets_exactly_as_many_tokens_as_it_may_have(
    own: Api, other_platform: Api, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO api_tokens (id, platform_id, name, client_id, secret_hash, permissions,"
            " created_at) SELECT gen_random_uuid(), %s, 'till', gen_random_uuid()::text, '', '{}',"
            " now() FROM generate_series(1, %s)",
            [own.tenant.platform_id, TOKEN_LIMIT - 6],  # And the one that calls.
        )

    answers = at_once(20, lambda: own.post("/tokens", {"name": "x", "permissions": ["VIEW"]}))

    check_cap(answers, made=5, limit=TOKEN_LIMIT)
    held = next(answer for answer in answers if answer.status_code == 201).json()
    assert own.delete(f"/tokens/{held['id']}").status_code == 204
    token(own)
    token(other_platform)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x"},
        {"name": "x", "permissions": []},
        {"name": "", "permissions": ["VIEW"]},
        {"name": "x" * 256, "permissions": ["VIEW"]},
        {"name": "x", "permissions": ["ADMIN"]},
        {"name": "x", "permissions": ["view"]},
        {"name": "x", "permissions": ["TOKENS", "TOKENS"]},
        {"name": "x", "permissions": ["VIEW", "VIEW"]},
        {"name": "x", "permissions": "VIEW"},
        {"name": "x", "permissions": ["VIEW"], "clientSecret": "mine"},
    ],
)
def test_an_invalid_token_request_is_refused(api: Api, body: dict[str, Any]) -> None:
    refused(api.post("/tokens", body), 400, "INVALID_INPUT")


def test_the_request_log_names_the_token_so_that_what_a_stolen_one_created_can_be_found(
    own: Api,
) -> None:
    held = token(own, "TOKENS", "VIEW")
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        with capture_logs() as logs, cardholder(own, held) as thief:
            made(thief.post("/tokens", {"name": "spare", "permissions": ["VIEW"]}))
            refused(httpx2.get(f"{own.root}{BASE_PATH}/tokens"), 401, "UNAUTHORIZED")
            eventually(lambda: len(logs) == 2)  # A line is written after its response.
    finally:
        structlog.configure(**before)

    found = [(line["event"], line["method"], line["caller"]) for line in logs]
    assert found == [("request", "POST", held["id"]), ("request", "GET", None)]
