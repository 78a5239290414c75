"""Further than the credentials reach: scopes, other sites, other platforms, other networks."""

import asyncio
import itertools
from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote

from attack.arena import Arena, Attack, new_party
from attack.attacks.guesses import POLICY
from attack.judge import Measure, Refusals, Strike
from attack.wire import basic

Wish = tuple[str, str, object]
"""Method, path and body of a request that must not succeed."""

_ALL: Final = ["VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS"]
_PUBLIC_URL: Final = "https://93.184.215.14/hook"
_SINCE: Final = "2020-01-01T00:00:00Z"


async def _without_success(
    arena: Arena,
    wishes: Sequence[tuple[Wish, str]],
    *,
    headers: dict[str, str] | None = None,
) -> Strike:
    """Send each wish with its credentials, again and again; none may succeed."""
    named = {
        f"{number}. {wish[0]} {wish[1]}": (wish, by) for number, (wish, by) in enumerate(wishes)
    }
    refusals = Refusals(named)
    connection = arena.connection()
    arena.begin()
    for kind, ((method, path, body), by) in itertools.cycle(named.items()):
        if not arena.is_on:
            break
        whole = arena.request(method, path, body, by=by, headers=headers)
        refusals.note(kind, (await connection.exchange(whole)).status)
    return refusals.strike()


async def _token(arena: Arena, *permissions: str) -> str:
    made = await arena.made("/tokens", {"name": "small", "permissions": list(permissions)})
    return basic(made["clientId"], made["clientSecret"])


async def _scopes(arena: Arena) -> Strike:
    attacker = arena.attacker
    viewer, issuer = await _token(arena, "VIEW"), await _token(arena, "VIEW", "TOKENS")
    agents, seller = await _token(arena, "AGENTS"), await _token(arena, "TRANSACT")
    [own] = [
        one["id"]
        for one in (await arena.call("GET", "/tokens")).json()["data"]
        if one["clientId"] == attacker.access.client_id
    ]
    agent = {"name": "Saver", "customerId": attacker.customers[0], "policy": POLICY}
    trading = POLICY | {"permissions": ["CREATE_TRANSFERS"]}
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    writes: list[Wish] = [
        ("POST", "/tokens", {"name": "x", "permissions": ["VIEW"]}),
        ("POST", "/agents", agent),
        ("POST", "/customers", person),
        ("POST", f"/sandbox/internal-accounts/{attacker.accounts[0]}/fund", {"amount": 1}),
        ("PATCH", "/config", {"webhookEndpoint": None}),
        ("DELETE", f"/tokens/{own}", None),
        ("POST", f"/tokens/{own}/rotate-secret", None),
        ("POST", f"/cards/{attacker.cards[0]}/reveal", {}),
        ("POST", "/webhooks/endpoints", {"url": "http://127.0.0.1:9/"}),
        ("POST", "/webhooks/signing-keys/rotate", {}),
    ]
    more: list[Wish] = [
        ("POST", "/tokens", {"name": "x", "permissions": [one]}) for one in _ALL[1:3]
    ]
    return await _without_success(
        arena,
        [
            *((wish, viewer) for wish in writes),
            *((wish, issuer) for wish in (*more, ("POST", f"/tokens/{own}/rotate-secret", None))),
            (("POST", "/agents", agent | {"policy": trading}), agents),
            (("GET", "/customers", None), seller),
            (("GET", "/tokens", None), seller),
        ],
    )


async def _cross_site(arena: Arena) -> Strike:
    attacker = arena.attacker
    wishes: list[Wish] = [
        ("POST", "/customers", {"customerType": "INDIVIDUAL", "fullName": "Ada"}),
        ("PATCH", "/config", {"webhookEndpoint": None}),
        ("POST", "/tokens", {"name": "x", "permissions": ["VIEW"]}),
        ("POST", f"/sandbox/internal-accounts/{attacker.accounts[0]}/fund", {"amount": 1}),
        ("POST", f"/cards/{attacker.cards[0]}/reveal", {}),
        ("POST", "/webhooks/replay", {"since": _SINCE}),
    ]
    # A browser adds the credentials of the person who is logged in.
    return await _without_success(
        arena,
        [(wish, attacker.authorization) for wish in wishes],
        headers={"Sec-Fetch-Site": "cross-site"},
    )


