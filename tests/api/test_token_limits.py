"""Whatever tokens a token brings about, none ends later, or comes from farther, than itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cardledger.api.app import ApiConfig
from tests.api.support import Api, Tenant, made, new_tenant, ok

PERMISSIONS = ("VIEW", "TOKENS")
ENDS = ("2999-01-01T00:00:00Z", "2998-01-01T00:00:00Z", "2997-01-01T00:00:00Z", None)
NETWORKS = (
    ["127.0.0.0/8"],
    ["127.0.0.1"],
    ["127.0.0.1", "127.0.0.2"],
    ["127.0.0.0/8", "192.0.2.0/24"],
    ["0.0.0.0/0"],
    ["::/0"],
    None,
)
EVERYWHERE = ("0.0.0.0/0", "::/0")
Limits = dict[str, Any]


def of_fields(ends: str | None, networks: list[str] | None) -> Limits:
    """Return the fields of limits; None is no limit, and no field."""
    fields = {"expiresAt": ends, "allowedAddresses": networks}
    return {name: value for name, value in fields.items() if value is not None}


limits = st.builds(of_fields, st.sampled_from(ENDS), st.sampled_from(NETWORKS))


@dataclass(frozen=True)
class Step:
    """An attempt to gain a token; `who` and `target` choose among those there are by then."""

    action: str
    limits: Limits = field(default_factory=dict)
    who: int = 0
    target: int = 0


@dataclass
class Intruder:
    """Holds one token, and every token that its requests have brought."""

    owner: Api
    targets: list[str]  # Ids of tokens of the owner.
    held: list[Api]

    def take(self, step: Step) -> None:
        """Send the requests of `step`, and keep the tokens in their responses."""
        getattr(self, step.action)(self.held[step.who % len(self.held)], step)

    def create(self, api: Api, step: Step) -> None:
        self._keep(api, "/tokens", self._wish(step))

    def repeat_creation(self, api: Api, step: Step) -> None:
        """Repeat a request of the owner, whose key is known from a log."""
        key, wish = {"Idempotency-Key": str(uuid4())}, self._wish(step)
        self.targets.append(made(self.owner.http.post("/tokens", json=wish, headers=key))["id"])
        self._keep(api, "/tokens", wish, key)

    def rotate(self, api: Api, step: Step) -> None:
        """Rotate the secret of any token of the platform."""
        target = self.targets[step.target % len(self.targets)]
        self._keep(api, f"/tokens/{target}/rotate-secret", {})

    def _keep(
        self, api: Api, path: str, body: Limits, headers: dict[str, str] | None = None
    ) -> None:
        found = api.http.post(path, json=body, headers=headers).json()
        if "clientSecret" in found:
            tenant = Tenant(self.owner.tenant.platform_id, found["clientId"], found["clientSecret"])
            self.held.append(Api(self.owner.root, tenant))
            self.targets.append(found["id"])

    @staticmethod
    def _wish(step: Step) -> dict[str, Any]:
        return {"name": "x", "permissions": PERMISSIONS, **step.limits}


def is_within(inner: Limits, outer: Limits) -> bool:
    """Return whether a token with `inner` can be used only when and where one with `outer` can."""
    ends = inner.get("expiresAt"), outer.get("expiresAt")
    if ends[1] is not None and (ends[0] is None or ends[0][:4] > ends[1][:4]):
        return False
    allowed = outer.get("allowedAddresses")
    return allowed is None or covers(allowed, inner.get("allowedAddresses") or EVERYWHERE)


def covers(outer: Sequence[str], inner: Sequence[str]) -> bool:
    return all(
        any(
            network.version == wide.version and network.subnet_of(wide)  # type: ignore[arg-type]
            for wide in map(ip_network, outer)
        )
        for network in map(ip_network, inner)
    )


@pytest.fixture(scope="module")
def owner(root: str, api_config: ApiConfig) -> Iterator[Api]:
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


steps = st.builds(
    Step,
    action=st.sampled_from(["create", "repeat_creation", "rotate"]),
    limits=limits,
    who=st.integers(0, 3),
    target=st.integers(0, 5),
)
NARROW = of_fields(ENDS[1], NETWORKS[0])
EVERYTHING = [
    Step(action, of_fields(ends, networks))
    for action in ("create", "repeat_creation")
    for ends in ENDS
    for networks in NETWORKS
] + [Step("rotate", target=target) for target in range(40)]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(start=NARROW, sequence=EVERYTHING)
@example(start=of_fields(None, ["0.0.0.0/0"]), sequence=EVERYTHING)
@given(start=limits.filter(bool), sequence=st.lists(steps, min_size=1, max_size=8))
def test_a_sequence_of_requests_brings_no_token_with_wider_limits(
    owner: Api, start: Limits, sequence: list[Step]
) -> None:
    wish = {"name": "first", "permissions": PERMISSIONS, **start}
    first = made(owner.post("/tokens", wish))
    tenant = Tenant(owner.tenant.platform_id, first["clientId"], first["clientSecret"])
    unlimited = made(owner.post("/tokens", {"name": "other", "permissions": PERMISSIONS}))["id"]
    intruder = Intruder(owner, [unlimited], [Api(owner.root, tenant)])
    try:
        for step in sequence:
            intruder.take(step)

        known = {token["clientId"]: token for token in ok(owner.get("/tokens", limit=100))["data"]}
        for api in intruder.held:
            assert is_within(known[api.tenant.client_id], start)
    finally:
        for api in intruder.held:
            api.http.close()
        for token in ok(owner.get("/tokens", limit=100))["data"]:
            if token["name"] != "test":
                owner.delete(f"/tokens/{token['id']}")


def test_tokens_within_the_limits_are_brought(owner: Api) -> None:
    """The property would hold as well if no step brought anything."""
    wish = {"name": "first", "permissions": PERMISSIONS, **NARROW}
    first = made(owner.post("/tokens", wish))
    tenant = Tenant(owner.tenant.platform_id, first["clientId"], first["clientSecret"])
    with Api(owner.root, tenant) as api:
        intruder = Intruder(owner, [first["id"]], [api])
        intruder.take(Step("create", of_fields(ENDS[2], NETWORKS[1])))
        intruder.take(Step("rotate", target=1))

        assert len(intruder.held) == 3
        for other in intruder.held[1:]:
            other.http.close()
