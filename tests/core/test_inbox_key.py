"""The MAC of a row of the inbox covers all of its columns."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, get_args

from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.messaging.inbox_key import Columns, InboxKey, RejectionColumns, Signed
from cardledger.ledger.projections import transfers
from cardledger.schema import tables
from cardledger.schema.ids import Id

KEY: Final = InboxKey("the key of a server that exists in tests only")
IDS: Final = st.binary(min_size=16, max_size=16).map(Id)
# PostgreSQL stores no U+0000 and no half of a surrogate pair.
TEXTS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TIMES: Final = st.datetimes(
    datetime(2000, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    datetime(2199, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
COLUMNS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "lane": st.integers(0, 1),
    "shard": st.integers(0, 15),
    "id": IDS,
    "customer_id": IDS,
    "platform_id": IDS,
    "source": TEXTS,
    "reference": TEXTS,
    "body": TEXTS,
    "body_hash": st.binary(max_size=16),
    "reply_to": TEXTS,
    "received_at": TIMES,
}
ROWS: Final = st.tuples(*COLUMNS.values())


def test_the_mac_is_made_of_every_column_but_itself() -> None:
    columns = [column.name for column in tables.inbox.columns]

    assert columns == [*COLUMNS, "mac"]
    assert len(get_args(Columns)) == len(COLUMNS)


@given(ROWS, ROWS, st.sets(st.sampled_from(range(len(COLUMNS))), min_size=1))
def test_a_change_of_any_column_changes_the_mac(
    row: tuple[Any, ...], other: tuple[Any, ...], changed: set[int]
) -> None:
    forged = tuple(other[n] if n in changed else row[n] for n in range(len(row)))

    assert (KEY.mac(forged) == KEY.mac(row)) is (forged == row)


@given(ROWS, st.integers(0, len(COLUMNS) - 1), st.data())
def test_a_change_of_one_column_changes_the_mac(
    row: tuple[Any, ...], place: int, data: st.DataObject
) -> None:
    values = list(COLUMNS.values())[place]
    changed = data.draw(values.filter(lambda value: value != row[place]))
    forged = (*row[:place], changed, *row[place + 1 :])

    assert KEY.mac(forged) != KEY.mac(row)


@given(TEXTS, TEXTS, TEXTS)
def test_text_does_not_move_from_one_column_to_the_next(a: str, b: str, c: str) -> None:
    nil, now = Id(bytes(16)), datetime(2026, 1, 1, tzinfo=UTC)
    identity = (0, 0, nil, nil, nil)

    one = KEY.mac((*identity, a + b, c, "{}", b"", None, now))
    other = KEY.mac((*identity, a, b + c, "{}", b"", None, now))

    assert (one == other) is (not b)


def test_the_zone_of_a_time_does_not_count_and_a_microsecond_does() -> None:
    nil, now = Id(bytes(16)), datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)

    def mac(received_at: datetime) -> bytes:
        return KEY.mac((0, 0, nil, nil, nil, "s", "r", "{}", b"", None, received_at))

    assert mac(now.astimezone(timezone(timedelta(hours=9)))) == mac(now)
    assert mac(now + timedelta(microseconds=1)) != mac(now)


def test_another_key_makes_another_mac() -> None:
    nil, now = Id(bytes(16)), datetime(2026, 1, 1, tzinfo=UTC)
    row = (0, 0, nil, nil, nil, "s", "r", "{}", b"", None, now)

    assert InboxKey("another key that is long enough too, really").mac(row) != KEY.mac(row)


REJECTION: Final[dict[str, st.SearchStrategy[Any]]] = {
    "id": IDS,
    "customer_id": IDS,
    "platform_id": IDS,
    "source": st.none() | TEXTS,
    "reference": st.none() | TEXTS,
    "body": TEXTS,
    "reason": TEXTS,
    "detail": st.none() | TEXTS,
    "recorded_at": TIMES,
}


def test_the_mac_of_a_rejection_is_made_of_every_column_but_itself() -> None:
    columns = [column.name for column in tables.rejections.columns]

    assert columns == [*REJECTION, "mac"]
    assert len(get_args(RejectionColumns)) == len(REJECTION)


@given(st.tuples(*REJECTION.values()), st.integers(0, len(REJECTION) - 1), st.data())
def test_a_change_of_one_column_of_a_rejection_changes_its_mac(
    row: tuple[Any, ...], place: int, data: st.DataObject
) -> None:
    values = list(REJECTION.values())[place]
    changed = data.draw(values.filter(lambda value: value != row[place]))
    forged: Any = (*row[:place], changed, *row[place + 1 :])
    mac = KEY.mac_of_rejection(row)

    assert KEY.verifies_rejection(mac, row)
    assert not KEY.verifies_rejection(mac, forged)


TERMS: Final = st.dictionaries(
    st.sampled_from(transfers.SIGNED), st.one_of(st.none(), TEXTS, st.integers(), IDS, TIMES)
)


@given(TERMS, TERMS)
def test_terms_have_the_same_mac_as_long_as_a_new_column_is_null(
    terms: dict[str, Any], other: dict[str, Any]
) -> None:
    mac = KEY.mac_of_terms(Signed.PAYMENT, terms)

    assert KEY.verifies_terms(Signed.PAYMENT, mac, terms | {"added_later": None})
    assert not KEY.verifies_terms(Signed.PAYMENT, mac, terms | {"added_later": 1})
    assert not KEY.verifies_terms(Signed.QUOTE, mac, terms)
    assert not KEY.verifies_terms(Signed.PAYMENT, None, terms)
    assert KEY.verifies_terms(Signed.PAYMENT, mac, other) is (present(terms) == present(other))


def present(terms: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in terms.items()
        if value is not None
    }


def test_the_time_of_terms_is_an_instant() -> None:
    at = datetime(2026, 11, 27, 12, tzinfo=UTC)
    elsewhere = at.astimezone(timezone(timedelta(hours=5)))

    mac = KEY.mac_of_terms(Signed.QUOTE, {"expires_at": at, "sender_information": {"a": 1, "b": 2}})

    terms = {"sender_information": {"b": 2, "a": 1}, "expires_at": elsewhere}
    assert KEY.verifies_terms(Signed.QUOTE, mac, terms)
