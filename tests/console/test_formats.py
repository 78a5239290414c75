"""What others chose, made visible."""

import sys
import unicodedata
from html.parser import HTMLParser

from cardledger.api.console.html import formats


def test_every_invisible_character_is_shown_by_its_code_point() -> None:
    invisible = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    ]

    assert not [each for each in invisible if each in formats.visible(each)]
    assert formats.visible("Café 東京 🎉") == "Café 東京 🎉"


def test_a_text_is_cut_before_its_characters_are_shown() -> None:
    assert formats.visible("\u202e" * 3, 2) == "⟨U+202E⟩⟨U+202E⟩…"


def test_an_attribute_has_every_character_of_a_text() -> None:
    text = "a\"<b>&amp;'\t\n\r\u202e\u200b\x85 Café 🎉"
    values: list[str | None] = []

    class Reader(HTMLParser):
        def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values.append(dict(attrs)["data-copy"])

    html = f'<button data-copy="{formats.attribute(text)}">'
    Reader().feed(html)

    assert values == [text]
    assert not {"\r", "\u202e", "\u200b"} & set(html)


def test_json_keeps_its_lines() -> None:
    assert formats.visible_json('{\n  "name": "a\u202eb"\n}') == '{\n  "name": "a\\u202eb"\n}'
