"""Look-ups of receivers: known to every process with the server key, computed by no one else."""

from datetime import UTC, datetime, timedelta

import pytest

from cardledger.ledger.quotes.receivers import Lookup, lookup_id
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.schema.ids import Id

FIRST, SECOND = "the first server key, long enough", "the second server key, long enough"
AT = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
ADDRESS = "$ada@example.com"
PLATFORM = new_id()


def looked_up(keys: str | ServerKey, platform_id: Id = PLATFORM, address: str = ADDRESS) -> Id:
    return lookup_id(KeyRing(keys), platform_id, address, at=AT)


def is_known(key: Id, keys: str | ServerKey, *, at: datetime = AT) -> bool:
    return Lookup(key, KeyRing(keys)).is_of(PLATFORM, ADDRESS, at=at)


def test_a_look_up_is_known_to_another_process_for_its_platform_and_address_only() -> None:
    assert is_known(looked_up(FIRST), FIRST)
    assert not is_known(looked_up(FIRST, platform_id=new_id()), FIRST)
    assert not is_known(looked_up(FIRST, address="$eve@example.com"), FIRST)


def test_a_look_up_takes_the_server_key() -> None:
    assert not is_known(looked_up(SECOND), FIRST)


@pytest.mark.parametrize(
    ("made_by", "known_to"),
    [
        (ServerKey(FIRST, next=SECOND), ServerKey(SECOND, former=(FIRST,))),
        (ServerKey(SECOND, former=(FIRST,)), ServerKey(FIRST, next=SECOND)),
        (ServerKey(FIRST, binds=False), ServerKey(FIRST)),
        (ServerKey(FIRST), ServerKey(FIRST, binds=False)),
    ],
)
def test_a_look_up_is_known_while_the_server_key_is_rotated(
    made_by: ServerKey, known_to: ServerKey
) -> None:
    assert is_known(looked_up(made_by), known_to)


def test_a_look_up_is_good_for_five_to_ten_minutes() -> None:
    key = looked_up(FIRST)

    assert is_known(key, FIRST, at=AT + timedelta(minutes=5))
    assert not is_known(key, FIRST, at=AT + timedelta(minutes=10))
