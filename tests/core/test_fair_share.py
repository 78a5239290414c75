"""How the sender's threads are shared among endpoints."""

from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

from sqlalchemy import create_engine

from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.webhooks.claims import RequestedTests
from cardledger.ledger.webhooks.leases import Delivery
from cardledger.schema.ids import Id
from cardledger.workers.webhooks.fair_share import ApartShare, FairShare
from cardledger.workers.webhooks.sender import Sender

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUICK, SLOW = Id(bytes(15) + b"\x01"), Id(bytes(15) + b"\x02")


def delivery(number: int, endpoint: Id, subject: int = 0, platform: int = 0) -> Delivery:
    return Delivery(
        id=Id(number.to_bytes(16)),
        webhook=Id(number.to_bytes(16)),
        customer_id=Id(bytes(16)),
        platform_id=Id(platform.to_bytes(16)),
        type="CARD.STATE_CHANGE",
        subject_id=Id(subject.to_bytes(16)),
        body=b"{}",
        attempts=0,
        leased_until=NOW,
        endpoint_id=endpoint,
        endpoint_version=NOW,
        url="https://hooks.example.com/",
        is_fifo=False,
        failing_since=None,
    )


def test_an_unknown_endpoint_gets_one_attempt_at_a_time() -> None:
    fair_share = FairShare(32)

    fair_share.start([delivery(1, SLOW)], now=0.0)

    capacity = fair_share.capacity(0.0)
    assert (capacity.total, capacity.share, capacity.shares) == (31, 1, {SLOW: 0})


def test_a_quick_endpoint_gets_a_quarter_of_the_threads_until_it_becomes_slow() -> None:
    fair_share = FairShare(32)
    fair_share.note_response(QUICK, is_quick=True)
    fair_share.start([delivery(1, QUICK), delivery(2, QUICK)], now=0.0)

    assert fair_share.capacity(0.5).shares == {QUICK: 6}
    assert fair_share.capacity(1.5).shares == {QUICK: 0}


def test_failing_endpoints_and_unknown_endpoints_have_limits_of_their_own() -> None:
    fair_share = FairShare(32)
    failing = replace(delivery(1, SLOW), failing_since=NOW)

    fair_share.start([failing, delivery(2, QUICK)], now=0.0)

    capacity = fair_share.capacity(0.0)
    assert (capacity.others, capacity.failing) == (15, 7)


def test_a_queue_is_busy_until_its_last_attempt_has_ended() -> None:
    fair_share = FairShare(32)
    first, second = delivery(1, QUICK), delivery(2, QUICK)
    fair_share.start([first, second], now=0.0)

    fair_share.finish(first)
    during = fair_share.capacity(0.0)
    fair_share.finish(second)
    after = fair_share.capacity(0.0)

    assert (set(during.busy), during.total) == ({first.queue}, 31)
    assert (set(after.busy), after.total) == (set(), 32)


def test_a_later_turn_has_a_higher_number() -> None:
    fair_share = FairShare(32)

    fair_share.start([delivery(1, SLOW)], now=0.0)
    fair_share.start([delivery(2, QUICK)], now=0.0)

    turns = fair_share.capacity(0.0).turns
    assert turns[SLOW] < turns[QUICK]


def test_a_platform_may_have_three_quarters_of_each_kind_of_thread() -> None:
    fair_share = FairShare(32)
    fair_share.note_response(QUICK, is_quick=True)
    failing = replace(delivery(4, Id(bytes([3] * 16)), platform=7), failing_since=NOW)
    fair_share.start(
        [
            delivery(1, QUICK, platform=7),
            delivery(2, QUICK, platform=7),
            delivery(3, SLOW, platform=7),
            failing,
        ],
        now=0.0,
    )

    capacity = fair_share.capacity(0.0)
    fair_share.finish(failing)
    without = fair_share.capacity(0.0)

    platform = failing.platform_id
    assert capacity.platform == (24, 12, 6)
    assert capacity.platforms == {platform: (20, 11, 5)}
    assert without.platforms == {platform: (21, 11, 6)}
    assert capacity.platform_turns == {platform: 1}


def test_what_is_remembered_of_endpoints_and_platforms_is_bounded() -> None:
    fair_share = FairShare(32)
    for number in range(3_000):
        sent = delivery(number, Id(number.to_bytes(16)), platform=number)
        fair_share.start([sent], now=0.0)
        fair_share.finish(sent)
        fair_share.note_response(sent.endpoint_id, is_quick=True)

    capacity = fair_share.capacity(0.0)

    assert len(capacity.shares) == len(capacity.turns) == len(capacity.platform_turns) == 1_000
    assert Id((2_999).to_bytes(16)) in capacity.shares


def test_a_platform_has_its_limit_of_tests_until_their_attempts_have_ended() -> None:
    share = ApartShare(RequestedTests, 32, platform_limit=2)
    tests = [delivery(1, QUICK), delivery(2, SLOW)]  # Of one platform.

    share.start(tests, 0.0)
    during = share.capacity(0.0)
    share.finish(tests[0])
    between = share.capacity(0.0)
    share.finish(tests[1])
    after = share.capacity(0.0)

    platform = tests[0].platform_id
    assert (during.total, during.share, during.shares) == (30, 2, {platform: 0})
    assert (between.total, between.shares) == (31, {platform: 1})
    assert (after.total, after.shares) == (32, {})


def test_quick_endpoints_that_hang_leave_threads_to_another_platform() -> None:
    fair_share = FairShare(64)
    deliveries = []
    for endpoint in (QUICK, SLOW):
        fair_share.note_response(endpoint, is_quick=True)
        deliveries += [
            delivery(100 * endpoint[-1] + number, endpoint, platform=1) for number in range(16)
        ]
    fair_share.start(deliveries, now=0.0)

    capacity = fair_share.capacity(1.5)

    assert capacity.shares == {QUICK: 0, SLOW: 0}
    assert (capacity.total, capacity.others) == (32, 8)
    assert capacity.platforms[Id((1).to_bytes(16))].others <= 0


def test_the_sender_is_shared_while_attempts_of_several_platforms_start() -> None:
    fair_share = FairShare(32)

    fair_share.start([delivery(1, QUICK, platform=1)], now=0.0)
    assert not fair_share.is_shared(0.0)
    fair_share.start([delivery(2, SLOW, platform=2)], now=0.9)
    assert fair_share.is_shared(0.9)
    assert not fair_share.is_shared(1.1)
    fair_share.start([delivery(3, QUICK, platform=1)], now=1.2)
    assert fair_share.is_shared(1.2)


def test_dispatching_and_recording_rest_while_webhooks_of_several_platforms_are_sent() -> None:
    sender = Sender(
        create_engine("postgresql+psycopg://"),  # Never connected.
        KeyRing("a server key for tests, 32 characters and more"),
        clock=lambda: NOW,
        timeout_s=1.0,
        retry_scale=1.0,
        every_s=1.0,
    )
    resting = [task for task in sender.tasks if task._yields()]
    assert resting == []

    of_both = [delivery(1, QUICK, platform=1), delivery(2, SLOW, platform=2)]
    sender._deliveries._coordinator._share.start(of_both, monotonic())

    assert [task.name for task in sender.tasks if task._yields()] == ["dispatch", "webhooks"]
