"""Cursors; pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.paging import CursorError, cursor_of, place_of
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from tests.ids import IDS

KEYS = KeyRing("k" * 32)


@given(IDS, st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_leads_back_to_its_place(key: Id, binding: str) -> None:
    assert place_of(KEYS, binding, cursor_of(KEYS, binding, key)) == key


@given(st.text())
def test_an_arbitrary_string_is_not_a_cursor(text: str) -> None:
    with pytest.raises(CursorError):
        place_of(KEYS, "list", text)


def test_a_cursor_is_bound_to_its_list_and_its_server() -> None:
    cursor = cursor_of(KEYS, "list", new_id())

    for keys, binding in ((KEYS, "other list"), (KeyRing("x" * 32), "list")):
        with pytest.raises(CursorError):
            place_of(keys, binding, cursor)