async def _resources_of_victim(arena: Arena) -> dict[str, str]:
    """Make one of each kind of resource on the other platform; return their ids."""
    victim = arena.victim
    by = victim.authorization
    endpoint: dict[str, Any] = {"url": "http://127.0.0.1:9/", "state": "DISABLED"}
    agent = {"name": "Bookkeeper", "customerId": victim.customers[0], "policy": POLICY}
    token = {"name": "till", "permissions": ["VIEW"]}
    made = await arena.call("GET", "/transactions?limit=1", by=by)
    return {
        "endpoint": (await arena.made("/webhooks/endpoints", endpoint, by=by))["id"],
        "agent": (await arena.made("/agents", agent, by=by))["agent"]["id"],
        "token": (await arena.made("/tokens", token, by=by))["id"],
        "transaction": made.json()["data"][0]["id"],
    }


async def _moved_ids(arena: Arena) -> Strike:
    victim = arena.victim
    ids = await _resources_of_victim(arena)
    card, account, customer = victim.cards[0], victim.accounts[0], victim.customers[0]
    agent = {"name": "Saver", "customerId": customer, "policy": POLICY}
    money = {"amount": 100, "currency": {"code": "USD"}, "merchant": {"descriptor": "X"}}
    clearing = {"cardTransactionId": ids["transaction"], "amount": 1}
    new_card = {"cardholderId": arena.attacker.customers[0], "form": "VIRTUAL"}
    wishes: list[Wish] = [
        ("GET", f"/cards/{card}", None),
        ("PATCH", f"/cards/{card}", {"state": "FROZEN"}),
        ("POST", f"/cards/{card}/reveal", {}),
        ("GET", f"/customers/{customer}", None),
        ("PATCH", f"/customers/{customer}", {"fullName": "Eve"}),
        ("DELETE", f"/customers/{customer}", None),
        ("POST", f"/sandbox/cards/{card}/simulate/authorization", money),
        ("POST", f"/sandbox/cards/{card}/simulate/clearing", clearing),
        ("POST", f"/sandbox/cards/{arena.attacker.cards[0]}/simulate/clearing", clearing),
        ("POST", f"/sandbox/internal-accounts/{account}/fund", {"amount": 1}),
        ("POST", "/cards", new_card | {"fundingSources": [account]}),
        ("GET", f"/transactions/{ids['transaction']}", None),
        ("GET", f"/transactions/{ids['transaction']}/events", None),
        ("POST", "/agents", agent),
        ("GET", f"/agents/{ids['agent']}", None),
        ("PATCH", f"/agents/{ids['agent']}", {"isPaused": True}),
        ("DELETE", f"/agents/{ids['agent']}", None),
        ("POST", f"/agents/{ids['agent']}/device-codes", None),
        ("GET", f"/webhooks/endpoints/{ids['endpoint']}", None),
        ("PATCH", f"/webhooks/endpoints/{ids['endpoint']}", {"state": "ENABLED"}),
        ("POST", f"/webhooks/endpoints/{ids['endpoint']}/rotate-secret", {}),
        ("DELETE", f"/webhooks/endpoints/{ids['endpoint']}", None),
        ("POST", "/webhooks/test", {"endpointId": ids["endpoint"]}),
        ("POST", "/webhooks/replay", {"since": _SINCE, "endpointId": ids["endpoint"]}),
        ("GET", f"/tokens/{ids['token']}", None),
        ("POST", f"/tokens/{ids['token']}/rotate-secret", None),
        ("DELETE", f"/tokens/{ids['token']}", None),
    ]
    leaked = 0
    for path in (
        f"/cards?cardholderId={quote(customer)}",
        f"/cards?accountId={quote(account)}",
        f"/customers/internal-accounts?customerId={quote(customer)}",
        f"/agents?customerId={quote(customer)}",
        f"/webhooks/deliveries?endpointId={quote(ids['endpoint'])}",
    ):
        leaked += len((await arena.call("GET", path)).json().get("data", ()))
    by = arena.attacker.authorization
    strike = await _without_success(arena, [(wish, by) for wish in wishes])
    more = Measure(name="rows of the other platform in lists", value=leaked, limit=0)
    return Strike(struck=strike.struck, proof=strike.proof, measures=[*strike.measures, more])


