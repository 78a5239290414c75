"""Replies are believed only when a process of the installation has sent them, to this list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client.replies import LISTS, ForgedReplyError, read, written
from cardledger.workers.signals.message_key import MessageKey

KEY = MessageKey("the key of a server that exists in tests only")
OTHER = MessageKey("another key that is long enough too")
LIST = f"{LISTS}1"
MESSAGE = new_id()
GOLDEN_SIGNATURE = b"e4c8ed3529ce1a58255340be12192392ce037a504017d000d104590ac74065aa"
LINE = b"%s DECLINED {}" % MESSAGE.hex().encode()


def outcomes(
    reply: bytes, reply_list: str = LIST, key: MessageKey = KEY
) -> list[tuple[Id, Outcome]]:
    return list(read(reply, reply_list, key))


def test_a_signed_reply_brings_its_outcomes() -> None:
    [reply] = written([LINE, LINE], LIST, KEY)

    assert outcomes(reply) == [(MESSAGE, Outcome(OutcomeType.DECLINED, b"{}"))] * 2


def test_a_reply_to_another_list_or_of_another_installation_is_refused() -> None:
    [elsewhere] = written([LINE], f"{LISTS}2", KEY)
    [foreign] = written([LINE], LIST, OTHER)

    for reply in (elsewhere, foreign):
        with pytest.raises(ForgedReplyError):
            outcomes(reply)


def test_the_key_of_replies_is_derived_from_the_server_key_for_them_alone() -> None:
    # Made once: processes of two releases verify each other's replies.
    assert KEY.sign(LIST, b"content") == GOLDEN_SIGNATURE


@given(st.data())
def test_a_changed_reply_is_refused(data: st.DataObject) -> None:
    [reply] = written([LINE], LIST, KEY)
    changed = bytearray(reply)
    changed[data.draw(st.integers(0, len(reply) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(ForgedReplyError):
        outcomes(bytes(changed))


@given(st.binary(max_size=300))
def test_what_was_never_signed_is_refused(junk: bytes) -> None:
    for reply in (junk, LINE + junk, junk + b"\n" + LINE):
        with pytest.raises(ForgedReplyError):
            outcomes(reply)


def test_the_outcomes_of_a_large_batch_are_replies_of_limited_size() -> None:
    lines = [b"%s APPLIED %s" % (MESSAGE.hex().encode(), b"x" * 9_000) for _ in range(500)]

    replies = list(written(lines, LIST, KEY))

    assert len(replies) == 5
    assert max(map(len, replies)) < 1_100_000
    assert sum(len(outcomes(reply)) for reply in replies) == 500


def test_an_earlier_release_passes_over_the_signature() -> None:
    [reply] = written([LINE], LIST, KEY)

    signature, line = reply.split(b"\n")

    # It looks up the caller that waits for each line's message, and no message has this id.
    message_id, kind, _ = signature.split(b" ", 2)
    assert (Id.fromhex(message_id.decode()), OutcomeType(kind.decode())) == (
        Id(bytes(16)),
        OutcomeType.APPLIED,
    )
    assert line == LINE
