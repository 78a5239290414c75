"""Decrypted keys of endpoints are kept for as long as they are used, and no longer."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from typing_extensions import override

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.webhooks.signers import Signer
from cardledger.schema.ids import Id
from cardledger.workers.webhooks.attempts import AttemptMaker
from cardledger.workers.webhooks.http_client import HttpClient
from cardledger.workers.webhooks.signer_cache import SignerCache
from tests.integration.test_webhooks import KEYS, World, connected, world_in
from tests.receiver import Receiver
from tests.waiting import limit_s


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as made:
        yield made


def test_a_sender_forgets_the_keys_of_endpoints_soon(world: World) -> None:
    platform = world.platform()
    endpoints = [world.endpoint(platform, f"https://h.example/{n}") for n in range(20)]
    signers = SignerCache(world.engine, KEYS, world.clock)
    for endpoint in endpoints:
        signers.get(endpoint, world.clock())
    world.clock.advance(seconds=6)

    signers.get(endpoints[0], world.clock())

    assert len(signers) == 1


def test_nothing_is_sent_whose_lease_has_ended_while_its_key_was_read(world: World) -> None:
    """PostgreSQL was silent meanwhile, and another sender may have sent it by now."""

    class LateSigners(SignerCache):
        @override
        def get(self, endpoint_id: Id, endpoint_version: datetime) -> Signer:
            world.clock.advance(minutes=1)
            return super().get(endpoint_id, endpoint_version)

    http = HttpClient(timeout_s=limit_s(5), connections=1, allow_loopback=True)
    with Receiver() as receiver, closing(http):
        world.emit(connected(world, receiver))
        world.dispatch()
        [delivery] = world.claim()
        attempts = AttemptMaker(
            LateSigners(world.engine, KEYS, world.clock),
            http,
            clock=world.clock,
            timeout=timedelta(seconds=5),
            retry_scale=1.0,
        )

        assert attempts.attempt(delivery) is None
        assert receiver.received == []
