"""Decrypted keys of endpoints are kept for as long as they are used, and no longer."""

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.webhooks.signer_cache import SignerCache
from tests.integration.test_webhooks import KEYS, world_in


def test_a_sender_forgets_the_keys_of_endpoints_soon(app_database_url: DatabaseUrl) -> None:
    with world_in(app_database_url) as world:
        platform = world.platform()
        endpoints = [world.endpoint(platform, f"https://h.example/{n}") for n in range(20)]
        signers = SignerCache(world.engine, KEYS, world.clock)
        for endpoint in endpoints:
            signers.get(endpoint, world.clock())
        world.clock.advance(seconds=6)

        signers.get(endpoints[0], world.clock())

        assert len(signers) == 1
