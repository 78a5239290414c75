"""The JSON of a page: as it is written at once, and only as far as it is shown."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from cardledger.api.console.html import formats, shown_json
from cardledger.api.console.html.shown_json import ShownJson
from cardledger.api.loop_turns import at_once
from cardledger.schema.wire.common import money

_LONG = "\u202e" * 3_000
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.just(_LONG)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | _TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_TEXTS, values, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_steps_write_what_is_written_at_once(document: Any) -> None:  # noqa: ANN401 - JSON
    whole = formats.visible_json(to_json(document, indent=2).decode())

    assert at_once(shown_json.shown(document)) == ShownJson(whole, is_cut=False)


def test_resources_are_as_the_api_sends_them() -> None:
    price = money(1_250, "USD")

    written = [
        at_once(shown_json.shown(document))
        for document in (
            {"data": [price, price], "price": price},
            {"data": iter([price, price]), "price": price},
            {"data": [price.wire(), price.wire()], "price": price.wire()},
        )
    ]

    assert written[0] == written[1] == written[2]


def test_a_document_is_rendered_as_far_as_it_is_shown() -> None:
    rendered = list[str]()

    def items() -> Iterator[str]:
        for _ in range(1_000):
            rendered.append(_LONG)
            yield _LONG

    found = at_once(shown_json.shown({"data": items()}))

    assert found.is_cut
    assert len(found.text) == 200_000
    assert len(rendered) == 12  # Of 18,000 characters each.
