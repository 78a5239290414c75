"""Identifiers: what everybody else calls a UUID, in sixteen bytes."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage.ids import ids_from, ids_in_order, new_id, time_of_id
from cardledger.schema.ids import Id
from tests.ids import IDS


@given(st.uuids())
def test_an_id_is_shown_and_read_as_a_uuid(key: UUID) -> None:
    ours = Id(key.bytes)

    assert (str(ours), f"{ours}") == (str(key), str(key))
    assert repr(ours) == f"Id.parse('{key}')"
    assert Id.parse(str(key)) == Id.parse(str(key).upper()) == Id.parse(key.hex) == ours


@given(IDS, IDS)
def test_ids_are_in_the_order_of_what_they_show(one: Id, other: Id) -> None:
    assert (one < other) == (str(one) < str(other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-" * 36,
        "0193b5c4-0000-7000-8000-00000000000",
        "0193b5c4-0000-7000-8000-0000000000000",
        "0193b5c4-0000-7000-8000-00000000000g",
        "0193b5c4 0000 7000 8000 000000000000",
        "0193b5c4 0000 7000 8000 00000000",
        "{193b5c4-0000-7000-8000-00000000000}",
        "urn:uuid:0193b5c4-0000-7000-8000-000000000000",
        "\u0660193b5c4-0000-7000-8000-000000000000",
    ],
)
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal"):
        Id.parse(text)


def test_new_ids_rise_and_mean_nothing_to_the_sandbox() -> None:
    keys = [new_id() for _ in range(20_000)]

    assert keys == sorted(set(keys))
    assert {UUID(bytes=key).version for key in keys} == {7}
    assert not {str(key)[-3:] for key in keys} & {f"00{digit}" for digit in range(1, 7)}
    assert len(Id(bytes(16))) == len(keys[0]) == 16


def test_ids_in_order_rise_with_their_place_and_time_and_keep_the_end_of_their_key() -> None:
    keys = [Id(bytes(8) + bytes([0x80, *[255 - n % 256] * 5, 8, n % 256])) for n in range(5_000)]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    made = ids_in_order(noon, keys)
    later = ids_in_order(noon + timedelta(milliseconds=2), keys[:1])

    assert [*made, *later] == sorted({*made, *later})
    assert [key[8:] for key in made] == [key[8:] for key in keys]
    assert {UUID(bytes=key).version for key in made} == {7}
    assert {time_of_id(key) - noon for key in made} == {timedelta(0), timedelta(milliseconds=1)}


def test_ids_from_a_time_rise_and_precede_those_of_a_later_one() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    next_id, of_another_process = ids_from(noon), ids_from(noon)

    made = [next_id() for _ in range(5_000)]
    later = ids_from(noon + timedelta(microseconds=1))()

    assert [*made, later] == sorted({*made, later})
    assert of_another_process() not in made
    assert {UUID(bytes=key).version for key in made} == {7}
    assert {UUID(bytes=key).variant for key in made} == {RFC_4122}
    assert not {str(key)[-3:] for key in made} & {f"00{digit}" for digit in range(1, 7)}
    assert {time_of_id(key) for key in made} == {noon}
