"""Who of the endpoints may have how many of the threads."""

from dataclasses import replace
from datetime import UTC, datetime

from cardledger.ledger.webhooks.leases import Delivery
from cardledger.schema.ids import Id
from cardledger.workers.webhooks.fair_share import FairShare

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUICK, SLOW = Id(bytes(15) + b"\x01"), Id(bytes(15) + b"\x02")


def delivery(number: int, endpoint: Id, subject: int = 0) -> Delivery:
    return Delivery(
        id=Id(number.to_bytes(16)),
        webhook=Id(number.to_bytes(16)),
        customer_id=Id(bytes(16)),
        platform_id=Id(bytes(16)),
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


def test_who_is_not_known_is_asked_one_thing_at_a_time() -> None:
    traffic = FairShare(32)

    traffic.enter([delivery(1, SLOW)], now=0.0)

    room = traffic.room(0.0)
    assert (room.total, room.share, room.shares) == (31, 1, {SLOW: 0})


def test_who_answers_quickly_has_a_quarter_until_he_lets_us_wait() -> None:
    traffic = FairShare(32)
    traffic.heard(QUICK, is_quick=True)
    traffic.enter([delivery(1, QUICK), delivery(2, QUICK)], now=0.0)

    assert traffic.room(0.5).shares == {QUICK: 6}
    assert traffic.room(1.5).shares == {QUICK: 0}


def test_those_who_fail_and_those_of_whom_nothing_is_known_have_their_own_part() -> None:
    traffic = FairShare(32)
    failing = replace(delivery(1, SLOW), failing_since=NOW)

    traffic.enter([failing, delivery(2, QUICK)], now=0.0)

    room = traffic.room(0.0)
    assert (room.others, room.failing) == (15, 7)


def test_a_queue_is_busy_until_the_last_of_it_has_left() -> None:
    traffic = FairShare(32)
    one, another = delivery(1, QUICK), delivery(2, QUICK)
    traffic.enter([one, another], now=0.0)

    traffic.leave(one)
    during = traffic.room(0.0)
    traffic.leave(another)
    after = traffic.room(0.0)

    assert (set(during.busy), during.total) == ({one.queue}, 31)
    assert (set(after.busy), after.total) == (set(), 32)


def test_turns_count_up() -> None:
    traffic = FairShare(32)

    traffic.enter([delivery(1, SLOW)], now=0.0)
    traffic.enter([delivery(2, QUICK)], now=0.0)

    turns = traffic.room(0.0).turns
    assert turns[SLOW] < turns[QUICK]