async def _names_of_others(arena: Arena) -> Strike:
    """Choose UMA names in the other platform's domain, and claim the domain itself."""
    domain = f"{token_hex(8)}.example.com"
    victim = arena.victim.authorization
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    mine = f"{token_hex(8)}.example.com"
    shared = (await arena.call("GET", "/config")).json()["umaDomain"]
    for claimed, by in ((domain, victim), (mine, arena.attacker.authorization)):
        answer = await arena.call("PATCH", "/config", {"umaDomain": claimed}, by=by)
        if answer.status != 200:
            raise RuntimeError(f"PATCH /config: {answer.status} {answer.body[:200]!r}")
    chosen = {"umaAddress": f"$ceo@{domain}"}
    await arena.made("/customers", person | chosen, by=victim)
    own = (await arena.made("/customers", person | {"umaAddress": f"$ceo@{mine}"}))["id"]
    # A platform keeps a domain in which it has chosen names, so another one claims that domain.
    claimer = await asyncio.to_thread(new_party, arena.stage, "claimer", 1)
    names = [
        f"$cfo@{domain}",
        f"$ceo@{domain}",
        f"$CEO@{domain.upper()}",
        f"$cfo@{domain}.",
        f"$cfo@pay.{domain}",
        f"$cfo@{domain}@{mine}",
        f"$cfo@{mine}@{domain}",
        f"$cfo@{shared}",
        f"$ceo@{mine}",  # A name is unique.
    ]
    wishes: list[Wish] = [
        *(("POST", "/customers", person | {"umaAddress": name}) for name in names),
        *(("PATCH", f"/customers/{own}", person | {"umaAddress": name}) for name in names[:-1]),
        ("POST", "/invitations", {"inviterUma": chosen["umaAddress"]}),
    ]
    claims: list[Wish] = [
        ("PATCH", "/config", {"umaDomain": form}) for form in (domain, domain.upper(), f"{domain}.")
    ]
    strike = await _without_success(
        arena,
        [
            *((wish, arena.attacker.authorization) for wish in wishes),
            *((wish, claimer.authorization) for wish in claims),
        ],
    )
    with arena.stage.connect() as connection:
        [(taken,)] = connection.execute(
            "SELECT count(*) FROM customers WHERE platform_id = ANY(%s) AND uma_address ILIKE %s",
            [[arena.attacker.platform_id, claimer.platform_id], f"%{domain}%"],
        )
    more = Measure(name="names in the other platform's domain", value=taken, limit=0)
    return Strike(struck=strike.struck, proof=strike.proof, measures=[*strike.measures, more])


async def _hostile_urls(arena: Arena) -> Strike:
    # Loopback is left out: here it is allowed, for the receivers of this run.
    hosts = [
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 - to be refused
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "user:word@10.0.0.1",
    ]
    # With https the address is the only reason to refuse.
    urls = [
        f"{scheme}://{host}/latest/meta-data/" for host in hosts for scheme in ("https", "http")
    ]
    urls += ["ftp://example.com/", "file:///etc/passwd", "gopher://10.0.0.1:6379/_FLUSHALL"]
    # One that is accepted, so that the others are refused for their addresses.
    await arena.made("/webhooks/endpoints", {"url": _PUBLIC_URL, "state": "DISABLED"})
    by = arena.attacker.authorization
    return await _without_success(
        arena, [(("POST", "/webhooks/endpoints", {"url": url}), by) for url in urls]
    )


ATTACKS: Final = (
    Attack(item="B8", name="scopes", aim="a token does or grants what it may not", run=_scopes),
    Attack(
        item="B8",
        name="cross-site requests",
        aim="a page of another site changes something with a browser's credentials",
        run=_cross_site,
    ),
    Attack(
        item="B9",
        name="ids of another platform",
        aim="reads, changes or uses what belongs to another platform",
        run=_moved_ids,
    ),
    Attack(
        item="B12",
        name="names of others",
        aim="UMA names in the domain of another platform, or the domain itself, are taken",
        run=_names_of_others,
    ),
    Attack(
        item="B12",
        name="hostile webhook URLs",
        aim="the sender reaches the network behind it",
        run=_hostile_urls,
    ),
)
